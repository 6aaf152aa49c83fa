// SPDX-License-Identifier: Apache-2.0
//! A read-only TFTP server (RFC 1350) with blksize, timeout, tsize and windowsize (RFC 2347, 2348, 2349, 7440).

mod files;
mod packet;
mod server;
#[cfg(test)]
mod tests;
mod transfer;

pub use crate::folder::Folder;
pub use files::{Files, OpenError};
pub use packet::{ErrorCode, Request, RequestError, RequestedOptions};
pub use server::{ListenError, Server, Services, Settings};
pub use transfer::{Limits, Outbox, Outcome, Progress, Transfer};
