// SPDX-License-Identifier: Apache-2.0
//! The redfish management interface: each call finds the machine's BMC and hands the work to the
//! file it belongs to.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{Health, Mac, Step, StepArgument, StepFlow};
use redfish::Resource;
use serde_json::{Map, Value};

use super::bmc::Bmc;
use super::connections::Connections;
use super::firmware::{self, Form};
use super::firmware_setup::{self, KeyReset};
use super::image_url::ImageUrl;
use super::reset::Reset;
use super::{boot_settings, clock, lights, media, probe, sensors};
use crate::connected::connected_interface;
use crate::step::StepRow;
use crate::{
    BootDevice, BootDeviceSetting, BootMode, Error, Indicator, IndicatorComponent, IndicatorState,
    Interface, Management, MediaDevice, MediaSlot, NodeChanges, Outcome, Sensor, Target,
};

/// The redfish management interface.
pub(crate) struct RedfishManagement(pub(super) Arc<Connections>);

connected_interface!(RedfishManagement, Management, STEPS);

const RESET_KEYS: &str = "reset_secure_boot_keys_to_default";
const CLEAR_KEYS: &str = "clear_secure_boot_keys";
const SET_CLOCK: &str = "set_bmc_clock";
const VERIFY_CLOCK: &str = "verify_bmc_clock";
const UPDATE_FIRMWARE: &str = "update_firmware";

