// SPDX-License-Identifier: Apache-2.0
//! `HostClaim`: which host a claim gets, how the host is changed, and what the claim reports. No IO.
//!
//! A claim is bound to a host by `spec.consumerRef` of the host, as in Metal3. The status of a claim names the
//! host too, but has no effect on a host without a matching `consumerRef`.

pub(super) mod binding;
pub(super) mod host_index;
pub(super) mod mirror;
pub(super) mod policy;
pub(super) mod report;
mod reservations;
pub(super) mod secret_copies;
pub(super) mod secret_sources;
pub(super) mod selector;
mod waiting_claims;
