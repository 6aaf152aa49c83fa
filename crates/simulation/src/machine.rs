// SPDX-License-Identifier: Apache-2.0
//! The machines and the network to their BMCs. They record every command, independently of what
//! the processes store.

use std::collections::BTreeMap;
use std::time::Duration;

use node_model::NodeId;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::world::WorldState;

/// How long a process waits for the response of a BMC.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A request to a BMC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MachineCommand {
    PowerStatus,
    PowerOn,
    PowerOff,
    /// Starts the task of a job. A task that runs already continues.
    Start(TaskKind, Uuid),
    TaskStatus(TaskKind, Uuid),
}

/// What a machine does for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskKind {
    WriteImage,
    Erase,
}

/// The response of a BMC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MachineReply {
    Done,
    Power {
        is_on: bool,
    },
    TaskRuns,
    TaskEnded,
    /// The machine has not run the task, or lost it with its power.
    NoSuchTask,
    /// The machine is off.
    Off,
}

/// The machines, by node.
#[derive(Default)]
pub(crate) struct MachineNetwork {
    pub(crate) machines: BTreeMap<NodeId, Machine>,
    requests: Vec<Request>,
    replies: Vec<Reply>,
    /// Kept open: their senders wait until a timeout.
    without_response: Vec<oneshot::Sender<MachineReply>>,
}

/// A machine and what it did.
#[derive(Default)]
pub(crate) struct Machine {
    /// Its number, for the trace.
    pub(crate) number: usize,
    pub(crate) is_on: bool,
    /// The power state that it will have, and when.
    power_change: Option<(bool, Duration)>,
    task: Option<MachineTask>,
    /// The job that wrote the image on the disk.
    pub(crate) image_of: Option<Uuid>,
    /// The job that erased the disk last.
    pub(crate) erased_by: Option<Uuid>,
    /// The highest fencing token of a command.
    latest_token: i64,
    starts: Vec<TaskStart>,
}

struct MachineTask {
    kind: TaskKind,
    job: Uuid,
    ends_at: Duration,
}

/// A command that started a task.
struct TaskStart {
    kind: TaskKind,
    job: Uuid,
    sender: usize,
    sent_at: Duration,
    /// Whether the sender got the response.
    has_response: bool,
    /// Which run of the sender sent it.
    run: Uuid,
}

/// A process that sends a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandSender {
    pub(crate) replica: usize,
    pub(crate) run: Uuid,
}

struct Request {
    arrives_at: Duration,
    node: NodeId,
    command: MachineCommand,
    sender: CommandSender,
    token: i64,
    times: u32,
    loses_response: bool,
    respond: oneshot::Sender<MachineReply>,
}

struct Reply {
    arrives_at: Duration,
    node: NodeId,
    command: MachineCommand,
    sender: CommandSender,
    reply: MachineReply,
    respond: oneshot::Sender<MachineReply>,
}

impl MachineCommand {
    /// Whether it changes the machine.
    const fn is_change(self) -> bool {
        matches!(self, Self::PowerOn | Self::PowerOff | Self::Start(..))
    }

    fn name(self) -> String {
        match self {
            Self::PowerStatus => "power status".to_owned(),
            Self::PowerOn => "power on".to_owned(),
            Self::PowerOff => "power off".to_owned(),
            Self::Start(kind, _) => format!("start {kind:?}"),
            Self::TaskStatus(kind, _) => format!("status of {kind:?}"),
        }
    }
}

impl WorldState {
    /// Sends a command to a machine. The receiver gets the response, if one arrives.
    pub(crate) fn send_command(
        &mut self,
        sender: CommandSender,
        host: &str,
        node: NodeId,
        command: MachineCommand,
    ) -> oneshot::Receiver<MachineReply> {
        let (respond, response) = oneshot::channel();
        let number = self.machines.machines.get(&node).map_or(0, |machine| machine.number);
        if command.is_change() {
            self.record(&format!("{host} sends '{}' to machine {number}", command.name()));
        }
        let lease = self.history.lease(node);
        if command.is_change() && !lease.is_held_by(host, sender.run) {
            let owner = lease.reservation.as_deref().unwrap_or("no process").to_owned();
            let text = format!(
                "{host} sends '{}' to machine {number}, whose lease {} has {owner}",
                command.name(),
                lease.token
            );
            self.violation(text);
        }
        if let MachineCommand::Start(kind, job) = command {
            self.check_repeated_start(sender, host, node, kind, job);
        }
        let is_lost = self.machines_lost(sender.replica);
        let loses = self.loses_messages;
        let random = &mut self.random;
        let delay =
            if random.happens(30) { random.millis(300, 1000) } else { random.millis(1, 60) };
        let times = if loses && random.happens(20) { 2 } else { 1 };
        let loses_response = loses && random.happens(20);
        let loses_request = loses && random.happens(10);
        if is_lost || loses_request {
            self.machines.without_response.push(respond);
            return response;
        }
        self.machines.requests.push(Request {
            arrives_at: self.now + delay,
            node,
            command,
            sender,
            token: lease.token,
            times,
            loses_response,
            respond,
        });
        response
    }

    fn machines_lost(&self, replica: usize) -> bool {
        self.now < self.replicas[replica].machines_lost_until
    }

