// SPDX-License-Identifier: Apache-2.0
//! The computer system: power, boot settings, processors, memory.

use serde_json::{Value, json};

use super::actions::parameter;
use super::document::{ResourceDocument, collection, link, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::{
    BootChange, BootMode, BootOverride, BootTarget, IndicatorLed, PowerPhase, ResetType,
};
use crate::personality::{AllowableValuesLocation, ComponentKind};

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::Systems, "/redfish/v1/Systems").get(list),
    RedfishRoute::at(ResourceKind::System, "/redfish/v1/Systems/{system}").get(show).patch(change),
    RedfishRoute::at(
        ResourceKind::System,
        "/redfish/v1/Systems/{system}/Actions/ComputerSystem.Reset",
    )
    .post(reset),
    RedfishRoute::at(ResourceKind::ResetInfo, "/redfish/v1/Systems/{system}/ResetActionInfo")
        .get(reset_info),
    RedfishRoute::at(ResourceKind::Processors, "/redfish/v1/Systems/{system}/Processors")
        .get(processors),
    RedfishRoute::at(
        ResourceKind::Processor,
        "/redfish/v1/Systems/{system}/Processors/{processor}",
    )
    .get(processor),
    RedfishRoute::at(ResourceKind::Memory, "/redfish/v1/Systems/{system}/Memory").get(memory),
    RedfishRoute::at(ResourceKind::MemoryModule, "/redfish/v1/Systems/{system}/Memory/{module}")
        .get(module),
];

/// Resources that the system links to.
const SUBRESOURCES: &[(&str, ResourceKind)] = &[
    ("Bios", ResourceKind::Bios),
    ("SecureBoot", ResourceKind::SecureBoot),
    ("EthernetInterfaces", ResourceKind::EthernetInterfaces),
    ("Processors", ResourceKind::Processors),
    ("Memory", ResourceKind::Memory),
    ("Storage", ResourceKind::Storages),
    ("VirtualMedia", ResourceKind::SystemMedia),
];

const RESET: &str = "ComputerSystem.Reset";
const MODULE_GIB: u32 = 32;

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ComputerSystemCollection.ComputerSystemCollection";
    Ok(collection(context.path, schema, "Computer Systems", std::iter::once(context.system_path())))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let (machine, personality) = (&*context.machine, context.personality());
    let path = context.system_path();
    let schema = "#ComputerSystem.v1_20_1.ComputerSystem";
    let mut document = ResourceDocument::new(&path, schema, &context.system_id(), "System");
    let processors = &personality.processors;
    document.extend(json!({
        "SystemType": "Physical",
        "Manufacturer": personality.manufacturer,
        "Model": personality.model,
        "SerialNumber": context.serial(),
        "SKU": context.serial(),
        "UUID": machine.identity().uuid(),
        "AssetTag": null,
        "HostName": format!("sim-{}", machine.identity().index),
        "PowerState": machine.power_state().name(),
        "IndicatorLED": machine.indicator().name(),
        "LocationIndicatorActive": machine.indicator() != IndicatorLed::Off,
        "Status": {
            "State": "Enabled",
            "Health": machine.health().name(),
            "HealthRollup": machine.health().name(),
        },
        "BiosVersion": machine.component_version(ComponentKind::Bios),
        "Boot": boot(context),
        "BootProgress": boot_progress(context),
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
        "Actions": {"#ComputerSystem.Reset": reset_action(context, &path)},
        "Links": {
            "ManagedBy": [link(context.manager_path())],
            "Chassis": [link(context.chassis_path())],
        },
    }));
    context.link_existing(&mut document, &path, SUBRESOURCES);
    Ok(document.into_value())
}

