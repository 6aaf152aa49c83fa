// SPDX-License-Identifier: Apache-2.0
//! Firmware settings of a simulated machine: a table of what it leaves the factory with, and the
//! values that were changed since, remembered on the node.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{BiosSetting, InterfaceKind, JsonObject, Step, StepArgument, StepFlow};
use serde_json::{Map, Value, json};

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::step::StepRow;
use crate::{Bios, Error, NodeChanges, Outcome, Target};

/// The fake bios interface.
pub(crate) struct FakeBios(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeBios, Bios, BIOS, STEPS);

/// The key of `driver_internal_info` under which changed values are remembered.
const CHANGED: &str = "fake_bios_settings";

const APPLY: &str = "apply_configuration";
const RESET: &str = "factory_reset";
const FLOWS: &[StepFlow] = &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service];

const STEPS: &[StepRow] = &[
    StepRow {
        name: APPLY,
        flows: FLOWS,
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[StepArgument::required(
            "settings",
            "The settings to change: a list of objects with 'name' and 'value'.",
        )],
    },
    StepRow {
        name: RESET,
        flows: FLOWS,
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepRow {
        name: "cache_bios_settings",
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
];

/// What a setting may be.
enum Domain {
    Choice(&'static [&'static str]),
    Number(i64, i64),
    Text(usize),
    ReadOnly,
}

/// Name, factory value and domain of each setting.
const FACTORY: &[(&str, &str, Domain)] = &[
    ("BootMode", "Uefi", Domain::Choice(&["Bios", "Uefi"])),
    ("ProcVirtualization", "Enabled", Domain::Choice(&["Enabled", "Disabled"])),
    ("LogicalProc", "Enabled", Domain::Choice(&["Enabled", "Disabled"])),
    ("SriovGlobalEnable", "Disabled", Domain::Choice(&["Enabled", "Disabled"])),
    ("SysProfile", "Balanced", Domain::Choice(&["Balanced", "Performance", "PowerSaving"])),
    ("NumLock", "On", Domain::Choice(&["On", "Off"])),
    ("PostDelaySeconds", "5", Domain::Number(0, 60)),
    ("AssetTag", "", Domain::Text(63)),
    ("SystemBiosVersion", "1.0.0", Domain::ReadOnly),
];

impl FakeBios {
    fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        let mut values = changed_values(target);
        match step.step.as_str() {
            APPLY => values.extend(wanted_values(&step.args)?),
            RESET => values.clear(),
            // Only reads, which happens below for all of them.
            _ => {}
        }
        let mut changes =
            NodeChanges { bios_settings: Some(settings(target, &values)), ..NodeChanges::none() };
        let remembered = if values.is_empty() { Value::Null } else { Value::Object(values) };
        changes.driver_internal_info.insert(CHANGED.to_owned(), remembered);
        Ok(Outcome::Done(changes))
    }
}

#[async_trait]
impl Bios for FakeBios {
    async fn settings(&self, target: &Target<'_>) -> Result<Option<Vec<BiosSetting>>, Error> {
        self.0.act(InterfaceKind::Bios, target, "settings").await?;
        Ok(Some(settings(target, &changed_values(target))))
    }
}

fn changed_values(target: &Target<'_>) -> Map<String, Value> {
    match target.node.driver_internal_info.get(CHANGED) {
        Some(Value::Object(values)) => values,
        Some(_) | None => Map::new(),
    }
}

/// The values that `apply_configuration` is asked for.
fn wanted_values(arguments: &JsonObject) -> Result<Map<String, Value>, Error> {
    let Some(Value::Array(list)) = arguments.get("settings") else {
        return Err(Error::missing("settings", "give a list of objects with 'name' and 'value'"));
    };
    let mut wanted = Map::new();
    for setting in &list {
        let name = setting.get("name").and_then(Value::as_str);
        let (Some(name), Some(value)) = (name, setting.get("value")) else {
            return Err(Error::invalid("settings", "every setting needs a 'name' and a 'value'"));
        };
        wanted.insert(name.to_owned(), Value::String(checked_value(name, value)?));
    }
    Ok(wanted)
}

fn checked_value(name: &str, value: &Value) -> Result<String, Error> {
    let Some((_, _, domain)) = FACTORY.iter().find(|(known, ..)| *known == name) else {
        let known: Vec<_> = FACTORY.iter().map(|(known, ..)| *known).collect();
        let why = format!("there is no setting '{name}'; there are {}", known.join(", "));
        return Err(Error::invalid("settings", why));
    };
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(Error::invalid(name, "a value is a string, a number or a boolean"));
        }
    };
    let problem = match domain {
        Domain::Choice(choices) if !choices.contains(&text.as_str()) => {
            Some(format!("use one of {}", choices.join(", ")))
        }
        Domain::Number(low, high)
            if !text.parse().is_ok_and(|number: i64| (*low..=*high).contains(&number)) =>
        {
            Some(format!("use a whole number from {low} to {high}"))
        }
        Domain::Text(longest) if text.chars().count() > *longest => {
            Some(format!("use at most {longest} characters"))
        }
        Domain::ReadOnly => Some("it cannot be changed".to_owned()),
        Domain::Choice(_) | Domain::Number(..) | Domain::Text(_) => None,
    };
    problem.map_or(Ok(text), |why| Err(Error::invalid(name, why)))
}

fn settings(target: &Target<'_>, changed: &Map<String, Value>) -> Vec<BiosSetting> {
    let setting = |(name, factory, domain): &(&str, &str, Domain)| BiosSetting {
        name: (*name).to_owned(),
        value: Some(changed.get(*name).and_then(Value::as_str).unwrap_or(factory).to_owned()),
        created_at: target.now,
        updated_at: None,
        registry: registry(domain),
    };
    FACTORY.iter().map(setting).collect()
}

/// What a BMC's attribute registry would say of a setting.
fn registry(domain: &Domain) -> JsonObject {
    let entry = match domain {
        Domain::Choice(choices) => json!({
            "attribute_type": "Enumeration", "allowable_values": choices,
            "read_only": false, "reset_required": true, "unique": false,
        }),
        Domain::Number(low, high) => json!({
            "attribute_type": "Integer", "lower_bound": low, "upper_bound": high,
            "read_only": false, "reset_required": true, "unique": false,
        }),
        Domain::Text(longest) => json!({
            "attribute_type": "String", "min_length": 0, "max_length": longest,
            "read_only": false, "reset_required": false, "unique": true,
        }),
        Domain::ReadOnly => json!({
            "attribute_type": "String",
            "read_only": true, "reset_required": false, "unique": false,
        }),
    };
    match entry {
        Value::Object(entry) => JsonObject::from(entry),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            JsonObject::empty()
        }
    }
}
