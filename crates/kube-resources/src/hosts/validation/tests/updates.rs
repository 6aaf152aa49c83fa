// SPDX-License-Identifier: Apache-2.0
//! Rules for changes of a host.

use expect_test::{Expect, expect};
use serde_json::json;

use super::super::super::annotations::ACCEPT_REPLACED_MACHINE;
use super::super::validate_host_update;
use super::*;

/// Errors of a change in a state and with an operational status.
fn errors(old: Value, new: Value, state: &str, operational_status: &str) -> String {
    let status = json!({
        "operationalStatus": operational_status,
        "provisioning": {"state": state, "ID": ""},
    });
    let mut new = host_with(new);
    new.status = serde_json::from_value(status).unwrap();
    messages(&validate_host_update(&host_with(old), &new))
}

#[test]
fn bmc_address() {
    let bmc = |address: &str| json!({"bmc": {"address": address, "credentialsName": "x"}});
    let change = |state: &str, status: &str| {
        errors(bmc("ipmi://192.0.2.1"), bmc("ipmi://192.0.2.2"), state, status)
    };
    assert_eq!(change("registering", "OK"), "");
    assert_eq!(change("available", "OK"), "");
    assert_eq!(change("provisioned", "detached"), "");
    assert_eq!(errors(bmc(""), bmc("ipmi://192.0.2.2"), "unmanaged", "discovered"), "");
    assert_eq!(errors(json!({"bmc": null}), bmc("ipmi://192.0.2.2"), "", ""), "");
    let same = bmc("ipmi://192.0.2.1");
    assert_eq!(errors(same.clone(), same.clone(), "provisioned", "OK"), "");
    expect![[r#"
        spec.bmc.address: can be removed only while the host is registering or detached; keep ipmi://192.0.2.1, or first detach the host with the annotation baremetalhost.metal3.io/detached
    "#]].assert_eq(&errors(same, json!({"bmc": null}), "available", "OK"));
}

#[test]
fn boot_mac_address() {
    let mac = |address: &str| json!({"bootMACAddress": address});
    let check = |old: Value, new: Value, expected: Expect| {
        expected.assert_eq(&errors(old, new, "available", "OK"));
    };
    let address = "00:53:00:AB:CD:EF";
    assert_eq!(errors(mac(""), mac(address), "available", "OK"), "");
    assert_eq!(errors(mac(address), mac("00:53:00:ab:cd:ef"), "available", "OK"), "");
    check(
        mac(address),
        mac("00:53:00:00:00:01"),
        expect![[r#"
            spec.bootMACAddress: cannot be changed; keep 00:53:00:AB:CD:EF, or delete and create the host; if the machine was replaced, set the annotation baremetalhost.metal3.io/accept-replaced-machine in the same change
        "#]],
    );
    check(
        mac(address),
        json!({}),
        expect![[r#"
            spec.bootMACAddress: cannot be changed; keep 00:53:00:AB:CD:EF, or delete and create the host; if the machine was replaced, set the annotation baremetalhost.metal3.io/accept-replaced-machine in the same change
        "#]],
    );
}

#[test]
fn boot_mac_address_of_a_replaced_machine() {
    let old = host_with(json!({"bootMACAddress": "00:53:00:00:00:01"}));
    for spec in [json!({"bootMACAddress": "00:53:00:00:00:02"}), json!({})] {
        let mut new = host_with(spec);
        assert_eq!(validate_host_update(&old, &new).len(), 1);
        let accepts = (ACCEPT_REPLACED_MACHINE.to_owned(), String::new());
        new.metadata.annotations = Some([accepts].into());
        assert_eq!(messages(&validate_host_update(&old, &new)), "");
    }
    let mut invalid = host_with(json!({"bootMACAddress": "no"}));
    invalid.metadata.annotations =
        Some([(ACCEPT_REPLACED_MACHINE.to_owned(), String::new())].into());
    assert_eq!(validate_host_update(&old, &invalid).len(), 1, "the address itself is checked");
}

#[test]
fn externally_provisioned() {
    let flag = |flag: bool| json!({"externallyProvisioned": flag});
    assert_eq!(errors(flag(false), flag(true), "available", "OK"), "");
    assert_eq!(errors(flag(true), flag(true), "externally provisioned", "OK"), "");
    assert_eq!(errors(flag(true), flag(false), "externally provisioned", "OK"), "");
    expect![[r#"
        spec.externallyProvisioned: can be set only when the host is created or available, and it is "provisioned"; wait until it is available
    "#]].assert_eq(&errors(flag(false), flag(true), "provisioned", "OK"));
}

#[test]
fn a_host_without_status_is_in_no_state() {
    let mut new = host_with(json!({"externallyProvisioned": true}));
    new.status = None;
    let errors = validate_host_update(&host_with(json!({})), &new);
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn the_new_version_must_be_valid() {
    let paths = errors(json!({}), json!({"online": false, "disablePowerOff": true}), "", "");
    assert!(paths.starts_with("spec.online: "), "{paths}");
}
