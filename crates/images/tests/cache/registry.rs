// SPDX-License-Identifier: Apache-2.0
//! A container registry with tokens, and one with wrong content.

use base64::Engine as _;
use images::signature::{PublicKey, SignaturePolicy};
use images::{
    CacheRequest, CacheSettings, DockerConfig, ImageCache, ImageCredentials, OciReference,
    SignatureSettings, TargetFormat,
};
use ring::signature::{EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::server::{ImageTestServer, ServerReply, TestServerRequest, http_response, ok, status};
use crate::{disk_request, error_text, settings, sha256, test_bytes};

const USER: &str = "Basic bWU6aHVzaA==";

fn digest(content: &[u8]) -> String {
    format!("sha256:{}", sha256(content))
}

fn manifest(layers: &[&[u8]]) -> Vec<u8> {
    let layers: Vec<Value> = layers
        .iter()
        .map(|layer| json!({"mediaType": "x", "digest": digest(layer), "size": layer.len()}))
        .collect();
    json!({"schemaVersion": 2, "layers": layers}).to_string().into_bytes()
}

/// A registry with `os:1`, an index with a disk for each of two architectures, `os:flat`, a
/// manifest, and `os:box`, a container.
struct TestRegistry {
    amd64: Vec<u8>,
    arm64: Vec<u8>,
    /// Replaces or removes the content at these paths.
    overrides: Vec<(String, Vec<u8>)>,
}

impl TestRegistry {
    fn new() -> Self {
        let arm64 = test_bytes(3000).iter().map(|byte| byte ^ 1).collect();
        Self { amd64: test_bytes(3000), arm64, overrides: Vec::new() }
    }

    fn files(&self) -> Vec<(String, Vec<u8>)> {
        let manifests = [&self.amd64, &self.arm64].map(|blob| manifest(&[blob]));
        let describe = |manifest: &[u8], architecture: &str| {
            json!({"digest": digest(manifest), "size": manifest.len(),
                "platform": {"architecture": architecture, "os": "linux"},
                "annotations": {"disktype": "raw"}})
        };
        let index = json!({"schemaVersion": 2, "manifests":
            [describe(&manifests[0], "x86_64"), describe(&manifests[1], "arm64")]});
        let index = index.to_string().into_bytes();
        let mut files = self.overrides.clone();
        files.extend([
            (format!("manifests/{}", digest(&index)), index.clone()),
            ("manifests/1".to_owned(), index),
            ("manifests/flat".to_owned(), manifests[0].clone()),
            ("manifests/box".to_owned(), manifest(&[b"one", b"two"])),
        ]);
        files.extend(manifests.into_iter().map(|it| (format!("manifests/{}", digest(&it)), it)));
        let blobs = [&self.amd64, &self.arm64];
        files.extend(blobs.map(|it| (format!("blobs/{}", digest(it)), it.clone())));
        files
    }

    async fn start(self) -> ImageTestServer {
        let files = self.files();
        ImageTestServer::start(move |request| respond(request, &files)).await
    }
}

fn respond(request: &TestServerRequest, files: &[(String, Vec<u8>)]) -> ServerReply {
    let authorization = request.header("authorization");
    if let Some(query) = request.path.strip_prefix("/token?") {
        assert_eq!(query, "service=the+registry&scope=repository%3Aorg%2Fos%3Apull");
        return match authorization {
            Some(USER) => ok(br#"{"token": "letmein"}"#, ""),
            _ => status("401 Unauthorized"),
        };
    }
    if authorization != Some("Bearer letmein") {
        let host = request.header("host").unwrap();
        let header = format!(
            "WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"the registry\",scope=\"repository:org/os:pull\"\r\n"
        );
        return ServerReply::Bytes(http_response("401 Unauthorized", &header, 0, b""));
    }
    let found = files.iter().find(|(path, _)| request.path == format!("/v2/org/os/{path}"));
    found.map_or_else(|| status("404 Not Found"), |(_, content)| ok(content, ""))
}

fn cache(folder: &tempfile::TempDir, server: &ImageTestServer, config: &str) -> ImageCache {
    let host = server.url.strip_prefix("http://").unwrap();
    let registries = DockerConfig::parse(&config.replace("HOST", host)).unwrap();
    let plain_http_registries = vec![host.to_owned()];
    let settings = CacheSettings { registries, plain_http_registries, ..settings(folder.path()) };
    ImageCache::open(settings).unwrap()
}

fn request(server: &ImageTestServer, what: &str, architecture: Option<&str>) -> CacheRequest {
    let url = server.url.replace("http://", "oci://");
    CacheRequest {
        architecture: architecture.map(str::to_owned),
        credentials: Some(ImageCredentials::pull_secret("me:hush")),
        ..disk_request(&format!("{url}/org/os{what}"))
    }
}

#[tokio::test]
async fn selects_the_disk_image_of_the_architecture() {
    let registry = TestRegistry::new();
    let (amd64, arm64) = (registry.amd64.clone(), registry.arm64.clone());
    let by_digest = format!("@{}", digest(&manifest(&[&arm64])));
    let server = registry.start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, "{}");
    let rows = [
        (":1", Some("x86_64"), TargetFormat::AsIs, &amd64),
        (":1", Some("aarch64"), TargetFormat::Raw, &arm64),
        (":1", None, TargetFormat::AsIs, &amd64),
        (":flat", Some("aarch64"), TargetFormat::AsIs, &amd64),
        (&by_digest, None, TargetFormat::AsIs, &arm64),
    ];
    for (what, architecture, target_format, content) in rows {
        let request = CacheRequest { target_format, ..request(&server, what, architecture) };
        let entry =
            cache.get(&request).await.unwrap_or_else(|e| panic!("{what}: {}", error_text(&e)));
        assert!(std::fs::read(&entry.path).unwrap() == *content, "{what} {architecture:?}");
    }
    // The tag is resolved again, but the blob is cached.
    let blobs = || {
        let requests = server.requests.lock().unwrap();
        requests.iter().filter(|it| it.path.contains("/blobs/")).count()
    };
    let before = blobs();
    cache.get(&request(&server, ":1", Some("x86_64"))).await.unwrap();
    assert_eq!(blobs(), before);
}

#[tokio::test]
async fn reports_registry_errors() {
    let server = TestRegistry::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, "{}");
    let rows = [
        (
            ":1",
            Some("riscv64"),
            "has no disk image for riscv64 (it has: x86_64 (raw), arm64 (raw))",
        ),
        (":absent", None, "does not exist in its registry"),
        (":box", None, "has 2 layers and a disk image has one"),
    ];
    for (what, architecture, expected) in rows {
        let error = cache.get(&request(&server, what, architecture)).await.unwrap_err();
        assert!(error_text(&error).contains(expected), "{}", error_text(&error));
    }
    let anonymous = CacheRequest { credentials: None, ..request(&server, ":1", None) };
    let error = cache.get(&anonymous).await.unwrap_err();
    assert!(error_text(&error).contains("denies access to org/os"), "{}", error_text(&error));
}

