// SPDX-License-Identifier: Apache-2.0
//! For tests: replicated databases whose servers are killed, stopped and promoted.
//!
//! The servers listen on free loopback ports, accept their only user without a password, do not flush
//! writes to disk, and end with the value or the thread that started them. They run without root
//! privileges, which PostgreSQL requires.

mod galera;
mod postgres_pair;
mod server_process;

pub use galera::GaleraCluster;
pub use postgres_pair::PostgresPair;

/// Whether tests must have database servers: `FERRITE_TEST_SERVERS` is `required`.
#[must_use]
pub fn are_required() -> bool {
    std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|how| how == "required")
}
