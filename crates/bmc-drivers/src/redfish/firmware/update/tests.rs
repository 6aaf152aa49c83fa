// SPDX-License-Identifier: Apache-2.0
//! How updates of each kind go on, as scripts of what is seen and what is done about it.

use super::*;
use crate::redfish::image_url::ImageUrl;

fn update(kind: Kind, wait: Option<u64>) -> Update {
    Update {
        component: "x".to_owned(),
        kind,
        image: ImageUrl::parse("url", "http://h/i").unwrap(),
        wait: wait.map(Duration::from_secs),
    }
}

/// Plays a script of (second, what is seen of the task, version) and writes down the moves.
fn play(update: &Update, script: &[(i64, Seen, Option<&str>)]) -> String {
    let mut running = Running { before: Some("1".to_owned()), ..Running::default() };
    let moves = script.iter().map(|(second, seen, version)| {
        let now = Timestamp::from_secs(*second);
        // As the caller does it: an ended task is not looked at again.
        let seen = if running.ended.is_some() { &Seen::Ended } else { seen };
        let due = while_working(update.kind, &mut running, seen, now);
        match due.unwrap_or_else(|| after_end(update, &mut running, *version, now)) {
            Move::LookAgain => "look",
            Move::Reboot => "reboot",
            Move::Over => "over",
            Move::Fail(_) => "fail",
        }
    });
    moves.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_bios_is_rebooted_when_its_task_waits_for_it() {
    let bios = update(Kind::Bios, None);
    for (script, expected) in [
        (
            vec![
                (0, Seen::New, None),
                (15, Seen::Queued, None),
                (30, Seen::Queued, None),
                (45, Seen::Queued, None),
                (60, Seen::Queued, None),
                (75, Seen::Running, None),
                (90, Seen::Silent("reset".to_owned()), None),
                (105, Seen::Ended, Some("1")),
            ],
            "look look look reboot look look look over",
        ),
        // Queued for a moment, then loading the image, and only then waiting.
        (
            vec![
                (0, Seen::Queued, None),
                (15, Seen::Running, None),
                (30, Seen::Queued, None),
                (60, Seen::Queued, None),
                (75, Seen::Ended, Some("2")),
            ],
            "look look look reboot over",
        ),
        // The reboot came too early, while the image was loaded: another one is due.
        (
            vec![
                (0, Seen::Queued, None),
                (30, Seen::Queued, None),
                (45, Seen::Running, None),
                (60, Seen::Queued, None),
                (90, Seen::Queued, None),
                (105, Seen::Ended, Some("2")),
            ],
            "look reboot look look reboot over",
        ),
        // It stays queued after the reboot, which takes a while to begin.
        (
            vec![
                (0, Seen::Queued, None),
                (30, Seen::Queued, None),
                (45, Seen::Queued, None),
                (344, Seen::Queued, None),
                (345, Seen::Queued, None),
            ],
            "look reboot look look reboot",
        ),
        // The task says that it runs and stands still.
        (
            vec![
                (0, Seen::Running, None),
                (299, Seen::Running, None),
                (300, Seen::Running, None),
                (900, Seen::Running, None),
            ],
            "look look reboot look",
        ),
        // The task only stages the image; the work is done after the reboot that follows.
        (
            vec![
                (0, Seen::Ended, Some("1")),
                (15, Seen::Ended, Some("1")),
                (30, Seen::Ended, Some("2")),
            ],
            "reboot look over",
        ),
        // The same version was flashed again.
        (
            vec![
                (0, Seen::Ended, Some("1")),
                (299, Seen::Ended, Some("1")),
                (300, Seen::Ended, Some("1")),
            ],
            "reboot look over",
        ),
        (vec![(0, Seen::Running, None), (15, Seen::Failed("no".to_owned()), None)], "look fail"),
    ] {
        assert_eq!(play(&bios, &script), expected);
    }
}

#[test]
fn a_card_is_rebooted_when_its_task_waits_or_has_ended_and_never_in_between() {
    let card = update(Kind::Card, None);
    for (script, expected) in [
        (
            vec![
                (0, Seen::Queued, None),
                (15, Seen::Queued, None),
                (30, Seen::Queued, None),
                (45, Seen::Queued, None),
                (60, Seen::Ended, None),
            ],
            "look look reboot look over",
        ),
        (
            vec![
                (0, Seen::Queued, None),
                (15, Seen::Running, None),
                (1500, Seen::Running, None),
                (3000, Seen::Ended, Some("1")),
                (3015, Seen::Ended, Some("2")),
            ],
            "look look look reboot over",
        ),
    ] {
        assert_eq!(play(&card, &script), expected);
    }
}

#[test]
fn a_bmc_goes_away_and_comes_back_with_its_new_version() {
    let script = [
        (0, Seen::Running, None),
        (15, Seen::Silent("no answer".to_owned()), None),
        (30, Seen::Ended, Some("1")),
        (45, Seen::Ended, Some("2")),
        (60, Seen::Ended, None),
        (75, Seen::Ended, Some("2")),
        (90, Seen::Ended, Some("2")),
    ];
    assert_eq!(play(&update(Kind::Bmc, None), &script), "look look look look look look over");
    let same =
        [(0, Seen::Ended, Some("1")), (59, Seen::Ended, Some("1")), (60, Seen::Ended, Some("1"))];
    assert_eq!(play(&update(Kind::Bmc, Some(60)), &same), "look look over");
    assert_eq!(play(&update(Kind::Bmc, None), &same), "look look look");
}

#[test]
fn an_image_of_unknown_use_is_followed_by_a_reboot_and_given_its_time() {
    let script = [
        (0, Seen::Running, None),
        (15, Seen::Ended, None),
        (30, Seen::Ended, None),
        (74, Seen::Ended, None),
        (75, Seen::Ended, None),
    ];
    let moves = play(&update(Kind::Unknown, Some(60)), &script);
    assert_eq!(moves, "look reboot look look over");
}

#[test]
fn phases_of_tasks() {
    for (word, expected) in [
        (Some("New"), Seen::New),
        (Some("Starting"), Seen::Queued),
        (Some("Scheduled"), Seen::Queued),
        (Some("Running"), Seen::Running),
        (Some("Marinating"), Seen::Running),
        (None, Seen::Running),
    ] {
        assert_eq!(phase(word), expected, "{word:?}");
    }
}
