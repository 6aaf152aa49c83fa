// SPDX-License-Identifier: Apache-2.0
//! Tests of OpenID Connect with a local provider and injected time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use access_policy::{AuthMethod, CallerScope};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use node_model::{Project, ProjectId, Secret, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use store::{Store, StoreSettings};

use super::browser_login::{LoginRedirect, LoginRejection, LoginResponse};
use super::json_web_token::{TokenProblem, UnverifiedToken};
use super::provider::{OpenIdProvider, TokenRejection};
use super::signing_keys::SigningAlgorithm;
use super::{ClaimMapping, OpenIdSettings};
use crate::authenticator::{AuthSettings, Authenticator};
use crate::error::{AuthError, AuthSetupError};
use crate::test_service::TestService;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const NOW_SECS: i64 = 1_800_000_000;

/// A key of the provider.
enum TestKey {
    Rsa(RsaKeyPair),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl TestKey {
    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_pkcs8(include_bytes!("test_rsa_key.der")).unwrap())
    }

    fn p256() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap())
    }

    fn ed25519() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap())
    }

    fn public(&self, id: &str) -> Value {
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Rsa(key) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(key.public_key());
                json!({"kty": "RSA", "use": "sig", "kid": id, "n": text(&public.n), "e": text(&public.e)})
            }
            Self::P256(key) => {
                let point = key.public_key().as_ref();
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": text(&point[1..33]), "y": text(&point[33..])})
            }
            Self::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": text(key.public_key().as_ref())})
            }
        }
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                if header["alg"] == "PS256" {
                    key.sign(&RSA_PSS_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
                } else {
                    key.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature)
                        .unwrap();
                }
                signature
            }
            Self::P256(key) => key.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// What the provider publishes now.
#[derive(Default)]
struct Published {
    keys: Vec<Value>,
    is_down: bool,
    issuer: Option<String>,
    /// The response of the token endpoint.
    token: Value,
}

type SharedPublished = Arc<Mutex<Published>>;

async fn start(keys: Vec<Value>) -> (TestService, SharedPublished) {
    let published = Arc::new(Mutex::new(Published { keys, ..Published::default() }));
    let shared = Arc::clone(&published);
    let service = TestService::start(move |url, request| {
        let published = shared.lock().unwrap();
        let body = match request.line.as_str() {
            _ if published.is_down => return (500, String::new(), Value::Null),
            "GET /realm/.well-known/openid-configuration" => json!({
                "issuer": published.issuer.clone().unwrap_or_else(|| format!("{url}/realm")),
                "jwks_uri": format!("{url}/keys"),
                "authorization_endpoint": format!("{url}/authorize?tenant=1"),
                "token_endpoint": format!("{url}/token"),
            }),
            "GET /keys" => json!({"keys": published.keys}),
            "POST /token" if published.token.is_null() => {
                return (400, String::new(), json!({"error": "invalid_grant"}));
            }
            "POST /token" => published.token.clone(),
            _ => return (404, String::new(), Value::Null),
        };
        (200, String::new(), body)
    })
    .await;
    (service, published)
}

fn settings(service: &TestService) -> OpenIdSettings {
    OpenIdSettings {
        issuer: format!("{}/realm", service.url),
        client_id: Some("ui".to_owned()),
        client_secret_file: None,
        device_client_id: None,
        audiences: vec!["ferrite".to_owned()],
        scopes: vec!["openid".to_owned(), "profile".to_owned()],
        algorithms: vec![SigningAlgorithm::Rs256, SigningAlgorithm::Es256, SigningAlgorithm::EdDsa],
        leeway: Duration::from_secs(60),
        claims: ClaimMapping {
            user: "preferred_username".to_owned(),
            roles: "roles".to_owned(),
            projects: None,
            role_map: BTreeMap::new(),
        },
        ca_file: None,
    }
}

fn claims(service: &TestService) -> Value {
    json!({
        "iss": format!("{}/realm", service.url), "aud": "ferrite", "sub": "1234",
        "exp": NOW_SECS + 300, "iat": NOW_SECS, "roles": ["member@storage"],
    })
}

fn with(claims: &Value, name: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    claims
}

async fn verify(
    provider: &OpenIdProvider,
    token: &str,
    instant: Instant,
) -> Result<(), TokenRejection> {
    let token = UnverifiedToken::parse(token).unwrap();
    let audiences = ["ferrite".to_owned()];
    provider.verify(&token, &audiences, NOW, instant).await.map(drop)
}

