// SPDX-License-Identifier: Apache-2.0
//! Extraction of secrets from free-form objects, and their restoration.
//!
//! A secret is a value with a secret key, at any depth, or a text with a URL that contains a password or
//! a signature. It is replaced by the mask (in a URL, only the secret part is), and stored under its
//! JSON pointer in one encrypted map per record.

use std::borrow::Cow;

use node_model::{
    Deployment, JsonObject, MASK, Node, Secret, VolumeTarget, has_url_secret, is_secret_key,
    mask_secrets, mask_urls, unmask_urls,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::StoreError;
use crate::key_ring::KeyRing;
use crate::reader::StoreReader;
use crate::sealing_key::SealError;

const AGENT_TOKEN: &str = "/agent_token";

/// The free-form objects of a node with their secrets in plain text.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NodeSecrets {
    /// `driver_info`, including BMC credentials.
    pub driver_info: Map<String, Value>,
    /// `instance_info`.
    pub instance_info: Map<String, Value>,
    /// `driver_internal_info`.
    pub driver_internal_info: Map<String, Value>,
    /// The token that the node's agent must present.
    pub agent_token: Option<Secret<String>>,
}

impl std::fmt::Debug for NodeSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeSecrets(******)")
    }
}

impl StoreReader<'_> {
    /// The objects of a node with their secrets, for driver calls. Never show them to users.
    pub fn reveal(&self, node: &Node) -> Result<NodeSecrets, StoreError> {
        reveal(&self.shared.keys, node)
    }

    /// Seals bytes that leave this process and come back, such as parts of a URL. They can be neither
    /// read nor forged, and open only for `owner`.
    #[must_use]
    pub fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        self.shared.keys.seal(owner, plain)
    }

    /// Opens bytes that [`StoreReader::seal`] sealed for `owner`.
    pub fn unseal(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, StoreError> {
        let opened = self.shared.keys.unseal(owner, sealed);
        opened.map_err(|source| StoreError::Unseal { owner: owner.to_string(), source })
    }

    /// The properties of a volume target with their secrets.
    pub fn reveal_volume_target(
        &self,
        target: &VolumeTarget,
    ) -> Result<Map<String, Value>, StoreError> {
        reveal_volume_target(&self.shared.keys, target)
    }

    /// Stores full objects in a node: masked in its fields, encrypted in `sealed`. Secrets in its `extra`
    /// and `properties` are sealed too; they are never revealed. A secret that equals the mask, as sent
    /// back by a client, keeps its previous value. Sets `agent.has_token`.
    pub fn seal_node(&self, node: &mut Node, full: NodeSecrets) -> Result<(), StoreError> {
        seal_node(&self.shared.keys, node, full)
    }

    /// Like [`StoreReader::seal_node`], for the properties of a volume target.
    pub fn seal_volume_target(
        &self,
        target: &mut VolumeTarget,
        properties: Map<String, Value>,
    ) -> Result<(), StoreError> {
        seal_volume_target(&self.shared.keys, target, properties)
    }
}

/// See [`StoreReader::reveal`].
pub(crate) fn reveal(keys: &KeyRing, node: &Node) -> Result<NodeSecrets, StoreError> {
    let mut secrets = unseal_secrets(keys, node.id.0, &node.sealed)?;
    let agent_token = match secrets.remove(AGENT_TOKEN) {
        Some(Value::String(token)) => Some(Secret::new(token)),
        _ => None,
    };
    let full = |masked, prefix| restore_secrets(masked, prefix, &secrets);
    Ok(NodeSecrets {
        driver_info: full(&node.driver_info, "/driver_info"),
        instance_info: full(&node.instance_info, "/instance_info"),
        driver_internal_info: full(&node.driver_internal_info, "/driver_internal_info"),
        agent_token,
    })
}

/// See [`StoreReader::reveal_volume_target`].
pub(crate) fn reveal_volume_target(
    keys: &KeyRing,
    target: &VolumeTarget,
) -> Result<Map<String, Value>, StoreError> {
    let secrets = unseal_secrets(keys, target.id.0, &target.sealed)?;
    Ok(restore_secrets(&target.properties, "/properties", &secrets))
}

