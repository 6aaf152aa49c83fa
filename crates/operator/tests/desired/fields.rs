// SPDX-License-Identifier: Apache-2.0
//! Every field of an `Ironic` changes an object, or leads to an error or a notice.

use std::collections::BTreeSet;

use kube_resources::crds::all_crds;
use operator::ironic::desired::{DesiredObjects, DesiredObjectsError, desired_objects};
use operator::ironic::settings::IronicOperatorSettings;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{fixtures, goldens};

/// Parts that have the schema of a pod. They are changed as a whole.
const POD_PARTS: &[&str] = &[
    "affinity",
    "tolerations",
    "overrides.containers",
    "overrides.initContainers",
    "overrides.volumes",
    "overrides.httpdLivenessProbe",
    "overrides.httpdReadinessProbe",
];

/// Paths of all fields without subfields, such as `networking.dhcp.extraRanges[].rangeBegin`.
fn leaf_fields() -> BTreeSet<String> {
    let name = "ironics.ironic.metal3.io";
    let document = all_crds().iter().find(|document| document.name == name).unwrap();
    let crd: Value = serde_saphyr::from_str(document.yaml).unwrap();
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut fields = BTreeSet::new();
    collect_fields(crd.pointer(spec).unwrap(), "", &mut fields);
    fields
}

fn collect_fields(schema: &Value, path: &str, fields: &mut BTreeSet<String>) {
    if POD_PARTS.contains(&path) {
        fields.insert(path.to_owned());
        return;
    }
    match (schema["properties"].as_object(), schema["items"]["properties"].is_object()) {
        (Some(properties), _) => {
            for (name, property) in properties {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_fields(property, &path, fields);
            }
        }
        (None, true) => collect_fields(&schema["items"], &format!("{path}[]"), fields),
        (None, false) => {
            fields.insert(path.to_owned());
        }
    }
}

/// Sets a field; `[]` stands for the first item of a list.
fn set(target: &mut Value, path: &str, value: Value) {
    match path.split_once('.') {
        None => *entry(target, path) = value,
        Some((first, rest)) => set(entry(target, first), rest, value),
    }
}

fn entry<'a>(target: &'a mut Value, name: &str) -> &'a mut Value {
    match name.strip_suffix("[]") {
        None => &mut target[name],
        Some(name) => {
            if target[name].is_null() {
                target[name] = json!([{}]);
            }
            &mut target[name][0]
        }
    }
}

fn outcome(
    spec: &Value,
    settings: &IronicOperatorSettings,
) -> Result<DesiredObjects, DesiredObjectsError> {
    let ironic = fixtures::ironic(spec);
    desired_objects(&ironic, &fixtures::facts(&ironic), settings)
}

