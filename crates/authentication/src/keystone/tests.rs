// SPDX-License-Identifier: Apache-2.0
//! Tests of Keystone tokens with a local service and injected time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use access_policy::{Caller, CallerScope};
use node_model::{Secret, Timestamp};
use serde_json::{Value, json};

use super::subject_token::SubjectToken;
use super::{KeystoneServiceUser, KeystoneSettings, KeystoneValidator, SERVICE};
use crate::error::AuthError;
use crate::test_service::TestService;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const DOWN: AuthError = AuthError::IdentityServiceDown { service: SERVICE };

/// The state of the service.
#[derive(Default)]
struct KeystoneState {
    tokens: HashMap<String, Value>,
    /// The valid token of the service user.
    own_token: String,
    /// Status of all responses, for failures.
    failure: Option<u16>,
}

struct TestKeystone {
    service: TestService,
    state: Arc<Mutex<KeystoneState>>,
    validator: KeystoneValidator,
    start: Instant,
    files: tempfile::TempDir,
}

fn project_token(roles: &[&str], expires_at: Timestamp) -> Value {
    let roles: Vec<Value> = roles.iter().map(|role| json!({"id": "r", "name": role})).collect();
    json!({"token": {
        "methods": ["password"], "expires_at": expires_at.to_string().replace("+00:00", ".000000Z"),
        "user": {"id": "u1", "name": "alice", "domain": {"id": "default", "name": "Default"}},
        "project": {"id": "p1", "name": "storage", "domain": {"id": "default", "name": "Default"}},
        "roles": roles, "is_domain": false,
    }})
}

fn password_user() -> KeystoneServiceUser {
    KeystoneServiceUser::Password {
        user: "ferrite".to_owned(),
        user_domain: "Default".to_owned(),
        project: "service".to_owned(),
        project_domain: "Default".to_owned(),
    }
}

impl TestKeystone {
    async fn start(service_user: KeystoneServiceUser) -> Self {
        let state = Arc::new(Mutex::new(KeystoneState {
            own_token: "own-token-000000001".to_owned(),
            ..KeystoneState::default()
        }));
        let shared = Arc::clone(&state);
        let service = TestService::start(move |_, request| {
            let state = shared.lock().unwrap();
            if let Some(status) = state.failure {
                return (status, String::new(), Value::Null);
            }
            let header = |name: &str| {
                let line = request.headers.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_default().trim().to_owned()
            };
            match request.line.as_str() {
                "POST /identity/v3/auth/tokens?nocatalog" => {
                    let own = format!("X-Subject-Token: {}\r\n", state.own_token);
                    let expires_at = NOW.plus(Duration::from_secs(3600));
                    (201, own, project_token(&["service"], expires_at))
                }
                "GET /identity/v3/auth/tokens?nocatalog"
                | "GET /identity/v3/auth/tokens?nocatalog&allow_expired=1" => {
                    if header("x-auth-token:") != state.own_token {
                        return (401, String::new(), Value::Null);
                    }
                    let token = header("x-subject-token:");
                    let is_hidden = token == EXPIRED && !request.line.ends_with("&allow_expired=1");
                    match state.tokens.get(&token).filter(|_| !is_hidden) {
                        Some(token) => (200, String::new(), token.clone()),
                        None => (404, String::new(), json!({"error": {"code": 404}})),
                    }
                }
                _ => (400, String::new(), Value::Null),
            }
        })
        .await;
        let files = tempfile::tempdir().unwrap();
        let secret_file = files.path().join("secret");
        std::fs::write(&secret_file, "opensesame\n").unwrap();
        let validator = KeystoneValidator::new(KeystoneSettings {
            url: format!("{}/identity/v3/", service.url),
            service_user,
            secret_file,
            cache_time: Duration::from_secs(300),
            ca_file: None,
        });
        let validator = validator.unwrap();
        Self { service, state, validator, start: Instant::now(), files }
    }

    fn add(&self, token: &str, description: Value) {
        self.state.lock().unwrap().tokens.insert(token.to_owned(), description);
    }

