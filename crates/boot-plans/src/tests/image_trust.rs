// SPDX-License-Identifier: Apache-2.0
//! Signature policies also hold for images that agents and BMCs download themselves.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use drivers::{BootService as _, DriverError, ImageDownloadSource, MediaDevice, PublishedImage};
use images::signature::SignaturePolicy;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sha2::{Digest as _, Sha256};

use super::*;

/// Serves these files on a free port until the process ends. Returns the URL.
fn serve(files: Vec<(String, Vec<u8>)>) -> String {
    let files: HashMap<String, Vec<u8>> = files.into_iter().collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            let _ = lines.find(|line| line.as_ref().is_ok_and(String::is_empty));
            let path = request.split(' ').nth(1).unwrap().trim_start_matches('/');
            let (status, body) = match files.get(path) {
                Some(body) => ("200 OK", body.as_slice()),
                None => ("404 Not Found", &b""[..]),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = connection.write_all(&[head.as_bytes(), body].concat());
        }
    });
    url
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A rig with this policy for disk images and ISO images, and the key of [`signature`].
async fn rig(policy: SignaturePolicy) -> BootRig {
    rig_with_registry(policy, "registry.invalid").await
}

/// The same, with a container registry without TLS.
async fn rig_with_registry(policy: SignaturePolicy, registry: &str) -> BootRig {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let prefix = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let der = [&prefix[..], key.public_key().as_ref()].concat();
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    let keys = tempfile::NamedTempFile::new().unwrap();
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n");
    std::fs::write(keys.path(), pem).unwrap();
    BootRig::with_images(
        |_| (),
        |images| {
            images.signing_keys = vec![keys.path().to_owned()];
            images.disk_image_signatures = policy;
            images.iso_signatures = policy;
            images.allow_local_urls = true;
            images.plain_http_registries = vec![registry.to_owned()];
        },
    )
    .await
}

fn signature(image: &[u8]) -> Vec<u8> {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    key.sign(sha256(image).as_bytes()).as_ref().to_vec()
}

async fn publish_image(rig: &BootRig) -> Result<PublishedImage, DriverError> {
    let driver = rig.registry.compose(&rig.node).unwrap();
    rig.services.publish_image(&rig.target(&driver), ImageDownloadSource::Http).await
}

async fn publish_medium(
    rig: &BootRig,
    url: &str,
    source: ImageDownloadSource,
) -> Result<String, DriverError> {
    let driver = rig.registry.compose(&rig.node).unwrap();
    rig.services.publish_medium(&rig.target(&driver), MediaDevice::Cdrom, url, source).await
}

#[tokio::test]
async fn image_that_the_agent_downloads_must_be_signed() {
    let image = vec![0x55; 4096];
    let url = serve(vec![
        ("signed.raw".to_owned(), image.clone()),
        ("signed.raw.sig".to_owned(), signature(&image)),
        ("unsigned.raw".to_owned(), image.clone()),
        ("forged.raw".to_owned(), image.clone()),
        ("forged.raw.sig".to_owned(), signature(b"another")),
    ]);
    let wrong = "0".repeat(128);
    for (policy, name, expected) in [
        (SignaturePolicy::Off, "unsigned.raw", Ok(())),
        (SignaturePolicy::Required, "signed.raw", Ok(())),
        (SignaturePolicy::Required, "unsigned.raw", Err("not signed")),
        (SignaturePolicy::Required, "forged.raw", Err("signature")),
        (SignaturePolicy::WhenPresent, "unsigned.raw", Ok(())),
        (SignaturePolicy::WhenPresent, "forged.raw", Err("signature")),
    ] {
        let mut rig = rig(policy).await;
        let source = format!("{url}/{name}");
        rig.instance_info.insert("image_source".to_owned(), source.clone().into());
        rig.instance_info.insert("image_checksum".to_owned(), sha256(&image).into());
        match (publish_image(&rig).await, expected) {
            (Ok(published), Ok(())) => {
                // The agent downloads from the source, and accepts only the verified bytes.
                assert_eq!(published.url, source);
                let checksum = Some(("sha256".to_owned(), sha256(&image)));
                assert_eq!(published.checksum, checksum, "{name}");
            }
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{name}: {error}");
            }
            (outcome, _) => panic!("{policy:?} {name}: {outcome:?}"),
        }
        // A wrong checksum of the user is found before the machine is touched.
        rig.instance_info.insert("image_checksum".to_owned(), wrong.clone().into());
        if policy != SignaturePolicy::Off {
            publish_image(&rig).await.unwrap_err();
        }
    }
}

