// SPDX-License-Identifier: Apache-2.0
//! The store's promises, tried on every engine.
//!
//! SQLite is always tried. PostgreSQL and MariaDB are tried where `FERRITE_TEST_POSTGRES` and
//! `FERRITE_TEST_MARIADB` say how to reach a server on which databases may be made and dropped;
//! `FERRITE_TEST_SERVERS=required` makes their absence a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

mod agent_logs;
mod boot;
mod database;
mod discoveries;
mod journal;
mod kill;
mod leases;
mod lists;
mod lookups;
mod opening;
mod resources;
mod samples;
mod secrets;
mod transactions;
