// SPDX-License-Identifier: Apache-2.0
//! Lifecycle of the agents of one machine: each runs from the boot of a ramdisk to the next reset.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Heartbeat, LookupReply, MIN_TOKEN_LENGTH};
use http::StatusCode;
use node_model::Mac;
use tokio::time::sleep;
use uuid::Uuid;

use super::api_client::{AgentCallError, CdSecrets};
use super::{AGENT_VERSION, AgentContext, SimulatedAgent, inventory};
use crate::faults::AgentStepFault;
use crate::machine::{BootTarget, MachineIdentity, MachineModel, RunningSoftware, fraction, mix};
use crate::simulated_bmc::SimulatedBmc;

/// Longest delay between two lookups in seconds, divided by the fleet's speed.
const MAX_LOOKUP_INTERVAL: f64 = 60.0;
/// Shortest delay before a retry in seconds, divided by the fleet's speed.
const RETRY_INTERVAL: f64 = 5.0;
/// Shortest delay before a retry at any speed, so as not to overload the API.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Attempts to send inspection data. More than ironic-python-agent's five, because simulated machines are
/// quicker than the BMC calls of a busy server.
const INSPECTION_ATTEMPTS: u32 = 60;

/// Runs an agent whenever the machine has booted a ramdisk. Never returns.
pub(crate) async fn run(bmc: Arc<SimulatedBmc>, context: Arc<AgentContext>) {
    loop {
        let boot = wait_until(&bmc, |machine| {
            (machine.running_software() == RunningSoftware::Ramdisk).then_some(machine.boot_count())
        })
        .await;
        let agent = Arc::new(SimulatedAgent::new(context.config.is_ferrite_agent));
        let guard = AgentGuard { bmc: &bmc, agent };
        // On the heap, so that the task of a machine without an agent stays small.
        let agent_run = Box::pin(run_agent(&bmc, &context, &guard.agent));
        let boot_end = wait_until(&bmc, |machine| {
            let is_same_boot = machine.running_software() == RunningSoftware::Ramdisk
                && machine.boot_count() == boot;
            (!is_same_boot).then_some(())
        });
        tokio::select! {
            () = agent_run => {}
            () = boot_end => {}
        }
    }
}

/// Ends the agent when its machine's boot ends or the fleet stops.
struct AgentGuard<'a> {
    bmc: &'a SimulatedBmc,
    agent: Arc<SimulatedAgent>,
}

impl Drop for AgentGuard<'_> {
    fn drop(&mut self) {
        self.bmc.set_agent(None);
        self.agent.mark_ended();
    }
}

/// Waits until `condition` returns a value. It is evaluated whenever the machine changes.
async fn wait_until<T>(bmc: &SimulatedBmc, condition: impl Fn(&MachineModel) -> Option<T>) -> T {
    loop {
        let (met, due) = bmc.with_model(|machine, now| {
            let due = machine.next_change().map(|due| due.since(now));
            (condition(machine), due)
        });
        if let Some(met) = met {
            return met;
        }
        match due {
            None => bmc.changed_for_agent.notified().await,
            Some(due) => tokio::select! {
                () = bmc.changed_for_agent.notified() => {}
                // Timers have millisecond resolution; do not wake up too early.
                () = sleep(due + Duration::from_millis(1)) => {}
            },
        }
    }
}

/// Runs an agent from the end of POST on. Never returns; it is dropped when the boot ends.
async fn run_agent(bmc: &Arc<SimulatedBmc>, context: &AgentContext, agent: &Arc<SimulatedAgent>) {
    let faults = bmc.fleet.faults.evaluate(bmc.index, "AGENT", "/agent/boot", bmc.now());
    if faults.termination.is_some() || faults.step_fault.is_some() {
        if faults.step_fault == Some(AgentStepFault::PowerCut) {
            bmc.with_model(|machine, now| machine.power_down(now));
        }
        return pending().await;
    }
    let timing = AgentTiming::for_bmc(bmc);
    sleep(timing.scaled(context.config.boot_seconds, 11) + faults.delay).await;
    let cd = bmc.with_model(|machine, _| {
        let boot = machine.current_boot()?;
        let is_cd = matches!(boot.from, BootTarget::Cd | BootTarget::UsbCd);
        boot.image.clone().filter(|_| is_cd)
    });
    let secrets = match cd {
        Some(url) => context.find_secrets_on_cd(&url).await,
        None => CdSecrets::default(),
    };
    bmc.set_agent(Some(Arc::clone(agent)));
    if context.config.sends_inspection_data {
        send_inspection_data(bmc, context, &timing, secrets.inspection.as_deref()).await;
    }
    let cd_token = secrets.token;
    let macs = bmc.with_model(|machine, _| machine.nic_macs());
    let reply = lookup_until_found(context, &timing, &macs).await;
    let lookup_token = reply.config.agent_token.filter(|token| token.len() >= MIN_TOKEN_LENGTH);
    let Some(token) = lookup_token.or(cd_token) else {
        // The server issued the token to an earlier agent. Without it, heartbeats are rejected.
        tracing::warn!(machine = bmc.index, "agent got no token from the lookup, stopping agent");
        bmc.set_agent(None);
        return pending().await;
    };
    {
        let mut state = agent.state();
        state.node = Some(reply.node.uuid);
        state.token = Some(token.clone());
    }
    context.set_token(bmc.index, &token);
    let timeout = Duration::from_secs(reply.config.heartbeat_timeout);
    send_heartbeats(bmc, context, agent, &timing, (reply.node.uuid, token, timeout)).await
}

