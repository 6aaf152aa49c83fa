// SPDX-License-Identifier: Apache-2.0
//! Where a machine's BMC is and how to enter it: the `redfish_…` keys of `driver_info`.

use std::path::PathBuf;
use std::sync::Once;

use redfish::{Auth, Endpoint, MinTls, Trust};
use serde_json::{Map, Value};

use super::settings::{AuthType, RedfishSettings, VerifyCa};
use crate::{Error, Property};

/// The keys of `driver_info` that every Redfish interface reads.
pub(super) const PROPERTIES: &[Property] = &[
    (
        "redfish_address",
        "Where the BMC is: a host or a URL, with https unless it says http. A path in it is the \
         root of the service. Required.",
    ),
    (
        "redfish_system_id",
        "The path of the machine's System resource, such as /redfish/v1/Systems/1. Needed only if \
         the BMC has more than one.",
    ),
    ("redfish_username", "The user to sign in as."),
    ("redfish_password", "The password of that user."),
    (
        "redfish_verify_ca",
        "Check the BMC's certificate: true against the system's authorities, false not at all, or \
         the path of a file or folder with the authorities' certificates.",
    ),
    (
        "redfish_auth_type",
        "How to sign in: 'session', 'basic', or 'auto', which is a session where the BMC has them.",
    ),
    (
        "redfish_tls_minimum_version",
        "The oldest TLS to speak: '1.2' or '1.3'. '1.1' is taken as '1.2'.",
    ),
    ("redfish_tls_ciphers", "Not used: all ciphers that are safe are offered."),
    (
        "firmware_update_unresponsive_bmc_wait",
        "How many seconds the BMC needs after an update of its firmware before it can be relied \
         on, where a step does not say.",
    ),
];

/// Where a machine's BMC is and how to enter it.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) endpoint: Endpoint,
    pub(super) system_id: Option<String>,
}

impl Access {
    /// Reads and checks the keys; asks nobody.
    pub(super) fn read(
        driver_info: &Map<String, Value>,
        settings: &RedfishSettings,
    ) -> Result<Self, Error> {
        let Some(address) = text(driver_info, "redfish_address")? else {
            return Err(Error::missing(
                key("redfish_address"),
                "say where the BMC is, such as https://10.0.0.5",
            ));
        };
        let mut endpoint = Endpoint::parse(address)
            .map_err(|error| Error::invalid(key("redfish_address"), error.to_string()))?;
        endpoint.username = text(driver_info, "redfish_username")?.map(str::to_owned);
        endpoint.password = text(driver_info, "redfish_password")?.map(str::to_owned);
        if endpoint.username.is_none() && endpoint.password.is_some() {
            return Err(Error::missing(
                key("redfish_username"),
                "there is a redfish_password; say whose it is",
            ));
        }
        if endpoint.username.is_some() && endpoint.password.is_none() {
            return Err(Error::missing(
                key("redfish_password"),
                "there is a redfish_username; give its password",
            ));
        }
        endpoint.trust = trust(driver_info, settings)?;
        endpoint.auth = auth(driver_info, settings)?;
        endpoint.min_tls = min_tls(driver_info)?;
        if text(driver_info, "redfish_tls_ciphers")?.is_some() {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    bmc = endpoint.address,
                    "redfish_tls_ciphers is not used: all ciphers that are safe are offered"
                );
            });
        }
        Ok(Self { endpoint, system_id: system_id(driver_info)? })
    }
}

/// How messages name a key of `driver_info`.
fn key(name: &str) -> String {
    format!("driver_info/{name}")
}

fn text<'a>(info: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Error> {
    match info.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => {
            Err(Error::invalid(key(name), "it is empty; give a value or remove the key"))
        }
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(Error::invalid(key(name), "it must be a string"))
        }
    }
}

fn trust(info: &Map<String, Value>, settings: &RedfishSettings) -> Result<Trust, Error> {
    const NAME: &str = "redfish_verify_ca";
    let verify = match info.get(NAME) {
        None | Some(Value::Null) => settings.verify_ca.clone(),
        Some(Value::Bool(verify)) => VerifyCa::Switch(*verify),
        Some(Value::String(text)) => match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" | "t" | "y" => VerifyCa::Switch(true),
            "false" | "no" | "off" | "0" | "f" | "n" => VerifyCa::Switch(false),
            _ => {
                let path = PathBuf::from(text);
                if !path.exists() {
                    let why = format!(
                        "it is neither true nor false, and there is no file or folder {text} on \
                         this machine"
                    );
                    return Err(Error::invalid(key(NAME), why));
                }
                VerifyCa::Path(path)
            }
        },
        Some(Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return Err(Error::invalid(key(NAME), "it must be true, false or a path"));
        }
    };
    Ok(match verify {
        VerifyCa::Switch(true) => Trust::System,
        VerifyCa::Switch(false) => Trust::Nobody,
        VerifyCa::Path(path) => Trust::File(path),
    })
}

