// SPDX-License-Identifier: Apache-2.0
//! `PreprovisioningImage`: offers the configured ramdisks. Nothing is built.
//!
//! Controllers of other projects build images with the network data of a host; then this one is not
//! started.

use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kube_resources::hosts::conditions::{
    ConditionStatus, ConditionUpdate, preprovisioning_image as conditions, set_condition,
};
use kube_resources::hosts::ironic_payloads::deploy_ramdisk::DefaultRamdisk;
use kube_resources::hosts::names::PREPROVISIONING_IMAGE_FINALIZER;
use kube_resources::hosts::preprovisioning_image::{
    NetworkDataVersion, PreprovisioningImage, PreprovisioningImageStatus, RamdiskFormat,
};
use serde_json::json;

use super::merge_patch::{as_json, merge_patch};
use crate::reconcile_loop::Reconciler;

/// When a missing Secret is looked for again.
const SECRET_WAIT: Duration = Duration::from_secs(10);

/// Controller of `PreprovisioningImage`.
pub(super) struct RamdiskImageReconciler {
    pub(super) client: Client,
    pub(super) ramdisk: DefaultRamdisk,
}

#[async_trait]
impl Reconciler for RamdiskImageReconciler {
    type Kind = PreprovisioningImage;
    type Failure = kube::Error;
    const NAME: &'static str = "preprovisioningimage";

    async fn reconcile(&self, image: &Self::Kind) -> Result<Option<Duration>, kube::Error> {
        let namespace = image.namespace().unwrap_or_default();
        let api: Api<PreprovisioningImage> = Api::namespaced(self.client.clone(), &namespace);
        let is_held = image.finalizers().iter().any(|it| it == PREPROVISIONING_IMAGE_FINALIZER);
        let is_deleted = image.metadata.deletion_timestamp.is_some();
        if is_held == is_deleted {
            let mut finalizers = image.finalizers().to_vec();
            match is_held {
                true => finalizers.retain(|name| name != PREPROVISIONING_IMAGE_FINALIZER),
                false => finalizers.push(PREPROVISIONING_IMAGE_FINALIZER.to_owned()),
            }
            let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers,
                "resourceVersion": image.metadata.resource_version}}));
            // The change leads to the next look.
            return match api.patch(&image.name_any(), &PatchParams::default(), &patch).await {
                Ok(_) => Ok(None),
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
                Err(error) => Err(error),
            };
        }
        if is_deleted {
            return Ok(None);
        }
        let network_data = match &image.spec.network_data_name {
            None => Some(NetworkDataVersion::default()),
            Some(name) => {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
                let secret = secrets.get_metadata_opt(name).await?;
                secret.map(|secret| NetworkDataVersion {
                    name: Some(name.clone()),
                    version: secret.resource_version(),
                })
            }
        };
        let is_missing = network_data.is_none();
        let status = image_status(image, &self.ramdisk, network_data, Timestamp::now());
        let before = image.status.as_ref().map_or_else(|| json!({}), as_json);
        if let Some(patch) = merge_patch(&before, &as_json(&status)) {
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": image.metadata.resource_version},
                "status": patch,
            }));
            api.patch_status(&image.name_any(), &PatchParams::default(), &patch).await?;
        }
        Ok(is_missing.then_some(SECRET_WAIT))
    }
}

/// The status of an image. `network_data` is `None` if its Secret does not exist.
fn image_status(
    image: &PreprovisioningImage,
    ramdisk: &DefaultRamdisk,
    network_data: Option<NetworkDataVersion>,
    now: Timestamp,
) -> PreprovisioningImageStatus {
    let configured = ramdisk.for_architecture(image.spec.architecture.as_deref());
    let found = image.spec.accept_formats.iter().find_map(|format| match format {
        RamdiskFormat::Iso => configured.iso.clone().map(|url| (format, url, None)),
        RamdiskFormat::Initrd => {
            configured.ramdisk.clone().map(|url| (format, url, configured.kernel.clone()))
        }
        RamdiskFormat::Other(_) => None,
    });
    let mut status = image.status.clone().unwrap_or_default();
    let (ready, reason, message) = match (found, network_data) {
        (None, _) => {
            status.image_url = None;
            let message = "No acceptable image format is configured for this architecture";
            (false, conditions::CONFIGURATION_ERROR, message)
        }
        (Some(_), None) => {
            status.image_url = None;
            (false, conditions::MISSING_NETWORK_DATA, "NetworkData secret not found")
        }
        (Some((format, url, kernel)), Some(network_data)) => {
            status = PreprovisioningImageStatus {
                image_url: Some(url),
                kernel_url: kernel,
                format: Some(format.clone()),
                architecture: image.spec.architecture.clone(),
                network_data,
                extra_kernel_params: None,
                conditions: status.conditions,
            };
            (true, conditions::SUCCESS, "Configured image")
        }
    };
    let holds = |holds| if holds { ConditionStatus::True } else { ConditionStatus::False };
    for (type_, condition, message) in [
        (conditions::READY, holds(ready), if ready { message } else { "" }),
        (conditions::ERROR, holds(!ready), if ready { "" } else { message }),
    ] {
        let update = ConditionUpdate {
            type_,
            status: condition,
            reason,
            message: message.to_owned(),
            observed_generation: image.metadata.generation,
        };
        set_condition(&mut status.conditions, update, &Time(now));
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_first_format_that_is_configured_is_offered() {
        let configured = |iso: bool, initrd: bool| DefaultRamdisk {
            iso: iso.then(|| "http://i".to_owned()),
            kernel: initrd.then(|| "http://k".to_owned()),
            ramdisk: initrd.then(|| "http://r".to_owned()),
            is_built_per_host: true,
            ..DefaultRamdisk::default()
        };
        for (formats, ramdisk, has_network, expected) in [
            (json!(["iso", "initrd"]), configured(true, true), true, "http://i True ImageSuccess"),
            (json!(["iso", "initrd"]), configured(false, true), true, "http://r True ImageSuccess"),
            (json!(["initrd"]), configured(true, false), true, " False ConfigurationError"),
            (json!([]), configured(true, true), true, " False ConfigurationError"),
            (json!(["iso"]), configured(true, true), false, " False MissingNetworkData"),
        ] {
            let image: PreprovisioningImage = serde_json::from_value(json!({
                "metadata": {"generation": 4},
                "spec": {"acceptFormats": formats, "architecture": "x86_64"},
                "status": {"imageUrl": "http://old", "format": "iso"},
            }))
            .unwrap();
            let network_data = has_network.then(NetworkDataVersion::default);
            let now = Timestamp::from_second(1_800_000_000).unwrap();
            let status = image_status(&image, &ramdisk, network_data, now);
            let written: Value = serde_json::to_value(&status).unwrap();
            let ready = &written["conditions"][0];
            let actual = format!(
                "{} {} {}",
                written["imageUrl"].as_str().unwrap_or_default(),
                ready["status"].as_str().unwrap(),
                ready["reason"].as_str().unwrap()
            );
            assert_eq!(actual, expected, "{formats}");
            assert_eq!(ready["observedGeneration"], 4);
        }
    }
}
