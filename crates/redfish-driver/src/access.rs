// SPDX-License-Identifier: Apache-2.0
//! Address and credentials of a BMC: the `redfish_…` keys of `driver_info`.

use std::path::PathBuf;
use std::sync::Once;

use drivers::{DriverError, DriverProperty};
use redfish::{CertificateTrust, MinTlsVersion, RedfishAuth, RedfishEndpoint};
use serde_json::{Map, Value};

use super::settings::{AuthType, RedfishSettings, VerifyCaSetting};

/// The keys of `driver_info` that every Redfish interface reads.
pub(super) const PROPERTIES: &[DriverProperty] = &[
    (
        "redfish_address",
        "Address of the BMC: a host or a URL; https unless the URL has http. A path is the root of \
         the service. Required.",
    ),
    (
        "redfish_system_id",
        "The path of the machine's System resource, such as /redfish/v1/Systems/1. Needed only if \
         the BMC has more than one.",
    ),
    ("redfish_username", "The user name on the BMC."),
    ("redfish_password", "The password of that user."),
    (
        "redfish_verify_ca",
        "Check of the BMC's certificate: true against the system's CAs, false for none, or the path \
         of a file or folder with CA certificates.",
    ),
    (
        "redfish_auth_type",
        "Authentication: 'session', 'basic', or 'auto', which uses sessions where the BMC has them.",
    ),
    (
        "redfish_tls_minimum_version",
        "Minimum TLS version: '1.2' or '1.3'. '1.1' is treated as '1.2'.",
    ),
    ("redfish_tls_ciphers", "Ignored: all secure ciphers are offered."),
    (
        "firmware_update_unresponsive_bmc_wait",
        "Seconds the BMC needs after an update of its firmware until it is reliable; a 'wait' in the \
         step overrides it.",
    ),
];

/// Address and credentials of the BMC of a node.
#[derive(Debug)]
pub(super) struct RedfishAccess {
    pub(super) endpoint: RedfishEndpoint,
    pub(super) system_id: Option<String>,
}

impl RedfishAccess {
    /// Parses and validates the keys. Sends no request.
    pub(super) fn read(
        driver_info: &Map<String, Value>,
        settings: &RedfishSettings,
    ) -> Result<Self, DriverError> {
        let Some(address) = text(driver_info, "redfish_address")? else {
            return Err(DriverError::missing(
                key("redfish_address"),
                "set the address of the BMC, such as https://10.0.0.5",
            ));
        };
        let mut endpoint = RedfishEndpoint::parse(address)
            .map_err(|error| DriverError::invalid(key("redfish_address"), error.to_string()))?;
        endpoint.username = text(driver_info, "redfish_username")?.map(str::to_owned);
        endpoint.password = text(driver_info, "redfish_password")?.map(str::to_owned);
        if endpoint.username.is_none() && endpoint.password.is_some() {
            return Err(DriverError::missing(
                key("redfish_username"),
                "redfish_password is set without a user name; set both",
            ));
        }
        if endpoint.username.is_some() && endpoint.password.is_none() {
            return Err(DriverError::missing(
                key("redfish_password"),
                "redfish_username is set without a password; set both",
            ));
        }
        endpoint.trust = trust(driver_info, settings)?;
        endpoint.auth = auth(driver_info, settings)?;
        endpoint.min_tls = min_tls(driver_info)?;
        if text(driver_info, "redfish_tls_ciphers")?.is_some() {
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                tracing::warn!(
                    bmc = endpoint.address,
                    "redfish_tls_ciphers ignored, all secure ciphers are offered"
                );
            });
        }
        Ok(Self { endpoint, system_id: system_id(driver_info)? })
    }
}

/// The name of a `driver_info` key in messages.
fn key(name: &str) -> String {
    format!("driver_info/{name}")
}

fn text<'a>(info: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, DriverError> {
    match info.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => {
            Err(DriverError::invalid(key(name), "it is empty; give a value or remove the key"))
        }
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(DriverError::invalid(key(name), "it must be a string"))
        }
    }
}

fn trust(
    info: &Map<String, Value>,
    settings: &RedfishSettings,
) -> Result<CertificateTrust, DriverError> {
    const NAME: &str = "redfish_verify_ca";
    let verify = match info.get(NAME) {
        None | Some(Value::Null) => settings.verify_ca.clone(),
        Some(Value::Bool(verify)) => VerifyCaSetting::Switch(*verify),
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "t" | "y" => VerifyCaSetting::Switch(true),
            "false" | "no" | "off" | "0" | "f" | "n" => VerifyCaSetting::Switch(false),
            _ => {
                let path = PathBuf::from(text);
                if !path.exists() {
                    let why = format!(
                        "it is neither true nor false, and there is no file or folder {text} on \
                         the conductor"
                    );
                    return Err(DriverError::invalid(key(NAME), why));
                }
                VerifyCaSetting::Path(path)
            }
        },
        Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(DriverError::invalid(key(NAME), "it must be true, false or a path"));
        }
    };
    Ok(match verify {
        VerifyCaSetting::Switch(true) => CertificateTrust::System,
        VerifyCaSetting::Switch(false) => CertificateTrust::AnyCertificate,
        VerifyCaSetting::Path(path) => CertificateTrust::File(path),
    })
}

