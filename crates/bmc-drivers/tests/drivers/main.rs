// SPDX-License-Identifier: Apache-2.0
//! Drivers as their callers see them: through the registry and the traits only.

mod anaconda;
mod autodetect;
mod behaviour;
mod flows;
mod machine;
mod management;
mod registry;
mod setup;
mod through_agent;
