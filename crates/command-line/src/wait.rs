// SPDX-License-Identifier: Apache-2.0
//! Waiting for machines, and saying what they wait for themselves.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use ironic_client::{Api, ApiError, Query, Version, segment};
use serde_json::Value;
use tokio::time::Instant;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::moments;
use crate::progress::Board;
use crate::screen::Tone;
use crate::selection::{self, Chosen};

/// Up to so many machines are asked what they wait for at each look.
const FEW: usize = 16;
/// How often in a row a server may be away: about a minute.
const ABSENCES: u32 = 30;
/// A look at the machines is worth so long, however short the time to wait.
const ONE_LOOK: Duration = Duration::from_secs(5);
const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,\
    target_power_state,last_error,maintenance,fault,clean_step,deploy_step";
/// Since when machines have a `service_step`; who is asked for a field it does not know refuses.
const SERVICE: Version = Version(87);

/// Where they are in the help.
pub(crate) const HEADING: &str = "Waiting";

/// How long to wait, if at all.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Patience {
    /// Give up after so long, such as 90s, 30m or 2h; the machine goes on. Without it: as long as it
    /// takes.
    #[arg(help_heading = HEADING, long, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// How long to pause between two looks.
struct Pace {
    first: Duration,
    longest: Duration,
}

const USUAL: Pace = Pace { first: Duration::from_millis(200), longest: Duration::from_secs(2) };

/// When waiting ends, if it does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Patience {
    /// When it is over, if it begins now.
    pub(crate) fn deadline(&self) -> Deadline {
        // What is too far off to be reckoned with never comes.
        Deadline(self.timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }
}

impl Deadline {
    /// Waits for it.
    pub(crate) async fn passed(self) {
        match self.0 {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn is_over(self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }

    /// The same, but so far away at least.
    fn no_sooner_than(self, least: Duration) -> Self {
        Self(self.0.map(|at| at.max(Instant::now() + least)))
    }
}

/// What is waited for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Goal {
    /// One of these provision states.
    State(&'static [&'static str]),
    /// The provision state somebody named.
    Named(String),
    /// Any provision state that lasts.
    Rest,
    /// Any that lasts and is no failure.
    RestWell,
    /// A power state.
    Power(&'static str),
}

/// A machine that got where it should, or why it did not.
pub(crate) struct Outcome {
    pub(crate) chosen: Chosen,
    pub(crate) result: Result<String, Failure>,
}

/// How a machine stands.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Reached(String),
    Failed(String),
    Moving(String),
}

/// Every state that a machine can be in.
const STATES: &[&str] = &[
    "enroll",
    "verifying",
    "manageable",
    "available",
    "active",
    "error",
    "rescue",
    "deploying",
    "wait call-back",
    "deploy failed",
    "deploy hold",
    "cleaning",
    "clean wait",
    "clean failed",
    "clean hold",
    "deleting",
    "inspecting",
    "inspect wait",
    "inspect failed",
    "adopting",
    "adopt failed",
    "rescuing",
    "rescue wait",
    "rescue failed",
    "unrescuing",
    "unrescue failed",
    "servicing",
    "service wait",
    "service failed",
    "service hold",
];

/// A state that can be waited for: in any other no machine will ever be.
pub(crate) fn known_state(state: &str) -> Result<&str, Failure> {
    if STATES.contains(&state) {
        return Ok(state);
    }
    let meant = selection::alike(state, STATES.iter().copied());
    let meant = meant.map(|meant| format!("did you mean \"{meant}\"? ")).unwrap_or_default();
    let all = STATES.join(", ");
    Err(Failure::Usage(format!("no machine is ever \"{state}\"; {meant}there are {all}")))
}

/// Waits until every machine got there, failed, or the time is over. Ctrl-C ends the waiting, not the
/// work.
pub(crate) async fn wait_for(
    desk: &Desk,
    machines: Vec<(Chosen, Goal)>,
    deadline: Deadline,
) -> Vec<Outcome> {
    wait_at(USUAL, desk, machines, deadline).await
}

/// The same when somebody stopped before the waiting began.
pub(crate) fn left(machines: Vec<(Chosen, Goal)>) -> Vec<Outcome> {
    let outcome = |(chosen, goal): (Chosen, Goal)| {
        let result = Err(Stop::Interrupted.failure(&chosen, &goal));
        Outcome { chosen, result }
    };
    machines.into_iter().map(outcome).collect()
}

