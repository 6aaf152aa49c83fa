// SPDX-License-Identifier: Apache-2.0
//! Sealing keys from a server with Vault's HTTP API (HashiCorp Vault, OpenBao): the secrets engine KV
//! version 2.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use error_chain::error_chain;
use node_model::Secret;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use store::{KeySource, KeySourceError, MAX_KEYS_BYTES, SealError};

use crate::config::VaultSection;

/// The variable with the token, as for Vault's own programs.
const TOKEN_VARIABLE: &str = "VAULT_TOKEN";

/// Maximum size of a response: the keys and some metadata.
const MAX_RESPONSE_BYTES: usize = MAX_KEYS_BYTES + 64 * 1024;

/// Sealing keys in a secret of a Vault server.
#[derive(Debug)]
pub(crate) struct VaultKeys {
    url: Url,
    field: String,
    token_file: Option<PathBuf>,
    namespace: Option<String>,
    ca_file: Option<PathBuf>,
    timeout: Duration,
}

/// The response of `GET /v1/<mount>/data/<path>`.
#[derive(Deserialize)]
struct SecretVersion {
    data: SecretData,
}

#[derive(Deserialize)]
struct SecretData {
    /// Null if the version was deleted.
    data: Option<serde_json::Map<String, Value>>,
}

impl VaultKeys {
    /// Checks the settings.
    pub(crate) fn new(section: &VaultSection, timeout: Duration) -> anyhow::Result<Self> {
        let address = section.address.as_deref().unwrap_or_default();
        let mut url = Url::parse(address).with_context(|| format!("the address {address:?}"))?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            bail!("the address {address:?} is not an http or https URL");
        }
        if !url.username().is_empty() || url.password().is_some() {
            bail!("the address must not contain a user or password");
        }
        let path = format!(
            "{}/v1/{}/data/{}",
            url.path().trim_end_matches('/'),
            section.mount.trim_matches('/'),
            section.path.trim_matches('/')
        );
        url.set_path(&path);
        Ok(Self {
            url,
            field: section.field.clone(),
            token_file: section.token_file.clone(),
            namespace: section.namespace.clone(),
            ca_file: section.ca_file.clone(),
            timeout,
        })
    }

    fn token(&self) -> Result<Secret<String>, String> {
        let text = match &self.token_file {
            Some(path) => std::fs::read_to_string(path)
                .map_err(|error| format!("the token file {}: {error}", path.display()))?,
            None => std::env::var(TOKEN_VARIABLE).map_err(|_| {
                format!("set {TOKEN_VARIABLE}, or secrets.vault.token_file in the configuration")
            })?,
        };
        Ok(Secret::new(text.trim().to_owned()))
    }

    async fn fetch(&self) -> Result<Option<Secret<String>>, String> {
        let tls = server_trust::client_config_for_ca_file(self.ca_file.as_deref())?;
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .timeout(self.timeout)
            .user_agent(concat!("ferrite/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error_chain(&error))?;
        let mut request = client
            .get(self.url.clone())
            .header("X-Vault-Token", self.token()?.reveal())
            .header("X-Vault-Request", "true");
        if let Some(namespace) = &self.namespace {
            request = request.header("X-Vault-Namespace", namespace);
        }
        let mut response = request.send().await.map_err(|error| error_chain(&error))?;
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|error| error_chain(&error))? {
            if body.len() + part.len() > MAX_RESPONSE_BYTES {
                return Err(format!("the response exceeds {MAX_RESPONSE_BYTES} bytes"));
            }
            body.extend_from_slice(&part);
        }
        match response.status() {
            StatusCode::OK => self.keys(&body),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::FORBIDDEN => {
                Err("the server denies access (403); check the token and its policy".to_owned())
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                Err("the server is sealed or not initialised (503); unseal it first".to_owned())
            }
            status => Err(format!("the server returned {status}")),
        }
    }

    fn keys(&self, body: &[u8]) -> Result<Option<Secret<String>>, String> {
        let version: SecretVersion = serde_json::from_slice(body)
            .map_err(|_| "the response is not that of a KV version 2 secrets engine".to_owned())?;
        let Some(fields) = version.data.data else { return Ok(None) };
        match fields.get(&self.field) {
            Some(Value::String(text)) => Ok(Some(Secret::new(text.clone()))),
            Some(_) => Err(format!("the field {} is not a text", self.field)),
            None => Err(format!("the secret has no field {}", self.field)),
        }
    }
}

