// SPDX-License-Identifier: Apache-2.0
//! The Redfish management interface. Each call connects to the BMC and delegates to the module of
//! its topic.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::{
    BaseInterface, BmcImageUrl, BootDevice, BootDeviceSetting, BootMode, DriverError, DriverTarget,
    Indicator, IndicatorComponent, IndicatorState, ManagementInterface, MediaDevice, MediaSlot,
    NodeChanges, Sensor, StepDefinition, StepOutcome, SystemIdentity, bmc_interface,
};
use node_model::{Health, Mac, Step, StepArgument, StepFlow};
use redfish::RedfishResource;
use serde_json::{Map, Value};

use super::bmc::RedfishBmc;
use super::connections::RedfishConnections;
use super::firmware::{self, UpdateArgumentForm};
use super::firmware_setup::{self, SecureBootKeyReset};
use super::reset::ResetAction;
use super::variant::RedfishVariant;
use super::{boot_settings, clock, idrac, indicators, probe, sensors, virtual_media};

/// The Redfish management interface.
pub(crate) struct RedfishManagement(pub(super) Arc<RedfishConnections>, pub(super) RedfishVariant);

bmc_interface!(variants RedfishManagement, Management, step_tables);

const RESET_KEYS: &str = "reset_secure_boot_keys_to_default";
const CLEAR_KEYS: &str = "clear_secure_boot_keys";
const SET_CLOCK: &str = "set_bmc_clock";
const VERIFY_CLOCK: &str = "verify_bmc_clock";
const UPDATE_FIRMWARE: &str = "update_firmware";

/// The steps of iDRACs have no arguments and need no ramdisk.
const fn idrac_step(name: &'static str) -> StepDefinition {
    StepDefinition {
        name,
        flows: &[StepFlow::Verify, StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    }
}

const IDRAC_STEPS: &[StepDefinition] = &[
    idrac_step(idrac::CLEAR_JOB_QUEUE),
    idrac_step(idrac::RESET_IDRAC),
    idrac_step(idrac::KNOWN_GOOD_STATE),
];

fn step_tables(variant: RedfishVariant) -> &'static [&'static [StepDefinition]] {
    match variant {
        RedfishVariant::Standard => &[STEPS],
        RedfishVariant::Idrac => &[STEPS, IDRAC_STEPS],
    }
}

