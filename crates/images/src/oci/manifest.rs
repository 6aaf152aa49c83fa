// SPDX-License-Identifier: Apache-2.0
//! Manifests and indexes, and the choice of a manifest from an index.

use std::collections::HashMap;

use serde::Deserialize;

/// The `Accept` header: the supported media types.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Disk types, preferred ones first. The first two are qcow2, which is the smallest download and is
/// converted here; the other two are raw.
const DISK_TYPE_PREFERENCE: [&str; 4] = ["qcow2", "qemu", "raw", "applehv"];

/// Either an index (it has manifests) or a manifest (it has layers).
#[derive(Deserialize)]
pub(super) struct ManifestDocument {
    manifests: Option<Vec<OciDescriptor>>,
    layers: Option<Vec<OciDescriptor>>,
}

/// A reference to content in the registry.
#[derive(Deserialize)]
pub(super) struct OciDescriptor {
    pub(super) digest: String,
    #[serde(default)]
    pub(super) size: u64,
    platform: Option<OciPlatform>,
    #[serde(default)]
    annotations: HashMap<String, String>,
}

#[derive(Deserialize)]
struct OciPlatform {
    architecture: Option<String>,
}

impl OciDescriptor {
    /// The value of an annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.get(name).map(String::as_str)
    }
}

/// The type of a document.
pub(super) enum ManifestContents {
    Index(Vec<OciDescriptor>),
    Manifest(Vec<OciDescriptor>),
}

impl ManifestDocument {
    /// Returns its type; `None` if it is neither.
    pub(super) fn contents(self) -> Option<ManifestContents> {
        match (self.manifests, self.layers) {
            (Some(manifests), None) => Some(ManifestContents::Index(manifests)),
            (None, Some(layers)) => Some(ManifestContents::Manifest(layers)),
            (Some(_), Some(_)) | (None, None) => None,
        }
    }
}

/// Returns the manifest with the disk for this architecture; for any architecture if `None`.
pub(super) fn choose_manifest<'a>(
    manifests: &'a [OciDescriptor],
    architecture: Option<&str>,
) -> Option<&'a OciDescriptor> {
    let fitting = manifests.iter().filter(|it| it.matches_architecture(architecture));
    fitting
        .filter_map(|it| Some((it.preference()?, it)))
        .min_by_key(|(preference, _)| *preference)
        .map(|(_, it)| it)
}

/// Describes the manifests of an index, for error messages.
pub(super) fn describe_manifests(manifests: &[OciDescriptor]) -> String {
    let each = manifests.iter().map(|it| {
        let architecture = it.platform.as_ref().and_then(|it| it.architecture.as_deref());
        let disk = it.annotations.get("disktype").map_or("no disk type", String::as_str);
        format!("{} ({disk})", architecture.unwrap_or("any"))
    });
    let listed: Vec<String> = each.take(20).collect();
    if listed.is_empty() { "nothing".to_owned() } else { listed.join(", ") }
}

impl OciDescriptor {
    fn matches_architecture(&self, architecture: Option<&str>) -> bool {
        let own = self.platform.as_ref().and_then(|it| it.architecture.as_deref());
        match (own, architecture) {
            (Some(own), Some(wanted)) => {
                normalized_architecture(own) == normalized_architecture(wanted)
            }
            (None, _) | (_, None) => true,
        }
    }

    /// Lower is better. A missing disk type may be a disk image; an unknown one is not supported.
    fn preference(&self) -> Option<usize> {
        match self.annotations.get("disktype") {
            Some(kind) => DISK_TYPE_PREFERENCE.iter().position(|known| known == kind),
            None => Some(DISK_TYPE_PREFERENCE.len()),
        }
    }
}

/// Normalises the name of an architecture: indexes use the names of Go and of the kernel.
fn normalized_architecture(architecture: &str) -> &str {
    match architecture {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::{ManifestContents, ManifestDocument, choose_manifest, describe_manifests};

    fn index() -> Vec<super::OciDescriptor> {
        let entry = |digest: &str, architecture: &str, disk: &str| {
            serde_json::json!({"digest": digest, "size": 1,
                "platform": {"architecture": architecture, "os": "linux"},
                "annotations": {"disktype": disk}})
        };
        let document = serde_json::json!({"manifests": [
            entry("a", "x86_64", "applehv"), entry("b", "x86_64", "hyperv"),
            entry("c", "aarch64", "qemu"), entry("d", "amd64", "qemu"), entry("e", "arm64", "raw"),
            entry("f", "riscv64", "hyperv"),
        ]});
        let document: ManifestDocument = serde_json::from_value(document).unwrap();
        match document.contents().unwrap() {
            ManifestContents::Index(manifests) => manifests,
            ManifestContents::Manifest(_) => panic!("an index"),
        }
    }

    #[test]
    fn chooses_manifest_by_architecture_and_disk_type() {
        let index = index();
        let chosen = |wanted| choose_manifest(&index, wanted).map(|it| it.digest.as_str());
        assert_eq!(chosen(Some("x86_64")), Some("d"));
        assert_eq!(chosen(Some("amd64")), Some("d"));
        assert_eq!(chosen(Some("aarch64")), Some("c"));
        assert_eq!(chosen(Some("riscv64")), None);
        assert_eq!(chosen(Some("ppc64le")), None);
        assert_eq!(chosen(None), Some("c"));
        expect!["x86_64 (applehv), x86_64 (hyperv), aarch64 (qemu), amd64 (qemu), arm64 (raw), riscv64 (hyperv)"]
            .assert_eq(&describe_manifests(&index));
    }
}
