// SPDX-License-Identifier: Apache-2.0
//! A read-only TFTP server (RFC 1350) with the options blksize, timeout, tsize and windowsize (RFC 2347,
//! 2348, 2349, 7440).

mod files;
mod packet;
mod server;
#[cfg(test)]
mod tests;
mod transfer;

pub use crate::served_directory::ServedDirectory;
pub use files::{TftpFiles, TftpOpenError};
pub use packet::{TftpErrorCode, TftpOptions, TftpRequest, TftpRequestError};
pub use server::{TftpListenError, TftpServer, TftpServices, TftpSettings};
pub use transfer::{TftpLimits, TftpOutbox, TftpOutcome, TftpProgress, TftpTransfer};
