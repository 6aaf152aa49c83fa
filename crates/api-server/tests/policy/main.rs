// SPDX-License-Identifier: Apache-2.0
//! Tests of the policy: Ironic's own cases, every route, and properties over random fleets. Requests
//! are served in this process, for callers that the tests choose.

// Helper functions of tests may unwrap as tests do.
#![cfg(test)]

mod every_route;
mod fixture;
mod ironic_cases;
mod owners_and_lessees;
mod rbac_data;
mod tenancy;
mod tenant_isolation;
