// SPDX-License-Identifier: Apache-2.0
//! A folder as pages.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use async_trait::async_trait;
use boot_media::{Content, Segment};

use super::pages::{Page, Pages, Reason, Refusal};
use super::request::Request;
use crate::folder::{Denied, Folder};

#[async_trait]
impl Pages for Folder {
    async fn page(&self, request: &Request<'_>) -> Result<Page, Refusal> {
        let name = request.path.trim_start_matches('/');
        let opened = match self.file_without_waiting(name) {
            Some(opened) => opened,
            None => {
                let (folder, name) = (self.clone(), name.to_owned());
                let opened = tokio::task::spawn_blocking(move || folder.file(&name)).await;
                // A task that was not run is the end of the program.
                opened.unwrap_or(Err(Denied::NotFound))
            }
        };
        let (file, about) = opened.map_err(|denied| {
            Refusal::new(match denied {
                Denied::NotFound => Reason::NotFound,
                Denied::Forbidden => Reason::Forbidden,
            })
        })?;
        Ok(page_of(file, &about, request))
    }
}

fn page_of(file: File, about: &Metadata, request: &Request<'_>) -> Page {
    let mut content = Content::new();
    content.push(Segment::File { file: Arc::new(file), offset: 0, length: about.len() });
    // A file that is written anew has another number or another time.
    let written = i128::from(about.mtime()) * 1_000_000_000 + i128::from(about.mtime_nsec());
    Page {
        content,
        media_type: media_type(&request.path),
        etag: Some(format!("{:x}-{:x}-{written:x}", about.ino(), about.len()).into()),
        title: request.told_path().into(),
        subject: None,
    }
}

/// What a file is, by the end of its name. UEFI firmware looks at this before it looks at the name: the
/// last three are EDK2's words.
fn media_type(path: &str) -> &'static str {
    const KINDS: &[(&[&str], &str)] = &[
        (&["ipxe", "cfg", "txt", "sha256", "sha512"], "text/plain; charset=utf-8"),
        (&["json"], "application/json"),
        (&["gz"], "application/gzip"),
        (&["efi"], "application/efi"),
        (&["iso"], "application/vnd.efi-iso"),
        (&["img"], "application/vnd.efi-img"),
    ];
    let end = path.rsplit_once('.').map_or("", |(_, end)| end);
    KINDS
        .iter()
        .find(|(ends, _)| ends.iter().any(|known| known.eq_ignore_ascii_case(end)))
        .map_or("application/octet-stream", |(_, kind)| kind)
}
