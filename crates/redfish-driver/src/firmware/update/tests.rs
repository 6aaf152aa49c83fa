// SPDX-License-Identifier: Apache-2.0
//! Decisions for each kind of update, as scripts of polled states and expected decisions.

use drivers::BmcImageUrl;

use super::*;

fn update(kind: FirmwareTarget, wait: Option<u64>) -> FirmwareUpdate {
    FirmwareUpdate {
        component: "x".to_owned(),
        kind,
        image: BmcImageUrl::parse("url", "http://h/i").unwrap(),
        wait: wait.map(Duration::from_secs),
    }
}

/// Plays a script of (second, task state, version) and returns the decisions.
fn play(update: &FirmwareUpdate, script: &[(i64, ObservedUpdate, Option<&str>)]) -> String {
    let mut running = RunningUpdate { before: Some("1".to_owned()), ..RunningUpdate::default() };
    let decisions = script.iter().map(|(second, observed, version)| {
        let now = Timestamp::from_secs(*second);
        // Like the caller: an ended task is not polled again.
        let observed = if running.ended.is_some() { &ObservedUpdate::Ended } else { observed };
        let decision = decide_while_running(update.kind, &mut running, observed, now);
        match decision.unwrap_or_else(|| decide_after_end(update, &mut running, *version, now)) {
            UpdateDecision::PollAgain => "poll",
            UpdateDecision::Reboot => "reboot",
            UpdateDecision::Finish => "finish",
            UpdateDecision::Fail(_) => "fail",
        }
    });
    decisions.collect::<Vec<_>>().join(" ")
}

#[test]
fn reboots_for_a_waiting_bios_task() {
    let bios = update(FirmwareTarget::Bios, None);
    for (script, expected) in [
        (
            vec![
                (0, ObservedUpdate::New, None),
                (15, ObservedUpdate::Queued, None),
                (30, ObservedUpdate::Queued, None),
                (45, ObservedUpdate::Queued, None),
                (60, ObservedUpdate::Queued, None),
                (75, ObservedUpdate::Running, None),
                (90, ObservedUpdate::Unreadable("reset".to_owned()), None),
                (105, ObservedUpdate::Ended, Some("1")),
            ],
            "poll poll poll reboot poll poll poll finish",
        ),
        // Queued briefly, then downloading, then waiting for the reboot.
        (
            vec![
                (0, ObservedUpdate::Queued, None),
                (15, ObservedUpdate::Running, None),
                (30, ObservedUpdate::Queued, None),
                (60, ObservedUpdate::Queued, None),
                (75, ObservedUpdate::Ended, Some("2")),
            ],
            "poll poll poll reboot finish",
        ),
        // The reboot came during the download: another one is due.
        (
            vec![
                (0, ObservedUpdate::Queued, None),
                (30, ObservedUpdate::Queued, None),
                (45, ObservedUpdate::Running, None),
                (60, ObservedUpdate::Queued, None),
                (90, ObservedUpdate::Queued, None),
                (105, ObservedUpdate::Ended, Some("2")),
            ],
            "poll reboot poll poll reboot finish",
        ),
        // It stays queued after the reboot.
        (
            vec![
                (0, ObservedUpdate::Queued, None),
                (30, ObservedUpdate::Queued, None),
                (45, ObservedUpdate::Queued, None),
                (344, ObservedUpdate::Queued, None),
                (345, ObservedUpdate::Queued, None),
            ],
            "poll reboot poll poll reboot",
        ),
        // The task is running without progress.
        (
            vec![
                (0, ObservedUpdate::Running, None),
                (299, ObservedUpdate::Running, None),
                (300, ObservedUpdate::Running, None),
                (900, ObservedUpdate::Running, None),
            ],
            "poll poll reboot poll",
        ),
        // The task only stages the image; it is installed after the following reboot.
        (
            vec![
                (0, ObservedUpdate::Ended, Some("1")),
                (15, ObservedUpdate::Ended, Some("1")),
                (30, ObservedUpdate::Ended, Some("2")),
            ],
            "reboot poll finish",
        ),
        // The same version was installed again.
        (
            vec![
                (0, ObservedUpdate::Ended, Some("1")),
                (299, ObservedUpdate::Ended, Some("1")),
                (300, ObservedUpdate::Ended, Some("1")),
            ],
            "reboot poll finish",
        ),
        (
            vec![
                (0, ObservedUpdate::Running, None),
                (15, ObservedUpdate::Failed("no".to_owned()), None),
            ],
            "poll fail",
        ),
    ] {
        assert_eq!(play(&bios, &script), expected);
    }
}

#[test]
fn reboots_for_a_nic_only_while_queued_or_after_the_end() {
    let nic = update(FirmwareTarget::Nic, None);
    for (script, expected) in [
        (
            vec![
                (0, ObservedUpdate::Queued, None),
                (15, ObservedUpdate::Queued, None),
                (30, ObservedUpdate::Queued, None),
                (45, ObservedUpdate::Queued, None),
                (60, ObservedUpdate::Ended, None),
            ],
            "poll poll reboot poll finish",
        ),
        (
            vec![
                (0, ObservedUpdate::Queued, None),
                (15, ObservedUpdate::Running, None),
                (1500, ObservedUpdate::Running, None),
                (3000, ObservedUpdate::Ended, Some("1")),
                (3015, ObservedUpdate::Ended, Some("2")),
            ],
            "poll poll poll reboot finish",
        ),
    ] {
        assert_eq!(play(&nic, &script), expected);
    }
}

#[test]
fn bmc_update_ends_when_the_new_version_is_steady() {
    let script = [
        (0, ObservedUpdate::Running, None),
        (15, ObservedUpdate::Unreadable("no response".to_owned()), None),
        (30, ObservedUpdate::Ended, Some("1")),
        (45, ObservedUpdate::Ended, Some("2")),
        (60, ObservedUpdate::Ended, None),
        (75, ObservedUpdate::Ended, Some("2")),
        (90, ObservedUpdate::Ended, Some("2")),
    ];
    assert_eq!(
        play(&update(FirmwareTarget::Bmc, None), &script),
        "poll poll poll poll poll poll finish"
    );
    let same = [
        (0, ObservedUpdate::Ended, Some("1")),
        (59, ObservedUpdate::Ended, Some("1")),
        (60, ObservedUpdate::Ended, Some("1")),
    ];
    assert_eq!(play(&update(FirmwareTarget::Bmc, Some(60)), &same), "poll poll finish");
    assert_eq!(play(&update(FirmwareTarget::Bmc, None), &same), "poll poll poll");
}

#[test]
fn unknown_image_gets_a_reboot_and_its_wait_time() {
    let script = [
        (0, ObservedUpdate::Running, None),
        (15, ObservedUpdate::Ended, None),
        (30, ObservedUpdate::Ended, None),
        (74, ObservedUpdate::Ended, None),
        (75, ObservedUpdate::Ended, None),
    ];
    let decisions = play(&update(FirmwareTarget::Unknown, Some(60)), &script);
    assert_eq!(decisions, "poll reboot poll poll finish");
}

#[test]
fn maps_task_states_to_phases() {
    for (word, expected) in [
        (Some("New"), ObservedUpdate::New),
        (Some("Starting"), ObservedUpdate::Queued),
        (Some("Scheduled"), ObservedUpdate::Queued),
        (Some("Running"), ObservedUpdate::Running),
        (Some("Marinating"), ObservedUpdate::Running),
        (None, ObservedUpdate::Running),
    ] {
        assert_eq!(task_phase(word), expected, "{word:?}");
    }
}
