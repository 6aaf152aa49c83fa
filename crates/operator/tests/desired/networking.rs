// SPDX-License-Identifier: Apache-2.0
//! Addresses, URLs and DHCP networks of the configuration.

use operator::ironic::desired::desired_objects;
use operator::ironic::settings::IronicOperatorSettings;
use serde_json::{Value, json};

use crate::fixtures;

/// The configuration file and the variables, as JSON by key.
fn configuration(spec: &Value, has_ipv6_addresses: bool) -> Value {
    let ironic = fixtures::ironic(spec);
    let settings = IronicOperatorSettings { has_ipv6_addresses, ..fixtures::settings() };
    let desired = desired_objects(&ironic, &fixtures::facts(&ironic), &settings).unwrap();
    let find = |kind: &str| desired.objects.iter().find(|object| object["kind"] == kind).unwrap();
    let text = find("ConfigMap")["data"]["ferrite.toml"].as_str().unwrap();
    let mut all = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
    let container = &find("Deployment")["spec"]["template"]["spec"]["containers"][0];
    for variable in container["env"].as_array().unwrap() {
        all["env"][variable["name"].as_str().unwrap()] = variable["value"].clone();
    }
    all
}

#[test]
fn keys_follow_from_fields() {
    let tls = json!({"certificateName": "tls"});
    let range = json!({"networkCIDR": "192.0.2.0/24", "rangeBegin": "192.0.2.10",
                       "rangeEnd": "192.0.2.20"});
    for (spec, has_ipv6, expected) in [
        // IPv6 addresses are in brackets.
        (
            json!({"tls": tls}),
            true,
            json!({
                "/api/listen": "[::]:6385",
                "/env/FERRITE_BOOT__API_URL": "https://[$(IRONIC_IP)]:6385",
                "/env/FERRITE_BOOT__HTTPS_URL": "https://[$(IRONIC_IP)]:6183",
                "/env/FERRITE_BOOT__EXTERNAL_HTTP_URL": "https://[$(IRONIC_IP)]:6183",
            }),
        ),
        (
            json!({"networking": {"externalIP": "2001:db8::9"}}),
            false,
            json!({
                "/api/listen": "0.0.0.0:6385",
                "/boot/external_callback_url": "http://[2001:db8::9]:6385",
                "/boot/external_http_url": "http://[2001:db8::9]:6180",
            }),
        ),
        // BMCs may not use TLS; agents do.
        (
            json!({"networking": {"ipAddress": "192.0.2.2"},
                   "tls": {"certificateName": "tls", "disableVirtualMediaTLS": true}}),
            false,
            json!({
                "/boot/http_url": "http://192.0.2.2:6180",
                "/boot/https_url": "https://192.0.2.2:6183",
                "/boot/external_http_url": null,
            }),
        ),
        // Without a host the URL of the Ingress is not known.
        (
            json!({"networking": {"ingress": {}}}),
            false,
            json!({"/boot/path_prefix": "/images", "/boot/external_http_url": null}),
        ),
        (
            json!({"networking": {"ingress": {"host": "a.example"},
                                  "imageServerExternalURL": "https://b.example"}}),
            false,
            json!({
                "/boot/external_callback_url": "https://a.example",
                "/boot/external_http_url": "https://b.example",
            }),
        ),
        // The default address for metrics is that of the schema.
        (
            json!({"prometheusExporter": {"enabled": true, "bindAddress": "0.0.0.0"}}),
            true,
            json!({"/metrics/listen": "[::]:9608", "/api/public_metrics": false}),
        ),
        (json!({"prometheusExporter": {"enabled": false}}), false, json!({"/metrics": null})),
        // The family of the interface's address follows from the network.
        (
            json!({"networking": {"interface": "eth1", "dhcp": {"networkCIDR": "2001:db8::/64"}}}),
            false,
            json!({
                "/api/listen": "[::]:6385",
                "/provisioning/network": "2001:db8::/64",
                "/dhcp/networks/0/address": "{provisioning_address}/64",
            }),
        ),
        // An additional range of the provisioning network needs no relay.
        (
            json!({"networking": {"ipAddress": "192.0.2.2", "dhcp": {"extraRanges": [range]}}}),
            false,
            json!({
                "/dhcp/networks/0/address": "192.0.2.2/24",
                "/dhcp/networks/0/interface": "{provisioning_interface}",
                "/dhcp/networks/0/ranges/0": "192.0.2.10-192.0.2.20",
                "/dhcp/networks/1": null,
            }),
        ),
    ] {
        let found = configuration(&spec, has_ipv6);
        for (pointer, value) in expected.as_object().unwrap() {
            let actual = found.pointer(pointer).unwrap_or(&Value::Null);
            assert_eq!(actual, value, "{spec} {pointer}");
        }
    }
}
