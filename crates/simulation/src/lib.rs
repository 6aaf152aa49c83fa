// SPDX-License-Identifier: Apache-2.0
//! Three processes of Ferrite in one, in simulated time, with faults that a seed determines.
//!
//! Each process is the real store, conductor, lifecycle and API on a runtime of its own, whose time is
//! paused. They share a simulated database server and simulated machines. A run has two phases: first
//! with faults, where nothing wrong may happen, then without, where all work must end.
//!
//! A seed determines everything: the same seed gives the same events. See
//! `docs/decisions/0024-deterministic-simulation.md`.

mod clients;
mod driver;
mod faults;
mod history;
mod machine;
mod observation;
mod process;
mod random;
mod simulation;
mod world;

pub use simulation::{SimulationDefect, SimulationReport, simulate, simulate_with_defect};
