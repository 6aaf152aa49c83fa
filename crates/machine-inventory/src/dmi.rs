// SPDX-License-Identifier: Apache-2.0
//! Collector `dmi-decode`: the firmware's tables about itself, processors and memory.
//!
//! The stock agent runs `dmidecode` and sends what it printed: `bios`, a list of `cpu`, and `memory`
//! with its `devices`, all with `dmidecode`'s own labels and words. The same labels and words are made
//! here. Families of processors that no server of the last fifteen years has are out of specification.

mod words;

use serde_json::{Map, Value};

use crate::smbios::{Smbios, Structure};
use words::{OUT_OF_SPECIFICATION, of_bits};

/// Nothing if there are no tables.
pub(crate) fn collect(smbios: &Smbios) -> Option<Value> {
    if smbios.is_empty() {
        return None;
    }
    let mut memory = Map::new();
    let arrays: Vec<_> = smbios.of_kind(16).filter(|array| array.fields.len() >= 0xf).collect();
    if let Some(first) = arrays.first() {
        memory = array(first).rows;
        memory.remove("Handle");
        let devices = arrays.iter().filter_map(|array| array.word(0xd)).map(u64::from).sum::<u64>();
        memory.insert("Number Of Devices".to_owned(), devices.into());
    }
    let modules = smbios.of_kind(17).filter(|module| module.fields.len() >= 0x15);
    memory.insert("devices".to_owned(), modules.map(|found| module(&found).into_value()).collect());

    let bios = smbios.of_kind(0).filter(|found| found.fields.len() >= 0x12).last();
    let processors = smbios.of_kind(4).filter(|found| found.fields.len() >= 0x1a);
    let mut dmi = Map::new();
    dmi.insert(
        "bios".to_owned(),
        bios.map_or_else(|| Map::new().into(), |b| firmware(&b).into_value()),
    );
    dmi.insert("cpu".to_owned(), processors.map(|found| processor(&found).into_value()).collect());
    dmi.insert("memory".to_owned(), memory.into());
    Some(dmi.into())
}

/// The lines about a structure.
struct Lines<'s> {
    structure: &'s Structure<'s>,
    rows: Map<String, Value>,
}

impl<'s> Lines<'s> {
    fn of(structure: &'s Structure<'s>) -> Self {
        let (handle, kind) = (structure.handle, structure.kind);
        let line =
            format!("Handle 0x{handle:04X}, DMI type {kind}, {} bytes", structure.fields.len());
        let rows = Map::from_iter([("Handle".to_owned(), line.into())]);
        Self { structure, rows }
    }

    fn add(&mut self, label: &str, value: impl Into<Value>) {
        self.rows.insert(label.to_owned(), value.into());
    }

    /// A string, if the structure is long enough to have the field.
    fn string(&mut self, label: &str, at: usize) {
        let Some(number) = self.structure.byte(at) else { return };
        let text = match (number, self.structure.string(at)) {
            (0, _) => "Not Specified".to_owned(),
            (_, Some(text)) => text,
            // Either blank, which is shown as such, or beyond the last.
            (_, None) => " ".to_owned(),
        };
        self.add(label, text);
    }

    /// A list; without anything in it, the word instead, if there is one.
    fn list(&mut self, label: &str, list: &[&str], empty: Option<&str>) {
        match empty.filter(|_| list.is_empty()) {
            Some(empty) => self.add(label, empty),
            None => self.add(label, list.to_vec()),
        }
    }

    fn into_value(self) -> Value {
        self.rows.into()
    }
}