fn auth(info: &Map<String, Value>, settings: &RedfishSettings) -> Result<Auth, Error> {
    let auth_type = match text(info, "redfish_auth_type")? {
        None => settings.auth_type,
        Some(name) => name.parse().map_err(|()| {
            let why = format!("'{name}' is none of 'auto', 'basic' and 'session'");
            Error::invalid(key("redfish_auth_type"), why)
        })?,
    };
    Ok(match auth_type {
        AuthType::Auto => Auth::Auto,
        AuthType::Basic => Auth::Basic,
        AuthType::Session => Auth::Session,
    })
}

fn min_tls(info: &Map<String, Value>) -> Result<MinTls, Error> {
    match text(info, "redfish_tls_minimum_version")? {
        None | Some("1.2") => Ok(MinTls::V1_2),
        Some("1.3") => Ok(MinTls::V1_3),
        // What Ironic takes is taken; such an old TLS is spoken all the same by nobody here.
        Some("1.1") => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::warn!("redfish_tls_minimum_version 1.1 is not safe: 1.2 is used instead");
            });
            Ok(MinTls::V1_2)
        }
        Some(other) => Err(Error::invalid(
            key("redfish_tls_minimum_version"),
            format!("'{other}' is neither '1.2' nor '1.3'"),
        )),
    }
}

fn system_id(info: &Map<String, Value>) -> Result<Option<String>, Error> {
    const NAME: &str = "redfish_system_id";
    let Some(id) = text(info, NAME)? else { return Ok(None) };
    if id.contains(char::is_whitespace) || id.contains("..") || id.contains("://") {
        let why = format!("'{id}' is not the path of a System, such as /redfish/v1/Systems/1");
        return Err(Error::invalid(key(NAME), why));
    }
    Ok(Some(id.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(info: Value) -> Result<Access, String> {
        let Value::Object(info) = info else { panic!("an object") };
        Access::read(&info, &RedfishSettings::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_says_where_its_bmc_is() {
        let access = read(json!({
            "redfish_address": "bmc7.example:8443/api/redfish/v1",
            "redfish_username": "admin", "redfish_password": "secret",
            "redfish_verify_ca": "False", "redfish_auth_type": "basic",
            "redfish_system_id": "/redfish/v1/Systems/1",
        }))
        .unwrap();
        assert_eq!(access.endpoint.address, "https://bmc7.example:8443");
        assert_eq!(access.endpoint.trust, Trust::Nobody);
        assert_eq!(access.endpoint.auth, Auth::Basic);
        assert_eq!(access.system_id.as_deref(), Some("/redfish/v1/Systems/1"));
    }

    #[test]
    fn what_ironic_knows_and_we_do_not_makes_no_node_invalid() {
        let access = read(json!({
            "redfish_address": "bmc",
            "redfish_tls_minimum_version": "1.1",
            "redfish_tls_ciphers": "ECDHE-RSA-AES256-GCM-SHA384",
        }))
        .unwrap();
        assert_eq!(access.endpoint.min_tls, MinTls::V1_2);
    }

    #[test]
    fn mistakes_are_named_with_what_to_do() {
        for (info, key, words) in [
            (json!({}), "redfish_address", "where the BMC is"),
            (json!({"redfish_address": ""}), "redfish_address", "empty"),
            (json!({"redfish_address": 5}), "redfish_address", "string"),
            (json!({"redfish_address": "ftp://bmc"}), "redfish_address", "http"),
            (json!({"redfish_address": "https://bmc:99999"}), "redfish_address", "port"),
            (json!({"redfish_address": "b", "redfish_password": "p"}), "redfish_username", "whose"),
            (json!({"redfish_address": "b", "redfish_username": "u"}), "redfish_password", "give"),
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
            assert!(error.contains(key) && error.contains(words), "{info}: {error}");
        }
    }
}
