// SPDX-License-Identifier: Apache-2.0
//! The firmware's tables about the machine (SMBIOS), as the kernel hands them out.

use crate::tree::{Tree, printable};

/// The tables of large servers are some tens of KiB.
const LONGEST_TABLE: u64 = 1024 * 1024;
const END_OF_TABLE: u8 = 127;

/// The whole table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Smbios {
    table: Vec<u8>,
}

/// One structure of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Structure<'t> {
    pub(crate) kind: u8,
    pub(crate) handle: u16,
    /// All fields, the four bytes of the header included, so that offsets are the specification's.
    pub(crate) fields: &'t [u8],
    strings: &'t [u8],
}

impl Smbios {
    pub(crate) fn read(tree: &Tree) -> Self {
        let table = tree.bytes("sys/firmware/dmi/tables/DMI", LONGEST_TABLE);
        Self { table: table.unwrap_or_default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The structures in order; ends at the first that is cut off.
    pub(crate) fn structures(&self) -> impl Iterator<Item = Structure<'_>> {
        let mut rest = self.table.as_slice();
        std::iter::from_fn(move || {
            let [kind, length, low, high] = *rest.first_chunk::<4>()?;
            let fields = rest.get(..usize::from(length).max(4))?;
            let after = rest.get(fields.len()..)?;
            // The strings end with two zero bytes, which are there even if there are no strings.
            let end = after.windows(2).position(|pair| pair == [0, 0])?;
            rest = after.get(end + 2..)?;
            let handle = u16::from_le_bytes([low, high]);
            (kind != END_OF_TABLE).then_some(Structure {
                kind,
                handle,
                fields,
                strings: &after[..end],
            })
        })
    }

    pub(crate) fn of_kind(&self, kind: u8) -> impl Iterator<Item = Structure<'_>> {
        self.structures().filter(move |structure| structure.kind == kind)
    }

    /// MiB of all memory modules.
    pub(crate) fn memory_mib(&self) -> Option<u64> {
        let sum = self.of_kind(17).filter_map(module_kib).fold(0_u64, u64::saturating_add) / 1024;
        (sum > 0).then_some(sum)
    }
}

impl Structure<'_> {
    pub(crate) fn byte(&self, at: usize) -> Option<u8> {
        self.fields.get(at).copied()
    }

    pub(crate) fn word(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.fields.get(at..)?.first_chunk()?))
    }

    pub(crate) fn double_word(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.fields.get(at..)?.first_chunk()?))
    }

    pub(crate) fn quad_word(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.fields.get(at..)?.first_chunk()?))
    }

    /// The string whose number is in the field; nothing if the number is zero or there is no such.
    pub(crate) fn string(&self, at: usize) -> Option<String> {
        let number = usize::from(self.byte(at)?).checked_sub(1)?;
        let string = self.strings.split(|byte| *byte == 0).nth(number)?;
        let text = printable(string);
        (!text.is_empty()).then_some(text)
    }
}

/// KiB of a memory module; nothing for an empty socket or one whose size nobody knows.
pub(crate) fn module_kib(module: Structure<'_>) -> Option<u64> {
    match module.word(0x0c)? {
        0 | 0xffff => None,
        // Too large for the old field: MiB in the new one.
        0x7fff => Some(u64::from(module.double_word(0x1c)? & 0x7fff_ffff) * 1024),
        size if size & 0x8000 != 0 => Some(u64::from(size & 0x7fff)),
        size => Some(u64::from(size) * 1024),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A structure as firmware writes it.
    pub(crate) fn structure(kind: u8, handle: u16, fields: &[u8], strings: &[&str]) -> Vec<u8> {
        let length = u8::try_from(fields.len() + 4).unwrap();
        let mut out = vec![kind, length];
        out.extend(handle.to_le_bytes());
        out.extend(fields);
        for string in strings {
            out.extend(string.as_bytes());
            out.push(0);
        }
        out.extend(if strings.is_empty() { &[0, 0][..] } else { &[0][..] });
        out
    }

    fn module(size: u16, extended: u32) -> Vec<u8> {
        let mut fields = vec![0; 0x22 - 4];
        fields[0x0c - 4..0x0e - 4].copy_from_slice(&size.to_le_bytes());
        fields[0x1c - 4..0x20 - 4].copy_from_slice(&extended.to_le_bytes());
        structure(17, 0x1100, &fields, &[])
    }

    #[test]
    fn modules_of_all_sizes_add_up() {
        let check = |modules: &[(u16, u32)], expected| {
            let table = modules.iter().flat_map(|(size, more)| module(*size, *more)).collect();
            assert_eq!(Smbios { table }.memory_mib(), expected, "{modules:?}");
        };
        check(&[(16384, 0), (16384, 0), (0, 0)], Some(32768));
        check(&[(0x7fff, 65536)], Some(65536));
        check(&[(0x8000 | 512, 0), (0x8000 | 512, 0)], Some(1));
        check(&[(0xffff, 0)], None);
        check(&[], None);
    }

    #[test]
    fn strings_are_found_by_their_number() {
        let table = structure(1, 1, &[1, 2, 0, 3, 9], &["Dell Inc.", "PowerEdge R640 ", " "]);
        let smbios = Smbios { table };
        let system = smbios.of_kind(1).next().unwrap();
        assert_eq!(system.string(4).as_deref(), Some("Dell Inc."));
        assert_eq!(system.string(5).as_deref(), Some("PowerEdge R640"));
        for nothing in [6, 7, 8, 200] {
            assert_eq!(system.string(nothing), None, "{nothing}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_table_makes_it_panic(table: Vec<u8>) {
            let smbios = Smbios { table };
            let _ = smbios.memory_mib();
            for structure in smbios.structures() {
                for at in 0..64 {
                    let _ = (structure.string(at), structure.quad_word(at));
                }
            }
            let _ = crate::dmi::collect(&smbios);
        }
    }
}