fn auth(info: &Map<String, Value>, settings: &RedfishSettings) -> Result<RedfishAuth, DriverError> {
    let auth_type = match text(info, "redfish_auth_type")? {
        None => settings.auth_type,
        Some(name) => name.parse().map_err(|()| {
            let why = format!("'{name}' is none of 'auto', 'basic' and 'session'");
            DriverError::invalid(key("redfish_auth_type"), why)
        })?,
    };
    Ok(match auth_type {
        AuthType::Auto => RedfishAuth::Auto,
        AuthType::Basic => RedfishAuth::Basic,
        AuthType::Session => RedfishAuth::Session,
    })
}

fn min_tls(info: &Map<String, Value>) -> Result<MinTlsVersion, DriverError> {
    match text(info, "redfish_tls_minimum_version")? {
        None | Some("1.2") => Ok(MinTlsVersion::V1_2),
        Some("1.3") => Ok(MinTlsVersion::V1_3),
        // Ironic accepts 1.1; this client does not implement it.
        Some("1.1") => {
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                tracing::warn!("redfish_tls_minimum_version 1.1 is insecure, using 1.2");
            });
            Ok(MinTlsVersion::V1_2)
        }
        Some(other) => Err(DriverError::invalid(
            key("redfish_tls_minimum_version"),
            format!("'{other}' is neither '1.2' nor '1.3'"),
        )),
    }
}

fn system_id(info: &Map<String, Value>) -> Result<Option<String>, DriverError> {
    const NAME: &str = "redfish_system_id";
    let Some(id) = text(info, NAME)? else { return Ok(None) };
    if id.contains(char::is_whitespace) || id.contains("..") || id.contains("://") {
        let why = format!("'{id}' is not the path of a System, such as /redfish/v1/Systems/1");
        return Err(DriverError::invalid(key(NAME), why));
    }
    Ok(Some(id.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(info: Value) -> Result<RedfishAccess, String> {
        let Value::Object(info) = info else { panic!("an object") };
        RedfishAccess::read(&info, &RedfishSettings::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn parses_all_access_keys() {
        let access = read(json!({
            "redfish_address": "bmc7.example:8443/api/redfish/v1",
            "redfish_username": "admin", "redfish_password": "secret",
            "redfish_verify_ca": "False", "redfish_auth_type": "basic",
            "redfish_system_id": "/redfish/v1/Systems/1",
        }))
        .unwrap();
        assert_eq!(access.endpoint.address, "https://bmc7.example:8443");
        assert_eq!(access.endpoint.trust, CertificateTrust::AnyCertificate);
        assert_eq!(access.endpoint.auth, RedfishAuth::Basic);
        assert_eq!(access.system_id.as_deref(), Some("/redfish/v1/Systems/1"));
    }

    #[test]
    fn accepts_unsupported_tls_keys_of_ironic() {
        let access = read(json!({
            "redfish_address": "bmc",
            "redfish_tls_minimum_version": "1.1",
            "redfish_tls_ciphers": "ECDHE-RSA-AES256-GCM-SHA384",
        }))
        .unwrap();
        assert_eq!(access.endpoint.min_tls, MinTlsVersion::V1_2);
    }

    #[test]
    fn errors_name_the_key_and_a_fix() {
        for (info, key, text) in [
            (json!({}), "redfish_address", "address of the BMC"),
            (json!({"redfish_address": ""}), "redfish_address", "empty"),
            (json!({"redfish_address": 5}), "redfish_address", "string"),
            (json!({"redfish_address": "ftp://bmc"}), "redfish_address", "http"),
            (json!({"redfish_address": "https://bmc:99999"}), "redfish_address", "port"),
            (
                json!({"redfish_address": "b", "redfish_password": "p"}),
                "redfish_username",
                "set both",
            ),
            (
                json!({"redfish_address": "b", "redfish_username": "u"}),
                "redfish_password",
                "set both",
            ),
            (
                json!({"redfish_address": "b", "redfish_verify_ca": "/no/such/ca.pem"}),
                "redfish_verify_ca",
                "/no/such/ca.pem",
            ),
            (json!({"redfish_address": "b", "redfish_verify_ca": 3}), "redfish_verify_ca", "path"),
            (
                json!({"redfish_address": "b", "redfish_auth_type": "digest"}),
                "redfish_auth_type",
                "digest",
            ),
            (
                json!({"redfish_address": "b", "redfish_tls_minimum_version": "1.0"}),
                "redfish_tls_minimum_version",
                "1.2",
            ),
            (
                json!({"redfish_address": "b", "redfish_system_id": "https://x/1"}),
                "redfish_system_id",
                "path",
            ),
        ] {
            let error = read(info.clone()).unwrap_err();
            assert!(error.contains(key) && error.contains(text), "{info}: {error}");
        }
    }
}
