// SPDX-License-Identifier: Apache-2.0
//! One BMC of the fleet: its machine, its Redfish state and its address.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use node_model::{Mac, Timestamp};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::BmcCredentials;
use crate::agent::{SimulatedAgent, SimulatedAgentHandle};
use crate::enrolment::{self, Enrolment};
use crate::faults::FaultRules;
use crate::machine::{
    BootRecord, InsertedMedia, MachineModel, PowerPhase, PowerState, RunningSoftware,
    SimulatedVolume, WrittenImage,
};
use crate::redfish_service::{self, RedfishRequest, RedfishResponse, RedfishServiceState};
use crate::serial::{SerialLine, SerialPort};

/// Data shared by all BMCs of a fleet.
#[derive(Debug)]
pub(crate) struct FleetContext {
    pub(crate) credentials: BmcCredentials,
    pub(crate) faults: FaultRules,
    pub(crate) clock: FleetClock,
    pub(crate) is_tls: bool,
    pub(crate) is_ipmi: bool,
    pub(crate) name: String,
}

/// Wall-clock time that advances with tokio's clock, so that tests can pause it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetClock {
    started_at: Timestamp,
    origin: Instant,
}

/// One simulated BMC.
#[derive(Debug)]
pub(crate) struct SimulatedBmc {
    pub(crate) index: u32,
    pub(crate) address: SocketAddr,
    pub(crate) fleet: Arc<FleetContext>,
    state: Mutex<BmcState>,
    /// The agent that runs on the machine.
    agent: Mutex<Option<Arc<SimulatedAgent>>>,
    /// The serial port, if a real machine is attached to it.
    serial_port: Mutex<Option<Arc<SerialPort>>>,
    /// Both are notified of every change of power or running software.
    pub(crate) changed_for_agent: Notify,
    pub(crate) changed_for_console: Notify,
}

#[derive(Debug)]
struct BmcState {
    machine: MachineModel,
    service: RedfishServiceState,
}

/// Handle to a machine of the fleet, to inspect and change it.
#[derive(Clone, Debug)]
pub struct SimulatedMachine(pub(crate) Arc<SimulatedBmc>);

impl FleetClock {
    pub(crate) fn starting_at(started_at: Timestamp) -> Self {
        Self { started_at, origin: Instant::now() }
    }

    pub(crate) fn now(self) -> Timestamp {
        self.started_at.plus(self.origin.elapsed())
    }
}

