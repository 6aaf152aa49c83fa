// SPDX-License-Identifier: Apache-2.0
//! The agent in the ramdisk, which inspects, cleans, deploys and rescues the machine it runs on.
//!
//! It is process 1 of its ramdisk ([`init`]): it loads kernel modules, configures the [`network`],
//! connects to its server ([`server_connection`]) and executes commands ([`commands`], [`managers`]). It
//! implements the protocol of ironic-python-agent, so it also works with Ironic. It can also run as an
//! ordinary process of an installed system.
//!
//! The static program is built with
//! `cargo rustc -p agent --bin ferrite-agent --profile agent --target x86_64-unknown-linux-gnu -- -C target-feature=+crt-static`.

pub mod agent;
pub mod commands;
pub mod entropy;
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
pub mod server_connection;
#[cfg(test)]
mod testing;
pub mod virtual_media;

/// The agent's version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
