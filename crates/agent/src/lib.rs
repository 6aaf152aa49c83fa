// SPDX-License-Identifier: Apache-2.0
//! The program that runs on a machine while it is inspected, cleaned, deployed or rescued.
//!
//! It is the first and only process of its ramdisk ([`init`]): it loads modules, brings up the
//! [`network`], finds its server ([`home`]) and does what it is told ([`commands`], [`managers`]) in
//! the words of ironic-python-agent, so that a real Ironic server cannot tell the difference. It
//! also runs as an ordinary process in somebody else's system.
//!
//! The static program is built with
//! `cargo rustc -p agent --bin ferrite-agent --profile agent --target x86_64-unknown-linux-gnu -- -C target-feature=+crt-static`.

pub mod agent;
pub mod chance;
pub mod commands;
pub mod home;
pub mod http_client;
pub mod init;
pub mod inspection;
pub mod logs;
pub mod managers;
pub mod network;
pub mod parameters;
pub mod program;
pub mod rescue;
pub mod run;
#[cfg(test)]
mod testing;
pub mod virtual_media;

/// The agent's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