async fn wait_at(
    pace: Pace,
    desk: &Desk,
    machines: Vec<(Chosen, Goal)>,
    deadline: Deadline,
) -> Vec<Outcome> {
    let places: HashMap<String, usize> =
        machines.iter().zip(0..).map(|((chosen, _), place)| (chosen.uuid.clone(), place)).collect();
    let mut waiting = Waiting {
        desk: desk.clone(),
        board: Board::new(desk.screen),
        open: machines,
        done: Vec::new(),
        knows_reasons: true,
        seen_power_move: HashSet::new(),
        looks: 0,
    };
    let stopped = tokio::select! {
        ended = waiting.run(pace, deadline) => ended,
        _ = tokio::signal::ctrl_c() => Some(Stop::Interrupted),
    };
    if let Some(stop) = stopped {
        for (chosen, goal) in std::mem::take(&mut waiting.open) {
            let result = Err(stop.failure(&chosen, &goal));
            waiting.done.push(Outcome { chosen, result });
        }
    }
    // As they were named, whoever was there first.
    waiting.done.sort_by_key(|outcome| places.get(&outcome.chosen.uuid).copied());
    waiting.done
}

/// Why waiting ended before its time.
enum Stop {
    TimeIsOver,
    Interrupted,
    /// The server cannot be asked any more.
    Lost(Arc<ApiError>),
}

impl Stop {
    fn failure(&self, chosen: &Chosen, goal: &Goal) -> Failure {
        let label = &chosen.label;
        let look = format!("`ferrite node show {label}` tells how it stands");
        match self {
            Self::TimeIsOver => Failure::TimedOut(format!(
                "is not {} in time; the server goes on with it: {look}",
                goal.words()
            )),
            Self::Interrupted => Failure::Interrupted(format!(
                "the server goes on with it: {look}, `ferrite node wait {label}` waits again"
            )),
            Self::Lost(error) => Failure::Lost(error.clone()),
        }
    }
}

struct Waiting {
    desk: Desk,
    board: Board,
    open: Vec<(Chosen, Goal)>,
    done: Vec<Outcome>,
    /// Whether the server can tell what machines wait for: a Ferrite can.
    knows_reasons: bool,
    /// Machines whose power is or was on its way.
    seen_power_move: HashSet<String>,
    looks: u32,
}

impl Waiting {
    async fn run(&mut self, pace: Pace, deadline: Deadline) -> Option<Stop> {
        let mut pause = pace.first;
        let mut absences = 0;
        let mut end_of_look = deadline.no_sooner_than(ONE_LOOK);
        loop {
            let looked = tokio::select! {
                looked = self.look() => looked,
                () = end_of_look.passed() => return Some(Stop::TimeIsOver),
            };
            end_of_look = deadline;
            match looked {
                Ok(()) => absences = 0,
                // A server that starts again is not the end of the work.
                Err(error) if error.is_absence() && absences < ABSENCES => absences += 1,
                Err(error) => return Some(Stop::Lost(Arc::new(error))),
            }
            self.board.draw();
            if self.open.is_empty() {
                return None;
            }
            if deadline.is_over() {
                return Some(Stop::TimeIsOver);
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // For a last look.
                () = deadline.passed() => end_of_look = deadline.no_sooner_than(ONE_LOOK),
            }
            pause = (pause * 3 / 2).min(pace.longest);
        }
    }

    /// Looks at all machines that are not there yet.
    async fn look(&mut self) -> Result<(), ApiError> {
        let nodes = self.nodes().await?;
        self.looks += 1;
        let mut at = 0;
        // Ctrl-C may end this at any await: a machine is open until it is done.
        while let Some((chosen, goal)) = self.open.get(at) {
            let label = chosen.label.clone();
            let verdict = match nodes.get(&chosen.uuid) {
                None => None,
                Some(node) => {
                    if !node["target_power_state"].is_null() {
                        self.seen_power_move.insert(chosen.uuid.clone());
                    }
                    // A change of power is not always under way by the time it is accepted.
                    let may_not_have_begun = matches!(goal, Goal::Power(_))
                        && self.looks < 3
                        && !self.seen_power_move.contains(&chosen.uuid);
                    match judge(goal, node) {
                        Verdict::Reached(_) | Verdict::Failed(_) if may_not_have_begun => {
                            at += 1;
                            continue;
                        }
                        verdict @ (Verdict::Reached(_)
                        | Verdict::Failed(_)
                        | Verdict::Moving(_)) => Some(verdict),
                    }
                }
            };
            let (tone, text, result) = match verdict {
                Some(Verdict::Moving(text)) => {
                    let uuid = chosen.uuid.clone();
                    let text = match self.reason(&uuid).await {
                        Some(reason) => format!("{text}, waits for {reason}"),
                        None => text,
                    };
                    self.board.tell(&label, Tone::Busy, &text, true);
                    at += 1;
                    continue;
                }
                None => {
                    let gone = Failure::NotFound("is gone".to_owned());
                    (Tone::Bad, "gone".to_owned(), Err(gone))
                }
                Some(Verdict::Reached(state)) => (Tone::Good, state.clone(), Ok(state)),
                Some(Verdict::Failed(why)) => (Tone::Bad, why.clone(), Err(Failure::Failed(why))),
            };
            self.board.tell(&label, tone, &text, false);
            let (chosen, _) = self.open.remove(at);
            self.done.push(Outcome { chosen, result });
        }
        Ok(())
    }