/// A field, a spec in which it has a meaning, and another value for it.
fn cases() -> Vec<(&'static str, Value, Value)> {
    let empty = || json!({});
    let database =
        || json!({"database": {"credentialsName": "db", "host": "db.example", "name": "ironic"}});
    let tls = || json!({"tls": {"certificateName": "tls"}});
    let dhcp = || {
        json!({"networking": {"interface": "eth1", "ipAddress": "192.0.2.2", "dhcp": {
            "networkCIDR": "192.0.2.0/24", "rangeBegin": "192.0.2.10", "rangeEnd": "192.0.2.20",
            "extraRanges": [{"networkCIDR": "198.51.100.0/24", "rangeBegin": "198.51.100.10",
                             "rangeEnd": "198.51.100.20"}],
        }}})
    };
    let keepalived = || {
        json!({"networking": {"interface": "eth1", "ipAddress": "192.0.2.2", "keepalived": {
            "enabled": true,
            "additionalVIPs": [{"ipAddress": "192.0.2.3", "interface": "eth1"}],
        }}})
    };
    let exporter = || json!({"prometheusExporter": {"enabled": true}});
    let ingress = || {
        json!({"networking": {
            "ingress": {"host": "ironic.example"},
            "imageServerExternalURL": "https://images.example",
        }})
    };
    let agent_images = || json!({"overrides": {"agentImages": [{"kernel": "http://a/k", "initramfs": "http://a/i"}]}});
    let networks = || json!({"networkingService": {"enabled": false}});
    let ca = |field: &str, kind: &str| json!({"tls": {field: {"name": "ca", "kind": kind}}});
    let option =
        || json!({"extraConfig": [{"group": "deploy", "name": "fast_track", "value": "false"}]});
    vec![
        ("affinity", empty(), json!({"nodeAffinity": {}})),
        ("apiCredentialsName", empty(), json!("credentials")),
        ("database.credentialsName", database(), json!("other")),
        ("database.host", database(), json!("other.example")),
        ("database.name", database(), json!("other")),
        ("database.tlsCertificateName", database(), json!("ca")),
        ("databaseRef.name", json!({"databaseRef": {"name": "a"}}), json!("b")),
        ("deployRamdisk.disableDownloader", empty(), json!(true)),
        ("deployRamdisk.extraKernelParams", empty(), json!("console=ttyS0")),
        ("deployRamdisk.sshKey", empty(), json!("ssh-ed25519 AAAA")),
        ("extraConfig[].group", option(), json!("unknown")),
        ("extraConfig[].name", option(), json!("power_off_after_deploy_failure")),
        ("extraConfig[].value", option(), json!("true")),
        ("highAvailability", database(), json!(true)),
        ("images.deployRamdiskBranch", empty(), json!("master")),
        ("images.deployRamdiskDownloader", empty(), json!("registry.example/other:1")),
        ("images.ironic", empty(), json!("registry.example/other:1")),
        ("images.keepalived", keepalived(), json!("registry.example/other:1")),
        ("inspection.collectors", empty(), json!(["default"])),
        ("inspection.vlanInterfaces", empty(), json!(["all"])),
        ("networking.apiPort", empty(), json!(8080)),
        ("networking.bindInterface", dhcp(), json!(true)),
        ("networking.dhcp.dnsAddress", dhcp(), json!("192.0.2.53")),
        ("networking.dhcp.extraRanges[].gatewayAddress", dhcp(), json!("198.51.100.1")),
        ("networking.dhcp.extraRanges[].networkCIDR", dhcp(), json!("198.51.0.0/16")),
        ("networking.dhcp.extraRanges[].rangeBegin", dhcp(), json!("198.51.100.11")),
        ("networking.dhcp.extraRanges[].rangeEnd", dhcp(), json!("198.51.100.21")),
        ("networking.dhcp.gatewayAddress", dhcp(), json!("192.0.2.1")),
        ("networking.dhcp.hosts", dhcp(), json!(["00:53:00:12:34:56,192.0.2.7"])),
        ("networking.dhcp.ignore", dhcp(), json!(["00:53:00:12:34:56"])),
        ("networking.dhcp.networkCIDR", dhcp(), json!("192.0.0.0/16")),
        ("networking.dhcp.rangeBegin", dhcp(), json!("192.0.2.11")),
        ("networking.dhcp.rangeEnd", dhcp(), json!("192.0.2.21")),
        ("networking.dhcp.serveDNS", dhcp(), json!(true)),
        ("networking.disableHostNetwork", empty(), json!(true)),
        ("networking.externalCallbackURL", ingress(), json!("https://other.example")),
        ("networking.externalIP", empty(), json!("192.0.2.9")),
        ("networking.imageServerExternalURL", ingress(), json!("https://other.example")),
        ("networking.imageServerPort", empty(), json!(8080)),
        ("networking.imageServerTLSPort", tls(), json!(8443)),
        ("networking.ingress.annotations", ingress(), json!({"a": "b"})),
        ("networking.ingress.host", ingress(), json!("other.example")),
        ("networking.ingress.ingressClassName", ingress(), json!("nginx")),
        ("networking.interface", empty(), json!("eth1")),
        ("networking.ipAddress", empty(), json!("192.0.2.2")),
        (
            "networking.ipAddressManager",
            json!({"networking": {"interface": "eth1", "ipAddress": "192.0.2.2"}}),
            json!("keepalived"),
        ),
        ("networking.keepalived.additionalVIPs[].interface", keepalived(), json!("eth2")),
        ("networking.keepalived.additionalVIPs[].ipAddress", keepalived(), json!("192.0.2.4")),
        ("networking.keepalived.additionalVIPs[].prefix", keepalived(), json!(24)),
        ("networking.keepalived.enabled", keepalived(), json!(false)),
        ("networking.macAddresses", empty(), json!(["00:53:00:12:34:56"])),
        ("networking.prometheusExporterPort", exporter(), json!(9000)),
        ("networking.rpcPort", empty(), json!(6000)),
        ("networkingService.enabled", networks(), json!(true)),
        ("networkingService.providerNetworks[].allowedVLANs", networks(), json!(["1"])),
        ("networkingService.providerNetworks[].mode", networks(), json!("trunk")),
        ("networkingService.providerNetworks[].mtu", networks(), json!(1500)),
        ("networkingService.providerNetworks[].nativeVLAN", networks(), json!(2)),
        ("networkingService.providerNetworks[].type", networks(), json!("idle")),
        ("networkingService.switchConfigSecretName", networks(), json!("switches")),
        ("networkingService.switchCredentialsSecretName", networks(), json!("switches")),
        ("nodeSelector", empty(), json!({"metal": "true"})),
        ("overrides.agentImages[].architecture", agent_images(), json!("aarch64")),
        ("overrides.agentImages[].initramfs", agent_images(), json!("http://b/i")),
        ("overrides.agentImages[].kernel", agent_images(), json!("http://b/k")),
        ("overrides.annotations", empty(), json!({"a": "b"})),
        ("overrides.containers", empty(), json!([{"name": "ironic", "tty": true}])),
        ("overrides.httpdLivenessProbe", empty(), json!({"periodSeconds": 1})),
        ("overrides.httpdReadinessProbe", empty(), json!({"periodSeconds": 1})),
        ("overrides.initContainers", empty(), json!([{"name": "a", "image": "a"}])),
        ("overrides.labels", empty(), json!({"a": "b"})),
        ("overrides.volumes", empty(), json!([{"name": "a", "emptyDir": {}}])),
        ("prometheusExporter.bindAddress", exporter(), json!("192.0.2.2")),
        ("prometheusExporter.disableServiceMonitor", exporter(), json!(true)),
        ("prometheusExporter.enabled", exporter(), json!(false)),
        ("prometheusExporter.sensorCollectionInterval", exporter(), json!(120)),
        ("storage.size", empty(), json!("20Gi")),
        ("storage.storageClassName", empty(), json!("fast")),
        ("tls.bmcCA.kind", ca("bmcCA", "Secret"), json!("ConfigMap")),
        ("tls.bmcCA.name", ca("bmcCA", "Secret"), json!("other")),
        ("tls.bmcCAName", empty(), json!("ca")),
        ("tls.certificateName", empty(), json!("tls")),
        ("tls.disableVirtualMediaTLS", tls(), json!(true)),
        ("tls.generate", empty(), json!(true)),
        (
            "tls.insecureRPC",
            json!({"highAvailability": true, "databaseRef": {"name": "a"}}),
            json!(true),
        ),
        ("tls.trustedCA.key", ca("trustedCA", "ConfigMap"), json!("b.pem")),
        ("tls.trustedCA.kind", ca("trustedCA", "ConfigMap"), json!("Secret")),
        ("tls.trustedCA.name", ca("trustedCA", "ConfigMap"), json!("other")),
        ("tls.trustedCAName", empty(), json!("ca")),
        ("tolerations", empty(), json!([{"operator": "Exists"}])),
        ("version", empty(), json!("38.0")),
    ]
}

