// SPDX-License-Identifier: Apache-2.0
//! Patches of objects of users: finalizers, status and single fields.
//!
//! Objects are never written as a whole, so fields of newer versions are not lost.

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::object_loop::Obstacle;
use crate::owned_objects::is_not_found;

/// Patches one object.
#[derive(Clone)]
pub(crate) struct ObjectPatches {
    api: Api<DynamicObject>,
    name: String,
}

impl ObjectPatches {
    pub(crate) fn new(client: Client, resource: &ApiResource, object: &DynamicObject) -> Self {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = object.metadata.name.clone().unwrap_or_default();
        Self { api: Api::namespaced_with(client, namespace, resource), name }
    }

    /// Changes fields unless the object was changed since it was read.
    pub(crate) async fn patch(
        &self,
        object: &DynamicObject,
        mut fields: Value,
    ) -> Result<DynamicObject, Obstacle> {
        fields["metadata"]["resourceVersion"] = json!(object.metadata.resource_version);
        let patch = Patch::Merge(&fields);
        let patched = self.api.patch(&self.name, &PatchParams::default(), &patch).await;
        patched.map_err(|error| Obstacle::request("cannot change the object", &error))
    }

    /// Adds a finalizer if it is missing.
    pub(crate) async fn ensure_finalizer(
        &self,
        object: DynamicObject,
        finalizer: &str,
    ) -> Result<DynamicObject, Obstacle> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        if finalizers.iter().any(|existing| existing == finalizer) {
            return Ok(object);
        }
        finalizers.push(finalizer.to_owned());
        self.patch(&object, json!({"metadata": {"finalizers": finalizers}})).await
    }

    /// Removes a finalizer. The object may be gone afterwards.
    pub(crate) async fn remove_finalizer(
        &self,
        object: &DynamicObject,
        finalizer: &str,
    ) -> Result<(), Obstacle> {
        let mut finalizers = object.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|existing| existing != finalizer);
        self.patch(object, json!({"metadata": {"finalizers": finalizers}})).await.map(|_| ())
    }

    /// Writes the status. There is one writer, so it needs no precondition. An object that was deleted
    /// meanwhile is not an error.
    pub(crate) async fn patch_status(&self, status: &Value) -> Result<(), Obstacle> {
        let patch = Patch::Merge(json!({"status": status}));
        match self.api.patch_status(&self.name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(Obstacle::request("cannot write the status", &error)),
        }
    }
}
