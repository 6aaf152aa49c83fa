// SPDX-License-Identifier: Apache-2.0
//! `HostFirmwareSettings`: current BIOS settings, their schema, and whether requests are valid.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use kube_resources::field_error::FieldError;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::conditions::firmware;
use kube_resources::hosts::firmware_schema::{
    BiosAttributeType, BiosSettingSchema, FirmwareSchemaSpec,
};
use kube_resources::hosts::host_firmware_settings::{
    FirmwareSchemaReference, HostFirmwareSettings, HostFirmwareSettingsStatus,
};
use kube_resources::hosts::validation::validate_firmware_settings;

use super::super::provisioner::{FirmwareSettingsReading, HostProvisioner, VerbStop};
use super::firmware_schemas::FirmwareSchemas;
use super::firmware_status::{RETRY, next_reading, set_conditions, write_status};
use super::registered_host::registered_host;
use super::watching::ObjectCache;
use crate::events::ObjectEventRecorder;
use crate::object_key::ObjectKey;
use crate::reconcile_loop::Reconciler;

/// Controller of `HostFirmwareSettings`.
pub(super) struct FirmwareSettingsReconciler {
    pub(super) client: Client,
    pub(super) hosts: ObjectCache<BareMetalHost>,
    pub(super) provisioner: Arc<dyn HostProvisioner>,
    pub(super) schemas: FirmwareSchemas,
    pub(super) events: ObjectEventRecorder,
}

#[async_trait]
impl Reconciler for FirmwareSettingsReconciler {
    type Kind = HostFirmwareSettings;
    type Failure = kube::Error;
    const NAME: &'static str = "hostfirmwaresettings";

    async fn reconcile(&self, cached: &Self::Kind) -> Result<Option<Duration>, kube::Error> {
        let Some((host, managed)) = registered_host(&self.hosts, &ObjectKey::of(cached)) else {
            return Ok(None);
        };
        let reading = match self.provisioner.firmware_settings(&managed, true).await {
            Ok(reading) => reading,
            Err(VerbStop::NeedsRegistration) => return Ok(None),
            Err(_) => return Ok(Some(RETRY)),
        };
        // The cache has no values.
        let api: Api<HostFirmwareSettings> =
            Api::namespaced(self.client.clone(), &managed.namespace);
        let name = cached.name_any();
        let Some(settings) = api.get_opt(&name).await? else { return Ok(None) };
        if settings.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let schema = schema_of(&reading);
        let schema_name = self.schemas.ensure(&settings, &host, &reading, &schema).await?;
        let (status, problems) =
            settings_status(&settings, &reading, &schema, schema_name, Timestamp::now());
        let statuses = (settings.status.as_ref(), &status);
        let subject = ("BIOS setting", &self.events);
        write_status(&api, &settings, statuses, &problems, subject).await?;
        Ok(Some(next_reading(&status.conditions)))
    }
}

/// Whether a setting is not a password, by its type or its name.
fn is_shown(name: &str, schema: &BTreeMap<String, BiosSettingSchema>) -> bool {
    let kind = schema.get(name).and_then(|setting| setting.attribute_type.as_ref());
    let name = name.to_ascii_lowercase();
    let is_named_password = ["password", "passwd", "passcode", "pwd"];
    kind != Some(&BiosAttributeType::Password)
        && !is_named_password.iter().any(|part| name.contains(part))
}

/// The schema without passwords, whose values are not shown either.
fn schema_of(reading: &FirmwareSettingsReading) -> FirmwareSchemaSpec {
    let mut schema = reading.schema.clone().unwrap_or_default();
    let passwords: Vec<String> =
        schema.keys().filter(|name| !is_shown(name, &schema)).cloned().collect();
    passwords.iter().for_each(|name| _ = schema.remove(name));
    FirmwareSchemaSpec { schema, ..FirmwareSchemaSpec::default() }
}

