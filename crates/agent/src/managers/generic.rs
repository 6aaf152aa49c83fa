// SPDX-License-Identifier: Apache-2.0
//! The manager for any machine: the steps of ironic-python-agent, with the same names and priorities.

use agent_protocol::{AgentStep, AgentStepArgument, ExecuteStepRequest, InventoryDisk, StepFlow};
use async_trait::async_trait;
use machine_inventory::LocalMachine;
use serde_json::{Map, Value};

use super::{HardwareManager, HardwareSupport, ManagerStepError, burn_in, disks};
use crate::VERSION;
use crate::agent::RamdiskAgent;

/// The generic hardware manager.
pub struct GenericManager;

/// A step with its priorities in cleaning, deployment and service; `None` where it is not steps.
struct GenericStep {
    name: &'static str,
    interface: &'static str,
    clean: Option<i64>,
    deploy: Option<i64>,
    service: Option<i64>,
    arguments: &'static [(&'static str, &'static str, bool)],
}

const RAID_ARGUMENTS: &[(&str, &str, bool)] = &[
    ("raid_config", "The RAID configuration to apply, in the format of target_raid_config.", true),
    ("delete_existing", "Whether to delete existing RAID arrays first; true by default.", false),
];
const NVRAM_ARGUMENTS: &[(&str, &str, bool)] = &[(
    "match_patterns",
    "A list of regular expressions; boot entries that match any of them are deleted. By default, those of disks, shim and GRUB.",
    false,
)];
const INJECT_ARGUMENTS: &[(&str, &str, bool)] = &[
    (
        "files",
        "A list of files, each with path and content (in base64, or a URL), and optionally partition, mode, dirmode and owner; those of the node's properties are added.",
        false,
    ),
    ("verify_ca", "Whether to verify TLS certificates when content is downloaded.", false),
];
const fn step(
    name: &'static str,
    interface: &'static str,
    clean: Option<i64>,
    deploy: Option<i64>,
    service: Option<i64>,
) -> GenericStep {
    GenericStep { name, interface, clean, deploy, service, arguments: &[] }
}
const STEPS: &[GenericStep] = &[
    step("erase_devices", "deploy", Some(10), None, None),
    step("erase_devices_metadata", "deploy", Some(99), Some(0), None),
    step("erase_devices_express", "deploy", Some(0), None, None),
    step("erase_pstore", "deploy", Some(0), None, None),
    GenericStep {
        arguments: NVRAM_ARGUMENTS,
        ..step("clean_uefi_nvram", "deploy", Some(0), Some(0), None)
    },
    step("delete_configuration", "raid", Some(0), None, Some(0)),
    step("create_configuration", "raid", Some(0), None, Some(0)),
    GenericStep {
        arguments: RAID_ARGUMENTS,
        ..step("apply_configuration", "raid", None, Some(0), Some(0))
    },
    step("write_image", "deploy", None, Some(0), Some(0)),
    GenericStep {
        arguments: INJECT_ARGUMENTS,
        ..step("inject_files", "deploy", None, Some(0), Some(0))
    },
    step("burnin_cpu", "deploy", Some(0), None, Some(0)),
    // Destroys the content of the disks, so it is not a service step.
    step("burnin_disk", "deploy", Some(0), None, None),
    step("burnin_memory", "deploy", Some(0), None, Some(0)),
];
/// Steps that a server may request although this agent does not support them, with error messages.
const UNSUPPORTED_STEPS: &[(&str, &str)] = &[(
    "execute_bootc_install",
    "ferrite-agent cannot install containers because that needs podman; boot the node into a ramdisk with ironic-python-agent and podman (driver_info/deploy_kernel and deploy_ramdisk), or deploy a disk image",
)];

#[async_trait]
impl HardwareManager for GenericManager {
    fn name(&self) -> &str {
        "GenericHardwareManager"
    }

    fn versions(&self) -> Vec<(String, String)> {
        // The second entry announces Ferrite's extensions, such as `standby.kexec`.
        vec![
            ("generic_hardware_manager".to_owned(), "1.2".to_owned()),
            ("ferrite".to_owned(), VERSION.to_owned()),
        ]
    }

    fn support(&self) -> HardwareSupport {
        HardwareSupport::Generic
    }

    async fn steps(
        &self,
        agent: &RamdiskAgent,
        flow: StepFlow,
        _node: &Map<String, Value>,
        _ports: &[Value],
    ) -> Result<Vec<AgentStep>, ManagerStepError> {
        let describe = |step: &GenericStep| {
            let priority = match flow {
                StepFlow::Clean => step.clean,
                StepFlow::Deploy => step.deploy,
                StepFlow::Service => step.service,
            }?;
            let inject = step.name == "inject_files";
            Some(AgentStep {
                step: step.name.to_owned(),
                priority: if inject { agent.options.inject_files_priority } else { priority },
                interface: step.interface.to_owned(),
                reboot_requested: false,
                abortable: flow == StepFlow::Clean,
                argsinfo: (!step.arguments.is_empty()).then(|| {
                    let argument = |&(name, description, required): &(&str, &str, bool)| {
                        (
                            name.to_owned(),
                            AgentStepArgument { description: description.to_owned(), required },
                        )
                    };
                    step.arguments.iter().map(argument).collect()
                }),
            })
        };
        Ok(STEPS.iter().filter_map(describe).collect())
    }

    async fn execute(
        &self,
        agent: &RamdiskAgent,
        flow: StepFlow,
        request: &ExecuteStepRequest,
    ) -> Result<Value, ManagerStepError> {
        let name = request.name().unwrap_or_default();
        match name {
            "burnin_cpu" => burn_in::burn_in_cpu(&request.node).await,
            "burnin_memory" => burn_in::burn_in_memory(&request.node).await,
            _ if STEPS.iter().any(|step| step.name == name) => {
                disks::execute(agent, flow, name, request).await
            }
            _ => match UNSUPPORTED_STEPS.iter().find(|(step, _)| *step == name) {
                Some((_, why)) => Err(disks::step_error("CommandExecutionError", why)),
                None => Err(ManagerStepError::NotSupported),
            },
        }
    }

    fn disks(&self) -> Option<Vec<InventoryDisk>> {
        Some(LocalMachine::new().disks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::HardwareManagers;

    #[tokio::test]
    async fn explains_unsupported_bootc_step() {
        let agent = crate::testing::test_agent(HardwareManagers::new(vec![std::sync::Arc::new(
            GenericManager,
        )]));
        let request = ExecuteStepRequest {
            step: Map::from_iter([("step".to_owned(), Value::from("execute_bootc_install"))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        };
        let failed = agent.managers.execute(&agent, StepFlow::Deploy, &request).await;
        let Err(ManagerStepError::Failed(error)) = failed else { panic!("{failed:?}") };
        let details = error.details.unwrap();
        assert!(details.contains("ironic-python-agent and podman"), "{details}");
        let list = agent.managers.steps(&agent, StepFlow::Deploy, &Map::new(), &[]).await.unwrap();
        let steps = &list.steps["GenericHardwareManager"];
        assert!(steps.iter().all(|step| step.step != "execute_bootc_install"));
    }
}
