// SPDX-License-Identifier: Apache-2.0
//! The serial console of a simulated machine: what it prints while it starts, and a login that
//! says back what is typed. If something real is behind the line, it is only passed on.

use std::fmt::Write as _;
use std::sync::Arc;

use ipmi::sol::{End, Line};

use crate::bmc::Bmc;
use crate::machine::{Boot, BootTarget, Machine, Power};
use crate::serial::Serial;

/// The machine's end of a serial line.
pub(super) struct Console {
    line: Line,
    stage: Stage,
    real: Option<Arc<Serial>>,
}

/// How far the machine was when it last printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Off,
    Post,
    Running,
}

/// How many bytes are printed at a time.
const PACKET_SIZE: usize = 200;

impl Console {
    /// A line that begins with where the machine is.
    pub(super) fn new(bmc: &Bmc) -> Self {
        let (line, real) = (Line::new(End::Bmc, PACKET_SIZE), bmc.serial());
        let mut console = Self { line, stage: Stage::Off, real };
        console.look_at(bmc);
        if console.stage == Stage::Off && console.real.is_none() {
            console.line.push(b"\r\n[the machine is off]\r\n");
        }
        console
    }

    /// Prints what has happened to the machine since.
    pub(super) fn look_at(&mut self, bmc: &Bmc) {
        if let Some(real) = &self.real {
            self.line.push(&real.take(self.line.room()));
            return;
        }
        let (stage, text) = bmc.with(|machine, _| {
            let stage = stage(machine);
            (stage, (stage != self.stage).then(|| words(machine, stage)))
        });
        if let Some(text) = text {
            self.line.push(text.as_bytes());
            self.stage = stage;
        }
    }

    /// Takes in what the user types, and prints it back as a terminal does.
    pub(super) fn on_packet(&mut self, packet: &[u8], bmc: &Bmc) {
        let Ok(received) = self.line.on_packet(packet) else { return };
        if let Some(real) = &self.real {
            real.type_in(received.data);
            return;
        }
        if self.stage != Stage::Running {
            return;
        }
        if received.is_break {
            self.line.push(b"\r\n[break]\r\n");
        }
        for byte in received.data {
            match byte {
                b'\r' | b'\n' => {
                    self.line.push(format!("\r\n{}", prompt(bmc.index)).as_bytes());
                }
                printable => {
                    self.line.push(&[*printable]);
                }
            }
        }
    }

    /// What is behind the line, if it is real.
    pub(super) fn real(&self) -> Option<Arc<Serial>> {
        self.real.clone()
    }

    pub(super) fn transmit(&mut self, packet: &mut Vec<u8>) -> bool {
        self.line.transmit(packet)
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.line.is_waiting()
    }

    pub(super) fn on_silence(&mut self) {
        self.line.on_silence();
    }
}

fn stage(machine: &Machine) -> Stage {
    match machine.power() {
        Power::Off | Power::TurningOn { .. } | Power::TurningOff { .. } => Stage::Off,
        Power::Post { .. } => Stage::Post,
        Power::Running | Power::ShuttingDown { .. } => Stage::Running,
    }
}

fn words(machine: &Machine, stage: Stage) -> String {
    let mut text = String::new();
    let personality = machine.personality();
    let _ = match stage {
        Stage::Off => write!(text, "\r\n[the machine is off]\r\n"),
        Stage::Post => write!(
            text,
            "\r\n{} {}\r\n{} processors, {} GiB of memory\r\nTesting hardware ...\r\n",
            personality.manufacturer,
            personality.model,
            personality.processors.count,
            personality.memory_gib
        ),
        Stage::Running => {
            let from = machine.booted().map_or_else(|| "a disk".to_owned(), source);
            write!(text, "\r\nBooted from {from}\r\n\r\n{}", prompt(machine.identity().index))
        }
    };
    text
}

fn source(boot: &Boot) -> String {
    let device = match boot.from {
        BootTarget::Pxe => "the network",
        BootTarget::Cd | BootTarget::UsbCd => "a CD",
        BootTarget::UefiHttp => "a URL",
        BootTarget::None
        | BootTarget::Floppy
        | BootTarget::Usb
        | BootTarget::Hdd
        | BootTarget::BiosSetup
        | BootTarget::Utilities
        | BootTarget::Diags
        | BootTarget::UefiShell => boot.from.name(),
    };
    match &boot.image {
        Some(image) => format!("{device} ({image})"),
        None => device.to_owned(),
    }
}

fn prompt(index: u32) -> String {
    format!("sim-{index:05} login: ")
}
