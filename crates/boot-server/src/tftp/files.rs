// SPDX-License-Identifier: Apache-2.0
//! The trait that supplies files to the TFTP server, and its implementation for a directory.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use boot_media::{Content, ContentSegment};

use crate::served_directory::{FileAccessError, ServedDirectory};

/// Supplies files. The client is a parameter, so that each machine can get its own file.
#[async_trait]
pub trait TftpFiles: Send + Sync {
    /// Opens the file with this name for this client. Other transfers continue meanwhile. The call is
    /// cancelled after [`TftpLimits::idle_timeout`](super::TftpLimits::idle_timeout).
    ///
    /// # Errors
    /// If there is no such file, it is not for this client, or it is temporarily unavailable.
    async fn open(&self, name: &str, client: SocketAddr) -> Result<Content, TftpOpenError>;
}

/// Why a file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TftpOpenError {
    /// There is no such file.
    #[error("no such file")]
    NotFound,
    /// The name leads out of the directory, or the file may not be read.
    #[error("access denied")]
    Forbidden,
    /// The source of the file does not respond.
    #[error("file temporarily unavailable; try again")]
    Unavailable,
}

#[async_trait]
impl TftpFiles for ServedDirectory {
    async fn open(&self, name: &str, _client: SocketAddr) -> Result<Content, TftpOpenError> {
        // Some firmware sends backslashes, and often a leading separator.
        let name = name.replace('\\', "/");
        let name = name.trim_start_matches('/');
        let (file, metadata) = self.open_file(name).map_err(|error| match error {
            FileAccessError::NotFound => TftpOpenError::NotFound,
            FileAccessError::Forbidden => TftpOpenError::Forbidden,
        })?;
        let mut content = Content::new();
        content.push(ContentSegment::File {
            file: Arc::new(file),
            offset: 0,
            length: metadata.len(),
        });
        Ok(content)
    }
}

/// The limit for translation to netascii, which is done in memory and meant for small texts.
const MAX_NETASCII_BYTES: u64 = 1 << 20;

/// Translates line ends to netascii. Returns `None` if the content is too large or cannot be read.
pub(super) fn netascii(content: &Content) -> Option<Content> {
    if content.length() > MAX_NETASCII_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).ok()?;
    let mut text = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for byte in bytes {
        match byte {
            b'\n' => text.extend(*b"\r\n"),
            b'\r' => text.extend(*b"\r\0"),
            other => text.push(other),
        }
    }
    Some(Content::from(text))
}