const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: RESET_KEYS,
        flows: &[StepFlow::Clean, StepFlow::Deploy],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepDefinition {
        name: CLEAR_KEYS,
        flows: &[StepFlow::Clean, StepFlow::Deploy],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepDefinition {
        name: SET_CLOCK,
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[
            StepArgument::optional(
                "target_datetime",
                "The time to set the clock to, such as 2026-11-15T19:24:09+00:00; now if it is \
                 not given.",
            ),
            StepArgument::optional(
                "datetime_local_offset",
                "UTC offset of the BMC's local time, such as +02:00.",
            ),
        ],
    },
    StepDefinition {
        name: VERIFY_CLOCK,
        flows: &[StepFlow::Verify],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepDefinition {
        name: UPDATE_FIRMWARE,
        flows: &[StepFlow::Clean, StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[StepArgument::required(
            "firmware_images",
            "The updates, in order: a list of objects with 'url', 'checksum' (for the record: the \
             BMC fetches the image and checks its signature) and, if the machine needs time \
             afterwards, 'wait' in seconds. The update step of the firmware interface also \
             checks the new version.",
        )],
    },
];

impl RedfishManagement {
    /// Returns the BMC and the System for the operation `what`.
    async fn reach(
        &self,
        target: &DriverTarget<'_>,
        what: impl Into<String>,
    ) -> Result<(RedfishBmc, RedfishResource), DriverError> {
        let bmc = self.0.bmc(target, what)?;
        let system = bmc.system().await?;
        Ok((bmc, system))
    }

    async fn run(
        &self,
        target: &DriverTarget<'_>,
        step: &Step,
    ) -> Result<StepOutcome, DriverError> {
        let keys = |how| async move {
            let bmc = self.0.bmc(target, "reset the secure boot keys")?;
            let done = firmware_setup::reset_keys(&bmc, how).await?;
            done.ok_or_else(|| self.lacks("reset the secure boot keys"))?;
            Ok(NodeChanges::none())
        };
        let changes = match step.step.as_str() {
            RESET_KEYS => keys(SecureBootKeyReset::ToDefault).await?,
            CLEAR_KEYS => keys(SecureBootKeyReset::DeleteAll).await?,
            SET_CLOCK => {
                let arguments = step.args.parse();
                let time = text_argument(&arguments, "target_datetime")?;
                let offset = text_argument(&arguments, "datetime_local_offset")?;
                let bmc = self.0.bmc(target, "set the clock of the BMC")?;
                clock::set(&bmc, target, time, offset).await?
            }
            VERIFY_CLOCK => {
                let bmc = self.0.bmc(target, "correct the clock of the BMC")?;
                clock::correct(&bmc, target).await?
            }
            UPDATE_FIRMWARE => {
                return firmware::run_update(&self.0, target, step, UpdateArgumentForm::Images)
                    .await;
            }
            idrac::CLEAR_JOB_QUEUE | idrac::RESET_IDRAC | idrac::KNOWN_GOOD_STATE => {
                return idrac::run_step(&self.0, target, &step.step).await;
            }
            other => return Err(self.unsupported(&format!("carry out the step '{other}'"))),
        };
        Ok(StepOutcome::done(changes))
    }

    /// Returns the error for an operation that the BMC does not support.
    fn lacks(&self, what: &str) -> DriverError {
        self.unsupported(&format!("{what} of this machine, because its BMC does not support it"))
    }
}

#[async_trait]
impl ManagementInterface for RedfishManagement {
    fn supported_boot_devices(&self) -> &'static [BootDevice] {
        boot_settings::SUPPORTED
    }

    async fn boot_device(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<BootDeviceSetting, DriverError> {
        let (_, system) = self.reach(target, "read the boot device").await?;
        Ok(boot_settings::device(&system))
    }

    async fn set_boot_device(
        &self,
        target: &DriverTarget<'_>,
        device: BootDevice,
        persistent: bool,
    ) -> Result<NodeChanges, DriverError> {
        let bmc = self.0.bmc(target, format!("set the boot device to '{device}'"))?;
        boot_settings::set_device(&self.0, &bmc, target, device, persistent).await
    }

    async fn sets_disk_boot_itself(&self, target: &DriverTarget<'_>) -> Result<bool, DriverError> {
        let (_, system) = self.reach(target, "read how it boots from its disk").await?;
        let quirks = self.0.quirks.for_node(target.node, &system);
        Ok(quirks.behaviour.skip_disk_boot_override == Some(true)
            && boot_settings::mode(&system) == Some(BootMode::Uefi))
    }

    fn supported_boot_modes(&self) -> &'static [BootMode] {
        BootMode::ALL
    }

    async fn boot_mode(&self, target: &DriverTarget<'_>) -> Result<BootMode, DriverError> {
        let (_, system) = self.reach(target, "read the boot mode").await?;
        boot_settings::mode(&system).ok_or_else(|| self.lacks("read the boot mode"))
    }

    async fn set_boot_mode(
        &self,
        target: &DriverTarget<'_>,
        mode: BootMode,
    ) -> Result<NodeChanges, DriverError> {
        let bmc = self.0.bmc(target, format!("set the boot mode to '{mode}'"))?;
        let changes = firmware_setup::set_boot_mode(&self.0, &bmc, target, mode).await?;
        changes.ok_or_else(|| self.lacks("set the boot mode"))
    }

    async fn secure_boot(&self, target: &DriverTarget<'_>) -> Result<bool, DriverError> {
        let (bmc, system) = self.reach(target, "read secure boot").await?;
        let on = firmware_setup::secure_boot(&bmc, &system).await?;
        on.ok_or_else(|| self.lacks("read secure boot"))
    }

    async fn set_secure_boot(
        &self,
        target: &DriverTarget<'_>,
        on: bool,
    ) -> Result<NodeChanges, DriverError> {
        let switch = if on { "on" } else { "off" };
        let bmc = self.0.bmc(target, format!("switch secure boot {switch}"))?;
        let changes = firmware_setup::set_secure_boot(&self.0, &bmc, target, on).await?;
        changes.ok_or_else(|| self.lacks("set secure boot"))
    }

    async fn inject_nmi(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let (bmc, system) = self.reach(target, "inject an NMI").await?;
        let reset = ResetAction::read(&bmc, &system).await?;
        let timeout = Duration::from_secs(self.0.settings.power_state_change_timeout);
        match reset.interrupt(&bmc, timeout).await? {
            true => Ok(NodeChanges::none()),
            false => Err(self.lacks("inject an NMI into the processors")),
        }
    }

    async fn indicators(&self, target: &DriverTarget<'_>) -> Result<Vec<Indicator>, DriverError> {
        let (bmc, system) = self.reach(target, "list the indicators").await?;
        indicators::list(&bmc, system).await
    }

    async fn indicator(
        &self,
        target: &DriverTarget<'_>,
        component: IndicatorComponent,
        name: &str,
    ) -> Result<IndicatorState, DriverError> {
        let (bmc, system) = self.reach(target, "read an indicator").await?;
        indicators::get(&bmc, system, component, name).await
    }

    async fn set_indicator(
        &self,
        target: &DriverTarget<'_>,
        component: IndicatorComponent,
        name: &str,
        state: IndicatorState,
    ) -> Result<NodeChanges, DriverError> {
        let (bmc, system) = self.reach(target, "set an indicator").await?;
        indicators::set(&bmc, system, component, name, state).await
    }

    async fn sensors(&self, target: &DriverTarget<'_>) -> Result<Vec<Sensor>, DriverError> {
        let (bmc, system) = self.reach(target, "read the sensors").await?;
        sensors::read(&bmc, &system).await
    }

    async fn health(&self, target: &DriverTarget<'_>) -> Result<Option<Health>, DriverError> {
        let (_, system) = self.reach(target, "read the health").await?;
        Ok(system.text("/Status/Health").and_then(sensors::health))
    }

    async fn probe(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Map<String, Value>>, DriverError> {
        let bmc = self.0.bmc(target, "probe the BMC")?;
        probe::probe(&bmc, &self.0.quirks, target.now).await.map(Some)
    }

    async fn detect_vendor(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<String>, DriverError> {
        let bmc = self.0.bmc(target, "detect the vendor")?;
        let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
        let non_empty = |vendor: Option<&str>| vendor.filter(|v| !v.is_empty()).map(str::to_owned);
        match non_empty(root.text("/Vendor")) {
            Some(vendor) => Ok(Some(vendor)),
            None => Ok(non_empty(bmc.system().await?.text("/Manufacturer"))),
        }
    }

    async fn identity(&self, target: &DriverTarget<'_>) -> Result<SystemIdentity, DriverError> {
        let (bmc, system) = self.reach(target, "identify the machine").await?;
        let nics = match bmc.collect(&system, "/EthernetInterfaces").await {
            Ok(nics) => nics,
            Err(error) if error.is_transient() => return Err(error),
            Err(_) => Vec::new(),
        };
        let mac = |nic: &RedfishResource| {
            let addresses = ["/PermanentMACAddress", "/MACAddress"];
            addresses.iter().find_map(|pointer| nic.text(pointer)?.parse::<Mac>().ok())
        };
        let mut mac_addresses: Vec<Mac> = nics.iter().filter_map(mac).collect();
        mac_addresses.sort_unstable();
        mac_addresses.dedup();
        let text = |pointer| probe::text(&system, pointer);
        Ok(SystemIdentity {
            system_uuid: text("/UUID"),
            serial_number: text("/SerialNumber"),
            manufacturer: text("/Manufacturer"),
            model: text("/Model"),
            mac_addresses,
        })
    }

    async fn mac_addresses(&self, target: &DriverTarget<'_>) -> Result<Vec<Mac>, DriverError> {
        let (bmc, system) = self.reach(target, "list the NICs").await?;
        let nics = bmc.collect(&system, "/EthernetInterfaces").await?;
        let mut addresses: Vec<Mac> = nics.iter().filter_map(usable_address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Ok(addresses)
    }

    fn has_virtual_media(&self) -> bool {
        true
    }

    async fn virtual_media(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Vec<MediaSlot>, DriverError> {
        let (bmc, system) = self.reach(target, "list the virtual media").await?;
        virtual_media::slots(&bmc, &system).await
    }

    async fn attach_virtual_media(
        &self,
        target: &DriverTarget<'_>,
        device: MediaDevice,
        image_url: &str,
    ) -> Result<NodeChanges, DriverError> {
        let image = BmcImageUrl::parse("image_url", image_url)?;
        let (bmc, system) = self.reach(target, format!("insert an image as '{device}'")).await?;
        virtual_media::insert(
            &bmc,
            &system,
            &self.0.quirks.for_node(target.node, &system),
            device,
            &image,
        )
        .await?;
        Ok(NodeChanges::none())
    }

    async fn detach_virtual_media(
        &self,
        target: &DriverTarget<'_>,
        devices: &[MediaDevice],
    ) -> Result<NodeChanges, DriverError> {
        let (bmc, system) = self.reach(target, "eject virtual media").await?;
        virtual_media::eject(&bmc, &system, &self.0.quirks.for_node(target.node, &system), devices)
            .await?;
        Ok(NodeChanges::none())
    }
}

/// Returns the MAC address of a NIC; `None` if it is disabled or unhealthy.
fn usable_address(nic: &RedfishResource) -> Option<Mac> {
    let is = |pointer, expected| nic.text(pointer).is_none_or(|value| value == expected);
    if !is("/Status/State", "Enabled") || !is("/Status/Health", "OK") {
        return None;
    }
    let addresses = ["/MACAddress", "/PermanentMACAddress"];
    addresses.iter().find_map(|pointer| nic.text(pointer)?.parse().ok())
}

fn text_argument<'a>(
    arguments: &'a Map<String, Value>,
    name: &str,
) -> Result<Option<&'a str>, DriverError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(DriverError::invalid(name, "use a string")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn returns_macs_of_enabled_and_healthy_nics() {
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
            let nic = RedfishResource { path: String::new(), etag: None, body };
            let found = usable_address(&nic);
            assert_eq!(found.as_ref().map(Mac::as_str), address, "{}", nic.body);
        }
    }
}