/// Whatever else the instance contains, an image without a signature is not published.
#[tokio::test]
async fn unsigned_image_cannot_evade_the_policy() {
    let image = vec![0x55; 4096];
    let registry = serve(registry_files(&image, None));
    let url = serve(vec![
        ("unsigned.raw".to_owned(), image.clone()),
        ("signed.raw".to_owned(), b"another".to_vec()),
        ("signed.raw.sig".to_owned(), signature(b"another")),
    ]);
    let host = registry.trim_start_matches("http://").to_owned();
    let mut rig = rig_with_registry(SignaturePolicy::Required, &host).await;
    let file = rig.path("unsigned.raw");
    std::fs::write(&file, &image).unwrap();
    let sources =
        [format!("{url}/unsigned.raw"), rig.url("unsigned.raw"), format!("oci://{host}/org/os:1")];
    let signed = format!("{url}/signed.raw");
    for source in sources {
        for (key, value) in [
            ("image_download_source", "http"),
            ("image_download_source", "local"),
            ("image_type", "whole-disk"),
            ("image_type", "partition"),
            ("image_url", signed.as_str()),
            ("image_disk_format", "raw"),
        ] {
            rig.instance_info.clear();
            let common = [
                ("image_source", source.as_str()),
                ("image_checksum", &sha256(&image)),
                ("root_gb", "1"),
                (key, value),
            ];
            let common = common.map(|(key, value)| (key.to_owned(), value.into()));
            rig.instance_info.extend(common);
            let error = publish_image(&rig).await.unwrap_err().to_string();
            assert!(error.contains("not signed"), "{source} {key} {value}: {error}");
        }
    }
    // An unknown source is an error, not the default.
    for source in ["swift", "vmedia", ""] {
        rig.instance_info.insert("image_source".to_owned(), signed.clone().into());
        rig.instance_info.insert("image_download_source".to_owned(), source.into());
        publish_image(&rig).await.unwrap_err();
    }
}

/// The agent gets a disk image of a registry from Ferrite, after its signature was verified.
#[tokio::test]
async fn disk_image_of_a_registry_needs_a_signature_of_cosign() {
    let image = vec![0x55; 4096];
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
    for (policy, signer, expected) in [
        (SignaturePolicy::Required, Some(&key), Ok(())),
        (SignaturePolicy::Required, Some(&other), Err("configured keys")),
        (SignaturePolicy::Required, None, Err("not signed")),
        (SignaturePolicy::WhenPresent, Some(&key), Ok(())),
        (SignaturePolicy::WhenPresent, Some(&other), Err("configured keys")),
        (SignaturePolicy::WhenPresent, None, Ok(())),
        (SignaturePolicy::Off, Some(&other), Ok(())),
    ] {
        let registry = serve(registry_files(&image, signer));
        let host = registry.trim_start_matches("http://");
        let mut rig = rig_with_registry(policy, host).await;
        let source = format!("oci://{host}/org/os:1");
        rig.instance_info.insert("image_source".to_owned(), source.into());
        match (publish_image(&rig).await, expected) {
            (Ok(published), Ok(())) => {
                assert_eq!(published.checksum, Some(("sha256".to_owned(), sha256(&image))));
                let path = published.url.strip_prefix("http://10.0.0.1:6180").unwrap();
                assert_eq!(bytes(&rig.get(path).await.unwrap().content), image);
            }
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (outcome, _) => panic!("{policy:?} {expected:?}: {outcome:?}"),
        }
    }
}