fn reset_action(context: &RequestContext<'_>, path: &str) -> Value {
    let power = &context.personality().power;
    let target = format!("{path}/Actions/{RESET}");
    match power.allowable_values {
        AllowableValuesLocation::Inline => {
            json!({"target": target, "ResetType@Redfish.AllowableValues": power.reset_types})
        }
        AllowableValuesLocation::ActionInfo => {
            json!({"target": target, "@Redfish.ActionInfo": format!("{path}/ResetActionInfo")})
        }
        AllowableValuesLocation::None => json!({"target": target}),
    }
}

fn boot(context: &RequestContext<'_>) -> Value {
    let (settings, rules) = (context.machine.boot_settings(), &context.personality().boot);
    let mut boot = json!({
        "BootSourceOverrideTarget": settings.target.name(),
        "BootSourceOverrideEnabled": settings.enabled.name(),
        "BootSourceOverrideMode": settings.mode.name(),
        "BootOrder": ["Boot0001", "Boot0002"],
    });
    if let Some(fields) = boot.as_object_mut() {
        let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        if rules.lists_targets {
            put("BootSourceOverrideTarget@Redfish.AllowableValues", json!(rules.targets));
        }
        if rules.supports_continuous {
            let values = json!(["Disabled", "Once", "Continuous"]);
            put("BootSourceOverrideEnabled@Redfish.AllowableValues", values);
        }
        if rules.supports_http_uri {
            put("HttpBootUri", json!(settings.http_uri));
        }
    }
    boot
}

fn boot_progress(context: &RequestContext<'_>) -> Value {
    let state = match context.machine.power_phase() {
        PowerPhase::Off | PowerPhase::TurningOn { .. } | PowerPhase::TurningOff { .. } => "None",
        PowerPhase::Post { .. } => "SystemHardwareInitializationComplete",
        PowerPhase::Running | PowerPhase::ShuttingDown { .. } => {
            match context.machine.current_boot() {
                Some(boot) if boot.from == BootTarget::BiosSetup => "SetupEntered",
                Some(_) | None => "OSRunning",
            }
        }
    };
    match context.machine.boot_history().last() {
        Some(boot) => json!({"LastState": state, "LastStateTime": boot.at.to_string()}),
        None => json!({"LastState": state}),
    }
}

fn change(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    context.reject_unknown_properties(&[
        "Boot",
        "IndicatorLED",
        "LocationIndicatorActive",
        "AssetTag",
    ])?;
    let boot = match context.body.get("Boot") {
        None => None,
        Some(Value::Object(fields)) => Some(boot_change(fields)?),
        Some(other) => return Err(RedfishErrorResponse::property_type("Boot", other)),
    };
    let light = indicator_from_body(context)?;
    if let Some(boot) = boot {
        context.machine.set_boot(boot, context.now)?;
    }
    if let Some(light) = light {
        context.machine.set_indicator(light);
    }
    Ok(ChangeResponse::ok(show(context)?))
}

/// Returns the LED state in the body, given as `IndicatorLED` or `LocationIndicatorActive`.
pub(super) fn indicator_from_body(
    context: &RequestContext<'_>,
) -> Result<Option<IndicatorLed>, RedfishErrorResponse> {
    if let Some(name) = context.string_property("IndicatorLED")? {
        let light = IndicatorLed::from_name(name);
        return light
            .map(Some)
            .ok_or_else(|| RedfishErrorResponse::property_value("IndicatorLED", name));
    }
    let active = context.bool_property("LocationIndicatorActive")?;
    Ok(active.map(|is_on| if is_on { IndicatorLed::Blinking } else { IndicatorLed::Off }))
}

