// SPDX-License-Identifier: Apache-2.0
//! The CRD documents, which `ferrite crds` prints and the manifests contain.

/// One CRD document.
#[derive(Clone, Copy, Debug)]
pub struct CrdDocument {
    /// Name of the CRD, such as `baremetalhosts.metal3.io`.
    pub name: &'static str,
    /// The document.
    pub yaml: &'static str,
}

/// Lists documents by name; the file has the same parts in another order.
macro_rules! documents {
    ($($plural:literal . $group:literal),+ $(,)?) => {
        &[$(CrdDocument {
            name: concat!($plural, ".", $group),
            yaml: include_str!(concat!("../crds/", $group, "_", $plural, ".yaml")),
        }),+]
    };
}

const DOCUMENTS: &[CrdDocument] = documents![
    "ironicdatabases"."ironic.metal3.io",
    "ironics"."ironic.metal3.io",
    "baremetalhosts"."metal3.io",
    "bmceventsubscriptions"."metal3.io",
    "dataimages"."metal3.io",
    "firmwareschemas"."metal3.io",
    "hardwaredata"."metal3.io",
    "hostclaims"."metal3.io",
    "hostdeploypolicies"."metal3.io",
    "hostfirmwarecomponents"."metal3.io",
    "hostfirmwaresettings"."metal3.io",
    "hostupdatepolicies"."metal3.io",
    "preprovisioningimages"."metal3.io",
];

/// All CRD documents, sorted by name.
#[must_use]
pub fn all_crds() -> &'static [CrdDocument] {
    DOCUMENTS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    #[test]
    fn names_match_the_documents() {
        for document in all_crds() {
            let crd: Value = serde_saphyr::from_str(document.yaml).unwrap();
            let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap();
            assert_eq!(text("/metadata/name"), document.name);
            let plural = text("/spec/names/plural");
            assert_eq!(format!("{plural}.{}", text("/spec/group")), document.name);
            let kind = text("/spec/names/kind");
            assert_eq!(text("/spec/names/listKind"), format!("{kind}List"));
            assert_eq!(text("/spec/names/singular"), kind.to_lowercase());
        }
    }

    #[test]
    fn every_file_is_listed_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/crds");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|file| file != "kustomization.yaml")
            .collect();
        let kustomization =
            std::fs::read_to_string(format!("{folder}/kustomization.yaml")).unwrap();
        let kustomization: Value = serde_saphyr::from_str(&kustomization).unwrap();
        let resources = kustomization["resources"].as_array().unwrap();
        let installed = resources.iter().map(|file| file.as_str().unwrap().to_owned());
        assert_eq!(files, installed.collect(), "kustomization.yaml");
        let listed: Vec<String> = all_crds()
            .iter()
            .map(|document| {
                let (plural, group) = document.name.split_once('.').unwrap();
                format!("{group}_{plural}.yaml")
            })
            .collect();
        assert!(listed.is_sorted_by(|a, b| a < b), "{listed:?}");
        assert_eq!(files, BTreeSet::from_iter(listed));
    }
}
