// SPDX-License-Identifier: Apache-2.0
//! What the kubelet knows about a pod, and the status that follows from it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// The progress of one pod.
#[derive(Clone, Debug)]
pub(super) struct PodProgress {
    pub(super) start_time: Timestamp,
    pub(super) address: Option<Ipv4Addr>,
    /// All init containers succeeded.
    pub(super) is_initialized: bool,
    /// Nothing of the pod runs any more, and nothing will.
    pub(super) is_terminated: bool,
    /// Containers and init containers by name.
    pub(super) containers: BTreeMap<String, ContainerProgress>,
}

/// The progress of one container.
#[derive(Clone, Debug)]
pub(super) struct ContainerProgress {
    pub(super) phase: ContainerPhase,
    pub(super) last_exit: Option<ContainerExit>,
    pub(super) restarts: i32,
    pub(super) is_started: bool,
    pub(super) is_ready: bool,
}

/// What a container does.
#[derive(Clone, Debug)]
pub(super) enum ContainerPhase {
    Waiting { reason: String, message: Option<String> },
    Running { since: Timestamp },
    Exited(ContainerExit),
}

/// How a container ended.
#[derive(Clone, Debug)]
pub(super) struct ContainerExit {
    pub(super) code: i32,
    pub(super) message: Option<String>,
    pub(super) started: Timestamp,
    pub(super) finished: Timestamp,
}

/// When a container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartRule {
    Always,
    OnFailure,
    Never,
}

impl RestartRule {
    /// The rule of a pod's containers.
    pub(super) fn of(pod: &Pod) -> Self {
        match pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// The rule of its init containers, which have to succeed once.
    pub(super) fn of_init_containers(pod: &Pod) -> Self {
        match Self::of(pod) {
            Self::Never => Self::Never,
            Self::Always | Self::OnFailure => Self::OnFailure,
        }
    }

    pub(super) fn restarts_after(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

impl PodProgress {
    pub(super) fn new(pod: &Pod) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let init = spec.init_containers.unwrap_or_default();
        let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        let containers = init.iter().chain(&spec.containers);
        Self {
            start_time: Timestamp::now(),
            address: None,
            is_initialized: false,
            is_terminated: false,
            containers: containers
                .map(|container| (container.name.clone(), ContainerProgress::new(reason)))
                .collect(),
        }
    }

    /// The status to write. Times of unchanged conditions are kept from `previous`.
    pub(super) fn status(&self, pod: &Pod, host: Ipv4Addr, previous: &[PodCondition]) -> PodStatus {
        let spec = pod.spec.clone().unwrap_or_default();
        let init = spec.init_containers.unwrap_or_default();
        let rule = RestartRule::of(pod);
        let phase = self.phase(rule, &init, &spec.containers);
        let is_ready = phase == "Running"
            && !self.is_terminated
            && spec.containers.iter().all(|container| self.of(&container.name).is_ready);
        let is_done = phase == "Succeeded";
        let ready_reason = match (is_ready, is_done) {
            (true, _) => None,
            (false, true) => Some("PodCompleted"),
            (false, false) => Some("ContainersNotReady"),
        };
        let condition = |type_: &str, is_true: bool, reason: Option<&str>| {
            let status = if is_true { "True" } else { "False" };
            let old = previous.iter().find(|old| old.type_ == type_ && old.status == status);
            PodCondition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.map(str::to_owned),
                last_transition_time: old
                    .and_then(|old| old.last_transition_time.clone())
                    .or_else(|| Some(Time(Timestamp::now()))),
                ..PodCondition::default()
            }
        };
        let statuses = |containers: &[Container]| {
            containers.iter().map(|container| self.container_status(container)).collect::<Vec<_>>()
        };
        PodStatus {
            phase: Some(phase.to_owned()),
            conditions: Some(vec![
                condition("PodScheduled", true, None),
                condition("PodReadyToStartContainers", self.address.is_some(), None),
                condition("Initialized", self.is_initialized, None),
                condition("ContainersReady", is_ready, ready_reason),
                condition("Ready", is_ready, ready_reason),
            ]),
            host_ip: Some(host.to_string()),
            host_ips: Some(vec![HostIP { ip: host.to_string() }]),
            pod_ip: self.address.map(|address| address.to_string()),
            pod_ips: self.address.map(|address| vec![PodIP { ip: address.to_string() }]),
            start_time: Some(Time(self.start_time)),
            container_statuses: Some(statuses(&spec.containers)),
            init_container_statuses: Some(statuses(&init)).filter(|list| !list.is_empty()),
            ..PodStatus::default()
        }
    }

    fn of(&self, name: &str) -> ContainerProgress {
        self.containers.get(name).cloned().unwrap_or_else(|| ContainerProgress::new("Unknown"))
    }

    fn phase(
        &self,
        rule: RestartRule,
        init: &[Container],
        containers: &[Container],
    ) -> &'static str {
        let exit_code = |container: &Container| match self.of(&container.name).phase {
            ContainerPhase::Exited(exit) => Some(exit.code),
            ContainerPhase::Waiting { .. } | ContainerPhase::Running { .. } => None,
        };
        let never_ran = |container: &Container| {
            let progress = self.of(&container.name);
            matches!(progress.phase, ContainerPhase::Waiting { .. }) && progress.last_exit.is_none()
        };
        let codes: Option<Vec<i32>> = containers.iter().map(exit_code).collect();
        let init_failed = init.iter().filter_map(exit_code).any(|code| code != 0);
        match codes {
            _ if init_failed && (rule == RestartRule::Never || self.is_terminated) => "Failed",
            Some(codes) if self.is_terminated || rule != RestartRule::Always => {
                if codes.iter().all(|code| *code == 0) { "Succeeded" } else { "Failed" }
            }
            _ if self.is_terminated => "Failed",
            _ if containers.iter().any(never_ran) => "Pending",
            _ => "Running",
        }
    }

