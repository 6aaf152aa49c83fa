// SPDX-License-Identifier: Apache-2.0
//! The loads of the boot benchmark.

/// One load.
pub(crate) struct BootLoad {
    pub(crate) name: String,
    pub(crate) counts: LoadUnit,
    /// Arguments of the load program, except for the machines.
    pub(crate) arguments: Vec<String>,
    pub(crate) fleet: LoadMachines,
}

/// What is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadUnit {
    /// Leases: per second, and processor time for each.
    Leases,
    /// Bytes: per second, and processor time for a GiB.
    Bytes,
    /// Machines: how long it takes until all have booted, and processor time for all.
    Boots,
}

/// The machines of a load.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadMachines {
    /// The machines of the round, which have no DHCP lease at first.
    OfTheRound,
    /// Other machines of the round than those of the DHCP loads.
    OfTheStorm,
    /// Any machines.
    Any,
}

/// Name of the load, file, number of transfers, further arguments.
type Fetch = (&'static str, &'static str, u32, &'static [&'static str]);

const TFTP: &[Fetch] = &[
    ("TFTP, 64 at once, 1 MiB, block by block", "one", 256, &[]),
    ("TFTP, 64 at once, 32 MiB, block by block", "large", 64, &[]),
    ("TFTP, 64 at once, 1 MiB, window 16", "one", 256, &["--window", "16"]),
    ("TFTP, 64 at once, 32 MiB, window 16", "large", 64, &["--window", "16"]),
];

const HTTP: &[Fetch] = &[
    ("HTTP, 64 at once, 1 MiB", "/one", 8192, &[]),
    ("HTTP, 64 at once, 32 MiB", "/large", 512, &[]),
    ("HTTP, 1 at once, 32 MiB", "/large", 128, &[]),
];

/// All loads.
pub(crate) fn all(machines: u32, storm: u32) -> Vec<BootLoad> {
    let mut all = Vec::new();
    let counted = |words: &[&str], count: u32, at_once: u32| {
        let numbers = [count.to_string(), at_once.to_string()];
        let mut arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        arguments.extend(["--count", &numbers[0], "--at-once", &numbers[1]].map(str::to_owned));
        arguments
    };
    for (name, at_once) in
        [("new machines, all at once", machines), ("the same again, 64 at once", 64)]
    {
        all.push(BootLoad {
            name: format!("DHCP, {name}"),
            counts: LoadUnit::Leases,
            arguments: counted(&["dhcp"], machines, at_once),
            fleet: LoadMachines::OfTheRound,
        });
    }
    for (fetches, words) in [
        (TFTP, ["tftp", "--server", "10.77.0.1:69", "--file"]),
        (HTTP, ["http", "--server", "10.77.0.1:80", "--path"]),
    ] {
        for (name, file, count, more) in fetches {
            let at_once = if name.contains("1 at once") { 1 } else { 64 };
            all.push(BootLoad {
                name: (*name).to_owned(),
                counts: LoadUnit::Bytes,
                arguments: counted(&[&words[..], &[*file], more].concat(), *count, at_once),
                fleet: LoadMachines::Any,
            });
        }
    }
    all.push(BootLoad {
        name: format!("{storm} machines boot at once"),
        counts: LoadUnit::Boots,
        arguments: vec!["storm".to_owned(), "--count".to_owned(), storm.to_string()],
        fleet: LoadMachines::OfTheStorm,
    });
    all
}

impl LoadMachines {
    /// The number of the first machine; each round has its own.
    pub(crate) fn first(self, round: u32) -> Option<u32> {
        match self {
            Self::OfTheRound => Some((round + 1) * 0x1_0000),
            Self::OfTheStorm => Some((round + 1) * 0x1_0000 + 0x8000),
            Self::Any => None,
        }
    }
}
