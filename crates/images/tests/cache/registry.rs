// SPDX-License-Identifier: Apache-2.0
//! A container registry that wants tokens, and one that lies.

use images::{Cache, CacheSettings, Credentials, DockerConfig, Reference, Request, Wanted};
use serde_json::{Value, json};

use crate::server::{Asked, Reply, Server, ok, status, whole};
use crate::{bytes, disk, settings, sha256, words};

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
struct Registry {
    amd64: Vec<u8>,
    arm64: Vec<u8>,
    /// Gives another blob, manifest or nothing at all for these paths.
    lies: Vec<(String, Vec<u8>)>,
}

impl Registry {
    fn new() -> Self {
        let arm64 = bytes(3000).iter().map(|byte| byte ^ 1).collect();
        Self { amd64: bytes(3000), arm64, lies: Vec::new() }
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
        let mut files = self.lies.clone();
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

    async fn start(self) -> Server {
        let files = self.files();
        Server::start(move |asked| answer(asked, &files)).await
    }
}

fn answer(asked: &Asked, files: &[(String, Vec<u8>)]) -> Reply {
    let authorization = asked.header("authorization");
    if let Some(query) = asked.path.strip_prefix("/token?") {
        assert_eq!(query, "service=the+registry&scope=repository%3Aorg%2Fos%3Apull");
        return match authorization {
            Some(USER) => ok(br#"{"token": "letmein"}"#, ""),
            _ => status("401 Unauthorized"),
        };
    }
    if authorization != Some("Bearer letmein") {
        let host = asked.header("host").unwrap();
        let header = format!(
            "WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"the registry\",scope=\"repository:org/os:pull\"\r\n"
        );
        return Reply::Bytes(whole("401 Unauthorized", &header, 0, b""));
    }
    let found = files.iter().find(|(path, _)| asked.path == format!("/v2/org/os/{path}"));
    found.map_or_else(|| status("404 Not Found"), |(_, content)| ok(content, ""))
}

fn cache(folder: &tempfile::TempDir, server: &Server, config: &str) -> Cache {
    let host = server.url.strip_prefix("http://").unwrap();
    let registries = DockerConfig::parse(&config.replace("HOST", host)).unwrap();
    let plain_http_registries = vec![host.to_owned()];
    let settings = CacheSettings { registries, plain_http_registries, ..settings(folder.path()) };
    Cache::open(settings).unwrap()
}

fn request(server: &Server, what: &str, architecture: Option<&str>) -> Request {
    let url = server.url.replace("http://", "oci://");
    Request {
        architecture: architecture.map(str::to_owned),
        credentials: Some(Credentials::pull_secret("me:hush")),
        ..disk(&format!("{url}/org/os{what}"))
    }
}

#[tokio::test]
async fn each_architecture_gets_its_disk() {
    let registry = Registry::new();
    let (amd64, arm64) = (registry.amd64.clone(), registry.arm64.clone());
    let by_digest = format!("@{}", digest(&manifest(&[&arm64])));
    let server = registry.start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, "{}");
    let rows = [
        (":1", Some("x86_64"), Wanted::AsIs, &amd64),
        (":1", Some("aarch64"), Wanted::Raw, &arm64),
        (":1", None, Wanted::AsIs, &amd64),
        (":flat", Some("aarch64"), Wanted::AsIs, &amd64),
        (&by_digest, None, Wanted::AsIs, &arm64),
    ];
    for (what, architecture, wanted, content) in rows {
        let request = Request { wanted, ..request(&server, what, architecture) };
        let entry = cache.get(&request).await.unwrap_or_else(|e| panic!("{what}: {}", words(&e)));
        assert!(std::fs::read(&entry.path).unwrap() == *content, "{what} {architecture:?}");
    }
    // Again: the registry says what the tag means, and the blob is here.
    let blobs = || {
        let asked = server.asked.lock().unwrap();
        asked.iter().filter(|it| it.path.contains("/blobs/")).count()
    };
    let before = blobs();
    cache.get(&request(&server, ":1", Some("x86_64"))).await.unwrap();
    assert_eq!(blobs(), before);
}

#[tokio::test]
async fn what_the_registry_does_not_give() {
    let server = Registry::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, "{}");
    let rows = [
        (
            ":1",
            Some("riscv64"),
            "has no disk image for riscv64 (it has: x86_64 (raw), arm64 (raw))",
        ),
        (":absent", None, "there is no oci://"),
        (":box", None, "has 2 layers and a disk image has one"),
    ];
    for (what, architecture, expected) in rows {
        let error = cache.get(&request(&server, what, architecture)).await.unwrap_err();
        assert!(words(&error).contains(expected), "{}", words(&error));
    }
    let nobody = Request { credentials: None, ..request(&server, ":1", None) };
    let error = cache.get(&nobody).await.unwrap_err();
    assert!(words(&error).contains("does not let us read org/os"), "{}", words(&error));
}

#[tokio::test]
async fn the_configuration_knows_who_we_are() {
    let server = Registry::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, r#"{"auths": {"HOST/org": {"auth": "bWU6aHVzaA=="}}}"#);
    let request = Request { credentials: None, ..request(&server, ":flat", None) };
    assert_eq!(cache.get(&request).await.unwrap().size, 3000);
}

#[tokio::test]
async fn a_registry_that_lies_is_found_out() {
    let honest = Registry::new();
    let blob = format!("blobs/{}", digest(&honest.amd64));
    let chosen = format!("manifests/{}", digest(&manifest(&[&honest.amd64])));
    let rows = [
        (blob, bytes(3000)[..2999].to_vec(), "its checksum is"),
        (chosen, manifest(&[b"evil"]), "has another digest"),
        ("manifests/1".to_owned(), b"[]".to_vec(), "makes no sense"),
        ("manifests/1".to_owned(), b"{}".to_vec(), "neither a manifest nor an index"),
        ("manifests/1".to_owned(), br#"{"layers": [{"digest": "../../x"}]}"#.to_vec(), "no digest"),
        ("manifests/1".to_owned(), vec![b' '; 5 << 20], "which is not what was asked for"),
    ];
    for (path, content, expected) in rows {
        let lies = vec![(path, content)];
        let server = Registry { lies, ..Registry::new() }.start().await;
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(&folder, &server, "{}");
        let error = cache.get(&request(&server, ":1", Some("amd64"))).await.unwrap_err();
        assert!(words(&error).contains(expected), "{}", words(&error));
    }
}

#[tokio::test]
async fn others_are_told_who_we_are_at_a_registry() {
    let server = Registry::new().start().await;
    let folder = tempfile::tempdir().unwrap();
    let cache = cache(&folder, &server, r#"{"auths": {"HOST/org": {"auth": "bWU6aHVzaA=="}}}"#);
    let host = server.url.strip_prefix("http://").unwrap();
    for (repository, login) in [("org/os", Some("me:hush")), ("other/os", None)] {
        let place = Reference::parse(&format!("oci://{host}/{repository}")).unwrap();
        assert_eq!(cache.registry_login(&place).as_deref(), login, "{repository}");
    }
}
