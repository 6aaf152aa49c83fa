// SPDX-License-Identifier: Apache-2.0
//! Names of SMBIOS values as printed by `dmidecode`, which inspection rules and schedulers match.

/// Names of consecutive values, starting at the first field.
pub(super) struct ValueNames(pub(super) u16, pub(super) &'static [&'static str]);

impl ValueNames {
    pub(super) fn name(&self, value: u16) -> &'static str {
        let at = value.checked_sub(self.0).map(usize::from);
        at.and_then(|at| self.1.get(at)).copied().unwrap_or(OUT_OF_SPECIFICATION)
    }
}

/// Returns the names of the set bits; the first name is that of bit `first`. Bits with an empty name
/// are reserved.
pub(super) fn set_bit_names(bits: u64, first: usize, names: &[&'static str]) -> Vec<&'static str> {
    let set = names
        .iter()
        .enumerate()
        .filter(|(at, _)| bits.checked_shr(to_u32(first + at)).is_some_and(|bits| bits & 1 == 1));
    set.map(|(_, name)| *name).filter(|name| !name.is_empty()).collect()
}

fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

pub(super) const OUT_OF_SPECIFICATION: &str = "<OUT OF SPEC>";

/// Bits 4 to 31 of the BIOS characteristics.
pub(super) const FIRMWARE_CHARACTERISTICS: [&str; 28] = [
    "ISA is supported",
    "MCA is supported",
    "EISA is supported",
    "PCI is supported",
    "PC Card (PCMCIA) is supported",
    "PNP is supported",
    "APM is supported",
    "BIOS is upgradeable",
    "BIOS shadowing is allowed",
    "VLB is supported",
    "ESCD support is available",
    "Boot from CD is supported",
    "Selectable boot is supported",
    "BIOS ROM is socketed",
    "Boot from PC Card (PCMCIA) is supported",
    "EDD is supported",
    "Japanese floppy for NEC 9800 1.2 MB is supported (int 13h)",
    "Japanese floppy for Toshiba 1.2 MB is supported (int 13h)",
    "5.25\"/360 kB floppy services are supported (int 13h)",
    "5.25\"/1.2 MB floppy services are supported (int 13h)",
    "3.5\"/720 kB floppy services are supported (int 13h)",
    "3.5\"/2.88 MB floppy services are supported (int 13h)",
    "Print screen service is supported (int 5h)",
    "8042 keyboard services are supported (int 9h)",
    "Serial services are supported (int 14h)",
    "Printer services are supported (int 17h)",
    "CGA/mono video services are supported (int 10h)",
    "NEC PC-98",
];

/// The two BIOS characteristics extension bytes.
pub(super) const FIRMWARE_EXTENDED_CHARACTERISTICS: [&str; 15] = [
    "ACPI is supported",
    "USB legacy is supported",
    "AGP is supported",
    "I2O boot is supported",
    "LS-120 boot is supported",
    "ATAPI Zip drive boot is supported",
    "IEEE 1394 boot is supported",
    "Smart battery is supported",
    "BIOS boot specification is supported",
    "Function key-initiated network boot is supported",
    "Targeted content distribution is supported",
    "UEFI is supported",
    "System is a virtual machine",
    "Manufacturing mode is supported",
    "Manufacturing mode is enabled",
];

pub(super) const PROCESSOR_TYPE: ValueNames = ValueNames(
    1,
    &[
        "Other",
        "Unknown",
        "Central Processor",
        "Math Processor",
        "DSP Processor",
        "Video Processor",
    ],
);

/// Families found in servers of the last fifteen years; SMBIOS defines 200 more.
pub(super) const PROCESSOR_FAMILY: [(u16, &str); 47] = [
    (0x01, "Other"),
    (0x02, "Unknown"),
    (0x0b, "Pentium"),
    (0x0c, "Pentium Pro"),
    (0x0d, "Pentium II"),
    (0x0f, "Celeron"),
    (0x10, "Pentium II Xeon"),
    (0x11, "Pentium III"),
    (0x28, "Core Duo"),
    (0x2b, "Atom"),
    (0x2c, "Core M"),
    (0x3b, "Opteron 6200"),
    (0x3c, "Opteron 4200"),
    (0x3d, "FX"),
    (0x48, "A-Series"),
    (0x4c, "Opteron 4300"),
    (0x4d, "Opteron 6300"),
    (0x4e, "Opteron 3300"),
    (0x66, "Athlon X4"),
    (0x67, "Opteron X1000"),
    (0x68, "Opteron X2000"),
    (0x69, "Opteron A-Series"),
    (0x6a, "Opteron X3000"),
    (0x6b, "Zen"),
    (0x82, "Itanium"),
    (0x83, "Athlon 64"),
    (0x84, "Opteron"),
    (0x87, "Dual-Core Opteron"),
    (0x8a, "Quad-Core Opteron"),
    (0x8b, "Third-Generation Opteron"),
    (0xb3, "Xeon"),
    (0xb5, "Xeon MP"),
    (0xbf, "Core 2 Duo"),
    (0xc6, "Core i7"),
    (0xcd, "Core i5"),
    (0xce, "Core i3"),
    (0xcf, "Core i9"),
    (0xd6, "Multi-Core Xeon"),
    (0xe6, "Embedded Opteron Quad-Core"),
    (0xe8, "Opteron 6100"),
    (0xe9, "Opteron 4100"),
    (0x100, "ARMv7"),
    (0x101, "ARMv8"),
    (0x102, "ARMv9"),
    (0x118, "ARM"),
    (0x200, "RV32"),
    (0x201, "RV64"),
];

pub(super) const PROCESSOR_UPGRADE: ValueNames = ValueNames(
    1,
    &[
        "Other",
        "Unknown",
        "Daughter Board",
        "ZIF Socket",
        "Replaceable Piggy Back",
        "None",
        "LIF Socket",
        "Slot 1",
        "Slot 2",
        "370-pin Socket",
        "Slot A",
        "Slot M",
        "Socket 423",
        "Socket A (Socket 462)",
        "Socket 478",
        "Socket 754",
        "Socket 940",
        "Socket 939",
        "Socket mPGA604",
        "Socket LGA771",
        "Socket LGA775",
        "Socket S1",
        "Socket AM2",
        "Socket F (1207)",
        "Socket LGA1366",
        "Socket G34",
        "Socket AM3",
        "Socket C32",
        "Socket LGA1156",
        "Socket LGA1567",
        "Socket PGA988A",
        "Socket BGA1288",
        "Socket rPGA988B",
        "Socket BGA1023",
        "Socket BGA1224",
        "Socket BGA1155",
        "Socket LGA1356",
        "Socket LGA2011",
        "Socket FS1",
        "Socket FS2",
        "Socket FM1",
        "Socket FM2",
        "Socket LGA2011-3",
        "Socket LGA1356-3",
        "Socket LGA1150",
        "Socket BGA1168",
        "Socket BGA1234",
        "Socket BGA1364",
        "Socket AM4",
        "Socket LGA1151",
        "Socket BGA1356",
        "Socket BGA1440",
        "Socket BGA1515",
        "Socket LGA3647-1",
        "Socket SP3",
        "Socket SP3r2",
        "Socket LGA2066",
        "Socket BGA1392",
        "Socket BGA1510",
        "Socket BGA1528",
        "Socket LGA4189",
        "Socket LGA1200",
        "Socket LGA4677",
        "Socket LGA1700",
        "Socket BGA1744",
        "Socket BGA1781",
        "Socket BGA1211",
        "Socket BGA2422",
        "Socket LGA1211",
        "Socket LGA2422",
        "Socket LGA5773",
        "Socket BGA5773",
        "Socket AM5",
        "Socket SP5",
        "Socket SP6",
    ],
);

pub(super) const PROCESSOR_STATUS: ValueNames = ValueNames(
    0,
    &[
        "Unknown",
        "Enabled",
        "Disabled By User",
        "Disabled By BIOS",
        "Idle",
        OUT_OF_SPECIFICATION,
        OUT_OF_SPECIFICATION,
        "Other",
    ],
);

/// `cpuid` feature flags of x86 processors.
pub(super) const PROCESSOR_FLAGS: [&str; 32] = [
    "FPU (Floating-point unit on-chip)",
    "VME (Virtual mode extension)",
    "DE (Debugging extension)",
    "PSE (Page size extension)",
    "TSC (Time stamp counter)",
    "MSR (Model specific registers)",
    "PAE (Physical address extension)",
    "MCE (Machine check exception)",
    "CX8 (CMPXCHG8 instruction supported)",
    "APIC (On-chip APIC hardware supported)",
    "",
    "SEP (Fast system call)",
    "MTRR (Memory type range registers)",
    "PGE (Page global enable)",
    "MCA (Machine check architecture)",
    "CMOV (Conditional move instruction supported)",
    "PAT (Page attribute table)",
    "PSE-36 (36-bit page size extension)",
    "PSN (Processor serial number present and enabled)",
    "CLFSH (CLFLUSH instruction supported)",
    "",
    "DS (Debug store)",
    "ACPI (ACPI supported)",
    "MMX (MMX technology supported)",
    "FXSR (FXSAVE and FXSTOR instructions supported)",
    "SSE (Streaming SIMD extensions)",
    "SSE2 (Streaming SIMD extensions 2)",
    "SS (Self-snoop)",
    "HTT (Multi-threading)",
    "TM (Thermal monitor supported)",
    "",
    "PBE (Pending break enabled)",
];

/// Bits 2 to 9 of the processor characteristics.
pub(super) const PROCESSOR_CHARACTERISTICS: [&str; 8] = [
    "64-bit capable",
    "Multi-Core",
    "Hardware Thread",
    "Execute Protection",
    "Enhanced Virtualization",
    "Power/Performance Control",
    "128-bit Capable",
    "Arm64 SoC ID",
];

pub(super) const ARRAY_LOCATION: ValueNames = ValueNames(
    1,
    &[
        "Other",
        "Unknown",
        "System Board Or Motherboard",
        "ISA Add-on Card",
        "EISA Add-on Card",
        "PCI Add-on Card",
        "MCA Add-on Card",
        "PCMCIA Add-on Card",
        "Proprietary Add-on Card",
        "NuBus",
    ],
);

pub(super) const ARRAY_USE: ValueNames = ValueNames(
    1,
    &[
        "Other",
        "Unknown",
        "System Memory",
        "Video Memory",
        "Flash Memory",
        "Non-volatile RAM",
        "Cache Memory",
    ],
);

pub(super) const ARRAY_CORRECTION: ValueNames = ValueNames(
    1,
    &["Other", "Unknown", "None", "Parity", "Single-bit ECC", "Multi-bit ECC", "CRC"],
);

pub(super) const MODULE_FORM: ValueNames = ValueNames(
    1,
    &[
        "Other",
        "Unknown",
        "SIMM",
        "SIP",
        "Chip",
        "DIP",
        "ZIP",
        "Proprietary Card",
        "DIMM",
        "TSOP",
        "Row Of Chips",
        "RIMM",
        "SODIMM",
        "SRIMM",
        "FB-DIMM",
        "Die",
    ],
);

pub(super) const MODULE_TYPE: ValueNames = ValueNames(
    1,
    &[
        "Other",
        "Unknown",
        "DRAM",
        "EDRAM",
        "VRAM",
        "SRAM",
        "RAM",
        "ROM",
        "Flash",
        "EEPROM",
        "FEPROM",
        "EPROM",
        "CDRAM",
        "3DRAM",
        "SDRAM",
        "SGRAM",
        "RDRAM",
        "DDR",
        "DDR2",
        "DDR2 FB-DIMM",
        "Reserved",
        "Reserved",
        "Reserved",
        "DDR3",
        "FBD2",
        "DDR4",
        "LPDDR",
        "LPDDR2",
        "LPDDR3",
        "LPDDR4",
        "Logical non-volatile device",
        "HBM",
        "HBM2",
        "DDR5",
        "LPDDR5",
    ],
);

/// Bits 1 to 15 of the memory type detail.
pub(super) const MODULE_DETAIL: [&str; 15] = [
    "Other",
    "Unknown",
    "Fast-paged",
    "Static Column",
    "Pseudo-static",
    "RAMBus",
    "Synchronous",
    "CMOS",
    "EDO",
    "Window DRAM",
    "Cache DRAM",
    "Non-Volatile",
    "Registered (Buffered)",
    "Unbuffered (Unregistered)",
    "LRDIMM",
];

pub(super) const MODULE_TECHNOLOGY: ValueNames = ValueNames(
    1,
    &[
        "Other",
        "Unknown",
        "DRAM",
        "NVDIMM-N",
        "NVDIMM-F",
        "NVDIMM-P",
        "Intel Optane DC persistent memory",
    ],
);

/// Bits 1 to 5 of the memory operating mode capability.
pub(super) const MODULE_MODES: [&str; 5] = [
    "Other",
    "Unknown",
    "Volatile memory",
    "Byte-accessible persistent memory",
    "Block-accessible persistent memory",
];