#[tokio::test]
async fn checks_signature_and_claims() {
    use TokenProblem::{
        Algorithm, Audience, CriticalHeader, Expired, Issuer, NoExpiry, NoSubject, NotYetValid,
        Signature, Type, UnknownKey,
    };
    let (rsa, other) = (TestKey::rsa(), TestKey::p256());
    let (p256, ed25519) = (TestKey::p256(), TestKey::ed25519());
    let mut encryption = rsa.public("enc");
    encryption["use"] = json!("enc");
    let mut only_ps256 = rsa.public("ps");
    only_ps256["alg"] = json!("PS256");
    let keys = vec![rsa.public("r"), p256.public("p"), ed25519.public("e"), encryption, only_ps256];
    let (service, _) = start(keys).await;
    let provider = OpenIdProvider::new(settings(&service)).unwrap();
    let good = claims(&service);
    let header = |algorithm: &str, id: &str| json!({"alg": algorithm, "kid": id, "typ": "JWT"});
    let rs256 = header("RS256", "r");
    let claim = |name: &str, value: Value| rsa.sign(&rs256, &with(&good, name, value));
    let changed_header = |name: &str, value: Value| rsa.sign(&with(&rs256, name, value), &good);
    let valid = rsa.sign(&rs256, &good);
    let (signed, signature) = valid.rsplit_once('.').unwrap();
    let unsigned = |algorithm: &str, signature: &str| {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.{signature}", part(&header(algorithm, "r")), part(&good))
    };
    // The attack on libraries that take the public key as the secret of HS256.
    let hs256 = {
        let key = rsa.public("r")["n"].as_str().unwrap().to_owned();
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.as_bytes());
        let text = unsigned("HS256", "");
        let tag = ring::hmac::sign(&key, text.trim_end_matches('.').as_bytes());
        format!("{text}{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    };
    let other_claims = {
        let part = URL_SAFE_NO_PAD.encode(with(&good, "sub", json!("admin")).to_string());
        format!("{}.{part}.{signature}", signed.split_once('.').unwrap().0)
    };
    for (name, token, expected) in [
        ("RS256", valid.clone(), None),
        ("ES256", p256.sign(&header("ES256", "p"), &good), None),
        ("EdDSA", ed25519.sign(&header("EdDSA", "e"), &good), None),
        ("no key id", p256.sign(&json!({"alg": "ES256"}), &good), None),
        ("access token", changed_header("typ", json!("at+jwt")), None),
        ("list of audiences", claim("aud", json!(["x", "ferrite"])), None),
        ("just expired", claim("exp", json!(NOW_SECS - 59)), None),
        ("fraction", claim("exp", json!(1_800_000_100.5)), None),
        ("clock difference", claim("nbf", json!(NOW_SECS + 60)), None),
        ("expired", claim("exp", json!(NOW_SECS - 60)), Some(Expired)),
        ("no expiry", claim("exp", Value::Null), Some(NoExpiry)),
        ("text expiry", claim("exp", json!("9999999999")), Some(NoExpiry)),
        ("huge expiry", claim("exp", json!(1e300)), Some(NoExpiry)),
        ("not yet valid", claim("nbf", json!(NOW_SECS + 61)), Some(NotYetValid)),
        ("issued later", claim("iat", json!(NOW_SECS + 61)), Some(NotYetValid)),
        ("other audience", claim("aud", json!("other")), Some(Audience)),
        ("other audiences", claim("aud", json!(["a", "b"])), Some(Audience)),
        ("no audience", claim("aud", Value::Null), Some(Audience)),
        ("other issuer", claim("iss", json!("https://other.example")), Some(Issuer)),
        ("issuer with slash", claim("iss", json!(format!("{}/realm/", service.url))), Some(Issuer)),
        ("no subject", claim("sub", Value::Null), Some(NoSubject)),
        ("subject with line break", claim("sub", json!("a\nb")), Some(NoSubject)),
        ("none", unsigned("none", ""), Some(Algorithm)),
        ("None", unsigned("None", ""), Some(Algorithm)),
        ("HS256", hs256, Some(Algorithm)),
        ("RS384 is not allowed", changed_header("alg", json!("RS384")), Some(Algorithm)),
        ("no algorithm", changed_header("alg", Value::Null), Some(Algorithm)),
        ("critical extension", changed_header("crit", json!(["b64"])), Some(CriticalHeader)),
        ("logout token", changed_header("typ", json!("logout+jwt")), Some(Type)),
        ("changed claims", other_claims, Some(Signature)),
        ("other key", other.sign(&header("ES256", "p"), &good), Some(Signature)),
        ("no signature", format!("{signed}."), Some(Signature)),
        ("key of another kind", unsigned("ES256", signature), Some(UnknownKey)),
        ("encryption key", rsa.sign(&header("RS256", "enc"), &good), Some(UnknownKey)),
        ("key for PS256", rsa.sign(&header("RS256", "ps"), &good), Some(UnknownKey)),
        ("unknown key", rsa.sign(&header("RS256", "x"), &good), Some(UnknownKey)),
    ] {
        let result = verify(&provider, &token, Instant::now()).await;
        let expected = expected.map_or(Ok(()), |problem| Err(TokenRejection::Invalid(problem)));
        assert_eq!(result, expected, "{name}");
    }
    for text in ["", "a.b", "a.b.c", &valid[1..], &format!("{valid}.x"), &"a".repeat(20_000)] {
        assert!(UnverifiedToken::parse(text).is_none(), "{text}");
    }
}

#[tokio::test]
async fn fetches_rotated_keys() {
    let (old, new) = (TestKey::p256(), TestKey::p256());
    let (service, published) = start(vec![old.public("old")]).await;
    let provider = OpenIdProvider::new(settings(&service)).unwrap();
    let token =
        |key: &TestKey, id: &str| key.sign(&json!({"alg": "ES256", "kid": id}), &claims(&service));
    let (old_token, new_token) = (token(&old, "old"), token(&new, "new"));
    let unknown = Err(TokenRejection::Invalid(TokenProblem::UnknownKey));
    let start = Instant::now();
    let at = |seconds: u64| start + Duration::from_secs(seconds);

    assert_eq!(verify(&provider, &old_token, at(0)).await, Ok(()));
    published.lock().unwrap().keys = vec![old.public("old"), new.public("new")];
    // Unknown keys are looked up at most every ten seconds.
    assert_eq!(verify(&provider, &new_token, at(9)).await, unknown);
    assert_eq!(service.count("GET /keys"), 1);
    assert_eq!(verify(&provider, &new_token, at(10)).await, Ok(()));
    assert_eq!(service.count("GET /keys"), 2);
    for _ in 0..5 {
        let other = token(&new, "other");
        assert_eq!(verify(&provider, &other, at(11)).await, unknown);
    }
    assert_eq!(service.count("GET /keys"), 2);
    // A key that the provider has removed is not accepted after the next fetch.
    published.lock().unwrap().keys = vec![new.public("new")];
    assert_eq!(verify(&provider, &old_token, at(300)).await, Ok(()));
    assert_eq!(verify(&provider, &old_token, at(700)).await, unknown);
    assert_eq!(verify(&provider, &new_token, at(700)).await, Ok(()));
    // While the provider is down, the keys are used for an hour.
    published.lock().unwrap().is_down = true;
    assert_eq!(verify(&provider, &new_token, at(3600)).await, Ok(()));
    assert_eq!(verify(&provider, &new_token, at(4300)).await, Err(TokenRejection::ProviderDown));
    published.lock().unwrap().is_down = false;
    assert_eq!(verify(&provider, &new_token, at(4301)).await, Err(TokenRejection::ProviderDown));
    assert_eq!(verify(&provider, &new_token, at(4304)).await, Ok(()));
}

#[tokio::test]
async fn concurrent_requests_share_one_fetch() {
    let key = TestKey::p256();
    let (service, _) = start(vec![key.public("k")]).await;
    let provider = OpenIdProvider::new(settings(&service)).unwrap();
    let token = key.sign(&json!({"alg": "ES256", "kid": "k"}), &claims(&service));
    let now = Instant::now();
    let (a, b, c) = tokio::join!(
        verify(&provider, &token, now),
        verify(&provider, &token, now),
        verify(&provider, &token, now)
    );
    assert_eq!((a, b, c), (Ok(()), Ok(()), Ok(())));
    assert_eq!(service.count("GET /keys"), 1);
}

#[tokio::test]
async fn document_of_another_issuer_is_rejected() {
    let key = TestKey::p256();
    let (service, published) = start(vec![key.public("k")]).await;
    published.lock().unwrap().issuer = Some("https://other.example".to_owned());
    let provider = OpenIdProvider::new(settings(&service)).unwrap();
    let token = key.sign(&json!({"alg": "ES256", "kid": "k"}), &claims(&service));
    assert_eq!(verify(&provider, &token, Instant::now()).await, Err(TokenRejection::ProviderDown));
    let checked = UnverifiedToken::parse(&token).unwrap();
    let result = provider.check_token(&checked, NOW, Instant::now()).await;
    let error = result.map(drop).unwrap_err();
    assert_eq!(error, AuthError::IdentityServiceDown { service: super::SERVICE });
    assert_eq!((error.status().as_u16(), error.retry_after()), (503, Some(Duration::from_secs(5))));
}

#[tokio::test]
async fn settings_are_checked() {
    let (service, _) = start(Vec::new()).await;
    let good = settings(&service);
    for (bad, expected) in [
        (OpenIdSettings { issuer: "http://id.example".to_owned(), ..good.clone() }, "https"),
        (OpenIdSettings { algorithms: Vec::new(), ..good.clone() }, "algorithm"),
        (OpenIdSettings { audiences: Vec::new(), client_id: None, ..good.clone() }, "audience"),
        (OpenIdSettings { client_secret_file: Some("/none/s".into()), ..good.clone() }, "/none/s"),
        (OpenIdSettings { ca_file: Some("/none/ca".into()), ..good.clone() }, "/none/ca"),
    ] {
        let Err(AuthSetupError::OpenIdConnect { problem }) = OpenIdProvider::new(bad).map(drop)
        else {
            panic!("{expected}: accepted")
        };
        assert!(problem.contains(expected), "{problem}");
    }
    assert!(SigningAlgorithm::named("HS256").is_none());
    assert!(SigningAlgorithm::named("none").is_none());
}

/// The value of a parameter in a query or form.
fn parameter(text: &str, name: &str) -> String {
    let pairs = text.split(['?', '&']).filter_map(|pair| pair.split_once('='));
    let found = pairs
        .into_iter()
        .find(|(key, _)| percent_encoding::percent_decode_str(key).decode_utf8_lossy() == name);
    let value = found.map_or("", |(_, value)| value);
    percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned()
}

#[tokio::test]
async fn signs_browsers_in() {
    let key = TestKey::p256();
    let (service, published) = start(vec![key.public("k")]).await;
    let data = tempfile::tempdir().unwrap();
    let store =
        Store::open_with_clock(&StoreSettings::in_dir(data.path()), Arc::new(|| NOW)).unwrap();
    let provider = OpenIdProvider::new(settings(&service)).unwrap();
    let now = Instant::now();
    let redirect_uri = "https://ferrite.example/ui/oidc/callback";
    let started = provider.start_login(&store, redirect_uri.to_owned(), NOW, now).await;
    let LoginRedirect { url, cookie, .. } = started.unwrap();
    assert!(url.starts_with(&format!("{}/authorize?tenant=1&response_type=code&", service.url)));
    assert_eq!(parameter(&url, "redirect_uri"), redirect_uri);
    assert_eq!(parameter(&url, "scope"), "openid profile");
    assert_eq!(parameter(&url, "code_challenge_method"), "S256");
    let (state, nonce) = (parameter(&url, "state"), parameter(&url, "nonce"));
    // Neither the verifier nor the nonce can be read from the cookie.
    assert!(!cookie.reveal().contains(&nonce));

    let id_token = |nonce: &str, audience: Value, party: Value| {
        let claims = with(&claims(&service), "nonce", json!(nonce));
        let claims = with(&with(&claims, "aud", audience), "azp", party);
        json!({"id_token": key.sign(&json!({"alg": "ES256", "kid": "k"}), &claims)})
    };
    let response = || LoginResponse {
        code: Some(Secret::new("c&d".to_owned())),
        state: Some(state.clone()),
        cookie: Some(cookie.clone()),
        ..LoginResponse::default()
    };
    let late = NOW.plus(Duration::from_secs(601));
    let other = LoginResponse { state: Some("other".to_owned()), ..response() };
    let other_provider = LoginResponse { issuer: Some("https://x.example".into()), ..response() };
    let refused = LoginResponse { error: Some("access_denied".into()), ..response() };
    let good = id_token(&nonce, json!("ui"), Value::Null);
    for (response, time, token, expected) in [
        (response(), NOW, good.clone(), "ok"),
        (LoginResponse { cookie: None, ..response() }, NOW, good.clone(), "not started by this"),
        (other, NOW, good.clone(), "not started by this browser"),
        (response(), late, good.clone(), "more than ten minutes ago"),
        (other_provider, NOW, good.clone(), "from another issuer"),
        (refused, NOW, good.clone(), "refused: access_denied"),
        (LoginResponse { code: None, ..response() }, NOW, good.clone(), "there is no code"),
        (response(), NOW, Value::Null, "refused: invalid_grant"),
        (response(), NOW, json!({}), "no valid ID token"),
        (response(), NOW, id_token("other", json!("ui"), Value::Null), "another sign-in"),
        // An access token for the API is not a sign-in of the web UI.
        (response(), NOW, id_token(&nonce, json!("ferrite"), Value::Null), "another audience"),
        (response(), NOW, id_token(&nonce, json!(["ui", "x"]), json!("x")), "another audience"),
    ] {
        published.lock().unwrap().token = token;
        let result = provider.finish_login(&store, response, time, now).await;
        let shown = match &result {
            Ok(_) => "ok".to_owned(),
            Err(rejection) => rejection.to_string(),
        };
        assert!(shown.contains(expected), "{shown:?}, expected {expected:?}");
        if let Ok(principal) = result {
            let caller = principal.caller(None).unwrap();
            assert_eq!(caller.user_id.as_deref(), Some("oidc:1234"));
            assert_eq!(caller.scope, CallerScope::Project(Arc::from("storage")));
        }
    }
    let requests = service.requests();
    let exchange = requests.iter().find(|request| request.line == "POST /token").unwrap();
    assert_eq!(parameter(&exchange.body, "code"), "c&d");
    assert_eq!(parameter(&exchange.body, "client_id"), "ui");
    let verifier = parameter(&exchange.body, "code_verifier");
    assert_eq!(
        URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes())),
        parameter(&url, "code_challenge")
    );
    published.lock().unwrap().is_down = true;
    let result = provider.finish_login(&store, response(), NOW, now).await;
    assert!(matches!(result, Err(LoginRejection::ProviderDown)));
}

