// SPDX-License-Identifier: Apache-2.0
//! Runs one container: starts its process, probes it, starts it again when it ends.

use std::fs::{self, OpenOptions};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use rustix::process::{Signal, kill_process};
use tokio::time::{Instant, sleep, timeout};

use super::container_root::{ContainerIdentity, ContainerLaunch, ContainerMount};
use super::environment::{self, EnvironmentInput};
use super::pod_worker::PodWorker;
use super::probes::{self, ProbeTarget, ProbeTiming};
use super::progress::{ContainerExit, ContainerPhase, ContainerProgress, RestartRule};
use crate::images::TestImage;
use crate::process::{ChildProcess, container_arguments, first_process};

/// Delays before a restart are short, so that tests are.
const FIRST_BACK_OFF: Duration = Duration::from_millis(100);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(2);
/// Before the next attempt to start what could not be started.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Between two checks whether a root folder is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The longest message of a container about its end, in bytes.
const LONGEST_MESSAGE: usize = 4096;

/// One container of a pod.
pub(super) struct ContainerRunner {
    pub(super) worker: Arc<PodWorker>,
    pub(super) container: Container,
    pub(super) rule: RestartRule,
}

/// A started container.
struct StartedContainer {
    process: ChildProcess,
    launch: ContainerLaunch,
    since: Timestamp,
}

/// Why a container cannot be started: reason and message of its status.
struct StartProblem {
    reason: &'static str,
    message: String,
}

impl ContainerRunner {
    /// Runs the container until it is not started again. Returns whether it succeeded.
    pub(super) async fn run(&self) -> bool {
        let mut back_off = FIRST_BACK_OFF;
        loop {
            if self.worker.is_stopping() {
                return false;
            }
            let started = match self.start().await {
                Ok(started) => started,
                Err(StartProblem { reason, message }) => {
                    self.wait_with(reason, Some(message), RETRY_INTERVAL).await;
                    continue;
                }
            };
            self.update(|progress| {
                progress.phase = ContainerPhase::Running { since: started.since };
            });
            let exit = self.supervise(&started).await;
            let code = exit.code;
            self.update(|progress| {
                progress.phase = ContainerPhase::Exited(exit.clone());
                // An init container stays ready after its success.
                progress.is_ready = self.rule != RestartRule::Always && code == 0 && self.is_init();
                progress.is_started = false;
            });
            if self.worker.is_stopping() || !self.rule.restarts_after(code) {
                return code == 0;
            }
            self.update(|progress| {
                progress.last_exit = Some(exit);
                progress.restarts += 1;
            });
            let message = format!("back-off {back_off:?} restarting failed container");
            self.wait_with("CrashLoopBackOff", Some(message), back_off).await;
            back_off = (back_off * 2).min(LONGEST_BACK_OFF);
        }
    }

    fn is_init(&self) -> bool {
        let spec = self.worker.pod().spec.clone().unwrap_or_default();
        spec.init_containers.iter().flatten().any(|init| init.name == self.container.name)
    }

    fn update(&self, change: impl FnOnce(&mut ContainerProgress)) {
        self.worker.progress.send_modify(|progress| {
            if let Some(container) = progress.containers.get_mut(&self.container.name) {
                change(container);
            }
        });
    }

    /// Waits before the next attempt, unless the pod stops.
    async fn wait_with(&self, reason: &str, message: Option<String>, delay: Duration) {
        self.update(|progress| {
            progress.phase = ContainerPhase::Waiting { reason: reason.to_owned(), message };
        });
        // Stopped or not: the caller checks.
        let _elapsed = timeout(delay, self.worker.stopped()).await;
    }

    async fn start(&self) -> Result<StartedContainer, StartProblem> {
        let problem = |reason| move |message: String| StartProblem { reason, message };
        let image_name = self.container.image.clone().unwrap_or_default();
        let image = TestImage::find(&self.worker.context.images, &image_name)
            .map_err(|error| problem("ErrImagePull")(error.to_string()))?;
        let launch = self.launch(image).map_err(problem("CreateContainerConfigError"))?;
        let process = self
            .spawn(&launch)
            .await
            .map_err(|error| problem("CreateContainerError")(format!("{error:#}")))?;
        Ok(StartedContainer { process, launch, since: Timestamp::now() })
    }

