// SPDX-License-Identifier: Apache-2.0
//! Firmware of a simulated machine. An update takes its version from the name of the image.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use node_model::{
    FirmwareComponent, InterfaceKind, JsonObject, Step, StepArgument, StepFlow, Timestamp,
};
use serde_json::{Map, Value};

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::step::StepRow;
use crate::{Error, Firmware, NodeChanges, Outcome, Target};

/// The fake firmware interface.
pub(crate) struct FakeFirmware(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeFirmware, Firmware, FIRMWARE, STEPS);

/// The key of `driver_internal_info` under which flashed versions are remembered.
const FLASHED: &str = "fake_firmware";
/// The note of when an update that was told to wait is over.
const READY_AT: &str = "fake_firmware_ready_at";

const STEPS: &[StepRow] = &[StepRow {
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

/// Component, version from the factory, and model.
const FACTORY: &[(&str, &str, &str)] =
    &[("bios", "1.0.0", "FakeBIOS"), ("bmc", "1.0.0", "FakeBMC"), ("nic:NIC1", "1.0.0", "FakeNIC")];

impl FakeFirmware {
    /// All updates are flashed at once; the longest `wait` is how long the machine then needs.
    fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        let (wanted, wait) = wanted_versions(&step.args)?;
        let ready_at = target.notes.get(READY_AT).and_then(|moment| moment.as_i64());
        let ready_at = ready_at.map_or_else(|| target.now.plus(wait), Timestamp);
        if target.now < ready_at {
            let changes = NodeChanges::note(target.notes, READY_AT, ready_at.0);
            return Ok(Outcome::WaitUntil { moment: ready_at, changes });
        }
        let mut flashed = flashed_versions(target);
        flashed.extend(wanted);
        let firmware_components = Some(components(target, &flashed));
        let changes = NodeChanges::remember(FLASHED, Value::Object(flashed));
        Ok(Outcome::Done(NodeChanges { firmware_components, ..changes }))
    }
}

#[async_trait]
impl Firmware for FakeFirmware {
    async fn components(
        &self,
        target: &Target<'_>,
    ) -> Result<Option<Vec<FirmwareComponent>>, Error> {
        self.0.act(InterfaceKind::Firmware, target, "components").await?;
        Ok(Some(components(target, &flashed_versions(target))))
    }
}

fn flashed_versions(target: &Target<'_>) -> Map<String, Value> {
    match target.node.driver_internal_info.get(FLASHED) {
        Some(Value::Object(versions)) => versions,
        Some(_) | None => Map::new(),
    }
}

fn wanted_versions(arguments: &JsonObject) -> Result<(Map<String, Value>, Duration), Error> {
    let Some(Value::Array(list)) = arguments.get("settings") else {
        return Err(Error::missing(
            "settings",
            "give a list of objects with 'component' and 'url'",
        ));
    };
    let mut wanted = Map::new();
    let mut longest_wait = 0;
    for update in &list {
        let text = |key: &str| update.get(key).and_then(Value::as_str);
        let (Some(component), Some(url)) = (text("component"), text("url")) else {
            return Err(Error::invalid("settings", "every update needs a 'component' and a 'url'"));
        };
        if !FACTORY.iter().any(|(known, ..)| *known == component) {
            let known: Vec<_> = FACTORY.iter().map(|(known, ..)| *known).collect();
            let why =
                format!("there is no component '{component}'; there are {}", known.join(", "));
            return Err(Error::invalid("settings", why));
        }
        longest_wait = longest_wait.max(wait_seconds(update)?);
        wanted.insert(component.to_owned(), Value::String(version_in(url)));
    }
    Ok((wanted, Duration::from_secs(longest_wait)))
}

fn wait_seconds(update: &Value) -> Result<u64, Error> {
    match update.get("wait") {
        None => Ok(0),
        Some(wait) => {
            wait.as_u64().ok_or_else(|| Error::invalid("wait", "use a whole number of seconds"))
        }
    }
}

/// The version in the name of an image: `2.4.1` of `https://host/bios-2.4.1.bin`, or the whole name
/// if no part of it looks like one.
fn version_in(url: &str) -> String {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let file = path.rsplit('/').next().unwrap_or(path);
    let starts_with_digit = |part: &&str| part.starts_with(|letter: char| letter.is_ascii_digit());
    let Some(part) = file.split(['-', '_']).rfind(starts_with_digit) else {
        return file.to_owned();
    };
    let is_number = |piece: &&str| piece.bytes().all(|byte| byte.is_ascii_digit());
    part.split('.').take_while(is_number).collect::<Vec<_>>().join(".")
}

fn components(target: &Target<'_>, flashed: &Map<String, Value>) -> Vec<FirmwareComponent> {
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
    FACTORY.iter().map(component).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (url, version) in [
            ("https://host/fw/bios-2.4.1.bin", "2.4.1"),
            ("http://host/BMC_7.00.30_A00.exe?token=1", "7.00.30"),
            ("http://host/nic-3", "3"),
            ("http://host/image.bin", "image.bin"),
        ] {
            assert_eq!(version_in(url), version, "{url}");
        }
    }
}
