// SPDX-License-Identifier: Apache-2.0
//! Waits until nodes reach a state, and shows what they wait for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use ironic_client::{Api, IronicClientError, Microversion, QueryString, percent_encode};
use serde_json::Value;
use tokio::time::Instant;

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::progress::ProgressBoard;
use crate::screen::TextStyle;
use crate::selection::{self, SelectedNode};
use crate::timestamps;

/// Up to this number of nodes, each poll also requests the wait reasons.
const MAX_REASON_QUERIES: usize = 16;
/// Consecutive polls that may fail because the server is unavailable: about a minute.
const MAX_UNAVAILABLE_POLLS: u32 = 30;
/// Minimum time for a poll, however short `--timeout` is.
const MIN_POLL_TIME: Duration = Duration::from_secs(5);
const FIELDS: &str = "uuid,name,provision_state,target_provision_state,power_state,\
    target_power_state,last_error,maintenance,fault,clean_step,deploy_step,reservation";
/// The microversion that added `service_step`; older servers reject requests for unknown fields.
const SERVICE_STEP_SINCE: Microversion = Microversion(87);

/// Help heading.
pub(crate) const HEADING: &str = "Waiting";

/// The option that limits the wait.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct TimeoutArguments {
    /// Stop waiting after this time, such as 90s, 30m or 2h; the server continues. Without it there is no
    /// limit.
    #[arg(help_heading = HEADING, long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
}

/// Delays between polls, growing from `first` to `max`.
struct PollIntervals {
    first: Duration,
    max: Duration,
}

const DEFAULT_INTERVALS: PollIntervals =
    PollIntervals { first: Duration::from_millis(200), max: Duration::from_secs(2) };

/// The end of a wait; `None` waits without limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitDeadline(Option<Instant>);

