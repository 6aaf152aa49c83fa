// SPDX-License-Identifier: Apache-2.0
//! Tests of fake hardware through the registry and the interface traits.

mod behaviour;
mod configuration;
mod flows;
mod machine;
mod management;