fn firmware<'s>(bios: &'s Structure<'s>) -> Lines<'s> {
    let mut lines = Lines::of(bios);
    lines.string("Vendor", 4);
    lines.string("Version", 5);
    lines.string("Release Date", 8);
    // UEFI has no place below 1 MiB.
    if let Some(segment) = bios.word(6).filter(|segment| *segment != 0) {
        let address = u32::from(segment) << 4;
        lines.add("Address", format!("0x{address:05X}"));
        lines.add("Runtime Size", size(u64::from(0x10_0000_u32.saturating_sub(address))));
    }
    if let Some(blocks) = bios.byte(9) {
        lines.add("ROM Size", rom_size(blocks, bios.word(0x18)));
    }
    if let Some(bits) = bios.quad_word(0xa) {
        let unsupported = bits & 8 != 0;
        let mut list = match unsupported {
            true => vec!["BIOS characteristics not supported"],
            false => of_bits(bits, 4, &words::FIRMWARE),
        };
        let more =
            u64::from(bios.byte(0x12).unwrap_or(0)) | u64::from(bios.byte(0x13).unwrap_or(0)) << 8;
        list.extend(of_bits(more, 0, &words::FIRMWARE_MORE));
        lines.list("Characteristics", &list, None);
    }
    for (label, at) in [("BIOS Revision", 0x14), ("Firmware Revision", 0x16)] {
        if let (Some(major), Some(minor)) = (bios.byte(at), bios.byte(at + 1))
            && (major, minor) != (0xff, 0xff)
        {
            lines.add(label, format!("{major}.{minor}"));
        }
    }
    lines
}

/// Blocks of 64 KiB, or for large ones a field of its own in MiB or GiB.
fn rom_size(blocks: u8, extended: Option<u16>) -> String {
    match (blocks, extended) {
        (0xff, Some(extended)) => {
            let unit = if extended >> 14 == 1 { "GB" } else { "MB" };
            format!("{} {unit}", extended & 0x3fff)
        }
        _ => size((u64::from(blocks) + 1) << 16),
    }
}

fn processor<'s>(cpu: &'s Structure<'s>) -> Lines<'s> {
    let mut lines = Lines::of(cpu);
    lines.string("Socket Designation", 4);
    lines.add("Type", words::PROCESSOR_TYPE.of(u16::from(cpu.byte(5).unwrap_or(0))));
    let family = match cpu.byte(6) {
        Some(0xfe) => cpu.word(0x28).unwrap_or(0xfe),
        family => u16::from(family.unwrap_or(0)),
    };
    let known = words::PROCESSOR_FAMILY.iter().find(|(number, _)| *number == family);
    lines.add("Family", known.map_or(OUT_OF_SPECIFICATION, |(_, name)| name));
    lines.string("Manufacturer", 7);
    add_processor_id(&mut lines, family);
    lines.string("Version", 0x10);
    lines.add("Voltage", processor_voltage(cpu.byte(0x11).unwrap_or(0)));
    let clocks = [("External Clock", 0x12), ("Max Speed", 0x14), ("Current Speed", 0x16)];
    for (label, at) in clocks {
        let speed = cpu.word(at).filter(|speed| *speed > 0);
        lines.add(label, speed.map_or("Unknown".to_owned(), |speed| format!("{speed} MHz")));
    }
    let status = cpu.byte(0x18).unwrap_or(0);
    lines.add(
        "Status",
        match status & 0x40 {
            0 => "Unpopulated".to_owned(),
            _ => format!("Populated, {}", words::PROCESSOR_STATUS.of(u16::from(status & 7))),
        },
    );
    lines.add("Upgrade", words::PROCESSOR_UPGRADE.of(u16::from(cpu.byte(0x19).unwrap_or(0))));
    for (level, at) in [(1, 0x1a), (2, 0x1c), (3, 0x1e)] {
        if let Some(handle) = cpu.word(at) {
            lines.add(
                &format!("L{level} Cache Handle"),
                match handle {
                    0xffff => "Not Provided".to_owned(),
                    handle => format!("0x{handle:04X}"),
                },
            );
        }
    }
    lines.string("Serial Number", 0x20);
    lines.string("Asset Tag", 0x21);
    lines.string("Part Number", 0x22);
    let counts =
        [("Core Count", 0x23, 0x2a), ("Core Enabled", 0x24, 0x2c), ("Thread Count", 0x25, 0x2e)];
    for (label, at, extended) in counts {
        let count = match cpu.byte(at) {
            Some(0xff) => cpu.word(extended).unwrap_or(0xff),
            count => u16::from(count.unwrap_or(0)),
        };
        if count != 0 {
            lines.add(label, count.to_string());
        }
    }
    if let Some(bits) = cpu.word(0x26) {
        // Newer bits alone do not count.
        let bits = if bits & 0xfc == 0 { 0 } else { u64::from(bits) };
        let list = of_bits(bits, 2, &words::PROCESSOR_CHARACTERISTICS);
        lines.list("Characteristics", &list, Some("None"));
    }
    lines
}

