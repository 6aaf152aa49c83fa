// SPDX-License-Identifier: Apache-2.0
//! The whole journey by every way of booting.

use serde_json::json;

use super::traveller::{Agent, Traveller};
use crate::real_bmcs::lab::Lab;

/// By PXE and iPXE, with ironic-python-agent as it is.
#[test]
fn a_uefi_machine_travels_with_the_stock_agent() {
    let Some(lab) = Lab::find() else { return };
    let Some(mut machine) = Traveller::enrol(&lab, "journey-uefi", Agent::Stock, "ipxe", &[])
    else {
        return;
    };
    whole_journey(&mut machine);
}

fn whole_journey(machine: &mut Traveller<'_>) {
    machine.go("manage", &[]);
    machine.go("inspect", &[]);
    let node = machine.show();
    assert_eq!(node["properties"]["cpu_arch"], json!("x86_64"), "{node}");
    machine.go("provide", &[]);
    let console = machine.deploy("journey-one", &[]);
    assert!(console.said().contains("FERRITE-DEPLOYED "), "{}", console.last(20));
    machine.go("undeploy", &[]);
    println!("{}", machine.story());
}
