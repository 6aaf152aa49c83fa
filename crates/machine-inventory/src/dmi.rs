// SPDX-License-Identifier: Apache-2.0
//! Collector `dmi-decode`: BIOS, processors and memory from the SMBIOS tables.
//!
//! IPA runs `dmidecode` and sends its output: `bios`, a list of `cpu`, and `memory` with its `devices`,
//! keyed by `dmidecode`'s labels. The same labels and values are produced here. Processor families not
//! found in servers of the last fifteen years are reported as out of specification.

mod names;

use serde_json::{Map, Value};

use crate::smbios::{Smbios, SmbiosStructure};
use names::{OUT_OF_SPECIFICATION, set_bit_names};

/// Returns `None` if there are no SMBIOS tables.
pub(crate) fn collect(smbios: &Smbios) -> Option<Value> {
    if smbios.is_empty() {
        return None;
    }
    let mut memory = Map::new();
    let arrays: Vec<_> =
        smbios.structures_of_type(16).filter(|array| array.fields.len() >= 0xf).collect();
    if let Some(first) = arrays.first() {
        memory = memory_array_section(first).fields;
        memory.remove("Handle");
        let devices = arrays.iter().filter_map(|array| array.word(0xd)).map(u64::from).sum::<u64>();
        memory.insert("Number Of Devices".to_owned(), devices.into());
    }
    let memory_devices =
        smbios.structures_of_type(17).filter(|memory_device| memory_device.fields.len() >= 0x15);
    memory.insert(
        "devices".to_owned(),
        memory_devices.map(|found| memory_device_section(&found).into_value()).collect(),
    );

    let bios = smbios.structures_of_type(0).filter(|found| found.fields.len() >= 0x12).last();
    let processors = smbios.structures_of_type(4).filter(|found| found.fields.len() >= 0x1a);
    let mut dmi = Map::new();
    dmi.insert(
        "bios".to_owned(),
        bios.map_or_else(|| Map::new().into(), |b| bios_section(&b).into_value()),
    );
    dmi.insert(
        "cpu".to_owned(),
        processors.map(|found| processor_section(&found).into_value()).collect(),
    );
    dmi.insert("memory".to_owned(), memory.into());
    Some(dmi.into())
}

/// The labelled values of one structure.
struct DmiSection<'s> {
    structure: &'s SmbiosStructure<'s>,
    fields: Map<String, Value>,
}

impl<'s> DmiSection<'s> {
    fn new(structure: &'s SmbiosStructure<'s>) -> Self {
        let (handle, structure_type) = (structure.handle, structure.structure_type);
        let line = format!(
            "Handle 0x{handle:04X}, DMI type {structure_type}, {} bytes",
            structure.fields.len()
        );
        let fields = Map::from_iter([("Handle".to_owned(), line.into())]);
        Self { structure, fields }
    }

    fn add(&mut self, label: &str, value: impl Into<Value>) {
        self.fields.insert(label.to_owned(), value.into());
    }

    /// Adds a string if the structure is long enough to contain the field.
    fn string(&mut self, label: &str, offset: usize) {
        let Some(number) = self.structure.byte(offset) else { return };
        let text = match (number, self.structure.string(offset)) {
            (0, _) => "Not Specified".to_owned(),
            (_, Some(text)) => text,
            // Blank, or an index beyond the last string: both are printed as a blank.
            (_, None) => " ".to_owned(),
        };
        self.add(label, text);
    }

    /// Adds a list, or `empty` in place of an empty list.
    fn list(&mut self, label: &str, list: &[&str], empty: Option<&str>) {
        match empty.filter(|_| list.is_empty()) {
            Some(empty) => self.add(label, empty),
            None => self.add(label, list.to_vec()),
        }
    }

    fn into_value(self) -> Value {
        self.fields.into()
    }
}

fn bios_section<'s>(bios: &'s SmbiosStructure<'s>) -> DmiSection<'s> {
    let mut section = DmiSection::new(bios);
    section.string("Vendor", 4);
    section.string("Version", 5);
    section.string("Release Date", 8);
    // UEFI has no segment below 1 MiB.
    if let Some(segment) = bios.word(6).filter(|segment| *segment != 0) {
        let address = u32::from(segment) << 4;
        section.add("Address", format!("0x{address:05X}"));
        section.add("Runtime Size", format_size(u64::from(0x10_0000_u32.saturating_sub(address))));
    }
    if let Some(blocks) = bios.byte(9) {
        section.add("ROM Size", rom_size(blocks, bios.word(0x18)));
    }
    if let Some(bits) = bios.quad_word(0xa) {
        let unsupported = bits & 8 != 0;
        let mut list = match unsupported {
            true => vec!["BIOS characteristics not supported"],
            false => set_bit_names(bits, 4, &names::FIRMWARE_CHARACTERISTICS),
        };
        let extended_bits =
            u64::from(bios.byte(0x12).unwrap_or(0)) | u64::from(bios.byte(0x13).unwrap_or(0)) << 8;
        list.extend(set_bit_names(extended_bits, 0, &names::FIRMWARE_EXTENDED_CHARACTERISTICS));
        section.list("Characteristics", &list, None);
    }
    for (label, offset) in [("BIOS Revision", 0x14), ("Firmware Revision", 0x16)] {
        if let (Some(major), Some(minor)) = (bios.byte(offset), bios.byte(offset + 1))
            && (major, minor) != (0xff, 0xff)
        {
            section.add(label, format!("{major}.{minor}"));
        }
    }
    section
}

