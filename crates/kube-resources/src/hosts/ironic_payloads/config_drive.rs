// SPDX-License-Identifier: Apache-2.0
//! The config drive of a deployment: user data, network data and metadata.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use super::super::host_image::HostImage;

/// Key that is used if a Secret does not have the key of its purpose.
const FALLBACK_KEY: &str = "value";

/// What a Secret contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSecret {
    /// User data for cloud-init or Ignition.
    UserData,
    /// Network configuration.
    NetworkData,
    /// Metadata.
    MetaData,
}

impl ConfigSecret {
    /// Key in the Secret.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::UserData => "userData",
            Self::NetworkData => "networkData",
            Self::MetaData => "metaData",
        }
    }

    /// Reads the text from the data of a Secret.
    pub fn read(self, data: &BTreeMap<String, ByteString>) -> Result<String, HostConfigDriveError> {
        let key = self.key();
        let ByteString(bytes) = data
            .get(key)
            .or_else(|| data.get(FALLBACK_KEY))
            .ok_or(HostConfigDriveError::MissingKey { key })?;
        String::from_utf8(bytes.clone()).map_err(|_| HostConfigDriveError::NotText { key })
    }
}

/// Why a config drive cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostConfigDriveError {
    /// The Secret has no suitable key.
    #[error("the Secret has neither the key {key} nor the key {FALLBACK_KEY}; add one of them")]
    MissingKey {
        /// The expected key.
        key: &'static str,
    },
    /// The value is not UTF-8.
    #[error("{key} is not text in UTF-8; store it as text")]
    NotText {
        /// The key.
        key: &'static str,
    },
    /// The value is not a YAML or JSON object.
    #[error("{key} is not a YAML or JSON object ({reason})")]
    NotObject {
        /// The key.
        key: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// The host and the texts from its Secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfigDriveInputs<'a> {
    /// UID of the host.
    pub uid: &'a str,
    /// Namespace of the host.
    pub namespace: &'a str,
    /// Name of the host.
    pub name: &'a str,
    /// User data.
    pub user_data: Option<&'a str>,
    /// Network data; the network data of the ramdisk is used if the host has none.
    pub network_data: Option<&'a str>,
    /// Network data of the ramdisk.
    pub preprovisioning_network_data: Option<&'a str>,
    /// Additional metadata.
    pub meta_data: Option<&'a str>,
}

/// The value of `configdrive`; `None` for a live ISO, because many BMCs have only one virtual
/// device.
pub fn config_drive(
    image: Option<&HostImage>,
    inputs: &ConfigDriveInputs<'_>,
) -> Result<Option<Value>, HostConfigDriveError> {
    if image.is_some_and(HostImage::is_live_iso) {
        return Ok(None);
    }
    let mut drive = Map::new();
    if let Some(user_data) = non_empty(inputs.user_data) {
        drive.insert("user_data".to_owned(), json!(user_data));
    }
    let network_data =
        non_empty(inputs.network_data).or(non_empty(inputs.preprovisioning_network_data));
    if let Some(text) = network_data {
        drive.insert("network_data".to_owned(), json!(object("networkData", text)?));
    }
    drive.insert("meta_data".to_owned(), json!(meta_data(inputs)?));
    Ok(Some(Value::Object(drive)))
}

/// Defaults, and the metadata of the Secret over them.
fn meta_data(inputs: &ConfigDriveInputs<'_>) -> Result<Map<String, Value>, HostConfigDriveError> {
    let ConfigDriveInputs { uid, namespace, name, .. } = inputs;
    let defaults = [
        ("uuid", uid),
        ("metal3-namespace", namespace),
        ("metal3-name", name),
        ("local-hostname", name),
        ("local_hostname", name),
        ("name", name),
    ];
    let mut merged: Map<String, Value> =
        defaults.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    if let Some(text) = non_empty(inputs.meta_data) {
        merged.extend(object("metaData", text)?);
    }
    Ok(merged)
}

