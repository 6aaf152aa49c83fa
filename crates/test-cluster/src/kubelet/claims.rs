// SPDX-License-Identifier: Apache-2.0
//! Creates volumes for claims: folders of the cluster, in the default storage class.

use std::fs;
use std::path::Path;

use anyhow::Result;
use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt as _};
use serde_json::json;

use super::contents::events;

const CLASS: &str = "folders";
const PROVISIONER: &str = "test-cluster/folders";

/// Creates the default storage class.
pub(super) async fn create_class(client: &Client) -> Result<()> {
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": {
            "name": CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }))?;
    Api::all(client.clone()).create(&PostParams::default(), &class).await?;
    Ok(())
}

/// Creates a volume for each claim, for ever.
pub(super) async fn provide(client: Client, folder: std::path::PathBuf) {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client);
    let mut stream = Box::pin(events(claims));
    while let Some(event) = stream.next().await {
        if let Ok(Event::Apply(claim) | Event::InitApply(claim)) = event
            && let Some(volume) = volume_for(&claim, &folder)
        {
            // It may exist already. After a lost connection the watch starts again.
            let _exists = volumes.create(&PostParams::default(), &volume).await;
        }
    }
}

/// Removes volumes whose claims are deleted, for ever.
pub(super) async fn reclaim(client: Client) {
    let volumes: Api<PersistentVolume> = Api::all(client);
    let mut stream = Box::pin(events(volumes.clone()));
    while let Some(event) = stream.next().await {
        let Ok(Event::Apply(volume) | Event::InitApply(volume)) = event else { continue };
        let is_released =
            volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
        let spec = volume.spec.clone().unwrap_or_default();
        if is_released && spec.storage_class_name.as_deref() == Some(CLASS) {
            if let Some(path) = spec.host_path {
                let _removed_with_the_cluster = fs::remove_dir_all(path.path);
            }
            let _retried = volumes.delete(&volume.name_any(), &DeleteParams::default()).await;
        }
    }
}

fn volume_for(claim: &PersistentVolumeClaim, folder: &Path) -> Option<PersistentVolume> {
    let spec = claim.spec.clone()?;
    let is_ours = spec.storage_class_name.as_deref() == Some(CLASS) && spec.volume_name.is_none();
    if !is_ours || claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let name = format!("pvc-{}", claim.uid()?);
    let size = spec.resources?.requests?.get("storage")?.0.clone();
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER},
        },
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": folder.join(&name)},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(),
                "name": claim.name_any(),
                "uid": claim.uid(),
            },
        },
    }))
    .ok()
}
