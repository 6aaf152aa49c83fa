// SPDX-License-Identifier: Apache-2.0
//! Unified kernel images: an EFI stub with the kernel, its ramdisks and its parameters as extra
//! sections.
//!
//! The stub is that of systemd (`linuxx64.efi.stub` of Debian's `systemd-boot-efi`). It finds its parts
//! by section name, so an image is the stub with a longer section table, followed by the parts. Kernel
//! and ramdisk are not copied, see [`Content`].

mod pe;

use std::io;

use bytes::Bytes;

use crate::{Content, ContentSegment};
use pe::{PeHeaders, PeSectionHeader};

pub use pe::{EfiArchitecture, UkiStubError};

/// EFI firmware loads sections into pages; parts at page boundaries are used without copying.
const PAGE: u64 = 4096;

/// Linux on x86_64 and aarch64 keeps 2048 bytes including the terminating zero, and drops the rest
/// silently.
const MAX_COMMAND_LINE: usize = 2047;

/// A parsed stub, used for all images.
#[derive(Debug, Clone)]
pub struct UkiStub {
    headers: PeHeaders,
    /// The bytes after the headers, up to the end of the last section. A symbol table or a signature after
    /// it is omitted, because new sections invalidate it.
    body: Bytes,
}

/// The parts of a unified kernel image. Not `Debug`: the parameters contain an agent token.
#[derive(Clone, Default)]
pub struct UkiParts {
    /// The kernel, an EFI application itself (`CONFIG_EFI_STUB`, as all distributions build it).
    pub kernel: Content,
    /// The ramdisks, unpacked by the kernel one after the other.
    pub ramdisks: Vec<Content>,
    /// The kernel parameters.
    pub command_line: String,
    /// The contents of `os-release`, which boot menus show; may be empty.
    pub os_release: String,
    /// The kernel's version (`uname -r`); may be empty.
    pub kernel_version: String,
    /// More sections, by name (`.dtb`, `.splash`, …).
    pub extra_sections: Vec<(String, Content)>,
}

/// Why a unified kernel image cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum UkiError {
    /// The header of the kernel cannot be read.
    #[error("could not read the kernel's first bytes")]
    ReadKernel(#[source] io::Error),
    /// The kernel is not an EFI application.
    #[error(
        "the kernel is not an EFI application: give an uncompressed image of a kernel built with CONFIG_EFI_STUB"
    )]
    KernelNotEfi,
    /// The kernel is for another processor than the stub.
    #[error(
        "the kernel is for {kernel}, the stub for {stub}: give the stub of the kernel's architecture"
    )]
    KernelArchitectureMismatch {
        /// The architecture in the kernel's header.
        kernel: String,
        /// The stub's architecture.
        stub: EfiArchitecture,
    },
    /// The kernel parameters contain a line break or another control character.
    #[error("the kernel parameters contain a control character; write them on one line")]
    CommandLine,
    /// The parameters are longer than the kernel accepts.
    #[error(
        "the kernel parameters have {length} bytes, but the kernel accepts {MAX_COMMAND_LINE}; shorten them"
    )]
    CommandLineTooLong {
        /// Their length in bytes.
        length: usize,
    },
    /// The name of a section is empty, longer than eight bytes, or a duplicate.
    #[error(
        "{name:?} cannot be a section's name: it must be of 1 to 8 ASCII characters and new to the image"
    )]
    SectionName {
        /// The name.
        name: String,
    },
    /// The headers of the stub have no space for so many sections.
    #[error(
        "the stub has space for {available} more sections, but {requested} are requested; use fewer or a newer stub"
    )]
    TooManySections {
        /// The maximum number.
        available: usize,
        /// The requested number.
        requested: usize,
    },
    /// The image exceeds the 32-bit sizes and addresses of an EFI application.
    #[error("the image would be larger than 4 GiB; use a smaller ramdisk")]
    TooLarge,
}

// === impl Stub ===

impl UkiStub {
    /// Parses a stub. The bytes are shared, not copied, except for the headers.
    pub fn parse(stub: &Bytes) -> Result<UkiStub, UkiStubError> {
        let headers = PeHeaders::parse(stub)?;
        let body = stub.slice(headers.size_of_headers()..headers.end_of_sections());
        Ok(UkiStub { headers, body })
    }

    /// Returns the architecture of the stub.
    pub fn architecture(&self) -> EfiArchitecture {
        self.headers.architecture()
    }

