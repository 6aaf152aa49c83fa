// SPDX-License-Identifier: Apache-2.0
//! One BMC of the fleet: the machine, the service in front of it, and where it listens.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{Mac, Timestamp};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Credentials;
use crate::agent::{Agent, AgentView};
use crate::enrolment::{self, Enrolment};
use crate::faults::Faults;
use crate::machine::{Boot, Machine, Media, Power, PowerState, Runs, Volume, WrittenImage};
use crate::redfish::{self, Answer, Asked, Service};
use crate::serial::{Serial, SerialLine};

/// What all BMCs of a fleet have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) credentials: Credentials,
    pub(crate) faults: Faults,
    pub(crate) clock: Clock,
    pub(crate) is_tls: bool,
    pub(crate) is_ipmi: bool,
    pub(crate) name: String,
}

/// Wall time that moves as tokio's does, so that tests can hold it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    started_at: Timestamp,
    origin: Instant,
}

/// One BMC.
#[derive(Debug)]
pub(crate) struct Bmc {
    pub(crate) index: u32,
    pub(crate) address: SocketAddr,
    pub(crate) shared: Arc<Shared>,
    state: Mutex<State>,
    /// The agent that runs on the machine, if one does.
    agent: Mutex<Option<Arc<Agent>>>,
    /// The serial line of what is not simulated, if something is behind it.
    serial: Mutex<Option<Arc<Serial>>>,
    /// Told whenever power or what runs changes: one for the machine's agent, one for its console.
    pub(crate) changed: Notify,
    pub(crate) changed_for_console: Notify,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    service: Service,
}

/// A machine of the fleet, to look at and to meddle with.
#[derive(Clone, Debug)]
pub struct SimulatedMachine(pub(crate) Arc<Bmc>);

impl Clock {
    pub(crate) fn starting_at(started_at: Timestamp) -> Self {
        Self { started_at, origin: Instant::now() }
    }

    pub(crate) fn now(self) -> Timestamp {
        self.started_at.plus(self.origin.elapsed())
    }
}