/// Sends inspection data. 404 and 400 mean that the server expects none, which is the usual case.
async fn send_inspection_data(
    bmc: &SimulatedBmc,
    context: &AgentContext,
    timing: &AgentTiming,
    secret: Option<&str>,
) {
    let report = bmc.with_model(|machine, _| inventory::inspection_report(machine, bmc.address));
    for attempt in 0..INSPECTION_ATTEMPTS {
        match context.send_inspection_data(&report, secret).await {
            Ok(())
            | Err(AgentCallError::Status(StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST)) => {
                return;
            }
            Err(error) => {
                let retry_in = timing.retry_delay(attempt);
                tracing::debug!(machine = bmc.index, %error, ?retry_in, "sending inspection data failed");
                sleep(retry_in).await;
            }
        }
    }
}

/// Repeats the lookup until it succeeds.
async fn lookup_until_found(
    context: &AgentContext,
    timing: &AgentTiming,
    macs: &[Mac],
) -> LookupReply {
    let mut attempt = 0;
    loop {
        let delay = timing.lookup_delay(attempt);
        match context.lookup(macs).await {
            Ok(reply) => return reply,
            Err(error) => tracing::debug!(%error, retry_in = ?delay, "lookup failed"),
        }
        sleep(delay).await;
        attempt += 1;
    }
}

async fn send_heartbeats(
    bmc: &SimulatedBmc,
    context: &AgentContext,
    agent: &SimulatedAgent,
    timing: &AgentTiming,
    (node, token, timeout): (Uuid, String, Duration),
) {
    let heartbeat = Heartbeat {
        callback_url: context.callback_url(),
        agent_token: token,
        agent_version: Some(AGENT_VERSION.to_owned()),
        agent_verify_ca: context.certificate.clone(),
        ..Heartbeat::default()
    };
    let mut attempt = 0;
    loop {
        if let Some(remaining) = agent.network_down_for(bmc.now()) {
            sleep(remaining).await;
        }
        let wait = match context.send_heartbeat(node, &heartbeat).await {
            Ok(()) => {
                let mut state = agent.state();
                state.heartbeat_count += 1;
                // 0.3 to 0.6 of the timeout, as ironic-python-agent does.
                timeout.mul_f64(0.3 + 0.3 * timing.random_fraction(state.heartbeat_count))
            }
            Err(error) => {
                attempt += 1;
                let delay = timing.retry_delay(attempt);
                tracing::debug!(machine = bmc.index, %error, retry_in = ?delay, "heartbeat failed");
                delay
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = agent.heartbeat_now.notified() => {}
        }
    }
}

/// Durations and random numbers of one machine's agents.
pub(super) struct AgentTiming {
    identity: MachineIdentity,
    speed: f64,
}

impl AgentTiming {
    pub(super) fn for_bmc(bmc: &SimulatedBmc) -> Self {
        bmc.with_model(|machine, _| Self {
            identity: machine.identity(),
            speed: machine.personality().speed,
        })
    }

    /// Returns a duration with this machine's jitter; `what` selects an independent jitter.
    pub(super) fn scaled(&self, seconds: f64, what: u32) -> Duration {
        self.scale_seconds(seconds * self.identity.jitter(what))
    }

    fn scale_seconds(&self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds / self.speed).unwrap_or_default()
    }

    /// Returns a reproducible number from 0 to 1.
    fn random_fraction(&self, number: u64) -> f64 {
        fraction(mix(number ^ (u64::from(self.identity.index) << 32)))
    }

    fn retry_delay(&self, attempt: u32) -> Duration {
        let times = 1.0 + self.random_fraction(u64::from(attempt));
        self.scale_seconds(RETRY_INTERVAL * times).max(MIN_RETRY_DELAY)
    }

    /// Exponential backoff with jitter.
    fn lookup_delay(&self, attempt: u32) -> Duration {
        let longest = f64::from(1_u32 << attempt.min(6)).min(MAX_LOOKUP_INTERVAL);
        let seconds = 1.0 + (longest - 1.0) * self.random_fraction(u64::from(attempt));
        self.scale_seconds(seconds).max(MIN_RETRY_DELAY)
    }
}