    /// Builds an image.
    pub fn build(&self, parts: &UkiParts) -> Result<Content, UkiError> {
        self.check_kernel(&parts.kernel)?;
        if parts.command_line.chars().any(char::is_control) {
            return Err(UkiError::CommandLine);
        }
        let length = parts.command_line.len();
        if length > MAX_COMMAND_LINE {
            return Err(UkiError::CommandLineTooLong { length });
        }
        let sections = uki_sections(parts);
        self.check_names(&sections)?;

        let alignment = u64::from(self.headers.file_alignment());
        let page = u64::from(self.headers.section_alignment()).max(PAGE);
        let mut headers = self.headers.clone();
        let mut behind = Content::from(self.body.clone());
        let mut address = u64::from(headers.size_of_image()).next_multiple_of(page);
        let headers_length = headers.size_of_headers() as u64;
        for (name, content) in &sections {
            // File offsets are relative to the start of the image, including the headers.
            pad_to_alignment(&mut behind, headers_length, alignment);
            let size = content.length();
            let section = PeSectionHeader {
                name,
                virtual_size: to_u32(size)?,
                virtual_address: to_u32(address)?,
                raw_size: to_u32(size.next_multiple_of(alignment))?,
                raw_offset: to_u32(headers_length + behind.length())?,
            };
            headers.add_section(&section);
            behind.append(content);
            address = (address + size).next_multiple_of(page);
            to_u32(address)?;
        }
        pad_to_alignment(&mut behind, headers_length, alignment);
        headers.set_size_of_image(to_u32(address)?);

        let mut image = Content::from(headers.into_bytes());
        image.append(&behind);
        Ok(image)
    }

    fn check_kernel(&self, kernel: &Content) -> Result<(), UkiError> {
        let machine = pe::machine_of(kernel).map_err(UkiError::ReadKernel)?;
        let machine = machine.ok_or(UkiError::KernelNotEfi)?;
        let stub = self.architecture();
        if EfiArchitecture::from_machine(machine) == Some(stub) {
            return Ok(());
        }
        let kernel = match EfiArchitecture::from_machine(machine) {
            Some(architecture) => architecture.to_string(),
            None => format!("machine {machine:#06x}"),
        };
        Err(UkiError::KernelArchitectureMismatch { kernel, stub })
    }

    fn check_names(&self, sections: &[(&str, Content)]) -> Result<(), UkiError> {
        for (index, (name, _)) in sections.iter().enumerate() {
            let valid = (1..=8).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
            let twice = sections[..index].iter().any(|(earlier, _)| earlier == name);
            if !valid || twice || self.headers.has_section(name) {
                return Err(UkiError::SectionName { name: (*name).to_owned() });
            }
        }
        let room = self.headers.free_section_slots();
        if sections.len() > room {
            return Err(UkiError::TooManySections { available: room, requested: sections.len() });
        }
        Ok(())
    }
}

/// Returns the sections in file order. The kernel is last because an old kernel that is started in place
/// decompresses itself over what follows.
fn uki_sections(parts: &UkiParts) -> Vec<(&str, Content)> {
    let mut sections = Vec::with_capacity(parts.extra_sections.len() + 5);
    for (name, content) in &parts.extra_sections {
        sections.push((name.as_str(), content.clone()));
    }
    let texts = [
        (".osrel", &parts.os_release),
        (".uname", &parts.kernel_version),
        (".cmdline", &parts.command_line),
    ];
    for (name, text) in texts {
        if !text.is_empty() {
            sections.push((name, Content::from(text.clone().into_bytes())));
        }
    }
    let mut ramdisk = Content::new();
    for part in &parts.ramdisks {
        // The kernel expects the next archive at a multiple of four.
        ramdisk.pad_to_multiple(4);
        ramdisk.append(part);
    }
    if !ramdisk.is_empty() {
        sections.push((".initrd", ramdisk));
    }
    sections.push((".linux", parts.kernel.clone()));
    sections
}

fn pad_to_alignment(content: &mut Content, before: u64, unit: u64) {
    let end = before + content.length();
    content.push(ContentSegment::Zeros(end.next_multiple_of(unit) - end));
}

fn to_u32(value: u64) -> Result<u32, UkiError> {
    u32::try_from(value).map_err(|_| UkiError::TooLarge)
}

#[cfg(test)]
mod tests;
