// SPDX-License-Identifier: Apache-2.0
//! Tests with a real Kubernetes control plane.
//!
//! One test program for all of them, because linking takes longest. They run with
//! `cargo xtask with-kube cargo test -p ferrite --test kube`.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod cluster;
mod cluster_wide;
mod control_plane;
mod documentation;
mod host_claims;
mod hosts_bmc_address;
mod hosts_fixture;
mod hosts_lab;
mod hosts_service;
mod hosts_service_lab;
mod hosts_service_situations;
mod hosts_service_states;
mod installation;
mod installation_databases;
mod installation_lab;
mod installed_operator;
mod leader_election;
mod migration;
mod sample_job;
mod with_service;
