// SPDX-License-Identifier: Apache-2.0
//! The whole program from outside: the real binary, real sockets, real clients, real kills.
//!
//! One test program for all of it, because linking is what takes longest.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is tests")]

mod boots;
mod commands;
mod demo;
mod durability;
mod ferrite;
mod fleet;
mod installer;
mod journal;
mod journeys;
mod manners;
mod random;
mod real_bmcs;
mod real_clients;
mod replicas;
mod simulated_fleet;
mod start_and_stop;
