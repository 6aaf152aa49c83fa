// SPDX-License-Identifier: Apache-2.0
//! A read-only HTTP/1.1 server for machines that boot: firmware, iPXE, BMCs that fetch an ISO, ramdisks.
//!
//! It is our own because it must send files without copying them (`sendfile`), which general HTTP
//! libraries cannot: a rack that boots at once is limited by its network and not by this program. What
//! is at a path is asked of [`Pages`]; ranges, conditions and HEAD are seen to here.

mod connection;
mod folder;
mod page_cache;
mod pages;
mod path;
mod places;
mod range;
mod request;
mod response;
mod server;
mod status;
#[cfg(test)]
mod tests;
mod tls;
mod wire;

pub use crate::folder::Folder;
pub use pages::{Page, Pages, Reason, Refusal};
pub use path::PathError;
pub use range::AskedRange;
pub use request::{
    LONGEST_HEAD, LONGEST_TARGET, Malformed, Method, Parsed, Persistence, Request, parse,
};
pub use response::{Part, Response, refuse, reject, respond};
pub use server::{Limits, ListenError, Server, Services, Settings};
pub use status::Status;
pub use tls::{TlsError, tls_from_files};
