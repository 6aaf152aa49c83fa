// SPDX-License-Identifier: Apache-2.0
//! Properties of ELF files: architecture, dependencies, and the `.modinfo` of kernel modules.

use object::elf::{DT_NEEDED, DT_RUNPATH, ET_DYN, ET_EXEC, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, elf};

/// A file is not a usable program, library or module.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// Another format, or damaged.
    #[error("not a valid 64-bit ELF file ({0})")]
    Damaged(object::read::Error),
    /// A string in it is not UTF-8, or outside of the string table.
    #[error("invalid string in the ELF file")]
    InvalidString,
    /// An object file or a core dump.
    #[error("the ELF file is neither a program nor a library")]
    NotExecutable,
    /// It needs a loader or a library.
    #[error("not a static program: it needs {loader}")]
    NotStatic {
        /// The loader or the first library.
        loader: String,
    },
    /// It is for another architecture than the kernel.
    #[error("the file is for {found}, the kernel for {required}")]
    WrongArchitecture {
        /// The architecture of the file.
        found: ElfArchitecture,
        /// The architecture of the kernel.
        required: ElfArchitecture,
    },
}

/// A processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElfArchitecture(elf::Machine);

/// The dependencies of a program or a library.
#[derive(Debug)]
pub(crate) struct ElfDependencies {
    pub(crate) architecture: ElfArchitecture,
    /// The loader; static programs have none.
    pub(crate) loader: Option<String>,
    /// The names of the needed libraries.
    pub(crate) libraries: Vec<String>,
    /// Directories that the loader searches first.
    pub(crate) runpath: Vec<String>,
}

/// Parses the dependencies of a program or a library.
pub(crate) fn dependencies(bytes: &[u8]) -> Result<ElfDependencies, ElfError> {
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(ElfError::Damaged)?;
    let endian = header.endian().map_err(ElfError::Damaged)?;
    if ![ET_EXEC, ET_DYN].contains(&header.e_type(endian)) {
        return Err(ElfError::NotExecutable);
    }
    let mut needs = ElfDependencies {
        architecture: ElfArchitecture(header.e_machine(endian)),
        loader: None,
        libraries: Vec::new(),
        runpath: Vec::new(),
    };
    for segment in header.program_headers(endian, bytes).map_err(ElfError::Damaged)? {
        if let Some(loader) = segment.interpreter(endian, bytes).map_err(ElfError::Damaged)? {
            needs.loader = Some(utf8_string(loader)?);
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
        let at = u32::try_from(entry.val(endian)).map_err(|_| ElfError::InvalidString)?;
        let name = utf8_string(names.get(at).map_err(|()| ElfError::InvalidString)?)?;
        if tag == DT_NEEDED {
            needs.libraries.push(name);
        } else {
            needs.runpath.extend(name.split(':').map(str::to_owned));
        }
    }
    Ok(needs)
}

/// Fails unless a program is static and for this architecture.
pub(crate) fn check_static(bytes: &[u8], required: ElfArchitecture) -> Result<(), ElfError> {
    let needs = dependencies(bytes)?;
    if needs.architecture != required {
        return Err(ElfError::WrongArchitecture { found: needs.architecture, required });
    }
    if let Some(loader) = needs.loader {
        return Err(ElfError::NotStatic { loader });
    }
    match needs.libraries.into_iter().next() {
        Some(library) => Err(ElfError::NotStatic { loader: library }),
        None => Ok(()),
    }
}

/// Returns the architecture and the `.modinfo` entries (`key=value`) of a kernel module, in order.
pub(crate) fn module_info(
    bytes: &[u8],
) -> Result<(ElfArchitecture, Vec<(String, String)>), ElfError> {
    let header = FileHeader64::<Endianness>::parse(bytes).map_err(ElfError::Damaged)?;
    let endian = header.endian().map_err(ElfError::Damaged)?;
    let architecture = ElfArchitecture(header.e_machine(endian));
    let sections = header.sections(endian, bytes).map_err(ElfError::Damaged)?;
    let Some((_, section)) = sections.section_by_name(endian, b".modinfo") else {
        return Ok((architecture, Vec::new()));
    };
    let data = section.data(endian, bytes).map_err(ElfError::Damaged)?;
    let mut entries = Vec::new();
    for entry in data.split(|&byte| byte == 0).filter(|entry| !entry.is_empty()) {
        // Descriptions may have any encoding; the entries in use are ASCII.
        let entry = String::from_utf8_lossy(entry);
        if let Some((key, value)) = entry.split_once('=') {
            entries.push((key.to_owned(), value.to_owned()));
        }
    }
    Ok((architecture, entries))
}

fn utf8_string(bytes: &[u8]) -> Result<String, ElfError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ElfError::InvalidString)?;
    Ok(text.to_owned())
}

impl ElfArchitecture {
    /// Returns the name as in `uname -m`, or "other".
    pub fn name(self) -> &'static str {
        match self.0 {
            elf::EM_X86_64 => "x86_64",
            elf::EM_AARCH64 => "aarch64",
            elf::EM_PPC64 => "ppc64le",
            elf::EM_RISCV => "riscv64",
            elf::EM_S390 => "s390x",
            elf::EM_LOONGARCH => "loongarch64",
            // Not an architecture that Debian builds kernels for servers for.
            _ => "other",
        }
    }
}

impl std::fmt::Display for ElfArchitecture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn reads_modinfo_of_a_module() {
        let module = fixtures::kernel_module(&["name=virtio_net", "depends=virtio,failover"]);
        let (architecture, modinfo) = module_info(&module).unwrap();
        assert_eq!(architecture.name(), "x86_64");
        assert_eq!(modinfo[1], ("depends".to_owned(), "virtio,failover".to_owned()));
    }

    #[test]
    fn rejects_dynamic_and_foreign_programs() {
        let x86 = ElfArchitecture(elf::EM_X86_64);
        let arm = ElfArchitecture(elf::EM_AARCH64);
        check_static(&fixtures::elf_program(None, &[]), x86).unwrap();
        let cases = [
            (
                fixtures::elf_program(None, &[]),
                arm,
                "the file is for x86_64, the kernel for aarch64",
            ),
            (
                fixtures::elf_program(Some("/lib64/ld.so"), &["libc.so.6"]),
                x86,
                "not a static program: it needs /lib64/ld.so",
            ),
            (fixtures::kernel_module(&[]), x86, "the ELF file is neither a program nor a library"),
            (b"#!/bin/sh\n".to_vec(), x86, "not a valid 64-bit ELF file"),
        ];
        for (bytes, required, expected) in cases {
            let error = check_static(&bytes, required).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn lists_needed_libraries() {
        let needs = dependencies(&fixtures::elf_program(
            Some("/lib64/ld.so"),
            &["libudev.so.1", "libc.so.6"],
        ))
        .unwrap();
        assert_eq!(needs.libraries, ["libudev.so.1", "libc.so.6"]);
    }

    #[test]
    fn damaged_files_do_not_panic() {
        let wholes = [
            fixtures::kernel_module(&["depends=a,b", "alias=pci:*"]),
            fixtures::elf_program(Some("/lib64/ld.so"), &["libc.so.6"]),
        ];
        for whole in wholes {
            for end in 0..whole.len() {
                let _ = dependencies(&whole[..end]);
                let _ = module_info(&whole[..end]);
            }
            for at in 0..whole.len() {
                for damage in [0x00, 0x7f, 0xff] {
                    let mut bytes = whole.clone();
                    bytes[at] = damage;
                    let _ = dependencies(&bytes);
                    let _ = module_info(&bytes);
                }
            }
        }
    }
}
