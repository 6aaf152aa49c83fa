// SPDX-License-Identifier: Apache-2.0
//! Builds the agent's ramdisk from a kernel, its modules and a static program.
//!
//! The agent is `/init`. The ramdisk also contains the modules of a driver profile
//! ([`DriverProfile`]) with their dependencies, the tables by which the agent finds the module of a
//! device, firmware, and the few external programs that the agent runs. Neither root privileges nor
//! `depmod`, `cpio` or `dpkg` are needed, and builds are reproducible.
//!
//! * [`build`] builds what a [`RamdiskSpec`] describes;
//! * [`RamdiskManifest`] lists the content, and is stored beside the ramdisk as `ramdisk.toml`;
//! * [`find`] finds a built ramdisk, for `ferrite serve`.

mod build;
mod compress;
mod debian;
mod decompress;
mod digest;
mod elf;
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

pub use build::{ExtraFile, RamdiskBuildError, RamdiskSpec, build};
pub use compress::RamdiskCompression;
pub use debian::DebianError;
pub use elf::{ElfArchitecture, ElfError};
pub use kernel::{KernelError, KernelSource};
pub use manifest::{BuiltRamdisk, FileDigest, MissingParts, RamdiskManifest, find};
pub use modules::ModulesError;
pub use package::PackageError;
pub use profile::DriverProfile;
pub use programs::ProgramError;
pub use tree::TreeError;