    /// What the container consists of. The error is a message for its status.
    fn launch(&self, image: &TestImage) -> Result<ContainerLaunch, String> {
        let worker = &self.worker;
        let pod = worker.pod();
        let context = &worker.context;
        let (address, node) = (worker.address(), worker.node_address);
        let services = context.contents.services();
        let namespace = pod.namespace();
        let services: Vec<_> =
            services.into_iter().filter(|service| service.namespace() == namespace).collect();
        let variables = environment::variables(&EnvironmentInput {
            pod: &pod,
            container: &self.container,
            contents: &context.contents,
            pod_address: address.ok_or("the pod has no address")?,
            node_address: node,
            services: &services,
            api_address: context.network.api_service_address(),
        })?;
        let mut mounts = self.volume_mounts(&variables)?;
        mounts.extend(image.files.iter().map(|(source, target)| ContainerMount {
            source: source.clone(),
            target: target.clone(),
            is_read_only: true,
        }));
        mounts.push(ContainerMount {
            source: context.hosts_file(),
            target: "/etc/hosts".to_owned(),
            is_read_only: true,
        });
        mounts.push(ContainerMount {
            source: self.message_file(),
            target: self
                .container
                .termination_message_path
                .clone()
                .unwrap_or_else(|| "/dev/termination-log".to_owned()),
            is_read_only: false,
        });
        let spec = pod.spec.clone().unwrap_or_default();
        let on_host = spec.host_network == Some(true);
        let host_name = if on_host { spec.node_name } else { spec.hostname };
        Ok(ContainerLaunch {
            host_name: host_name.unwrap_or_else(|| pod.name_any()),
            mounts,
            command: environment::command(image, &self.container, &variables),
            variables,
            working_folder: self.container.working_dir.clone().unwrap_or_else(|| "/".to_owned()),
            identity: ContainerIdentity::of(&pod, &self.container),
        })
    }

    fn volume_mounts(
        &self,
        variables: &std::collections::BTreeMap<String, String>,
    ) -> Result<Vec<ContainerMount>, String> {
        let mut mounts = Vec::new();
        for mount in self.container.volume_mounts.iter().flatten() {
            let folder = self.worker.volume_path(&mount.name);
            let folder = folder.ok_or_else(|| format!("there is no volume {}", mount.name))?;
            let expanded =
                mount.sub_path_expr.as_deref().map(|text| environment::expand(text, variables));
            let source = match mount.sub_path.clone().or(expanded) {
                Some(inner) => {
                    let inner = folder.join(inner);
                    if !inner.exists() {
                        fs::create_dir_all(&inner).map_err(|error| error.to_string())?;
                    }
                    inner
                }
                None => folder,
            };
            mounts.push(ContainerMount {
                source,
                target: mount.mount_path.clone(),
                is_read_only: mount.read_only == Some(true),
            });
        }
        Ok(mounts)
    }

    fn folder(&self) -> PathBuf {
        self.worker.folder.join("containers").join(&self.container.name)
    }

    fn message_file(&self) -> PathBuf {
        self.folder().join("termination-log")
    }

    /// Starts the process and waits until its root folder is complete.
    async fn spawn(&self, launch: &ContainerLaunch) -> anyhow::Result<ChildProcess> {
        let folder = self.folder();
        fs::create_dir_all(folder.join("root"))?;
        fs::write(self.message_file(), "")?;
        fs::set_permissions(
            self.message_file(),
            std::os::unix::fs::PermissionsExt::from_mode(0o666),
        )?;
        let (script, marker) = (folder.join("start.sh"), folder.join("starting"));
        fs::write(&marker, "")?;
        fs::write(&script, launch.script(&folder.join("root"), &marker))?;
        let log = self.worker.log_file(&self.container.name);
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let network = self.worker.network_holder();
        let network = network.ok_or_else(|| anyhow::anyhow!("the pod has no network"))?;
        let mut command = probes::in_network_of(network, "unshare");
        command.args(container_arguments(&script)).stdout(log.try_clone()?).stderr(log);
        let process = ChildProcess::start(command)?;
        self.worker.register(&self.container.name, process.clone());
        while marker.exists() {
            if let Ok(status) = timeout(POLL_INTERVAL, process.wait()).await {
                anyhow::bail!("its root folder cannot be made: see its output ({status:?})");
            }
        }
        Ok(process)
    }

