// SPDX-License-Identifier: Apache-2.0
//! Objects that a controller creates for an object of its own: server-side apply, ownership, deletion.
//!
//! An object with the right name that is not owned is never changed or deleted.

mod difference;
mod identity;
mod takeover;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Client, Resource as _};
use kube_resources::ironic::names::APPLIED_HASH;
use serde_json::{Value, json};
use thiserror::Error;

pub use identity::ObjectIdentity;

use crate::ironic::facts::content_hash;
use difference::is_contained;
use takeover::takeover_patch;

/// Why an object cannot be written, read or deleted.
#[derive(Debug, Error)]
pub enum OwnedObjectError {
    /// An object with this name exists and is not owned.
    #[error(
        "{kind} {name} already exists and does not belong to this {owner}; delete or rename it, or \
         use another name for the {owner}"
    )]
    Foreign {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// Kind of the object that needs it.
        owner: &'static str,
    },
    /// The API server rejects the object.
    #[error("the API server rejects {kind} {name}: {message}")]
    Rejected {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// Text of the API server.
        message: String,
    },
    /// The request failed for a reason that may pass.
    #[error("cannot {verb} {kind} {name}: {}", api_error_text(source))]
    Request {
        /// What was requested.
        verb: &'static str,
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// An object has no name or kind.
    #[error("an object has no name or kind")]
    Incomplete,
}

/// The text of an error of the API server for a person, without the notation of the client library.
#[must_use]
pub fn api_error_text(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error
        && !status.message.is_empty()
    {
        return status.message.clone();
    }
    error_chain::error_chain(error)
}

/// An error and its causes like [`error_chain::error_chain`], with the message of the API server instead of
/// the notation of the client library.
pub(crate) fn api_error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut parts = Vec::new();
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(error) = current.downcast_ref::<kube::Error>() {
            parts.push(api_error_text(error));
            break;
        }
        next = current.source();
        let text = current.to_string();
        // Some errors of the library end with the text of their cause.
        let own = next.and_then(|cause| text.strip_suffix(&cause.to_string()));
        let own = own.map_or(text.as_str(), |own| own.trim_end_matches([':', ' ']));
        if !own.is_empty() {
            parts.push(own.to_owned());
        }
    }
    parts.join(": ")
}

/// Whether an object or its kind does not exist. The response to requests for unknown kinds is a
/// plain text, so only the code is compared.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether an object exists no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeletionState {
    /// It does not exist, or is not owned.
    Gone,
    /// It is being deleted.
    Deleting,
}

/// A desired object and how it differs from the stored one.
pub(crate) struct ComparedObject {
    identity: ObjectIdentity,
    desired: Value,
    state: ComparedState,
}

enum ComparedState {
    Equal(Value),
    /// With the patch that comes first if another operator wrote the object.
    Different(Option<Value>),
    Missing,
}

impl ComparedObject {
    /// Whether the stored object is as desired.
    pub(crate) fn is_equal(&self) -> bool {
        matches!(self.state, ComparedState::Equal(_))
    }
}

/// The objects of one owner in its namespace.
#[derive(Clone)]
pub(crate) struct OwnedObjects {
    client: Client,
    namespace: String,
    owner_kind: &'static str,
    owner_uid: String,
    manager: &'static str,
}

impl OwnedObjects {
    /// `manager` is the field manager of server-side apply.
    pub(crate) fn new(
        client: Client,
        owner: &DynamicObject,
        owner_kind: &'static str,
        manager: &'static str,
    ) -> Self {
        let metadata = owner.meta();
        Self {
            client,
            namespace: metadata.namespace.clone().unwrap_or_default(),
            owner_kind,
            owner_uid: metadata.uid.clone().unwrap_or_default(),
            manager,
        }
    }