#[tokio::test]
async fn uses_configured_credentials() {
    let server = TestRegistry::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, r#"{"auths": {"HOST/org": {"auth": "bWU6aHVzaA=="}}}"#);
    let request = CacheRequest { credentials: None, ..request(&server, ":flat", None) };
    assert_eq!(cache.get(&request).await.unwrap().size, 3000);
}

#[tokio::test]
async fn detects_wrong_registry_content() {
    let honest = TestRegistry::new();
    let blob = format!("blobs/{}", digest(&honest.amd64));
    let chosen = format!("manifests/{}", digest(&manifest(&[&honest.amd64])));
    let rows = [
        (blob, test_bytes(3000)[..2999].to_vec(), "its checksum is"),
        (chosen, manifest(&[b"evil"]), "has another digest"),
        ("manifests/1".to_owned(), b"[]".to_vec(), "sent an invalid response"),
        ("manifests/1".to_owned(), b"{}".to_vec(), "neither a manifest nor an index"),
        (
            "manifests/1".to_owned(),
            br#"{"layers": [{"digest": "../../x"}]}"#.to_vec(),
            "digest is invalid",
        ),
        ("manifests/1".to_owned(), vec![b' '; 5 << 20], "which is too large"),
    ];
    for (path, content, expected) in rows {
        let overrides = vec![(path, content)];
        let server = TestRegistry { overrides, ..TestRegistry::new() }.start().await;
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder, &server, "{}");
        let error = cache.get(&request(&server, ":1", Some("amd64"))).await.unwrap_err();
        assert!(error_text(&error).contains(expected), "{}", error_text(&error));
    }
}

