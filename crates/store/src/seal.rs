// SPDX-License-Identifier: Apache-2.0
//! Taking the secrets out of free-form objects and putting them back.
//!
//! A secret is any value whose key says so, at any depth, and any text with a URL that has a password
//! in it. It is replaced by the mask where it stood (of a URL, only the password is), and kept under
//! its JSON pointer in one encrypted map per record.

use std::borrow::Cow;

use node_model::{
    JsonObject, MASK, Node, Secret, VolumeTarget, has_url_password, is_secret_key, mask_urls,
    unmask_urls,
};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::error::Error;
use crate::reader::Reader;
use crate::vault::{Vault, VaultError};

const AGENT_TOKEN: &str = "/agent_token";

/// The free-form objects of a node with the secrets in their places.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct NodeSecrets {
    /// How to reach its BMC.
    pub driver_info: Map<String, Value>,
    /// What is deployed on it.
    pub instance_info: Map<String, Value>,
    /// What drivers remember.
    pub driver_internal_info: Map<String, Value>,
    /// The token its agent must show.
    pub agent_token: Option<Secret<String>>,
}

impl std::fmt::Debug for NodeSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeSecrets(******)")
    }
}

impl Reader<'_> {
    /// The objects of a node with its secrets in them. For acting on the machine, not for showing.
    pub fn reveal(&self, node: &Node) -> Result<NodeSecrets, Error> {
        reveal(&self.shared.vault, node)
    }

    /// Seals bytes that leave this program and come back, such as parts of a URL: whoever has them
    /// learns nothing and can make none, and they open only for `owner`.
    #[must_use]
    pub fn seal(&self, owner: Uuid, plain: &[u8]) -> Vec<u8> {
        self.shared.vault.seal(owner, plain)
    }

    /// Opens what [`Reader::seal`] made for `owner`.
    pub fn unseal(&self, owner: Uuid, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let opened = self.shared.vault.open_sealed(owner, sealed);
        opened.map_err(|source| Error::Vault { owner: owner.to_string(), source })
    }

    /// The properties of a volume target with its secrets in them.
    pub fn reveal_volume_target(&self, target: &VolumeTarget) -> Result<Map<String, Value>, Error> {
        reveal_volume_target(&self.shared.vault, target)
    }

    /// Puts full objects into a node: masked where they can be seen, encrypted in `sealed`. Where an
    /// object has the mask itself as a secret, as a client sends it back, the secret stays what it
    /// was.
    pub fn seal_node(&self, node: &mut Node, full: NodeSecrets) -> Result<(), Error> {
        seal_node(&self.shared.vault, node, full)
    }

    /// The same for the properties of a volume target.
    pub fn seal_volume_target(
        &self,
        target: &mut VolumeTarget,
        properties: Map<String, Value>,
    ) -> Result<(), Error> {
        seal_volume_target(&self.shared.vault, target, properties)
    }
}

/// See [`Reader::reveal`].
pub(crate) fn reveal(vault: &Vault, node: &Node) -> Result<NodeSecrets, Error> {
    let mut secrets = open(vault, node.id.0, &node.sealed)?;
    let agent_token = match secrets.remove(AGENT_TOKEN) {
        Some(Value::String(token)) => Some(Secret::new(token)),
        _ => None,
    };
    let full = |masked, place| put_back(masked, place, &secrets);
    Ok(NodeSecrets {
        driver_info: full(&node.driver_info, "/driver_info"),
        instance_info: full(&node.instance_info, "/instance_info"),
        driver_internal_info: full(&node.driver_internal_info, "/driver_internal_info"),
        agent_token,
    })
}

/// See [`Reader::reveal_volume_target`].
pub(crate) fn reveal_volume_target(
    vault: &Vault,
    target: &VolumeTarget,
) -> Result<Map<String, Value>, Error> {
    let secrets = open(vault, target.id.0, &target.sealed)?;
    Ok(put_back(&target.properties, "/properties", &secrets))
}

