// SPDX-License-Identifier: Apache-2.0
//! Firmware over Redfish: reading versions and updating components.

mod update;
mod update_request;

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{FirmwareComponent, Step, StepArgument, StepFlow, Timestamp};
use redfish::{RedfishResource, last_segment};
use serde_json::Value;

pub(super) use update_request::UpdateArgumentForm;

use super::bmc::RedfishBmc;
use super::connections::RedfishConnections;
use super::resource_id::id;
use drivers::StepDefinition;
use drivers::bmc_interface;
use drivers::{DriverError, DriverTarget, FirmwareInterface, StepOutcome};

/// The Redfish firmware interface.
pub(super) struct RedfishFirmware(pub(super) Arc<RedfishConnections>);

bmc_interface!(RedfishFirmware, Firmware, STEPS);

const STEPS: &[StepDefinition] = &[StepDefinition {
    name: "update",
    flows: &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service],
    priority: 0,
    abortable: false,
    requires_ramdisk: false,
    arguments: &[StepArgument::required(
        "settings",
        "The updates, in order: a list of objects with 'component' (bios, bmc or nic:<id>), 'url' \
         and, if the component needs time afterwards, 'wait' in seconds.",
    )],
}];

/// Names of BIOS and BMC in firmware inventories: the last segment of the path.
const BIOS_NAMES: &[&str] = &["bios", "bios_active", "systembios", "systemrom"];
const BMC_NAMES: &[&str] = &["bmc", "bmc_active", "bmcfirmware"];