impl SimulatedBmc {
    pub(crate) fn new(
        machine: MachineModel,
        address: SocketAddr,
        shared: Arc<FleetContext>,
    ) -> Self {
        let index = machine.identity().index;
        let state = Mutex::new(BmcState { machine, service: RedfishServiceState::default() });
        Self {
            index,
            address,
            fleet: shared,
            state,
            agent: Mutex::new(None),
            serial_port: Mutex::new(None),
            changed_for_agent: Notify::new(),
            changed_for_console: Notify::new(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.fleet.clock.now()
    }

    /// Whether the BMC responds now.
    pub(crate) fn is_reachable(&self) -> bool {
        self.state().machine.bmc_is_reachable(self.now())
    }

    /// Returns the latency of this BMC's responses.
    pub(crate) fn response_latency(&self) -> Duration {
        let state = self.state();
        let personality = state.machine.personality();
        Duration::try_from_secs_f64(personality.durations.response / personality.speed)
            .unwrap_or_default()
    }

    /// Handles a Redfish request.
    pub(crate) fn handle_redfish(&self, request: RedfishRequest<'_>) -> RedfishResponse {
        let mut state = self.state();
        let BmcState { machine, service } = &mut *state;
        let before = change_marker(machine);
        let response =
            redfish_service::handle_request(machine, service, &self.fleet.credentials, request);
        if change_marker(machine) != before {
            self.notify_changed();
        }
        response
    }

    /// Calls `f` with the machine, advanced to the current time, and that time.
    pub(crate) fn with_model<T>(&self, f: impl FnOnce(&mut MachineModel, Timestamp) -> T) -> T {
        let now = self.now();
        let mut state = self.state();
        let before = change_marker(&state.machine);
        state.machine.advance(now);
        let result = f(&mut state.machine, now);
        if change_marker(&state.machine) != before {
            self.notify_changed();
        }
        result
    }

    fn notify_changed(&self) {
        self.changed_for_agent.notify_one();
        self.changed_for_console.notify_one();
    }

    /// Returns the agent that runs on the machine.
    pub(crate) fn agent(&self) -> Option<Arc<SimulatedAgent>> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the agent that runs on the machine.
    pub(crate) fn set_agent(&self, agent: Option<Arc<SimulatedAgent>>) {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = agent;
    }

    /// Returns the serial port, if a real machine is attached to it.
    pub(crate) fn serial_port(&self) -> Option<Arc<SerialPort>> {
        self.serial_port.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, BmcState> {
        // Code under the lock leaves no partial changes, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the values whose changes are notified.
fn change_marker(machine: &MachineModel) -> (PowerPhase, u32, RunningSoftware) {
    (machine.power_phase(), machine.boot_count(), machine.running_software())
}

impl SimulatedMachine {
    /// Returns its index in the fleet, from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.0.index
    }

    /// Returns the address of its BMC.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Returns the URL of its BMC.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.0.fleet.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.0.address)
    }

    /// Returns the Redfish path of its system.
    #[must_use]
    pub fn system_path(&self) -> String {
        self.0.with_model(|machine, _| redfish_service::system_path(machine))
    }

    /// Returns the MACs of its NIC ports.
    #[must_use]
    pub fn macs(&self) -> Vec<Mac> {
        self.0.with_model(|machine, _| machine.nic_macs())
    }

    /// Returns the data to enrol it with Redfish. `ca` is a path or file that verifies the BMC's
    /// certificate; without it the certificate is not verified.
    #[must_use]
    pub fn redfish_enrolment(&self, ca: Option<&str>) -> Enrolment {
        enrolment::redfish_enrolment(&self.0, ca)
    }

    /// Returns the data to enrol it with IPMI, or `None` if its BMC does not serve IPMI.
    #[must_use]
    pub fn ipmi_enrolment(&self) -> Option<Enrolment> {
        self.0.fleet.is_ipmi.then(|| enrolment::ipmi_enrolment(&self.0))
    }

    /// Attaches a real machine to its serial port. Consoles opened from now on show that machine's
    /// output.
    #[must_use]
    pub fn attach_serial_line(&self) -> SerialLine {
        let (line, serial) = SerialLine::new();
        *self.0.serial_port.lock().unwrap_or_else(PoisonError::into_inner) = Some(serial);
        line
    }

    /// Returns the power state that the BMC reports.
    #[must_use]
    pub fn power_state(&self) -> PowerState {
        self.0.with_model(|machine, _| machine.power_state())
    }

    /// Returns the boot of the running software.
    #[must_use]
    pub fn current_boot(&self) -> Option<BootRecord> {
        self.0.with_model(|machine, _| machine.current_boot().cloned())
    }

    /// Returns the most recent boots, newest last.
    #[must_use]
    pub fn boot_history(&self) -> Vec<BootRecord> {
        self.0.with_model(|machine, _| machine.boot_history().to_vec())
    }

    /// Returns the running software.
    #[must_use]
    pub fn running_software(&self) -> RunningSoftware {
        self.0.with_model(|machine, _| machine.running_software())
    }

    /// Returns the image on its disk, or `None` if the disk is erased.
    #[must_use]
    pub fn disk_image(&self) -> Option<WrittenImage> {
        self.0.with_model(|machine, _| machine.disk_image().cloned())
    }

    /// Returns how often its agents completed the step, over all boots.
    #[must_use]
    pub fn completed_step_count(&self, step: &str) -> u32 {
        self.0.with_model(|machine, _| machine.completed_step_count(step))
    }

    /// Returns the agent that runs on it.
    #[must_use]
    pub fn agent(&self) -> Option<SimulatedAgentHandle> {
        self.0.agent().map(SimulatedAgentHandle::new)
    }

    /// Returns the content of its virtual media slots.
    #[must_use]
    pub fn virtual_media(&self) -> Vec<Option<InsertedMedia>> {
        self.0.with_model(|machine, _| machine.inserted_media().to_vec())
    }

    /// Returns the current value of a BIOS attribute.
    #[must_use]
    pub fn bios_attribute(&self, name: &str) -> Option<Value> {
        self.0.with_model(|machine, _| machine.bios_attribute(name).cloned())
    }

    /// Returns its RAID volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<SimulatedVolume> {
        self.0.with_model(|machine, _| machine.volumes().to_vec())
    }

    /// Calls `f` with the machine's state, advanced to the current time, and that time.
    pub fn with_model<T>(&self, f: impl FnOnce(&mut MachineModel, Timestamp) -> T) -> T {
        self.0.with_model(f)
    }
}