#[tokio::test]
async fn clients_with_a_secret_authenticate() {
    let key = TestKey::p256();
    let (service, _) = start(vec![key.public("k")]).await;
    let data = tempfile::tempdir().unwrap();
    let store =
        Store::open_with_clock(&StoreSettings::in_dir(data.path()), Arc::new(|| NOW)).unwrap();
    let file = data.path().join("secret");
    std::fs::write(&file, "s:1\n").unwrap();
    let settings = OpenIdSettings { client_secret_file: Some(file), ..settings(&service) };
    let provider = OpenIdProvider::new(settings).unwrap();
    let now = Instant::now();
    let started = provider.start_login(&store, "https://f/c".to_owned(), NOW, now).await.unwrap();
    let response = LoginResponse {
        code: Some(Secret::new("c".to_owned())),
        state: Some(parameter(&started.url, "state")),
        cookie: Some(started.cookie),
        ..LoginResponse::default()
    };
    provider.finish_login(&store, response, NOW, now).await.unwrap_err();
    let requests = service.requests();
    let exchange = requests.iter().find(|request| request.line == "POST /token").unwrap();
    let expected = base64::engine::general_purpose::STANDARD.encode("ui:s%3A1").to_lowercase();
    assert!(exchange.headers.contains(&format!("authorization: basic {expected}")));
    assert_eq!(parameter(&exchange.body, "client_id"), "");
}