/// See [`StoreReader::seal_node`].
pub(crate) fn seal_node(
    keys: &KeyRing,
    node: &mut Node,
    full: NodeSecrets,
) -> Result<(), StoreError> {
    let NodeSecrets { driver_info, instance_info, driver_internal_info, agent_token } = full;
    let mut secrets = Map::new();
    node.driver_info = extract_secrets(driver_info, "/driver_info", &mut secrets);
    node.instance_info = extract_secrets(instance_info, "/instance_info", &mut secrets);
    node.driver_internal_info =
        extract_secrets(driver_internal_info, "/driver_internal_info", &mut secrets);
    seal_own_objects(node, &mut secrets);
    node.agent.has_token = agent_token.is_some();
    if let Some(token) = agent_token {
        secrets.insert(AGENT_TOKEN.to_owned(), Value::String(token.reveal().clone()));
    }
    node.sealed = seal_secrets(keys, node.id.0, &node.sealed, secrets)?;
    Ok(())
}

/// Moves the secrets of the objects that no driver needs to `secrets`.
fn seal_own_objects(node: &mut Node, secrets: &mut Map<String, Value>) {
    node.extra = extract_secrets(node.extra.parse(), "/extra", secrets);
    node.properties = extract_secrets(node.properties.parse(), "/properties", secrets);
}

/// Whether `extra` or `properties` have secrets in plain text.
pub(crate) fn has_plain_secrets(node: &Node) -> bool {
    [&node.extra, &node.properties].into_iter().any(|object| {
        matches!(mask_secrets(object), Cow::Owned(masked) if masked.as_str() != object.as_str())
    })
}

/// Seals the secrets in `extra` and `properties`, for writers that do not call [`seal_node`]. If the
/// other secrets of the node cannot be decrypted, these are discarded instead of stored in plain text.
pub(crate) fn seal_plain_secrets(keys: &KeyRing, node: &mut Node) {
    let sealed = unseal_secrets(keys, node.id.0, &node.sealed).and_then(|mut secrets| {
        let is_own =
            |pointer: &str| pointer.starts_with("/extra/") || pointer.starts_with("/properties/");
        secrets.retain(|pointer, _| !is_own(pointer));
        seal_own_objects(node, &mut secrets);
        seal_secrets(keys, node.id.0, &node.sealed, secrets)
    });
    match sealed {
        Ok(sealed) => node.sealed = sealed,
        Err(error) => {
            tracing::warn!(node = %node.id, %error, "secrets in extra and properties discarded");
            seal_own_objects(node, &mut Map::new());
        }
    }
}

/// See [`StoreReader::seal_volume_target`].
pub(crate) fn seal_volume_target(
    keys: &KeyRing,
    target: &mut VolumeTarget,
    properties: Map<String, Value>,
) -> Result<(), StoreError> {
    let mut secrets = Map::new();
    target.properties = extract_secrets(properties, "/properties", &mut secrets);
    target.sealed = seal_secrets(keys, target.id.0, &target.sealed, secrets)?;
    Ok(())
}

/// See [`StoreReader::reveal_deployment`].
pub(crate) fn reveal_deployment(
    keys: &KeyRing,
    deployment: &Deployment,
) -> Result<Map<String, Value>, StoreError> {
    let secrets = unseal_secrets(keys, deployment.id.0, &deployment.sealed)?;
    Ok(restore_secrets(&deployment.instance, "/instance", &secrets))
}

/// See [`StoreReader::seal_deployment`].
pub(crate) fn seal_deployment(
    keys: &KeyRing,
    deployment: &mut Deployment,
    instance: Map<String, Value>,
) -> Result<(), StoreError> {
    let mut secrets = Map::new();
    deployment.instance = extract_secrets(instance, "/instance", &mut secrets);
    deployment.sealed = seal_secrets(keys, deployment.id.0, &deployment.sealed, secrets)?;
    Ok(())
}

