// SPDX-License-Identifier: Apache-2.0
//! Runs jobs on a node in memory, with outcomes that the test defines, and records a transcript.

use std::fmt::Write as _;

use lifecycle::{
    Action, ActionFailure, ActionOutcome, AvailableSteps, FollowUpChange, JobContext,
    LifecycleSettings, PendingEntries, ProvisionRequest, ProvisionRequestError, SettleResult,
    queue_job, record, request_provision, settle, start_queued_job,
};
use node_model::{
    ActionProgress, Actor, AvailableStep, BootMethod, JobQueue, JournalEvent, JsonObject, Node,
    NodeId, ProvisionState, Step, StepFlow, Timestamp, UnreachablePeer, Verb,
};
use uuid::Uuid;

pub(crate) const WAIT_FOR_AGENT: ActionOutcome =
    ActionOutcome::Progress(ActionProgress::WaitForAgent);

pub(crate) struct JobHarness {
    pub(crate) node: Node,
    pub(crate) settings: LifecycleSettings,
    pub(crate) now: Timestamp,
    pub(crate) transcript: String,
    /// Whether jobs have to wait in their queue.
    pub(crate) queue_is_full: bool,
    outcomes: Vec<(&'static str, ActionOutcome)>,
}

pub(crate) fn actor() -> Actor {
    Actor::User { name: Some("test".to_owned()), project: None, request_id: "req-1".to_owned() }
}

pub(crate) fn request(verb: Verb, steps: &[Step]) -> ProvisionRequest {
    ProvisionRequest { steps: steps.to_vec(), ..ProvisionRequest::plain(verb, actor()) }
}

/// A context without templates, and without driver steps that would make the ramdisk unnecessary.
pub(crate) fn context() -> JobContext {
    JobContext {
        template_steps: Vec::new(),
        driver_steps: AvailableSteps::default(),
        work_id: Uuid::nil(),
    }
}

pub(crate) fn step(interface: &str, name: &str, priority: i64) -> Step {
    Step::new(interface, name, priority)
}

pub(crate) fn step_with(interface: &str, name: &str, args: &str) -> Step {
    Step { args: JsonObject::from_stored(args), ..Step::new(interface, name, 0) }
}

pub(crate) fn available_steps(flow: StepFlow) -> AvailableSteps {
    let available = |interface: &str, name: &str, priority: i64, abortable: bool| AvailableStep {
        step: Step { abortable, requires_ramdisk: true, ..Step::new(interface, name, priority) },
        arguments: (&[]).into(),
    };
    AvailableSteps::all(match flow {
        StepFlow::Clean => vec![
            available("deploy", "erase_devices", 10, true),
            available("raid", "create", 0, false),
            available("vendor", "first", 99, false),
        ],
        StepFlow::Deploy => vec![available("deploy", "deploy", 100, false)],
        StepFlow::Service => vec![available("raid", "create", 0, false)],
        StepFlow::Verify => Vec::new(),
    })
}

impl JobHarness {
    pub(crate) fn new(state: ProvisionState) -> Self {
        let mut node = Node::new(NodeId(Uuid::nil()), "fake-hardware", Timestamp(0));
        node.provision_state = state;
        Self {
            node,
            settings: LifecycleSettings { boot_retry_timeout: 600, ..LifecycleSettings::default() },
            now: Timestamp::from_secs(1_000_000),
            transcript: String::new(),
            outcomes: Vec::new(),
            queue_is_full: false,
        }
    }

    /// Defines the outcome of the next action whose name starts with `action`.
    pub(crate) fn with_outcome(mut self, action: &'static str, outcome: ActionOutcome) -> Self {
        self.outcomes.push((action, outcome));
        self
    }

    pub(crate) fn request(&mut self, verb: Verb, steps: &[Step]) -> &mut Self {
        let _ = writeln!(self.transcript, "> {verb}");
        match self.try_request(verb, steps) {
            Ok(()) => self.run(),
            Err(error) => {
                let _ = writeln!(self.transcript, "rejected: {error}");
                self
            }
        }
    }

    pub(crate) fn try_request(
        &mut self,
        verb: Verb,
        steps: &[Step],
    ) -> Result<(), ProvisionRequestError> {
        let request = request(verb, steps);
        let entries =
            request_provision(&mut self.node, &request, &context(), &self.settings, self.now)?;
        self.log(&entries);
        Ok(())
    }

    /// Runs actions until the node waits or is idle.
    pub(crate) fn run(&mut self) -> &mut Self {
        for _ in 0..200 {
            let mut entries = PendingEntries::default();
            let result = settle(&mut self.node, &self.settings, self.now, &mut entries);
            self.log(&entries);
            match result {
                SettleResult::Act(action) => self.act(&action),
                SettleResult::NeedsPlace(queue) => self.take_place(queue),
                SettleResult::Wait(..) | SettleResult::Idle => return self,
            }
        }
        panic!("the job does not end:\n{}", self.transcript);
    }

    /// Runs actions before `name`, and returns that action without running it.
    pub(crate) fn run_to(&mut self, name: &str) -> Action {
        for _ in 0..200 {
            let mut entries = PendingEntries::default();
            match settle(&mut self.node, &self.settings, self.now, &mut entries) {
                SettleResult::Act(action) if action.to_string() == name => return action,
                SettleResult::Act(action) => self.act(&action),
                SettleResult::NeedsPlace(queue) => self.take_place(queue),
                SettleResult::Wait(..) | SettleResult::Idle => break,
            }
        }
        panic!("the job does not reach \"{name}\":\n{}", self.transcript);
    }

    /// Starts the job, or queues it if `queue_is_full`.
    fn take_place(&mut self, queue: JobQueue) {
        if self.queue_is_full {
            queue_job(&mut self.node, queue, self.now);
        } else {
            assert!(start_queued_job(&mut self.node, queue, self.now), "{}", self.transcript);
        }
    }

