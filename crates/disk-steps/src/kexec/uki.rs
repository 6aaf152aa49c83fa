// SPDX-License-Identifier: Apache-2.0
//! Unified kernel images: a kernel, an initrd and a command line in the sections of one PE file.

use std::path::Path;

use super::{Error, KexecPlan, LARGEST, Tree, in_memory};
use crate::inside;

/// The newest image on any partition, if there is one.
pub(super) fn find(trees: &[Tree]) -> Result<Option<KexecPlan>, Error> {
    for tree in trees {
        let is_image = |name: &String| {
            let extension = Path::new(name).extension();
            extension.is_some_and(|extension| extension.eq_ignore_ascii_case("efi"))
        };
        let names = inside::names(&tree.path, "EFI/Linux");
        // Names carry versions, so that the last one is the newest.
        let Some(name) = names.into_iter().rfind(is_image) else { continue };
        let path = format!("EFI/Linux/{name}");
        let from = format!("{path} of partition {}", tree.number);
        let read = |source| Error::Read { file: from.clone(), source };
        let image = inside::read(&tree.path, &path, LARGEST).map_err(read)?;
        let unclear = |why: &str| Error::Unclear { menu: from.clone(), why: why.to_owned() };
        let kernel = section(&image, b".linux").ok_or_else(|| unclear("it has no kernel in it"))?;
        let command_line = section(&image, b".cmdline").unwrap_or_default();
        let text = String::from_utf8_lossy(command_line);
        let initrd = section(&image, b".initrd");
        return Ok(Some(KexecPlan {
            kernel: in_memory(kernel).map_err(read)?,
            initrd: initrd.map(in_memory).transpose().map_err(read)?,
            command_line: text
                .trim_matches(|letter: char| letter == '\0' || letter.is_whitespace())
                .to_owned(),
            from,
            _mounts: Vec::new(),
        }));
    }
    Ok(None)
}

/// The content of a section of a PE file.
fn section<'a>(image: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(image.get(at..at + 2)?.try_into().ok()?));
    let u32_at =
        |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    if !image.starts_with(b"MZ") {
        return None;
    }
    let header = u32_at(0x3c)?;
    if image.get(header..header.checked_add(4)?)? != b"PE\0\0" {
        return None;
    }
    let sections = usize::from(u16_at(header + 6)?);
    let table = header + 24 + usize::from(u16_at(header + 20)?);
    let mut padded = [0; 8];
    padded[..name.len()].copy_from_slice(name);
    let found = (0..sections).map(|index| table + 40 * index);
    let at = found.into_iter().find(|at| image.get(*at..*at + 8) == Some(&padded[..]))?;
    let length = u32_at(at + 8)?.min(u32_at(at + 16)?);
    image.get(u32_at(at + 20)?..)?.get(..length)
}
