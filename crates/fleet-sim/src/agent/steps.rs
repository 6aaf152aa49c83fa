// SPDX-License-Identifier: Apache-2.0
//! The steps of simulated agents: those of ironic-python-agent's generic hardware manager.

use std::collections::BTreeMap;

use agent_protocol::{AgentStep, AgentStepArgument, AgentStepList, StepFlow};
use serde_json::{Map, Value};

/// Name, interface and priority of a step.
type StepRow = (&'static str, &'static str, i64);

const CLEAN: &[StepRow] = &[
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

const DEPLOY: &[StepRow] = &[
    ("erase_devices_metadata", "deploy", 0),
    ("apply_configuration", "raid", 0),
    ("clean_uefi_nvram", "deploy", 0),
    ("write_image", "deploy", 0),
    ("inject_files", "deploy", 0),
    ("execute_bootc_install", "deploy", 0),
];

const SERVICE: &[StepRow] = &[
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

/// Arguments of steps: the step, the argument, and whether it is required.
const ARGUMENTS: &[(&str, &str, bool)] = &[
    ("apply_configuration", "raid_config", true),
    ("apply_configuration", "delete_existing", false),
    ("clean_uefi_nvram", "match_patterns", false),
    ("inject_files", "files", false),
];

/// Returns the hardware managers with their versions.
pub(super) fn hardware_managers(is_ferrite_agent: bool) -> Map<String, Value> {
    let mut managers = Map::new();
    managers.insert("generic_hardware_manager".to_owned(), "1.2".into());
    if is_ferrite_agent {
        managers.insert("ferrite".to_owned(), env!("CARGO_PKG_VERSION").into());
    }
    managers
}

/// Returns the available steps of a flow.
pub(super) fn list_steps(flow: StepFlow, managers: Map<String, Value>) -> AgentStepList {
    let steps = step_rows(flow).iter().map(|row| describe_step(flow, *row)).collect();
    let steps = BTreeMap::from([("GenericHardwareManager".to_owned(), steps)]);
    AgentStepList { steps, versions: managers }
}

/// Whether the flow has a step of that name.
pub(super) fn has_step(flow: StepFlow, step: &str) -> bool {
    step_rows(flow).iter().any(|(name, ..)| *name == step)
}

const fn step_rows(flow: StepFlow) -> &'static [StepRow] {
    match flow {
        StepFlow::Clean => CLEAN,
        StepFlow::Deploy => DEPLOY,
        StepFlow::Service => SERVICE,
    }
}

fn describe_step(flow: StepFlow, (step, interface, priority): StepRow) -> AgentStep {
    let arguments = ARGUMENTS.iter().filter(|(owner, ..)| *owner == step);
    let arguments: BTreeMap<_, _> = arguments
        .map(|(_, name, required)| {
            let description = name.replace('_', " ");
            ((*name).to_owned(), AgentStepArgument { description, required: *required })
        })
        .collect();
    AgentStep {
        step: step.to_owned(),
        priority,
        interface: interface.to_owned(),
        reboot_requested: false,
        abortable: flow != StepFlow::Deploy,
        argsinfo: Some(arguments).filter(|arguments| !arguments.is_empty()),
    }
}
