// SPDX-License-Identifier: Apache-2.0
//! Behaviour of machines over time, as scripts: each line is a second and a command, and the
//! expected output repeats it with the resulting state.

use std::fmt::Write as _;
use std::sync::Arc;

use expect_test::{Expect, expect};
use node_model::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::personality::ComponentKind;

/// Creates machine 0 with seed 1, whose durations are the personality's with up to 20 percent
/// jitter; the scripts leave room for that.
fn machine(personality: &str) -> MachineModel {
    let personality = Personality::built_in(personality).unwrap();
    MachineModel::new(MachineIdentity { index: 0, seed: 1 }, Arc::new(personality))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_secs(1_000_000 + second)
}

fn check(personality: &str, script: &str, expected: &Expect) {
    let mut machine = machine(personality);
    let mut output = String::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (second, command) = line.split_once(' ').unwrap();
        let now = at(second.parse().unwrap());
        machine.advance(now);
        let outcome = match run_script_command(&mut machine, command, now) {
            Ok(()) => String::new(),
            Err(error) => format!(" rejected: {error}"),
        };
        writeln!(output, "{line}:{outcome} {}", describe(&machine)).unwrap();
    }
    expected.assert_eq(&output);
}

fn run_script_command(
    machine: &mut MachineModel,
    command: &str,
    now: Timestamp,
) -> Result<(), MachineError> {
    let words: Vec<&str> = command.split(' ').collect();
    match words[..] {
        ["show"] => Ok(()),
        ["reset", reset] => machine.reset(ResetType::from_name(reset).unwrap(), now),
        ["boot", target, enabled] => {
            let change = BootChange {
                target: BootTarget::from_name(target),
                enabled: BootOverride::from_name(enabled),
                ..BootChange::default()
            };
            machine.set_boot(change, now)
        }
        ["target", target] => {
            let change =
                BootChange { target: BootTarget::from_name(target), ..BootChange::default() };
            machine.set_boot(change, now)
        }
        ["mode", mode] => {
            let change = BootChange { mode: BootMode::from_name(mode), ..BootChange::default() };
            machine.set_boot(change, now)
        }
        ["insert", slot, image] => {
            let media = InsertedMedia {
                image: image.into(),
                inserted: true,
                write_protected: true,
                user_name: None,
                since: now,
            };
            machine.insert_media(slot.parse().unwrap(), media)
        }
        ["eject", slot] => machine.eject_media(slot.parse().unwrap()),
        ["secure", enabled] => machine.set_secure_boot(enabled == "on"),
        _ => panic!("unknown script command {command:?}"),
    }
}

fn describe(machine: &MachineModel) -> String {
    let mut text = machine.power_state().name().to_owned();
    let settings = machine.boot_settings();
    if settings.enabled != BootOverride::Disabled {
        write!(text, ", will boot {} {}", settings.target.name(), settings.enabled.name()).unwrap();
    }
    if let Some(boot) = machine.current_boot() {
        write!(text, ", runs from {}", boot.from.name()).unwrap();
        if let Some(image) = &boot.image {
            write!(text, " {image}").unwrap();
        }
        if boot.secure {
            text.push_str(" with secure boot");
        }
    }
    text
}

