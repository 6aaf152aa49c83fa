// SPDX-License-Identifier: Apache-2.0
//! The IPMI commands that a simulated BMC supports.

use ipmi::message::{IpmiRequest, netfn};
use ipmi::{
    ActivateSol, ChassisControl, DeactivateSol, DeviceId, GetBootFlags, GetChassisStatus,
    GetDeviceId, GetRecord, GetRepositoryInfo, GetSensorReading, IdentifyChassis, IpmiPrivilege,
    ReserveRepository, ResetController, SetBootFlags, SolActivated, TypedIpmiCommand, completion,
};
use node_model::Timestamp;

use super::{chassis, sensors};
use crate::machine::MachineModel;

/// Result of a command.
pub(super) enum IpmiCommandOutcome {
    /// Completion code and data of the reply.
    Reply(u8, Vec<u8>),
    /// Activate the serial console in this session.
    ActivateConsole,
    /// Deactivate the serial console.
    DeactivateConsole,
}

/// The session's privilege and the BMC's state, as far as a command depends on them.
#[derive(Clone, Copy)]
pub(super) struct IpmiCommandContext {
    pub(super) privilege: IpmiPrivilege,
    /// Fault: power commands succeed without an effect.
    pub(super) power_stuck: bool,
    /// Whether the serial console is active in some session.
    pub(super) console_active: bool,
}

/// A command with its required privilege and its handler.
struct IpmiCommand {
    netfn: u8,
    command: u8,
    privilege_required: IpmiPrivilege,
    run: IpmiCommandHandler,
}

/// Executes a command. Returns the data of the reply, or a completion code.
type IpmiCommandHandler = fn(&mut MachineModel, Timestamp, &[u8]) -> Result<Vec<u8>, u8>;

/// Executes a command.
pub(super) fn handle_command(
    machine: &mut MachineModel,
    now: Timestamp,
    request: &IpmiRequest<'_>,
    context: IpmiCommandContext,
) -> IpmiCommandOutcome {
    let number = (request.netfn, request.command);
    let reject = |code| IpmiCommandOutcome::Reply(code, Vec::new());
    if number == (ActivateSol::NETFN, ActivateSol::COMMAND) {
        return match (request.data, context.console_active) {
            ([SOL_PAYLOAD_TYPE, ..], false) => IpmiCommandOutcome::ActivateConsole,
            ([SOL_PAYLOAD_TYPE, ..], true) => reject(SOL_STATE_CONFLICT),
            _ => reject(completion::INVALID_FIELD),
        };
    }
    if number == (DeactivateSol::NETFN, DeactivateSol::COMMAND) {
        return if context.console_active {
            IpmiCommandOutcome::DeactivateConsole
        } else {
            reject(SOL_STATE_CONFLICT)
        };
    }
    let Some(command) = COMMANDS.iter().find(|known| (known.netfn, known.command) == number) else {
        return reject(completion::INVALID_COMMAND);
    };
    if context.privilege < command.privilege_required {
        return reject(completion::INSUFFICIENT_PRIVILEGE);
    }
    if context.power_stuck && number == (ChassisControl::NETFN, ChassisControl::COMMAND) {
        return IpmiCommandOutcome::Reply(completion::OK, Vec::new());
    }
    match (command.run)(machine, now, request.data) {
        Ok(data) => IpmiCommandOutcome::Reply(completion::OK, data),
        Err(code) => reject(code),
    }
}

