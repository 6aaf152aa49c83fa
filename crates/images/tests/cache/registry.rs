// SPDX-License-Identifier: Apache-2.0
//! A container registry with tokens, and one with wrong content.

use images::{
    CacheRequest, CacheSettings, DockerConfig, ImageCache, ImageCredentials, OciReference,
    TargetFormat,
};
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
        let mut files = self.overrides.clone();
        files.extend([
            ("manifests/1".to_owned(), index.to_string().into_bytes()),
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