const STEPS: &[StepRow] = &[
    StepRow {
        name: RESET_KEYS,
        flows: &[StepFlow::Clean, StepFlow::Deploy],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepRow {
        name: CLEAR_KEYS,
        flows: &[StepFlow::Clean, StepFlow::Deploy],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepRow {
        name: SET_CLOCK,
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[
            StepArgument::optional(
                "target_datetime",
                "The moment to set the clock to, such as 2026-11-15T19:24:09+00:00; now if it is \
                 not given.",
            ),
            StepArgument::optional(
                "datetime_local_offset",
                "How far the BMC's local time is from UTC, such as +02:00.",
            ),
        ],
    },
    StepRow {
        name: VERIFY_CLOCK,
        flows: &[StepFlow::Verify],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepRow {
        name: UPDATE_FIRMWARE,
        flows: &[StepFlow::Clean, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[StepArgument::required(
            "firmware_images",
            "The updates, in order: a list of objects with 'url', 'checksum' (for the record: the \
             BMC fetches the image and checks its signature) and, if the machine needs time \
             afterwards, 'wait' in seconds. The update step of the firmware interface also sees \
             that the new version is there.",
        )],
    },
];

impl RedfishManagement {
    /// Finds the machine, to do `what` to it.
    async fn reach(
        &self,
        target: &Target<'_>,
        what: impl Into<String>,
    ) -> Result<(Bmc, Resource), Error> {
        let bmc = self.0.bmc(target, what)?;
        let system = bmc.system().await?;
        Ok((bmc, system))
    }

    async fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        let keys = |how| async move {
            let bmc = self.0.bmc(target, "reset the keys of secure boot")?;
            let done = firmware_setup::reset_keys(&bmc, how).await?;
            done.ok_or_else(|| self.lacks("reset the keys of secure boot"))?;
            Ok(NodeChanges::none())
        };
        let changes = match step.step.as_str() {
            RESET_KEYS => keys(KeyReset::ToDefault).await?,
            CLEAR_KEYS => keys(KeyReset::DeleteAll).await?,
            SET_CLOCK => {
                let arguments = step.args.parse();
                let moment = text_argument(&arguments, "target_datetime")?;
                let offset = text_argument(&arguments, "datetime_local_offset")?;
                let bmc = self.0.bmc(target, "set the clock of the BMC")?;
                clock::set(&bmc, target, moment, offset).await?
            }
            VERIFY_CLOCK => {
                let bmc = self.0.bmc(target, "correct the clock of the BMC")?;
                clock::correct(&bmc, target).await?
            }
            UPDATE_FIRMWARE => {
                return firmware::run_update(&self.0, target, step, Form::Images).await;
            }
            other => return Err(self.cannot(&format!("carry out the step '{other}'"))),
        };
        Ok(Outcome::Done(changes))
    }

    /// The error for what this machine's BMC does not offer.
    fn lacks(&self, what: &str) -> Error {
        self.cannot(&format!("{what} of this machine, because its BMC does not offer it"))
    }
}

#[async_trait]
impl Management for RedfishManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        boot_settings::SUPPORTED
    }

    async fn boot_device(&self, target: &Target<'_>) -> Result<BootDeviceSetting, Error> {
        let (_, system) = self.reach(target, "read the boot device").await?;
        Ok(boot_settings::device(&system))
    }

    async fn set_boot_device(
        &self,
        target: &Target<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, format!("set the boot device to '{device}'"))?;
        boot_settings::set_device(&self.0, &bmc, target, device, persistent).await
    }

    async fn boots_disk_by_itself(&self, target: &Target<'_>) -> Result<bool, Error> {
        let (_, system) = self.reach(target, "tell how it boots from its disk").await?;
        let quirks = self.0.quirks.of(target.node, &system);
        Ok(quirks.behaviour.leave_disk_boot_to_firmware == Some(true)
            && boot_settings::mode(&system) == Some(BootMode::Uefi))
    }

    fn supported_boot_modes(&self) -> &'static [BootMode] {
        BootMode::ALL
    }

    async fn boot_mode(&self, target: &Target<'_>) -> Result<BootMode, Error> {
        let (_, system) = self.reach(target, "read the boot mode").await?;
        boot_settings::mode(&system).ok_or_else(|| self.lacks("read the boot mode"))
    }

    async fn set_boot_mode(
        &self,
        target: &Target<'_>,
        mode: BootMode,
    ) -> Result<NodeChanges, Error> {
        let bmc = self.0.bmc(target, format!("set the boot mode to '{mode}'"))?;
        let changes = firmware_setup::set_boot_mode(&self.0, &bmc, target, mode).await?;
        changes.ok_or_else(|| self.lacks("set the boot mode"))
    }

    async fn secure_boot(&self, target: &Target<'_>) -> Result<bool, Error> {
        let (bmc, system) = self.reach(target, "read secure boot").await?;
        let on = firmware_setup::secure_boot(&bmc, &system).await?;
        on.ok_or_else(|| self.lacks("read secure boot"))
    }

    async fn set_secure_boot(&self, target: &Target<'_>, on: bool) -> Result<NodeChanges, Error> {
        let switch = if on { "on" } else { "off" };
        let bmc = self.0.bmc(target, format!("switch secure boot {switch}"))?;
        let changes = firmware_setup::set_secure_boot(&self.0, &bmc, target, on).await?;
        changes.ok_or_else(|| self.lacks("set secure boot"))
    }

    async fn inject_nmi(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let (bmc, system) = self.reach(target, "interrupt the machine").await?;
        let reset = Reset::of(&bmc, &system).await?;
        let patience = Duration::from_secs(self.0.settings.power_state_change_timeout);
        match reset.interrupt(&bmc, patience).await? {
            true => Ok(NodeChanges::none()),
            false => Err(self.lacks("inject an NMI into the processors")),
        }
    }

    async fn indicators(&self, target: &Target<'_>) -> Result<Vec<Indicator>, Error> {
        let (bmc, system) = self.reach(target, "list the indicators").await?;
        lights::list(&bmc, system).await
    }

    async fn indicator(
        &self,
        target: &Target<'_>,
        component: IndicatorComponent,
        name: &str,
    ) -> Result<IndicatorState, Error> {
        let (bmc, system) = self.reach(target, "read an indicator").await?;
        lights::get(&bmc, system, component, name).await
    }

    async fn set_indicator(
        &self,
        target: &Target<'_>,
        component: IndicatorComponent,
        name: &str,
        state: IndicatorState,
    ) -> Result<NodeChanges, Error> {
        let (bmc, system) = self.reach(target, "set an indicator").await?;
        lights::set(&bmc, system, component, name, state).await
    }

    async fn sensors(&self, target: &Target<'_>) -> Result<Vec<Sensor>, Error> {
        let (bmc, system) = self.reach(target, "read the sensors").await?;
        sensors::read(&bmc, &system).await
    }

    async fn health(&self, target: &Target<'_>) -> Result<Option<Health>, Error> {
        let (_, system) = self.reach(target, "read the health").await?;
        Ok(system.text("/Status/Health").and_then(sensors::health))
    }

    async fn probe(&self, target: &Target<'_>) -> Result<Option<Map<String, Value>>, Error> {
        let bmc = self.0.bmc(target, "find out what the BMC can do")?;
        probe::probe(&bmc, &self.0.quirks, target.now).await.map(Some)
    }

    async fn detect_vendor(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        let bmc = self.0.bmc(target, "detect the vendor")?;
        let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
        let said = |vendor: Option<&str>| vendor.filter(|v| !v.is_empty()).map(str::to_owned);
        match said(root.text("/Vendor")) {
            Some(vendor) => Ok(Some(vendor)),
            None => Ok(said(bmc.system().await?.text("/Manufacturer"))),
        }
    }

    async fn mac_addresses(&self, target: &Target<'_>) -> Result<Vec<Mac>, Error> {
        let (bmc, system) = self.reach(target, "list the network cards").await?;
        let cards = bmc.collect(&system, "/EthernetInterfaces").await?;
        let mut addresses: Vec<Mac> = cards.iter().filter_map(usable_address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    async fn virtual_media(&self, target: &Target<'_>) -> Result<Vec<MediaSlot>, Error> {
        let (bmc, system) = self.reach(target, "list the virtual media").await?;
        media::slots(&bmc, &system).await
    }

    async fn attach_virtual_media(
        &self,
        target: &Target<'_>,
        device: MediaDevice,
        image_url: &str,
    ) -> Result<NodeChanges, Error> {
        let image = ImageUrl::parse("image_url", image_url)?;
        let (bmc, system) = self.reach(target, format!("insert an image as '{device}'")).await?;
        media::insert(&bmc, &system, &self.0.quirks.of(target.node, &system), device, &image)
            .await?;
        Ok(NodeChanges::none())
    }

    async fn detach_virtual_media(
        &self,
        target: &Target<'_>,
        devices: &[MediaDevice],
    ) -> Result<NodeChanges, Error> {
        let (bmc, system) = self.reach(target, "eject virtual media").await?;
        media::eject(&bmc, &system, &self.0.quirks.of(target.node, &system), devices).await?;
        Ok(NodeChanges::none())
    }
}

/// The address of a network card that can be used; none if it is switched off or unwell.
fn usable_address(card: &Resource) -> Option<Mac> {
    let is = |pointer, wanted| card.text(pointer).is_none_or(|said| said == wanted);
    if !is("/Status/State", "Enabled") || !is("/Status/Health", "OK") {
        return None;
    }
    let addresses = ["/MACAddress", "/PermanentMACAddress"];
    addresses.iter().find_map(|pointer| card.text(pointer)?.parse().ok())
}

fn text_argument<'a>(
    arguments: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a str>, Error> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Error::invalid(name, "use a string")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cards_that_can_be_used() {
        for (body, address) in [
            (
                json!({"MACAddress": "52:54:00:AA:BB:01", "Status": {"State": "Enabled", "Health": "OK"}}),
                Some("52:54:00:aa:bb:01"),
            ),
            (
                json!({"MACAddress": "", "PermanentMACAddress": "52:54:00:aa:bb:02"}),
                Some("52:54:00:aa:bb:02"),
            ),
            (json!({"MACAddress": "52:54:00:aa:bb:03", "Status": {"State": "Disabled"}}), None),
            (json!({"MACAddress": "52:54:00:aa:bb:04", "Status": {"Health": "Critical"}}), None),
            (json!({"MACAddress": "00:00"}), None),
            (json!({}), None),
        ] {
            let card = Resource { path: String::new(), etag: None, body };
            let found = usable_address(&card);
            assert_eq!(found.as_ref().map(Mac::as_str), address, "{}", card.body);
        }
    }
}
