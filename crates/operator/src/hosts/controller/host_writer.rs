// SPDX-License-Identifier: Apache-2.0
//! Writes of hosts and their companions: only what changed, and only to the version that was read.

use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use kube_resources::hosts::annotations::INSPECT;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::conditions::firmware;
use kube_resources::hosts::data_image::{DataImage, DataImageStatus};
use kube_resources::hosts::hardware_data::{HardwareData, HardwareDetails};
use kube_resources::hosts::host_firmware_components::HostFirmwareComponents;
use kube_resources::hosts::host_firmware_settings::HostFirmwareSettings;
use kube_resources::hosts::host_status::BareMetalHostStatus;
use kube_resources::hosts::names::{HARDWARE_DATA_FINALIZER, HOST_FINALIZER};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::super::decide::{HostEvent, HostPatch, SettingsVersion};
use super::merge_patch::{as_json, merge_patch};
use super::narrow::narrow_host;
use crate::events::ObjectEventRecorder;

/// Field manager of objects that the controller of hosts applies.
pub(super) const FIELD_MANAGER: &str = "ferrite-baremetalhost";

/// Writes hosts and their companions.
#[derive(Clone)]
pub(super) struct HostWriter {
    client: Client,
    events: ObjectEventRecorder,
}

impl HostWriter {
    pub(super) fn new(client: Client, events: ObjectEventRecorder) -> Self {
        Self { client, events }
    }

