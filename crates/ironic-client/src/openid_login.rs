// SPDX-License-Identifier: Apache-2.0
//! Sign-in with the OpenID Connect provider of a Ferrite server: device authorization grant (RFC 8628), and
//! the file in which the tokens are kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::IronicClientError;
use crate::query::percent_encode;
use crate::secret::HiddenText;

/// A token is replaced this long before it expires.
const RENEWAL_MARGIN: u64 = 30;
/// Time between two questions whether the user has signed in, unless the provider sets another one.
const DEFAULT_INTERVAL: u64 = 5;
/// By how much the provider can increase it each time.
const SLOW_DOWN: u64 = 5;
/// Maximum time for the sign-in of the user, in seconds.
const MAX_WAIT: u64 = 30 * 60;

/// A saved sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIdLogin {
    /// The file.
    file: PathBuf,
    /// The server, which is the key in the file.
    url: String,
}

/// What the user has to do to sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DevicePrompt {
    /// The page to open.
    pub page: String,
    /// The code to enter there.
    pub code: String,
    /// A page that has the code already.
    pub page_with_code: Option<String>,
}

/// The tokens for one server.
#[derive(Clone, Serialize, Deserialize)]
struct SavedTokens {
    issuer: String,
    client_id: String,
    id_token: String,
    refresh_token: Option<String>,
    /// Seconds since 1970.
    expires_at: u64,
}

/// How a server describes its provider.
#[derive(Deserialize)]
struct ProviderOfServer {
    issuer: String,
    device_client_id: Option<String>,
    scopes: Vec<String>,
}

type LoginsByUrl = BTreeMap<String, SavedTokens>;

impl OpenIdLogin {
    /// The sign-in for a server, whether or not it is saved yet. The file is beside the profiles.
    pub(crate) fn for_server(profiles: &Path, url: &str) -> Self {
        Self { file: profiles.with_file_name("logins.json"), url: url.to_owned() }
    }

    /// Whether it is saved.
    pub(crate) fn is_saved(&self) -> bool {
        self.load().contains_key(&self.url)
    }

