// SPDX-License-Identifier: Apache-2.0
//! The computer system: power, boot settings, processors, memory.

use serde_json::{Value, json};

use super::actions::parameter;
use super::document::{Document, collection, link, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{Reply, Visit};
use crate::machine::{BootChange, BootMode, BootTarget, Indicator, Override, Power, Reset};
use crate::personality::{ComponentKind, Tells};

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::Systems, "/redfish/v1/Systems").get(list),
    Route::at(Kind::System, "/redfish/v1/Systems/{system}").get(show).patch(change),
    Route::at(Kind::System, "/redfish/v1/Systems/{system}/Actions/ComputerSystem.Reset")
        .post(reset),
    Route::at(Kind::ResetInfo, "/redfish/v1/Systems/{system}/ResetActionInfo").get(reset_info),
    Route::at(Kind::Processors, "/redfish/v1/Systems/{system}/Processors").get(processors),
    Route::at(Kind::Processor, "/redfish/v1/Systems/{system}/Processors/{processor}")
        .get(processor),
    Route::at(Kind::Memory, "/redfish/v1/Systems/{system}/Memory").get(memory),
    Route::at(Kind::MemoryModule, "/redfish/v1/Systems/{system}/Memory/{module}").get(module),
];

/// What the system links to.
const PARTS: &[(&str, Kind)] = &[
    ("Bios", Kind::Bios),
    ("SecureBoot", Kind::SecureBoot),
    ("EthernetInterfaces", Kind::EthernetInterfaces),
    ("Processors", Kind::Processors),
    ("Memory", Kind::Memory),
    ("Storage", Kind::Storages),
    ("VirtualMedia", Kind::SystemMedia),
];

const RESET: &str = "ComputerSystem.Reset";
const MODULE_GIB: u32 = 32;

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ComputerSystemCollection.ComputerSystemCollection";
    Ok(collection(visit.path, schema, "Computer Systems", std::iter::once(visit.system())))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let (machine, personality) = (&*visit.machine, visit.personality());
    let path = visit.system();
    let schema = "#ComputerSystem.v1_20_1.ComputerSystem";
    let mut document = Document::new(&path, schema, &visit.system_id(), "System");
    let processors = &personality.processors;
    document.extend(json!({
        "SystemType": "Physical",
        "Manufacturer": personality.manufacturer,
        "Model": personality.model,
        "SerialNumber": visit.serial(),
        "SKU": visit.serial(),
        "UUID": machine.identity().uuid(),
        "AssetTag": null,
        "HostName": format!("sim-{}", machine.identity().index),
        "PowerState": machine.power_state().name(),
        "IndicatorLED": machine.indicator().name(),
        "LocationIndicatorActive": machine.indicator() != Indicator::Off,
        "Status": {
            "State": "Enabled",
            "Health": machine.health().name(),
            "HealthRollup": machine.health().name(),
        },
        "BiosVersion": machine.version_of(ComponentKind::Bios),
        "Boot": boot(visit),
        "BootProgress": boot_progress(visit),
        "ProcessorSummary": {
            "Count": processors.count,
            "CoreCount": processors.count * processors.cores,
            "LogicalProcessorCount": processors.count * processors.cores * 2,
            "Model": processors.model,
            "Status": status(machine.health()),
        },
        "MemorySummary": {
            "TotalSystemMemoryGiB": personality.memory_gib,
            "Status": {"State": "Enabled", "Health": "OK", "HealthRollup": "OK"},
        },
        "Actions": {"#ComputerSystem.Reset": reset_action(visit, &path)},
        "Links": {
            "ManagedBy": [link(visit.manager())],
            "Chassis": [link(visit.chassis())],
        },
    }));
    visit.link_those_there(&mut document, &path, PARTS);
    Ok(document.done())
}

fn reset_action(visit: &Visit<'_>, path: &str) -> Value {
    let power = &visit.personality().power;
    let target = format!("{path}/Actions/{RESET}");
    match power.tells {
        Tells::Inline => {
            json!({"target": target, "ResetType@Redfish.AllowableValues": power.resets})
        }
        Tells::ActionInfo => {
            json!({"target": target, "@Redfish.ActionInfo": format!("{path}/ResetActionInfo")})
        }
        Tells::Nowhere => json!({"target": target}),
    }
}

fn boot(visit: &Visit<'_>) -> Value {
    let (settings, rules) = (visit.machine.boot_settings(), &visit.personality().boot);
    let mut boot = json!({
        "BootSourceOverrideTarget": settings.target.name(),
        "BootSourceOverrideEnabled": settings.enabled.name(),
        "BootSourceOverrideMode": settings.mode.name(),
        "BootOrder": ["Boot0001", "Boot0002"],
    });
    if let Some(fields) = boot.as_object_mut() {
        let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        if rules.tells_targets {
            put("BootSourceOverrideTarget@Redfish.AllowableValues", json!(rules.targets));
        }
        if rules.continuous {
            let values = json!(["Disabled", "Once", "Continuous"]);
            put("BootSourceOverrideEnabled@Redfish.AllowableValues", values);
        }
        if rules.http_uri {
            put("HttpBootUri", json!(settings.http_uri));
        }
    }
    boot
}

fn boot_progress(visit: &Visit<'_>) -> Value {
    let state = match visit.machine.power() {
        Power::Off | Power::TurningOn { .. } | Power::TurningOff { .. } => "None",
        Power::Post { .. } => "SystemHardwareInitializationComplete",
        Power::Running | Power::ShuttingDown { .. } => match visit.machine.booted() {
            Some(boot) if boot.from == BootTarget::BiosSetup => "SetupEntered",
            Some(_) | None => "OSRunning",
        },
    };
    match visit.machine.boots().last() {
        Some(boot) => json!({"LastState": state, "LastStateTime": boot.at.to_string()}),
        None => json!({"LastState": state}),
    }
}