/// ROM size in units of 64 KiB; large ones are in the extended field, in MiB or GiB.
fn rom_size(blocks: u8, extended: Option<u16>) -> String {
    match (blocks, extended) {
        (0xff, Some(extended)) => {
            let unit = if extended >> 14 == 1 { "GB" } else { "MB" };
            format!("{} {unit}", extended & 0x3fff)
        }
        _ => format_size((u64::from(blocks) + 1) << 16),
    }
}

fn processor_section<'s>(cpu: &'s SmbiosStructure<'s>) -> DmiSection<'s> {
    let mut section = DmiSection::new(cpu);
    section.string("Socket Designation", 4);
    section.add("Type", names::PROCESSOR_TYPE.name(u16::from(cpu.byte(5).unwrap_or(0))));
    let family = match cpu.byte(6) {
        Some(0xfe) => cpu.word(0x28).unwrap_or(0xfe),
        family => u16::from(family.unwrap_or(0)),
    };
    let known = names::PROCESSOR_FAMILY.iter().find(|(number, _)| *number == family);
    section.add("Family", known.map_or(OUT_OF_SPECIFICATION, |(_, name)| name));
    section.string("Manufacturer", 7);
    add_processor_id(&mut section, family);
    section.string("Version", 0x10);
    section.add("Voltage", processor_voltage(cpu.byte(0x11).unwrap_or(0)));
    let clocks = [("External Clock", 0x12), ("Max Speed", 0x14), ("Current Speed", 0x16)];
    for (label, offset) in clocks {
        let speed = cpu.word(offset).filter(|speed| *speed > 0);
        section.add(label, speed.map_or("Unknown".to_owned(), |speed| format!("{speed} MHz")));
    }
    let status = cpu.byte(0x18).unwrap_or(0);
    section.add(
        "Status",
        match status & 0x40 {
            0 => "Unpopulated".to_owned(),
            _ => format!("Populated, {}", names::PROCESSOR_STATUS.name(u16::from(status & 7))),
        },
    );
    section.add("Upgrade", names::PROCESSOR_UPGRADE.name(u16::from(cpu.byte(0x19).unwrap_or(0))));
    for (level, offset) in [(1, 0x1a), (2, 0x1c), (3, 0x1e)] {
        if let Some(handle) = cpu.word(offset) {
            section.add(
                &format!("L{level} Cache Handle"),
                match handle {
                    0xffff => "Not Provided".to_owned(),
                    handle => format!("0x{handle:04X}"),
                },
            );
        }
    }
    section.string("Serial Number", 0x20);
    section.string("Asset Tag", 0x21);
    section.string("Part Number", 0x22);
    let counts =
        [("Core Count", 0x23, 0x2a), ("Core Enabled", 0x24, 0x2c), ("Thread Count", 0x25, 0x2e)];
    for (label, offset, extended) in counts {
        let count = match cpu.byte(offset) {
            Some(0xff) => cpu.word(extended).unwrap_or(0xff),
            count => u16::from(count.unwrap_or(0)),
        };
        if count != 0 {
            section.add(label, count.to_string());
        }
    }
    if let Some(bits) = cpu.word(0x26) {
        // `dmidecode` prints "None" if only bits above 7 are set.
        let bits = if bits & 0xfc == 0 { 0 } else { u64::from(bits) };
        let list = set_bit_names(bits, 2, &names::PROCESSOR_CHARACTERISTICS);
        section.list("Characteristics", &list, Some("None"));
    }
    section
}