impl TimeoutArguments {
    /// The deadline if the wait starts now.
    pub(crate) fn deadline(&self) -> WaitDeadline {
        // A timeout too large for `Instant` never expires.
        WaitDeadline(self.timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }
}

impl WaitDeadline {
    /// Waits for the deadline.
    pub(crate) async fn passed(self) {
        match self.0 {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn is_passed(self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }

    /// Postpones the deadline to at least `min` from now.
    fn no_sooner_than(self, min: Duration) -> Self {
        Self(self.0.map(|at| at.max(Instant::now() + min)))
    }
}

/// What to wait for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum WaitGoal {
    /// A stable provision state, one of these.
    State(&'static [&'static str]),
    /// The given provision state, stable or not.
    Named(String),
    /// Any stable provision state.
    Stable,
    /// Any stable provision state that is not a failure.
    StableWithoutFailure,
    /// A power state.
    Power(&'static str),
}

/// The state a node reached, or why it did not.
pub(crate) struct NodeOutcome {
    pub(crate) selected: SelectedNode,
    pub(crate) result: Result<String, CliError>,
}

/// The status of a node with respect to a goal.
#[derive(PartialEq, Eq, Debug)]
enum WaitStatus {
    Reached(String),
    Failed(String),
    InProgress(String),
}

/// All provision states of Ironic. A list of its own, because this crate uses the HTTP API only and works
/// with any Ironic; a test compares it with `node_model`.
const PROVISION_STATES: &[&str] = &[
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

/// Rejects names that are not provision states, which would be waited for without end.
pub(crate) fn validate_state(state: &str) -> Result<&str, CliError> {
    if PROVISION_STATES.contains(&state) {
        return Ok(state);
    }
    let meant = selection::closest_match(state, PROVISION_STATES.iter().copied());
    let meant = meant.map(|meant| format!("did you mean \"{meant}\"? ")).unwrap_or_default();
    let all = PROVISION_STATES.join(", ");
    Err(CliError::Usage(format!("unknown provision state \"{state}\"; {meant}known states: {all}")))
}

/// Waits until every node has reached its goal or failed, or until the deadline. Ctrl-C ends the wait;
/// the server continues.
pub(crate) async fn wait_for(
    context: &CliContext,
    machines: Vec<(SelectedNode, WaitGoal)>,
    deadline: WaitDeadline,
) -> Vec<NodeOutcome> {
    wait_with_intervals(DEFAULT_INTERVALS, context, machines, deadline).await
}

/// The outcomes if Ctrl-C was pressed before the wait.
pub(crate) fn interrupted_before_wait(machines: Vec<(SelectedNode, WaitGoal)>) -> Vec<NodeOutcome> {
    let outcome = |(selected, goal): (SelectedNode, WaitGoal)| {
        let result = Err(WaitEnd::Interrupted.failure(&selected, &goal));
        NodeOutcome { selected, result }
    };
    machines.into_iter().map(outcome).collect()
}

async fn wait_with_intervals(
    intervals: PollIntervals,
    context: &CliContext,
    machines: Vec<(SelectedNode, WaitGoal)>,
    deadline: WaitDeadline,
) -> Vec<NodeOutcome> {
    let positions: HashMap<String, usize> =
        machines.iter().zip(0..).map(|((node, _), index)| (node.uuid.clone(), index)).collect();
    let mut waiting = NodeWaiter {
        context: context.clone(),
        board: ProgressBoard::new(context.screen),
        pending: machines,
        finished: Vec::new(),
        has_wait_reasons: true,
        power_change_seen: HashSet::new(),
        polls: 0,
    };
    let end = tokio::select! {
        end = waiting.run(intervals, deadline) => end,
        _ = tokio::signal::ctrl_c() => Some(WaitEnd::Interrupted),
    };
    if let Some(end) = end {
        for (selected, goal) in std::mem::take(&mut waiting.pending) {
            let result = Err(end.failure(&selected, &goal));
            waiting.finished.push(NodeOutcome { selected, result });
        }
    }
    // In the order of the arguments.
    waiting.finished.sort_by_key(|outcome| positions.get(&outcome.selected.uuid).copied());
    waiting.finished
}

/// Why a wait ended before all nodes were done.
enum WaitEnd {
    TimedOut,
    Interrupted,
    /// The server is no longer available.
    ConnectionLost(Arc<IronicClientError>),
}

impl WaitEnd {
    fn failure(&self, selected: &SelectedNode, goal: &WaitGoal) -> CliError {
        let label = &selected.label;
        let hint = format!("`ferrite node show {label}` shows its state");
        match self {
            Self::TimedOut => CliError::TimedOut(format!(
                "not {} within the timeout; the server continues: {hint}",
                goal.description()
            )),
            Self::Interrupted => CliError::Interrupted(format!(
                "the server continues: {hint}, `ferrite node wait {label}` waits again"
            )),
            Self::ConnectionLost(error) => CliError::ConnectionLost(error.clone()),
        }
    }
}

struct NodeWaiter {
    context: CliContext,
    board: ProgressBoard,
    pending: Vec<(SelectedNode, WaitGoal)>,
    finished: Vec<NodeOutcome>,
    /// Whether the server reports wait reasons, as Ferrite does.
    has_wait_reasons: bool,
    /// Nodes whose power change was observed.
    power_change_seen: HashSet<String>,
    polls: u32,
}

impl NodeWaiter {
    async fn run(&mut self, intervals: PollIntervals, deadline: WaitDeadline) -> Option<WaitEnd> {
        let mut interval = intervals.first;
        let mut unavailable_polls = 0;
        let mut poll_deadline = deadline.no_sooner_than(MIN_POLL_TIME);
        loop {
            let polled = tokio::select! {
                polled = self.poll() => polled,
                () = poll_deadline.passed() => return Some(WaitEnd::TimedOut),
            };
            poll_deadline = deadline;
            match polled {
                Ok(()) => unavailable_polls = 0,
                // The server may be restarting.
                Err(error)
                    if error.is_server_unavailable()
                        && unavailable_polls < MAX_UNAVAILABLE_POLLS =>
                {
                    unavailable_polls += 1;
                }
                Err(error) => return Some(WaitEnd::ConnectionLost(Arc::new(error))),
            }
            self.board.draw();
            if self.pending.is_empty() {
                return None;
            }
            if deadline.is_passed() {
                return Some(WaitEnd::TimedOut);
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                // Poll once more at the deadline.
                () = deadline.passed() => poll_deadline = deadline.no_sooner_than(MIN_POLL_TIME),
            }
            interval = (interval * 3 / 2).min(intervals.max);
        }
    }

    /// Polls all nodes that are not done.
    async fn poll(&mut self) -> Result<(), IronicClientError> {
        let nodes = self.fetch_nodes().await?;
        self.polls += 1;
        let mut index = 0;
        // Ctrl-C can cancel this at any await, so a node stays pending until its outcome is stored.
        while let Some((selected, goal)) = self.pending.get(index) {
            let label = selected.label.clone();
            let status = match nodes.get(&selected.uuid) {
                None => None,
                Some(node) => {
                    if !node["target_power_state"].is_null() {
                        self.power_change_seen.insert(selected.uuid.clone());
                    }
                    // A power change may start only after the request was accepted.
                    let may_not_have_begun = matches!(goal, WaitGoal::Power(_))
                        && self.polls < 3
                        && !self.power_change_seen.contains(&selected.uuid);
                    match wait_status(goal, node) {
                        WaitStatus::Reached(_) | WaitStatus::Failed(_) if may_not_have_begun => {
                            index += 1;
                            continue;
                        }
                        status @ (WaitStatus::Reached(_)
                        | WaitStatus::Failed(_)
                        | WaitStatus::InProgress(_)) => Some(status),
                    }
                }
            };
            let (style, text, result) = match status {
                Some(WaitStatus::InProgress(text)) => {
                    let uuid = selected.uuid.clone();
                    let text = match self.wait_reason(&uuid).await {
                        Some(reason) => format!("{text}, waiting for {reason}"),
                        None => text,
                    };
                    self.board.update(&label, TextStyle::Progress, &text, true);
                    index += 1;
                    continue;
                }
                None => {
                    let error = CliError::NotFound("was deleted".to_owned());
                    (TextStyle::Error, "deleted".to_owned(), Err(error))
                }
                Some(WaitStatus::Reached(state)) => (TextStyle::Success, state.clone(), Ok(state)),
                Some(WaitStatus::Failed(why)) => {
                    (TextStyle::Error, why.clone(), Err(CliError::Failed(why)))
                }
            };
            self.board.update(&label, style, &text, false);
            let (selected, _) = self.pending.remove(index);
            self.finished.push(NodeOutcome { selected, result });
        }
        Ok(())
    }

    /// Fetches the pending nodes by UUID: individually, or with one list if there are many.
    async fn fetch_nodes(&self) -> Result<HashMap<String, Value>, IronicClientError> {
        let api = &self.context.api;
        let query = QueryString::new().with("fields", &poll_fields(api.version()));
        let found = if self.pending.len() > selection::MAX_SINGLE_REQUESTS {
            api.list("/v1/nodes", "nodes", &query).await?
        } else {
            let paths = self
                .pending
                .iter()
                .map(|(selected, _)| query.append_to(&selected.path()))
                .collect();
            selection::fetch_all(api, paths).await?.into_iter().flatten().collect()
        };
        let uuid = |node: &Value| node["uuid"].as_str().unwrap_or_default().to_owned();
        Ok(found.into_iter().map(|node| (uuid(&node), node)).collect())
    }

    /// What a node waits for and until when, if the server reports it.
    async fn wait_reason(&mut self, uuid: &str) -> Option<String> {
        if !self.has_wait_reasons || self.pending.len() >= MAX_REASON_QUERIES {
            return None;
        }
        // A countdown is shown only on a terminal; elsewhere each change would be a new line.
        let is_live = self.context.screen.is_stderr_terminal;
        match fetch_wait_description(&self.context.api, uuid).await {
            Ok(reason) => reason.map(|reason| {
                if is_live { reason.with_time_left() } else { reason.without_time_left() }
            }),
            Err(()) => {
                self.has_wait_reasons = false;
                None
            }
        }
    }
}

/// What a node waits for.
pub(crate) struct WaitDescription {
    reason: String,
    /// The position in a job queue.
    position: Option<String>,
    /// When the wait fails.
    deadline: Option<String>,
    /// When the next poll, retry or boot starts.
    next_action_at: Option<String>,
}

/// Fetches what a node waits for. Fails if the server does not report it.
pub(crate) async fn fetch_wait_description(
    api: &Api,
    uuid: &str,
) -> Result<Option<WaitDescription>, ()> {
    let path = format!("/v1/ferrite/nodes/{}/explain?target=abort", percent_encode(uuid));
    let explained = api.get(&path).await.map_err(|_| ())?;
    let waiting = &explained["waiting"];
    let Some(why) = waiting["reason"].as_str() else { return Ok(None) };
    let time = |field: &str| waiting[field].as_str().map(str::to_owned);
    Ok(Some(WaitDescription {
        reason: why.replace('_', " "),
        position: queue_position(waiting),
        deadline: time("until"),
        next_action_at: time("next_action_at"),
    }))
}

/// The position of a job that waits in a queue, from the wait of an explanation.
pub(crate) fn queue_position(waiting: &Value) -> Option<String> {
    let queue = &waiting["queue"];
    let (position, length) = (queue["position"].as_u64()?, queue["length"].as_u64()?);
    Some(format!("position {position} of {length}"))
}

impl WaitDescription {
    /// A text that does not change during the wait: without the position in a queue, and without the next action,
    /// which changes with every poll and attempt.
    fn without_time_left(self) -> String {
        self.format(|until| timestamps::timestamp_cell(&Value::from(until)).text)
    }

    /// A text with the time left.
    pub(crate) fn with_time_left(mut self) -> String {
        let now = SystemTime::now();
        let next = self.next_action_at.take();
        if let Some(position) = self.position.take() {
            self.reason = format!("{}, {position}", self.reason);
        }
        let text = self.format(|until| timestamps::with_time_left(until, now));
        match next {
            Some(next) => {
                format!("{text}, next action at {}", timestamps::with_time_left(&next, now))
            }
            None => text,
        }
    }

    fn format(self, format_deadline: impl Fn(&str) -> String) -> String {
        match &self.deadline {
            Some(deadline) => format!("{} until {}", self.reason, format_deadline(deadline)),
            None => self.reason,
        }
    }
}

fn poll_fields(version: Microversion) -> String {
    if version < SERVICE_STEP_SINCE { FIELDS.to_owned() } else { format!("{FIELDS},service_step") }
}

impl WaitGoal {
    fn description(&self) -> String {
        match self {
            Self::State(states) => states.first().copied().unwrap_or("stable").to_owned(),
            Self::Named(state) => state.clone(),
            Self::Stable | Self::StableWithoutFailure => "in a stable state".to_owned(),
            Self::Power(state) => (*state).to_owned(),
        }
    }
}

fn wait_status(goal: &WaitGoal, node: &Value) -> WaitStatus {
    let text = |field: &str| node[field].as_str().unwrap_or_default();
    let state = text("provision_state");
    let error = text("last_error");
    let why = |what: &str| match error {
        "" => what.to_owned(),
        error => format!("{what}: {error}"),
    };
    let is_failed = state.ends_with("failed") || state == "error";
    let is_stable = node["target_provision_state"].is_null() || is_failed;
    // After an abort the conductor still works on a node in a failed state; the next request would be
    // rejected with "node is locked".
    let is_locked = node["reservation"].as_str().is_some_and(|host| !host.is_empty());
    let in_progress = || {
        let step = ["deploy_step", "clean_step", "service_step"]
            .iter()
            .find_map(|step| node[step]["step"].as_str());
        let mut text = match step {
            Some(step) => format!("{state}, step {step}"),
            None => state.to_owned(),
        };
        if state.ends_with("hold") {
            text.push_str(", held; continue with `ferrite node unhold`");
        }
        if node["maintenance"] == true {
            text.push_str(", in maintenance");
        }
        if is_stable && is_locked {
            text.push_str(", still locked");
        }
        text
    };
    match goal {
        WaitGoal::State(_) | WaitGoal::Stable | WaitGoal::StableWithoutFailure
            if !is_stable || is_locked =>
        {
            WaitStatus::InProgress(in_progress())
        }
        WaitGoal::State(states) if states.contains(&state) => WaitStatus::Reached(state.to_owned()),
        WaitGoal::State(_) => WaitStatus::Failed(why(state)),
        WaitGoal::StableWithoutFailure if is_failed => WaitStatus::Failed(why(state)),
        WaitGoal::Stable | WaitGoal::StableWithoutFailure => WaitStatus::Reached(state.to_owned()),
        WaitGoal::Named(name) if name == state && !(is_stable && is_locked) => {
            WaitStatus::Reached(state.to_owned())
        }
        WaitGoal::Named(_) if !is_stable || is_locked => WaitStatus::InProgress(in_progress()),
        WaitGoal::Named(_) if is_failed => WaitStatus::Failed(why(state)),
        WaitGoal::Named(name) => WaitStatus::Failed(format!(
            "{state}, which is stable; no operation is running that would make it {name}"
        )),
        WaitGoal::Power(target) => {
            let power = node["power_state"].as_str().unwrap_or("power unknown");
            match (node["target_power_state"].as_str(), power == *target) {
                (Some(target), _) => WaitStatus::InProgress(format!("{power}, going to {target}")),
                (None, true) => WaitStatus::Reached(power.to_owned()),
                (None, false) => WaitStatus::Failed(why(power)),
            }
        }
    }
}

/// Parses `90`, `90s`, `30m`, `2h` or `1d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
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
        _ => Err("it must be a number with the unit s, m, h or d, such as 30m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::node::verbs::Verb;
    use crate::test_server::{RequestLog, TestResponse, start_server, unreachable_server};

    fn deploying() -> Value {
        json!({"uuid": "u0", "provision_state": "deploying", "target_provision_state": "active"})
    }

    /// The exit code after waiting for this number of nodes.
    async fn code(context: &CliContext, count: usize, timeout: Option<Duration>) -> CliExitCode {
        let intervals =
            PollIntervals { first: Duration::from_millis(1), max: Duration::from_millis(1) };
        let selected = |number| SelectedNode::new(json!({"uuid": format!("u{number}")}));
        let machines = (0..count).map(|number| (selected(number), WaitGoal::Stable)).collect();
        let deadline = TimeoutArguments { timeout }.deadline();
        let outcomes = wait_with_intervals(intervals, context, machines, deadline).await;
        let message = crate::bulk::report(context, outcomes, crate::output::OutputFormat::Name);
        message.unwrap_err().exit_code()
    }

    fn poll_count(log: &RequestLog) -> usize {
        log.lock().unwrap().iter().filter(|line| line.starts_with("GET /v1/nodes")).count()
    }

    #[tokio::test]
    async fn unreachable_server_has_its_exit_code() {
        for count in [1, 2] {
            assert_eq!(code(&unreachable_server(), count, None).await, CliExitCode::Unreachable);
        }
    }

    /// Unavailable servers are polled again, error responses are not.
    #[tokio::test]
    async fn retries_only_if_the_server_is_unavailable() {
        for (status, expected, times) in [
            (503, CliExitCode::Failed, 31),
            (401, CliExitCode::NotAuthorised, 1),
            (403, CliExitCode::NotAuthorised, 1),
            (400, CliExitCode::Rejected, 1),
        ] {
            let respond = move |_: &_| TestResponse::Json(status, json!({"error_message": "no"}));
            let (context, log) = start_server(respond);
            assert_eq!(code(&context, 1, None).await, expected, "{status}");
            assert_eq!(poll_count(&log), times, "{status}");
        }
    }

    #[tokio::test]
    async fn requests_no_unknown_fields_from_older_servers() {
        let (context, _) = start_server(|request| match &*request.version {
            "1.61" if request.line.contains("service_step") => TestResponse::Json(400, json!({})),
            "1.61" => TestResponse::Json(200, json!({"uuid": "u0", "provision_state": "active"})),
            _ => TestResponse::OlderVersion("1.61"),
        });
        // Nodes are selected before they are waited for, which negotiates the version.
        context.api.get("/v1/nodes/u0").await.unwrap();
        let selected = SelectedNode::new(json!({"uuid": "u0"}));
        let machines = vec![(selected, WaitGoal::Stable)];
        let outcomes = wait_for(&context, machines, TimeoutArguments::default().deadline()).await;
        assert_eq!(outcomes[0].result.as_deref().unwrap(), "active");
        assert!(poll_fields(Microversion(87)).ends_with(",service_step"));
    }

    #[tokio::test]
    async fn timeout_applies_to_a_hanging_server() {
        let mut count = 0;
        let (context, _) = start_server(move |request| {
            count += usize::from(request.line.starts_with("GET /v1/nodes"));
            if count > 1 { TestResponse::Hang } else { TestResponse::Json(200, deploying()) }
        });
        let waiting = code(&context, 1, Some(Duration::from_millis(400)));
        let ended = tokio::time::timeout(Duration::from_secs(60), waiting).await;
        assert_eq!(ended, Ok(CliExitCode::TimedOut));
    }

    /// Without listing the whole fleet at every poll.
    #[tokio::test]
    async fn polls_only_the_selected_nodes() {
        let (context, log) = start_server(|request| {
            let uuid = request.line.trim_start_matches("GET /v1/nodes/").split('?').next();
            TestResponse::Json(200, json!({"uuid": uuid, "provision_state": "deploy failed"}))
        });
        let selected = |number| SelectedNode::new(json!({"uuid": format!("u{number}")}));
        let machines =
            (0..40).map(|number| (selected(number), WaitGoal::StableWithoutFailure)).collect();
        let outcomes = wait_for(&context, machines, TimeoutArguments::default().deadline()).await;
        let uuids: Vec<String> = outcomes.into_iter().map(|it| it.selected.uuid).collect();
        assert_eq!(uuids, (0..40).map(|number| format!("u{number}")).collect::<Vec<_>>());
        assert!(log.lock().unwrap().iter().all(|line| line.starts_with("GET /v1/nodes/u")));
    }

    #[test]
    fn determines_the_status_of_a_node() {
        let available = WaitGoal::State(&["available", "manageable"]);
        let moving = |text: &str| WaitStatus::InProgress(text.to_owned());
        let reached = |text: &str| WaitStatus::Reached(text.to_owned());
        let failed = |text: &str| WaitStatus::Failed(text.to_owned());
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
            (&WaitGoal::Stable, "clean wait", Some("available"), None, moving("clean wait")),
            (
                &WaitGoal::Stable,
                "clean hold",
                Some("available"),
                None,
                moving("clean hold, held; continue with `ferrite node unhold`"),
            ),
            (&WaitGoal::Stable, "deploy failed", Some("active"), None, reached("deploy failed")),
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
                &WaitGoal::Named("wait call-back".to_owned()),
                "wait call-back",
                Some("active"),
                None,
                reached("wait call-back"),
            ),
            (
                &WaitGoal::Named("active".to_owned()),
                "available",
                None,
                None,
                failed(
                    "available, which is stable; no operation is running that would make it active",
                ),
            ),
            (
                &WaitGoal::Named("active".to_owned()),
                "deploy failed",
                Some("active"),
                None,
                failed("deploy failed"),
            ),
        ] {
            let node = json!({
                "provision_state": state, "target_provision_state": target, "last_error": error,
            });
            assert_eq!(wait_status(goal, &node), expected, "{goal:?} {state}");
        }
    }

