// SPDX-License-Identifier: Apache-2.0
//! Tests of all drivers through the registry and the interface traits.

mod agent;
mod anaconda;
mod autodetect;
mod inspect;
mod machine;
mod registry;