/// Adds the processor ID, and for Intel and AMD families its decoded signature and flags.
fn add_processor_id(section: &mut DmiSection<'_>, family: u16) {
    let Some(id) = section.structure.fields.get(8..16).and_then(|id| id.first_chunk::<8>()) else {
        return;
    };
    let bytes = id.map(|byte| format!("{byte:02X}")).join(" ");
    let number = u64::from_le_bytes(*id);
    let part = |shift: u32, mask: u64| (number >> shift) & mask;
    let model = part(12, 0xf0) | part(4, 0xf);
    section.add("ID", bytes);
    let signature = match family {
        0x0b..=0x15
        | 0x28..=0x2f
        | 0xa1..=0xb3
        | 0xb5
        | 0xb9..=0xc7
        | 0xcd..=0xcf
        | 0xd2..=0xdb
        | 0xdd..=0xe0 => {
            let family = part(20, 0xff) + part(8, 0xf);
            format!(
                "Type {}, Family {family}, Model {model}, Stepping {}",
                part(12, 3),
                part(0, 0xf)
            )
        }
        0x18..=0x1d
        | 0x1f
        | 0x38..=0x3f
        | 0x46..=0x4f
        | 0x66..=0x6b
        | 0x83..=0x8f
        | 0xb6
        | 0xb7
        | 0xe4..=0xef => {
            // The extended fields apply only if the base family is 0xf.
            let (family, model) = match part(8, 0xf) {
                0xf => (0xf + part(20, 0xff), model),
                family => (family, part(4, 0xf)),
            };
            format!("Family {family}, Model {model}, Stepping {}", part(0, 0xf))
        }
        _ => return,
    };
    section.add("Signature", signature);
    let flags = set_bit_names(number >> 32, 0, &names::PROCESSOR_FLAGS);
    section.list("Flags", &flags, Some("None"));
}

/// Voltage in tenths of a volt, or in old tables bits for three fixed voltages.
fn processor_voltage(code: u8) -> String {
    match code {
        code if code & 0x80 != 0 => format!("{}.{} V", (code & 0x7f) / 10, (code & 0x7f) % 10),
        code if code & 7 == 0 => "Unknown".to_owned(),
        code => set_bit_names(u64::from(code), 0, &["5.0 V", "3.3 V", "2.9 V"]).join(" "),
    }
}

fn memory_array_section<'s>(array: &'s SmbiosStructure<'s>) -> DmiSection<'s> {
    let mut section = DmiSection::new(array);
    let word = |offset: usize| u16::from(array.byte(offset).unwrap_or(0));
    let location = match word(4) {
        0xa0 => "PC-98/C20 Add-on Card",
        location => names::ARRAY_LOCATION.name(location),
    };
    section.add("Location", location);
    section.add("Use", names::ARRAY_USE.name(word(5)));
    section.add("Error Correction Type", names::ARRAY_CORRECTION.name(word(6)));
    let kibibytes = array.double_word(7).unwrap_or(0);
    section.add(
        "Maximum Capacity",
        match (kibibytes, array.quad_word(0xf)) {
            (0x8000_0000, None) => "Unknown".to_owned(),
            (0x8000_0000, Some(bytes)) => format_size(bytes),
            (kibibytes, _) => format_size(u64::from(kibibytes) << 10),
        },
    );
    section.add("Error Information Handle", error_handle(array.word(0xb)));
    section.add("Number Of Devices", array.word(0xd).unwrap_or(0).to_string());
    section
}

fn error_handle(handle: Option<u16>) -> String {
    match handle {
        Some(0xfffe) | None => "Not Provided".to_owned(),
        Some(0xffff) => "No Error".to_owned(),
        Some(handle) => format!("0x{handle:04X}"),
    }
}

fn memory_device_section<'s>(memory_device: &'s SmbiosStructure<'s>) -> DmiSection<'s> {
    let mut section = DmiSection::new(memory_device);
    section.add("Array Handle", format!("0x{:04X}", memory_device.word(4).unwrap_or(0)));
    section.add("Error Information Handle", error_handle(memory_device.word(6)));
    for (label, offset) in [("Total Width", 8), ("Data Width", 0xa)] {
        let width = memory_device.word(offset).filter(|width| !matches!(width, 0 | 0xffff));
        section.add(label, width.map_or("Unknown".to_owned(), |width| format!("{width} bits")));
    }
    let is_populated = memory_device.word(0xc).is_some_and(|size| size != 0);
    section.add(
        "Size",
        match (is_populated, crate::smbios::memory_device_kib(*memory_device)) {
            (false, _) => "No Module Installed".to_owned(),
            (true, None) => "Unknown".to_owned(),
            (true, Some(kibibytes)) => format_size(kibibytes.saturating_mul(1024)),
        },
    );
    section.add(
        "Form Factor",
        names::MODULE_FORM.name(u16::from(memory_device.byte(0xe).unwrap_or(0))),
    );
    section.add(
        "Set",
        match memory_device.byte(0xf) {
            Some(0) | None => "None".to_owned(),
            Some(0xff) => "Unknown".to_owned(),
            Some(set) => set.to_string(),
        },
    );
    section.string("Locator", 0x10);
    section.string("Bank Locator", 0x11);
    section.add("Type", names::MODULE_TYPE.name(u16::from(memory_device.byte(0x12).unwrap_or(0))));
    let detail = memory_device.word(0x13).unwrap_or(0);
    let detail = set_bit_names(u64::from(detail), 1, &names::MODULE_DETAIL);
    section
        .add("Type Detail", if detail.is_empty() { "None".to_owned() } else { detail.join(" ") });
    // The remaining fields are meaningless for an empty socket.
    if is_populated {
        add_memory_device_details(&mut section);
    }
    section
}

