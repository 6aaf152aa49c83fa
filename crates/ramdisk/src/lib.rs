// SPDX-License-Identifier: Apache-2.0
//! Makes the agent's ramdisk from a kernel, its modules and a static program.
//!
//! The agent is the only program of ours in it, as `/init`; with it go the modules for a set of
//! drivers ([`Drivers`]) and what these need, tables by which the agent finds the module for a
//! device, firmware, and the few programs of others that the agent runs. Neither root nor `depmod`,
//! `cpio` or `dpkg` are needed, and the same inputs give the same bytes.
//!
//! * [`Recipe`] says what is wanted, and [`build`] makes it;
//! * [`Manifest`] tells what came of it, and lies beside it as a file;
//! * [`find`] is how `ferrite serve` comes by it.

mod build;
mod compress;
mod debian;
mod digest;
mod elf;
mod expand;
mod firmware;
#[cfg(test)]
mod fixtures;
mod kernel;
mod manifest;
mod modules;
mod package;
mod patterns;
mod profile;
mod programs;
mod tables;
mod tree;

pub use build::{BuildError, ExtraFile, Recipe, build};
pub use compress::Compression;
pub use debian::DebianError;
pub use elf::{Architecture, ElfError};
pub use kernel::{KernelError, KernelSource};
pub use manifest::{Facts, Found, Manifest, Missing, find};
pub use modules::ModulesError;
pub use package::PackageError;
pub use profile::Drivers;
pub use programs::ProgramError;
pub use tree::TreeError;
