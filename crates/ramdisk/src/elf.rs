// SPDX-License-Identifier: Apache-2.0
//! What has to be known of ELF files: for which machine they are, what they need, and the notes that
//! kernel modules carry.

use object::elf::{DT_NEEDED, DT_RUNPATH, ET_DYN, ET_EXEC, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, elf};

/// Why a file cannot be read as a program, a library or a module.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// It is something else, or damaged.
    #[error("it is no whole 64-bit ELF file ({0})")]
    Damaged(object::read::Error),
    /// It says where its loader is in a way that is no text.
    #[error("its names are not text")]
    Names,
    /// It is an object file or a core dump.
    #[error("it is an ELF file, but no program")]
    NoProgram,
    /// It needs a loader and libraries.
    #[error("it is not static: it needs {loader}")]
    NotStatic {
        /// The loader it asks for.
        loader: String,
    },
    /// It is for other machines.
    #[error("it is for {found} machines, and the kernel for {wanted}")]
    OtherMachine {
        /// What it is for.
        found: Architecture,
        /// What it should be for.
        wanted: Architecture,
    },
}

/// The kind of processor a file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Architecture(elf::Machine);

/// What a program or a library asks of the system.
#[derive(Debug)]
pub(crate) struct Needs {
    pub(crate) architecture: Architecture,
    /// The loader; programs without are static.
    pub(crate) loader: Option<String>,
    /// Libraries by name.
    pub(crate) libraries: Vec<String>,
    /// Where they are looked for first.
    pub(crate) folders: Vec<String>,
}

/// Reads what a program or a library needs.
pub(crate) fn needs(bytes: &[u8]) -> Result<Needs, ElfError> {
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(ElfError::Damaged)?;
    let endian = header.endian().map_err(ElfError::Damaged)?;
    if ![ET_EXEC, ET_DYN].contains(&header.e_type(endian)) {
        return Err(ElfError::NoProgram);
    }
    let mut needs = Needs {
        architecture: Architecture(header.e_machine(endian)),
        loader: None,
        libraries: Vec::new(),
        folders: Vec::new(),
    };
    for segment in header.program_headers(endian, bytes).map_err(ElfError::Damaged)? {
        if let Some(loader) = segment.interpreter(endian, bytes).map_err(ElfError::Damaged)? {
            needs.loader = Some(text(loader)?);
        }
    }
    let sections = header.sections(endian, bytes).map_err(ElfError::Damaged)?;
    let dynamic = sections.dynamic(endian, bytes).map_err(ElfError::Damaged)?;
    let Some((entries, names)) = dynamic else { return Ok(needs) };
    let names = sections.strings(endian, bytes, names).map_err(ElfError::Damaged)?;
    for entry in entries {
        let tag = entry.tag(endian);
        if tag != DT_NEEDED && tag != DT_RUNPATH {
            continue;
        }
        let at = u32::try_from(entry.val(endian)).map_err(|_| ElfError::Names)?;
        let name = text(names.get(at).map_err(|()| ElfError::Names)?)?;
        if tag == DT_NEEDED {
            needs.libraries.push(name);
        } else {
            needs.folders.extend(name.split(':').map(str::to_owned));
        }
    }
    Ok(needs)
}

/// Makes sure that a program runs by itself on machines of this kind.
pub(crate) fn check_static(bytes: &[u8], wanted: Architecture) -> Result<(), ElfError> {
    let needs = needs(bytes)?;
    if needs.architecture != wanted {
        return Err(ElfError::OtherMachine { found: needs.architecture, wanted });
    }
    if let Some(loader) = needs.loader {
        return Err(ElfError::NotStatic { loader });
    }
    match needs.libraries.into_iter().next() {
        Some(library) => Err(ElfError::NotStatic { loader: library }),
        None => Ok(()),
    }
}