/// Deploy steps whose arguments name an image would install it without a check.
#[tokio::test]
async fn steps_cannot_install_another_image() {
    for policy in [SignaturePolicy::Required, SignaturePolicy::Off] {
        let rig = rig(policy).await;
        let service = Arc::new(rig.services.clone());
        let registry = build_registry(&DriverSettings::default(), service).unwrap();
        for (interface, step) in [
            ("custom-agent", "write_image"),
            ("custom-agent", "execute_bootc_install"),
            ("direct", "execute_bootc_install"),
            ("bootc", "write_image"),
            ("ramdisk", "write_image"),
        ] {
            let mut node = rig.node.clone();
            node.interfaces.set(node_model::InterfaceKind::Deploy, Some(interface));
            let driver = registry.compose(&node).unwrap();
            let target = DriverTarget { node: &node, ..rig.target(&driver) };
            let mut step = node_model::Step::new("deploy", step, 50);
            step.args.set("image_info", serde_json::json!({"urls": ["http://evil.example/"]}));
            let flow = node_model::StepFlow::Deploy;
            let executed = driver.deploy().execute_step(&target, flow, &step).await;
            let refused = executed
                .as_ref()
                .is_err_and(|error| error.to_string().contains("images.disk_image_signatures"));
            assert_eq!(refused, policy == SignaturePolicy::Required, "{interface}: {executed:?}");
        }
    }
}

/// The files of a registry with the disk image `org/os:1`, signed as `cosign sign` does.
fn registry_files(image: &[u8], signer: Option<&Ed25519KeyPair>) -> Vec<(String, Vec<u8>)> {
    let digest = |content: &[u8]| format!("sha256:{}", sha256(content));
    let json = |value: serde_json::Value| value.to_string().into_bytes();
    let manifest = json(serde_json::json!({"schemaVersion": 2, "layers": [
        {"mediaType": "x", "digest": digest(image), "size": image.len()},
    ]}));
    let pinned = digest(&manifest);
    let mut files = vec![
        (format!("blobs/{}", digest(image)), image.to_vec()),
        (format!("manifests/{pinned}"), manifest.clone()),
        ("manifests/1".to_owned(), manifest),
    ];
    if let Some(signer) = signer {
        let text = json(serde_json::json!({"critical": {
            "identity": {"docker-reference": "registry/org/os"},
            "image": {"docker-manifest-digest": pinned},
            "type": "cosign container image signature",
        }, "optional": null}));
        let engine = base64::engine::general_purpose::STANDARD;
        let signature = base64::Engine::encode(&engine, signer.sign(&text).as_ref());
        let signatures = json(serde_json::json!({"schemaVersion": 2, "layers": [{
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": digest(&text), "size": text.len(),
            "annotations": {"dev.cosignproject.cosign/signature": signature},
        }]}));
        files.push((format!("manifests/{}.sig", pinned.replace(':', "-")), signatures));
        files.push((format!("blobs/{}", digest(&text)), text));
    }
    files.into_iter().map(|(path, content)| (format!("v2/org/os/{path}"), content)).collect()
}

