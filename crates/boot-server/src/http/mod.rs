// SPDX-License-Identifier: Apache-2.0
//! A read-only HTTP/1.1 server for booting machines: firmware, iPXE, BMCs that fetch an ISO, ramdisks.
//!
//! It is an own server because it sends files without copying them (`sendfile`), which general HTTP
//! libraries do not support. So a rack that boots at once is limited by its network, not by this program.
//! [`HttpFiles`] supplies the file at a path; this module handles ranges, conditions and HEAD.

mod client_stream;
mod connection;
mod files;
mod page_cache;
mod path;
mod range;
mod request;
mod response;
mod served_directory;
mod server;
mod status;
#[cfg(test)]
mod tests;

pub use crate::served_directory::ServedDirectory;
pub use files::{HttpFile, HttpFileRefusal, HttpFiles, HttpRefusalReason};
pub use path::RequestPathError;
pub use range::ByteRange;
pub use request::{
    BootHttpMethod, BootHttpRequest, BootHttpRequestError, ConnectionPersistence, MAX_HEAD_BYTES,
    MAX_TARGET_BYTES, ParsedHttpRequest, parse_request,
};
pub use response::{
    BootHttpResponse, HttpContentRange, error_response, file_response, refusal_response,
};
pub use server::{
    BootHttpLimits, BootHttpListenError, BootHttpServer, BootHttpServices, BootHttpSettings,
};
pub use status::BootHttpStatus;
