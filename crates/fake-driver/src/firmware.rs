// SPDX-License-Identifier: Apache-2.0
//! The fake firmware interface. An update takes its version from the name of the image.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use drivers::{
    DriverError, DriverTarget, FirmwareInterface, NodeChanges, StepDefinition, StepOutcome,
};
use node_model::{
    FirmwareComponent, InterfaceKind, JsonObject, Step, StepArgument, StepFlow, Timestamp,
};
use serde_json::{Map, Value};

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The fake firmware interface.
pub(crate) struct FakeFirmware(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeFirmware, Firmware, FIRMWARE, STEPS);

/// The `driver_internal_info` key with the flashed versions.
const FLASHED_VERSIONS_KEY: &str = "fake_firmware";
/// Driver state: the time when the running update ends.
const READY_AT_KEY: &str = "fake_firmware_ready_at";

const STEPS: &[StepDefinition] = &[StepDefinition {
    name: "update",
    flows: &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service],
    priority: 0,
    abortable: false,
    requires_ramdisk: false,
    arguments: &[StepArgument::required(
        "settings",
        "The updates: a list of objects with 'component' (bios, bmc or nic:<id>), \
                      'url' and, if the machine needs time afterwards, 'wait' in seconds.",
    )],
}];

/// Component, factory version and model.
const FACTORY_COMPONENTS: &[(&str, &str, &str)] =
    &[("bios", "1.0.0", "FakeBIOS"), ("bmc", "1.0.0", "FakeBMC"), ("nic:NIC1", "1.0.0", "FakeNIC")];

impl FakeFirmware {
    /// Flashes all updates at once, after the longest `wait`.
    fn run(&self, target: &DriverTarget<'_>, step: &Step) -> Result<StepOutcome, DriverError> {
        let (requested, wait) = requested_versions(&step.args)?;
        let ready_at = target.driver_state.get(READY_AT_KEY).and_then(|time| time.as_i64());
        let ready_at = ready_at.map_or_else(|| target.now.plus(wait), Timestamp);
        if target.now < ready_at {
            let changes = NodeChanges::driver_state_key(READY_AT_KEY, ready_at.0);
            return Ok(StepOutcome::poll_at(ready_at, changes));
        }
        let mut flashed = flashed_versions(target);
        flashed.extend(requested);
        let firmware_components = Some(components(target, &flashed));
        let changes = NodeChanges::internal_info(FLASHED_VERSIONS_KEY, Value::Object(flashed));
        Ok(StepOutcome::done(NodeChanges { firmware_components, ..changes }))
    }
}

#[async_trait]
impl FirmwareInterface for FakeFirmware {
    async fn components(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, DriverError> {
        self.0.begin_call(InterfaceKind::Firmware, target, "components").await?;
        Ok(Some(components(target, &flashed_versions(target))))
    }
}

fn flashed_versions(target: &DriverTarget<'_>) -> Map<String, Value> {
    match target.node.driver_internal_info.get(FLASHED_VERSIONS_KEY) {
        Some(Value::Object(versions)) => versions,
        Some(_) | None => Map::new(),
    }
}

fn requested_versions(
    arguments: &JsonObject,
) -> Result<(Map<String, Value>, Duration), DriverError> {
    let Some(Value::Array(list)) = arguments.get("settings") else {
        return Err(DriverError::missing(
            "settings",
            "give a list of objects with 'component' and 'url'",
        ));
    };
    let mut requested = Map::new();
    let mut max_wait = 0;
    for update in &list {
        let text = |key: &str| update.get(key).and_then(Value::as_str);
        let (Some(component), Some(url)) = (text("component"), text("url")) else {
            return Err(DriverError::invalid(
                "settings",
                "every update needs a 'component' and a 'url'",
            ));
        };
        if !FACTORY_COMPONENTS.iter().any(|(known, ..)| *known == component) {
            let known: Vec<_> = FACTORY_COMPONENTS.iter().map(|(known, ..)| *known).collect();
            let why =
                format!("there is no component '{component}'; valid ones are {}", known.join(", "));
            return Err(DriverError::invalid("settings", why));
        }
        max_wait = max_wait.max(wait_seconds(update)?);
        requested.insert(component.to_owned(), Value::String(version_from_url(url)));
    }
    Ok((requested, Duration::from_secs(max_wait)))
}

fn wait_seconds(update: &Value) -> Result<u64, DriverError> {
    match update.get("wait") {
        None => Ok(0),
        Some(wait) => wait
            .as_u64()
            .ok_or_else(|| DriverError::invalid("wait", "use a whole number of seconds")),
    }
}

/// The version in the name of an image: `2.4.1` of `https://host/bios-2.4.1.bin`, or the whole file name
/// if it contains no version.
fn version_from_url(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let file = path.rsplit('/').next().unwrap_or(path);
    let starts_with_digit = |part: &&str| part.starts_with(|letter: char| letter.is_ascii_digit());
    let Some(part) = file.split(['-', '_']).rfind(starts_with_digit) else {
        return file.to_owned();
    };
    let is_number = |piece: &&str| piece.bytes().all(|byte| byte.is_ascii_digit());
    part.split('.').take_while(is_number).collect::<Vec<_>>().join(".")
}

fn components(target: &DriverTarget<'_>, flashed: &Map<String, Value>) -> Vec<FirmwareComponent> {
    let component = |(name, factory, model): &(&str, &str, &str)| {
        let last = flashed.get(*name).and_then(Value::as_str);
        FirmwareComponent {
            component: (*name).to_owned(),
            initial_version: (*factory).to_owned(),
            current_version: Some(last.unwrap_or(factory).to_owned()),
            last_version_flashed: last.map(str::to_owned),
            vendor: Some("Ferrite".to_owned()),
            model: Some((*model).to_owned()),
            serial_number: None,
            created_at: target.now,
            updated_at: None,
        }
    };
    FACTORY_COMPONENTS.iter().map(component).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_version_from_image_name() {
        for (url, version) in [
            ("https://host/fw/bios-2.4.1.bin", "2.4.1"),
            ("http://host/BMC_7.00.30_A00.exe?token=1", "7.00.30"),
            ("http://host/nic-3", "3"),
            ("http://host/image.bin", "image.bin"),
        ] {
            assert_eq!(version_from_url(url), version, "{url}");
        }
    }
}
