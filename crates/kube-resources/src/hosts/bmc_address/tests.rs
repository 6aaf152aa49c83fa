// SPDX-License-Identifier: Apache-2.0
//! Tables of BMC addresses: accepted forms, what each scheme selects, and rejected forms.

use expect_test::{Expect, expect};

use super::*;

fn driver_info(address: &str, disable_verification: bool) -> String {
    let credentials = HostBmcCredentials { username: "admin".into(), password: "secret".into() };
    let address = BmcAddress::parse(address).unwrap();
    let mut info = address.driver_info(&credentials, disable_verification);
    for (key, value) in [("username", "admin"), ("password", "secret")] {
        let prefix = address.bmc_type.protocol_prefix();
        assert_eq!(info.remove(&format!("{prefix}_{key}")), Some(json!(value)));
    }
    Value::Object(info).to_string()
}

impl BmcType {
    fn protocol_prefix(&self) -> &'static str {
        match self.protocol {
            BmcAddressProtocol::Ipmi => "ipmi",
            BmcAddressProtocol::Redfish | BmcAddressProtocol::RedfishWithSystem => "redfish",
        }
    }
}

#[test]
fn schemes_select_interfaces() {
    let mut table = String::new();
    for bmc_type in BMC_TYPES {
        let name = |interface: Option<&'static str>| interface.unwrap_or("default");
        let flags = [
            ("iso", bmc_type.boots_iso),
            ("network", bmc_type.needs_provisioning_network),
            ("secure-boot", bmc_type.supports_secure_boot),
            ("mac", bmc_type.needs_boot_mac),
        ];
        let flags: Vec<&str> =
            flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag).collect();
        table.push_str(&format!(
            "{}: {} boot={} bios={} management={} power={} raid={} vendor={} firmware={} inspect={} [{}]\n",
            bmc_type.scheme,
            bmc_type.driver,
            bmc_type.boot_interface,
            name(bmc_type.bios_interface),
            name(bmc_type.management_interface),
            name(bmc_type.power_interface),
            bmc_type.raid_interface,
            name(bmc_type.vendor_interface),
            name(bmc_type.firmware_interface),
            bmc_type.out_of_band_inspect_interface.unwrap_or("none"),
            flags.join(" "),
        ));
    }
    expect![[r#"
        ipmi: ipmi boot=ipxe bios=default management=default power=default raid=no-raid vendor=default firmware=default inspect=none [network]
        libvirt: ipmi boot=ipxe bios=default management=default power=default raid=no-raid vendor=default firmware=default inspect=none [network mac]
        redfish: redfish boot=ipxe bios=default management=default power=default raid=redfish vendor=default firmware=redfish inspect=redfish [network secure-boot]
        ilo5-redfish: redfish boot=ipxe bios=default management=default power=default raid=redfish vendor=default firmware=redfish inspect=redfish [network secure-boot]
        idrac-redfish: idrac boot=ipxe bios=idrac-redfish management=idrac-redfish power=idrac-redfish raid=idrac-redfish vendor=idrac-redfish firmware=redfish inspect=redfish [network secure-boot]
        redfish-virtualmedia: redfish boot=redfish-virtual-media bios=default management=default power=default raid=redfish vendor=default firmware=redfish inspect=redfish [iso secure-boot]
        ilo5-virtualmedia: redfish boot=redfish-virtual-media bios=default management=default power=default raid=redfish vendor=default firmware=redfish inspect=redfish [iso secure-boot]
        idrac-virtualmedia: idrac boot=idrac-redfish-virtual-media bios=idrac-redfish management=idrac-redfish power=idrac-redfish raid=idrac-redfish vendor=idrac-redfish firmware=redfish inspect=redfish [iso secure-boot]
        redfish-uefihttp: redfish boot=redfish-https bios=default management=default power=default raid=redfish vendor=default firmware=redfish inspect=redfish [iso secure-boot]
    "#]]
    .assert_eq(&table);
}

#[test]
fn addresses_become_driver_info() {
    let check = |address: &str, expected: Expect| expected.assert_eq(&driver_info(address, false));
    check(
        "192.0.2.1",
        expect![[
            r#"{"ipmi_address":"192.0.2.1","ipmi_port":"623","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "192.0.2.1:6230",
        expect![[
            r#"{"ipmi_address":"192.0.2.1","ipmi_port":"6230","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "bmc.example.com",
        expect![[
            r#"{"ipmi_address":"bmc.example.com","ipmi_port":"623","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "bmc.example.com:6230",
        expect![[
            r#"{"ipmi_address":"bmc.example.com","ipmi_port":"6230","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "[2001:db8::1]:6230",
        expect![[
            r#"{"ipmi_address":"2001:db8::1","ipmi_port":"6230","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "ipmi:192.0.2.1",
        expect![[
            r#"{"ipmi_address":"192.0.2.1","ipmi_port":"623","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "ipmi://192.0.2.1:",
        expect![[
            r#"{"ipmi_address":"192.0.2.1","ipmi_port":"623","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "IPMI://192.0.2.1:6230?privilegelevel=OPERATOR",
        expect![[
            r#"{"ipmi_address":"192.0.2.1","ipmi_port":"6230","ipmi_priv_level":"OPERATOR"}"#
        ]],
    );
    check(
        "libvirt://192.0.2.1:6230/",
        expect![[
            r#"{"ipmi_address":"192.0.2.1","ipmi_port":"6230","ipmi_priv_level":"ADMINISTRATOR"}"#
        ]],
    );
    check(
        "redfish://192.0.2.1/redfish/v1/Systems/1",
        expect![[
            r#"{"redfish_address":"https://192.0.2.1","redfish_system_id":"/redfish/v1/Systems/1"}"#
        ]],
    );
    check("redfish://192.0.2.1", expect![[r#"{"redfish_address":"https://192.0.2.1"}"#]]);
    check(
        "redfish://192.0.2.1/redfish/v1/",
        expect![[r#"{"redfish_address":"https://192.0.2.1"}"#]],
    );
    check(
        "redfish://user:pass@192.0.2.1/redfish/v1/Systems/a%20b#x",
        expect![[
            r#"{"redfish_address":"https://192.0.2.1","redfish_system_id":"/redfish/v1/Systems/a b"}"#
        ]],
    );
    check(
        "redfish+http://[2001:db8::1]:8000/redfish/v1/Systems/1",
        expect![[
            r#"{"redfish_address":"http://[2001:db8::1]:8000","redfish_system_id":"/redfish/v1/Systems/1"}"#
        ]],
    );
    check(
        "idrac-virtualmedia+https://bmc.example.com:8443/x",
        expect![[r#"{"redfish_address":"https://bmc.example.com:8443","redfish_system_id":"/x"}"#]],
    );
    check(
        "redfish-uefihttp://192.0.2.1",
        expect![[r#"{"redfish_address":"https://192.0.2.1","redfish_system_id":""}"#]],
    );
    expect![[r#"{"redfish_address":"https://192.0.2.1","redfish_verify_ca":false}"#]]
        .assert_eq(&driver_info("redfish://192.0.2.1", true));
    expect![[r#"{"ipmi_address":"192.0.2.1","ipmi_port":"623","ipmi_priv_level":"ADMINISTRATOR","ipmi_verify_ca":false}"#]].assert_eq(&driver_info("ipmi://192.0.2.1", true));
}

#[test]
fn invalid_addresses_name_the_problem() {
    let check = |address: &str, expected: Expect| {
        expected.assert_eq(&BmcAddress::parse(address).unwrap_err().to_string());
    };
    check(
        "",
        expect!["is empty; set it to the URL of the BMC, such as redfish-virtualmedia://192.0.2.1"],
    );
    check(
        "irmc://192.0.2.1",
        expect![[
            r#"has the unknown scheme "irmc"; use one of ipmi, libvirt, redfish, ilo5-redfish, idrac-redfish, redfish-virtualmedia, ilo5-virtualmedia, idrac-virtualmedia, redfish-uefihttp; all but ipmi and libvirt can be followed by +http or +https"#
        ]],
    );
    check(
        "ipmi+https://192.0.2.1",
        expect![[
            r#"has the unknown scheme "ipmi+https"; use one of ipmi, libvirt, redfish, ilo5-redfish, idrac-redfish, redfish-virtualmedia, ilo5-virtualmedia, idrac-virtualmedia, redfish-uefihttp; all but ipmi and libvirt can be followed by +http or +https"#
        ]],
    );
    check(
        "redfish+ftp://192.0.2.1",
        expect![[
            r#"has the unknown scheme "redfish+ftp"; use one of ipmi, libvirt, redfish, ilo5-redfish, idrac-redfish, redfish-virtualmedia, ilo5-virtualmedia, idrac-virtualmedia, redfish-uefihttp; all but ipmi and libvirt can be followed by +http or +https"#
        ]],
    );
    check(
        "redfish:///redfish/v1",
        expect![[
            r#"has the invalid host ""; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "ipmi://",
        expect![[
            r#"has the invalid host ""; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "2001:db8::1",
        expect![[
            r#"has the invalid host "2001:db8::1"; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "redfish://[2001:db8::1",
        expect![[
            r#"has the invalid host "[2001:db8::1"; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "redfish://[2001:db8::1]8443",
        expect![[
            r#"has the invalid host "[2001:db8::1]8443"; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "redfish://[fe80::1%25eth0]/",
        expect![[
            r#"has the invalid host "[fe80::1%25eth0]"; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "redfish://bmc_1.example.com",
        expect![[
            r#"has the invalid host "bmc_1.example.com"; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "redfish://-bmc.example.com",
        expect![[
            r#"has the invalid host "-bmc.example.com"; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "redfish://bmc..example.com",
        expect![[
            r#"has the invalid host "bmc..example.com"; use an IP address, in brackets if it is IPv6, or a DNS name"#
        ]],
    );
    check(
        "redfish://192.0.2.1:port",
        expect![[r#"has the invalid port "port"; use a number from 1 to 65535"#]],
    );
    check(
        "redfish://192.0.2.1:65536",
        expect![[r#"has the invalid port "65536"; use a number from 1 to 65535"#]],
    );
    check(
        "redfish://192.0.2.1:+80",
        expect![[r#"has the invalid port "+80"; use a number from 1 to 65535"#]],
    );
    check(
        "redfish://192.0.2.1/redfish%2",
        expect!["has an invalid escape sequence in its path; write a literal % as %25"],
    );
}

#[test]
fn every_type_can_be_selected() {
    for bmc_type in BMC_TYPES {
        let address = BmcAddress::parse(&format!("{}://192.0.2.1", bmc_type.scheme)).unwrap();
        assert_eq!(address.bmc_type, bmc_type);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics(address in r"([a-z0-9+-]{0,12}:?/{0,3})?[\[\]a-zA-Z0-9.:%@ü-]{0,24}(/\PC{0,8})?") {
        let _ = BmcAddress::parse(&address);
    }
}
