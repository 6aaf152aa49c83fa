// SPDX-License-Identifier: Apache-2.0
//! The fake BIOS interface: a table of factory settings; changed values are stored on the node.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{BiosInterface, DriverError, DriverTarget, NodeChanges, StepDefinition, StepOutcome};
use node_model::{BiosSetting, InterfaceKind, JsonObject, Step, StepArgument, StepFlow};
use serde_json::{Map, Value, json};

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The fake BIOS interface.
pub(crate) struct FakeBios(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeBios, Bios, BIOS, STEPS);

/// The `driver_internal_info` key with the changed values.
const CHANGED_VALUES_KEY: &str = "fake_bios_settings";

const APPLY_STEP: &str = "apply_configuration";
const RESET_STEP: &str = "factory_reset";
const FLOWS: &[StepFlow] = &[StepFlow::Clean, StepFlow::Deploy, StepFlow::Service];

const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: APPLY_STEP,
        flows: FLOWS,
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[StepArgument::required(
            "settings",
            "The settings to change: a list of objects with 'name' and 'value'.",
        )],
    },
    StepDefinition {
        name: RESET_STEP,
        flows: FLOWS,
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepDefinition {
        name: "cache_bios_settings",
        flows: &[StepFlow::Clean],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
];

/// The valid values of a setting.
enum FakeBiosDomain {
    Choice(&'static [&'static str]),
    Number(i64, i64),
    Text(usize),
    ReadOnly,
}

/// Name, factory value and valid values of each setting.
const FACTORY_SETTINGS: &[(&str, &str, FakeBiosDomain)] = &[
    ("BootMode", "Uefi", FakeBiosDomain::Choice(&["Bios", "Uefi"])),
    ("ProcVirtualization", "Enabled", FakeBiosDomain::Choice(&["Enabled", "Disabled"])),
    ("LogicalProc", "Enabled", FakeBiosDomain::Choice(&["Enabled", "Disabled"])),
    ("SriovGlobalEnable", "Disabled", FakeBiosDomain::Choice(&["Enabled", "Disabled"])),
    ("SysProfile", "Balanced", FakeBiosDomain::Choice(&["Balanced", "Performance", "PowerSaving"])),
    ("NumLock", "On", FakeBiosDomain::Choice(&["On", "Off"])),
    ("PostDelaySeconds", "5", FakeBiosDomain::Number(0, 60)),
    ("AssetTag", "", FakeBiosDomain::Text(63)),
    ("SystemBiosVersion", "1.0.0", FakeBiosDomain::ReadOnly),
];

impl FakeBios {
    fn run(&self, target: &DriverTarget<'_>, step: &Step) -> Result<StepOutcome, DriverError> {
        let mut values = changed_values(target);
        match step.step.as_str() {
            APPLY_STEP => values.extend(requested_values(&step.args)?),
            RESET_STEP => values.clear(),
            // `cache_bios_settings` only reads, as all steps do below.
            _ => {}
        }
        let mut changes =
            NodeChanges { bios_settings: Some(settings(target, &values)), ..NodeChanges::none() };
        let stored = if values.is_empty() { Value::Null } else { Value::Object(values) };
        changes.driver_internal_info.insert(CHANGED_VALUES_KEY.to_owned(), stored);
        Ok(StepOutcome::done(changes))
    }
}

#[async_trait]
impl BiosInterface for FakeBios {
    async fn settings(
        &self,
        target: &DriverTarget<'_>,
    ) -> Result<Option<Vec<BiosSetting>>, DriverError> {
        self.0.begin_call(InterfaceKind::Bios, target, "settings").await?;
        Ok(Some(settings(target, &changed_values(target))))
    }
}

fn changed_values(target: &DriverTarget<'_>) -> Map<String, Value> {
    match target.node.driver_internal_info.get(CHANGED_VALUES_KEY) {
        Some(Value::Object(values)) => values,
        Some(_) | None => Map::new(),
    }
}

/// The values that `apply_configuration` sets.
fn requested_values(arguments: &JsonObject) -> Result<Map<String, Value>, DriverError> {
    let Some(Value::Array(list)) = arguments.get("settings") else {
        return Err(DriverError::missing(
            "settings",
            "give a list of objects with 'name' and 'value'",
        ));
    };
    let mut requested = Map::new();
    for setting in &list {
        let name = setting.get("name").and_then(Value::as_str);
        let (Some(name), Some(value)) = (name, setting.get("value")) else {
            return Err(DriverError::invalid(
                "settings",
                "every setting needs a 'name' and a 'value'",
            ));
        };
        requested.insert(name.to_owned(), Value::String(parse_value(name, value)?));
    }
    Ok(requested)
}

fn parse_value(name: &str, value: &Value) -> Result<String, DriverError> {
    let Some((_, _, domain)) = FACTORY_SETTINGS.iter().find(|(known, ..)| *known == name) else {
        let known: Vec<_> = FACTORY_SETTINGS.iter().map(|(known, ..)| *known).collect();
        let why = format!("there is no setting '{name}'; valid ones are {}", known.join(", "));
        return Err(DriverError::invalid("settings", why));
    };
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(DriverError::invalid(name, "a value is a string, a number or a boolean"));
        }
    };
    let problem = match domain {
        FakeBiosDomain::Choice(choices) if !choices.contains(&text.as_str()) => {
            Some(format!("use one of {}", choices.join(", ")))
        }
        FakeBiosDomain::Number(low, high)
            if !text.parse().is_ok_and(|number: i64| (*low..=*high).contains(&number)) =>
        {
            Some(format!("use a whole number from {low} to {high}"))
        }
        FakeBiosDomain::Text(max_length) if text.chars().count() > *max_length => {
            Some(format!("use at most {max_length} characters"))
        }
        FakeBiosDomain::ReadOnly => Some("it cannot be changed".to_owned()),
        FakeBiosDomain::Choice(_) | FakeBiosDomain::Number(..) | FakeBiosDomain::Text(_) => None,
    };
    problem.map_or(Ok(text), |why| Err(DriverError::invalid(name, why)))
}

fn settings(target: &DriverTarget<'_>, changed: &Map<String, Value>) -> Vec<BiosSetting> {
    let setting = |(name, factory, domain): &(&str, &str, FakeBiosDomain)| BiosSetting {
        name: (*name).to_owned(),
        value: Some(changed.get(*name).and_then(Value::as_str).unwrap_or(factory).to_owned()),
        created_at: target.now,
        updated_at: None,
        registry: attribute_registry(domain),
    };
    FACTORY_SETTINGS.iter().map(setting).collect()
}

/// The setting's entry in a BMC's attribute registry.
fn attribute_registry(domain: &FakeBiosDomain) -> JsonObject {
    let entry = match domain {
        FakeBiosDomain::Choice(choices) => json!({
            "attribute_type": "Enumeration", "allowable_values": choices,
            "read_only": false, "reset_required": true, "unique": false,
        }),
        FakeBiosDomain::Number(low, high) => json!({
            "attribute_type": "Integer", "lower_bound": low, "upper_bound": high,
            "read_only": false, "reset_required": true, "unique": false,
        }),
        FakeBiosDomain::Text(max_length) => json!({
            "attribute_type": "String", "min_length": 0, "max_length": max_length,
            "read_only": false, "reset_required": false, "unique": true,
        }),
        FakeBiosDomain::ReadOnly => json!({
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