#[test]
fn power_transitions_take_time() {
    check(
        "generic",
        "0 reset On
         1 show
         4 show
         70 show
         71 reset GracefulShutdown
         75 show
         95 show
         96 reset ForceOff
         97 reset GracefulRestart
         160 show
         161 reset PowerCycle
         162 show
         166 show
         240 reset PushPowerButton
         270 show
         271 reset PushPowerButton
         280 show",
        &expect![[r#"
            0 reset On: PoweringOn
            1 show: PoweringOn
            4 show: On
            70 show: On, runs from Hdd
            71 reset GracefulShutdown: On, runs from Hdd
            75 show: On, runs from Hdd
            95 show: Off
            96 reset ForceOff: Off
            97 reset GracefulRestart: PoweringOn
            160 show: On, runs from Hdd
            161 reset PowerCycle: PoweringOff
            162 show: PoweringOff
            166 show: On
            240 reset PushPowerButton: On, runs from Hdd
            270 show: Off
            271 reset PushPowerButton: PoweringOn
            280 show: On
        "#]],
    );
}

#[test]
fn hpe_like_rejects_redundant_resets() {
    check(
        "hpe-like",
        "0 reset ForceOff
         1 reset ForceRestart
         2 reset On
         10 reset On
         11 reset ForceOff
         12 reset On
         30 show",
        &expect![[r#"
            0 reset ForceOff: rejected: cannot do ForceOff while the power state is Off Off
            1 reset ForceRestart: rejected: cannot do ForceRestart while the power state is Off Off
            2 reset On: PoweringOn
            10 reset On: rejected: cannot do On while the power state is On On
            11 reset ForceOff: PoweringOff
            12 reset On: PoweringOff
            30 show: On
        "#]],
    );
}

#[test]
fn once_override_applies_to_one_boot() {
    check(
        "generic",
        "0 insert 0 http://images/agent.iso
         1 boot Cd Once
         2 reset On
         90 show
         91 reset ForceRestart
         180 show
         181 boot Pxe Continuous
         182 reset ForceRestart
         270 show
         271 reset ForceRestart
         360 show
         361 boot Cd Once
         362 eject 0
         363 reset ForceRestart
         450 show",
        &expect![[r#"
            0 insert 0 http://images/agent.iso: Off
            1 boot Cd Once: Off, will boot Cd Once
            2 reset On: PoweringOn, will boot Cd Once
            90 show: On, runs from Cd http://images/agent.iso
            91 reset ForceRestart: On
            180 show: On, runs from Hdd
            181 boot Pxe Continuous: On, will boot Pxe Continuous, runs from Hdd
            182 reset ForceRestart: On, will boot Pxe Continuous
            270 show: On, will boot Pxe Continuous, runs from Pxe
            271 reset ForceRestart: On, will boot Pxe Continuous
            360 show: On, will boot Pxe Continuous, runs from Pxe
            361 boot Cd Once: On, will boot Cd Once, runs from Pxe
            362 eject 0: On, will boot Cd Once, runs from Pxe
            363 reset ForceRestart: On, will boot Cd Once
            450 show: On, runs from Hdd
        "#]],
    );
}

#[test]
fn personalities_differ_in_boot_settings() {
    check(
        "hpe-like",
        "0 boot Pxe Continuous
         1 boot Floppy Once
         2 boot Pxe Once",
        &expect![[r#"
            0 boot Pxe Continuous: rejected: BootSourceOverrideEnabled cannot be Continuous Off
            1 boot Floppy Once: rejected: BootSourceOverrideTarget cannot be Floppy Off
            2 boot Pxe Once: Off, will boot Pxe Once
        "#]],
    );
    check(
        "dell-like",
        "0 reset On
         20 boot Pxe Once
         120 boot Pxe Once",
        &expect![[r#"
            0 reset On: Off
            20 boot Pxe Once: rejected: boot settings cannot be changed during POST On
            120 boot Pxe Once: On, will boot Pxe Once, runs from Hdd
        "#]],
    );
}

#[test]
fn personalities_differ_in_target_without_enabled() {
    let script = "0 target Pxe
         1 boot Hdd Once
         2 target Pxe
         3 boot Pxe Disabled";
    check(
        "generic",
        script,
        &expect![[r#"
        0 target Pxe: Off
        1 boot Hdd Once: Off, will boot Hdd Once
        2 target Pxe: Off, will boot Pxe Once
        3 boot Pxe Disabled: Off
    "#]],
    );
    check(
        "dell-like",
        script,
        &expect![[r#"
        0 target Pxe: Off, will boot Pxe Once
        1 boot Hdd Once: Off, will boot Hdd Once
        2 target Pxe: Off, will boot Pxe Once
        3 boot Pxe Disabled: Off
    "#]],
    );
    check(
        "supermicro-like",
        script,
        &expect![[r#"
        0 target Pxe: Off
        1 boot Hdd Once: Off, will boot Hdd Once
        2 target Pxe: Off
        3 boot Pxe Disabled: Off
    "#]],
    );
}

#[test]
fn dell_like_requires_eject_before_insert() {
    check(
        "dell-like",
        "0 eject 0
         1 insert 0 http://images/a.iso
         2 insert 0 http://images/b.iso
         3 eject 0
         4 insert 0 ftp://images/b.iso
         5 insert 7 http://images/b.iso",
        &expect![[r#"
            0 eject 0: rejected: the virtual media slot is empty Off
            1 insert 0 http://images/a.iso: Off
            2 insert 0 http://images/b.iso: rejected: the virtual media slot is in use Off
            3 eject 0: Off
            4 insert 0 ftp://images/b.iso: rejected: Image cannot be ftp://images/b.iso Off
            5 insert 7 http://images/b.iso: rejected: there is no such virtual media Off
        "#]],
    );
}

#[test]
fn secure_boot_requires_uefi_and_a_reset() {
    check(
        "generic",
        "0 secure on
         1 reset On
         90 show
         91 secure off
         92 show
         93 mode Legacy
         94 secure on
         95 reset ForceRestart
         180 show",
        &expect![[r#"
            0 secure on: Off
            1 reset On: PoweringOn
            90 show: On, runs from Hdd with secure boot
            91 secure off: On, runs from Hdd with secure boot
            92 show: On, runs from Hdd with secure boot
            93 mode Legacy: On, runs from Hdd with secure boot
            94 secure on: rejected: secure boot requires the boot mode UEFI On, runs from Hdd with secure boot
            95 reset ForceRestart: On
            180 show: On, runs from Hdd
        "#]],
    );
}

#[test]
fn bios_changes_wait_for_a_reset() {
    let mut machine = machine("generic");
    let changes = json!({"ProcVirtualization": "Disabled", "BootDelaySeconds": 10});
    let pairs = |value: &Value| value.as_object().unwrap().clone();
    let set = |machine: &mut MachineModel, value: &Value| {
        let pairs = pairs(value);
        machine.request_bios_changes(pairs.iter().map(|(name, value)| (name.as_str(), value)))
    };
    set(&mut machine, &changes).unwrap();
    assert_eq!(machine.bios_attribute("BootDelaySeconds"), Some(&json!(5)));
    assert!(machine.bios().has_pending_changes());
    machine.reset(ResetType::On, at(0)).unwrap();
    machine.advance(at(10));
    assert_eq!(machine.bios_attribute("BootDelaySeconds"), Some(&json!(10)));
    assert_eq!(machine.bios_attribute("ProcVirtualization"), Some(&json!("Disabled")));
    assert!(machine.bios().applied_at().is_some());

    machine.request_bios_defaults();
    set(&mut machine, &json!({"QuietBoot": false})).unwrap();
    machine.reset(ResetType::ForceRestart, at(100)).unwrap();
    assert_eq!(machine.bios_attribute("BootDelaySeconds"), Some(&json!(5)));
    assert_eq!(machine.bios_attribute("QuietBoot"), Some(&json!(false)));

    for (wrong, expected) in [
        (json!({"Nonsense": 1}), "there is no property Nonsense"),
        (json!({"TpmPresent": false}), "TpmPresent cannot be changed"),
        (json!({"BootMode": 7}), "BootMode does not accept the type of 7"),
        (json!({"BootMode": "Both"}), "BootMode cannot be \"Both\""),
        (json!({"BootDelaySeconds": 301}), "BootDelaySeconds cannot be 301"),
        // A valid attribute is not applied beside an invalid one.
        (json!({"AssetLabel": "x", "BootMode": "Both"}), "BootMode cannot be \"Both\""),
    ] {
        assert_eq!(set(&mut machine, &wrong).unwrap_err().to_string(), expected);
        assert!(!machine.bios().has_pending_changes(), "{wrong}");
    }
}

fn volume_request(raid: RaidKind, capacity_bytes: Option<u64>, drives: &[usize]) -> VolumeRequest {
    VolumeRequest { controller: 0, name: None, raid, capacity_bytes, drives: drives.to_vec() }
}

#[test]
fn volume_size_follows_raid_level_and_drives() {
    let gb = |count: u64| count * 1_000_000_000;
    for (raid, capacity, drives, expected) in [
        (RaidKind::Raid0, None, vec![0], Ok(gb(960))),
        (RaidKind::Raid1, None, vec![], Ok(gb(960))),
        (RaidKind::Raid5, None, vec![0, 1, 2, 3], Ok(gb(2880))),
        (RaidKind::Raid6, None, vec![0, 1, 2, 3], Ok(gb(1920))),
        (RaidKind::Raid10, None, vec![0, 1, 2, 3], Ok(gb(1920))),
        (RaidKind::Raid60, None, vec![0, 1, 2, 3, 4, 5, 6, 7], Ok(gb(3840))),
        (RaidKind::Raid1, Some(gb(100)), vec![3, 2, 3], Ok(gb(100))),
        (RaidKind::Raid1, Some(gb(961)), vec![0, 1], Err("not enough free space on the drives")),
        (RaidKind::Raid1, Some(0), vec![0, 1], Err("not enough free space on the drives")),
        (RaidKind::Raid5, None, vec![0, 1], Err("too few drives for this RAID type")),
        (RaidKind::Raid0, None, vec![8], Err("there is no such drive")),
    ] {
        let mut machine = machine("generic");
        let outcome = machine
            .create_volume(volume_request(raid, capacity, &drives), None, at(0))
            .map(|_| machine.volumes()[0].capacity_bytes)
            .map_err(|error| error.to_string());
        assert_eq!(outcome, expected.map_err(str::to_owned), "{raid:?} {drives:?}");
    }
}

#[test]
fn volumes_share_drives_until_they_are_full() {
    let mut machine = machine("generic");
    let half = Some(480_000_000_000);
    machine.create_volume(volume_request(RaidKind::Raid1, half, &[0, 1]), None, at(0)).unwrap();
    machine.create_volume(volume_request(RaidKind::Raid1, half, &[0, 1]), None, at(0)).unwrap();
    let full =
        machine.create_volume(volume_request(RaidKind::Raid1, Some(1), &[0, 1]), None, at(0));
    assert!(full.is_err());
    machine.delete_volume(0, 1, None, at(1)).unwrap();
    machine.create_volume(volume_request(RaidKind::Raid1, half, &[0, 1]), None, at(2)).unwrap();
    let ids: Vec<u32> = machine.volumes().iter().map(|volume| volume.id).collect();
    assert_eq!(ids, [2, 3]);
}

#[test]
fn lenovo_like_creates_volumes_at_the_next_reset() {
    let mut machine = machine("lenovo-like");
    let outcome =
        machine.create_volume(volume_request(RaidKind::Raid1, None, &[0, 1]), None, at(0)).unwrap();
    assert_eq!(outcome, VolumeOutcome::TaskStarted(1));
    machine.advance(at(1_000));
    assert!(machine.volumes().is_empty());
    assert_eq!(machine.tasks()[0].stage, BmcTaskStage::WaitingForReset);
    machine.reset(ResetType::On, at(1_000)).unwrap();
    machine.advance(at(1_200));
    assert_eq!(machine.volumes().len(), 1);
    assert!(matches!(machine.tasks()[0].stage, BmcTaskStage::Completed { .. }));
    let immediate = Some(ApplyTime::Immediate);
    let outcome =
        machine.create_volume(volume_request(RaidKind::Raid0, None, &[2]), immediate, at(1_200));
    assert!(outcome.is_err());
}

#[test]
fn firmware_updates_download_wait_and_change_the_version() {
    let mut machine = machine("generic");
    let bios = machine.update_firmware("http://images/bios-1.5.2.bin", None, at(0)).unwrap();
    let again = machine.update_firmware("http://images/bios-1.6.0.bin", None, at(1)).unwrap_err();
    assert_eq!(again.to_string(), "the firmware component is in use");
    machine.advance(at(10));
    let task = |machine: &MachineModel, id: BmcTaskId| {
        machine.tasks().iter().find(|task| task.id == id).unwrap().clone()
    };
    let percent = task(&machine, bios).percent(at(10));
    assert!((5..50).contains(&percent), "{percent}");
    machine.advance(at(200));
    assert_eq!(task(&machine, bios).stage, BmcTaskStage::WaitingForReset);
    assert_eq!(machine.component_version(ComponentKind::Bios), Some("1.4.0"));
    machine.reset(ResetType::On, at(200)).unwrap();
    machine.advance(at(300));
    assert_eq!(machine.component_version(ComponentKind::Bios), Some("1.5.2"));

    machine.update_firmware("http://images/bmc.bin", None, at(300)).unwrap();
    let mut was_unreachable = false;
    for second in 300..600 {
        machine.advance(at(second));
        was_unreachable |= !machine.bmc_is_reachable(at(second));
    }
    assert!(was_unreachable, "the BMC does not restart with its new firmware");
    assert!(machine.bmc_is_reachable(at(600)));
    assert_eq!(machine.bmc_restarts(), 1);
    assert_eq!(machine.component_version(ComponentKind::Bmc), Some("2.10.4"));

    let bad = machine.update_firmware("http://images/bad-raid.bin", None, at(600)).unwrap();
    machine.advance(at(800));
    assert!(matches!(task(&machine, bad).stage, BmcTaskStage::Failed { .. }));
    assert_eq!(machine.component_version(ComponentKind::Storage), Some("51.13.0"));
}

#[test]
fn sensors_follow_the_load() {
    let mut machine = machine("generic");
    let read = |machine: &MachineModel, id: &str, second: i64| {
        let index = SENSORS.iter().position(|sensor| sensor.id == id).unwrap();
        machine.reading(index, at(second)).unwrap().value
    };
    assert_eq!(read(&machine, "Fan1", 0), 0.0);
    let cold = read(&machine, "CPU1Temp", 0);
    machine.reset(ResetType::On, at(0)).unwrap();
    machine.advance(at(10));
    assert!(read(&machine, "Fan1", 10) > 4_000.0);
    assert!(read(&machine, "CPU1Temp", 10) > cold + 10.0);
    let values: std::collections::BTreeSet<u64> =
        (0..60).map(|step| read(&machine, "PSU1Power", step * 10).to_bits()).collect();
    assert!(values.len() > 3, "readings do not vary");
    for second in 0..500 {
        for reading in machine.readings(at(second * 7)) {
            let limit = reading.sensor.upper_caution.unwrap_or(f64::MAX);
            assert!(reading.value < limit, "{} reads {}", reading.sensor.name, reading.value);
        }
    }
}

#[test]
fn machine_model_is_small() {
    let size = size_of::<MachineModel>();
    assert!(size < 600, "{size} bytes without heap data");
}

proptest::proptest! {
    /// Any sequence of resets ends in `Off` or `Running`, without further changes.
    #[test]
    fn machines_settle(resets in proptest::collection::vec((0_usize..9, 0_i64..40), 0..40)) {
        let mut machine = machine("generic");
        let mut now = 0;
        for (reset, wait) in resets {
            machine.reset(ResetType::ALL[reset], at(now)).unwrap();
            now += wait;
            machine.advance(at(now));
            assert!(machine.next_change().is_none_or(|due| due > at(now)));
        }
        machine.advance(at(now + 1_000));
        assert!(matches!(machine.power_phase(), PowerPhase::Off | PowerPhase::Running));
        assert_eq!(machine.next_change(), None);
    }
}
