// SPDX-License-Identifier: Apache-2.0
//! Tests of the store on every engine.
//!
//! SQLite is always tested. PostgreSQL and MariaDB are tested if `FERRITE_TEST_POSTGRES` and
//! `FERRITE_TEST_MARIADB` contain the URL of a server on which databases may be created and dropped.
//! With `FERRITE_TEST_SERVERS=required` a missing URL is a failure.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests fail by panicking")]

mod agent_logs;
mod backup;
mod boot_plans;
mod certificate_authority;
mod clock;
mod corrupt_values;
mod dhcp_leases;
mod failover;
mod identity;
mod job_queues;
mod journal;
mod key_rotation;
mod kill;
mod leases;
mod lists;
mod lossy_proxy;
mod lost_commits;
mod migrations;
mod open;
mod outages;
mod resources;
mod samples;
mod sealed_values;
mod search;
mod secrets;
mod sessions;
mod storage_monitor;
mod tenancy;
mod test_database;
mod tls;
mod transactions;
mod unknown_machines;
