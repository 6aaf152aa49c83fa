// SPDX-License-Identifier: Apache-2.0
//! The headers of an EFI application (PE32+): parses those of a stub, and adds sections.

use std::fmt;
use std::io;
use std::ops::Range;

use crate::Content;

const FILE_HEADER: usize = 4;
const OPTIONAL_HEADER: usize = 24;
const DIRECTORIES: usize = 112;
const SECURITY_DIRECTORY: usize = 4;
const SECTION: usize = 40;
const PE32_PLUS: u16 = 0x20b;
const EFI_APPLICATION: u16 = 10;
/// Initialised data, readable.
const READ_ONLY_DATA: u32 = 0x4000_0040;
/// Size limit of the headers of a stub.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// The architecture of an EFI application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EfiArchitecture {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

/// Why a file cannot be used as a stub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UkiStubError {
    /// Not an EFI application.
    #[error(
        "the stub is not an EFI application ({missing}); install systemd-boot-efi or give the path of a stub"
    )]
    NotEfi {
        /// The problem.
        missing: &'static str,
    },
    /// The processor architecture is not supported.
    #[error("the stub is for machine {machine:#06x}; only x86_64 and aarch64 are supported")]
    UnknownMachine {
        /// The number in the header.
        machine: u16,
    },
    /// It contains a kernel already.
    #[error("the stub already contains {section}: use a plain stub, not a unified kernel image")]
    AlreadyUnified {
        /// The section that a stub does not have.
        section: &'static str,
    },
}

/// A section to add.
pub(super) struct PeSectionHeader<'a> {
    pub(super) name: &'a str,
    pub(super) virtual_size: u32,
    pub(super) virtual_address: u32,
    pub(super) raw_size: u32,
    pub(super) raw_offset: u32,
}

/// The headers of a validated stub.
#[derive(Debug, Clone)]
pub(super) struct PeHeaders {
    bytes: Vec<u8>,
    /// The offset of the `PE` signature.
    signature: usize,
    architecture: EfiArchitecture,
    section_alignment: u32,
    file_alignment: u32,
    sections: usize,
    section_table: usize,
    /// The first address after all sections.
    size_of_image: u32,
    end_of_sections: usize,
}

// === impl Architecture ===

impl EfiArchitecture {
    /// Returns the path that firmware boots by default from removable media.
    pub fn removable_path(self) -> &'static str {
        match self {
            EfiArchitecture::X86_64 => "EFI/BOOT/BOOTX64.EFI",
            EfiArchitecture::Aarch64 => "EFI/BOOT/BOOTAA64.EFI",
        }
    }

    pub(super) fn from_machine(machine: u16) -> Option<EfiArchitecture> {
        match machine {
            0x8664 => Some(EfiArchitecture::X86_64),
            0xAA64 => Some(EfiArchitecture::Aarch64),
            _ => None,
        }
    }
}

impl fmt::Display for EfiArchitecture {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            EfiArchitecture::X86_64 => "x86_64",
            EfiArchitecture::Aarch64 => "aarch64",
        })
    }
}

/// Returns the machine number of an EFI application; `None` if it is not one.
pub(super) fn machine_of(application: &Content) -> io::Result<Option<u16>> {
    let mut start = [0; 64];
    if application.read_at(0, &mut start)? < start.len() || !start.starts_with(b"MZ") {
        return Ok(None);
    }
    let signature = u64::from(read_u32(&start, 0x3c));
    let mut header = [0; 6];
    let read = application.read_at(signature, &mut header)?;
    let is_pe = read == header.len() && header.starts_with(b"PE\0\0");
    Ok(is_pe.then(|| read_u16(&header, 4)))
}

// === impl PeHeaders ===

