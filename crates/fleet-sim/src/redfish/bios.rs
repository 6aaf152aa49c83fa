// SPDX-License-Identifier: Apache-2.0
//! The firmware's settings with their registry, and secure boot.

use serde_json::{Map, Value, json};

use super::actions::parameter;
use super::answer::etag;
use super::document::Document;
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{Reply, Visit};
use crate::machine::Keys;
use crate::personality::{AttributeKind, AttributeRule, IfMatchRule};

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::Bios, "/redfish/v1/Systems/{system}/Bios").get(show),
    Route::at(Kind::BiosSettings, "/redfish/v1/Systems/{system}/Bios/Settings")
        .get(settings)
        .patch(change)
        // Old makers take what should be a PATCH as a PUT or POST; a POST costs nothing to take.
        .post(change),
    Route::at(Kind::Bios, "/redfish/v1/Systems/{system}/Bios/Actions/Bios.ResetBios").post(reset),
    Route::at(Kind::Registry, "/redfish/v1/Registries/{registry}/{file}").get(registry),
    Route::at(Kind::SecureBoot, "/redfish/v1/Systems/{system}/SecureBoot")
        .get(secure_boot)
        .patch(set_secure_boot),
    Route::at(
        Kind::SecureBoot,
        "/redfish/v1/Systems/{system}/SecureBoot/Actions/SecureBoot.ResetKeys",
    )
    .post(reset_keys),
];

const SCHEMA: &str = "#Bios.v1_2_1.Bios";
const RESET_KEYS: &str = "SecureBoot.ResetKeys";

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let path = format!("{}/Bios", visit.system());
    let bios = visit.machine.bios();
    let mut document = Document::new(&path, SCHEMA, "Bios", "BIOS Configuration");
    let mut settings = json!({
        "@odata.type": "#Settings.v1_3_5.Settings",
        "SettingsObject": {"@odata.id": format!("{path}/Settings")},
        "SupportedApplyTimes": visit.personality().bios.apply_times,
    });
    if let Some(fields) = settings.as_object_mut() {
        if let Some(at) = bios.applied_at() {
            fields.insert("Time".to_owned(), json!(at.to_string()));
            fields.insert("Messages".to_owned(), json!([{"MessageId": "Base.1.12.Success"}]));
        }
        // Who must send an ETag has to be told it here: it is the other resource's.
        if visit.personality().http.if_match == IfMatchRule::Required {
            let etag = etag(visit.personality(), Kind::BiosSettings, pending(visit));
            fields.insert("ETag".to_owned(), etag.into());
        }
    }
    let attributes = attributes(visit, |place, rule| bios.value(place, rule));
    document.extend(json!({
        "AttributeRegistry": visit.personality().bios.registry,
        "Attributes": attributes,
        "@Redfish.Settings": settings,
        "Actions": {"#Bios.ResetBios": {"target": format!("{path}/Actions/Bios.ResetBios")}},
    }));
    Ok(document.done())
}

fn settings(visit: &Visit<'_>) -> Result<Value, Refusal> {
    Ok(pending(visit))
}

fn pending(visit: &Visit<'_>) -> Value {
    let bios = visit.machine.bios();
    let path = format!("{}/Bios/Settings", visit.system());
    let mut document = Document::new(&path, SCHEMA, "Settings", "BIOS Pending Settings");
    let attributes = attributes(visit, |place, rule| bios.value_to_be(place, rule));
    document.extend(json!({
        "AttributeRegistry": visit.personality().bios.registry,
        "Attributes": attributes,
    }));
    document.done()
}

fn change(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    visit.only(&["Attributes"])?;
    let wanted = match visit.body.get("Attributes") {
        None => return Err(Refusal::property_missing("Attributes")),
        Some(Value::Object(wanted)) => wanted,
        Some(other) => return Err(Refusal::property_type("Attributes", other)),
    };
    visit.machine.set_bios(wanted.iter().map(|(name, value)| (name.as_str(), value)))?;
    Ok(Reply::ok(pending(visit)))
}

