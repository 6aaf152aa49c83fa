// SPDX-License-Identifier: Apache-2.0
//! `HostFirmwareComponents`: installed firmware, and whether requested updates are valid.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use kube_resources::field_error::FieldError;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::conditions::firmware;
use kube_resources::hosts::host_firmware_components::{
    FirmwareComponentVersion, HostFirmwareComponents, HostFirmwareComponentsStatus,
};
use kube_resources::hosts::validation::validate_firmware_components;

use super::super::provisioner::{HostProvisioner, VerbStop};
use super::firmware_status::{RETRY, next_reading, set_conditions, write_status};
use super::registered_host::registered_host;
use super::watching::ObjectCache;
use crate::events::ObjectEventRecorder;
use crate::object_key::ObjectKey;
use crate::reconcile_loop::Reconciler;

/// Controller of `HostFirmwareComponents`.
pub(super) struct FirmwareComponentsReconciler {
    pub(super) client: Client,
    pub(super) hosts: ObjectCache<BareMetalHost>,
    pub(super) provisioner: Arc<dyn HostProvisioner>,
    pub(super) events: ObjectEventRecorder,
}

#[async_trait]
impl Reconciler for FirmwareComponentsReconciler {
    type Kind = HostFirmwareComponents;
    type Failure = kube::Error;
    const NAME: &'static str = "hostfirmwarecomponents";

    async fn reconcile(&self, cached: &Self::Kind) -> Result<Option<Duration>, kube::Error> {
        let Some((_, managed)) = registered_host(&self.hosts, &ObjectKey::of(cached)) else {
            return Ok(None);
        };
        let versions = match self.provisioner.firmware_components(&managed).await {
            Ok(versions) => versions,
            Err(VerbStop::NeedsRegistration) => return Ok(None),
            Err(_) => return Ok(Some(RETRY)),
        };
        // The cache has no versions.
        let api: Api<HostFirmwareComponents> =
            Api::namespaced(self.client.clone(), &managed.namespace);
        let name = cached.name_any();
        let Some(components) = api.get_opt(&name).await? else { return Ok(None) };
        if components.metadata.deletion_timestamp.is_some() {
            return Ok(None);
        }
        let (status, problems) = components_status(&components, versions, Timestamp::now());
        let statuses = (components.status.as_ref(), &status);
        let subject = ("Firmware Components", &self.events);
        write_status(&api, &components, statuses, &problems, subject).await?;
        Ok(Some(next_reading(&status.conditions)))
    }
}

/// The status for what was read, and what is wrong with the request.
fn components_status(
    components: &HostFirmwareComponents,
    versions: Vec<FirmwareComponentVersion>,
    now: Timestamp,
) -> (HostFirmwareComponentsStatus, Vec<FieldError>) {
    let before = components.status.clone().unwrap_or_default();
    let mut status = HostFirmwareComponentsStatus { components: versions, ..before.clone() };
    let requested = &components.spec.updates;
    let is_changed = !requested.is_empty() && *requested != before.updates;
    let mut problems = match is_changed {
        true => validate_firmware_components(components),
        false => Vec::new(),
    };
    if is_changed && problems.is_empty() && !status.components.is_empty() {
        let is_installed =
            |name: &str| status.components.iter().any(|found| found.component == name);
        let missing = requested.iter().enumerate().filter(|(_, it)| !is_installed(&it.component));
        problems.extend(missing.map(|(index, update)| {
            let text = format!("{:?} is not a component of this host", update.component);
            FieldError::new(format!("spec.updates[{index}].component"), text)
        }));
    }
    let (reason, message) = match problems.first() {
        None => (firmware::COMPONENTS_OK, String::new()),
        Some(first) => (firmware::COMPONENTS_INVALID, first.to_string()),
    };
    set_conditions(
        &mut status.conditions,
        (is_changed && problems.is_empty(), reason),
        (problems.is_empty(), reason),
        message,
        components.metadata.generation,
        now,
    );
    if status != before {
        status.last_updated = Some(Time(now));
    }
    (status, problems)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn requests_are_compared_and_validated() {
        let update = |component: &str| json!({"component": component, "url": "http://a/firmware"});
        for (requested, applied, changed, valid) in [
            (json!([]), json!([]), "False", "True"),
            (json!([update("bmc")]), json!([]), "True", "True"),
            (json!([update("bmc")]), json!([update("bmc")]), "False", "True"),
            (json!([]), json!([update("bmc")]), "False", "True"),
            (json!([update("psu")]), json!([]), "False", "False"),
            (json!([update("nic:missing")]), json!([]), "False", "False"),
        ] {
            let components: HostFirmwareComponents = serde_json::from_value(json!({
                "metadata": {"generation": 2}, "spec": {"updates": requested},
                "status": {"updates": applied},
            }))
            .unwrap();
            let versions = serde_json::from_value(json!([
                {"component": "bmc", "initialVersion": "1"},
            ]))
            .unwrap();
            let now = Timestamp::from_second(1_800_000_000).unwrap();
            let (status, _) = components_status(&components, versions, now);
            let shown = |index: usize| -> &str { &status.conditions[index].status };
            assert_eq!((shown(0), shown(1)), (changed, valid), "{requested} {applied}");
            assert_eq!(status.conditions[0].observed_generation, Some(2));
            let written = serde_json::to_value(&status).unwrap();
            let stored = if applied == json!([]) { Value::Null } else { applied };
            assert_eq!(written["updates"], stored, "what was applied stays");
        }
    }
}