impl Bmc {
    pub(crate) fn new(machine: Machine, address: SocketAddr, shared: Arc<Shared>) -> Self {
        let index = machine.identity().index;
        let state = Mutex::new(State { machine, service: Service::default() });
        Self {
            index,
            address,
            shared,
            state,
            agent: Mutex::new(None),
            serial: Mutex::new(None),
            changed: Notify::new(),
            changed_for_console: Notify::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Whether the BMC answers anybody at the moment.
    pub(crate) fn answers(&self) -> bool {
        self.state().machine.bmc_answers(self.now())
    }

    /// How long this kind of BMC takes to answer.
    pub(crate) fn slowness(&self) -> Duration {
        let state = self.state();
        let personality = state.machine.personality();
        Duration::try_from_secs_f64(personality.pace.answer / personality.speed).unwrap_or_default()
    }

    /// Answers a request over Redfish.
    pub(crate) fn answer(&self, asked: Asked<'_>) -> Answer {
        let mut state = self.state();
        let State { machine, service } = &mut *state;
        let before = mark(machine);
        let answer = redfish::answer(machine, service, &self.shared.credentials, asked);
        if mark(machine) != before {
            self.tell_of_change();
        }
        answer
    }

    /// Looks at or changes the machine as it is now.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Machine, Timestamp) -> T) -> T {
        let now = self.now();
        let mut state = self.state();
        let before = mark(&state.machine);
        state.machine.advance(now);
        let told = f(&mut state.machine, now);
        if mark(&state.machine) != before {
            self.tell_of_change();
        }
        told
    }

    fn tell_of_change(&self) {
        self.changed.notify_one();
        self.changed_for_console.notify_one();
    }

    /// The agent that runs on the machine.
    pub(crate) fn agent(&self) -> Option<Arc<Agent>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another agent, or none, runs on the machine from now on.
    pub(crate) fn set_agent(&self, agent: Option<Arc<Agent>>) {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = agent;
    }

    /// The serial line of what is not simulated.
    pub(crate) fn serial(&self) -> Option<Arc<Serial>> {
        self.serial.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock leaves a machine half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What agents have to hear about when it changes.
fn mark(machine: &Machine) -> (Power, u32, Runs) {
    (machine.power(), machine.boot_count(), machine.runs())
}

impl SimulatedMachine {
    /// Its place in the fleet, from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// Where its BMC listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The URL of its BMC.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.0.shared.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.0.address)
    }

    /// The path of the only system.
    #[must_use]
    pub fn system_path(&self) -> String {
        self.0.with(|machine, _| redfish::system_path(machine))
    }

    /// The addresses of its network ports.
    #[must_use]
    pub fn macs(&self) -> Vec<Mac> {
        self.0.with(|machine, _| {
            let count = machine.personality().network.count;
            (0..count).map(|card| machine.identity().mac(card)).collect()
        })
    }

    /// Everything Ironic or Ferrite needs to take it in over Redfish. `ca` is what to verify the
    /// certificate with; without it, the certificate is not to be verified.
    #[must_use]
    pub fn enrolment(&self, ca: Option<&str>) -> Enrolment {
        enrolment::by_redfish(&self.0, ca)
    }

    /// Everything to take it in over IPMI; none if its BMC does not speak that.
    #[must_use]
    pub fn enrolment_by_ipmi(&self) -> Option<Enrolment> {
        self.0.shared.is_ipmi.then(|| enrolment::by_ipmi(&self.0))
    }

    /// Puts something real behind its serial line: what is printed there is what consoles show that are
    /// opened from now on.
    #[must_use]
    pub fn plug_in_serial_line(&self) -> SerialLine {
        let (line, serial) = SerialLine::new();
        *self.0.serial.lock().unwrap_or_else(PoisonError::into_inner) = Some(serial);
        line
    }

    /// What the BMC says about power.
    #[must_use]
    pub fn power(&self) -> PowerState {
        self.0.with(|machine, _| machine.power_state())
    }

    /// What runs on it, if anything.
    #[must_use]
    pub fn booted(&self) -> Option<Boot> {
        self.0.with(|machine, _| machine.booted().cloned())
    }

    /// What it booted so far, the newest last.
    #[must_use]
    pub fn boots(&self) -> Vec<Boot> {
        self.0.with(|machine, _| machine.boots().to_vec())
    }

    /// What runs on it.
    #[must_use]
    pub fn runs(&self) -> Runs {
        self.0.with(|machine, _| machine.runs())
    }

    /// What was last written to its disk, unless it was erased since.
    #[must_use]
    pub fn disk(&self) -> Option<WrittenImage> {
        self.0.with(|machine, _| machine.disk().cloned())
    }

    /// How often its agents carried out a step of this name to its end, over all boots.
    #[must_use]
    pub fn carried_out(&self, step: &str) -> u32 {
        self.0.with(|machine, _| machine.carried_out(step))
    }

    /// The agent that runs on it, if one does.
    #[must_use]
    pub fn agent(&self) -> Option<AgentView> {
        self.0.agent().map(AgentView::new)
    }

    /// What is in its slots for virtual media.
    #[must_use]
    pub fn virtual_media(&self) -> Vec<Option<Media>> {
        self.0.with(|machine, _| machine.media().to_vec())
    }

    /// An attribute of its firmware.
    #[must_use]
    pub fn bios_attribute(&self, name: &str) -> Option<Value> {
        self.0.with(|machine, _| machine.bios_attribute(name).cloned())
    }

    /// Its RAID volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<Volume> {
        self.0.with(|machine, _| machine.volumes().to_vec())
    }

    /// Looks at anything else, or changes it: the machine as it is now, and the time.
    pub fn with<T>(&self, f: impl FnOnce(&mut Machine, Timestamp) -> T) -> T {
        self.0.with(f)
    }
}
