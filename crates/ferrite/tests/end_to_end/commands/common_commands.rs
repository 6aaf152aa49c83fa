// SPDX-License-Identifier: Apache-2.0
//! Commands that work with any Ironic, on Ferrite and on an unmodified Ironic.

use super::stock_ironic::StockIronic;
use super::{CliUser, invalid_input};
use crate::test_process::TestHome;

#[test]
fn common_commands_work_on_ferrite() {
    let home = TestHome::new();
    run_common_commands(&home.serve().url());
}

/// On an Ironic from PyPI.
#[test]
fn common_commands_work_on_stock_ironic() {
    match StockIronic::start() {
        Some(ironic) => {
            run_common_commands(&ironic.url);
            // Features of Ferrite are distinguished from missing resources.
            let user = CliUser::new(&ironic.url);
            for (line, code, expected) in [
                ("topology", 4, "not a Ferrite"),
                ("flavour list", 4, "not a Ferrite"),
                ("runbook show CUSTOM_X", 3, "unknown runbook"),
            ] {
                let done = user.run(line);
                assert_eq!(done.code, code, "ferrite {line}: {}", done.err);
                assert!(done.err.contains(expected), "ferrite {line}: {}", done.err);
            }
            invalid_input::take_over(&ironic.url);
        }
        None => println!("skipped: FERRITE_TEST_STOCK_IRONIC is not set"),
    }
}

/// Commands that work with any Ironic.
fn run_common_commands(url: &str) {
    let user = CliUser::new(url);
    user.enrol_rack();
    for (line, code) in [
        ("node create --file rack.yaml", 0),
        ("node manage rack1-[01-03] -w", 0),
        ("node provide rack1-[01-03] -wy", 0),
        ("node power off rack1-[01-03] -wy", 0),
        ("node provide rack1-01", 4),
        ("node show rack1-1", 3),
        ("node list -o wide", 0),
        ("node set rack1-01 -f owner=blue -f extra.rack=7", 0),
        ("node validate rack1-01", 0),
        ("node set rack1-01 -f extra.a.b=1 -f owner=red --trait CUSTOM_NEW", 0),
        ("node set rack1-01 -f owner=green --trait no-trait", 4),
        ("port list --node rack1-01", 0),
        ("deploy --dry-run --image http://images/a.raw --resource-class big --trait CUSTOM_GPU", 0),
        (
            "deploy --image http://images/a.raw --checksum http://images/SUMS --resource-class none",
            4,
        ),
        (
            "deploy --image http://images/a.raw --checksum http://images/SUMS --resource-class big \
             --candidate rack1-02 --trait CUSTOM_GPU",
            0,
        ),
        ("node rebuild rack1-02 -w", 0),
        ("undeploy rack1-02", 0),
        ("node manage rack1-03 -w", 0),
        ("node inspect rack1-03 -w", 0),
        ("node maintenance on rack1-03 --reason fan", 0),
        ("node maintenance off rack1-03", 0),
        ("runbook list", 0),
        ("rule list", 0),
        ("driver list", 0),
    ] {
        let done = user.run(line);
        assert_eq!(done.code, code, "ferrite {line}: {}{}", done.out, done.err);
    }
    let nodes = user.json("node list rack1-[01-03]");
    assert_eq!((&nodes[0]["owner"], &nodes[0]["extra"]["a"]["b"]), (&"red".into(), &"1".into()));
    let states: Vec<&str> = nodes
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|node| node["provision_state"].as_str())
        .collect();
    assert_eq!(states, ["available", "available", "manageable"]);
    assert_eq!(user.json("allocation list"), serde_json::json!([]));
    assert_eq!(user.run("node delete rack1-[01-03] -y").code, 0);
}