    /// The machines as they are now, by UUID. Very many come with one list.
    async fn nodes(&self) -> Result<HashMap<String, Value>, ApiError> {
        let api = &self.desk.api;
        let query = Query::new().with("fields", &fields(api.version()));
        let found = if self.open.len() > selection::FEW {
            api.list("/v1/nodes", "nodes", &query).await?
        } else {
            let paths = self.open.iter().map(|(chosen, _)| query.on(&chosen.path())).collect();
            selection::found(api, paths).await?.into_iter().flatten().collect()
        };
        let uuid = |node: &Value| node["uuid"].as_str().unwrap_or_default().to_owned();
        Ok(found.into_iter().map(|node| (uuid(&node), node)).collect())
    }

    /// What a machine waits for and until when, where the server tells.
    async fn reason(&mut self, uuid: &str) -> Option<String> {
        if !self.knows_reasons || self.open.len() >= FEW {
            return None;
        }
        // What is drawn again may count down; elsewhere that would be a new line every time.
        let is_live = self.desk.screen.notes_are_seen;
        match waiting(&self.desk.api, uuid).await {
            Ok(reason) => {
                reason.map(|reason| if is_live { reason.with_rest() } else { reason.plain() })
            }
            Err(()) => {
                self.knows_reasons = false;
                None
            }
        }
    }
}

/// What a machine waits for.
pub(crate) struct Reason {
    why: String,
    until: Option<String>,
}

/// What a machine waits for and until when. An error is a server that does not tell.
pub(crate) async fn waiting(api: &Api, uuid: &str) -> Result<Option<Reason>, ()> {
    let path = format!("/v1/ferrite/nodes/{}/explain?target=abort", segment(uuid));
    let explained = api.get(&path).await.map_err(|_| ())?;
    let waiting = &explained["waiting"];
    let Some(why) = waiting["why"].as_str() else { return Ok(None) };
    let until = waiting["until"].as_str().map(str::to_owned);
    Ok(Some(Reason { why: why.replace('_', " "), until }))
}

impl Reason {
    /// In words that stay the same while it lasts.
    fn plain(self) -> String {
        self.words(|until| moments::cell(&Value::from(until)).text)
    }

    /// With how long it can last from now on.
    pub(crate) fn with_rest(self) -> String {
        self.words(|until| moments::to_come(until, SystemTime::now()))
    }

    fn words(self, shown: impl Fn(&str) -> String) -> String {
        match &self.until {
            Some(until) => format!("{} until {}", self.why, shown(until)),
            None => self.why,
        }
    }
}

fn fields(version: Version) -> String {
    if version < SERVICE { FIELDS.to_owned() } else { format!("{FIELDS},service_step") }
}

impl Goal {
    fn words(&self) -> String {
        match self {
            Self::State(states) => states.first().copied().unwrap_or("there").to_owned(),
            Self::Named(state) => state.clone(),
            Self::Rest | Self::RestWell => "at rest".to_owned(),
            Self::Power(state) => (*state).to_owned(),
        }
    }
}

