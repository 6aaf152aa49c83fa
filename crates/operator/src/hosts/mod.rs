// SPDX-License-Identifier: Apache-2.0
//! `BareMetalHost`: decisions without IO, and the provisioners that carry them out.
//!
//! [`decide`] computes the next action of a host and the status after its outcome. [`execute`]
//! translates an action into a call of a [`provisioner`]. `claims` has the decisions for `HostClaim`.

mod claims;
pub mod controller;
pub mod decide;
pub mod execute;
pub mod provisioner;
