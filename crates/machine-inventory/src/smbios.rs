// SPDX-License-Identifier: Apache-2.0
//! Parser of the SMBIOS structure table, read from sysfs.

use crate::kernel_files::{KernelFiles, printable};

/// Tables of large servers have some tens of KiB.
const MAX_TABLE_LENGTH: u64 = 1024 * 1024;
const END_OF_TABLE: u8 = 127;

/// The structure table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Smbios {
    table: Vec<u8>,
}

/// One structure of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SmbiosStructure<'t> {
    pub(crate) structure_type: u8,
    pub(crate) handle: u16,
    /// Formatted area including the four-byte header, so that offsets match the specification.
    pub(crate) fields: &'t [u8],
    strings: &'t [u8],
}

impl Smbios {
    pub(crate) fn read(files: &KernelFiles) -> Self {
        let table = files.bytes("sys/firmware/dmi/tables/DMI", MAX_TABLE_LENGTH);
        Self { table: table.unwrap_or_default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Iterates over the structures; ends at the first truncated one.
    pub(crate) fn structures(&self) -> impl Iterator<Item = SmbiosStructure<'_>> {
        let mut rest = self.table.as_slice();
        std::iter::from_fn(move || {
            let [structure_type, length, low, high] = *rest.first_chunk::<4>()?;
            let fields = rest.get(..usize::from(length).max(4))?;
            let after = rest.get(fields.len()..)?;
            // The string set ends with two NUL bytes, also if there are no strings.
            let end = after.windows(2).position(|pair| pair == [0, 0])?;
            rest = after.get(end + 2..)?;
            let handle = u16::from_le_bytes([low, high]);
            (structure_type != END_OF_TABLE).then_some(SmbiosStructure {
                structure_type,
                handle,
                fields,
                strings: &after[..end],
            })
        })
    }

    pub(crate) fn structures_of_type(
        &self,
        structure_type: u8,
    ) -> impl Iterator<Item = SmbiosStructure<'_>> {
        self.structures().filter(move |structure| structure.structure_type == structure_type)
    }

    /// Returns the total size of all memory devices in MiB.
    pub(crate) fn memory_mib(&self) -> Option<u64> {
        let sum = self
            .structures_of_type(17)
            .filter_map(memory_device_kib)
            .fold(0_u64, u64::saturating_add)
            / 1024;
        (sum > 0).then_some(sum)
    }
}

impl SmbiosStructure<'_> {
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

    /// Returns the string whose number is in the field; `None` if the number is zero or out of range.
    pub(crate) fn string(&self, at: usize) -> Option<String> {
        let number = usize::from(self.byte(at)?).checked_sub(1)?;
        let string = self.strings.split(|byte| *byte == 0).nth(number)?;
        let text = printable(string);
        (!text.is_empty()).then_some(text)
    }
}

/// Returns the size of a memory device in KiB; `None` if the socket is empty or the size unknown.
pub(crate) fn memory_device_kib(memory_device: SmbiosStructure<'_>) -> Option<u64> {
    match memory_device.word(0x0c)? {
        0 | 0xffff => None,
        // Too large for this field: the extended size is in MiB.
        0x7fff => Some(u64::from(memory_device.double_word(0x1c)? & 0x7fff_ffff) * 1024),
        size if size & 0x8000 != 0 => Some(u64::from(size & 0x7fff)),
        size => Some(u64::from(size) * 1024),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Encodes a structure.
    pub(crate) fn structure(
        structure_type: u8,
        handle: u16,
        fields: &[u8],
        strings: &[&str],
    ) -> Vec<u8> {
        let length = u8::try_from(fields.len() + 4).unwrap();
        let mut out = vec![structure_type, length];
        out.extend(handle.to_le_bytes());
        out.extend(fields);
        for string in strings {
            out.extend(string.as_bytes());
            out.push(0);
        }
        out.extend(if strings.is_empty() { &[0, 0][..] } else { &[0][..] });
        out
    }

    fn memory_device(size: u16, extended: u32) -> Vec<u8> {
        let mut fields = vec![0; 0x22 - 4];
        fields[0x0c - 4..0x0e - 4].copy_from_slice(&size.to_le_bytes());
        fields[0x1c - 4..0x20 - 4].copy_from_slice(&extended.to_le_bytes());
        structure(17, 0x1100, &fields, &[])
    }

    #[test]
    fn sums_memory_device_sizes() {
        let check = |memory_devices: &[(u16, u32)], expected| {
            let table = memory_devices
                .iter()
                .flat_map(|(size, more)| memory_device(*size, *more))
                .collect();
            assert_eq!(Smbios { table }.memory_mib(), expected, "{memory_devices:?}");
        };
        check(&[(16384, 0), (16384, 0), (0, 0)], Some(32768));
        check(&[(0x7fff, 65536)], Some(65536));
        check(&[(0x8000 | 512, 0), (0x8000 | 512, 0)], Some(1));
        check(&[(0xffff, 0)], None);
        check(&[], None);
    }

    #[test]
    fn finds_strings_by_number() {
        let table = structure(1, 1, &[1, 2, 0, 3, 9], &["Dell Inc.", "PowerEdge R640 ", " "]);
        let smbios = Smbios { table };
        let system = smbios.structures_of_type(1).next().unwrap();
        assert_eq!(system.string(4).as_deref(), Some("Dell Inc."));
        assert_eq!(system.string(5).as_deref(), Some("PowerEdge R640"));
        for missing in [6, 7, 8, 200] {
            assert_eq!(system.string(missing), None, "{missing}");
        }
    }

    proptest::proptest! {
        #[test]
        fn never_panics(table: Vec<u8>) {
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