fn judge(goal: &Goal, node: &Value) -> Verdict {
    let text = |field: &str| node[field].as_str().unwrap_or_default();
    let state = text("provision_state");
    let error = text("last_error");
    let why = |what: &str| match error {
        "" => what.to_owned(),
        error => format!("{what}: {error}"),
    };
    let is_broken = state.ends_with("failed") || state == "error";
    let rests = node["target_provision_state"].is_null() || is_broken;
    let moving = || {
        let step = ["deploy_step", "clean_step", "service_step"]
            .iter()
            .find_map(|step| node[step]["step"].as_str());
        let mut told = match step {
            Some(step) => format!("{state}, step {step}"),
            None => state.to_owned(),
        };
        if state.ends_with("hold") {
            told.push_str(", until somebody lets it go on: `ferrite node unhold`");
        }
        if node["maintenance"] == true {
            told.push_str(", in maintenance");
        }
        told
    };
    match goal {
        Goal::State(states) if rests => {
            if states.contains(&state) {
                Verdict::Reached(state.to_owned())
            } else {
                Verdict::Failed(why(state))
            }
        }
        Goal::Named(wanted) if wanted == state => Verdict::Reached(state.to_owned()),
        Goal::Named(_) if is_broken => Verdict::Failed(why(state)),
        Goal::Named(wanted) if rests => {
            let told = format!("{state}, at rest: nothing is under way that makes it {wanted}");
            Verdict::Failed(told)
        }
        Goal::RestWell if is_broken => Verdict::Failed(why(state)),
        Goal::Rest | Goal::RestWell if rests => Verdict::Reached(state.to_owned()),
        Goal::State(_) | Goal::Named(_) | Goal::Rest | Goal::RestWell => Verdict::Moving(moving()),
        Goal::Power(wanted) => {
            let power = node["power_state"].as_str().unwrap_or("power unknown");
            match (node["target_power_state"].as_str(), power == *wanted) {
                (Some(target), _) => Verdict::Moving(format!("{power}, going to {target}")),
                (None, true) => Verdict::Reached(power.to_owned()),
                (None, false) => Verdict::Failed(why(power)),
            }
        }
    }
}