impl KeySource for VaultKeys {
    fn describe(&self) -> String {
        format!("the field {} of the secret {}", self.field, self.url)
    }

    fn load(&self) -> Result<Option<Secret<String>>, SealError> {
        // The caller may be on a thread of a runtime, which must not start another one.
        let fetched = std::thread::scope(|scope| {
            let fetch = || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|error| error.to_string())?
                    .block_on(self.fetch())
            };
            scope.spawn(fetch).join().unwrap_or_else(|_| Err("the request panicked".to_owned()))
        });
        fetched.map_err(|text| SealError::Source(KeySourceError(text)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Serves one request on a free port with this response. Returns the head of the request.
    fn load(
        status: &str,
        body: &str,
        change: impl FnOnce(&mut VaultSection),
    ) -> (Result<Option<String>, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let server = std::thread::spawn(move || {
            let (mut connection, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap() > 0 {}
            let _ = connection.write_all(response.as_bytes());
            head
        });
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "hvs.sesame\n").unwrap();
        let mut section = VaultSection {
            address: Some(format!("http://{address}")),
            token_file: Some(token),
            ..VaultSection::default()
        };
        change(&mut section);
        let keys = VaultKeys::new(&section, Duration::from_secs(60)).unwrap();
        let loaded = match keys.load() {
            Ok(text) => Ok(text.map(|text| text.reveal().clone())),
            Err(SealError::Source(KeySourceError(text))) => Err(text),
            Err(error) => Err(error.to_string()),
        };
        (loaded, server.join().unwrap())
    }

    /// The format of Vault's documentation.
    const VERSION_TWO: &str = r#"{"request_id":"x","lease_duration":0,"data":{"data":{"keys":"one two",
        "other":1},"metadata":{"version":2,"destroyed":false}},"warnings":null}"#;

    #[test]
    fn keys_are_fetched() {
        let (keys, head) = load("200 OK", VERSION_TWO, |section| {
            section.mount = "/kv/".to_owned();
            section.path = "prod/ferrite".to_owned();
            section.namespace = Some("team".to_owned());
        });
        assert_eq!(keys, Ok(Some("one two".to_owned())));
        assert!(head.starts_with("GET /v1/kv/data/prod/ferrite HTTP/1.1\r\n"), "{head}");
        for header in ["x-vault-token: hvs.sesame", "x-vault-namespace: team"] {
            assert!(head.to_lowercase().contains(header), "{head}");
        }
    }

    #[test]
    fn failures_are_explained() {
        for (status, body, expected) in [
            ("404 Not Found", r#"{"errors":[]}"#, Ok(None)),
            ("200 OK", r#"{"data":{"data":null,"metadata":{}}}"#, Ok(None)),
            ("403 Forbidden", r#"{"errors":["permission denied"]}"#, Err("check the token")),
            ("503 Service Unavailable", "{}", Err("unseal it first")),
            ("500 Oops", "{}", Err("returned 500")),
            ("200 OK", "[]", Err("KV version 2")),
            ("200 OK", r#"{"data":{"keys":"of version 1"}}"#, Ok(None)),
            ("200 OK", r#"{"data":{"data":{"keys":7}}}"#, Err("not a text")),
            ("200 OK", r#"{"data":{"data":{"key":"x"}}}"#, Err("no field keys")),
        ] {
            let (found, _) = load(status, body, |_| {});
            match (found, expected) {
                (Ok(found), Ok(expected)) => {
                    assert_eq!(found, expected.map(|(): ()| String::new()), "{body}");
                }
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, _) => panic!("{status} {body}: {found:?}"),
            }
        }
        let long = format!(r#"{{"data":{{"data":{{"keys":"{}"}}}}}}"#, "x".repeat(1 << 20));
        assert!(load("200 OK", &long, |_| {}).0.unwrap_err().contains("exceeds"));
    }
}