    pub(super) fn api<K>(&self, host: &BareMetalHost) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &host.namespace().unwrap_or_default())
    }

    /// Reads the host with all hardware details.
    pub(super) async fn full_host(
        &self,
        host: &BareMetalHost,
    ) -> Result<BareMetalHost, kube::Error> {
        self.api(host).get(&host.name_any()).await
    }

    /// Writes the difference between the status in the API, `before`, and that of the host. Returns
    /// the host as it is stored, or nothing if nothing changed.
    pub(super) async fn write_status(
        &self,
        host: &BareMetalHost,
        before: Option<&BareMetalHostStatus>,
    ) -> Result<Option<BareMetalHost>, kube::Error> {
        let before = before.map_or_else(|| json!({}), as_json);
        let after = host.status.as_ref().map_or_else(|| json!({}), as_json);
        let Some(status) = merge_patch(&before, &after) else { return Ok(None) };
        let patch = Patch::Merge(json!({
            "metadata": {"resourceVersion": host.metadata.resource_version}, "status": status,
        }));
        let api: Api<BareMetalHost> = self.api(host);
        let mut stored =
            api.patch_status(&host.name_any(), &PatchParams::default(), &patch).await?;
        narrow_host(&mut stored);
        Ok(Some(stored))
    }

    /// Changes the host outside its status, apart from the removal of the finalizer.
    pub(super) async fn write_metadata(
        &self,
        host: &BareMetalHost,
        patch: &HostPatch,
    ) -> Result<Option<BareMetalHost>, kube::Error> {
        let mut metadata = Map::new();
        if patch.adds_finalizer {
            let mut finalizers = host.finalizers().to_vec();
            finalizers.push(HOST_FINALIZER.to_owned());
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        let removed = patch.removed_annotations.iter();
        let mut annotations: Map<String, Value> =
            removed.map(|key| (key.clone(), Value::Null)).collect();
        if patch.requests_inspection {
            annotations.insert(INSPECT.to_owned(), json!(""));
        }
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), Value::Object(annotations));
        }
        let mut changes = Map::new();
        if let Some(architecture) = &patch.architecture {
            changes.insert("spec".to_owned(), json!({"architecture": architecture}));
        }
        if metadata.is_empty() && changes.is_empty() {
            return Ok(None);
        }
        metadata.insert("resourceVersion".to_owned(), json!(host.metadata.resource_version));
        changes.insert("metadata".to_owned(), Value::Object(metadata));
        self.patch_host(host, Value::Object(changes)).await.map(Some)
    }

    /// Removes the finalizer, which deletes the host.
    pub(super) async fn remove_finalizer(&self, host: &BareMetalHost) -> Result<(), kube::Error> {
        let left: Vec<&String> =
            host.finalizers().iter().filter(|name| *name != HOST_FINALIZER).collect();
        let patch = json!({"metadata": {
            "resourceVersion": host.metadata.resource_version, "finalizers": left,
        }});
        match self.patch_host(host, patch).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn patch_host(
        &self,
        host: &BareMetalHost,
        patch: Value,
    ) -> Result<BareMetalHost, kube::Error> {
        let api: Api<BareMetalHost> = self.api(host);
        let parameters = PatchParams::default();
        let mut stored = api.patch(&host.name_any(), &parameters, &Patch::Merge(patch)).await?;
        narrow_host(&mut stored);
        Ok(stored)
    }

    /// Replaces the content of `HardwareData`.
    pub(super) async fn write_hardware(
        &self,
        host: &BareMetalHost,
        hardware: &HardwareDetails,
    ) -> Result<(), kube::Error> {
        let object = json!({
            "apiVersion": HardwareData::api_version(&()),
            "kind": HardwareData::kind(&()),
            "metadata": {
                "name": host.name_any(),
                "namespace": host.namespace(),
                "finalizers": [HARDWARE_DATA_FINALIZER],
                "ownerReferences": Vec::from_iter(host.controller_owner_ref(&())),
            },
            "spec": {"hardware": hardware},
        });
        let api: Api<HardwareData> = self.api(host);
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        match api.patch(&host.name_any(), &parameters, &Patch::Apply(&object)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if matches!(status.code, 422 | 500) => {
                warn!(
                    namespace = host.namespace(),
                    name = host.name_any(),
                    error = status.message,
                    "HardwareData cannot be changed; replacing its content"
                );
                self.replace_hardware(host, &object["spec"], kube::Error::Api(status)).await
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the content of an object into which the API server cannot merge, because it does not match
    /// the schema. The object is not deleted: the change may have failed for another reason. Returns
    /// `cause` if there is no object.
    async fn replace_hardware(
        &self,
        host: &BareMetalHost,
        spec: &Value,
        cause: kube::Error,
    ) -> Result<(), kube::Error> {
        let name = host.name_any();
        let api: Api<HardwareData> = self.api(host);
        let Some(stored) = api.get_metadata_opt(&name).await? else { return Err(cause) };
        let mut metadata = stored.metadata;
        let finalizers = metadata.finalizers.get_or_insert_default();
        if !finalizers.iter().any(|finalizer| finalizer == HARDWARE_DATA_FINALIZER) {
            finalizers.push(HARDWARE_DATA_FINALIZER.to_owned());
        }
        let owners = metadata.owner_references.get_or_insert_default();
        let missing = host.controller_owner_ref(&());
        let missing = missing.filter(|owner| owners.iter().all(|other| other.uid != owner.uid));
        owners.extend(missing);
        let set = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        let patch = json!([
            set("/metadata/resourceVersion", json!(metadata.resource_version)),
            set("/metadata/finalizers", json!(metadata.finalizers)),
            set("/metadata/ownerReferences", json!(metadata.owner_references)),
            set("/spec", spec.clone()),
        ]);
        let path = format!("{}/{name}?fieldManager={FIELD_MANAGER}", api.resource_url());
        let request = http::Request::patch(path)
            .header(CONTENT_TYPE, "application/json-patch+json")
            .body(patch.to_string().into_bytes())
            .map_err(kube::Error::HttpError)?;
        self.client.request::<HardwareData>(request).await.map(|_| ())
    }

    /// Removes one of our finalizers from the object with the name of the host, if it exists.
    pub(super) async fn release_companion<K>(
        &self,
        host: &BareMetalHost,
        finalizer: &str,
    ) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = self.api(host);
        let name = host.name_any();
        let Some(object) = api.get_metadata_opt(&name).await? else { return Ok(()) };
        if !object.finalizers().iter().any(|name| name == finalizer) {
            return Ok(());
        }
        let left: Vec<&String> =
            object.finalizers().iter().filter(|name| *name != finalizer).collect();
        let patch = json!({"metadata": {
            "resourceVersion": object.metadata.resource_version, "finalizers": left,
        }});
        match api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Records that the requested firmware updates were started.
    pub(super) async fn write_started_updates(
        &self,
        components: &HostFirmwareComponents,
    ) -> Result<(), kube::Error> {
        let patch = json!({"status": {"updates": components.spec.updates}});
        self.write_companion_status::<HostFirmwareComponents>(&components.metadata, patch).await
    }

    /// Records that these BIOS settings were applied, unless their object was deleted. Other conditions are
    /// written by the controller of the settings.
    pub(super) async fn write_applied_settings(
        &self,
        host: &BareMetalHost,
        version: &SettingsVersion,
    ) -> Result<(), kube::Error> {
        let object = json!({
            "apiVersion": HostFirmwareSettings::api_version(&()),
            "kind": HostFirmwareSettings::kind(&()),
            "status": {"conditions": [{
                "type": firmware::SETTINGS_APPLIED, "status": "True",
                "reason": firmware::SETTINGS_SUCCESS, "message": "",
                "observedGeneration": version.generation,
                "lastTransitionTime": Time(Timestamp::now()),
            }]},
        });
        let api: Api<HostFirmwareSettings> = self.api(host);
        // The API server does not compare the UID in a change of the status.
        let stored = api.get_metadata_opt(&host.name_any()).await?;
        if stored.is_none_or(|stored| stored.metadata.uid != version.uid) {
            return Ok(());
        }
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        match api.patch_status(&host.name_any(), &parameters, &Patch::Apply(object)).await {
            Ok(_) => Ok(()),
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes the status of a data image.
    pub(super) async fn write_data_image(
        &self,
        image: &DataImage,
        status: &DataImageStatus,
    ) -> Result<(), kube::Error> {
        let before = image.status.as_ref().map_or_else(|| json!({}), as_json);
        match merge_patch(&before, &as_json(status)) {
            Some(status) => {
                let patch = json!({"status": status});
                self.write_companion_status::<DataImage>(&image.metadata, patch).await
            }
            None => Ok(()),
        }
    }

    async fn write_companion_status<K>(
        &self,
        metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
        patch: Value,
    ) -> Result<(), kube::Error>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let name = metadata.name.as_deref().unwrap_or_default();
        match api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => Ok(()),
            // It was deleted meanwhile.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reports events.
    pub(super) async fn publish(&self, host: &BareMetalHost, events: Vec<HostEvent>) {
        join_all(events.iter().map(|event| async move {
            match event.is_warning() {
                true => self.events.warning(host, event.reason, &event.message).await,
                false => self.events.normal(host, event.reason, &event.message).await,
            }
        }))
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    /// A writer whose API server has an object with UID 1. It responds to server-side apply with a status,
    /// and fails all other changes if `fails_always`. Methods and types of the requests are recorded.
    fn writer(apply_status: u16, fails_always: bool) -> (HostWriter, Arc<Mutex<Vec<String>>>) {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        let respond = move |request: Request<Body>| {
            let recorded = Arc::clone(&recorded);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let content_type = parts.headers.get(CONTENT_TYPE);
                let content_type = content_type.map_or("", |value| value.to_str().unwrap());
                let kind = content_type.trim_start_matches("application/");
                recorded.lock().unwrap().push(format!("{} {kind}", parts.method));
                let is_apply = kind == "apply-patch+yaml";
                let (code, reply) = match parts.method {
                    Method::GET => (
                        200,
                        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                            "metadata": {"name": "h", "namespace": "lab", "uid": "1",
                                "resourceVersion": "7", "finalizers": ["other"]}}),
                    ),
                    Method::PATCH if !is_apply && !fails_always => {
                        let operations: Value = serde_json::from_slice(&body).unwrap();
                        assert_eq!(operations[0]["value"], "7");
                        let finalizers = json!(["other", HARDWARE_DATA_FINALIZER]);
                        assert_eq!(operations[1]["value"], finalizers);
                        assert_eq!(operations[2]["value"][0]["uid"], "u");
                        assert_eq!(operations[3]["value"]["hardware"]["hostname"], "new");
                        (200, json!({"metadata": {"name": "h"}, "spec": {}}))
                    }
                    _ if apply_status == 200 => {
                        (200, json!({"metadata": {"name": "h"}, "spec": {"settings": {}}}))
                    }
                    _ => (
                        apply_status,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                            "code": apply_status, "message": "test", "reason": "test"}),
                    ),
                };
                let body = Body::from(serde_json::to_vec(&reply).unwrap());
                let response = Response::builder().status(code).body(body).unwrap();
                Ok::<_, std::convert::Infallible>(response)
            }
        };
        let client = Client::new(service_fn(respond), "lab");
        let events = ObjectEventRecorder::new(client.clone(), "test");
        (HostWriter::new(client, events), requests)
    }

    #[tokio::test]
    async fn hardware_data_that_cannot_be_merged_are_replaced_and_never_deleted() {
        let host: BareMetalHost = serde_json::from_value(json!({
            "metadata": {"name": "h", "namespace": "lab", "uid": "u"}, "spec": {"online": true},
        }))
        .unwrap();
        let hardware: HardwareDetails = serde_json::from_value(json!({"hostname": "new"})).unwrap();
        let replaced = ["PATCH apply-patch+yaml", "GET json", "PATCH json-patch+json"];
        for (status, fails_always, is_written, expected) in [
            (422, false, true, &replaced[..]),
            (500, false, true, &replaced),
            (500, true, false, &replaced),
            (403, false, false, &replaced[..1]),
        ] {
            let (writer, requests) = writer(status, fails_always);
            let written = writer.write_hardware(&host, &hardware).await;
            assert_eq!(written.is_ok(), is_written, "{status}: {written:?}");
            assert_eq!(*requests.lock().unwrap(), expected, "{status}");
        }
    }

    #[tokio::test]
    async fn applied_settings_are_not_recorded_in_an_object_that_was_created_again() {
        let host: BareMetalHost = serde_json::from_value(json!({
            "metadata": {"name": "h", "namespace": "lab", "uid": "u"}, "spec": {"online": true},
        }))
        .unwrap();
        for (uid, expected) in
            [("1", &["GET json", "PATCH apply-patch+yaml"][..]), ("2", &["GET json"])]
        {
            let (writer, requests) = writer(200, false);
            let version = SettingsVersion { uid: Some(uid.to_owned()), generation: 1 };
            writer.write_applied_settings(&host, &version).await.unwrap();
            assert_eq!(*requests.lock().unwrap(), expected, "{uid}");
        }
    }
}
