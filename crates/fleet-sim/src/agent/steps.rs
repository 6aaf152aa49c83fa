// SPDX-License-Identifier: Apache-2.0
//! The steps that agents offer: those of the generic manager of ironic-python-agent.

use std::collections::BTreeMap;

use agent_protocol::{Argument, Flow, StepDescription, StepList};
use serde_json::{Map, Value};

/// A step: its name, interface and priority.
type Row = (&'static str, &'static str, i64);

const CLEAN: &[Row] = &[
    ("erase_devices", "deploy", 10),
    ("erase_devices_metadata", "deploy", 99),
    ("erase_devices_express", "deploy", 0),
    ("erase_pstore", "deploy", 0),
    ("clean_uefi_nvram", "deploy", 0),
    ("delete_configuration", "raid", 0),
    ("create_configuration", "raid", 0),
    ("burnin_cpu", "deploy", 0),
    ("burnin_gpu", "deploy", 0),
    ("burnin_disk", "deploy", 0),
    ("burnin_memory", "deploy", 0),
    ("burnin_network", "deploy", 0),
];

const DEPLOY: &[Row] = &[
    ("erase_devices_metadata", "deploy", 0),
    ("apply_configuration", "raid", 0),
    ("clean_uefi_nvram", "deploy", 0),
    ("write_image", "deploy", 0),
    ("inject_files", "deploy", 0),
    ("execute_bootc_install", "deploy", 0),
];

const SERVICE: &[Row] = &[
    ("delete_configuration", "raid", 0),
    ("apply_configuration", "raid", 0),
    ("create_configuration", "raid", 0),
    ("burnin_cpu", "deploy", 0),
    ("burnin_gpu", "deploy", 0),
    ("burnin_memory", "deploy", 0),
    ("burnin_network", "deploy", 0),
    ("write_image", "deploy", 0),
    ("inject_files", "deploy", 0),
    ("execute_bootc_install", "deploy", 0),
];

/// The arguments of steps that take any: the step, the argument, and whether it is required.
const ARGUMENTS: &[(&str, &str, bool)] = &[
    ("apply_configuration", "raid_config", true),
    ("apply_configuration", "delete_existing", false),
    ("clean_uefi_nvram", "match_patterns", false),
    ("inject_files", "files", false),
];

/// The hardware managers, by which servers tell agents apart.
pub(super) fn managers(is_ours: bool) -> Map<String, Value> {
    let mut managers = Map::new();
    managers.insert("generic_hardware_manager".to_owned(), "1.2".into());
    if is_ours {
        managers.insert("ferrite".to_owned(), env!("CARGO_PKG_VERSION").into());
    }
    managers
}

/// What is offered for a flow.
pub(super) fn list(flow: Flow, managers: Map<String, Value>) -> StepList {
    let steps = rows(flow).iter().map(|row| describe(flow, *row)).collect();
    let steps = BTreeMap::from([("GenericHardwareManager".to_owned(), steps)]);
    StepList { steps, versions: managers }
}

/// Whether there is such a step.
pub(super) fn is_offered(flow: Flow, step: &str) -> bool {
    rows(flow).iter().any(|(name, ..)| *name == step)
}

const fn rows(flow: Flow) -> &'static [Row] {
    match flow {
        Flow::Clean => CLEAN,
        Flow::Deploy => DEPLOY,
        Flow::Service => SERVICE,
    }
}

fn describe(flow: Flow, (step, interface, priority): Row) -> StepDescription {
    let arguments = ARGUMENTS.iter().filter(|(of, ..)| *of == step);
    let arguments: BTreeMap<_, _> = arguments
        .map(|(_, name, required)| {
            let description = name.replace('_', " ");
            ((*name).to_owned(), Argument { description, required: *required })
        })
        .collect();
    StepDescription {
        step: step.to_owned(),
        priority,
        interface: interface.to_owned(),
        reboot_requested: false,
        abortable: flow != Flow::Deploy,
        argsinfo: Some(arguments).filter(|arguments| !arguments.is_empty()),
    }
}