/// The status for what was read, and what is wrong with the request.
fn settings_status(
    settings: &HostFirmwareSettings,
    reading: &FirmwareSettingsReading,
    schema: &FirmwareSchemaSpec,
    schema_name: String,
    now: Timestamp,
) -> (HostFirmwareSettingsStatus, Vec<FieldError>) {
    let before = settings.status.clone().unwrap_or_default();
    let read_schema = reading.schema.clone().unwrap_or_default();
    let mut status = HostFirmwareSettingsStatus {
        schema: Some(FirmwareSchemaReference {
            name: schema_name,
            namespace: settings.namespace().unwrap_or_default(),
        }),
        settings: reading
            .settings
            .iter()
            .filter(|(name, _)| is_shown(name, &read_schema))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        last_updated: before.last_updated.clone(),
        conditions: before.conditions.clone(),
    };
    let is_changed = settings.spec.settings.iter().any(|(name, value)| {
        let text = match value {
            IntOrString::Int(number) => number.to_string(),
            IntOrString::String(text) => text.clone(),
        };
        status.settings.get(name) != Some(&text)
    });
    let problems = match is_changed {
        true => validate_firmware_settings(&settings.spec, schema),
        false => Vec::new(),
    };
    let (reason, message) = match problems.first() {
        None => (firmware::SETTINGS_SUCCESS, String::new()),
        Some(first) => {
            (firmware::SETTINGS_CONFIGURATION_ERROR, format!("Invalid BIOS setting: {first}"))
        }
    };
    set_conditions(
        &mut status.conditions,
        (is_changed, firmware::SETTINGS_SUCCESS),
        (problems.is_empty(), reason),
        message,
        settings.metadata.generation,
        now,
    );
    // A reading that shows a requested change is newer than the one that the change was based on.
    if status != before || is_changed {
        status.last_updated = Some(Time(now));
    }
    (status, problems)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status(requested: Value, before: Value) -> (Value, usize) {
        let settings: HostFirmwareSettings = serde_json::from_value(json!({
            "metadata": {"name": "h", "namespace": "n", "generation": 3},
            "spec": {"settings": requested}, "status": before,
        }))
        .unwrap();
        let reading = FirmwareSettingsReading {
            settings: serde_json::from_value(
                json!({"A": "Enabled", "N": "10", "AdminPassword": "x"}),
            )
            .unwrap(),
            schema: serde_json::from_value(json!({
                "A": {"attribute_type": "Enumeration", "allowable_values": ["Enabled", "Disabled"]},
                "N": {"attribute_type": "Integer", "lower_bound": 1, "upper_bound": 20},
                "AdminPassword": {"attribute_type": "Password"},
            }))
            .unwrap(),
        };
        let schema = schema_of(&reading);
        assert_eq!(schema.schema.len(), 2);
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let (status, problems) = settings_status(&settings, &reading, &schema, "s".into(), now);
        assert_eq!(status.settings.len(), 2, "passwords are not shown");
        (serde_json::to_value(status).unwrap(), problems.len())
    }

    #[test]
    fn requests_are_compared_and_validated() {
        for (requested, changed, valid, problem_count) in [
            (json!({}), "False", "True", 0),
            (json!({"A": "Enabled", "N": 10}), "False", "True", 0),
            (json!({"A": "Disabled"}), "True", "True", 0),
            (json!({"N": "11"}), "True", "True", 0),
            (json!({"N": 21, "A": "x", "Missing": "1"}), "True", "False", 3),
        ] {
            let (status, problems) = status(requested.clone(), Value::Null);
            assert_eq!(problems, problem_count, "{requested}");
            let conditions = status["conditions"].as_array().unwrap();
            assert_eq!(conditions[0]["status"], changed, "{requested}");
            assert_eq!(conditions[1]["status"], valid, "{requested}");
            assert_eq!(conditions[0]["observedGeneration"], 3);
        }
    }

    #[test]
    fn an_unchanged_status_is_not_written() {
        let (first, _) = status(json!({}), Value::Null);
        let (mut second, _) = status(json!({}), first.clone());
        assert_eq!(second, first);
        let mut old = first.clone();
        old["lastUpdated"] = json!("2020-01-01T00:00:00Z");
        (second, _) = status(json!({}), old.clone());
        assert_eq!(second, old);
        (second, _) = status(json!({"A": "Disabled"}), old.clone());
        assert_ne!(second["lastUpdated"], old["lastUpdated"]);
    }
}