fn boot_change(
    fields: &serde_json::Map<String, Value>,
) -> Result<BootChange, RedfishErrorResponse> {
    let mut change = BootChange::default();
    for (name, value) in fields {
        let text = value.as_str();
        if text.is_none() && !value.is_null() {
            return Err(RedfishErrorResponse::property_type(name, value));
        }
        let bad = || RedfishErrorResponse::property_value(name, text.unwrap_or("null"));
        match name.as_str() {
            "BootSourceOverrideTarget" => {
                change.target = Some(text.and_then(BootTarget::from_name).ok_or_else(bad)?);
            }
            "BootSourceOverrideEnabled" => {
                change.enabled = Some(text.and_then(BootOverride::from_name).ok_or_else(bad)?);
            }
            "BootSourceOverrideMode" => {
                change.mode = Some(text.and_then(BootMode::from_name).ok_or_else(bad)?);
            }
            "HttpBootUri" => change.http_uri = Some(text.map(Into::into)),
            _ => return Err(RedfishErrorResponse::property_unknown(name)),
        }
    }
    Ok(change)
}

fn reset(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let resets = context.personality().power.reset_types.clone();
    let parse = |name: &str| ResetType::from_name(name).filter(|reset| resets.contains(reset));
    let reset = parameter(context, RESET, "ResetType", parse)?;
    if !context.power_stuck {
        context.machine.reset(reset, context.now)?;
    }
    Ok(ChangeResponse::no_content())
}

fn reset_info(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ActionInfo.v1_3_0.ActionInfo";
    let mut document =
        ResourceDocument::new(context.path, schema, "ResetActionInfo", "Reset Action Info");
    document.extend(json!({"Parameters": [{
        "Name": "ResetType",
        "Required": true,
        "DataType": "String",
        "AllowableValues": context.personality().power.reset_types,
    }]}));
    Ok(document.into_value())
}

fn processors(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ProcessorCollection.ProcessorCollection";
    let count = context.personality().processors.count;
    let members = (1..=count).map(|number| format!("{}/CPU{number}", context.path));
    Ok(collection(context.path, schema, "Processors", members))
}

fn processor(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let rules = &context.personality().processors;
    let id = context.param("processor");
    let number = parse_numbered_id(id, "CPU", rules.count).ok_or_else(|| context.not_found())?;
    let schema = "#Processor.v1_18_0.Processor";
    let mut document =
        ResourceDocument::new(context.path, schema, id, &format!("Processor {number}"));
    let manufacturer = if rules.model.contains("AMD") { "AMD" } else { "Intel" };
    document.extend(json!({
        "ProcessorType": "CPU",
        "Socket": format!("CPU {number}"),
        "Manufacturer": manufacturer,
        "Model": rules.model,
        "ProcessorArchitecture": "x86",
        "InstructionSet": rules.instruction_set,
        "MaxSpeedMHz": rules.mhz,
        "TotalCores": rules.cores,
        "TotalThreads": rules.cores * 2,
        "Status": status(context.machine.health()),
    }));
    Ok(document.into_value())
}

fn memory(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let modules = context.personality().memory_gib / MODULE_GIB;
    let members = (1..=modules).map(|number| format!("{}/DIMM{number}", context.path));
    Ok(collection(context.path, "#MemoryCollection.MemoryCollection", "Memory", members))
}

fn module(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let modules = context.personality().memory_gib / MODULE_GIB;
    let id = context.param("module");
    let number = parse_numbered_id(id, "DIMM", modules).ok_or_else(|| context.not_found())?;
    let schema = "#Memory.v1_17_1.Memory";
    let mut document = ResourceDocument::new(context.path, schema, id, &format!("Module {number}"));
    document.extend(json!({
        "MemoryType": "DRAM",
        "MemoryDeviceType": "DDR4",
        "CapacityMiB": MODULE_GIB * 1024,
        "OperatingSpeedMhz": 3200,
        "SerialNumber": context.machine.identity().part_serial(500 + number),
        "Status": status(context.machine.health()),
    }));
    Ok(document.into_value())
}

/// Returns the number after `prefix`, if it is from 1 to `max`.
pub(super) fn parse_numbered_id(id: &str, prefix: &str, max: u32) -> Option<u32> {
    let number: u32 = id.strip_prefix(prefix)?.parse().ok()?;
    (1..=max).contains(&number).then_some(number)
}