/// `90`, `90s`, `30m`, `2h` or `1d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    match digits.parse::<u64>() {
        Ok(number) if unit > 0 => Ok(Duration::from_secs(number.saturating_mul(unit))),
        _ => Err("it must be a number with s, m, h or d behind it, such as 30m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::failure::Code;
    use crate::node::verbs::Verb;
    use crate::test_server::{Answer, Log, nobody, server};

    fn deploying() -> Value {
        json!({"uuid": "u0", "provision_state": "deploying", "target_provision_state": "active"})
    }

    /// The exit code that waiting for so many machines ends with.
    async fn code(desk: &Desk, count: usize, timeout: Option<Duration>) -> Code {
        let pace = Pace { first: Duration::from_millis(1), longest: Duration::from_millis(1) };
        let chosen = |number| Chosen::of(json!({"uuid": format!("u{number}")}));
        let machines = (0..count).map(|number| (chosen(number), Goal::Rest)).collect();
        let outcomes = wait_at(pace, desk, machines, Patience { timeout }.deadline()).await;
        let told = crate::bulk::told(desk, outcomes, crate::output::Format::Name);
        told.unwrap_err().code()
    }

    fn looks(log: &Log) -> usize {
        log.lock().unwrap().iter().filter(|line| line.starts_with("GET /v1/nodes")).count()
    }

    #[tokio::test]
    async fn a_server_that_does_not_come_back_is_an_exit_code() {
        for count in [1, 2] {
            assert_eq!(code(&nobody(), count, None).await, Code::Unreachable);
        }
    }

    /// A server that is away for a moment is asked again, one that says no is not.
    #[tokio::test]
    async fn only_who_is_away_is_asked_again() {
        for (status, expected, times) in [
            (503, Code::Failed, 31),
            (401, Code::NotAuthorised, 1),
            (403, Code::NotAuthorised, 1),
            (400, Code::Refused, 1),
        ] {
            let answer = move |_: &_| Answer::Json(status, json!({"error_message": "no"}));
            let (desk, log) = server(answer);
            assert_eq!(code(&desk, 1, None).await, expected, "{status}");
            assert_eq!(looks(&log), times, "{status}");
        }
    }

    #[tokio::test]
    async fn an_older_server_is_not_asked_for_fields_it_does_not_know() {
        let (desk, _) = server(|asked| match &*asked.version {
            "1.61" if asked.line.contains("service_step") => Answer::Json(400, json!({})),
            "1.61" => Answer::Json(200, json!({"uuid": "u0", "provision_state": "active"})),
            _ => Answer::TooNew("1.61"),
        });
        // The machines were found before they are waited for.
        desk.api.get("/v1/nodes/u0").await.unwrap();
        let chosen = Chosen::of(json!({"uuid": "u0"}));
        let machines = vec![(chosen, Goal::Rest)];
        let outcomes = wait_for(&desk, machines, Patience::default().deadline()).await;
        assert_eq!(outcomes[0].result.as_deref().unwrap(), "active");
        assert!(fields(Version(87)).ends_with(",service_step"));
    }

    #[tokio::test]
    async fn a_silent_server_does_not_outlast_the_time_to_wait() {
        let mut count = 0;
        let (desk, _) = server(move |asked| {
            count += usize::from(asked.line.starts_with("GET /v1/nodes"));
            if count > 1 { Answer::Silence } else { Answer::Json(200, deploying()) }
        });
        let waiting = code(&desk, 1, Some(Duration::from_millis(400)));
        let ended = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert_eq!(ended, Ok(Code::TimedOut));
    }

    /// Not the whole list again and again for a rack of a fleet.
    #[tokio::test]
    async fn the_machines_that_are_waited_for_are_asked_for_alone() {
        let (desk, log) = server(|asked| {
            let uuid = asked.line.trim_start_matches("GET /v1/nodes/").split('?').next();
            Answer::Json(200, json!({"uuid": uuid, "provision_state": "deploy failed"}))
        });
        let chosen = |number| Chosen::of(json!({"uuid": format!("u{number}")}));
        let machines = (0..40).map(|number| (chosen(number), Goal::RestWell)).collect();
        let outcomes = wait_for(&desk, machines, Patience::default().deadline()).await;
        let uuids: Vec<String> = outcomes.into_iter().map(|it| it.chosen.uuid).collect();
        assert_eq!(uuids, (0..40).map(|number| format!("u{number}")).collect::<Vec<_>>());
        assert!(log.lock().unwrap().iter().all(|line| line.starts_with("GET /v1/nodes/u")));
    }

    #[test]
    fn a_machine_is_there_on_its_way_or_lost() {
        let available = Goal::State(&["available", "manageable"]);
        let moving = |text: &str| Verdict::Moving(text.to_owned());
        let reached = |text: &str| Verdict::Reached(text.to_owned());
        let failed = |text: &str| Verdict::Failed(text.to_owned());
        for (goal, state, target, error, expected) in [
            (&available, "cleaning", Some("available"), None, moving("cleaning")),
            (&available, "available", None, None, reached("available")),
            (&available, "manageable", None, None, reached("manageable")),
            (
                &available,
                "clean failed",
                Some("available"),
                Some("no disk"),
                failed("clean failed: no disk"),
            ),
            (&available, "enroll", None, Some("no BMC"), failed("enroll: no BMC")),
            (&Goal::Rest, "clean wait", Some("available"), None, moving("clean wait")),
            (
                &Goal::Rest,
                "clean hold",
                Some("available"),
                None,
                moving("clean hold, until somebody lets it go on: `ferrite node unhold`"),
            ),
            (&Goal::Rest, "deploy failed", Some("active"), None, reached("deploy failed")),
            (
                &Verb::Unhold.goal(),
                "deploy failed",
                Some("active"),
                Some("no disk"),
                failed("deploy failed: no disk"),
            ),
            (&Verb::Unhold.goal(), "deploying", Some("active"), None, moving("deploying")),
            (&Verb::Unhold.goal(), "manageable", None, None, reached("manageable")),
            (
                &Goal::Named("wait call-back".to_owned()),
                "wait call-back",
                Some("active"),
                None,
                reached("wait call-back"),
            ),
            (
                &Goal::Named("active".to_owned()),
                "available",
                None,
                None,
                failed("available, at rest: nothing is under way that makes it active"),
            ),
            (
                &Goal::Named("active".to_owned()),
                "deploy failed",
                Some("active"),
                None,
                failed("deploy failed"),
            ),
        ] {
            let node = json!({
                "provision_state": state, "target_provision_state": target, "last_error": error,
            });
            assert_eq!(judge(goal, &node), expected, "{goal:?} {state}");
        }
    }

    #[test]
    fn power_is_there_when_nothing_more_is_to_come() {
        for (power, target, expected) in [
            (
                "power off",
                Some("power on"),
                Verdict::Moving("power off, going to power on".to_owned()),
            ),
            ("power on", None, Verdict::Reached("power on".to_owned())),
            ("power off", None, Verdict::Failed("power off: BMC silent".to_owned())),
        ] {
            let node = json!({
                "power_state": power, "target_power_state": target, "last_error": "BMC silent",
            });
            assert_eq!(judge(&Goal::Power("power on"), &node), expected);
        }
    }

    #[test]
    fn times_have_units() {
        for (text, seconds) in
            [("90", 90), ("5s", 5), ("30m", 1_800), ("2h", 7_200), ("1d", 86_400)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "m", "5x", "-1s", "1.5h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
