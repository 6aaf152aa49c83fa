// SPDX-License-Identifier: Apache-2.0
//! Rules for databases, replicas, metrics, certificates, versions, images and switches.

use expect_test::expect;

use super::super::super::database::IronicDatabase;
use super::super::super::service::{CaKind, CaReference};
use super::super::{check_trusted_ca_key, validate_ironic_database};
use super::*;

#[test]
fn an_empty_spec_is_valid() {
    valid(json!({}));
}

#[test]
fn rule_1_high_availability_needs_a_database() {
    valid(json!({"highAvailability": true, "database": database()}));
    valid(json!({"highAvailability": true, "databaseRef": {"name": "db"}}));
    check(
        json!({"highAvailability": true}),
        expect![[r#"
        spec.highAvailability: needs a database that all replicas share; set spec.database or spec.databaseRef
    "#]],
    );
}

#[test]
fn rule_2_a_database_cannot_be_replaced() {
    let other = json!({"credentialsName": "db", "host": "other.example", "name": "ironic"});
    check_update(json!({}), json!({"database": database()}), expect![[""]]);
    check_update(json!({"database": database()}), json!({}), expect![[""]]);
    check_update(
        json!({"database": database()}),
        json!({"database": other}),
        expect![[r#"
        spec.database: cannot change to a new database; restore the previous value, or delete and create the Ironic
    "#]],
    );
    check_update(
        json!({"database": database()}),
        json!({"databaseRef": {"name": "db"}}),
        expect![[r#"
            spec.database: cannot change to a new database; restore the previous value, or delete and create the Ironic
            spec.databaseRef: cannot change to a new database; restore the previous value, or delete and create the Ironic
        "#]],
    );
}

#[test]
fn rule_3_a_database_has_credentials_host_and_name() {
    check(
        json!({"database": {}}),
        expect![[r#"
        spec.database.credentialsName: is empty; set it
        spec.database.host: is empty; set it
        spec.database.name: is empty; set it
    "#]],
    );
    check(
        json!({"databaseRef": {}}),
        expect![[r#"
        spec.databaseRef.name: is empty; set it to the name of an IronicDatabase
    "#]],
    );
    check(
        json!({"database": database(), "databaseRef": {"name": "db"}}),
        expect![[r#"
        spec.databaseRef: cannot be combined with spec.database; remove one of them
    "#]],
    );
}

#[test]
fn volumes_have_a_size() {
    valid(json!({"storage": {"size": "20Gi", "storageClassName": "fast"}}));
    check(
        json!({"storage": {"size": "much"}}),
        expect![[r#"
        spec.storage.size: "much" is not a size; use one such as 10Gi
    "#]],
    );
    check(
        json!({"storage": {}, "database": database()}),
        expect![[r#"
        spec.storage: has no effect with a database; remove it
    "#]],
    );
}

#[test]
fn rule_15_metrics_of_replicas_have_no_service_monitor() {
    let spec = |exporter: Value| json!({"highAvailability": true, "database": database(), "prometheusExporter": exporter});
    valid(spec(json!({"enabled": true, "disableServiceMonitor": true})));
    check(
        spec(json!({"enabled": false})),
        expect![[r#"
        spec.prometheusExporter.disableServiceMonitor: must be true with highAvailability, where the Service has one of several replicas
    "#]],
    );
}

#[test]
fn rule_16_metrics_can_be_reached() {
    let spec = |exporter: Value| json!({"prometheusExporter": exporter});
    valid(spec(json!({"enabled": true, "bindAddress": "192.0.2.1"})));
    valid(spec(
        json!({"enabled": true, "bindAddress": "127.0.0.1", "disableServiceMonitor": true}),
    ));
    check(
        spec(json!({"enabled": true, "bindAddress": "::1"})),
        expect![[r#"
        spec.prometheusExporter.bindAddress: is a loopback address, which Prometheus cannot reach; use another one, or set disableServiceMonitor to true
    "#]],
    );
    check(
        spec(json!({"enabled": true, "bindAddress": "lo"})),
        expect![[r#"
        spec.prometheusExporter.bindAddress: "lo" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1
    "#]],
    );
    check(
        spec(json!({"enabled": true, "sensorCollectionInterval": 5})),
        expect![[r#"
        spec.prometheusExporter.sensorCollectionInterval: 5 is too small; the minimum is 60 seconds
    "#]],
    );
}

#[test]
fn rule_17_high_availability_can_be_disabled() {
    let rules = IronicRules { allows_high_availability: false, ..rules() };
    let spec = json!({"highAvailability": true, "database": database()});
    expect![[r#"
        spec.highAvailability: is disabled in the operator; start it with --feature-gates HighAvailability=true, or set the field to false
    "#]].assert_eq(&messages(&validate_ironic(&ironic(spec), &rules)));
}

#[test]
fn rule_18_insecure_rpc_is_for_replicas() {
    valid(json!({
        "highAvailability": true, "database": database(), "tls": {"insecureRPC": true},
    }));
    check(
        json!({"tls": {"insecureRPC": false}}),
        expect![[r#"
        spec.tls.insecureRPC: is for several replicas; remove it, or set highAvailability to true
    "#]],
    );
}

#[test]
fn rule_19_ca_references_are_complete_and_agree_with_their_older_forms() {
    valid(json!({"tls": {"bmcCAName": "ca", "trustedCAName": "ca"}}));
    valid(json!({"tls": {
        "bmcCA": {"name": "ca", "kind": "Secret"}, "bmcCAName": "ca",
        "trustedCA": {"name": "ca", "kind": "ConfigMap"}, "trustedCAName": "ca",
    }}));
    check(
        json!({"tls": {
            "bmcCA": {"name": "", "kind": "Secret"},
            "trustedCA": {"name": "ca", "kind": "Pod"},
        }}),
        expect![[r#"
            spec.tls.bmcCA.name: is empty; set it to the name of a Secret or ConfigMap
            spec.tls.trustedCA.kind: "Pod" is not supported; use one of ConfigMap, Secret
        "#]],
    );
    check(
        json!({"tls": {
            "bmcCA": {"name": "ca", "kind": "ConfigMap"}, "bmcCAName": "ca",
            "trustedCA": {"name": "new", "kind": "ConfigMap"}, "trustedCAName": "old",
        }}),
        expect![[r#"
            spec.tls.bmcCAName: Secret "ca" contradicts bmcCA; remove bmcCAName, its older form
            spec.tls.trustedCAName: ConfigMap "old" contradicts trustedCA; remove trustedCAName, its older form
        "#]],
    );
    check(
        json!({"tls": {"generate": true, "certificateName": "tls"}}),
        expect![[r#"
        spec.tls.generate: cannot be combined with certificateName; remove one of them
    "#]],
    );
}

#[test]
fn rule_20_versions_are_supported() {
    valid(json!({"version": "latest"}));
    valid(json!({"version": "38.0"}));
    valid(json!({"version": "0.1"}));
    check(
        json!({"version": "1"}),
        expect![[r#"
        spec.version: "1" is not a version; use MAJOR.MINOR, such as 0.1, or latest
    "#]],
    );
    check(
        json!({"version": "36.0"}),
        expect![[r#"
        spec.version: version 36.0 is not supported; use one of 0.1, 35.0, 37.0, 38.0, latest
    "#]],
    );
}

#[test]
fn rule_21_agent_images_have_valid_urls_and_different_architectures() {
    let spec = |images: Value| json!({"overrides": {"agentImages": images}});
    valid(spec(json!([
        {"kernel": "http://a/k", "initramfs": "https://a/i"},
        {"kernel": "file:///k", "initramfs": "oci://a/i", "architecture": "x86_64"},
        {"kernel": "file:///k", "initramfs": "oci://a/i", "architecture": "aarch64"},
    ])));
    check(
        spec(json!([
            {"kernel": "", "initramfs": "ftp://a/i"},
            {"kernel": "file://host/k", "initramfs": "http:///i"},
            {"kernel": "kernel", "initramfs": "oci://", "architecture": "s390x"},
        ])),
        expect![[r#"
            spec.overrides.agentImages[0].kernel: is empty; set it
            spec.overrides.agentImages[0].initramfs: "ftp://a/i" is not a URL of scheme file, http, https or oci
            spec.overrides.agentImages[1].kernel: "file://host/k" is not an absolute path; use file:/// and the path
            spec.overrides.agentImages[1].initramfs: "http:///i" has no host
            spec.overrides.agentImages[1].architecture: "" occurs twice; remove one entry
            spec.overrides.agentImages[2].kernel: "kernel" is not a URL of scheme file, http, https or oci
            spec.overrides.agentImages[2].initramfs: "oci://" has no host
            spec.overrides.agentImages[2].architecture: "s390x" is not supported; use one of aarch64, x86_64
        "#]],
    );
}

#[test]
fn rule_22_provider_networks() {
    let spec = |networks: Value| json!({"networkingService": {"enabled": true, "providerNetworks": networks}});
    valid(spec(json!([
        {"type": "idle", "mode": "access", "nativeVLAN": 1},
        {"type": "cleaning", "mode": "trunk", "nativeVLAN": 4094, "allowedVLANs": ["1", "2-4094"]},
        {"type": "inspection", "mode": "hybrid", "nativeVLAN": 1, "allowedVLANs": ["7-7"], "mtu": 9000},
    ])));
    valid(json!({"networkingService": {"enabled": false, "providerNetworks": [{}]}}));
    check(
        spec(json!([
            {"type": "idle", "mode": "access", "nativeVLAN": 0, "allowedVLANs": ["1"]},
            {"type": "idle", "mode": "trunk", "nativeVLAN": 1, "mtu": 68},
            {"type": "lunch", "mode": "bridge", "nativeVLAN": 1},
            {"type": "cleaning", "mode": "hybrid", "nativeVLAN": 1,
             "allowedVLANs": ["0", "4095", "9-8", "a", "1-", "+1"]},
        ])),
        expect![[r#"
            spec.networkingService.providerNetworks[0].nativeVLAN: 0 is not a VLAN; use a number from 1 to 4094
            spec.networkingService.providerNetworks[0].allowedVLANs: cannot be used in access mode; remove it, or use trunk
            spec.networkingService.providerNetworks[1].type: idle occurs twice; remove one network
            spec.networkingService.providerNetworks[1].mtu: 68 is not an MTU; use a number from 1280 to 9216
            spec.networkingService.providerNetworks[1].allowedVLANs: is empty; trunk mode needs VLANs
            spec.networkingService.providerNetworks[2].type: "lunch" is not supported; use one of idle, inspection, cleaning, rescuing, servicing, provisioning
            spec.networkingService.providerNetworks[2].mode: "bridge" is not supported; use one of access, trunk, hybrid
            spec.networkingService.providerNetworks[3].allowedVLANs[0]: "0" is not a VLAN or a range; use 1 to 4094, or first-last
            spec.networkingService.providerNetworks[3].allowedVLANs[1]: "4095" is not a VLAN or a range; use 1 to 4094, or first-last
            spec.networkingService.providerNetworks[3].allowedVLANs[2]: "9-8" is not a VLAN or a range; use 1 to 4094, or first-last
            spec.networkingService.providerNetworks[3].allowedVLANs[3]: "a" is not a VLAN or a range; use 1 to 4094, or first-last
            spec.networkingService.providerNetworks[3].allowedVLANs[4]: "1-" is not a VLAN or a range; use 1 to 4094, or first-last
            spec.networkingService.providerNetworks[3].allowedVLANs[5]: "+1" is not a VLAN or a range; use 1 to 4094, or first-last
        "#]],
    );
}

#[test]
fn rule_23_the_key_of_the_trusted_ca_exists() {
    let reference = CaReference {
        name: "ca".to_owned(),
        kind: CaKind::ConfigMap,
        key: Some("b.pem".to_owned()),
    };
    assert_eq!(check_trusted_ca_key(&reference, &["a.pem", "b.pem"]), None);
    assert_eq!(check_trusted_ca_key(&CaReference { key: None, ..reference.clone() }, &[]), None);
    let error = check_trusted_ca_key(&reference, &["a.pem", "c.pem"]).unwrap();
    expect![[r#"spec.tls.trustedCA.key: ConfigMap "ca" has no key "b.pem"; it has a.pem, c.pem"#]]
        .assert_eq(&error.to_string());
}

#[test]
fn overrides_have_unique_names() {
    check(
        json!({"overrides": {
            "containers": [{"name": "ironic"}, {"image": "x"}, {"name": "ironic"}],
            "volumes": [{}],
        }}),
        expect![[r#"
            spec.overrides.containers[1].name: is missing; set it
            spec.overrides.containers[2].name: "ironic" occurs twice; use one entry with all changes
            spec.overrides.volumes[0].name: is missing; set it
        "#]],
    );
}

#[test]
fn database_servers() {
    let check = |spec: Value, expected: expect_test::Expect| {
        let database: IronicDatabase = serde_json::from_value(json!({"spec": spec})).unwrap();
        expected.assert_eq(&messages(&validate_ironic_database(&database)));
    };
    check(json!({}), expect![[""]]);
    check(
        json!({"engine": "PostgreSQL", "image": "postgres:18", "storage": {"size": "1Gi"},
               "credentialsRef": {"name": "db"}, "tlsRef": {"name": "tls"}}),
        expect![[""]],
    );
    check(
        json!({"engine": "Oracle", "credentialsRef": {}, "tlsRef": {}, "storage": {"size": "0Gi"}}),
        expect![[r#"
            spec.engine: "Oracle" is not supported; use one of MariaDB, PostgreSQL
            spec.credentialsRef.name: is empty; set it to the name of a Secret
            spec.tlsRef.name: is empty; set it to the name of a Secret
            spec.storage.size: "0Gi" is not a size; use one such as 10Gi
        "#]],
    );
}
