// SPDX-License-Identifier: Apache-2.0
//! Firmware over Redfish: which versions a machine has, and updating them.

mod image;
mod update;

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{FirmwareComponent, Step, StepArgument, StepFlow, Timestamp};
use redfish::{Resource, last_segment};
use serde_json::Value;

pub(super) use image::Form;

use super::bmc::Bmc;
use super::connections::Connections;
use super::names::id;
use crate::connected::connected_interface;
use crate::step::StepRow;
use crate::{Error, Firmware, Outcome, Target};

/// The redfish firmware interface.
pub(super) struct RedfishFirmware(pub(super) Arc<Connections>);

connected_interface!(RedfishFirmware, Firmware, STEPS);

const STEPS: &[StepRow] = &[StepRow {
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

/// What the BIOS and the BMC are called in inventories of firmware, as the last part of a path.
const BIOS_NAMES: &[&str] = &["bios", "bios_active", "systembios", "systemrom"];
const BMC_NAMES: &[&str] = &["bmc", "bmc_active", "bmcfirmware"];

#[async_trait]
impl Firmware for RedfishFirmware {
    async fn components(
        &self,
        target: &Target<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, Error> {
        let bmc = self.0.bmc(target, "read the firmware versions")?;
        let components = components(&bmc, target.now).await?;
        Ok((!components.is_empty()).then_some(components))
    }
}

impl RedfishFirmware {
    async fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        run_update(&self.0, target, step, Form::Components).await
    }
}

/// Carries out a step that updates firmware as far as it goes.
pub(super) async fn run_update(
    connections: &Connections,
    target: &Target<'_>,
    step: &Step,
    form: Form,
) -> Result<Outcome, Error> {
    let bmc = connections.bmc(target, "update firmware")?;
    update::run(&connections.settings, &bmc, target, step, form).await
}

/// The pieces of firmware that a machine has.
async fn components(bmc: &Bmc, now: Timestamp) -> Result<Vec<FirmwareComponent>, Error> {
    let system = bmc.system().await?;
    let mut components = Vec::new();
    let bios = match system.text("/BiosVersion").filter(|version| !version.is_empty()) {
        Some(version) => Some(version.to_owned()),
        None => inventory_version(bmc, BIOS_NAMES).await,
    };
    components.extend(bios.map(|version| component("bios", &version, now)));
    components.extend(bmc_component(bmc, &system, now).await?);
    // Some BMCs do not answer for their network cards before the machine has started.
    match cards(bmc, &system, now).await {
        Ok(cards) => components.extend(cards),
        Err(error) if error.is_transient() => return Err(error),
        Err(error) => tracing::debug!(%error, "no firmware versions of network cards"),
    }
    Ok(components)
}

/// The firmware of the BMC itself.
async fn bmc_component(
    bmc: &Bmc,
    system: &Resource,
    now: Timestamp,
) -> Result<Option<FirmwareComponent>, Error> {
    let managers = match bmc.client().managers(system).await {
        Ok(managers) => managers,
        Err(error @ redfish::Error::Unreachable { .. }) => return Err(bmc.explain(error)),
        Err(_) => Vec::new(),
    };
    let version = |manager: &Resource| {
        manager.text("/FirmwareVersion").filter(|version| !version.is_empty()).map(str::to_owned)
    };
    let told =
        managers.iter().find_map(|manager| Some((version(manager)?, manager.text("/Model"))));
    let (version, model) = match told {
        Some((version, model)) => (Some(version), model),
        None => (inventory_version(bmc, BMC_NAMES).await, None),
    };
    Ok(version.map(|version| FirmwareComponent {
        model: model.map(str::to_owned),
        ..component("bmc", &version, now)
    }))
}

/// The firmware of the network cards.
async fn cards(
    bmc: &Bmc,
    system: &Resource,
    now: Timestamp,
) -> Result<Vec<FirmwareComponent>, Error> {
    let mut cards: Vec<FirmwareComponent> = Vec::new();
    let chassis = bmc.client().chassis(system).await.map_err(|error| bmc.explain(error))?;
    for chassis in chassis {
        for adapter in bmc.collect(&chassis, "/NetworkAdapters").await? {
            if let Some(card) = card(&adapter, now)
                && !cards.iter().any(|known| known.component == card.component)
            {
                cards.push(card);
            }
        }
    }
    Ok(cards)
}

/// The firmware of one network card: the first version that any of its controllers tells.
fn card(adapter: &Resource, now: Timestamp) -> Option<FirmwareComponent> {
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

/// The version of the one item of the firmware inventory that has any of these names.
async fn inventory_version(bmc: &Bmc, names: &[&str]) -> Option<String> {
    let root = bmc.client().root().await.ok()?;
    let service = bmc.follow(&root, "/UpdateService").await.ok()??;
    let path = inventory_item(bmc, &service, names).await?;
    let item = bmc.find(&path).await.ok()??;
    item.text("/Version").filter(|version| !version.is_empty()).map(str::to_owned)
}

/// The path of the one item of the firmware inventory that has any of these names; none if there
/// are several, because BMCs also list what was installed before.
async fn inventory_item(bmc: &Bmc, service: &Resource, names: &[&str]) -> Option<String> {
    let members = bmc.client().members(service.link("/FirmwareInventory")?).await.ok()?;
    only_called(members, names)
}

fn only_called(members: Vec<String>, names: &[&str]) -> Option<String> {
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
    fn cards_as_ironic_names_them() {
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
            let adapter = Resource { path, etag: None, body: body.clone() };
            let found = card(&adapter, Timestamp(0)).map(|card| {
                let model = card.model.unwrap_or("-".to_owned());
                format!("{} {} {model}", card.component, card.initial_version)
            });
            assert_eq!(found.as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn items_are_taken_only_if_there_is_one() {
        let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
        for (members, expected) in [
            (&["/f/BMC", "/f/BIOS/"][..], Some("/f/BIOS/")),
            (&["/f/bios_active", "/f/bmc_active"], Some("/f/bios_active")),
            (&["/f/BIOS", "/f/bios_active"], None),
            (&["/f/Installed-159-2.1.0"], None),
            (&[], None),
        ] {
            assert_eq!(only_called(paths(members), BIOS_NAMES).as_deref(), expected, "{members:?}");
        }
    }
}
