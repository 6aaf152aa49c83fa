// SPDX-License-Identifier: Apache-2.0
//! End-to-end tests of the real binary over real sockets.
//!
//! One test program for all of them, because linking takes longest.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod agent_fleet;
mod agent_ramdisks;
mod backup_command;
mod bmc_identity;
mod client_certificates;
mod commands;
mod database_command;
mod demo;
mod durability;
mod full_disk;
mod identity;
mod installer;
mod journal;
mod lab_deployments;
mod measured;
mod netboot;
mod provisioning_network;
mod real_bmcs;
mod real_clients;
mod replicas;
mod run_command;
mod secrets;
mod seeded_random;
mod sim_command;
mod start_and_stop;
mod test_database;
mod test_namespaces;
mod test_process;
mod tls;