fn add_memory_device_details(section: &mut DmiSection<'_>) {
    let memory_device = *section.structure;
    add_speed(section, "Speed", 0x15, 0x54);
    let strings = [
        ("Manufacturer", 0x17),
        ("Serial Number", 0x18),
        ("Asset Tag", 0x19),
        ("Part Number", 0x1a),
    ];
    for (label, offset) in strings {
        section.string(label, offset);
    }
    if let Some(attributes) = memory_device.byte(0x1b) {
        let rank = attributes & 0xf;
        section.add("Rank", if rank == 0 { "Unknown".to_owned() } else { rank.to_string() });
    }
    add_speed(section, "Configured Memory Speed", 0x20, 0x58);
    let voltages =
        [("Minimum Voltage", 0x22), ("Maximum Voltage", 0x24), ("Configured Voltage", 0x26)];
    for (label, offset) in voltages {
        if let Some(millivolts) = memory_device.word(offset) {
            section.add(label, format_voltage(millivolts));
        }
    }
    let Some(technology) = memory_device.byte(0x28) else { return };
    section.add("Memory Technology", names::MODULE_TECHNOLOGY.name(u16::from(technology)));
    let modes =
        set_bit_names(u64::from(memory_device.word(0x29).unwrap_or(0)), 1, &names::MODULE_MODES);
    let modes = if modes.is_empty() { "None".to_owned() } else { modes.join(" ") };
    section.add("Memory Operating Mode Capability", modes);
    section.string("Firmware Version", 0x2b);
    let ids = [
        ("Module Manufacturer ID", 0x2c, manufacturer_id as fn(u16) -> String),
        ("Module Product ID", 0x2e, product_id),
        ("Memory Subsystem Controller Manufacturer ID", 0x30, manufacturer_id),
        ("Memory Subsystem Controller Product ID", 0x32, product_id),
    ];
    for (label, offset, format_id) in ids {
        if let Some(id) = memory_device.word(offset) {
            section.add(label, if id == 0 { "Unknown".to_owned() } else { format_id(id) });
        }
    }
    let sizes = [
        ("Non-Volatile Size", 0x34),
        ("Volatile Size", 0x3c),
        ("Cache Size", 0x44),
        ("Logical Size", 0x4c),
    ];
    for (label, offset) in sizes {
        if let Some(bytes) = memory_device.quad_word(offset) {
            section.add(
                label,
                match bytes {
                    u64::MAX => "Unknown".to_owned(),
                    0 => "None".to_owned(),
                    bytes => format_size(bytes),
                },
            );
        }
    }
}

fn add_speed(section: &mut DmiSection<'_>, label: &str, offset: usize, extended: usize) {
    let speed = match section.structure.word(offset) {
        None => return,
        Some(0xffff) => section.structure.double_word(extended).unwrap_or(0) & 0x7fff_ffff,
        Some(speed) => u32::from(speed),
    };
    section.add(label, if speed == 0 { "Unknown".to_owned() } else { format!("{speed} MT/s") });
}

fn format_voltage(millivolts: u16) -> String {
    match millivolts {
        0 => "Unknown".to_owned(),
        whole if whole % 100 == 0 => format!("{}.{} V", whole / 1000, whole / 100 % 10),
        other => format!("{} V", f32::from(other) / 1000.0),
    }
}

fn manufacturer_id(id: u16) -> String {
    format!("Bank {}, Hex 0x{:02X}", (id & 0x7f) + 1, id >> 8)
}

fn product_id(id: u16) -> String {
    format!("0x{id:04X}")
}

/// Formats a size in the largest unit that does not lose the next smaller one, as `dmidecode` does.
fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"];
    let group = |offset: usize| (bytes >> (10 * offset)) & 0x3ff;
    let highest = (1..UNITS.len()).rev().find(|offset| group(*offset) != 0).unwrap_or(0);
    let offset = if highest > 0 && group(highest - 1) != 0 { highest - 1 } else { highest };
    format!("{} {}", bytes >> (10 * offset), UNITS[offset])
}