#[tokio::test]
async fn registry_login_returns_configured_credentials() {
    let server = TestRegistry::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, r#"{"auths": {"HOST/org": {"auth": "bWU6aHVzaA=="}}}"#);
    let host = server.url.strip_prefix("http://").unwrap();
    for (repository, login) in [("org/os", Some("me:hush")), ("other/os", None)] {
        let place = OciReference::parse(&format!("oci://{host}/{repository}")).unwrap();
        assert_eq!(cache.registry_login(&place).as_deref(), login, "{repository}");
    }
}

/// A registry with `os:box` signed as `cosign sign` does, and the public key.
fn signed_registry(text: impl FnOnce(&str) -> Vec<u8>) -> (TestRegistry, PublicKey) {
    registry_with_signed(&digest(&manifest(&[b"one", b"two"])), text)
}

/// A registry with a signature for the manifest or index with this digest.
fn registry_with_signed(
    container: &str,
    text: impl FnOnce(&str) -> Vec<u8>,
) -> (TestRegistry, PublicKey) {
    let random = ring::rand::SystemRandom::new();
    let algorithm = &ring::signature::ECDSA_P256_SHA256_ASN1_SIGNING;
    let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
    let text = text(container);
    let signature = key.sign(&random, &text).unwrap();
    let signature = base64::engine::general_purpose::STANDARD.encode(signature.as_ref());
    let signatures = json!({"schemaVersion": 2, "layers": [{
        "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
        "digest": digest(&text), "size": text.len(),
        "annotations": {"dev.cosignproject.cosign/signature": signature},
    }]});
    let mut registry = TestRegistry::new();
    registry.overrides = vec![
        (format!("manifests/{}.sig", container.replace(':', "-")), signatures.to_string().into()),
        (format!("blobs/{}", digest(&text)), text),
    ];
    (registry, PublicKey::EcdsaP256(key.public_key().as_ref().to_vec()))
}

fn simple_signing(digest: &str) -> Vec<u8> {
    let image = json!({"docker-manifest-digest": digest});
    let identity = json!({"docker-reference": "registry/org/os"});
    let kind = "cosign container image signature";
    json!({"critical": {"identity": identity, "image": image, "type": kind}, "optional": null})
        .to_string()
        .into_bytes()
}

async fn verify_container(
    registry: TestRegistry,
    tag: &str,
    keys: Vec<PublicKey>,
    policy: SignaturePolicy,
) -> Result<String, String> {
    let server = registry.start().await;
    let folder = tempfile::tempdir().unwrap();
    let host = server.url.strip_prefix("http://").unwrap();
    let settings = CacheSettings {
        plain_http_registries: vec![host.to_owned()],
        signatures: SignatureSettings { keys, disk_image: policy, ..Default::default() },
        ..settings(folder.path())
    };
    let cache = ImageCache::open(settings).unwrap();
    let reference = OciReference::parse(&format!("oci://{host}/org/os:{tag}")).unwrap();
    let credentials = ImageCredentials::pull_secret("me:hush");
    match cache.verify_container(&reference, Some(&credentials)).await {
        Ok(pinned) => Ok(pinned.to_string().replace(host, "HOST")),
        Err(error) => Err(error_text(&error)),
    }
}

