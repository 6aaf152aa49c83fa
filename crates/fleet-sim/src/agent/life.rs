// SPDX-License-Identifier: Apache-2.0
//! The life of the agents of one machine: from a boot to the end of what was booted.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::{Heartbeat, LookupReply, SHORTEST_TOKEN};
use http::StatusCode;
use node_model::Mac;
use tokio::time::sleep;
use uuid::Uuid;

use super::calls::CallError;
use super::{Agent, Site, VERSION, inventory};
use crate::bmc::Bmc;
use crate::faults::Mishap;
use crate::machine::{BootTarget, Identity, Machine, Runs, fraction, mix};

/// The longest time between two attempts to find out who it is, divided by the fleet's speed.
const LOOKS_UP_WITHIN: f64 = 60.0;
/// The shortest time between two attempts of the same thing, divided by the fleet's speed.
const RETRIES_AFTER: f64 = 5.0;
/// However fast the fleet is, an API that does not answer is not asked more often.
const RETRIES_AT_MOST: Duration = Duration::from_millis(200);
/// How often inspection data are sent if there is no answer.
const SENDS_REPORT: u32 = 5;

/// Runs an agent on the machine whenever it has booted one, for ever.
pub(crate) async fn run(bmc: Arc<Bmc>, site: Arc<Site>) {
    loop {
        let boot = until(&bmc, |machine| {
            (machine.runs() == Runs::Ramdisk).then_some(machine.boot_count())
        })
        .await;
        let living = Living { bmc: &bmc, agent: Arc::new(Agent::new(site.config.is_ours)) };
        // On the heap, so that machines without an agent stay small.
        let life = Box::pin(live(&bmc, &site, &living.agent));
        let end = until(&bmc, |machine| {
            let goes_on = machine.runs() == Runs::Ramdisk && machine.boot_count() == boot;
            (!goes_on).then_some(())
        });
        tokio::select! {
            () = life => {}
            () = end => {}
        }
    }
}

/// An agent that ends with its machine's boot, or with the fleet.
struct Living<'a> {
    bmc: &'a Bmc,
    agent: Arc<Agent>,
}

impl Drop for Living<'_> {
    fn drop(&mut self) {
        self.bmc.set_agent(None);
        self.agent.end();
    }
}

/// Waits until `condition` gives something, looking whenever the machine changes.
async fn until<T>(bmc: &Bmc, condition: impl Fn(&Machine) -> Option<T>) -> T {
    loop {
        let (met, due) = bmc.with(|machine, now| {
            let due = machine.next_change().map(|due| due.since(now));
            (condition(machine), due)
        });
        if let Some(met) = met {
            return met;
        }
        match due {
            None => bmc.changed.notified().await,
            Some(due) => tokio::select! {
                () = bmc.changed.notified() => {}
                // Timers are of milliseconds, and being early is of no use.
                () = sleep(due + Duration::from_millis(1)) => {}
            },
        }
    }
}

/// From the end of the firmware on. Never returns: it is dropped when the machine goes on to
/// something else.
async fn live(bmc: &Arc<Bmc>, site: &Site, agent: &Arc<Agent>) {
    let verdict = bmc.shared.faults.verdict(bmc.index, "AGENT", "/agent/boot", bmc.now());
    if verdict.end.is_some() || verdict.agent.is_some() {
        if verdict.agent == Some(Mishap::PowerCut) {
            bmc.with(|machine, now| machine.go_off(now));
        }
        return pending().await;
    }
    let pace = Pace::of(bmc);
    sleep(pace.scaled(site.config.boot, 11) + verdict.delay).await;
    let cd = bmc.with(|machine, _| {
        let boot = machine.booted()?;
        let is_cd = matches!(boot.from, BootTarget::Cd | BootTarget::UsbCd);
        boot.image.clone().filter(|_| is_cd)
    });
    let brought = match cd {
        Some(url) => site.token_on_cd(&url).await,
        None => None,
    };
    bmc.set_agent(Some(Arc::clone(agent)));
    if site.config.inspects {
        inspect(bmc, site, &pace).await;
    }
    let macs = macs(bmc);
    let reply = look_up(site, &pace, &macs).await;
    let given = reply.config.agent_token.filter(|token| token.len() >= SHORTEST_TOKEN);
    let Some(token) = given.or(brought) else {
        // Somebody was given this machine's token already: an agent without one keeps quiet.
        tracing::warn!(machine = bmc.index, "the agent is not told its token and locks itself up");
        bmc.set_agent(None);
        return pending().await;
    };
    {
        let mut memory = agent.memory();
        memory.node = Some(reply.node.uuid);
        memory.token = Some(token.clone());
    }
    let timeout = Duration::from_secs(reply.config.heartbeat_timeout);
    call_home(bmc, site, agent, &pace, (reply.node.uuid, token, timeout)).await
}