    /// A task is started again only if the process that started it got no response, or could not record it.
    fn check_repeated_start(
        &mut self,
        sender: CommandSender,
        host: &str,
        node: NodeId,
        kind: TaskKind,
        job: Uuid,
    ) {
        let now = self.now;
        let Some(machine) = self.machines.machines.get_mut(&node) else { return };
        let number = machine.number;
        let earlier = machine.starts.iter().filter(|start| start.kind == kind && start.job == job);
        let unexcused = earlier.filter(|start| {
            let disturbed_at = self.replicas[start.sender].disturbed_at;
            let is_disturbed = disturbed_at + Duration::from_secs(15) > start.sent_at;
            start.has_response && !is_disturbed && start.run == sender.run
        });
        let count = unexcused.count();
        machine.starts.push(TaskStart {
            kind,
            job,
            sender: sender.replica,
            sent_at: now,
            has_response: false,
            run: sender.run,
        });
        if count > 0 {
            let text =
                format!("{host} starts {kind:?} again on machine {number}, for the same job");
            self.violation(text);
        }
    }

    /// Executes the commands that have arrived, and delivers the responses.
    pub(crate) fn run_machines(&mut self) {
        let now = self.now;
        for machine in self.machines.machines.values_mut() {
            machine.advance(now);
        }
        let mut requests = std::mem::take(&mut self.machines.requests);
        requests.sort_by_key(|request| request.arrives_at);
        for request in requests {
            if request.arrives_at > now {
                self.machines.requests.push(request);
            } else {
                self.execute(request);
            }
        }
        let mut replies = std::mem::take(&mut self.machines.replies);
        replies.sort_by_key(|reply| reply.arrives_at);
        for reply in replies {
            if reply.arrives_at > now {
                self.machines.replies.push(reply);
            } else if self.machines_lost(reply.sender.replica) {
                self.machines.without_response.push(reply.respond);
            } else {
                self.deliver(reply);
            }
        }
    }

    fn execute(&mut self, request: Request) {
        let Request { node, command, sender, token, times, loses_response, respond, .. } = request;
        // Longer than a session in some cases, so that work is in progress when one ends.
        let duration = if self.random.happens(300) {
            self.random.millis(8000, 25_000)
        } else {
            self.random.millis(500, 5000)
        };
        let now = self.now;
        let Some(machine) = self.machines.machines.get_mut(&node) else { return };
        let number = machine.number;
        let is_late = command.is_change() && token < machine.latest_token;
        if command.is_change() {
            machine.latest_token = machine.latest_token.max(token);
        }
        let mut reply = MachineReply::Done;
        for _ in 0..times {
            reply = machine.execute(command, now, duration);
        }
        if command.is_change() {
            let event = format!(
                "machine {number} executes '{}' of process {}: {reply:?}{}",
                command.name(),
                sender.replica,
                if times > 1 { ", twice" } else { "" }
            );
            self.record(&event);
        }
        if is_late {
            let text = format!(
                "'{}' under lease {token} arrives at machine {number} after a later lease",
                command.name()
            );
            self.violation(text);
        }
        if loses_response {
            self.machines.without_response.push(respond);
            return;
        }
        let delay = self.random.millis(1, 60);
        self.machines.replies.push(Reply {
            arrives_at: now + delay,
            node,
            command,
            sender,
            reply,
            respond,
        });
    }

    fn deliver(&mut self, reply: Reply) {
        let Reply { node, command, sender, reply, respond, .. } = reply;
        let is_received = respond.send(reply).is_ok();
        if let MachineCommand::Start(kind, job) = command
            && let Some(machine) = self.machines.machines.get_mut(&node)
        {
            let starts = machine.starts.iter_mut().rev();
            let mut own = starts
                .filter(|start| (start.kind, start.job, start.run) == (kind, job, sender.run));
            if let Some(start) = own.next() {
                start.has_response = is_received;
            }
        }
    }
}

impl Machine {
    pub(crate) fn new(number: usize) -> Self {
        Self { number, ..Self::default() }
    }

    /// Ends what takes time.
    fn advance(&mut self, now: Duration) {
        if let Some((is_on, _)) = self.power_change.take_if(|(_, at)| *at <= now) {
            self.is_on = is_on;
            if !is_on {
                self.task = None;
            }
        }
        let Some(task) = &self.task else { return };
        if task.ends_at > now {
            return;
        }
        match task.kind {
            TaskKind::WriteImage => self.image_of = Some(task.job),
            TaskKind::Erase => {
                self.erased_by = Some(task.job);
                self.image_of = None;
            }
        }
        self.task = None;
    }

    fn execute(
        &mut self,
        command: MachineCommand,
        now: Duration,
        duration: Duration,
    ) -> MachineReply {
        match command {
            MachineCommand::PowerStatus => MachineReply::Power { is_on: self.is_on },
            MachineCommand::PowerOn | MachineCommand::PowerOff => {
                let is_on = command == MachineCommand::PowerOn;
                self.power_change = Some((is_on, now + duration));
                MachineReply::Done
            }
            MachineCommand::Start(..) | MachineCommand::TaskStatus(..) if !self.is_on => {
                MachineReply::Off
            }
            MachineCommand::Start(kind, job) => {
                let runs =
                    self.task.as_ref().is_some_and(|task| (task.kind, task.job) == (kind, job));
                if !runs && self.result(kind) != Some(job) {
                    self.task = Some(MachineTask { kind, job, ends_at: now + duration });
                }
                MachineReply::Done
            }
            MachineCommand::TaskStatus(kind, job) => match &self.task {
                Some(task) if (task.kind, task.job) == (kind, job) => MachineReply::TaskRuns,
                _ if self.result(kind) == Some(job) => MachineReply::TaskEnded,
                _ => MachineReply::NoSuchTask,
            },
        }
    }

    /// The job that did this last.
    const fn result(&self, kind: TaskKind) -> Option<Uuid> {
        match kind {
            TaskKind::WriteImage => self.image_of,
            TaskKind::Erase => self.erased_by,
        }
    }
}
