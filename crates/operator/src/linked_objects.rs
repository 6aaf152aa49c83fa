// SPDX-License-Identifier: Apache-2.0
//! Secrets and ConfigMaps of users that an object names.
//!
//! They are read when they are needed and not cached. Users allow it with a label; watches select by it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use kube_resources::ironic::names::OPT_IN_LABEL;
use kube_resources::ironic::names::event_reason::INVALID_LINKED_RESOURCE;

use crate::ironic::facts::LinkedContent;
use crate::object_loop::Obstacle;
use crate::owned_objects::api_error_text;

/// Kind of a linked object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkedKind {
    Secret,
    ConfigMap,
}

impl LinkedKind {
    /// The name in messages of Metal3's operator.
    fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::ConfigMap => "configmap",
        }
    }
}

/// Whether the label is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LabelRule {
    /// Users have to allow reading the object.
    Required,
    /// Metal3's operator mounts the object in pods without reading it, so existing ones have no label.
    NotRequired,
}

/// A Secret or ConfigMap with its values.
pub(crate) struct LinkedObject {
    pub(crate) name: String,
    pub(crate) metadata: ObjectMeta,
    pub(crate) data: BTreeMap<String, Vec<u8>>,
}

impl LinkedObject {
    /// The object without values.
    pub(crate) fn content(&self) -> LinkedContent {
        let data: Vec<(&str, &[u8])> =
            self.data.iter().map(|(key, value)| (key.as_str(), value.as_slice())).collect();
        LinkedContent::new(&self.name, &data)
    }

    /// The text of a key; empty if it is missing.
    pub(crate) fn text(&self, key: &str) -> &str {
        let value = self.data.get(key).map(Vec::as_slice).unwrap_or_default();
        std::str::from_utf8(value).unwrap_or_default()
    }

    /// The text of a key. Fails if it is missing or empty.
    pub(crate) fn required_text(&self, namespace: &str, key: &str) -> Result<&str, Obstacle> {
        let text = self.text(key).trim();
        if text.is_empty() {
            let problem = format!("the key {key} is missing or empty");
            return Err(cannot_load(LinkedKind::Secret, namespace, &self.name, &problem));
        }
        Ok(text)
    }
}

/// Reads the objects of one namespace.
#[derive(Clone)]
pub(crate) struct LinkedObjects {
    client: Client,
    namespace: String,
}

impl LinkedObjects {
    pub(crate) fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    /// Reads an object that must exist.
    pub(crate) async fn read(
        &self,
        kind: LinkedKind,
        name: &str,
        rule: LabelRule,
    ) -> Result<LinkedObject, Obstacle> {
        let Some(object) = self.read_optional(kind, name).await? else {
            return Err(cannot_load(kind, &self.namespace, name, "it does not exist; create it"));
        };
        let (label, value) = OPT_IN_LABEL;
        let is_labelled = object
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.get(label).is_some_and(|found| found == value));
        if rule == LabelRule::Required && !is_labelled {
            let problem = format!(
                "it has no label {label}={value}; set it to allow the operator to read the object"
            );
            return Err(cannot_load(kind, &self.namespace, name, &problem));
        }
        Ok(object)
    }

    /// Reads an object.
    pub(crate) async fn read_optional(
        &self,
        kind: LinkedKind,
        name: &str,
    ) -> Result<Option<LinkedObject>, Obstacle> {
        let found = match kind {
            LinkedKind::Secret => {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
                api.get_opt(name).await.map(|found| found.map(|secret| secret_object(name, secret)))
            }
            LinkedKind::ConfigMap => {
                let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
                api.get_opt(name).await.map(|found| found.map(|map| config_map_object(name, map)))
            }
        };
        found.map_err(|error| {
            let text = api_error_text(&error);
            Obstacle { needs_user: false, ..cannot_load(kind, &self.namespace, name, &text) }
        })
    }
}

fn secret_object(name: &str, secret: Secret) -> LinkedObject {
    let data = secret.data.unwrap_or_default();
    LinkedObject {
        name: name.to_owned(),
        metadata: secret.metadata,
        data: data.into_iter().map(|(key, value)| (key, value.0)).collect(),
    }
}

fn config_map_object(name: &str, map: ConfigMap) -> LinkedObject {
    let mut data: BTreeMap<String, Vec<u8>> =
        map.data.unwrap_or_default().into_iter().map(|(key, text)| (key, text.into())).collect();
    data.extend(map.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)));
    LinkedObject { name: name.to_owned(), metadata: map.metadata, data }
}

/// Users and scripts match the start of this text.
fn cannot_load(kind: LinkedKind, namespace: &str, name: &str, problem: &str) -> Obstacle {
    Obstacle::for_user(format!("cannot load {} {namespace}/{name}: {problem}", kind.as_str()))
        .with_event(INVALID_LINKED_RESOURCE)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    #[test]
    fn values_of_both_kinds_are_bytes() {
        let map = config_map_object(
            "ca",
            ConfigMap {
                data: Some(BTreeMap::from([("a.pem".to_owned(), "text".to_owned())])),
                binary_data: Some(BTreeMap::from([("b".to_owned(), ByteString(vec![0xff]))])),
                ..ConfigMap::default()
            },
        );
        assert_eq!(map.text("a.pem"), "text");
        assert_eq!(map.text("b"), "", "not a text");
        assert_eq!(map.content().keys, ["a.pem", "b"]);
        let secret = secret_object("s", Secret::default());
        let missing = secret.required_text("metal", "username").unwrap_err();
        assert_eq!(
            missing.text,
            "cannot load secret metal/s: the key username is missing or empty"
        );
        assert!(missing.needs_user);
        let named = missing.named_by("spec.apiCredentialsName");
        assert!(named.text.ends_with("is missing or empty (spec.apiCredentialsName names it)"));
    }
}
