// SPDX-License-Identifier: Apache-2.0
//! Installations of the service: `Ironic` objects.

mod agent_ramdisks;
pub mod certificate;
pub mod controller;
pub mod credentials;
mod deletion;
pub mod desired;
pub mod facts;
mod generated_secrets;
pub mod readiness;
mod reconcile;
mod references;
pub mod settings;
pub(crate) mod status;

pub(crate) use generated_secrets::random;