/// The notes in a kernel module (`key=value`), in its order, and the machines it is for.
pub(crate) fn module_notes(
    bytes: &[u8],
) -> Result<(Architecture, Vec<(String, String)>), ElfError> {
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(ElfError::Damaged)?;
    let endian = header.endian().map_err(ElfError::Damaged)?;
    let architecture = Architecture(header.e_machine(endian));
    let sections = header.sections(endian, bytes).map_err(ElfError::Damaged)?;
    let Some((_, section)) = sections.section_by_name(endian, b".modinfo") else {
        return Ok((architecture, Vec::new()));
    };
    let data = section.data(endian, bytes).map_err(ElfError::Damaged)?;
    let mut notes = Vec::new();
    for note in data.split(|&byte| byte == 0).filter(|note| !note.is_empty()) {
        // Descriptions may be in any old encoding; what is of use is plain.
        let note = String::from_utf8_lossy(note);
        if let Some((key, value)) = note.split_once('=') {
            notes.push((key.to_owned(), value.to_owned()));
        }
    }
    Ok((architecture, notes))
}

fn text(bytes: &[u8]) -> Result<String, ElfError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ElfError::Names)?;
    Ok(text.to_owned())
}

impl Architecture {
    /// As `uname -m` calls it.
    pub fn name(self) -> &'static str {
        match self.0 {
            elf::EM_X86_64 => "x86_64",
            elf::EM_AARCH64 => "aarch64",
            elf::EM_PPC64 => "ppc64le",
            elf::EM_RISCV => "riscv64",
            elf::EM_S390 => "s390x",
            elf::EM_LOONGARCH => "loongarch64",
            // The numbers of ELF are many, and these are all that servers have.
            _ => "other",
        }
    }
}

impl std::fmt::Display for Architecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_module_says_what_it_needs() {
        let module = fixtures::module(&["name=virtio_net", "depends=virtio,failover"]);
        let (architecture, notes) = module_notes(&module).unwrap();
        assert_eq!(architecture.name(), "x86_64");
        assert_eq!(notes[1], ("depends".to_owned(), "virtio,failover".to_owned()));
    }

    #[test]
    fn programs_are_told_apart() {
        let x86 = Architecture(elf::EM_X86_64);
        let arm = Architecture(elf::EM_AARCH64);
        check_static(&fixtures::program(None, &[]), x86).unwrap();
        let cases = [
            (
                fixtures::program(None, &[]),
                arm,
                "it is for x86_64 machines, and the kernel for aarch64",
            ),
            (
                fixtures::program(Some("/lib64/ld.so"), &["libc.so.6"]),
                x86,
                "it is not static: it needs /lib64/ld.so",
            ),
            (fixtures::module(&[]), x86, "it is an ELF file, but no program"),
            (b"#!/bin/sh\n".to_vec(), x86, "it is no whole 64-bit ELF file"),
        ];
        for (bytes, wanted, expected) in cases {
            let told = check_static(&bytes, wanted).unwrap_err().to_string();
            assert!(told.starts_with(expected), "{told}");
        }
    }

    #[test]
    fn libraries_are_found() {
        let needs = needs(&fixtures::program(Some("/lib64/ld.so"), &["libudev.so.1", "libc.so.6"]))
            .unwrap();
        assert_eq!(needs.libraries, ["libudev.so.1", "libc.so.6"]);
    }

    #[test]
    fn damage_is_an_error_and_no_panic() {
        let wholes = [
            fixtures::module(&["depends=a,b", "alias=pci:*"]),
            fixtures::program(Some("/lib64/ld.so"), &["libc.so.6"]),
        ];
        for whole in wholes {
            for end in 0..whole.len() {
                let _ = needs(&whole[..end]);
                let _ = module_notes(&whole[..end]);
            }
            for at in 0..whole.len() {
                for damage in [0x00, 0x7f, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[at] = damage;
                    let _ = needs(&bytes);
                    let _ = module_notes(&bytes);
                }
            }
        }
    }
}