/// The processor's identification, and for those of Intel and AMD what it means.
fn add_processor_id(lines: &mut Lines<'_>, family: u16) {
    let Some(id) = lines.structure.fields.get(8..16).and_then(|id| id.first_chunk::<8>()) else {
        return;
    };
    let bytes = id.map(|byte| format!("{byte:02X}")).join(" ");
    let number = u64::from_le_bytes(*id);
    let part = |shift: u32, mask: u64| (number >> shift) & mask;
    let model = part(12, 0xf0) | part(4, 0xf);
    lines.add("ID", bytes);
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
            // The extensions count only where the old fields are full.
            let (family, model) = match part(8, 0xf) {
                0xf => (0xf + part(20, 0xff), model),
                family => (family, part(4, 0xf)),
            };
            format!("Family {family}, Model {model}, Stepping {}", part(0, 0xf))
        }
        _ => return,
    };
    lines.add("Signature", signature);
    let flags = of_bits(number >> 32, 0, &words::PROCESSOR_FLAGS);
    lines.list("Flags", &flags, Some("None"));
}

/// Tenths of a volt, or in old tables bits for three fixed voltages.
fn processor_voltage(code: u8) -> String {
    match code {
        code if code & 0x80 != 0 => format!("{}.{} V", (code & 0x7f) / 10, (code & 0x7f) % 10),
        code if code & 7 == 0 => "Unknown".to_owned(),
        code => of_bits(u64::from(code), 0, &["5.0 V", "3.3 V", "2.9 V"]).join(" "),
    }
}

fn array<'s>(array: &'s Structure<'s>) -> Lines<'s> {
    let mut lines = Lines::of(array);
    let word = |at: usize| u16::from(array.byte(at).unwrap_or(0));
    let location = match word(4) {
        0xa0 => "PC-98/C20 Add-on Card",
        location => words::ARRAY_LOCATION.of(location),
    };
    lines.add("Location", location);
    lines.add("Use", words::ARRAY_USE.of(word(5)));
    lines.add("Error Correction Type", words::ARRAY_CORRECTION.of(word(6)));
    let kibibytes = array.double_word(7).unwrap_or(0);
    lines.add(
        "Maximum Capacity",
        match (kibibytes, array.quad_word(0xf)) {
            (0x8000_0000, None) => "Unknown".to_owned(),
            (0x8000_0000, Some(bytes)) => size(bytes),
            (kibibytes, _) => size(u64::from(kibibytes) << 10),
        },
    );
    lines.add("Error Information Handle", error_handle(array.word(0xb)));
    lines.add("Number Of Devices", array.word(0xd).unwrap_or(0).to_string());
    lines
}

fn error_handle(handle: Option<u16>) -> String {
    match handle {
        Some(0xfffe) | None => "Not Provided".to_owned(),
        Some(0xffff) => "No Error".to_owned(),
        Some(handle) => format!("0x{handle:04X}"),
    }
}

fn module<'s>(module: &'s Structure<'s>) -> Lines<'s> {
    let mut lines = Lines::of(module);
    lines.add("Array Handle", format!("0x{:04X}", module.word(4).unwrap_or(0)));
    lines.add("Error Information Handle", error_handle(module.word(6)));
    for (label, at) in [("Total Width", 8), ("Data Width", 0xa)] {
        let width = module.word(at).filter(|width| !matches!(width, 0 | 0xffff));
        lines.add(label, width.map_or("Unknown".to_owned(), |width| format!("{width} bits")));
    }
    let is_there = module.word(0xc).is_some_and(|size| size != 0);
    lines.add(
        "Size",
        match (is_there, crate::smbios::module_kib(*module)) {
            (false, _) => "No Module Installed".to_owned(),
            (true, None) => "Unknown".to_owned(),
            (true, Some(kibibytes)) => size(kibibytes.saturating_mul(1024)),
        },
    );
    lines.add("Form Factor", words::MODULE_FORM.of(u16::from(module.byte(0xe).unwrap_or(0))));
    lines.add(
        "Set",
        match module.byte(0xf) {
            Some(0) | None => "None".to_owned(),
            Some(0xff) => "Unknown".to_owned(),
            Some(set) => set.to_string(),
        },
    );
    lines.string("Locator", 0x10);
    lines.string("Bank Locator", 0x11);
    lines.add("Type", words::MODULE_TYPE.of(u16::from(module.byte(0x12).unwrap_or(0))));
    let detail = module.word(0x13).unwrap_or(0);
    let detail = of_bits(u64::from(detail), 1, &words::MODULE_DETAIL);
    lines.add("Type Detail", if detail.is_empty() { "None".to_owned() } else { detail.join(" ") });
    // An empty socket has nothing more to tell.
    if is_there {
        add_module_details(&mut lines);
    }
    lines
}