/// Encrypts extracted secrets. Masked ones are replaced by their previous values.
fn seal_secrets(
    keys: &KeyRing,
    owner: Uuid,
    before: &[u8],
    mut secrets: Map<String, Value>,
) -> Result<Vec<u8>, StoreError> {
    if secrets.is_empty() {
        return Ok(Vec::new());
    }
    if secrets.values().any(|value| is_mask(value) || has_masked_url(value)) {
        let known = unseal_secrets(keys, owner, before)?;
        let texts: Vec<&str> = known.values().filter_map(Value::as_str).collect();
        for (pointer, value) in &mut secrets {
            if is_mask(value) {
                if let Some(secret) = known.get(pointer) {
                    *value = secret.clone();
                }
            } else if let Value::String(text) = value
                && let Cow::Owned(full) = unmask_urls(text, &texts)
            {
                *text = full;
            }
        }
    }
    let plain = Value::Object(secrets).to_string();
    Ok(keys.seal(owner, plain.as_bytes()))
}

fn unseal_secrets(
    keys: &KeyRing,
    owner: Uuid,
    sealed: &[u8],
) -> Result<Map<String, Value>, StoreError> {
    if sealed.is_empty() {
        return Ok(Map::new());
    }
    let unopenable = |source| StoreError::Unseal { owner: owner.to_string(), source };
    let plain = keys.unseal(owner, sealed).map_err(unopenable)?;
    serde_json::from_slice(&plain).map_err(|_| unopenable(SealError::CannotUnseal))
}

fn is_mask(value: &Value) -> bool {
    value.as_str() == Some(MASK)
}

fn has_masked_url(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains(MASK) && has_url_secret(text))
}

/// Moves the secrets of `object` to `secrets`. `pointer` is the JSON pointer of `object`.
fn extract_secrets(
    mut object: Map<String, Value>,
    pointer: &str,
    secrets: &mut Map<String, Value>,
) -> JsonObject {
    extract_from_object(&mut object, pointer, secrets);
    JsonObject::from(object)
}

fn extract_from_object(
    object: &mut Map<String, Value>,
    pointer: &str,
    secrets: &mut Map<String, Value>,
) {
    for (key, value) in object {
        if value.is_null() {
            continue;
        }
        if is_secret_key(key) {
            let secret = std::mem::replace(value, Value::String(MASK.to_owned()));
            secrets.insert(format!("{pointer}/{}", escape_pointer_token(key)), secret);
        } else if value.is_object() || value.is_array() || is_url_with_secret(value) {
            extract_from_value(value, &format!("{pointer}/{}", escape_pointer_token(key)), secrets);
        }
    }
}

fn extract_from_value(value: &mut Value, pointer: &str, secrets: &mut Map<String, Value>) {
    match value {
        Value::Object(object) => extract_from_object(object, pointer, secrets),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                extract_from_value(item, &format!("{pointer}/{index}"), secrets);
            }
        }
        Value::String(text) => {
            if has_url_secret(text) {
                let shown = mask_urls(text).into_owned();
                let secret = std::mem::replace(text, shown);
                secrets.insert(pointer.to_owned(), Value::String(secret));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_url_with_secret(value: &Value) -> bool {
    value.as_str().is_some_and(has_url_secret)
}

fn restore_secrets(
    masked: &JsonObject,
    prefix: &str,
    secrets: &Map<String, Value>,
) -> Map<String, Value> {
    let mut object = Value::Object(masked.parse());
    for (pointer, secret) in secrets {
        let within = pointer.strip_prefix(prefix).filter(|rest| rest.starts_with('/'));
        if let Some(slot) = within.and_then(|within| object.pointer_mut(within))
            && is_masked_form(slot, secret)
        {
            *slot = secret.clone();
        }
    }
    match object {
        Value::Object(full) => full,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// Whether `shown` is the masked form of `secret`; false if it was overwritten since.
fn is_masked_form(shown: &Value, secret: &Value) -> bool {
    let of_url = || Some(mask_urls(secret.as_str()?) == shown.as_str()?);
    is_mask(shown) || of_url() == Some(true)
}

/// Escapes a key as a token of a JSON pointer.
fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
