// SPDX-License-Identifier: Apache-2.0
//! Waiting until an iDRAC can change storage without a reboot.
//!
//! That takes a minute or more after a machine was started. A request before creates a job that waits
//! for a reboot.

use std::time::Duration;

use drivers::{DriverError, DriverTarget, NodeChanges, StepOutcome};
use node_model::{PowerState, PowerTarget, Timestamp};

use super::{IdracFunction, is_ready};
use crate::bmc::RedfishBmc;
use crate::settings::RedfishSettings;
use crate::tasks;

/// The driver state key of the start of the wait.
const DRIVER_STATE_KEY: &str = "idrac_real_time_since";
/// After this time a step continues anyway, as in Ironic: not all controllers support such changes.
const READY_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the outcome of a step that must wait; `None` if it may continue. A machine that is off is
/// switched on, because it is never ready.
pub(crate) async fn wait_for_real_time(
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    settings: &RedfishSettings,
) -> Result<Option<StepOutcome>, DriverError> {
    let since: Option<Timestamp> = tasks::load_state(target, DRIVER_STATE_KEY);
    if since.is_some_and(|since| target.now.since(since) >= READY_TIMEOUT) {
        return Ok(None);
    }
    let power = target.driver.power();
    let changes = match power.get(target).await? {
        Some(PowerState::Off) => power.set(target, PowerTarget::On, None).await?,
        Some(_) | None => NodeChanges::none(),
    };
    if is_ready(bmc, IdracFunction::RealTimeStorage).await?.unwrap_or(true) {
        return Ok(None);
    }
    let since = since.unwrap_or(target.now);
    let outcome = tasks::poll_later(target, settings, DRIVER_STATE_KEY, &since).after(changes);
    Ok(Some(tasks::with_progress_text(outcome, "waiting until the iDRAC can change storage")))
}
