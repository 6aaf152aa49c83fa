// SPDX-License-Identifier: Apache-2.0
//! BIOS settings with their attribute registry, and secure boot.

use serde_json::{Map, Value, json};

use super::actions::parameter;
use super::document::ResourceDocument;
use super::error_response::RedfishErrorResponse;
use super::handler::strong_etag;
use super::request_context::{ChangeResponse, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::SecureBootKeys;
use crate::personality::{AttributeKind, AttributeRule, IfMatchRule};

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::Bios, "/redfish/v1/Systems/{system}/Bios").get(show),
    RedfishRoute::at(ResourceKind::BiosSettings, "/redfish/v1/Systems/{system}/Bios/Settings")
        .get(settings)
        .patch(change)
        // Some older BMCs expect POST instead of PATCH.
        .post(change),
    RedfishRoute::at(
        ResourceKind::Bios,
        "/redfish/v1/Systems/{system}/Bios/Actions/Bios.ResetBios",
    )
    .post(reset),
    RedfishRoute::at(ResourceKind::Registry, "/redfish/v1/Registries/{registry}/{file}")
        .get(registry),
    RedfishRoute::at(ResourceKind::SecureBoot, "/redfish/v1/Systems/{system}/SecureBoot")
        .get(secure_boot)
        .patch(set_secure_boot),
    RedfishRoute::at(
        ResourceKind::SecureBoot,
        "/redfish/v1/Systems/{system}/SecureBoot/Actions/SecureBoot.ResetKeys",
    )
    .post(reset_keys),
];

const SCHEMA: &str = "#Bios.v1_2_1.Bios";
const RESET_KEYS: &str = "SecureBoot.ResetKeys";

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let path = format!("{}/Bios", context.system_path());
    let bios = context.machine.bios();
    let mut document = ResourceDocument::new(&path, SCHEMA, "Bios", "BIOS Configuration");
    let mut settings = json!({
        "@odata.type": "#Settings.v1_3_5.Settings",
        "SettingsObject": {"@odata.id": format!("{path}/Settings")},
        "SupportedApplyTimes": context.personality().bios.apply_times,
    });
    if let Some(fields) = settings.as_object_mut() {
        if let Some(at) = bios.applied_at() {
            fields.insert("Time".to_owned(), json!(at.to_string()));
            fields.insert("Messages".to_owned(), json!([{"MessageId": "Base.1.12.Success"}]));
        }
        // Clients that must send If-Match to the settings resource get its ETag here.
        if context.personality().http.if_match == IfMatchRule::Required {
            let etag = strong_etag(
                context.personality(),
                ResourceKind::BiosSettings,
                pending_settings(context),
            );
            fields.insert("ETag".to_owned(), etag.into());
        }
    }
    let attributes = attributes(context, |index, rule| bios.current_value(index, rule));
    document.extend(json!({
        "AttributeRegistry": context.personality().bios.registry,
        "Attributes": attributes,
        "@Redfish.Settings": settings,
        "Actions": {"#Bios.ResetBios": {"target": format!("{path}/Actions/Bios.ResetBios")}},
    }));
    Ok(document.into_value())
}

fn settings(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    Ok(pending_settings(context))
}

fn pending_settings(context: &RequestContext<'_>) -> Value {
    let bios = context.machine.bios();
    let path = format!("{}/Bios/Settings", context.system_path());
    let mut document = ResourceDocument::new(&path, SCHEMA, "Settings", "BIOS Pending Settings");
    let attributes = attributes(context, |index, rule| bios.pending_value(index, rule));
    document.extend(json!({
        "AttributeRegistry": context.personality().bios.registry,
        "Attributes": attributes,
    }));
    document.into_value()
}

fn change(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    context.reject_unknown_properties(&["Attributes"])?;
    let changes = match context.body.get("Attributes") {
        None => return Err(RedfishErrorResponse::property_missing("Attributes")),
        Some(Value::Object(changes)) => changes,
        Some(other) => return Err(RedfishErrorResponse::property_type("Attributes", other)),
    };
    context
        .machine
        .request_bios_changes(changes.iter().map(|(name, value)| (name.as_str(), value)))?;
    Ok(ChangeResponse::ok(pending_settings(context)))
}

fn reset(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    context.machine.request_bios_defaults();
    Ok(ChangeResponse::no_content())
}

fn attributes<'v>(
    context: &'v RequestContext<'_>,
    value: impl Fn(usize, &'v AttributeRule) -> &'v Value,
) -> Map<String, Value> {
    let rules = context.personality().bios.attributes.iter().enumerate();
    rules.map(|(index, rule)| (rule.name.clone(), value(index, rule).clone())).collect()
}

fn registry(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let rules = &context.personality().bios;
    let (name, file) = (context.param("registry"), context.param("file"));
    if name != rules.registry || file.strip_suffix(".json") != Some(name) {
        return Err(context.not_found());
    }
    let schema = "#AttributeRegistry.v1_3_6.AttributeRegistry";
    let mut document = ResourceDocument::new(context.path, schema, name, "BIOS Attribute Registry");
    let attributes: Vec<Value> = rules.attributes.iter().map(registry_entry).collect();
    document.extend(json!({
        "Language": "en",
        "OwningEntity": context.personality().manufacturer,
        "RegistryVersion": "1.0.0",
        "SupportedSystems": [{"ProductName": context.personality().model}],
        "RegistryEntries": {"Attributes": attributes, "Dependencies": [], "Menus": []},
    }));
    Ok(document.into_value())
}

fn registry_entry(rule: &AttributeRule) -> Value {
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

fn secure_boot(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let path = format!("{}/SecureBoot", context.system_path());
    let state = context.machine.secure_boot();
    let mode = match state.keys {
        SecureBootKeys::Default => "UserMode",
        SecureBootKeys::None => "SetupMode",
    };
    let schema = "#SecureBoot.v1_1_0.SecureBoot";
    let mut document = ResourceDocument::new(&path, schema, "SecureBoot", "UEFI Secure Boot");
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
    Ok(document.into_value())
}

fn set_secure_boot(
    context: &mut RequestContext<'_>,
) -> Result<ChangeResponse, RedfishErrorResponse> {
    context.reject_unknown_properties(&["SecureBootEnable"])?;
    let enabled = context
        .bool_property("SecureBootEnable")?
        .ok_or(RedfishErrorResponse::property_missing("SecureBootEnable"))?;
    context.machine.set_secure_boot(enabled)?;
    Ok(ChangeResponse::ok(secure_boot(context)?))
}

fn reset_keys(context: &mut RequestContext<'_>) -> Result<ChangeResponse, RedfishErrorResponse> {
    let keys = parameter(context, RESET_KEYS, "ResetKeysType", |name| match name {
        "ResetAllKeysToDefault" => Some(SecureBootKeys::Default),
        "DeleteAllKeys" | "DeletePK" => Some(SecureBootKeys::None),
        _ => None,
    })?;
    context.machine.set_secure_boot_keys(keys);
    Ok(ChangeResponse::no_content())
}
