// SPDX-License-Identifier: Apache-2.0
//! sushy from PyPI, the library Ironic talks Redfish with, walks through every kind of machine.
//!
//! `cargo xtask test` installs it and says where in `FERRITE_TEST_CLIENTS`.

// Helpers of tests may unwrap and print as tests do.
#![cfg(test)]

use std::path::PathBuf;
use std::process::Command;

use fleet_sim::{Fleet, FleetConfig, Kind, Personality, Redundant};
use serde_json::{Value, json};

const WALK: &str = "tests/sushy_walk.py";
/// A POST of a minute and a half becomes a quarter of a second.
const SPEED: f64 = 400.0;

#[test]
fn sushy_is_content_with_every_kind_of_machine() {
    let Some(clients) = clients() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let personalities: Vec<Personality> =
        Personality::names().into_iter().map(|name| Personality::named(name).unwrap()).collect();
    let config = FleetConfig {
        bmcs: u32::try_from(personalities.len()).unwrap(),
        personalities: personalities.clone(),
        speed: SPEED,
        ..FleetConfig::default()
    };
    let guard = runtime.enter();
    let fleet = Fleet::start(config).unwrap();
    drop(guard);
    // All at once: the walks wait most of the time.
    let walks: Vec<_> = fleet
        .machines()
        .zip(&personalities)
        .map(|(machine, personality)| {
            let mut python = Command::new(clients.join("bin/python"));
            python
                .arg(WALK)
                .args([machine.url(), machine.system_path()])
                .args(["admin", "password", &capabilities(personality).to_string()])
                .current_dir(env!("CARGO_MANIFEST_DIR"));
            let name = personality.name.clone();
            std::thread::spawn(move || (name, python.output().unwrap()))
        })
        .collect();
    let mut complaints = String::new();
    for walk in walks {
        let (name, output) = walk.join().unwrap();
        print!("{}", String::from_utf8_lossy(&output.stdout));
        if !output.status.success() {
            complaints += &format!("{name}:\n{}\n", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert!(complaints.is_empty(), "{complaints}");
    runtime.block_on(fleet.stop());
}

/// What the walk should find on this kind of machine.
fn capabilities(personality: &Personality) -> Value {
    json!({
        "manufacturer": personality.manufacturer,
        "ports": personality.network.count,
        "minds_what_is_so": personality.power.redundant == Redundant::Refused,
        "continuous": personality.boot.continuous,
        "media_under_system": personality.has(Kind::SystemMedia),
        "replaces_media": personality.media.replaces,
        "raid": !personality.storage[0].raid.is_empty(),
        "thermal": personality.has(Kind::Thermal),
    })
}

/// Where the clients are installed. They must be when the servers are required, as in CI.
fn clients() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("FERRITE_TEST_CLIENTS") {
        return Some(folder.into());
    }
    let required = std::env::var("FERRITE_TEST_SERVERS").is_ok_and(|value| value == "required");
    assert!(!required, "FERRITE_TEST_CLIENTS is not set: run `cargo xtask test`");
    println!("not run: FERRITE_TEST_CLIENTS is not set; `cargo xtask test` sets it");
    None
}
