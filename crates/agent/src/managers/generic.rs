// SPDX-License-Identifier: Apache-2.0
//! The manager for any machine: the steps ironic-python-agent has, by the same names and with the
//! same priorities.

use agent_protocol::{Argument, Disk, Flow, StepDescription, StepOrder};
use async_trait::async_trait;
use machine_inventory::Machine;
use serde_json::{Map, Value};

use super::{HardwareManager, StepError, Support, burn_in, disks};
use crate::VERSION;
use crate::agent::Agent;

/// The manager.
pub struct GenericManager;

/// A step: its name, its interface, its priority in cleaning, deployment and service, none where it
/// is not offered, and whether work may be aborted while it runs in cleaning.
struct Offer {
    name: &'static str,
    interface: &'static str,
    clean: Option<i64>,
    deploy: Option<i64>,
    service: Option<i64>,
    arguments: &'static [(&'static str, &'static str, bool)],
}

const RAID_ARGUMENTS: &[(&str, &str, bool)] = &[
    ("raid_config", "The RAID configuration to apply, as target_raid_config has it.", true),
    ("delete_existing", "Whether to delete the RAID there is before; true if not said.", false),
];
const NVRAM_ARGUMENTS: &[(&str, &str, bool)] = &[(
    "match_patterns",
    "A list of patterns; boot entries that match any of them are deleted. If not said, those of disks, shim and GRUB.",
    false,
)];
const INJECT_ARGUMENTS: &[(&str, &str, bool)] = &[
    (
        "files",
        "A list of files, each with path, content (in base64, or a URL), and perhaps partition, mode, dirmode and owner; those of the node's properties are added.",
        false,
    ),
    ("verify_ca", "Whether certificates are checked when content is fetched.", false),
];
const fn offer(
    name: &'static str,
    interface: &'static str,
    clean: Option<i64>,
    deploy: Option<i64>,
    service: Option<i64>,
) -> Offer {
    Offer { name, interface, clean, deploy, service, arguments: &[] }
}
const OFFERS: &[Offer] = &[
    offer("erase_devices", "deploy", Some(10), None, None),
    offer("erase_devices_metadata", "deploy", Some(99), Some(0), None),
    offer("erase_devices_express", "deploy", Some(0), None, None),
    offer("erase_pstore", "deploy", Some(0), None, None),
    Offer {
        arguments: NVRAM_ARGUMENTS,
        ..offer("clean_uefi_nvram", "deploy", Some(0), Some(0), None)
    },
    offer("delete_configuration", "raid", Some(0), None, Some(0)),
    offer("create_configuration", "raid", Some(0), None, Some(0)),
    Offer {
        arguments: RAID_ARGUMENTS,
        ..offer("apply_configuration", "raid", None, Some(0), Some(0))
    },
    offer("write_image", "deploy", None, Some(0), Some(0)),
    Offer {
        arguments: INJECT_ARGUMENTS,
        ..offer("inject_files", "deploy", None, Some(0), Some(0))
    },
    offer("burnin_cpu", "deploy", Some(0), None, Some(0)),
    // It destroys what is on the disks, so that it is no service.
    offer("burnin_disk", "deploy", Some(0), None, None),
    offer("burnin_memory", "deploy", Some(0), None, Some(0)),
];
/// Steps that our server may ask for, and that need more than this agent has: what is said then.
const NEEDS_ANOTHER: &[(&str, &str)] = &[(
    "execute_bootc_install",
    "ferrite-agent does not install containers, which takes podman; boot the node into a ramdisk with ironic-python-agent and podman (driver_info/deploy_kernel and deploy_ramdisk), or deploy a disk image",
)];

#[async_trait]
impl HardwareManager for GenericManager {
    fn name(&self) -> &str {
        "GenericHardwareManager"
    }

    fn versions(&self) -> Vec<(String, String)> {
        // The second tells our server what else this agent can do: `standby.kexec`.
        vec![
            ("generic_hardware_manager".to_owned(), "1.2".to_owned()),
            ("ferrite".to_owned(), VERSION.to_owned()),
        ]
    }

    fn support(&self) -> Support {
        Support::Generic
    }

    async fn steps(
        &self,
        agent: &Agent,
        flow: Flow,
        _node: &Map<String, Value>,
        _ports: &[Value],
    ) -> Result<Vec<StepDescription>, StepError> {
        let describe = |offer: &Offer| {
            let priority = match flow {
                Flow::Clean => offer.clean,
                Flow::Deploy => offer.deploy,
                Flow::Service => offer.service,
            }?;
            let inject = offer.name == "inject_files";
            Some(StepDescription {
                step: offer.name.to_owned(),
                priority: if inject { agent.settings.inject_files_priority } else { priority },
                interface: offer.interface.to_owned(),
                reboot_requested: false,
                abortable: flow == Flow::Clean,
                argsinfo: (!offer.arguments.is_empty()).then(|| {
                    let argument = |&(name, description, required): &(&str, &str, bool)| {
                        (
                            name.to_owned(),
                            Argument { description: description.to_owned(), required },
                        )
                    };
                    offer.arguments.iter().map(argument).collect()
                }),
            })
        };
        Ok(OFFERS.iter().filter_map(describe).collect())
    }

    async fn execute(
        &self,
        agent: &Agent,
        flow: Flow,
        order: &StepOrder,
    ) -> Result<Value, StepError> {
        let name = order.name().unwrap_or_default();
        match name {
            "burnin_cpu" => burn_in::cpu(&order.node).await,
            "burnin_memory" => burn_in::memory(&order.node).await,
            _ if OFFERS.iter().any(|offer| offer.name == name) => {
                disks::execute(agent, flow, name, order).await
            }
            _ => match NEEDS_ANOTHER.iter().find(|(step, _)| *step == name) {
                Some((_, why)) => Err(disks::fail("CommandExecutionError", why)),
                None => Err(StepError::NotMine),
            },
        }
    }

    fn disks(&self) -> Option<Vec<Disk>> {
        Some(Machine::here().disks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managers::Managers;

    #[tokio::test]
    async fn a_container_needs_another_agent() {
        let agent = crate::testing::agent(Managers::of(vec![std::sync::Arc::new(GenericManager)]));
        let order = StepOrder {
            step: Map::from_iter([("step".to_owned(), Value::from("execute_bootc_install"))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        };
        let failed = agent.managers.execute(&agent, Flow::Deploy, &order).await;
        let Err(StepError::Failed(error)) = failed else { panic!("{failed:?}") };
        let details = error.details.unwrap();
        assert!(details.contains("ironic-python-agent and podman"), "{details}");
        let list = agent.managers.steps(&agent, Flow::Deploy, &Map::new(), &[]).await.unwrap();
        let offered = &list.steps["GenericHardwareManager"];
        assert!(offered.iter().all(|step| step.step != "execute_bootc_install"));
    }
}
