// SPDX-License-Identifier: Apache-2.0
//! Fields that the service does not support, missing facts, downgrades, schema Jobs and generated
//! Secrets.

use expect_test::{Expect, expect};
use operator::ironic::credentials::ApiCredentials;
use operator::ironic::desired::{
    DesiredObjectsError, api_credentials_secret, desired_objects, sealing_keys_secret,
};
use serde_json::{Value, json};

use crate::fixtures;

fn check(spec: Value, expected: Expect) {
    let ironic = fixtures::ironic(&spec);
    let outcome = desired_objects(&ironic, &fixtures::facts(&ironic), &fixtures::settings());
    let text = match outcome {
        Err(DesiredObjectsError::Unsupported(fields)) => {
            fields.iter().map(|field| format!("{field}\n")).collect::<String>()
        }
        other => panic!("{spec}: {other:?}"),
    };
    expected.assert_eq(&text);
}

fn dhcp(dhcp: Value) -> Value {
    json!({"networking": {"interface": "eth1", "ipAddress": "192.0.2.2", "dhcp": dhcp}})
}

#[test]
fn dhcp_options() {
    check(
        dhcp(json!({"networkCIDR": "192.0.2.0/24",
                    "hosts": ["id:*,192.0.2.7", "00:53:00:12:34:56,host7", "00:53:00:12:34:56,10.0.0.1",
                              "00:53:00:12:34:56,192.0.2.7", "00:53:00:12:34:57,192.0.2.7",
                              "00:53:00:12:34:56,192.0.2.8", "00:53:00:12:34:58,192.0.2.255",
                              "00:53:00:12:34:58,[2001:db8::1]"],
                    "ignore": ["tag:slow"]})),
        expect![[r#"
            spec.networking.dhcp.hosts[0]: "id:*,192.0.2.7" is not supported; use MAC address, comma, and IP address or ignore
            spec.networking.dhcp.hosts[1]: "host7" is not an IP address
            spec.networking.dhcp.hosts[2]: 10.0.0.1 is in none of the networks
            spec.networking.dhcp.hosts[4]: 192.0.2.7 has another entry already
            spec.networking.dhcp.hosts[5]: 00:53:00:12:34:56 has the address 192.0.2.7 in this network already
            spec.networking.dhcp.hosts[6]: 192.0.2.255 is in none of the networks
            spec.networking.dhcp.hosts[7]: 2001:db8::1: DHCPv6 has no fixed addresses; remove it
            spec.networking.dhcp.ignore[0]: "tag:slow" is not supported; use MAC addresses or tag:!known
        "#]],
    );
    check(
        dhcp(json!({"networkCIDR": "192.0.2.0/24", "gatewayAddress": "198.51.100.1",
                    "dnsAddress": "2001:db8::53"})),
        expect![[r#"
            spec.networking.dhcp.gatewayAddress: 198.51.100.1 is not the address of a machine in 192.0.2.0/24
            spec.networking.dhcp.dnsAddress: 2001:db8::53 does not have the IP version of any network
        "#]],
    );
    check(
        dhcp(json!({"networkCIDR": "192.0.2.0/24", "rangeBegin": "192.0.2.0",
                    "rangeEnd": "192.0.2.0"})),
        expect![[r#"
            spec.networking.dhcp.networkCIDR: the range 192.0.2.0-192.0.2.0 has no address for machines
        "#]],
    );
    let range = |network: &str, begin: &str, end: &str| json!({"networkCIDR": network, "rangeBegin": begin, "rangeEnd": end});
    check(
        dhcp(json!({"networkCIDR": "192.0.2.0/24", "extraRanges": [
            range("2001:db8:1::/64", "2001:db8:1::1", "2001:db8:1::9")]})),
        expect![[r#"
            spec.networking.dhcp.extraRanges[0].networkCIDR: the service has no address of this IP version, so relays cannot reach it; remove the range
        "#]],
    );
    check(
        dhcp(json!({"extraRanges": [
            {"networkCIDR": "198.51.100.0/24", "rangeBegin": "198.51.100.5",
             "rangeEnd": "198.51.100.9", "gatewayAddress": "198.51.100.1"},
            {"networkCIDR": "198.51.100.0/24", "rangeBegin": "198.51.100.15",
             "rangeEnd": "198.51.100.19", "gatewayAddress": "198.51.100.2"}]})),
        expect![[r#"
            spec.networking.dhcp.extraRanges[1].networkCIDR: 198.51.100.0/24 has another gateway already
        "#]],
    );
    check(
        json!({"networking": {"interface": "eth1", "ipAddress": "2001:db8::1", "dhcp": {
            "networkCIDR": "2001:db8::/64", "gatewayAddress": "2001:db8::2",
            "extraRanges": [range("2001:db8::/64", "2001:db8::2:1", "2001:db8::2:2")]}}}),
        expect![[r#"
            spec.networking.dhcp.gatewayAddress: DHCPv6 has no option for gateways, routers announce themselves; remove it
            spec.networking.dhcp.extraRanges[0].networkCIDR: 2001:db8::/64 has a range already
        "#]],
    );
}

#[test]
fn generated_secrets() {
    let ironic = fixtures::ironic(&json!({}));
    let credentials = ApiCredentials {
        username: "u".to_owned(),
        password: "p".to_owned(),
        htpasswd: "u:h".to_owned(),
    };
    let secret = api_credentials_secret(&ironic, &credentials);
    assert_eq!(secret["metadata"]["generateName"], "ironic-service-");
    assert_eq!(secret["type"], "kubernetes.io/basic-auth");
    assert_eq!(
        secret["metadata"]["labels"]["environment.metal3.io/ironic-standalone-operator"],
        "true"
    );
    assert_eq!(secret["data"], json!({"username": "dQ==", "password": "cA==", "htpasswd": "dTpo"}));
    assert!(secret["metadata"]["ownerReferences"][0]["controller"].is_null());
    let secret = sealing_keys_secret(&ironic, "k");
    assert_eq!(secret["metadata"]["name"], "ironic-sealing-keys");
    assert_eq!(secret["data"], json!({"keys": "aw=="}));
}

#[test]
fn other_services() {
    check(
        json!({"networkingService": {"enabled": true}}),
        expect![[r#"
        spec.networkingService.enabled: the service does not manage switches; set it to false
    "#]],
    );
    check(
        json!({"extraConfig": [
            {"group": "glance", "name": "region_name", "value": "x"},
            {"group": "deploy", "name": "fast_track", "value": "maybe"},
            {"group": "api", "name": "max_limit", "value": "many"},
        ]}),
        expect![[r#"
            spec.extraConfig[0]: the service has no counterpart of [glance] region_name; remove it
            spec.extraConfig[1].value: "maybe" is not a boolean; use true or false
            spec.extraConfig[2].value: "many" is not an integer
        "#]],
    );
    check(
        json!({"overrides": {
            "containers": [{"name": "httpd", "resources": {}}, {"name": "new"}],
            "initContainers": [{"name": "new"}],
            "httpdLivenessProbe": {"exec": {"command": ["curl"]}},
        }}),
        expect![[r#"
            spec.overrides.containers[0].name: there is no container "httpd", the container "ironic" does its work; override that one
            spec.overrides.httpdLivenessProbe.exec: the image of the service has no shell and no curl; use httpGet or tcpSocket
            spec.overrides.containers[1].image: is missing; the pod has no container "new" to change
            spec.overrides.initContainers[0].image: is missing; the pod has no container "new" to change
        "#]],
    );
}

#[test]
fn notices_do_not_block() {
    let ironic = fixtures::ironic(&json!({
        "networking": {"rpcPort": 6000, "macAddresses": ["00:53:00:12:34:56"], "dhcp": {
            "gatewayAddress": "192.0.2.1",
            "extraRanges": [{"networkCIDR": "198.51.100.0/24", "rangeBegin": "198.51.100.5",
                             "rangeEnd": "198.51.100.9"}],
        }},
        "extraConfig": [{"name": "debug"}],
        "networkingService": {"enabled": false, "switchConfigSecretName": "x"},
        "prometheusExporter": {"enabled": true, "sensorCollectionInterval": 90},
    }));
    let desired =
        desired_objects(&ironic, &fixtures::facts(&ironic), &fixtures::settings()).unwrap();
    let notices: String = desired.notices.iter().map(|notice| format!("{notice}\n")).collect();
    expect![[r#"
        spec.networking.dhcp.gatewayAddress: it is the gateway of networkCIDR, which is missing
        spec.prometheusExporter.sensorCollectionInterval: sensors are read when a client requests them, and are not among the metrics
        spec.networking.rpcPort: replicas share the database and make no calls to each other
        spec.networkingService.switchConfigSecretName: the networking service is not enabled
        spec.extraConfig[0]: name or value is missing
    "#]]
    .assert_eq(&notices);
}

#[test]
fn linked_objects_are_needed() {
    for (spec, expected) in [
        (json!({}), "cannot load the API credentials"),
        (json!({"tls": {"generate": true}}), "cannot load the certificate"),
        (json!({"tls": {"bmcCAName": "ca"}}), "cannot load the CA for BMCs"),
        (json!({"tls": {"trustedCAName": "ca"}}), "cannot load the CA for image servers"),
        (json!({"databaseRef": {"name": "db"}}), "cannot load the database credentials"),
    ] {
        let ironic = fixtures::ironic(&spec);
        let mut facts = fixtures::facts(&ironic);
        match spec.as_object().unwrap().is_empty() {
            true => facts.api_credentials = Default::default(),
            false => {
                facts.certificate = None;
                facts.bmc_ca = None;
                facts.trusted_ca = None;
                facts.database = None;
            }
        }
        let error = desired_objects(&ironic, &facts, &fixtures::settings()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn the_key_of_the_trusted_ca_is_checked() {
    let ironic = fixtures::ironic(
        &json!({"tls": {"trustedCA": {"name": "ca", "kind": "ConfigMap", "key": "c.pem"}}}),
    );
    let error =
        desired_objects(&ironic, &fixtures::facts(&ironic), &fixtures::settings()).unwrap_err();
    expect![[r#"spec.tls.trustedCA.key: ConfigMap "ca" has no key "c.pem"; it has a.pem, b.pem"#]]
        .assert_eq(&error.to_string());
}

#[test]
fn databases_are_not_downgraded() {
    let outcome = |installed: &str, spec: Value| {
        let object = json!({
            "metadata": {"name": "ironic", "namespace": "metal"},
            "spec": spec,
            "status": {"installedVersion": installed},
        });
        let ironic = fixtures::from_object(&object);
        desired_objects(&ironic, &fixtures::facts(&ironic), &fixtures::settings()).map(|_| ())
    };
    let with_database = json!({"databaseRef": {"name": "db"}, "version": "37.0"});
    assert_eq!(outcome("38.0", with_database.clone()), Err(DesiredObjectsError::Downgrade));
    assert_eq!(outcome("37.0", with_database.clone()), Ok(()));
    assert_eq!(outcome("latest", with_database.clone()), Ok(()));
    assert_eq!(outcome("0.1", with_database), Ok(()));
    assert_eq!(outcome("38.0", json!({"version": "37.0"})), Ok(()), "no database server");
}

#[test]
fn the_schema_job_runs_once() {
    let spec = json!({"databaseRef": {"name": "db"}});
    let ironic = fixtures::ironic(&spec);
    let mut facts = fixtures::facts(&ironic);
    let first = desired_objects(&ironic, &facts, &fixtures::settings()).unwrap();
    let job = first.schema_job.expect("a Job before the first installation");
    let name = job["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("ironic-pre-none-to-0.1-"), "{name}");
    let workload = first.objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let identity = &workload["metadata"]["annotations"]["ironic.metal3.io/schema-job"];
    facts.finished_schema_job = identity.as_str().map(str::to_owned);

    let mut installed = ironic;
    installed.status = serde_json::from_value(json!({"installedVersion": "0.1"})).unwrap();
    let second = desired_objects(&installed, &facts, &fixtures::settings()).unwrap();
    assert_eq!(second.schema_job, None);

    let mut settings = fixtures::settings();
    settings.service_image = "registry.example/ferrite:0.2".to_owned();
    let upgrade = desired_objects(&installed, &facts, &settings).unwrap();
    let job = upgrade.schema_job.expect("a Job for another image");
    let next = job["metadata"]["name"].as_str().unwrap();
    assert!(next.starts_with("ironic-pre-0.1-to-0.1-") && next != name, "{next}");
}
