// SPDX-License-Identifier: Apache-2.0
//! Container images as OCI image layouts, written without a container engine.
//!
//! An image is some JSON and gzipped tar archives, named by their digests. Writing them takes less
//! code than calling a library would, needs no daemon, and controls every byte.

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::archive_tree::{ArchiveRoot, ArchiveTree, gzip};
use super::source_commit::{PackageVersion, SourceCommit};

/// User and group of the process in the container, as in Metal3's and distroless images.
pub(super) const IMAGE_USER: u32 = 65532;

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// A layer that is compressed already, so that two images can share it.
pub(super) struct ImageLayer {
    /// Digest of the uncompressed archive.
    diff_id: String,
    digest: String,
    compressed: Vec<u8>,
    description: &'static str,
}

impl ImageLayer {
    /// Compresses the files of a layer. `level` is that of gzip.
    pub(super) fn new(
        tree: &ArchiveTree,
        time: u64,
        level: u32,
        description: &'static str,
    ) -> Result<Self> {
        let archive = tree.tar(time, ArchiveRoot::Plain)?;
        let compressed = gzip(&archive, level)?;
        Ok(Self { diff_id: digest(&archive), digest: digest(&compressed), compressed, description })
    }

    /// The compressed size in bytes.
    pub(super) fn size(&self) -> usize {
        self.compressed.len()
    }
}

/// Adds `/etc/passwd`, the CA certificates and the writable folders that a process expects.
pub(super) fn add_base_files(tree: &mut ArchiveTree, certificates: String) {
    tree.file(
        "etc/passwd",
        format!(
            "root:x:0:0:root:/:/sbin/nologin\n\
             ferrite:x:{IMAGE_USER}:{IMAGE_USER}:Ferrite:/var/lib/ferrite:/sbin/nologin\n"
        ),
    );
    tree.file("etc/group", format!("root:x:0:\nferrite:x:{IMAGE_USER}:\n"));
    tree.file("etc/ssl/certs/ca-certificates.crt", certificates);
    tree.folder("tmp", 0o1777, 0);
    tree.folder("var/lib/ferrite", 0o700, IMAGE_USER);
}

/// Mozilla's CA certificates as PEM. They come from a crate, so that the lock file determines them
/// and not the machine that makes the package.
pub(super) fn certificates() -> String {
    use base64::Engine as _;
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for start in (0..encoded.len()).step_by(64) {
            text.push_str(&encoded[start..encoded.len().min(start + 64)]);
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

/// Returns an image layout: `oci-layout`, `index.json` and the blobs.
pub(super) fn layout(
    layers: &[&ImageLayer],
    commit: &SourceCommit,
    version: &PackageVersion,
    repository: &str,
) -> Result<ArchiveTree> {
    let created = commit.timestamp();
    let labels = json!({
        "org.opencontainers.image.created": created,
        "org.opencontainers.image.description": "Bare-metal provisioning in one program, wire-compatible with OpenStack Ironic",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": commit.id,
        "org.opencontainers.image.title": "ferrite",
        "org.opencontainers.image.version": version.semantic,
    });
    let history: Vec<Value> = layers
        .iter()
        .map(|layer| json!({"created": created, "created_by": layer.description}))
        .collect();
    let config = json!({
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "User": format!("{IMAGE_USER}:{IMAGE_USER}"),
            "Entrypoint": ["/usr/bin/ferrite"],
            "Cmd": ["serve", "--listen", "0.0.0.0:6385", "--data-dir", "/var/lib/ferrite"],
            // No FERRITE_ variables: they would override the configuration file.
            "Env": ["PATH=/usr/bin", "HOME=/var/lib/ferrite"],
            "WorkingDir": "/var/lib/ferrite",
            "ExposedPorts": {"6385/tcp": {}, "6180/tcp": {}, "6183/tcp": {}},
            "Volumes": {"/var/lib/ferrite": {}},
            "Labels": labels,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| &layer.diff_id).collect::<Vec<_>>(),
        },
        "history": history,
    });
    let mut tree = ArchiveTree::default();
    tree.file("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
    let mut descriptors = Vec::new();
    for layer in layers {
        add_blob(&mut tree, &layer.digest, layer.compressed.clone());
        descriptors.push(json!({
            "mediaType": LAYER_TYPE, "digest": layer.digest, "size": layer.compressed.len(),
        }));
    }
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": {"mediaType": CONFIG_TYPE, "digest": digest(&config), "size": config.len()},
        "layers": descriptors,
        "annotations": labels,
    });
    add_blob(&mut tree, &digest(&config), config);
    let manifest = manifest.to_string().into_bytes();
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": MANIFEST_TYPE,
            "digest": digest(&manifest),
            "size": manifest.len(),
            "platform": {"architecture": "amd64", "os": "linux"},
            "annotations": {
                "org.opencontainers.image.ref.name": version.semantic,
                "io.containerd.image.name": format!("{repository}:{}", version.semantic),
            },
        }],
    });
    add_blob(&mut tree, &digest(&manifest), manifest);
    tree.file("index.json", index.to_string());
    Ok(tree)
}

fn add_blob(tree: &mut ArchiveTree, digest: &str, content: Vec<u8>) {
    tree.file(&format!("blobs/{}", digest.replace(':', "/")), content);
}

/// The digest as `sha256:…`.
fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ArchiveTree {
        let mut files = ArchiveTree::default();
        files.program("usr/bin/ferrite", "program");
        add_base_files(&mut files, certificates());
        let commit = SourceCommit::example();
        let layer = ImageLayer::new(&files, commit.time, 9, "ferrite").unwrap();
        layout(&[&layer], &commit, &commit.version("1.2.0"), "registry.example/ferrite").unwrap()
    }

    #[test]
    fn same_inputs_give_the_same_layout() {
        let [first, second] = [example(), example()].map(|tree| tree.tar(1, ArchiveRoot::Plain));
        assert!(first.unwrap() == second.unwrap(), "the layouts differ");
    }

    #[test]
    fn every_reference_is_the_digest_and_size_of_a_blob() {
        let tree = example();
        let content = |path: &str| -> Vec<u8> {
            let found = tree.files().find(|(name, _)| *name == path);
            found.unwrap_or_else(|| panic!("{path} is missing")).1.to_vec()
        };
        let blob = |descriptor: &Value| -> Vec<u8> {
            let name = descriptor["digest"].as_str().unwrap();
            let bytes = content(&format!("blobs/{}", name.replace(':', "/")));
            assert_eq!(digest(&bytes), name);
            assert_eq!(Some(bytes.len() as u64), descriptor["size"].as_u64());
            bytes
        };
        let index: Value = serde_json::from_slice(&content("index.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&blob(&index["manifests"][0])).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        let mut layer = Vec::new();
        let compressed = blob(&manifest["layers"][0]);
        std::io::copy(&mut flate2::read::GzDecoder::new(&*compressed), &mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        assert_eq!(config["config"]["User"], "65532:65532");
    }

    #[test]
    fn certificates_are_pem() {
        let text = certificates();
        let count = text.matches("-----BEGIN CERTIFICATE-----\n").count();
        assert!(count > 50, "only {count} certificates");
        assert!(text.lines().all(|line| line.len() <= 64));
    }
}
