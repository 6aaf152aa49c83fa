// SPDX-License-Identifier: Apache-2.0
//! Writes a small ramdisk: a cpio archive (newc).

use boot_media::{Content, ContentSegment};

/// An archive being written.
pub(crate) struct CpioArchive {
    content: Content,
}

impl CpioArchive {
    pub(crate) fn new() -> CpioArchive {
        CpioArchive { content: Content::new() }
    }

    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, 0o040_755, &Content::new());
    }

    pub(crate) fn program(&mut self, name: &str, content: &Content) {
        self.entry(name, 0o100_755, content);
    }

    pub(crate) fn finish(mut self) -> Content {
        self.entry("TRAILER!!!", 0, &Content::new());
        self.content
    }

    fn entry(&mut self, name: &str, mode: u32, content: &Content) {
        let mut header = b"070701".to_vec();
        let size = u32::try_from(content.length()).unwrap();
        let numbers = [0, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        for number in numbers {
            header.extend(format!("{number:08x}").bytes());
        }
        header.extend(name.bytes());
        header.push(0);
        self.content.push(ContentSegment::Bytes(header.into()));
        self.content.pad_to_multiple(4);
        self.content.append(content);
        self.content.pad_to_multiple(4);
    }
}
