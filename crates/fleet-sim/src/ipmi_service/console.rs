// SPDX-License-Identifier: Apache-2.0
//! The serial console of a simulated machine: boot messages, and a login prompt that echoes input.
//! If a real machine is attached to the serial port, input and output are passed through instead.

use std::fmt::Write as _;
use std::sync::Arc;

use ipmi::sol::{SolEnd, SolLine};

use crate::machine::{BootRecord, BootTarget, MachineModel, PowerPhase};
use crate::serial::SerialPort;
use crate::simulated_bmc::SimulatedBmc;

/// The console in an active SOL session.
pub(super) struct SimulatedConsole {
    line: SolLine,
    stage: ConsoleStage,
    attached: Option<Arc<SerialPort>>,
}

/// The stage of the machine at the last output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ConsoleStage {
    Off,
    Post,
    Running,
}

/// Payload limit of SOL packets.
const PACKET_SIZE: usize = 200;

impl SimulatedConsole {
    /// Opens a console, which starts with the current stage of the machine.
    pub(super) fn new(bmc: &SimulatedBmc) -> Self {
        let (line, attached) = (SolLine::new(SolEnd::Bmc, PACKET_SIZE), bmc.serial_port());
        let mut console = Self { line, stage: ConsoleStage::Off, attached };
        console.update(bmc);
        if console.stage == ConsoleStage::Off && console.attached.is_none() {
            console.line.push(b"\r\n[the machine is off]\r\n");
        }
        console
    }

    /// Queues the output since the last call.
    pub(super) fn update(&mut self, bmc: &SimulatedBmc) {
        if let Some(attached) = &self.attached {
            self.line.push(&attached.take_output(self.line.room()));
            return;
        }
        let (stage, text) = bmc.with_model(|machine, _| {
            let stage = console_stage(machine);
            (stage, (stage != self.stage).then(|| transition_text(machine, stage)))
        });
        if let Some(text) = text {
            self.line.push(text.as_bytes());
            self.stage = stage;
        }
    }

    /// Handles a packet with console input. A simulated machine echoes it.
    pub(super) fn on_packet(&mut self, packet: &[u8], bmc: &SimulatedBmc) {
        let Ok(received) = self.line.on_packet(packet) else { return };
        if let Some(attached) = &self.attached {
            attached.send_input(received.data);
            return;
        }
        if self.stage != ConsoleStage::Running {
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

    /// Returns the serial port of an attached real machine.
    pub(super) fn attached(&self) -> Option<Arc<SerialPort>> {
        self.attached.clone()
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

fn console_stage(machine: &MachineModel) -> ConsoleStage {
    match machine.power_phase() {
        PowerPhase::Off | PowerPhase::TurningOn { .. } | PowerPhase::TurningOff { .. } => {
            ConsoleStage::Off
        }
        PowerPhase::Post { .. } => ConsoleStage::Post,
        PowerPhase::Running | PowerPhase::ShuttingDown { .. } => ConsoleStage::Running,
    }
}

fn transition_text(machine: &MachineModel, stage: ConsoleStage) -> String {
    let mut text = String::new();
    let personality = machine.personality();
    let _ = match stage {
        ConsoleStage::Off => write!(text, "\r\n[the machine is off]\r\n"),
        ConsoleStage::Post => write!(
            text,
            "\r\n{} {}\r\n{} processors, {} GiB of memory\r\nTesting hardware ...\r\n",
            personality.manufacturer,
            personality.model,
            personality.processors.count,
            personality.memory_gib
        ),
        ConsoleStage::Running => {
            let from = machine.current_boot().map_or_else(|| "a disk".to_owned(), describe_boot);
            write!(text, "\r\nBooted from {from}\r\n\r\n{}", prompt(machine.identity().index))
        }
    };
    text
}

fn describe_boot(boot: &BootRecord) -> String {
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
