// SPDX-License-Identifier: Apache-2.0
//! The commands that a simulated BMC knows.

use ipmi::message::{Request, netfn};
use ipmi::{
    ActivateSol, Ask, ChassisControl, DeactivateSol, DeviceId, GetBootFlags, GetChassisStatus,
    GetDeviceId, GetRecord, GetRepositoryInfo, GetSensorReading, IdentifyChassis, Privilege,
    ReserveRepository, ResetController, SetBootFlags, SolActivated, completion,
};
use node_model::Timestamp;

use super::{chassis, sensors};
use crate::machine::Machine;

/// What comes of a command.
pub(super) enum Done {
    /// A completion code and the rest of the answer.
    Answer(u8, Vec<u8>),
    /// The session carries the console from now on.
    ActivateConsole,
    /// No session carries the console any more.
    DeactivateConsole,
}

/// A command's needs and how it is carried out.
struct Row {
    netfn: u8,
    command: u8,
    needs: Privilege,
    run: Run,
}

/// Does something to the machine; gives back the rest of the answer, or a completion code.
type Run = fn(&mut Machine, Timestamp, &[u8]) -> Result<Vec<u8>, u8>;

/// Carries out a command. `stuck`: the machine's power does not follow. `console`: some session
/// carries the console.
pub(super) fn answer(
    machine: &mut Machine,
    now: Timestamp,
    request: &Request<'_>,
    privilege: Privilege,
    stuck: bool,
    console: bool,
) -> Done {
    let asked = (request.netfn, request.command);
    let refuse = |code| Done::Answer(code, Vec::new());
    if asked == (ActivateSol::NETFN, ActivateSol::COMMAND) {
        return match (request.data, console) {
            ([SOL, ..], false) => Done::ActivateConsole,
            ([SOL, ..], true) => refuse(ALREADY),
            _ => refuse(completion::INVALID_FIELD),
        };
    }
    if asked == (DeactivateSol::NETFN, DeactivateSol::COMMAND) {
        return if console { Done::DeactivateConsole } else { refuse(ALREADY) };
    }
    let Some(row) = ROWS.iter().find(|row| (row.netfn, row.command) == asked) else {
        return refuse(completion::INVALID_COMMAND);
    };
    if privilege < row.needs {
        return refuse(completion::INSUFFICIENT_PRIVILEGE);
    }
    if stuck && asked == (ChassisControl::NETFN, ChassisControl::COMMAND) {
        return Done::Answer(completion::OK, Vec::new());
    }
    match (row.run)(machine, now, request.data) {
        Ok(data) => Done::Answer(completion::OK, data),
        Err(code) => refuse(code),
    }
}

/// What fault rules call a request: `/ipmi/power`, or its family.
pub(super) fn path(request: &Request<'_>) -> &'static str {
    match (request.netfn, request.command) {
        (ChassisControl::NETFN, ChassisControl::COMMAND) => "/ipmi/power",
        (netfn::CHASSIS, _) => "/ipmi/chassis",
        (netfn::SENSOR | netfn::STORAGE, _) => "/ipmi/sensors",
        (netfn::APP, _) => "/ipmi/controller",
        _ => "/ipmi/other",
    }
}

/// The rest of the answer to a session that carries the console from now on.
pub(super) fn activated(port: u16) -> Vec<u8> {
    let sizes = SolActivated { inbound_size: 255, outbound_size: 255, port };
    let mut out = Vec::new();
    sizes.emit(&mut out);
    out
}

const SOL: u8 = 1;
/// The console is active already, or is not.
const ALREADY: u8 = 0x80;

const fn row<A: Ask>(needs: Privilege, run: Run) -> Row {
    Row { netfn: A::NETFN, command: A::COMMAND, needs, run }
}

const fn reset(kind: ResetController) -> Row {
    Row {
        netfn: netfn::APP,
        command: kind.command(),
        needs: Privilege::Administrator,
        run: |machine, now, _| {
            machine.restart_bmc(now);
            Ok(Vec::new())
        },
    }
}

const GET_SOL_PARAMETERS: Row = Row {
    netfn: netfn::TRANSPORT,
    command: 0x22,
    needs: Privilege::User,
    run: |_, _, data| sol_parameter(data),
};

const GET_THRESHOLDS: Row = Row {
    netfn: netfn::SENSOR,
    command: 0x27,
    needs: Privilege::User,
    run: |_, _, data| sensors::thresholds(data),
};

const ROWS: &[Row] = &[
    row::<GetDeviceId>(Privilege::User, |machine, _, _| Ok(device_id(machine))),
    reset(ResetController::Cold),
    reset(ResetController::Warm),
    row::<GetChassisStatus>(Privilege::User, |machine, _, _| Ok(chassis::status(machine))),
    row::<ChassisControl>(Privilege::Operator, chassis::control),
    row::<IdentifyChassis>(Privilege::Operator, chassis::identify),
    row::<SetBootFlags>(Privilege::Operator, chassis::set_boot_option),
    row::<GetBootFlags>(Privilege::Operator, chassis::boot_option),
    row::<GetRepositoryInfo>(Privilege::User, |_, _, _| Ok(sensors::repository())),
    row::<ReserveRepository>(Privilege::User, |_, _, _| Ok(sensors::reservation())),
    row::<GetRecord>(Privilege::User, |_, _, data| sensors::record(data)),
    row::<GetSensorReading>(Privilege::User, sensors::reading),
    GET_THRESHOLDS,
    GET_SOL_PARAMETERS,
];

/// Who makes the BMC, by IANA's numbers, from how the machine's maker is called.
const MAKERS: &[(&str, u32)] = &[
    ("dell", 674),
    ("hpe", 47_196),
    ("hewlett", 47_196),
    ("supermicro", 10_876),
    ("lenovo", 19_046),
    ("huawei", 2_011),
    ("fujitsu", 10_368),
    ("intel", 343),
];

fn device_id(machine: &Machine) -> Vec<u8> {
    const SENSORS_AND_RECORDS: u8 = 0x03;
    const CHASSIS: u8 = 0x80;
    let maker = machine.personality().manufacturer.to_ascii_lowercase();
    let found = MAKERS.iter().find(|(word, _)| maker.contains(word));
    let device = DeviceId {
        device: 0x20,
        revision: 1,
        firmware_major: 2,
        firmware_minor: 0x10,
        ipmi_version: 0x02,
        support: SENSORS_AND_RECORDS | CHASSIS,
        manufacturer: found.map_or(0, |(_, number)| *number),
        product: 0x0001,
    };
    let mut out = Vec::new();
    device.emit(&mut out);
    out
}

/// What `sol info` asks for: the console is on, at 115.2 kbit/s.
fn sol_parameter(data: &[u8]) -> Result<Vec<u8>, u8> {
    const REVISION: u8 = 0x11;
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
        _ => return Err(ALREADY),
    })
}