    fn act(&mut self, action: &Action) {
        let name = action.to_string();
        let index = self.outcomes.iter().position(|(prefix, _)| name.starts_with(prefix));
        let outcome = match (index, action) {
            (Some(index), _) => self.outcomes.remove(index).1,
            (None, Action::ListSteps(flow)) => ActionOutcome::StepsListed(available_steps(*flow)),
            (None, _) => ActionOutcome::DONE,
        };
        let entries = record(&mut self.node, action, &outcome, 0, &self.settings, self.now);
        self.log(&entries);
    }

    pub(crate) fn later(&mut self, seconds: i64) -> &mut Self {
        self.now = Timestamp(self.now.0 + seconds * 1_000_000);
        let _ = writeln!(self.transcript, "> {seconds} s later");
        self.run()
    }

    /// Like [`Self::later`], but runs the node only if it is due.
    pub(crate) fn later_if_due(&mut self, seconds: i64) -> &mut Self {
        self.now = Timestamp(self.now.0 + seconds * 1_000_000);
        let _ = writeln!(self.transcript, "> {seconds} s later");
        self.run_if_due()
    }

    pub(crate) fn heartbeat(&mut self) -> &mut Self {
        let _ = writeln!(self.transcript, "> heartbeat");
        let mut entries = PendingEntries::default();
        lifecycle::confirm_boot(&mut self.node, &mut entries);
        self.log(&entries);
        self.node.agent.last_heartbeat = Some(self.now);
        self.node.agent.url = Some("https://192.0.2.1:9999".to_owned());
        lifecycle::heartbeat_received(&mut self.node, self.now);
        self.run()
    }

    pub(crate) fn set_maintenance(&mut self, on: bool) -> &mut Self {
        let _ = writeln!(self.transcript, "> maintenance {on}");
        lifecycle::set_maintenance(&mut self.node, on.then_some(None), self.now);
        self.run_if_due()
    }

    /// Runs the node if it is due, as the scheduler does.
    pub(crate) fn run_if_due(&mut self) -> &mut Self {
        if self.node.due_at.is_some_and(|due| due <= self.now) { self.run() } else { self }
    }

    /// A lookup of the agent, without a heartbeat.
    pub(crate) fn lookup(&mut self) -> &mut Self {
        let _ = writeln!(self.transcript, "> lookup");
        let mut entries = PendingEntries::default();
        lifecycle::confirm_boot(&mut self.node, &mut entries);
        self.log(&entries);
        self.run()
    }

    fn log(&mut self, entries: &PendingEntries) {
        for event in &entries.events {
            let line = match event {
                JournalEvent::StateChanged { from, to, event, .. } => {
                    format!("{from} -> {to} ({event})")
                }
                JournalEvent::ActionDone { action, .. } => action.clone(),
                JournalEvent::ActionFailed { action, error, .. } => {
                    format!("{action} FAILED: {error}")
                }
                JournalEvent::Waiting { reason, until, next_action_at } => {
                    let seconds = |name, at: &Option<Timestamp>| {
                        at.map_or(String::new(), |at| {
                            format!(", {name} in {} s", at.since(self.now).as_secs())
                        })
                    };
                    format!(
                        "waits for {reason}{}{}",
                        seconds("next action", next_action_at),
                        seconds("timeout", until)
                    )
                }
                JournalEvent::Maintenance { fault, .. } => format!("maintenance: {fault:?}"),
                JournalEvent::Power { to, .. } => format!("power: {to:?}"),
                JournalEvent::Note { by, text } => format!("{by}: {text}"),
                JournalEvent::Requested { .. } => continue,
                JournalEvent::Enrolled
                | JournalEvent::Changed { .. }
                | JournalEvent::Removed
                | JournalEvent::BmcCalls { .. }
                | JournalEvent::NetworkActivity { .. }
                | JournalEvent::AgentCall { .. } => format!("{event:?}"),
            };
            let _ = writeln!(self.transcript, "{line}");
        }
        for change in &entries.follow_ups {
            if let FollowUpChange::RecordBootResult { method, worked } = change {
                let method = method.map_or("method of the plan", BootMethod::as_str);
                let _ = writeln!(self.transcript, "boot result: {method} worked: {worked}");
            }
        }
    }

    /// The transcript with the final state of the node.
    pub(crate) fn end(&self) -> String {
        let node = &self.node;
        let mut transcript = self.transcript.clone();
        let _ = write!(transcript, "= {}", node.provision_state);
        if let Some(target) = node.target_provision_state {
            let _ = write!(transcript, " -> {target}");
        }
        if let Some(error) = &node.last_error {
            let _ = write!(transcript, ", last error: {error}");
        }
        if let Some(work) = &node.work {
            let _ = write!(transcript, ", working: {}", work.kind);
        }
        transcript.push('\n');
        transcript
    }
}

pub(crate) fn poll_at(due: Timestamp) -> ActionOutcome {
    ActionOutcome::Progress(ActionProgress::PollAt(due))
}

pub(crate) fn poll_agent_at(due: Timestamp) -> ActionOutcome {
    ActionOutcome::Progress(ActionProgress::PollAgentAt(due))
}

pub(crate) const CHECKPOINT: ActionOutcome = ActionOutcome::Progress(ActionProgress::Checkpoint);

pub(crate) fn unreachable(message: &str) -> ActionOutcome {
    ActionOutcome::Unreachable(UnreachablePeer::Bmc, ActionFailure::new(message))
}

pub(crate) fn failed(message: &str) -> ActionOutcome {
    ActionOutcome::Failed(ActionFailure::new(message))
}
