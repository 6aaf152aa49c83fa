// SPDX-License-Identifier: Apache-2.0
//! Unified kernel images: kernel, initrd and command line in the sections of one PE file.

use std::path::Path;

use super::{BootPartition, KexecError, KexecPlan, MAX_IMAGE_SIZE, memory_file};
use crate::system_root;

/// Returns the newest image of the first partition that has one.
pub(super) fn find(partitions: &[BootPartition]) -> Result<Option<KexecPlan>, KexecError> {
    for partition in partitions {
        let is_image = |name: &String| {
            let extension = Path::new(name).extension();
            extension.is_some_and(|extension| extension.eq_ignore_ascii_case("efi"))
        };
        let names = system_root::list_directory(&partition.path, "EFI/Linux");
        // Names contain versions, so the last one is the newest.
        let Some(name) = names.into_iter().rfind(is_image) else { continue };
        let path = format!("EFI/Linux/{name}");
        let origin = format!("{path} of partition {}", partition.number);
        let read = |source| KexecError::Read { file: origin.clone(), source };
        let image = system_root::read_file(&partition.path, &path, MAX_IMAGE_SIZE).map_err(read)?;
        let unclear =
            |reason: &str| KexecError::Unclear { menu: origin.clone(), reason: reason.to_owned() };
        let kernel = section(&image, b".linux").ok_or_else(|| unclear("it has no kernel in it"))?;
        let command_line = section(&image, b".cmdline").unwrap_or_default();
        let text = String::from_utf8_lossy(command_line);
        let initrd = section(&image, b".initrd");
        return Ok(Some(KexecPlan {
            kernel: memory_file(kernel).map_err(read)?,
            initrd: initrd.map(memory_file).transpose().map_err(read)?,
            command_line: text
                .trim_matches(|character: char| character == '\0' || character.is_whitespace())
                .to_owned(),
            origin,
            _mounts: Vec::new(),
        }));
    }
    Ok(None)
}

/// Returns the content of a section of a PE file.
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
