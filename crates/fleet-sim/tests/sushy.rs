// SPDX-License-Identifier: Apache-2.0
//! Counterpart test: sushy from PyPI, Ironic's Redfish library, against every built-in personality.
//!
//! `cargo xtask test` installs it and sets `FERRITE_TEST_CLIENTS`.

// Test helpers may unwrap and print, as tests may.
#![cfg(test)]

use std::path::PathBuf;
use std::process::Command;

use fleet_sim::{FleetConfig, Personality, RedundantResetRule, ResourceKind, SimulatedFleet};
use serde_json::{Value, json};

const SCRIPT: &str = "tests/sushy_client.py";
/// A POST of 90 seconds takes about a quarter of a second.
const SPEED: f64 = 400.0;

#[test]
fn sushy_works_with_every_personality() {
    let Some(clients) = clients() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let personalities: Vec<Personality> = Personality::built_in_names()
        .into_iter()
        .map(|name| Personality::built_in(name).unwrap())
        .collect();
    let config = FleetConfig {
        bmcs: u32::try_from(personalities.len()).unwrap(),
        personalities: personalities.clone(),
        speed: SPEED,
        ..FleetConfig::default()
    };
    let guard = runtime.enter();
    let fleet = SimulatedFleet::start(config).unwrap();
    drop(guard);
    // In parallel, because the scripts wait most of the time.
    let scripts: Vec<_> = fleet
        .machines()
        .zip(&personalities)
        .map(|(machine, personality)| {
            let mut python = Command::new(clients.join("bin/python"));
            python
                .arg(SCRIPT)
                .args([machine.url(), machine.system_path()])
                .args(["admin", "password", &capabilities(personality).to_string()])
                .current_dir(env!("CARGO_MANIFEST_DIR"));
            let name = personality.name.clone();
            std::thread::spawn(move || (name, python.output().unwrap()))
        })
        .collect();
    let mut failures = String::new();
    for script in scripts {
        let (name, output) = script.join().unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            failures += &format!("{name}:\n{}\n", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(failures.is_empty(), "{failures}");
    runtime.block_on(fleet.stop());
}

/// The behaviour that the script expects of this personality.
fn capabilities(personality: &Personality) -> Value {
    json!({
        "manufacturer": personality.manufacturer,
        "ports": personality.network.count,
        "rejects_redundant_reset": personality.power.redundant_reset == RedundantResetRule::Rejected,
        "continuous": personality.boot.supports_continuous,
        "media_under_system": personality.has_resource(ResourceKind::SystemMedia),
        "replaces_media": personality.media.insert_replaces,
        "raid": !personality.storage[0].raid.is_empty(),
        "thermal": personality.has_resource(ResourceKind::Thermal),
    })
}

/// Returns where the clients are installed. Fails if they are missing but required, as in CI.
fn clients() -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os("FERRITE_TEST_CLIENTS") {
        return Some(directory.into());
    }
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|value| value == "required");
    assert!(!required, "FERRITE_TEST_CLIENTS is not set: run `cargo xtask test`");
    println!("skipped: FERRITE_TEST_CLIENTS is not set; `cargo xtask test` sets it");
    None
}