    /// The conductor holds the lock for a while after it has entered the final state.
    #[test]
    fn waits_until_the_node_is_unlocked() {
        for (goal, state) in [
            (Verb::Abort.goal(), "clean failed"),
            (Verb::Undeploy.goal(), "available"),
            (WaitGoal::Named("active".to_owned()), "active"),
            (WaitGoal::StableWithoutFailure, "manageable"),
        ] {
            let mut node = json!({"provision_state": state, "reservation": "conductor-1"});
            let expected = WaitStatus::InProgress(format!("{state}, still locked"));
            assert_eq!(wait_status(&goal, &node), expected);
            node["reservation"] = Value::Null;
            assert_eq!(wait_status(&goal, &node), WaitStatus::Reached(state.to_owned()));
        }
        // A transient state is reached although the node is locked.
        let goal = WaitGoal::Named("cleaning".to_owned());
        let node = json!({"provision_state": "cleaning", "target_provision_state": "available",
                          "reservation": "conductor-1"});
        assert_eq!(wait_status(&goal, &node), WaitStatus::Reached("cleaning".to_owned()));
    }

    #[test]
    fn knows_all_provision_states() {
        let mut expected: Vec<&str> =
            node_model::ProvisionState::ALL.iter().map(|state| state.as_str()).collect();
        let mut known = PROVISION_STATES.to_vec();
        expected.sort_unstable();
        known.sort_unstable();
        assert_eq!(known, expected);
    }

    #[test]
    fn determines_the_status_of_a_power_change() {
        for (power, target, expected) in [
            (
                "power off",
                Some("power on"),
                WaitStatus::InProgress("power off, going to power on".to_owned()),
            ),
            ("power on", None, WaitStatus::Reached("power on".to_owned())),
            ("power off", None, WaitStatus::Failed("power off: BMC silent".to_owned())),
        ] {
            let node = json!({
                "power_state": power, "target_power_state": target, "last_error": "BMC silent",
            });
            assert_eq!(wait_status(&WaitGoal::Power("power on"), &node), expected);
        }
    }

    #[test]
    fn parses_durations_with_units() {
        for (text, seconds) in
            [("90", 90), ("5s", 5), ("30m", 1_800), ("2h", 7_200), ("1d", 86_400)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "m", "5x", "-1s", "1.5h"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