/// Sends inspection data. That nobody waits for them is the usual answer.
async fn inspect(bmc: &Bmc, site: &Site, pace: &Pace) {
    let report = bmc.with(|machine, _| inventory::report(machine, bmc.address));
    for attempt in 0..SENDS_REPORT {
        match site.send_report(&report).await {
            Ok(()) | Err(CallError::Status(StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST)) => {
                return;
            }
            Err(error) => {
                tracing::debug!(machine = bmc.index, %error, "inspection data not taken");
                sleep(pace.retry(attempt)).await;
            }
        }
    }
}

/// Asks who it is until it is told.
async fn look_up(site: &Site, pace: &Pace, macs: &[Mac]) -> LookupReply {
    let mut attempt = 0;
    loop {
        match site.look_up(macs).await {
            Ok(reply) => return reply,
            Err(error) => tracing::debug!(%error, "lookup"),
        }
        sleep(pace.lookup(attempt)).await;
        attempt += 1;
    }
}

async fn call_home(
    bmc: &Bmc,
    site: &Site,
    agent: &Agent,
    pace: &Pace,
    (node, token, timeout): (Uuid, String, Duration),
) {
    let heartbeat = Heartbeat {
        callback_url: site.callback_url(bmc),
        agent_token: token,
        agent_version: VERSION.to_owned(),
        agent_verify_ca: site.certificate.clone(),
    };
    let mut attempt = 0;
    loop {
        if let Some(left) = agent.away(bmc.now()) {
            sleep(left).await;
        }
        let wait = match site.call_home(node, &heartbeat).await {
            Ok(()) => {
                let mut memory = agent.memory();
                memory.heartbeats += 1;
                // Between three and six tenths of what is allowed, as the real one.
                timeout.mul_f64(0.3 + 0.3 * pace.chance(memory.heartbeats))
            }
            Err(error) => {
                tracing::debug!(machine = bmc.index, %error, "heartbeat");
                attempt += 1;
                pace.retry(attempt)
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = agent.call_now.notified() => {}
        }
    }
}

fn macs(bmc: &Bmc) -> Vec<Mac> {
    bmc.with(|machine, _| {
        let count = machine.personality().network.count;
        (0..count).map(|card| machine.identity().mac(card)).collect()
    })
}

/// How fast things go on one machine, and what is random about it.
pub(super) struct Pace {
    identity: Identity,
    speed: f64,
}

impl Pace {
    pub(super) fn of(bmc: &Bmc) -> Self {
        bmc.with(|machine, _| Self {
            identity: machine.identity(),
            speed: machine.personality().speed,
        })
    }

    /// So many seconds on this machine; `what` keeps different things apart.
    pub(super) fn scaled(&self, seconds: f64, what: u32) -> Duration {
        self.seconds(seconds * self.identity.jitter(what))
    }

    fn seconds(&self, seconds: f64) -> Duration {
        Duration::try_from_secs_f64(seconds / self.speed).unwrap_or_default()
    }

    /// Between 0 and 1.
    fn chance(&self, number: u64) -> f64 {
        fraction(mix(number ^ (u64::from(self.identity.index) << 32)))
    }

    fn retry(&self, attempt: u32) -> Duration {
        let times = 1.0 + self.chance(u64::from(attempt));
        self.seconds(RETRIES_AFTER * times).max(RETRIES_AT_MOST)
    }

    fn lookup(&self, attempt: u32) -> Duration {
        let longest = f64::from(1_u32 << attempt.min(6)).min(LOOKS_UP_WITHIN);
        let seconds = 1.0 + (longest - 1.0) * self.chance(u64::from(attempt));
        self.seconds(seconds).max(RETRIES_AT_MOST)
    }
}