#[async_trait]
impl FirmwareInterface for RedfishFirmware {
    async fn components(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, DriverError> {
        let bmc = self.0.bmc(target, "read the firmware versions")?;
        let components = components(&bmc, target.now).await?;
        Ok((!components.is_empty()).then_some(components))
    }
}

impl RedfishFirmware {
    async fn run(
        &self,
        target: &DriverTarget<'_>,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        run_update(&self.0, target, step, UpdateArgumentForm::Components).await
    }
}

/// Runs a firmware update step until it has to wait.
pub(super) async fn run_update(
    connections: &RedfishConnections,
    target: &DriverTarget<'_>,
    step: &Step,
    form: UpdateArgumentForm,
) -> Result<StepOutcome, DriverError> {
    let bmc = connections.bmc(target, "update firmware")?;
    update::run(&connections.settings, &bmc, target, step, form).await
}

/// Returns the firmware components of a machine.
async fn components(
    bmc: &RedfishBmc,
    now: Timestamp,
) -> Result<Vec<FirmwareComponent>, DriverError> {
    let system = bmc.system().await?;
    let mut components = Vec::new();
    let bios = match system.text("/BiosVersion").filter(|version| !version.is_empty()) {
        Some(version) => Some(version.to_owned()),
        None => inventory_version(bmc, BIOS_NAMES).await,
    };
    components.extend(bios.map(|version| component("bios", &version, now)));
    components.extend(bmc_component(bmc, &system, now).await?);
    // Some BMCs do not report NICs before the machine has booted.
    match nic_components(bmc, &system, now).await {
        Ok(nics) => components.extend(nics),
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => tracing::debug!(%error, "NIC firmware versions could not be read"),
    }
    Ok(components)
}

/// Returns the firmware of the BMC itself.
async fn bmc_component(
    bmc: &RedfishBmc,
    system: &RedfishResource,
    now: Timestamp,
) -> Result<Option<FirmwareComponent>, DriverError> {
    let managers = match bmc.client().managers(system).await {
        Ok(managers) => managers,
        Err(error @ redfish::RedfishError::Unreachable { .. }) => return Err(bmc.explain(error)),
        Err(_) => Vec::new(),
    };
    let version = |manager: &RedfishResource| {
        manager.text("/FirmwareVersion").filter(|version| !version.is_empty()).map(str::to_owned)
    };
    let reported =
        managers.iter().find_map(|manager| Some((version(manager)?, manager.text("/Model"))));
    let (version, model) = match reported {
        Some((version, model)) => (Some(version), model),
        None => (inventory_version(bmc, BMC_NAMES).await, None),
    };
    Ok(version.map(|version| FirmwareComponent {
        model: model.map(str::to_owned),
        ..component("bmc", &version, now)
    }))
}

/// Returns the firmware of the NICs.
async fn nic_components(
    bmc: &RedfishBmc,
    system: &RedfishResource,
    now: Timestamp,
) -> Result<Vec<FirmwareComponent>, DriverError> {
    let mut nics: Vec<FirmwareComponent> = Vec::new();
    let chassis = bmc.client().chassis(system).await.map_err(|error| bmc.explain(error))?;
    for chassis in chassis {
        for adapter in bmc.collect(&chassis, "/NetworkAdapters").await? {
            if let Some(nic) = nic_component(&adapter, now)
                && !nics.iter().any(|known| known.component == nic.component)
            {
                nics.push(nic);
            }
        }
    }
    Ok(nics)
}

/// Returns the firmware of one NIC: the first version among its controllers.
fn nic_component(adapter: &RedfishResource, now: Timestamp) -> Option<FirmwareComponent> {
    let text = |key| adapter.text(key).filter(|text| !text.is_empty());
    let id = text("/SerialNumber").unwrap_or_else(|| id(adapter));
    let version = adapter.list("/Controllers").iter().find_map(|controller| {
        let version = controller.get("FirmwarePackageVersion").and_then(Value::as_str)?.trim();
        (!version.is_empty()).then_some(version)
    })?;
    Some(FirmwareComponent {
        vendor: text("/Manufacturer").map(str::to_owned),
        model: text("/Model").map(str::to_owned),
        serial_number: text("/SerialNumber").map(str::to_owned),
        ..component(&format!("nic:{id}"), version, now)
    })
}

/// Returns the version of the inventory item that has one of these names.
async fn inventory_version(bmc: &RedfishBmc, names: &[&str]) -> Option<String> {
    let root = bmc.client().root().await.ok()?;
    let service = bmc.follow(&root, "/UpdateService").await.ok()??;
    let path = inventory_item(bmc, &service, names).await?;
    let item = bmc.find(&path).await.ok()??;
    item.text("/Version").filter(|version| !version.is_empty()).map(str::to_owned)
}

/// Returns the path of the inventory item that has one of these names; `None` if several match,
/// because BMCs also list previously installed versions.
async fn inventory_item(
    bmc: &RedfishBmc,
    service: &RedfishResource,
    names: &[&str],
) -> Option<String> {
    let members = bmc.client().members(service.link("/FirmwareInventory")?).await.ok()?;
    single_match(members, names)
}

fn single_match(members: Vec<String>, names: &[&str]) -> Option<String> {
    let is_called =
        |path: &String| names.iter().any(|name| last_segment(path).eq_ignore_ascii_case(name));
    let mut found = members.into_iter().filter(is_called);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

fn component(name: &str, version: &str, now: Timestamp) -> FirmwareComponent {
    FirmwareComponent {
        component: name.to_owned(),
        initial_version: version.to_owned(),
        current_version: Some(version.to_owned()),
        last_version_flashed: None,
        vendor: None,
        model: None,
        serial_number: None,
        created_at: now,
        updated_at: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_nics_like_ironic() {
        for (body, expected) in [
            (
                json!({"Id": "NIC1", "SerialNumber": "S1", "Model": "E810", "Manufacturer": "Intel",
                       "Controllers": [{}, {"FirmwarePackageVersion": "22.5"}, {"FirmwarePackageVersion": "9"}]}),
                Some("nic:S1 22.5 E810"),
            ),
            (
                json!({"Id": "NIC1", "SerialNumber": "", "Controllers": [{"FirmwarePackageVersion": "1"}]}),
                Some("nic:NIC1 1 -"),
            ),
            (json!({"Controllers": [{"FirmwarePackageVersion": "1"}]}), Some("nic:7 1 -")),
            (json!({"Id": "NIC1", "Controllers": [{"FirmwarePackageVersion": " "}]}), None),
            (json!({"Id": "NIC1", "Controllers": {}}), None),
            (json!({"Id": "NIC1"}), None),
        ] {
            let path = "/redfish/v1/Chassis/1/NetworkAdapters/7".to_owned();
            let adapter = RedfishResource { path, etag: None, body: body.clone() };
            let found = nic_component(&adapter, Timestamp(0)).map(|nic| {
                let model = nic.model.unwrap_or("-".to_owned());
                format!("{} {} {model}", nic.component, nic.initial_version)
            });
            assert_eq!(found.as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn rejects_ambiguous_inventory_items() {
        let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        for (members, expected) in [
            (&["/f/BMC", "/f/BIOS/"][..], Some("/f/BIOS/")),
            (&["/f/bios_active", "/f/bmc_active"], Some("/f/bios_active")),
            (&["/f/BIOS", "/f/bios_active"], None),
            (&["/f/Installed-159-2.1.0"], None),
            (&[], None),
        ] {
            assert_eq!(
                single_match(paths(members), BIOS_NAMES).as_deref(),
                expected,
                "{members:?}"
            );
        }
    }
}
