// SPDX-License-Identifier: Apache-2.0
//! Callers, roles and the policy that decides what a caller may do. No IO.
//!
//! The default rules are Ironic's, and rules named `ferrite:…` for what Ironic does not have. The
//! operator overrides them with a file in oslo.policy's language.

mod caller;
mod check;
mod parse;
mod policy;
mod reduced;
mod reference;
mod rules;
mod target;

pub use caller::{AuthMethod, Caller, CallerScope};
pub use policy::{Policy, PolicyError};
pub use reference::reference_page;
pub use target::PolicyTarget;