    fn container_status(&self, container: &Container) -> ContainerStatus {
        let progress = self.of(&container.name);
        ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: container.image.clone().unwrap_or_default(),
            ready: progress.is_ready,
            started: Some(progress.is_started),
            restart_count: progress.restarts,
            state: Some(progress.phase.state()),
            last_state: progress.last_exit.map(|exit| ContainerPhase::Exited(exit).state()),
            ..ContainerStatus::default()
        }
    }
}

impl ContainerProgress {
    fn new(reason: &str) -> Self {
        Self {
            phase: ContainerPhase::Waiting { reason: reason.to_owned(), message: None },
            last_exit: None,
            restarts: 0,
            is_started: false,
            is_ready: false,
        }
    }
}

impl ContainerPhase {
    fn state(self) -> ContainerState {
        let mut state = ContainerState::default();
        match self {
            Self::Waiting { reason, message } => {
                state.waiting = Some(ContainerStateWaiting { reason: Some(reason), message });
            }
            Self::Running { since } => {
                state.running = Some(ContainerStateRunning { started_at: Some(Time(since)) });
            }
            Self::Exited(exit) => {
                let reason = if exit.code == 0 { "Completed" } else { "Error" };
                state.terminated = Some(ContainerStateTerminated {
                    exit_code: exit.code,
                    reason: Some(reason.to_owned()),
                    message: exit.message,
                    started_at: Some(Time(exit.started)),
                    finished_at: Some(Time(exit.finished)),
                    ..ContainerStateTerminated::default()
                });
            }
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn exited(code: i32) -> ContainerPhase {
        let now = Timestamp::UNIX_EPOCH;
        ContainerPhase::Exited(ContainerExit { code, message: None, started: now, finished: now })
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        let running = || ContainerPhase::Running { since: Timestamp::UNIX_EPOCH };
        let waiting =
            || ContainerPhase::Waiting { reason: "ContainerCreating".to_owned(), message: None };
        for (policy, phases, is_terminated, expected) in [
            ("Always", [running(), waiting()], false, "Pending"),
            ("Always", [running(), running()], false, "Running"),
            ("Always", [exited(0), exited(0)], false, "Running"),
            ("Never", [exited(0), running()], false, "Running"),
            ("Never", [exited(0), exited(0)], false, "Succeeded"),
            ("OnFailure", [exited(0), exited(0)], false, "Succeeded"),
            ("Never", [exited(0), exited(1)], false, "Failed"),
            ("Always", [exited(0), exited(0)], true, "Succeeded"),
            ("Always", [exited(143), exited(0)], true, "Failed"),
            ("Always", [waiting(), waiting()], true, "Failed"),
        ] {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {},
                "spec": {"restartPolicy": policy, "containers": [{"name": "a"}, {"name": "b"}]},
            }))
            .expect("a pod");
            let mut progress = PodProgress::new(&pod);
            progress.is_terminated = is_terminated;
            let shown = format!("{policy} {phases:?}");
            for (name, phase) in ["a", "b"].into_iter().zip(phases) {
                progress.containers.get_mut(name).expect("a container").phase = phase;
            }
            let status = progress.status(&pod, Ipv4Addr::LOCALHOST, &[]);
            assert_eq!(status.phase.as_deref(), Some(expected), "{shown}");
        }
    }
}