#[test]
fn every_field_of_the_schema_has_a_case() {
    let covered: BTreeSet<String> =
        cases().into_iter().map(|(path, _, _)| path.to_owned()).collect();
    let fields = leaf_fields();
    let missing: Vec<&String> = fields.difference(&covered).collect();
    let unknown: Vec<&String> = covered.difference(&fields).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
}

#[test]
fn every_field_has_an_effect() {
    let mut settings = fixtures::settings();
    settings.ramdisk_downloader_image = Some("registry.example/downloader:1".to_owned());
    for (path, base, value) in cases() {
        let mut changed = base.clone();
        set(&mut changed, path, value);
        let before = outcome(&base, &settings);
        assert!(before.is_ok(), "{path}: the base is invalid: {before:?}");
        let after = outcome(&changed, &settings);
        assert_ne!(before, after, "{path} has no effect");
    }
}

proptest! {
    /// Combinations are rejected with reasons, or lead to objects that Kubernetes can read.
    #[test]
    fn combinations_never_panic(
        chosen in proptest::sample::subsequence(cases(), 0..12),
        has_ipv6_addresses: bool,
    ) {
        let mut spec = json!({});
        for (path, base, value) in chosen {
            merge(&mut spec, &base);
            set(&mut spec, path, value);
        }
        let settings = IronicOperatorSettings { has_ipv6_addresses, ..fixtures::settings() };
        match outcome(&spec, &settings) {
            Ok(desired) => goldens::check_types(&desired),
            Err(error) => prop_assert!(error.to_string().contains("spec."), "{}", error),
        }
    }
}

/// Adds fields without replacing those that exist.
fn merge(target: &mut Value, source: &Value) {
    for (name, value) in source.as_object().into_iter().flatten() {
        let existing = &mut target[name];
        if existing.is_null() {
            *existing = value.clone();
        } else if existing.is_object() {
            merge(existing, value);
        }
    }
}