fn add_module_details(lines: &mut Lines<'_>) {
    let module = *lines.structure;
    add_speed(lines, "Speed", 0x15, 0x54);
    let strings = [
        ("Manufacturer", 0x17),
        ("Serial Number", 0x18),
        ("Asset Tag", 0x19),
        ("Part Number", 0x1a),
    ];
    for (label, at) in strings {
        lines.string(label, at);
    }
    if let Some(attributes) = module.byte(0x1b) {
        let rank = attributes & 0xf;
        lines.add("Rank", if rank == 0 { "Unknown".to_owned() } else { rank.to_string() });
    }
    add_speed(lines, "Configured Memory Speed", 0x20, 0x58);
    let voltages =
        [("Minimum Voltage", 0x22), ("Maximum Voltage", 0x24), ("Configured Voltage", 0x26)];
    for (label, at) in voltages {
        if let Some(millivolts) = module.word(at) {
            lines.add(label, voltage(millivolts));
        }
    }
    let Some(technology) = module.byte(0x28) else { return };
    lines.add("Memory Technology", words::MODULE_TECHNOLOGY.of(u16::from(technology)));
    let modes = of_bits(u64::from(module.word(0x29).unwrap_or(0)), 1, &words::MODULE_MODES);
    let modes = if modes.is_empty() { "None".to_owned() } else { modes.join(" ") };
    lines.add("Memory Operating Mode Capability", modes);
    lines.string("Firmware Version", 0x2b);
    let ids = [
        ("Module Manufacturer ID", 0x2c, manufacturer_id as fn(u16) -> String),
        ("Module Product ID", 0x2e, product_id),
        ("Memory Subsystem Controller Manufacturer ID", 0x30, manufacturer_id),
        ("Memory Subsystem Controller Product ID", 0x32, product_id),
    ];
    for (label, at, shown) in ids {
        if let Some(id) = module.word(at) {
            lines.add(label, if id == 0 { "Unknown".to_owned() } else { shown(id) });
        }
    }
    let sizes = [
        ("Non-Volatile Size", 0x34),
        ("Volatile Size", 0x3c),
        ("Cache Size", 0x44),
        ("Logical Size", 0x4c),
    ];
    for (label, at) in sizes {
        if let Some(bytes) = module.quad_word(at) {
            lines.add(
                label,
                match bytes {
                    u64::MAX => "Unknown".to_owned(),
                    0 => "None".to_owned(),
                    bytes => size(bytes),
                },
            );
        }
    }
}

fn add_speed(lines: &mut Lines<'_>, label: &str, at: usize, extended: usize) {
    let speed = match lines.structure.word(at) {
        None => return,
        Some(0xffff) => lines.structure.double_word(extended).unwrap_or(0) & 0x7fff_ffff,
        Some(speed) => u32::from(speed),
    };
    lines.add(label, if speed == 0 { "Unknown".to_owned() } else { format!("{speed} MT/s") });
}

fn voltage(millivolts: u16) -> String {
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

/// Bytes in the largest unit that loses nothing of the next smaller one.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"];
    let group = |at: usize| (bytes >> (10 * at)) & 0x3ff;
    let highest = (1..UNITS.len()).rev().find(|at| group(*at) != 0).unwrap_or(0);
    let at = if highest > 0 && group(highest - 1) != 0 { highest - 1 } else { highest };
    format!("{} {}", bytes >> (10 * at), UNITS[at])
}