#[tokio::test]
async fn authenticates_requests_with_tokens_and_sessions() {
    let key = TestKey::p256();
    let (service, published) = start(vec![key.public("k")]).await;
    let data = tempfile::tempdir().unwrap();
    let store =
        Store::open_with_clock(&StoreSettings::in_dir(data.path()), Arc::new(|| NOW)).unwrap();
    let enabled =
        AuthSettings { openid_connect: Some(settings(&service)), ..AuthSettings::default() };
    let opened = Authenticator::open(&enabled, store.clone(), Arc::new(|| NOW)).await.unwrap();
    let authenticator = opened.0;
    assert!(authenticator.is_required());
    assert_eq!(authenticator.challenge(), r#"Bearer realm="Baremetal API""#);
    let address = IpAddr::from([192, 0, 2, 1]);
    let headers = |name: &'static str, value: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    };
    let sign = |claims: &Value| key.sign(&json!({"alg": "ES256", "kid": "k"}), claims);
    let token = sign(&claims(&service));
    for headers in
        [headers("authorization", &format!("Bearer {token}")), headers("x-auth-token", &token)]
    {
        let caller = authenticator.identify(&headers, address).await.unwrap();
        assert_eq!(caller.method, AuthMethod::OpenIdConnect);
        assert_eq!(caller.scope, CallerScope::Project(Arc::from("storage")));
        assert_eq!(*caller.roles, [Arc::from("member"), Arc::<str>::from("reader")]);
    }
    let expired = sign(&with(&claims(&service), "exp", json!(NOW_SECS - 3600)));
    let foreign = sign(&with(&claims(&service), "iss", json!("https://other.example")));
    let other_audience = sign(&with(&claims(&service), "aud", json!("another")));
    for (wrong, expected) in [
        (expired.as_str(), "The token is not accepted: it has expired"),
        (&foreign, "The token is not accepted: it is from another issuer"),
        (&other_audience, "The token is not accepted: it is for another audience"),
        ("text", "The token is unknown, expired or revoked"),
    ] {
        let rejected = authenticator.identify(&headers("x-auth-token", wrong), address).await;
        let error = rejected.unwrap_err();
        assert_eq!((error.status().as_u16(), error.to_string().as_str()), (401, expected));
    }
    // As the password of any user, for clients that support nothing else.
    let password = base64::engine::general_purpose::STANDARD.encode(format!("any:{token}"));
    let basic = headers("authorization", &format!("Basic {password}"));
    let caller = authenticator.identify(&basic, address).await.unwrap();
    assert_eq!(caller.method, AuthMethod::OpenIdConnect);

    let started = authenticator.start_openid_login("https://f/c".to_owned()).await.unwrap();
    let id_claims = with(&claims(&service), "nonce", json!(parameter(&started.url, "nonce")));
    let id_token = sign(&with(&id_claims, "aud", json!("ui")));
    published.lock().unwrap().token = json!({"id_token": id_token});
    let response = LoginResponse {
        code: Some(Secret::new("c".to_owned())),
        state: Some(parameter(&started.url, "state")),
        cookie: Some(started.cookie),
        ..LoginResponse::default()
    };
    let signed_in = authenticator.finish_openid_login(response, address).await.unwrap();
    let cookie = headers("cookie", &format!("ferrite_session={}", signed_in.cookie.reveal()));
    let caller = authenticator.identify(&cookie, address).await.unwrap();
    assert_eq!(caller, signed_in.caller);
    assert_eq!(caller.user_id.as_deref(), Some("oidc:1234"));
    assert_eq!(caller.scope, CallerScope::Project(Arc::from("storage")));
    // A disabled project gives no roles, neither to tokens nor to sessions.
    let disabled = Project {
        id: ProjectId::random(),
        name: "storage".to_owned(),
        description: None,
        enabled: false,
        created_at: NOW,
        updated_at: None,
    };
    store.write(move |writer| writer.insert(&disabled)).await.unwrap();
    authenticator.expire_verified();
    for headers in [&cookie, &headers("x-auth-token", &token)] {
        let caller = authenticator.identify(headers, address).await.unwrap();
        assert_eq!((caller.scope, caller.roles), (CallerScope::Unscoped, Arc::default()));
    }
    // The session ends with a sign-out, and when OpenID Connect is disabled.
    let local = AuthSettings::local(data.path().join("password"));
    let other = Authenticator::open(&local, store.clone(), Arc::new(|| NOW)).await.unwrap().0;
    assert_eq!(other.challenge(), r#"Basic realm="Baremetal API""#);
    assert_eq!(other.identify(&cookie, address).await, Err(AuthError::Missing));
    authenticator.sign_out(&signed_in.cookie).await.unwrap();
    assert_eq!(authenticator.identify(&cookie, address).await, Err(AuthError::Missing));
}
