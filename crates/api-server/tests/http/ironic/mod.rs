// SPDX-License-Identifier: Apache-2.0
//! Ironic's API.

mod agent;
mod agent_proof;
mod allocations;
mod direct_calls;
mod drivers;
mod node_resources;
mod node_secrets;
mod node_subresources;
mod node_update;
mod nodes;
mod provision;
mod rejected_requests;
mod resource_secrets;
mod resources;
