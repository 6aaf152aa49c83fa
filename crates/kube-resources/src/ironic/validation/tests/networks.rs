// SPDX-License-Identifier: Apache-2.0
//! Rules for addresses, DHCP and virtual addresses.

use expect_test::expect;

use super::super::dhcp_pools;
use super::*;

fn networking(networking: Value) -> Value {
    json!({"networking": networking})
}

/// A spec with the address 192.0.2.1 and DHCP.
fn with_dhcp(dhcp: Value) -> Value {
    networking(json!({"ipAddress": "192.0.2.1", "dhcp": dhcp}))
}

#[test]
fn rule_4_the_pod_network_has_no_interfaces_of_the_node() {
    valid(networking(json!({"disableHostNetwork": true, "externalIP": "192.0.2.1"})));
    check(
        networking(json!({
            "disableHostNetwork": true, "bindInterface": true, "interface": "eth1",
            "ipAddress": "192.0.2.1", "macAddresses": ["00:53:00:12:34:56"],
            "dhcp": {"networkCIDR": "192.0.2.0/24"}, "keepalived": {"enabled": true},
        })),
        expect![[r#"
            spec.networking.bindInterface: needs the host network; remove it, or set disableHostNetwork to false
            spec.networking.dhcp: needs the host network; remove it, or set disableHostNetwork to false
            spec.networking.interface: needs the host network; remove it, or set disableHostNetwork to false
            spec.networking.ipAddress: needs the host network; remove it, or set disableHostNetwork to false
            spec.networking.macAddresses: needs the host network; remove it, or set disableHostNetwork to false
            spec.networking.keepalived: needs the host network; remove it, or set disableHostNetwork to false
        "#]],
    );
}

#[test]
fn rule_5_addresses_are_addresses() {
    valid(networking(json!({"ipAddress": "2001:db8::1", "externalIP": "192.0.2.9"})));
    check(
        networking(json!({"ipAddress": "192.0.2.0/24", "externalIP": "ironic.example"})),
        expect![[r#"
            spec.networking.ipAddress: "192.0.2.0/24" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1
            spec.networking.externalIP: "ironic.example" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1
        "#]],
    );
}

#[test]
fn rule_6_the_external_address_excludes_other_forms() {
    check(
        networking(json!({
            "externalIP": "192.0.2.1", "ingress": {}, "externalCallbackURL": "https://a",
            "imageServerExternalURL": "https://a",
        })),
        expect![[r#"
            spec.networking.externalIP: cannot be combined with ingress; remove one of them
            spec.networking.externalIP: cannot be combined with externalCallbackURL; remove one of them
            spec.networking.externalIP: cannot be combined with imageServerExternalURL; remove one of them
        "#]],
    );
}

#[test]
fn rule_7_external_urls_are_given_together() {
    let both =
        json!({"externalCallbackURL": "https://a:6385", "imageServerExternalURL": "http://[::1]/"});
    valid(networking(both));
    valid(networking(json!({"externalCallbackURL": "https://a", "ingress": {"host": "b"}})));
    check(
        networking(json!({"externalCallbackURL": "https://a"})),
        expect![[r#"
        spec.networking.imageServerExternalURL: is missing; externalCallbackURL needs it unless there is an ingress
    "#]],
    );
    check(
        networking(json!({"imageServerExternalURL": "ftp://a"})),
        expect![[r#"
        spec.networking.imageServerExternalURL: "ftp://a" is not an http or https URL; use one such as https://ironic.example
        spec.networking.externalCallbackURL: is missing; imageServerExternalURL needs it unless there is an ingress
    "#]],
    );
}

#[test]
fn rule_8_replicas_have_their_own_addresses() {
    check(
        json!({"highAvailability": true, "database": database(),
               "networking": {"ipAddress": "192.0.2.1"}}),
        expect![[r#"
            spec.networking.ipAddress: cannot be used with highAvailability, where each node has its own address; use interface or macAddresses
        "#]],
    );
}

/// Metal3's operator rejects this combination.
#[test]
fn rule_9_replicas_may_serve_dhcp() {
    valid(json!({"highAvailability": true, "database": database(),
                 "networking": {"interface": "eth1", "dhcp": {"networkCIDR": "192.0.2.0/24"}}}));
}

#[test]
fn rule_10_dhcp_of_the_provisioning_network() {
    valid(with_dhcp(json!({"networkCIDR": "192.0.2.0/24"})));
    valid(with_dhcp(json!({
        "networkCIDR": "192.0.2.0/24", "rangeBegin": "192.0.2.10", "rangeEnd": "192.0.2.10",
        "dnsAddress": "192.0.2.53", "gatewayAddress": "192.0.2.254",
    })));
    valid(networking(json!({"macAddresses": ["00:53:00:12:34:56"], "dhcp": {
        "networkCIDR": "2001:db8::/64", "serveDNS": true,
    }})));
    check(
        networking(json!({"dhcp": {"networkCIDR": "192.0.2.0/24"}})),
        expect![[r#"
        spec.networking.dhcp: needs to know the provisioning interface; set networking.ipAddress, interface or macAddresses
    "#]],
    );
    check(
        with_dhcp(json!({
            "networkCIDR": "192.0.2.0/24", "serveDNS": true, "dnsAddress": "192.0.2.53",
        })),
        expect![[r#"
            spec.networking.dhcp.serveDNS: cannot be combined with dnsAddress; remove one of them
        "#]],
    );
    check(
        with_dhcp(
            json!({"networkCIDR": "192.0.2.0/24", "dnsAddress": "dns", "gatewayAddress": "gw"}),
        ),
        expect![[r#"
            spec.networking.dhcp.dnsAddress: "dns" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1
            spec.networking.dhcp.gatewayAddress: "gw" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1
        "#]],
    );
    check(
        with_dhcp(json!({})),
        expect![[r#"
        spec.networking.dhcp.networkCIDR: is missing; set it, or add extraRanges for networks behind relays
    "#]],
    );
    check(
        with_dhcp(json!({"rangeBegin": "192.0.2.1", "rangeEnd": "192.0.2.9"})),
        expect![[r#"
        spec.networking.dhcp.rangeBegin: is given without networkCIDR; set networkCIDR too
        spec.networking.dhcp.rangeEnd: is given without networkCIDR; set networkCIDR too
    "#]],
    );
    check(
        with_dhcp(json!({"networkCIDR": "192.0.2.0/24", "rangeEnd": "192.0.2.9"})),
        expect![[r#"
        spec.networking.dhcp.rangeBegin: is missing; set it, or remove rangeEnd to derive both
    "#]],
    );
    check(
        with_dhcp(json!({"networkCIDR": "192.0.2.0"})),
        expect![[r#"
        spec.networking.dhcp.networkCIDR: "192.0.2.0" is not a network; use one such as 192.0.2.0/24
    "#]],
    );
    check(
        with_dhcp(json!({
            "networkCIDR": "192.0.2.0/24", "rangeBegin": "192.0.1.255", "rangeEnd": "2001:db8::1",
        })),
        expect![[r#"
            spec.networking.dhcp.rangeBegin: "192.0.1.255" is not an address in 192.0.2.0/24
            spec.networking.dhcp.rangeEnd: "2001:db8::1" is not an address in 192.0.2.0/24
        "#]],
    );
    check(
        with_dhcp(json!({
            "networkCIDR": "192.0.2.0/24", "rangeBegin": "192.0.2.9", "rangeEnd": "192.0.2.8",
        })),
        expect![[r#"
            spec.networking.dhcp.rangeBegin: 192.0.2.9 is greater than rangeEnd 192.0.2.8; swap them
        "#]],
    );
    check(
        with_dhcp(json!({"networkCIDR": "198.51.100.0/24"})),
        expect![[r#"
        spec.networking.dhcp.networkCIDR: 198.51.100.0/24 does not contain networking.ipAddress 192.0.2.1; correct one of them
    "#]],
    );
    check(
        with_dhcp(json!({"networkCIDR": "192.0.2.0/30"})),
        expect![[r#"
        spec.networking.dhcp.networkCIDR: 192.0.2.0/30 is too small for a derived range; set rangeBegin and rangeEnd
    "#]],
    );
}

#[test]
fn rule_11_dhcp_of_networks_behind_relays() {
    let extra = |range: Value| with_dhcp(json!({"extraRanges": [range]}));
    valid(extra(json!({
        "networkCIDR": "198.51.100.0/24", "rangeBegin": "198.51.100.10",
        "rangeEnd": "198.51.100.20", "gatewayAddress": "198.51.100.1",
    })));
    check(
        extra(json!({})),
        expect![[r#"
        spec.networking.dhcp.extraRanges[0].networkCIDR: is empty; set it to a network such as 192.0.2.0/24
    "#]],
    );
    check(
        extra(json!({"networkCIDR": "0.0.0.0/0", "rangeBegin": "1.1.1.1", "rangeEnd": "1.1.1.2"})),
        expect![[r#"
            spec.networking.dhcp.extraRanges[0].networkCIDR: has the prefix length 0; use the network of the relay
        "#]],
    );
    check(
        extra(json!({"networkCIDR": "198.51.100.0/24"})),
        expect![[r#"
        spec.networking.dhcp.extraRanges[0].rangeBegin: is empty; set it to an address in 198.51.100.0/24
        spec.networking.dhcp.extraRanges[0].rangeEnd: is empty; set it to an address in 198.51.100.0/24
    "#]],
    );
    check(
        extra(json!({
            "networkCIDR": "2001:db8::/64", "rangeBegin": "2001:db8::2", "rangeEnd": "2001:db8::1",
            "gatewayAddress": "2001:db8::1",
        })),
        expect![[r#"
            spec.networking.dhcp.extraRanges[0].gatewayAddress: "2001:db8::1" is not an IPv4 address in 2001:db8::/64; correct or remove it
            spec.networking.dhcp.extraRanges[0].rangeBegin: 2001:db8::2 is greater than rangeEnd 2001:db8::1; swap them
        "#]],
    );
}

#[test]
fn rule_12_pools_do_not_overlap() {
    check(
        with_dhcp(json!({
            "networkCIDR": "192.0.2.0/24",
            "extraRanges": [
                {"networkCIDR": "192.0.2.0/24", "rangeBegin": "192.0.2.200", "rangeEnd": "192.0.2.210"},
                {"networkCIDR": "192.0.2.0/25", "rangeBegin": "192.0.2.1", "rangeEnd": "192.0.2.9"},
            ],
        })),
        expect![[r#"
            spec.networking.dhcp.extraRanges[0].networkCIDR: the range 192.0.2.200-192.0.2.210 overlaps with 192.0.2.25-192.0.2.254 of spec.networking.dhcp.networkCIDR
        "#]],
    );
}

#[test]
fn rule_13_the_older_form_of_keepalived() {
    valid(networking(json!({
        "ipAddress": "192.0.2.1", "interface": "eth1", "ipAddressManager": "keepalived",
    })));
    check(
        networking(json!({"ipAddressManager": "keepalived"})),
        expect![[r#"
        spec.networking.ipAddressManager: needs the address and its interface; set networking.ipAddress and networking.interface
    "#]],
    );
    check(
        networking(json!({"ipAddressManager": "vrrpd"})),
        expect![[r#"
        spec.networking.ipAddressManager: "vrrpd" is not supported; use keepalived, or remove it
    "#]],
    );
    check(
        json!({"highAvailability": true, "database": database(),
               "networking": {"interface": "eth1", "ipAddressManager": "keepalived"}}),
        expect![[r#"
            spec.networking.ipAddressManager: cannot be used with highAvailability; remove one of them
            spec.networking.ipAddressManager: needs the address and its interface; set networking.ipAddress and networking.interface
        "#]],
    );
}

#[test]
fn rule_14_keepalived() {
    let keepalived = |settings: Value| {
        networking(json!({"ipAddress": "192.0.2.1", "interface": "eth1", "keepalived": settings}))
    };
    valid(keepalived(json!({"enabled": true})));
    valid(keepalived(json!({"enabled": true, "additionalVIPs": [
        {"ipAddress": "2001:db8::1", "interface": "eth2", "prefix": 128},
    ]})));
    valid(networking(json!({"keepalived": {"enabled": false}})));
    check(
        networking(json!({
            "ipAddress": "192.0.2.1", "interface": "eth1", "ipAddressManager": "keepalived",
            "keepalived": {"enabled": true},
        })),
        expect![[r#"
            spec.networking.ipAddressManager: cannot be combined with keepalived; remove ipAddressManager, which is its older form
        "#]],
    );
    check(
        networking(json!({"keepalived": {"enabled": true}})),
        expect![[r#"
        spec.networking.keepalived.enabled: needs the address and its interface; set networking.ipAddress and networking.interface
    "#]],
    );
    check(
        keepalived(json!({"enabled": true, "additionalVIPs": [
            {"ipAddress": "", "interface": ""},
            {"ipAddress": "192.0.2.2", "interface": "eth1", "prefix": 33},
        ]})),
        expect![[r#"
            spec.networking.keepalived.additionalVIPs[0].ipAddress: "" is not an IP address; use one such as 192.0.2.1 or 2001:db8::1
            spec.networking.keepalived.additionalVIPs[0].interface: is empty; set it to the interface that gets the address
            spec.networking.keepalived.additionalVIPs[1].prefix: 33 is not a prefix length; use a number from 0 to 32
        "#]],
    );
}

#[test]
fn ports_and_mac_addresses() {
    valid(networking(json!({"apiPort": 65535, "imageServerPort": 1})));
    check(
        networking(json!({
            "apiPort": 65536, "imageServerPort": 0, "imageServerTLSPort": -1,
            "prometheusExporterPort": 70000, "rpcPort": 0,
            "macAddresses": ["00:53:00:12:34:56", "0053.0012.3456"],
        })),
        expect![[r#"
            spec.networking.apiPort: 65536 is not a port; use a number from 1 to 65535
            spec.networking.imageServerPort: 0 is not a port; use a number from 1 to 65535
            spec.networking.imageServerTLSPort: -1 is not a port; use a number from 1 to 65535
            spec.networking.prometheusExporterPort: 70000 is not a port; use a number from 1 to 65535
            spec.networking.rpcPort: 0 is not a port; use a number from 1 to 65535
            spec.networking.macAddresses[1]: "0053.0012.3456" is not a MAC address; use six octets such as 00:53:00:12:34:56
        "#]],
    );
}

#[test]
fn missing_ranges_are_derived() {
    let spec = with_dhcp(json!({"networkCIDR": "192.0.2.7/24", "gatewayAddress": "192.0.2.254"}));
    let pools = dhcp_pools(&ironic(spec).spec);
    assert_eq!(pools.len(), 1);
    assert_eq!(pools[0].network.to_string(), "192.0.2.0/24");
    assert_eq!(pools[0].range.to_string(), "192.0.2.25-192.0.2.253");
}