fn change(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    visit.only(&["Boot", "IndicatorLED", "LocationIndicatorActive", "AssetTag"])?;
    let boot = match visit.body.get("Boot") {
        None => None,
        Some(Value::Object(fields)) => Some(boot_change(fields)?),
        Some(other) => return Err(Refusal::property_type("Boot", other)),
    };
    let light = indicator_in(visit)?;
    if let Some(boot) = boot {
        visit.machine.set_boot(boot, visit.now)?;
    }
    if let Some(light) = light {
        visit.machine.set_indicator(light);
    }
    Ok(Reply::ok(show(visit)?))
}

/// The light that the body asks for, in either of the two ways Redfish has.
pub(super) fn indicator_in(visit: &Visit<'_>) -> Result<Option<Indicator>, Refusal> {
    if let Some(name) = visit.text("IndicatorLED")? {
        let light = Indicator::named(name);
        return light.map(Some).ok_or_else(|| Refusal::property_value("IndicatorLED", name));
    }
    let active = visit.flag("LocationIndicatorActive")?;
    Ok(active.map(|is_on| if is_on { Indicator::Blinking } else { Indicator::Off }))
}

fn boot_change(fields: &serde_json::Map<String, Value>) -> Result<BootChange, Refusal> {
    let mut change = BootChange::default();
    for (name, value) in fields {
        let text = value.as_str();
        if text.is_none() && !value.is_null() {
            return Err(Refusal::property_type(name, value));
        }
        let bad = || Refusal::property_value(name, text.unwrap_or("null"));
        match name.as_str() {
            "BootSourceOverrideTarget" => {
                change.target = Some(text.and_then(BootTarget::named).ok_or_else(bad)?);
            }
            "BootSourceOverrideEnabled" => {
                change.enabled = Some(text.and_then(Override::named).ok_or_else(bad)?);
            }
            "BootSourceOverrideMode" => {
                change.mode = Some(text.and_then(BootMode::named).ok_or_else(bad)?);
            }
            "HttpBootUri" => change.http_uri = Some(text.map(Into::into)),
            _ => return Err(Refusal::property_unknown(name)),
        }
    }
    Ok(change)
}

fn reset(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let resets = visit.personality().power.resets.clone();
    let known = |name: &str| Reset::named(name).filter(|reset| resets.contains(reset));
    let reset = parameter(visit, RESET, "ResetType", known)?;
    if !visit.power_is_stuck {
        visit.machine.reset(reset, visit.now)?;
    }
    Ok(Reply::no_content())
}

fn reset_info(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ActionInfo.v1_3_0.ActionInfo";
    let mut document = Document::new(visit.path, schema, "ResetActionInfo", "Reset Action Info");
    document.extend(json!({"Parameters": [{
        "Name": "ResetType",
        "Required": true,
        "DataType": "String",
        "AllowableValues": visit.personality().power.resets,
    }]}));
    Ok(document.done())
}

fn processors(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ProcessorCollection.ProcessorCollection";
    let count = visit.personality().processors.count;
    let members = (1..=count).map(|number| format!("{}/CPU{number}", visit.path));
    Ok(collection(visit.path, schema, "Processors", members))
}

fn processor(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let rules = &visit.personality().processors;
    let id = visit.param("processor");
    let number = numbered(id, "CPU", rules.count).ok_or_else(|| visit.not_found())?;
    let schema = "#Processor.v1_18_0.Processor";
    let mut document = Document::new(visit.path, schema, id, &format!("Processor {number}"));
    let maker = if rules.model.contains("AMD") { "AMD" } else { "Intel" };
    document.extend(json!({
        "ProcessorType": "CPU",
        "Socket": format!("CPU {number}"),
        "Manufacturer": maker,
        "Model": rules.model,
        "ProcessorArchitecture": "x86",
        "InstructionSet": rules.instruction_set,
        "MaxSpeedMHz": rules.mhz,
        "TotalCores": rules.cores,
        "TotalThreads": rules.cores * 2,
        "Status": status(visit.machine.health()),
    }));
    Ok(document.done())
}

fn memory(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let modules = visit.personality().memory_gib / MODULE_GIB;
    let members = (1..=modules).map(|number| format!("{}/DIMM{number}", visit.path));
    Ok(collection(visit.path, "#MemoryCollection.MemoryCollection", "Memory", members))
}

fn module(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let modules = visit.personality().memory_gib / MODULE_GIB;
    let id = visit.param("module");
    let number = numbered(id, "DIMM", modules).ok_or_else(|| visit.not_found())?;
    let schema = "#Memory.v1_17_1.Memory";
    let mut document = Document::new(visit.path, schema, id, &format!("Module {number}"));
    document.extend(json!({
        "MemoryType": "DRAM",
        "MemoryDeviceType": "DDR4",
        "CapacityMiB": MODULE_GIB * 1024,
        "OperatingSpeedMhz": 3200,
        "SerialNumber": visit.machine.identity().part_serial(500 + number),
        "Status": status(visit.machine.health()),
    }));
    Ok(document.done())
}

/// The number after `word`, if it is from 1 to `most`.
pub(super) fn numbered(id: &str, word: &str, most: u32) -> Option<u32> {
    let number: u32 = id.strip_prefix(word)?.parse().ok()?;
    (1..=most).contains(&number).then_some(number)
}