#[tokio::test]
async fn attached_medium_is_served_and_withdrawn() {
    let iso = iso_image();
    let url = format!("{}/boot.iso", serve(vec![("boot.iso".to_owned(), iso.clone())]));
    let rig = rig(SignaturePolicy::Off).await;
    // The BMC downloads it.
    let direct = publish_medium(&rig, &url, ImageDownloadSource::Http).await.unwrap();
    assert_eq!(direct, url);
    // Ferrite downloads it.
    let served = publish_medium(&rig, &url, ImageDownloadSource::Local).await.unwrap();
    let path = served.strip_prefix("http://10.0.0.1:6180").unwrap();
    assert!(path.starts_with("/vmedia/") && path.ends_with("/cdrom.iso"), "{path}");
    assert_eq!(bytes(&rig.get(path).await.unwrap().content), iso);
    let (id, guessed) = (rig.node.id, path.replace("/cdrom", "0/cdrom"));
    for other in [guessed.as_str(), "/vmedia/x", "/vmedia/x/y/cdrom.iso"] {
        assert!(matches!(rig.get(other).await, Err(HttpRefusalReason::NotFound)), "{other}");
    }
    // The key of the URL is sealed.
    let node = rig.store.read(move |reader| reader.get(id)).await.unwrap().unwrap();
    let token = path.split('/').nth(3).unwrap();
    assert!(!node.driver_internal_info.as_str().contains(token));

    let driver = rig.registry.compose(&node).unwrap();
    let target = DriverTarget { node: &node, ..rig.target(&driver) };
    rig.services.withdraw_media(&target, &[MediaDevice::Cdrom]).await.unwrap();
    assert!(matches!(rig.get(path).await, Err(HttpRefusalReason::NotFound)));
}

/// Users who may deploy or attach media cannot read other files of this host.
#[tokio::test]
async fn files_outside_the_allowed_folders_are_refused() {
    let mut rig = rig(SignaturePolicy::Off).await;
    let secret = rig.folder.path().join("secret.iso");
    std::fs::write(&secret, iso_image()).unwrap();
    std::os::unix::fs::symlink(&secret, rig.path("link.iso")).unwrap();
    let allowed = rig.path("allowed.iso");
    std::fs::write(&allowed, iso_image()).unwrap();
    let up = format!("{}/../../secret.iso", rig.url("kernel"));
    for (url, is_allowed) in [
        (format!("file://{}", secret.display()), false),
        (rig.url("link.iso"), false),
        (up, false),
        ("file:///etc/passwd".to_owned(), false),
        (rig.url("allowed.iso"), true),
    ] {
        for source in [ImageDownloadSource::Http, ImageDownloadSource::Local] {
            let published = publish_medium(&rig, &url, source).await;
            match published {
                Ok(published) => {
                    assert!(is_allowed && published.starts_with("http://10.0.0.1"), "{published}");
                }
                Err(error) => {
                    assert!(error.to_string().contains("not in an allowed folder"), "{error}");
                    assert!(!is_allowed, "{url}");
                }
            }
        }
        for source in ["http", "local"] {
            rig.instance_info.insert("image_source".to_owned(), url.clone().into());
            rig.instance_info.insert("image_download_source".to_owned(), source.into());
            assert_eq!(publish_image(&rig).await.is_ok(), is_allowed, "{url} {source}");
        }
    }
}

#[tokio::test]
async fn attached_medium_must_be_signed() {
    let iso = iso_image();
    let url = serve(vec![
        ("signed.iso".to_owned(), iso.clone()),
        ("signed.iso.sig".to_owned(), signature(&iso)),
        ("unsigned.iso".to_owned(), iso.clone()),
    ]);
    let rig = rig(SignaturePolicy::Required).await;
    for source in [ImageDownloadSource::Http, ImageDownloadSource::Local] {
        let unsigned = publish_medium(&rig, &format!("{url}/unsigned.iso"), source).await;
        assert!(unsigned.unwrap_err().to_string().contains("not signed"));
        // The BMC cannot verify it, so it gets the verified copy even if it should download it.
        let signed = publish_medium(&rig, &format!("{url}/signed.iso"), source).await.unwrap();
        assert!(signed.starts_with("http://10.0.0.1:6180/vmedia/"), "{signed}");
    }
    let error = publish_medium(&rig, "nfs://host/x.iso", ImageDownloadSource::Http).await;
    assert!(error.unwrap_err().to_string().contains("signature cannot be verified"));
}

/// The start of a CD file system, and nothing in it.
fn iso_image() -> Vec<u8> {
    let mut iso = vec![0; 40 << 10];
    iso[0x8000..0x8006].copy_from_slice(b"\x01CD001");
    iso
}