    async fn check(&self, token: &str, seconds: u64) -> Result<Caller, AuthError> {
        self.check_for_service(token, None, seconds).await
    }

    async fn check_for_service(
        &self,
        token: &str,
        service: Option<&str>,
        seconds: u64,
    ) -> Result<Caller, AuthError> {
        let after = Duration::from_secs(seconds);
        let (token, service) =
            (Secret::new(token.to_owned()), service.map(|token| Secret::new(token.to_owned())));
        let (now, instant) = (NOW.plus(after), self.start + after);
        let service = service.as_ref();
        let checked = self.validator.check_token(&token, service, CLIENT, now, instant).await;
        checked?.principal.caller(None)
    }

    fn validations(&self) -> usize {
        self.service.count("GET ")
    }
}

const TOKEN: &str = "gaaaaab-user-token-1";
/// A token that Keystone validates only with `allow_expired`.
const EXPIRED: &str = "gaaaaab-expired-token";

fn later(seconds: u64) -> Timestamp {
    NOW.plus(Duration::from_secs(seconds))
}

#[tokio::test]
async fn valid_tokens_are_cached_until_cache_time_or_expiry() {
    let keystone = TestKeystone::start(password_user()).await;
    keystone.add(TOKEN, project_token(&["Member", "reader"], later(3600)));
    let caller = keystone.check(TOKEN, 0).await.unwrap();
    assert_eq!(caller.user_id.as_deref(), Some("u1"));
    assert_eq!(caller.name(), Some("alice"));
    assert_eq!(caller.scope, CallerScope::Project(Arc::from("p1")));
    assert_eq!(caller.project_name.as_deref(), Some("storage"));
    assert_eq!(*caller.roles, [Arc::from("member"), Arc::<str>::from("reader")]);
    // A revoked token is accepted until the cache time is over, and not longer.
    keystone.state.lock().unwrap().tokens.clear();
    assert!(keystone.check(TOKEN, 299).await.is_ok());
    assert_eq!(keystone.validations(), 1);
    assert_eq!(keystone.check(TOKEN, 300).await, Err(AuthError::WrongToken));
    assert_eq!(keystone.validations(), 2);

    let short = "gaaaaab-user-token-2";
    keystone.add(short, project_token(&["member"], later(350)));
    assert!(keystone.check(short, 310).await.is_ok());
    assert!(keystone.check(short, 349).await.is_ok());
    assert_eq!(keystone.validations(), 3);
    assert_eq!(keystone.check(short, 350).await, Err(AuthError::WrongToken));
}

#[tokio::test]
async fn invalid_tokens_are_cached() {
    let keystone = TestKeystone::start(password_user()).await;
    assert_eq!(keystone.check(TOKEN, 0).await, Err(AuthError::WrongToken));
    assert_eq!(keystone.check(TOKEN, 29).await, Err(AuthError::WrongToken));
    assert_eq!(keystone.validations(), 1);
    keystone.add(TOKEN, project_token(&["member"], later(3600)));
    assert!(keystone.check(TOKEN, 30).await.is_ok());
    // Texts that cannot be tokens are not sent to Keystone.
    for text in ["", "short", "white space in the token", &"a".repeat(5000), "türkei-türkei-türkei"]
    {
        assert_eq!(keystone.check(text, 40).await, Err(AuthError::WrongToken), "{text}");
    }
    assert_eq!(keystone.validations(), 2);
}

