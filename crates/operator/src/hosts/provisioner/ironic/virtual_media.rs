// SPDX-License-Identifier: Apache-2.0
//! Data images as virtual media. The service accepts a request at once and performs it later, so that
//! a verb is done only when the BMC reports the result.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::super::outcome::{ProvisionerWaitReason, VerbOutcome, VerbStop};
use super::super::requests::ManagedHost;
use super::VIRTUAL_MEDIA_STATUS;
use super::calls::IronicCalls;
use super::node::NodeResponse;

/// Requests that the service accepted, by UUID of the node: the URL, or `None` for detachment.
#[derive(Default)]
pub(super) struct AcceptedMediaRequests {
    accepted: Mutex<HashMap<String, Option<String>>>,
}

impl AcceptedMediaRequests {
    /// Attaches an image, or detaches the attached one if `image` is `None`.
    pub(super) async fn change(
        &self,
        calls: &IronicCalls<'_>,
        host: &ManagedHost,
        image: Option<&str>,
    ) -> VerbOutcome<()> {
        let node = calls.node(host).await?;
        if calls.version < VIRTUAL_MEDIA_STATUS {
            return calls.request_media(&node, image).await;
        }
        if calls.has_media(&node).await? == image.is_some() {
            self.lock().remove(&node.uuid);
            return Ok(());
        }
        let accepted = self.lock().get(&node.uuid).cloned();
        if accepted.is_none_or(|accepted| accepted.as_deref() != image) {
            calls.request_media(&node, image).await?;
            self.lock().insert(node.uuid, image.map(str::to_owned));
            return Err(VerbStop::started(ProvisionerWaitReason::VirtualMedia));
        }
        match node.last_error {
            Some(error) if node.reservation.is_none() && !error.is_empty() => {
                // The next call sends the request again.
                self.lock().remove(&node.uuid);
                Err(calls.failed(error))
            }
            Some(_) | None => Err(VerbStop::running(ProvisionerWaitReason::VirtualMedia, None)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Option<String>>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IronicCalls<'_> {
    async fn has_media(&self, node: &NodeResponse) -> VerbOutcome<bool> {
        let media = self.get(&format!("{}/vmedia", node.path())).await?;
        let devices = media.as_array().or_else(|| media["vmedia"].as_array());
        let is_inserted = |device: &Value| device["inserted"] == json!(true);
        Ok(devices.is_some_and(|devices| devices.iter().any(is_inserted)))
    }

    async fn request_media(&self, node: &NodeResponse, image: Option<&str>) -> VerbOutcome<()> {
        let path = format!("{}/vmedia", node.path());
        match image {
            Some(url) => {
                let body = json!({"device_type": "cdrom", "image_url": url});
                self.post(&path, &body).await.map(|_| ())
            }
            None => {
                let path = format!("{path}?device_types=cdrom");
                self.delete_request(&path, None).await.map_err(|error| self.stop(error))
            }
        }
    }
}