    fn api(&self, identity: &ObjectIdentity) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &identity.resource())
    }

    fn is_owned(&self, object: &DynamicObject) -> bool {
        let owners: &[OwnerReference] = object.meta().owner_references.as_deref().unwrap_or(&[]);
        owners.iter().any(|owner| owner.uid == self.owner_uid)
    }

    /// Reads an object that the owner has; `None` if it does not exist.
    pub(crate) async fn read(
        &self,
        identity: &ObjectIdentity,
    ) -> Result<Option<Value>, OwnedObjectError> {
        match self.get(identity).await? {
            Some(object) if !self.is_owned(&object) => Err(self.foreign(identity)),
            object => object.map(|object| as_value(object, identity)).transpose(),
        }
    }

    async fn get(
        &self,
        identity: &ObjectIdentity,
    ) -> Result<Option<DynamicObject>, OwnedObjectError> {
        let found = self.api(identity).get_opt(&identity.name).await;
        found.map_err(|source| failed("read", identity, source))
    }

    /// Creates or changes an object and returns it as stored. Sends nothing if it is as desired.
    pub(crate) async fn apply(&self, desired: &Value) -> Result<Value, OwnedObjectError> {
        self.apply_compared(self.compare(desired).await?).await
    }

    /// Reads an object and compares it with the desired one.
    pub(crate) async fn compare(
        &self,
        desired: &Value,
    ) -> Result<ComparedObject, OwnedObjectError> {
        let identity = ObjectIdentity::of(desired).ok_or(OwnedObjectError::Incomplete)?;
        let mut desired = desired.clone();
        let hash = content_hash(&[("object", desired.to_string().as_bytes())]);
        desired["metadata"]["annotations"][APPLIED_HASH] = json!(hash);
        let state = match self.get(&identity).await? {
            None => ComparedState::Missing,
            Some(stored) if !self.is_owned(&stored) => return Err(self.foreign(&identity)),
            Some(stored) => {
                let uid = stored.meta().uid.clone();
                let takeover = takeover_patch(&stored, &identity.api_version, self.manager);
                let stored = as_value(stored, &identity)?;
                if is_contained(&desired, &stored) {
                    ComparedState::Equal(stored)
                } else {
                    // Not an object that replaces it meanwhile.
                    desired["metadata"]["uid"] = json!(uid);
                    ComparedState::Different(takeover)
                }
            }
        };
        Ok(ComparedObject { identity, desired, state })
    }

    /// Creates or changes an object and returns it as stored.
    pub(crate) async fn apply_compared(
        &self,
        compared: ComparedObject,
    ) -> Result<Value, OwnedObjectError> {
        let ComparedObject { identity, desired, state } = compared;
        let params = PatchParams::apply(self.manager);
        let params = match state {
            ComparedState::Equal(stored) => return Ok(stored),
            ComparedState::Different(takeover) => {
                if let Some(patch) = takeover {
                    let patch = Patch::Merge(patch);
                    let params = PatchParams::default();
                    let changed = self.api(&identity).patch(&identity.name, &params, &patch).await;
                    changed.map_err(|source| failed("take over", &identity, source))?;
                }
                params.force()
            }
            // Not forced: if another client created the object since, this is a conflict.
            ComparedState::Missing => params,
        };
        let patch = Patch::Apply(&desired);
        let applied = self.api(&identity).patch(&identity.name, &params, &patch).await;
        as_value(applied.map_err(|source| failed("apply", &identity, source))?, &identity)
    }

    /// Creates an object if it does not exist, and returns it as stored. It is never changed.
    pub(crate) async fn create(&self, desired: &Value) -> Result<Value, OwnedObjectError> {
        let identity = ObjectIdentity::of(desired).ok_or(OwnedObjectError::Incomplete)?;
        if let Some(stored) = self.read(&identity).await? {
            return Ok(stored);
        }
        let object: DynamicObject =
            serde_json::from_value(desired.clone()).map_err(|_| OwnedObjectError::Incomplete)?;
        let params =
            PostParams { field_manager: Some(self.manager.to_owned()), ..PostParams::default() };
        let created = self.api(&identity).create(&params, &object).await;
        as_value(created.map_err(|source| failed("create", &identity, source))?, &identity)
    }

    /// Deletes an object that the owner has, after the objects that it has itself.
    pub(crate) async fn delete(
        &self,
        identity: &ObjectIdentity,
    ) -> Result<DeletionState, OwnedObjectError> {
        let Some(object) = self.get(identity).await? else { return Ok(DeletionState::Gone) };
        if !self.is_owned(&object) {
            return Ok(DeletionState::Gone);
        }
        if object.meta().deletion_timestamp.is_some() {
            return Ok(DeletionState::Deleting);
        }
        let params = DeleteParams::foreground().preconditions(Preconditions {
            uid: object.meta().uid.clone(),
            resource_version: None,
        });
        match self.api(identity).delete(&identity.name, &params).await {
            Ok(_) => Ok(DeletionState::Deleting),
            Err(error) if is_not_found(&error) => Ok(DeletionState::Gone),
            Err(source) => Err(failed("delete", identity, source)),
        }
    }

    /// Identities of the objects of a kind with a label that the owner has.
    pub(crate) async fn list(
        &self,
        api_version: &str,
        kind: &str,
        label: &str,
    ) -> Result<Vec<ObjectIdentity>, OwnedObjectError> {
        let of_kind = ObjectIdentity::new(api_version, kind, "");
        let params = ListParams::default().labels(label);
        let found = match self.api(&of_kind).list_metadata(&params).await {
            // The cluster has no such kind.
            Err(error) if is_not_found(&error) => return Ok(Vec::new()),
            found => found.map_err(|source| failed("list", &of_kind, source))?,
        };
        let owned = found.items.into_iter().filter_map(|object| {
            let owners = object.metadata.owner_references.unwrap_or_default();
            let is_owned = owners.iter().any(|owner| owner.uid == self.owner_uid);
            let name = object.metadata.name.filter(|_| is_owned)?;
            Some(ObjectIdentity::new(api_version, kind, name))
        });
        Ok(owned.collect())
    }

    fn foreign(&self, identity: &ObjectIdentity) -> OwnedObjectError {
        OwnedObjectError::Foreign {
            kind: identity.kind.clone(),
            name: identity.name.clone(),
            owner: self.owner_kind,
        }
    }
}

fn as_value(object: DynamicObject, identity: &ObjectIdentity) -> Result<Value, OwnedObjectError> {
    let mut value = serde_json::to_value(object).map_err(|_| OwnedObjectError::Incomplete)?;
    value["apiVersion"] = json!(identity.api_version);
    value["kind"] = json!(identity.kind);
    Ok(value)
}

/// A rejected object stays rejected until something changes; other failures may pass.
fn failed(verb: &'static str, identity: &ObjectIdentity, source: kube::Error) -> OwnedObjectError {
    let (kind, name) = (identity.kind.clone(), identity.name.clone());
    if let kube::Error::Api(status) = &source
        && (status.is_invalid() || status.is_forbidden())
    {
        return OwnedObjectError::Rejected { kind, name, message: status.message.clone() };
    }
    OwnedObjectError::Request { verb, kind, name, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kube::runtime::watcher;

    use super::*;

    #[test]
    fn the_message_of_the_api_server_is_shown_once() {
        let message = "baremetalhosts.metal3.io is forbidden: User \"x\" cannot list resource";
        let status = Status::failure(message, "Forbidden").with_code(403);
        let refused = watcher::Error::InitialListFailed(kube::Error::Api(status.boxed()));
        let text = api_error_chain(&refused);
        assert_eq!(text, format!("failed to perform initial object list: {message}"));
    }
}
