// SPDX-License-Identifier: Apache-2.0
//! Where the bytes come from: a folder, or anything else that answers to names.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use boot_media::{Content, Segment};

use crate::folder::{Denied, Folder};

/// Gives files to clients. The client is named so that each machine can get a file of its own.
#[async_trait]
pub trait Files: Send + Sync {
    /// The file of that name for that client. Other transfers go on meanwhile; the client waits, and
    /// is given up when it takes too long.
    ///
    /// # Errors
    /// If there is none, or the client may not have it, or it cannot be had now.
    async fn open(&self, name: &str, client: SocketAddr) -> Result<Content, OpenError>;
}

/// Why a file is not given.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("no such file")]
    NotFound,
    /// The name leads out of the folder, or the file may not be read.
    #[error("this file may not be read")]
    Forbidden,
    /// What knows of the file does not answer.
    #[error("this file cannot be had now; try again")]
    Unavailable,
}

#[async_trait]
impl Files for Folder {
    async fn open(&self, name: &str, _client: SocketAddr) -> Result<Content, OpenError> {
        // Firmware writes the separator of its maker's choice, and often one in front.
        let name = name.replace('\\', "/");
        let name = name.trim_start_matches('/');
        let (file, about) = self.file(name).map_err(|denied| match denied {
            Denied::NotFound => OpenError::NotFound,
            Denied::Forbidden => OpenError::Forbidden,
        })?;
        let mut content = Content::new();
        content.push(Segment::File { file: Arc::new(file), offset: 0, length: about.len() });
        Ok(content)
    }
}

/// The most bytes that are translated to netascii, which is for small texts and is done in memory.
const LARGEST_TEXT: u64 = 1 << 20;

/// The content with line ends as netascii writes them; none if it is too large to be a text.
pub(super) fn netascii(content: &Content) -> Option<Content> {
    if content.length() > LARGEST_TEXT {
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
