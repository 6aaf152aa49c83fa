// SPDX-License-Identifier: Apache-2.0
//! Extensions of Dell iDRACs: the services that the manager links to below `Oem/Dell`.

mod boot_device;
mod raid_readiness;
mod steps;

use drivers::DriverError;
use redfish::{RedfishAction, RedfishResource};
use serde_json::{Value, json};

use super::bmc::RedfishBmc;

pub(super) use boot_device::set_virtual_cd;
pub(super) use raid_readiness::wait_for_real_time;
pub(super) use steps::{CLEAR_JOB_QUEUE, KNOWN_GOOD_STATE, RESET_IDRAC, run_step};

/// An action of a service that the manager links to.
struct DellAction {
    /// The name of the link below `Links/Oem/Dell`.
    service: &'static str,
    action: &'static str,
}

/// Deletes jobs of the Lifecycle Controller.
const DELETE_JOB_QUEUE: DellAction =
    DellAction { service: "DellJobService", action: "DellJobService.DeleteJobQueue" };
/// Restarts the iDRAC.
const RESET: DellAction =
    DellAction { service: "DelliDRACCardService", action: "DelliDRACCardService.iDRACReset" };
/// Returns what the iDRAC is ready for.
const API_STATUS: DellAction =
    DellAction { service: "DellLCService", action: "DellLCService.GetRemoteServicesAPIStatus" };

/// What an iDRAC may be ready for.
#[derive(Clone, Copy, Debug)]
enum IdracFunction {
    /// Requests to the Lifecycle Controller.
    LifecycleController,
    /// Changes of storage without a reboot.
    RealTimeStorage,
}

impl IdracFunction {
    /// The field of the status.
    const fn field(self) -> &'static str {
        match self {
            Self::LifecycleController => "LCStatus",
            Self::RealTimeStorage => "RTStatus",
        }
    }
}

/// Returns the managers of the machine; an iDRAC has exactly one.
async fn managers(bmc: &RedfishBmc) -> Result<Vec<RedfishResource>, DriverError> {
    let system = bmc.system().await?;
    bmc.client().managers(&system).await.map_err(|error| bmc.explain(error))
}

/// Finds an action; `None` if the iDRAC does not have it.
async fn find_action(
    bmc: &RedfishBmc,
    wanted: &DellAction,
) -> Result<Option<RedfishAction>, DriverError> {
    for manager in managers(bmc).await? {
        let link = format!("/Links/Oem/Dell/{}", wanted.service);
        let service = bmc.follow(&manager, &link).await?;
        if let Some(action) = service.and_then(|service| service.action(wanted.action)) {
            return Ok(Some(action));
        }
    }
    Ok(None)
}

/// Finds an action that the operation requires.
async fn required_action(
    bmc: &RedfishBmc,
    wanted: &DellAction,
) -> Result<RedfishAction, DriverError> {
    find_action(bmc, wanted).await?.ok_or_else(|| {
        bmc.failed(format!(
            "the BMC has no {}; use this step with Dell iDRACs only, and update the firmware of an \
             iDRAC9 that lacks it",
            wanted.service
        ))
    })
}

/// Whether the iDRAC is ready for `function`; `None` if it does not report that.
async fn is_ready(bmc: &RedfishBmc, function: IdracFunction) -> Result<Option<bool>, DriverError> {
    let Some(action) = find_action(bmc, &API_STATUS).await? else { return Ok(None) };
    let response = bmc.post(&action.target, &json!({})).await?;
    let status = response.body.get(function.field()).and_then(Value::as_str);
    Ok(Some(status == Some("Ready")))
}