    /// The saved token; a new one if it expires soon.
    pub(crate) async fn token(&self, http: &Client) -> Result<HiddenText, IronicClientError> {
        if let Some(saved) = self.load().remove(&self.url)
            && saved.is_current()
        {
            return Ok(HiddenText::new(saved.id_token));
        }
        let _lock = self.lock().await?;
        let Some(saved) = self.load().remove(&self.url) else {
            return Err(failed("", "there is no saved sign-in; run `ferrite login`"));
        };
        // Another process may have renewed it.
        if saved.is_current() {
            return Ok(HiddenText::new(saved.id_token));
        }
        let issuer = saved.issuer.clone();
        let Some(refresh_token) = &saved.refresh_token else {
            return Err(failed(&issuer, "the sign-in has expired; run `ferrite login`"));
        };
        let endpoint = endpoint(&discover(http, &issuer).await?, "token_endpoint", &issuer)?;
        let fields = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.as_str()),
            ("client_id", saved.client_id.as_str()),
        ];
        let (is_ok, body) = post_form(http, &endpoint, &fields).await?;
        if !is_ok {
            let problem = format!("{}; run `ferrite login`", error_code(&body));
            return Err(failed(&issuer, &problem));
        }
        let renewed = SavedTokens::from_response(&body, &saved)?;
        self.save(renewed.clone())?;
        Ok(HiddenText::new(renewed.id_token))
    }

    /// Signs in: shows the prompt, waits for the user and saves the tokens.
    pub(crate) async fn sign_in(
        &self,
        http: &Client,
        show: impl FnOnce(&DevicePrompt),
    ) -> Result<(), IronicClientError> {
        let provider = provider_of(http, &self.url).await?;
        let issuer = provider.issuer;
        let Some(client_id) = provider.device_client_id else {
            return Err(failed(&issuer, "the server has no auth.oidc.device_client_id"));
        };
        let document = discover(http, &issuer).await?;
        let device_endpoint = endpoint(&document, "device_authorization_endpoint", &issuer)?;
        let token_endpoint = endpoint(&document, "token_endpoint", &issuer)?;
        let scope = provider.scopes.join(" ");
        let fields = [("client_id", client_id.as_str()), ("scope", scope.as_str())];
        let (is_ok, started) = post_form(http, &device_endpoint, &fields).await?;
        let text = |name: &str| started[name].as_str().map(str::to_owned);
        let (Some(device_code), Some(code), Some(page), true) =
            (text("device_code"), text("user_code"), text("verification_uri"), is_ok)
        else {
            return Err(failed(&issuer, &error_code(&started)));
        };
        show(&DevicePrompt { page, code, page_with_code: text("verification_uri_complete") });

        let fields = [
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", device_code.as_str()),
            ("client_id", client_id.as_str()),
        ];
        let mut interval = started["interval"].as_u64().unwrap_or(DEFAULT_INTERVAL).clamp(1, 60);
        let mut remaining = started["expires_in"].as_u64().unwrap_or(MAX_WAIT).min(MAX_WAIT);
        while remaining > 0 {
            tokio::time::sleep(Duration::from_secs(interval)).await;
            remaining = remaining.saturating_sub(interval);
            let (is_ok, body) = post_form(http, &token_endpoint, &fields).await?;
            if is_ok {
                let unknown = SavedTokens {
                    issuer,
                    client_id,
                    id_token: String::new(),
                    refresh_token: None,
                    expires_at: 0,
                };
                let tokens = SavedTokens::from_response(&body, &unknown)?;
                let _lock = self.lock().await?;
                return self.save(tokens);
            }
            match body["error"].as_str() {
                Some("authorization_pending") => {}
                Some("slow_down") => interval += SLOW_DOWN,
                _ => return Err(failed(&issuer, &error_code(&body))),
            }
        }
        Err(failed(&issuer, "the code was not entered in time"))
    }

    /// Waits until no other process changes the file. Providers accept a refresh token once, and end the
    /// sign-in if it is sent again.
    async fn lock(&self) -> Result<File, IronicClientError> {
        let path = self.file.with_extension("lock");
        let problem =
            |error: &dyn std::fmt::Display| format!("cannot lock {}: {error}", path.display());
        let locked = tokio::task::spawn_blocking({
            let path = path.clone();
            move || {
                if let Some(folder) = path.parent() {
                    std::fs::create_dir_all(folder)?;
                }
                let mut options = File::options();
                let file = options.create(true).append(true).mode(0o600).open(&path)?;
                file.lock()?;
                Ok::<File, std::io::Error>(file)
            }
        });
        match locked.await {
            Ok(Ok(file)) => Ok(file),
            Ok(Err(error)) => Err(failed(&self.url, &problem(&error))),
            Err(error) => Err(failed(&self.url, &problem(&error))),
        }
    }

    fn load(&self) -> LoginsByUrl {
        let text = std::fs::read(&self.file).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Replaces the file, which only its owner can read.
    fn save(&self, tokens: SavedTokens) -> Result<(), IronicClientError> {
        let mut logins = self.load();
        logins.insert(self.url.clone(), tokens);
        let text = serde_json::to_vec_pretty(&logins).unwrap_or_default();
        let temporary = self.file.with_extension(format!("tmp{}", std::process::id()));
        let write = || {
            if let Some(folder) = self.file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut options = std::fs::OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            options.open(&temporary)?.write_all(&text)?;
            std::fs::rename(&temporary, &self.file)
        };
        write().map_err(|error: std::io::Error| {
            let _ = std::fs::remove_file(&temporary);
            failed(&self.url, &format!("cannot write {}: {error}", self.file.display()))
        })
    }
}

impl SavedTokens {
    /// Whether the token is valid for long enough.
    fn is_current(&self) -> bool {
        self.expires_at > unix_time().saturating_add(RENEWAL_MARGIN)
    }

    /// The tokens in a response. Providers may omit a refresh token that stays the same.
    fn from_response(body: &Value, previous: &Self) -> Result<Self, IronicClientError> {
        let Some(id_token) = body["id_token"].as_str() else {
            let problem = "the response has no ID token; the scope openid is needed";
            return Err(failed(&previous.issuer, problem));
        };
        let refresh_token = body["refresh_token"].as_str().map(str::to_owned);
        Ok(Self {
            id_token: id_token.to_owned(),
            refresh_token: refresh_token.or_else(|| previous.refresh_token.clone()),
            expires_at: expiry(id_token).unwrap_or_default(),
            ..previous.clone()
        })
    }
}

/// The expiry in a token. The server verifies the token; here it only determines the renewal.
fn expiry(token: &str) -> Option<u64> {
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Value>(&claims).ok()?["exp"].as_u64()
}

/// The provider that a server uses.
async fn provider_of(http: &Client, server: &str) -> Result<ProviderOfServer, IronicClientError> {
    let session = get_json(http, &format!("{server}/ui/session")).await?;
    serde_json::from_value(session["oidc"].clone())
        .map_err(|_| failed(server, "the server does not use OpenID Connect"))
}

/// The discovery document of a provider.
async fn discover(http: &Client, issuer: &str) -> Result<Value, IronicClientError> {
    check_url(issuer, issuer)?;
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let document = get_json(http, &url).await?;
    if document["issuer"].as_str() == Some(issuer) {
        Ok(document)
    } else {
        Err(failed(issuer, "its discovery document is that of another issuer"))
    }
}

fn endpoint(document: &Value, name: &str, issuer: &str) -> Result<String, IronicClientError> {
    let Some(url) = document[name].as_str() else {
        return Err(failed(issuer, &format!("the provider has no {name}")));
    };
    check_url(url, issuer)?;
    Ok(url.to_owned())
}