#[tokio::test]
async fn services_may_send_expired_tokens_of_users() {
    let keystone = TestKeystone::start(password_user()).await;
    let (service, other) = ("gaaaaab-service-token", "gaaaaab-other-user-token");
    keystone.add(EXPIRED, project_token(&["member"], NOW));
    keystone.add(TOKEN, project_token(&["member"], later(3600)));
    keystone.add(other, project_token(&["admin"], later(3600)));
    keystone.add(service, project_token(&["service"], later(60)));
    assert_eq!(keystone.check(EXPIRED, 1).await, Err(AuthError::WrongToken));
    let caller = keystone.check_for_service(EXPIRED, Some(service), 1).await.unwrap();
    // The roles are those of the user.
    assert_eq!(*caller.roles, [Arc::<str>::from("member")]);
    assert_eq!(keystone.check(EXPIRED, 2).await, Err(AuthError::WrongToken));
    let validations = keystone.validations();
    assert!(keystone.check_for_service(EXPIRED, Some(service), 2).await.is_ok());
    assert_eq!(keystone.validations(), validations, "not cached");
    // A token of a service that is not valid is an error, even if the user's token is valid.
    assert!(keystone.check(TOKEN, 3).await.is_ok());
    for (service, seconds, expected) in [
        (other, 3, "does not have the role service"),
        (EXPIRED, 3, "unknown, expired or revoked"),
        ("gaaaaab-unknown-token", 3, "unknown, expired or revoked"),
        ("?", 3, "unknown, expired or revoked"),
        (service, 60, "unknown, expired or revoked"),
    ] {
        let error = keystone.check_for_service(TOKEN, Some(service), seconds).await.unwrap_err();
        assert_eq!(error.status().as_u16(), 401);
        assert!(error.to_string().contains(expected), "{service}: {error}");
    }
}

#[tokio::test]
async fn concurrent_requests_share_one_validation() {
    let keystone = TestKeystone::start(password_user()).await;
    keystone.add(TOKEN, project_token(&["member"], later(3600)));
    let (a, b, c) =
        tokio::join!(keystone.check(TOKEN, 0), keystone.check(TOKEN, 0), keystone.check(TOKEN, 0));
    assert!(a.is_ok() && b.is_ok() && c.is_ok());
    assert_eq!((keystone.validations(), keystone.service.count("POST ")), (1, 1));
}

/// A service that never responds: the connections are open and nothing is sent.
#[tokio::test]
async fn made_up_tokens_of_one_client_leave_turns_for_others() {
    let keystone = TestKeystone::start(password_user()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = KeystoneSettings {
        url: format!("http://{}/v3", listener.local_addr().unwrap()),
        service_user: password_user(),
        secret_file: keystone.files.path().join("secret"),
        cache_time: Duration::from_secs(300),
        ca_file: None,
    };
    let validator = KeystoneValidator::new(settings).unwrap();
    let made_up = (0..100).map(|number| {
        let token = Secret::new(format!("gaaaaab-made-up-token-{number}"));
        let validator = &validator;
        async move {
            let _ = validator.check_token(&token, None, CLIENT, NOW, Instant::now()).await;
        }
    });
    let mut waiting: Vec<_> = made_up.map(Box::pin).collect();
    for request in &mut waiting {
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(request.as_mut().poll(context).is_ready())
        });
        assert!(!polled.await);
    }
    assert_eq!(validator.free_turns(), 12);
}

#[tokio::test]
async fn failures_of_keystone_are_503_and_cached_tokens_keep_working() {
    let keystone = TestKeystone::start(password_user()).await;
    keystone.add(TOKEN, project_token(&["member"], later(3600)));
    assert!(keystone.check(TOKEN, 0).await.is_ok());
    let other = "gaaaaab-user-token-2";
    keystone.add(other, project_token(&["member"], later(3600)));
    for status in [500, 503, 403, 429] {
        keystone.state.lock().unwrap().failure = Some(status);
        let seconds = u64::from(status) % 100 * 10;
        assert_eq!(keystone.check(other, seconds).await, Err(DOWN), "{status}");
    }
    assert_eq!((DOWN.status().as_u16(), DOWN.retry_after()), (503, Some(Duration::from_secs(5))));
    assert!(keystone.check(TOKEN, 299).await.is_ok());
    // For two seconds Keystone is not contacted again.
    let contacts = keystone.validations();
    keystone.state.lock().unwrap().failure = Some(500);
    assert_eq!(keystone.check(other, 400).await, Err(DOWN));
    keystone.state.lock().unwrap().failure = None;
    assert_eq!(keystone.check(other, 401).await, Err(DOWN));
    assert_eq!(keystone.validations(), contacts + 1);
    // They start when the request has failed, which may be long after it was sent.
    assert_eq!(keystone.check(other, 402).await, Err(DOWN));
    assert!(keystone.check(other, 403).await.is_ok());
}

