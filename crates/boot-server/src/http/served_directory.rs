// SPDX-License-Identifier: Apache-2.0
//! Serves a directory by HTTP.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use async_trait::async_trait;
use boot_media::{Content, ContentSegment};

use super::files::{HttpFile, HttpFileRefusal, HttpFiles, HttpRefusalReason};
use super::request::BootHttpRequest;
use crate::served_directory::{FileAccessError, ServedDirectory};

#[async_trait]
impl HttpFiles for ServedDirectory {
    async fn file(&self, request: &BootHttpRequest<'_>) -> Result<HttpFile, HttpFileRefusal> {
        let name = request.path.trim_start_matches('/');
        let opened = match self.open_file_cached(name) {
            Some(opened) => opened,
            None => {
                let (directory, name) = (self.clone(), name.to_owned());
                let opened = tokio::task::spawn_blocking(move || directory.open_file(&name)).await;
                // The task only fails to run during shutdown.
                opened.unwrap_or(Err(FileAccessError::NotFound))
            }
        };
        let (file, metadata) = opened.map_err(|error| {
            HttpFileRefusal::new(match error {
                FileAccessError::NotFound => HttpRefusalReason::NotFound,
                FileAccessError::Forbidden => HttpRefusalReason::Forbidden,
            })
        })?;
        Ok(http_file(file, &metadata, request))
    }
}

fn http_file(file: File, metadata: &Metadata, request: &BootHttpRequest<'_>) -> HttpFile {
    let mut content = Content::new();
    content.push(ContentSegment::File { file: Arc::new(file), offset: 0, length: metadata.len() });
    // A rewritten file has another inode number or modification time.
    let modified = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
    HttpFile {
        content,
        media_type: media_type(&request.path),
        etag: Some(format!("{:x}-{:x}-{modified:x}", metadata.ino(), metadata.len()).into()),
        title: request.redacted_path().into(),
        machine: None,
    }
}

/// Returns the media type by file extension. UEFI firmware uses it before the name; the last three are
/// EDK2's types.
fn media_type(path: &str) -> &'static str {
    const MEDIA_TYPES: &[(&[&str], &str)] = &[
        (&["ipxe", "cfg", "txt", "sha256", "sha512"], "text/plain; charset=utf-8"),
        (&["json"], "application/json"),
        (&["gz"], "application/gzip"),
        (&["efi"], "application/efi"),
        (&["iso"], "application/vnd.efi-iso"),
        (&["img"], "application/vnd.efi-img"),
    ];
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    MEDIA_TYPES
        .iter()
        .find(|(extensions, _)| {
            extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
        })
        .map_or("application/octet-stream", |(_, media_type)| media_type)
}