impl PeHeaders {
    pub(super) fn parse(stub: &[u8]) -> Result<PeHeaders, UkiStubError> {
        let not_efi = |missing| UkiStubError::NotEfi { missing };
        let range = |range: Range<usize>, missing| stub.get(range).ok_or(not_efi(missing));

        let dos = range(0..64, "too short")?;
        if !dos.starts_with(b"MZ") {
            return Err(not_efi("no MZ header"));
        }
        let signature = read_u32(dos, 0x3c) as usize;
        if signature > MAX_HEADER_BYTES || !stub[signature.min(stub.len())..].starts_with(b"PE\0\0")
        {
            return Err(not_efi("no PE signature"));
        }
        let file_header = range(signature + FILE_HEADER..signature + OPTIONAL_HEADER, "cut short")?;
        let machine = read_u16(file_header, 0);
        let sections = usize::from(read_u16(file_header, 2));
        let optional_size = usize::from(read_u16(file_header, 16));
        let optional_start = signature + OPTIONAL_HEADER;
        let optional = range(optional_start..optional_start + optional_size, "cut short")?;
        let smallest = DIRECTORIES + 8 * (SECURITY_DIRECTORY + 1);
        if optional.len() < smallest || read_u16(optional, 0) != PE32_PLUS {
            return Err(not_efi("no PE32+ header"));
        }
        if read_u16(optional, 68) != EFI_APPLICATION {
            return Err(not_efi("another subsystem"));
        }
        let architecture = EfiArchitecture::from_machine(machine)
            .ok_or(UkiStubError::UnknownMachine { machine })?;
        let section_alignment = read_u32(optional, 32);
        let file_alignment = read_u32(optional, 36);
        let sensible = |alignment: u32| alignment.is_power_of_two() && alignment <= 1 << 20;
        if !sensible(section_alignment) || !sensible(file_alignment) {
            return Err(not_efi("impossible alignment"));
        }
        let size_of_headers = read_u32(optional, 60) as usize;
        let section_table = optional_start + optional_size;
        let table_end = section_table + sections * SECTION;
        if size_of_headers > MAX_HEADER_BYTES || table_end > size_of_headers {
            return Err(not_efi("impossible size of headers"));
        }
        let mut bytes = range(0..size_of_headers, "cut short")?.to_vec();

        let mut size_of_image = read_u32(optional, 56);
        let mut end_of_sections = size_of_headers;
        for section in bytes[section_table..table_end].chunks_exact(SECTION) {
            if let Some(section) =
                KERNEL_SECTIONS.into_iter().find(|n| section_has_name(section, n))
            {
                return Err(UkiStubError::AlreadyUnified { section });
            }
            let in_memory = read_u32(section, 12).checked_add(read_u32(section, 8));
            let in_file = read_u32(section, 20).checked_add(read_u32(section, 16));
            let (Some(in_memory), Some(in_file)) = (in_memory, in_file) else {
                return Err(not_efi("impossible section"));
            };
            size_of_image = size_of_image.max(in_memory);
            end_of_sections = end_of_sections.max(in_file as usize);
        }
        if end_of_sections > stub.len() {
            return Err(not_efi("cut short"));
        }
        clear_stale_fields(&mut bytes, signature);
        Ok(PeHeaders {
            bytes,
            signature,
            architecture,
            section_alignment,
            file_alignment,
            sections,
            section_table,
            size_of_image,
            end_of_sections,
        })
    }

    pub(super) fn architecture(&self) -> EfiArchitecture {
        self.architecture
    }

    pub(super) fn size_of_headers(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn end_of_sections(&self) -> usize {
        self.end_of_sections
    }

    pub(super) fn size_of_image(&self) -> u32 {
        self.size_of_image
    }

    pub(super) fn section_alignment(&self) -> u32 {
        self.section_alignment
    }

    pub(super) fn file_alignment(&self) -> u32 {
        self.file_alignment
    }

    pub(super) fn has_section(&self, name: &str) -> bool {
        let end = self.section_table + self.sections * SECTION;
        self.bytes[self.section_table..end].chunks_exact(SECTION).any(|s| section_has_name(s, name))
    }

    /// Returns the number of sections that fit between the table and the data of the first section.
    pub(super) fn free_section_slots(&self) -> usize {
        (self.bytes.len() - self.section_table) / SECTION - self.sections
    }

    /// Adds a row to the table, which must have space for it.
    pub(super) fn add_section(&mut self, section: &PeSectionHeader<'_>) {
        let mut row = [0; SECTION];
        row[..section.name.len()].copy_from_slice(section.name.as_bytes());
        write_u32(&mut row, 8, section.virtual_size);
        write_u32(&mut row, 12, section.virtual_address);
        write_u32(&mut row, 16, section.raw_size);
        write_u32(&mut row, 20, section.raw_offset);
        write_u32(&mut row, 36, READ_ONLY_DATA);
        let at = self.section_table + self.sections * SECTION;
        self.bytes[at..at + SECTION].copy_from_slice(&row);
        self.sections += 1;

        let count = u16::try_from(self.sections).expect("the table is in 64 KiB of headers");
        let count_at = self.signature + FILE_HEADER + 2;
        self.bytes[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
        let data_at = self.signature + OPTIONAL_HEADER + 8;
        let data = read_u32(&self.bytes, data_at).wrapping_add(section.raw_size);
        write_u32(&mut self.bytes, data_at, data);
    }

    pub(super) fn set_size_of_image(&mut self, size: u32) {
        write_u32(&mut self.bytes, self.signature + OPTIONAL_HEADER + 56, size);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Sections of a unified kernel image that a stub does not have.
const KERNEL_SECTIONS: [&str; 3] = [".linux", ".initrd", ".cmdline"];

/// Clears the locations of the symbol table and the signature, which are not copied, and the checksum:
/// zero means "none", firmware ignores it, and computing it would read the whole ramdisk for each node.
fn clear_stale_fields(headers: &mut [u8], signature: usize) {
    let optional = signature + OPTIONAL_HEADER;
    let symbols = signature + FILE_HEADER + 8;
    headers[symbols..symbols + 8].fill(0);
    headers[optional + 64..optional + 68].fill(0);
    let security = optional + DIRECTORIES + 8 * SECURITY_DIRECTORY;
    headers[security..security + 8].fill(0);
}

fn section_has_name(section: &[u8], name: &str) -> bool {
    let field = &section[..8];
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(8);
    &field[..end] == name.as_bytes()
}

fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn write_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