#[tokio::test]
async fn unreachable_keystone_is_503() {
    let keystone = TestKeystone::start(password_user()).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let settings = KeystoneSettings {
        url: format!("http://{address}/v3"),
        service_user: password_user(),
        secret_file: keystone.files.path().join("secret"),
        cache_time: Duration::from_secs(300),
        ca_file: None,
    };
    let validator = KeystoneValidator::new(settings).unwrap();
    let token = Secret::new(TOKEN.to_owned());
    let checked = validator.check_token(&token, None, CLIENT, NOW, Instant::now()).await;
    assert_eq!(checked.map(drop), Err(DOWN));
}

#[tokio::test]
async fn own_token_is_renewed() {
    let keystone = TestKeystone::start(password_user()).await;
    let token = |number: u64| format!("gaaaaab-user-token-{number}");
    for number in 1..=4 {
        keystone.add(&token(number), project_token(&["member"], later(36_000)));
    }
    assert!(keystone.check(&token(1), 0).await.is_ok());
    assert!(keystone.check(&token(2), 1).await.is_ok());
    assert_eq!(keystone.service.count("POST "), 1);
    // Revoked: Keystone responds 401 once.
    keystone.state.lock().unwrap().own_token = "own-token-000000002".to_owned();
    assert!(keystone.check(&token(3), 2).await.is_ok());
    assert_eq!(keystone.service.count("POST "), 2);
    // It expires in less than a minute.
    assert!(keystone.check(&token(4), 3550).await.is_ok());
    assert_eq!(keystone.service.count("POST "), 3);
}

#[tokio::test]
async fn service_user_signs_in_with_password_or_application_credential() {
    let sign_in = |keystone: &TestKeystone| -> Value {
        let requests = keystone.service.requests();
        let request = requests.iter().find(|request| request.line.starts_with("POST ")).unwrap();
        serde_json::from_str(&request.body).unwrap()
    };
    let keystone = TestKeystone::start(password_user()).await;
    assert_eq!(keystone.check(TOKEN, 0).await, Err(AuthError::WrongToken));
    let user = json!({"name": "ferrite", "domain": {"name": "Default"}, "password": "opensesame"});
    assert_eq!(
        sign_in(&keystone),
        json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": "service", "domain": {"name": "Default"}}},
        }})
    );
    let credential = KeystoneServiceUser::ApplicationCredential { id: "abc".to_owned() };
    let keystone = TestKeystone::start(credential).await;
    assert_eq!(keystone.check(TOKEN, 0).await, Err(AuthError::WrongToken));
    assert_eq!(
        sign_in(&keystone),
        json!({"auth": {"identity": {
            "methods": ["application_credential"],
            "application_credential": {"id": "abc", "secret": "opensesame"},
        }}})
    );
}

#[test]
fn parses_scopes() {
    let project = project_token(&["service", "Service"], NOW);
    let changed = |project: Value, system: Value| {
        let mut token = project_token(&["admin"], NOW);
        token["token"]["project"] = project;
        token["token"]["system"] = system;
        token
    };
    for (token, expected) in [
        (project, "Project(\"p1\") service"),
        (changed(Value::Null, json!({"all": true})), "System admin"),
        // Unscoped, or in the scope of a domain.
        (changed(Value::Null, Value::Null), "Unscoped "),
        (changed(Value::Null, json!({"all": false})), "Unscoped "),
    ] {
        let caller = SubjectToken::parse(token).unwrap().principal.caller(None).unwrap();
        assert_eq!(format!("{:?} {}", caller.scope, caller.roles.join(",")), expected);
    }
    for body in [Value::Null, json!({}), json!({"token": {"expires_at": "x", "user": {}}})] {
        assert!(SubjectToken::parse(body).is_err());
    }
}
