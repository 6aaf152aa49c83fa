// SPDX-License-Identifier: Apache-2.0
//! `FirmwareSchema`: one object per distinct set of BIOS settings in a namespace.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::firmware_schema::{FirmwareSchema, FirmwareSchemaSpec};
use kube_resources::hosts::hardware_data::HardwareData;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::ironic_payloads::firmware::firmware_schema_name;
use serde_json::json;
use tokio::sync::Mutex;

use super::super::provisioner::FirmwareSettingsReading;
use crate::object_key::ObjectKey;

/// Owners that a schema gets. One is enough to find unused schemas, and an object with thousands would
/// be too large. If all of these hosts are deleted, the next host with this schema creates it again.
const MAX_OWNERS: usize = 50;

/// How long a schema is assumed to exist after it was seen.
const SEEN_LIMIT: Duration = Duration::from_secs(600);

/// Creates schemas and records who uses them.
#[derive(Clone)]
pub(super) struct FirmwareSchemas {
    client: Client,
    /// Schemas that have enough owners, so that thousands of equal hosts need no requests.
    complete: Arc<Mutex<BTreeMap<ObjectKey, Instant>>>,
}

impl FirmwareSchemas {
    pub(super) fn new(client: Client) -> Self {
        Self { client, complete: Arc::default() }
    }

    /// Ensures that the schema of the settings exists, and returns its name.
    pub(super) async fn ensure(
        &self,
        settings: &HostFirmwareSettings,
        host: &BareMetalHost,
        reading: &FirmwareSettingsReading,
        schema: &FirmwareSchemaSpec,
    ) -> Result<String, kube::Error> {
        let name = firmware_schema_name(&reading.schema.clone().unwrap_or_default());
        let namespace = settings.namespace().unwrap_or_default();
        let key = ObjectKey::new(&namespace, &name);
        // One at a time: many equal hosts are registered together.
        let mut complete = self.complete.lock().await;
        if complete.get(&key).is_some_and(|seen| seen.elapsed() < SEEN_LIMIT) {
            return Ok(name);
        }
        let api: Api<FirmwareSchema> = Api::namespaced(self.client.clone(), &namespace);
        let owner = settings.owner_ref(&());
        let owner_count = match api.get_opt(&name).await? {
            Some(existing) => {
                let mut owners = existing.owner_references().to_vec();
                let is_owner =
                    owners.iter().any(|found| Some(&found.uid) == settings.metadata.uid.as_ref());
                if !is_owner && owners.len() < MAX_OWNERS {
                    owners.extend(owner);
                    let patch = json!({"metadata": {"ownerReferences": owners,
                        "resourceVersion": existing.metadata.resource_version}});
                    api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                }
                owners.len()
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(name.clone()),
                    namespace: Some(namespace.clone()),
                    owner_references: owner.map(|owner| vec![owner]),
                    ..ObjectMeta::default()
                };
                let spec = self.with_model(host, schema).await?;
                api.create(&PostParams::default(), &FirmwareSchema { metadata, spec }).await?;
                1
            }
        };
        if owner_count >= MAX_OWNERS {
            complete.insert(key, Instant::now());
        }
        Ok(name)
    }

    /// Adds vendor and model, if they are known.
    async fn with_model(
        &self,
        host: &BareMetalHost,
        schema: &FirmwareSchemaSpec,
    ) -> Result<FirmwareSchemaSpec, kube::Error> {
        let namespace = host.namespace().unwrap_or_default();
        let api: Api<HardwareData> = Api::namespaced(self.client.clone(), &namespace);
        let hardware = api.get_opt(&host.name_any()).await?.and_then(|data| data.spec.hardware);
        let vendor = hardware.map(|hardware| hardware.system_vendor).unwrap_or_default();
        Ok(FirmwareSchemaSpec {
            hardware_vendor: vendor.manufacturer,
            hardware_model: vendor.product_name,
            schema: schema.schema.clone(),
        })
    }
}