/// Returns the path of a request for fault rules: `/ipmi/power`, or its command family.
pub(super) fn fault_path(request: &IpmiRequest<'_>) -> &'static str {
    match (request.netfn, request.command) {
        (ChassisControl::NETFN, ChassisControl::COMMAND) => "/ipmi/power",
        (netfn::CHASSIS, _) => "/ipmi/chassis",
        (netfn::SENSOR | netfn::STORAGE, _) => "/ipmi/sensors",
        (netfn::APP, _) => "/ipmi/controller",
        _ => "/ipmi/other",
    }
}

/// Returns the reply data of Activate Payload.
pub(super) fn sol_activation_data(port: u16) -> Vec<u8> {
    let sizes = SolActivated { inbound_size: 255, outbound_size: 255, port };
    let mut out = Vec::new();
    sizes.emit(&mut out);
    out
}

const SOL_PAYLOAD_TYPE: u8 = 1;
/// Completion code: the console is already active, or already inactive.
const SOL_STATE_CONFLICT: u8 = 0x80;

const fn command<A: TypedIpmiCommand>(
    privilege_required: IpmiPrivilege,
    run: IpmiCommandHandler,
) -> IpmiCommand {
    IpmiCommand { netfn: A::NETFN, command: A::COMMAND, privilege_required, run }
}

const fn reset_command(kind: ResetController) -> IpmiCommand {
    IpmiCommand {
        netfn: netfn::APP,
        command: kind.command(),
        privilege_required: IpmiPrivilege::Administrator,
        run: |machine, now, _| {
            machine.restart_bmc(now);
            Ok(Vec::new())
        },
    }
}

const GET_SOL_PARAMETERS: IpmiCommand = IpmiCommand {
    netfn: netfn::TRANSPORT,
    command: 0x22,
    privilege_required: IpmiPrivilege::User,
    run: |_, _, data| sol_parameter(data),
};

const GET_THRESHOLDS: IpmiCommand = IpmiCommand {
    netfn: netfn::SENSOR,
    command: 0x27,
    privilege_required: IpmiPrivilege::User,
    run: |_, _, data| sensors::thresholds(data),
};

const COMMANDS: &[IpmiCommand] = &[
    command::<GetDeviceId>(IpmiPrivilege::User, |machine, _, _| Ok(device_id(machine))),
    reset_command(ResetController::Cold),
    reset_command(ResetController::Warm),
    command::<GetChassisStatus>(IpmiPrivilege::User, |machine, _, _| Ok(chassis::status(machine))),
    command::<ChassisControl>(IpmiPrivilege::Operator, chassis::control),
    command::<IdentifyChassis>(IpmiPrivilege::Operator, chassis::identify),
    command::<SetBootFlags>(IpmiPrivilege::Operator, chassis::set_boot_option),
    command::<GetBootFlags>(IpmiPrivilege::Operator, chassis::get_boot_option),
    command::<GetRepositoryInfo>(IpmiPrivilege::User, |_, _, _| Ok(sensors::repository())),
    command::<ReserveRepository>(IpmiPrivilege::User, |_, _, _| Ok(sensors::reservation())),
    command::<GetRecord>(IpmiPrivilege::User, |_, _, data| sensors::record(data)),
    command::<GetSensorReading>(IpmiPrivilege::User, sensors::reading),
    GET_THRESHOLDS,
    GET_SOL_PARAMETERS,
];

/// IANA enterprise numbers of manufacturers, by a word in the personality's manufacturer name.
const MANUFACTURERS: &[(&str, u32)] = &[
    ("dell", 674),
    ("hpe", 47_196),
    ("hewlett", 47_196),
    ("supermicro", 10_876),
    ("lenovo", 19_046),
    ("huawei", 2_011),
    ("fujitsu", 10_368),
    ("intel", 343),
];

fn device_id(machine: &MachineModel) -> Vec<u8> {
    const SENSORS_AND_RECORDS: u8 = 0x03;
    const CHASSIS: u8 = 0x80;
    let name = machine.personality().manufacturer.to_ascii_lowercase();
    let manufacturer = MANUFACTURERS.iter().find(|(word, _)| name.contains(word));
    let device = DeviceId {
        device: 0x20,
        revision: 1,
        firmware_major: 2,
        firmware_minor: 0x10,
        ipmi_version: 0x02,
        support: SENSORS_AND_RECORDS | CHASSIS,
        manufacturer: manufacturer.map_or(0, |(_, number)| *number),
        product: 0x0001,
    };
    let mut out = Vec::new();
    device.emit(&mut out);
    out
}

/// Get SOL Configuration Parameters: the console is enabled, at 115.2 kbit/s.
fn sol_parameter(data: &[u8]) -> Result<Vec<u8>, u8> {
    const REVISION: u8 = 0x11;
    const PARAMETER_NOT_SUPPORTED: u8 = 0x80;
    let [_, parameter, ..] = data else { return Err(completion::INVALID_LENGTH) };
    Ok(match parameter {
        0 => vec![REVISION, 0],
        1 => vec![REVISION, 1],
        2 => vec![REVISION, 0xc4],
        3 => vec![REVISION, 0x0c, 0x60],
        4 => vec![REVISION, 0x07, 0x32],
        5 | 6 => vec![REVISION, 0x0a],
        7 => vec![REVISION, 1],
        8 => vec![REVISION, 0x6f, 0x02],
        _ => return Err(PARAMETER_NOT_SUPPORTED),
    })
}