fn reset(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    visit.machine.reset_bios();
    Ok(Reply::no_content())
}

fn attributes<'v>(
    visit: &'v Visit<'_>,
    value: impl Fn(usize, &'v AttributeRule) -> &'v Value,
) -> Map<String, Value> {
    let rules = visit.personality().bios.attributes.iter().enumerate();
    rules.map(|(place, rule)| (rule.name.clone(), value(place, rule).clone())).collect()
}

fn registry(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let rules = &visit.personality().bios;
    let (name, file) = (visit.param("registry"), visit.param("file"));
    if name != rules.registry || file.strip_suffix(".json") != Some(name) {
        return Err(visit.not_found());
    }
    let schema = "#AttributeRegistry.v1_3_6.AttributeRegistry";
    let mut document = Document::new(visit.path, schema, name, "BIOS Attribute Registry");
    let attributes: Vec<Value> = rules.attributes.iter().map(registered).collect();
    document.extend(json!({
        "Language": "en",
        "OwningEntity": visit.personality().manufacturer,
        "RegistryVersion": "1.0.0",
        "SupportedSystems": [{"ProductName": visit.personality().model}],
        "RegistryEntries": {"Attributes": attributes, "Dependencies": [], "Menus": []},
    }));
    Ok(document.done())
}

fn registered(rule: &AttributeRule) -> Value {
    let mut entry = json!({
        "AttributeName": rule.name,
        "DisplayName": rule.display_name.as_ref().unwrap_or(&rule.name),
        "Type": rule.kind.name(),
        "DefaultValue": rule.default,
        "ReadOnly": rule.read_only,
        "ResetRequired": true,
        "IsSystemUniqueProperty": rule.unique,
        "Immutable": rule.read_only,
        "LowerBound": rule.lower_bound,
        "UpperBound": rule.upper_bound,
        "MaxLength": rule.max_length,
    });
    if let Some(fields) = entry.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        if rule.kind == AttributeKind::Enumeration {
            let values = rule.values.iter();
            let values: Vec<Value> = values
                .map(|value| json!({"ValueName": value, "ValueDisplayName": value}))
                .collect();
            fields.insert("Value".to_owned(), values.into());
        }
        if rule.kind == AttributeKind::String {
            fields.insert("MinLength".to_owned(), json!(0));
        }
    }
    entry
}

fn secure_boot(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let path = format!("{}/SecureBoot", visit.system());
    let state = visit.machine.secure_boot();
    let mode = match state.keys {
        Keys::Default => "UserMode",
        Keys::None => "SetupMode",
    };
    let schema = "#SecureBoot.v1_1_0.SecureBoot";
    let mut document = Document::new(&path, schema, "SecureBoot", "UEFI Secure Boot");
    document.extend(json!({
        "SecureBootEnable": state.enabled,
        "SecureBootCurrentBoot": if state.current { "Enabled" } else { "Disabled" },
        "SecureBootMode": mode,
        "Actions": {"#SecureBoot.ResetKeys": {
            "target": format!("{path}/Actions/{RESET_KEYS}"),
            "ResetKeysType@Redfish.AllowableValues":
                ["ResetAllKeysToDefault", "DeleteAllKeys", "DeletePK"],
        }},
    }));
    Ok(document.done())
}

fn set_secure_boot(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    visit.only(&["SecureBootEnable"])?;
    let enabled =
        visit.flag("SecureBootEnable")?.ok_or(Refusal::property_missing("SecureBootEnable"))?;
    visit.machine.set_secure_boot(enabled)?;
    Ok(Reply::ok(secure_boot(visit)?))
}

fn reset_keys(visit: &mut Visit<'_>) -> Result<Reply, Refusal> {
    let keys = parameter(visit, RESET_KEYS, "ResetKeysType", |name| match name {
        "ResetAllKeysToDefault" => Some(Keys::Default),
        "DeleteAllKeys" | "DeletePK" => Some(Keys::None),
        _ => None,
    })?;
    visit.machine.set_secure_boot_keys(keys);
    Ok(Reply::no_content())
}