/// Tokens are sent only over TLS, or to this host.
fn check_url(url: &str, issuer: &str) -> Result<(), IronicClientError> {
    let parsed = reqwest::Url::parse(url).ok();
    let is_safe = parsed.is_some_and(|parsed| match parsed.scheme() {
        "https" => true,
        "http" => matches!(parsed.host_str(), Some("127.0.0.1" | "localhost" | "[::1]")),
        _ => false,
    });
    if is_safe { Ok(()) } else { Err(failed(issuer, &format!("{url} is not an https URL"))) }
}

async fn get_json(http: &Client, url: &str) -> Result<Value, IronicClientError> {
    let unreachable =
        |error: reqwest::Error| IronicClientError::unreachable(url.to_owned(), error.without_url());
    let response = http.get(url).send().await.map_err(unreachable)?;
    let status = response.status();
    let body = response.bytes().await.map_err(unreachable)?;
    let body = serde_json::from_slice(&body).ok().filter(|_| status.is_success());
    body.ok_or_else(|| failed(url, &format!("it returned {status} and no JSON")))
}

async fn post_form(
    http: &Client,
    url: &str,
    fields: &[(&str, &str)],
) -> Result<(bool, Value), IronicClientError> {
    let unreachable =
        |error: reqwest::Error| IronicClientError::unreachable(url.to_owned(), error.without_url());
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", percent_encode(value))).collect();
    let request = http
        .post(url)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .header("Accept", "application/json")
        .body(pairs.join("&"));
    let response = request.send().await.map_err(unreachable)?;
    let is_ok = response.status().is_success();
    let body = response.bytes().await.map_err(unreachable)?;
    Ok((is_ok, serde_json::from_slice(&body).unwrap_or_default()))
}

/// The error of a provider as text.
fn error_code(body: &Value) -> String {
    let code = body["error"].as_str().unwrap_or("unexpected response");
    match body["error_description"].as_str() {
        Some(description) => format!("{code}: {description}"),
        None => code.to_owned(),
    }
}

fn failed(url: &str, problem: &str) -> IronicClientError {
    IronicClientError::OpenIdLoginFailed { url: url.to_owned(), problem: problem.to_owned() }
}

fn unix_time() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn id_token(expires_at: u64) -> String {
        format!("e30.{}.sig", URL_SAFE_NO_PAD.encode(json!({"exp": expires_at}).to_string()))
    }

    #[test]
    fn saves_logins_for_their_owner_only() {
        let folder = tempfile::tempdir().unwrap();
        let profiles = folder.path().join("ferrite/profiles.toml");
        let (one, other) = (
            OpenIdLogin::for_server(&profiles, "https://one"),
            OpenIdLogin::for_server(&profiles, "https://other"),
        );
        assert!(!one.is_saved());
        let tokens = |expires_at| SavedTokens {
            issuer: "https://id".to_owned(),
            client_id: "cli".to_owned(),
            id_token: id_token(expires_at),
            refresh_token: None,
            expires_at,
        };
        one.save(tokens(1)).unwrap();
        other.save(tokens(2)).unwrap();
        one.save(tokens(3)).unwrap();
        assert_eq!(one.load()["https://one"].expires_at, 3);
        assert_eq!(one.load()["https://other"].expires_at, 2);
        let file = folder.path().join("ferrite/logins.json");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn reads_tokens_of_responses() {
        let previous = SavedTokens {
            issuer: "https://id".to_owned(),
            client_id: "cli".to_owned(),
            id_token: "old".to_owned(),
            refresh_token: Some("old".to_owned()),
            expires_at: 1,
        };
        let renewed =
            SavedTokens::from_response(&json!({"id_token": id_token(7)}), &previous).unwrap();
        assert_eq!((renewed.expires_at, renewed.refresh_token.as_deref()), (7, Some("old")));
        let body = json!({"id_token": "opaque", "refresh_token": "new"});
        let renewed = SavedTokens::from_response(&body, &previous).unwrap();
        assert_eq!((renewed.expires_at, renewed.refresh_token.as_deref()), (0, Some("new")));
        assert!(SavedTokens::from_response(&json!({"access_token": "a"}), &previous).is_err());
    }

    #[test]
    fn tokens_are_sent_only_over_tls() {
        for (url, accepted) in [
            ("https://id.example/token", true),
            ("http://127.0.0.1:3000/token", true),
            ("http://[::1]:3000/token", true),
            ("http://id.example/token", false),
            ("http://127.0.0.1.id.example/token", false),
            ("http://127.0.0.1:x@id.example/token", false),
            ("http://127.0.0.1:1@id.example/token", false),
            ("ftp://id.example", false),
        ] {
            assert_eq!(check_url(url, "").is_ok(), accepted, "{url}");
        }
    }
}