/// See [`Reader::seal_node`].
pub(crate) fn seal_node(vault: &Vault, node: &mut Node, full: NodeSecrets) -> Result<(), Error> {
    let NodeSecrets { driver_info, instance_info, driver_internal_info, agent_token } = full;
    let mut taken = Map::new();
    node.driver_info = take_out(driver_info, "/driver_info", &mut taken);
    node.instance_info = take_out(instance_info, "/instance_info", &mut taken);
    node.driver_internal_info = take_out(driver_internal_info, "/driver_internal_info", &mut taken);
    if let Some(token) = agent_token {
        taken.insert(AGENT_TOKEN.to_owned(), Value::String(token.reveal().clone()));
    }
    node.sealed = close(vault, node.id.0, &node.sealed, taken)?;
    Ok(())
}

/// See [`Reader::seal_volume_target`].
pub(crate) fn seal_volume_target(
    vault: &Vault,
    target: &mut VolumeTarget,
    properties: Map<String, Value>,
) -> Result<(), Error> {
    let mut taken = Map::new();
    target.properties = take_out(properties, "/properties", &mut taken);
    target.sealed = close(vault, target.id.0, &target.sealed, taken)?;
    Ok(())
}

/// Encrypts the secrets taken out, filling in those that came masked from the ones before.
fn close(
    vault: &Vault,
    owner: Uuid,
    before: &[u8],
    mut taken: Map<String, Value>,
) -> Result<Vec<u8>, Error> {
    if taken.is_empty() {
        return Ok(Vec::new());
    }
    if taken.values().any(|value| is_mask(value) || has_masked_url(value)) {
        let known = open(vault, owner, before)?;
        let texts: Vec<&str> = known.values().filter_map(Value::as_str).collect();
        for (pointer, value) in &mut taken {
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
    let plain = Value::Object(taken).to_string();
    Ok(vault.seal(owner, plain.as_bytes()))
}

fn open(vault: &Vault, owner: Uuid, sealed: &[u8]) -> Result<Map<String, Value>, Error> {
    if sealed.is_empty() {
        return Ok(Map::new());
    }
    let unopenable = |source| Error::Vault { owner: owner.to_string(), source };
    let plain = vault.open_sealed(owner, sealed).map_err(unopenable)?;
    serde_json::from_slice(&plain).map_err(|_| unopenable(VaultError::Unopenable))
}

fn is_mask(value: &Value) -> bool {
    value.as_str() == Some(MASK)
}

fn has_masked_url(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.contains(MASK) && has_url_password(text))
}

/// Moves the secrets of `object` to `taken`, under pointers that start with `place`.
fn take_out(
    mut object: Map<String, Value>,
    place: &str,
    taken: &mut Map<String, Value>,
) -> JsonObject {
    take_from_object(&mut object, place, taken);
    JsonObject::from(object)
}

fn take_from_object(object: &mut Map<String, Value>, place: &str, taken: &mut Map<String, Value>) {
    for (key, value) in object {
        if value.is_null() {
            continue;
        }
        if is_secret_key(key) {
            let secret = std::mem::replace(value, Value::String(MASK.to_owned()));
            taken.insert(format!("{place}/{}", escaped(key)), secret);
        } else if value.is_object() || value.is_array() || is_url_secret(value) {
            take_from(value, &format!("{place}/{}", escaped(key)), taken);
        }
    }
}

fn take_from(value: &mut Value, place: &str, taken: &mut Map<String, Value>) {
    match value {
        Value::Object(object) => take_from_object(object, place, taken),
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                take_from(item, &format!("{place}/{index}"), taken);
            }
        }
        Value::String(text) => {
            if has_url_password(text) {
                let shown = mask_urls(text).into_owned();
                let secret = std::mem::replace(text, shown);
                taken.insert(place.to_owned(), Value::String(secret));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_url_secret(value: &Value) -> bool {
    value.as_str().is_some_and(has_url_password)
}

fn put_back(masked: &JsonObject, place: &str, secrets: &Map<String, Value>) -> Map<String, Value> {
    let mut object = Value::Object(masked.parse());
    for (pointer, secret) in secrets {
        let within = pointer.strip_prefix(place).filter(|rest| rest.starts_with('/'));
        if let Some(slot) = within.and_then(|within| object.pointer_mut(within))
            && stands_for(slot, secret)
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

/// Whether `shown` is what `secret` was replaced by. What has been written there since is not.
fn stands_for(shown: &Value, secret: &Value) -> bool {
    let of_url = || Some(mask_urls(secret.as_str()?) == shown.as_str()?);
    is_mask(shown) || of_url() == Some(true)
}

/// A key as a part of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
