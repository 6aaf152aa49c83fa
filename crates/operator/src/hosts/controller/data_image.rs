// SPDX-License-Identifier: Apache-2.0
//! `DataImage`: finalizer and owner. The controller of hosts attaches and detaches the image.

use std::time::Duration;

use async_trait::async_trait;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use kube_resources::hosts::annotations::{DETACHED, PAUSED};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::data_image::DataImage;
use kube_resources::hosts::names::DATA_IMAGE_FINALIZER;
use serde_json::{Map, json};

use super::watching::ObjectCache;
use crate::object_key::ObjectKey;
use crate::reconcile_loop::Reconciler;

/// Controller of `DataImage`.
pub(super) struct DataImageReconciler {
    pub(super) client: Client,
    pub(super) hosts: ObjectCache<BareMetalHost>,
}

#[async_trait]
impl Reconciler for DataImageReconciler {
    type Kind = DataImage;
    type Failure = kube::Error;
    const NAME: &'static str = "dataimage";

    async fn reconcile(&self, image: &Self::Kind) -> Result<Option<Duration>, kube::Error> {
        let host = self.hosts.get(&ObjectKey::of(image));
        if host.as_ref().is_some_and(|host| host.annotation(PAUSED).is_some()) {
            return Ok(None);
        }
        let Some(changes) = metadata_changes(image, host.as_deref()) else { return Ok(None) };
        let api: Api<DataImage> =
            Api::namespaced(self.client.clone(), &image.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({"metadata": changes}));
        match api.patch(&image.name_any(), &PatchParams::default(), &patch).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Changes of owners and finalizers; `None` if there are none.
fn metadata_changes(
    image: &DataImage,
    host: Option<&BareMetalHost>,
) -> Option<Map<String, serde_json::Value>> {
    let mut changes = Map::new();
    let is_deleted = image.metadata.deletion_timestamp.is_some();
    let is_attached = image.status.as_ref().is_some_and(|status| {
        status.attached_image.as_ref().is_some_and(|image| !image.url.is_empty())
    });
    // A host that is gone, going or detached cannot detach the image any more.
    let is_reachable = host.is_some_and(|host| {
        host.metadata.deletion_timestamp.is_none() && host.annotation(DETACHED).is_none()
    });
    let is_held = image.finalizers().iter().any(|name| name == DATA_IMAGE_FINALIZER);
    if is_held && (host.is_none() || (is_deleted && !(is_attached && is_reachable))) {
        let left: Vec<&String> =
            image.finalizers().iter().filter(|name| *name != DATA_IMAGE_FINALIZER).collect();
        changes.insert("finalizers".to_owned(), json!(left));
    }
    if let Some(host) = host.filter(|_| !is_deleted) {
        if !is_held {
            let finalizers: Vec<&str> = image
                .finalizers()
                .iter()
                .map(String::as_str)
                .chain([DATA_IMAGE_FINALIZER])
                .collect();
            changes.insert("finalizers".to_owned(), json!(finalizers));
        }
        let mut owners = image.owner_references().to_vec();
        if let Some(owner) = host.owner_ref(&())
            && !owners.iter().any(|found| found.uid == owner.uid)
        {
            owners.push(owner);
            changes.insert("ownerReferences".to_owned(), json!(owners));
        }
    }
    if changes.is_empty() {
        return None;
    }
    changes.insert("resourceVersion".to_owned(), json!(image.metadata.resource_version));
    Some(changes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_attached_image_is_kept_until_it_is_detached() {
        let image = |held: bool, deleted: bool, attached: bool| -> DataImage {
            let mut image = json!({"metadata": {"name": "a", "resourceVersion": "1",
                "ownerReferences": [{"apiVersion": "x", "kind": "BareMetalHost", "name": "a",
                    "uid": "u"}],
                "finalizers": if held { json!([DATA_IMAGE_FINALIZER]) } else { json!([]) }},
                "spec": {"url": "http://a"}});
            if deleted {
                image["metadata"]["deletionTimestamp"] = json!("2026-11-17T10:00:00Z");
            }
            if attached {
                image["status"] = json!({"attachedImage": {"url": "http://a"}});
            }
            serde_json::from_value(image).unwrap()
        };
        let host = |annotations: Value| -> Option<BareMetalHost> {
            serde_json::from_value(
                json!({"metadata": {"name": "a", "uid": "u", "annotations": annotations}}),
            )
            .unwrap()
        };
        for (image, host, expected) in [
            (image(false, false, false), host(json!({})), Some(vec![DATA_IMAGE_FINALIZER])),
            (image(true, false, true), host(json!({})), None),
            (image(true, true, true), host(json!({})), None),
            (image(true, true, false), host(json!({})), Some(vec![])),
            (image(true, true, true), host(json!({DETACHED: ""})), Some(vec![])),
            (image(true, true, true), None, Some(vec![])),
            (image(true, false, false), None, Some(vec![])),
            (image(false, true, false), host(json!({})), None),
        ] {
            let changes = metadata_changes(&image, host.as_ref());
            let finalizers = changes.map(|changes| changes["finalizers"].clone());
            assert_eq!(finalizers, expected.map(|names| json!(names)), "{image:?} {host:?}");
        }
    }
}