    /// Waits until the container ends, by itself, by its liveness probe or with the pod.
    async fn supervise(&self, started: &StartedContainer) -> ContainerExit {
        let process = &started.process;
        let status = tokio::select! {
            status = process.wait() => status,
            () = self.probe(started) => self.terminate(process, self.grace()).await,
            grace = self.worker.stopped() => self.terminate(process, grace).await,
        };
        let message = fs::read_to_string(self.message_file()).unwrap_or_default();
        let message: String = message.chars().take(LONGEST_MESSAGE).collect();
        ContainerExit {
            code: status.map_or(255, exit_code),
            message: Some(message).filter(|message| !message.is_empty()),
            started: started.since,
            finished: Timestamp::now(),
        }
    }

    /// The time that a container gets after a failed liveness probe.
    fn grace(&self) -> Duration {
        let pod = self.worker.pod();
        let seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Duration::from_secs(seconds.and_then(|seconds| seconds.try_into().ok()).unwrap_or(30))
    }

    async fn terminate(&self, process: &ChildProcess, grace: Duration) -> Option<ExitStatus> {
        signal_first_process(process, Signal::TERM);
        if let Ok(status) = timeout(grace, process.wait()).await {
            return status;
        }
        signal_first_process(process, Signal::KILL);
        process.wait().await
    }

    /// Runs the probes. Ends when the container has to be started again.
    async fn probe(&self, started: &StartedContainer) {
        if let Some(startup) = &self.container.startup_probe
            && !self.wait_for_startup(started, startup).await
        {
            return;
        }
        self.update(|progress| progress.is_started = true);
        let liveness = async {
            match &self.container.liveness_probe {
                Some(probe) => self.watch_liveness(started, probe).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.watch_readiness(started) => {}
            () = liveness => {}
        }
    }

    async fn succeeds(&self, started: &StartedContainer, probe: &Probe) -> bool {
        let Some(address) = self.worker.address() else { return false };
        let process = first_process(started.process.pid());
        let target = ProbeTarget { container: &self.container, address, process };
        let outcome = probes::check(&target, probe, |command| started.launch.inside(command)).await;
        if let Err(error) = &outcome {
            self.worker.log(&self.container.name, &format!("probe failed: {error:#}"));
        }
        outcome.is_ok()
    }

    /// Returns whether the probe succeeded in time.
    async fn wait_for_startup(&self, started: &StartedContainer, probe: &Probe) -> bool {
        let timing = ProbeTiming::of(probe);
        sleep(timing.initial_delay).await;
        let deadline = Instant::now() + timing.interval * timing.failures;
        while !self.succeeds(started, probe).await {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(timing.first_interval()).await;
        }
        true
    }

    /// Ends when the probe failed often enough.
    async fn watch_liveness(&self, started: &StartedContainer, probe: &Probe) {
        let timing = ProbeTiming::of(probe);
        sleep(timing.initial_delay).await;
        let mut failures = 0;
        while failures < timing.failures {
            failures = if self.succeeds(started, probe).await { 0 } else { failures + 1 };
            sleep(timing.interval).await;
        }
    }

    /// Never ends.
    async fn watch_readiness(&self, started: &StartedContainer) {
        let Some(probe) = &self.container.readiness_probe else {
            self.update(|progress| progress.is_ready = true);
            return std::future::pending().await;
        };
        let timing = ProbeTiming::of(probe);
        sleep(timing.initial_delay).await;
        let (mut successes, mut failures, mut is_ready) = (0, 0, false);
        loop {
            if self.succeeds(started, probe).await {
                (successes, failures) = (successes + 1, 0);
            } else {
                (successes, failures) = (0, failures + 1);
            }
            let is_ready_now = match is_ready {
                true => failures < timing.failures,
                false => successes >= timing.successes,
            };
            if is_ready_now != is_ready {
                is_ready = is_ready_now;
                self.update(|progress| progress.is_ready = is_ready);
            }
            sleep(if is_ready { timing.interval } else { timing.first_interval() }).await;
        }
    }
}

/// Sends a signal to the first process of a container, whose end is the end of the container.
pub(super) fn signal_first_process(process: &ChildProcess, signal: Signal) {
    let first = first_process(process.pid());
    if signal == Signal::KILL || first.is_none() {
        // Its end is the end of the first process too, and it cannot repeat this signal for us.
        process.kill();
    }
    if let Some(first) = first {
        let _already_gone = kill_process(first, signal);
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