/// Parses YAML, of which JSON is a part. A text without content is an empty object.
fn object(key: &'static str, text: &str) -> Result<Map<String, Value>, HostConfigDriveError> {
    let error = |reason: String| HostConfigDriveError::NotObject { key, reason };
    let value: Value = serde_saphyr::from_str(text).map_err(|cause| {
        // The other lines quote the text, which may be secret.
        error(cause.to_string().lines().next().unwrap_or_default().to_owned())
    })?;
    match value {
        Value::Object(object) => Ok(object),
        Value::Null => Ok(Map::new()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Err(error("a scalar".to_owned())),
        Value::Array(_) => Err(error("a list".to_owned())),
    }
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs() -> ConfigDriveInputs<'static> {
        ConfigDriveInputs { uid: "u", namespace: "ns", name: "host", ..Default::default() }
    }

    fn drive(inputs: ConfigDriveInputs<'_>) -> Value {
        config_drive(None, &inputs).unwrap().unwrap()
    }

    #[test]
    fn metadata_of_the_secret_replaces_defaults() {
        let defaults = json!({"meta_data": {
            "uuid": "u", "metal3-namespace": "ns", "metal3-name": "host",
            "local-hostname": "host", "local_hostname": "host", "name": "host",
        }});
        assert_eq!(drive(inputs()), defaults);
        assert_eq!(drive(ConfigDriveInputs { meta_data: Some(""), ..inputs() }), defaults);
        assert_eq!(drive(ConfigDriveInputs { meta_data: Some("# none"), ..inputs() }), defaults);
        let merged = drive(ConfigDriveInputs { meta_data: Some("name: x\nrack: 7"), ..inputs() });
        assert_eq!(merged["meta_data"]["name"], json!("x"));
        assert_eq!(merged["meta_data"]["rack"], json!(7));
        assert_eq!(merged["meta_data"]["local-hostname"], json!("host"));
    }

    #[test]
    fn network_data_falls_back_to_that_of_the_ramdisk() {
        let with = |network_data, preprovisioning_network_data| {
            drive(ConfigDriveInputs { network_data, preprovisioning_network_data, ..inputs() })
                ["network_data"]
                .clone()
        };
        assert_eq!(with(None, None), Value::Null);
        assert_eq!(with(Some("links: []"), Some("b: 1")), json!({"links": []}));
        assert_eq!(with(None, Some(r#"{"b": 1}"#)), json!({"b": 1}));
        assert_eq!(with(Some(""), Some("b: 1")), json!({"b": 1}));
    }

    #[test]
    fn user_data_is_not_parsed() {
        let made = drive(ConfigDriveInputs { user_data: Some("#cloud-config\n"), ..inputs() });
        assert_eq!(made["user_data"], json!("#cloud-config\n"));
    }

    #[test]
    fn a_live_iso_has_no_config_drive() {
        let iso: HostImage =
            serde_json::from_value(json!({"url": "http://a/i", "format": "live-iso"})).unwrap();
        assert_eq!(config_drive(Some(&iso), &inputs()), Ok(None));
    }

    #[test]
    fn values_that_are_no_objects_are_errors() {
        for text in ["[1]", "text", "a: [", "a: 1\n b: 2"] {
            let made = config_drive(None, &ConfigDriveInputs { meta_data: Some(text), ..inputs() });
            let is_error =
                matches!(made, Err(HostConfigDriveError::NotObject { key: "metaData", .. }));
            assert!(is_error, "{text:?}");
        }
    }

    #[test]
    fn secrets_have_the_key_of_their_purpose_or_value() {
        let read = |pairs: &[(&str, &[u8])]| {
            let data = pairs
                .iter()
                .map(|(key, bytes)| ((*key).to_owned(), ByteString(bytes.to_vec())))
                .collect();
            ConfigSecret::NetworkData.read(&data)
        };
        assert_eq!(read(&[("networkData", b"a"), ("value", b"b")]).as_deref(), Ok("a"));
        assert_eq!(read(&[("value", b"b")]).as_deref(), Ok("b"));
        let key = "networkData";
        assert_eq!(read(&[("userData", b"b")]), Err(HostConfigDriveError::MissingKey { key }));
        assert_eq!(read(&[("value", b"\xff")]), Err(HostConfigDriveError::NotText { key }));
    }
}