#[tokio::test]
async fn containers_are_verified_and_pinned() {
    use SignaturePolicy::{Off, Required, WhenPresent};
    let pinned = format!("oci://HOST/org/os@{}", digest(&manifest(&[b"one", b"two"])));
    let (registry, key) = signed_registry(simple_signing);
    let verified = verify_container(registry, "box", vec![key], Required).await;
    assert_eq!(verified, Ok(pinned.clone()));

    // Without a policy the reference is not changed, and the registry gets no request.
    let unchanged = verify_container(TestRegistry::new(), "none", Vec::new(), Off).await;
    assert_eq!(unchanged, Ok("oci://HOST/org/os:none".to_owned()));
    let unsigned = verify_container(TestRegistry::new(), "box", Vec::new(), WhenPresent).await;
    assert_eq!(unsigned, Ok(pinned));
    let error = verify_container(TestRegistry::new(), "box", Vec::new(), Required).await;
    assert!(error.clone().unwrap_err().contains("cosign sign"), "{error:?}");

    // Another key, and a signature of another container.
    let (registry, _) = signed_registry(simple_signing);
    let (_, other) = signed_registry(simple_signing);
    let error = verify_container(registry, "box", vec![other], WhenPresent).await;
    assert!(error.clone().unwrap_err().contains("none of the 1 configured keys"), "{error:?}");
    let (registry, key) = signed_registry(|_| simple_signing(&digest(b"another")));
    let error = verify_container(registry, "box", vec![key], Required).await;
    assert!(error.clone().unwrap_err().contains("none of the 1 configured keys"), "{error:?}");
}

/// The digest of the index `os:1`.
fn index_digest() -> String {
    let files = TestRegistry::new().files();
    digest(&files.iter().find(|(path, _)| path == "manifests/1").unwrap().1)
}

async fn get_signed_disk(
    registry: TestRegistry,
    what: &str,
    keys: Vec<PublicKey>,
    policy: SignaturePolicy,
) -> Result<Vec<u8>, String> {
    let server = registry.start().await;
    let folder = tempfile::tempdir().unwrap();
    let host = server.url.strip_prefix("http://").unwrap();
    let settings = CacheSettings {
        plain_http_registries: vec![host.to_owned()],
        signatures: SignatureSettings { keys, disk_image: policy, ..Default::default() },
        ..settings(folder.path())
    };
    let cache = ImageCache::open(settings).unwrap();
    let wanted = CacheRequest { target_format: TargetFormat::Raw, ..request(&server, what, None) };
    // The second time from the cache.
    for _ in 0..2 {
        cache.get(&wanted).await.map_err(|error| error_text(&error))?;
    }
    let entry = cache.get(&wanted).await.map_err(|error| error_text(&error))?;
    Ok(std::fs::read(&entry.path).unwrap())
}

#[tokio::test]
async fn disk_images_in_registries_must_be_signed() {
    use SignaturePolicy::{Required, WhenPresent};
    let disk = TestRegistry::new().amd64;
    let flat = digest(&manifest(&[&disk]));
    for (what, signed) in [(":1", index_digest()), (":flat", flat.clone())] {
        for policy in [Required, WhenPresent] {
            let (registry, key) = registry_with_signed(&signed, simple_signing);
            let got = get_signed_disk(registry, what, vec![key], policy).await;
            assert!(got.as_ref() == Ok(&disk), "{what}: {:?}", got.err());
            // A signature of another key, and one for another image.
            let (registry, _) = registry_with_signed(&signed, simple_signing);
            let (_, other) = registry_with_signed(&signed, simple_signing);
            let error = get_signed_disk(registry, what, vec![other], policy).await.unwrap_err();
            assert!(error.contains("none of the 1 configured keys"), "{error}");
            let another = |_: &str| simple_signing(&digest(b"another"));
            let (registry, key) = registry_with_signed(&signed, another);
            let error = get_signed_disk(registry, what, vec![key], policy).await.unwrap_err();
            assert!(error.contains("none of the 1 configured keys"), "{error}");
        }
        let error = get_signed_disk(TestRegistry::new(), what, Vec::new(), Required).await;
        assert!(error.clone().unwrap_err().contains("cosign sign"), "{error:?}");
        let unsigned = get_signed_disk(TestRegistry::new(), what, Vec::new(), WhenPresent).await;
        assert!(unsigned.as_ref() == Ok(&disk), "{what}: {:?}", unsigned.err());
    }
    // The signature of one image does not hold for another of the same repository.
    let (registry, key) = registry_with_signed(&flat, simple_signing);
    let error = get_signed_disk(registry, ":1", vec![key], Required).await.unwrap_err();
    assert!(error.contains("not signed"), "{error}");
}
