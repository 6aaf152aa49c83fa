// SPDX-License-Identifier: Apache-2.0
//! Booting from the virtual CD of an iDRAC.
//!
//! For iDRACs before firmware 6, the standard boot device `Cd` is a CD drive in the machine. The virtual
//! CD is selected by importing a system configuration. The iDRAC runs the import as a job and rejects
//! it while another job runs.

use std::time::Duration;

use drivers::{BootDevice, DriverError, DriverTarget, NodeChanges, PollTimer};
use node_model::{PowerState, PowerTarget};
use redfish::{OperationResponse, RedfishError, TaskState};
use serde_json::{Value, json};

use crate::bmc::RedfishBmc;
use crate::boot_settings::forget_stored_device;
use crate::resource_id::id;

const IMPORT: &str = "OemManager.ImportSystemConfiguration";
/// The message id of a refusal because another job runs.
const JOB_RUNNING: &str = "RAC0679";
/// The message id of a refusal because a configuration waits for a reboot.
const CONFIGURATION_PENDING: &str = "LC068";
/// Timeout for the iDRAC to accept the import, and for its job; the retries of Ironic take as long.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(525);

/// Makes the machine boot from the virtual CD, for the next boot or persistently. Returns `None` if the
/// BMC does not support the import.
pub(crate) async fn set_virtual_cd(
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    persistent: bool,
) -> Result<Option<NodeChanges>, DriverError> {
    for manager in super::managers(bmc).await? {
        let Some(action) = manager.action(IMPORT) else { continue };
        let body = import_body(id(&manager), persistent);
        let changes = import(bmc, target, &action.target, &body).await?;
        return Ok(Some(changes.and(forget_stored_device(target, BootDevice::Cdrom))));
    }
    Ok(None)
}

/// The body of the import. The job fails if the XML contains white space between elements.
fn import_body(manager: &str, persistent: bool) -> Value {
    let once = if persistent { "Disabled" } else { "Enabled" };
    let configuration = format!(
        "<SystemConfiguration><Component FQDD=\"{manager}\">\
         <Attribute Name=\"ServerBoot.1#BootOnce\">{once}</Attribute>\
         <Attribute Name=\"ServerBoot.1#FirstBootDevice\">VCD-DVD</Attribute>\
         </Component></SystemConfiguration>"
    );
    json!({"ShareParameters": {"Target": ["ALL"]}, "ImportBuffer": configuration})
}

/// Sends the import until the iDRAC accepts it, and waits for its job. A pending configuration is applied
/// by one reboot.
async fn import(
    bmc: &RedfishBmc,
    target: &DriverTarget<'_>,
    path: &str,
    body: &Value,
) -> Result<NodeChanges, DriverError> {
    let mut timer = PollTimer::with_timeout(IMPORT_TIMEOUT);
    let mut power_before = None;
    let response = loop {
        let error = match bmc.client().post(path, body).await {
            Ok(response) => break response,
            Err(error) => error,
        };
        match refusal(&error) {
            None => return Err(bmc.explain(error)),
            Some(ImportRefusal::ConfigurationPending) if power_before.is_none() => {
                let power = target.driver.power();
                power_before = Some(power.get(target).await?);
                tracing::info!(
                    node = %target.node.id,
                    "iDRAC has a pending configuration, rebooting the machine to apply it"
                );
                let _changes = power.set(target, PowerTarget::Reboot, None).await?;
            }
            Some(ImportRefusal::ConfigurationPending | ImportRefusal::JobRunning) => {}
        }
        if !timer.wait().await {
            return Err(bmc.explain(error));
        }
    };
    wait_for_job(bmc, &response, &mut timer).await?;
    match power_before {
        // The caller starts the machine, which must then boot from the CD.
        Some(Some(PowerState::Off)) => {
            target.driver.power().set(target, PowerTarget::Off, None).await
        }
        Some(_) | None => Ok(NodeChanges::none()),
    }
}

async fn wait_for_job(
    bmc: &RedfishBmc,
    response: &OperationResponse,
    timer: &mut PollTimer,
) -> Result<(), DriverError> {
    let Some(job) = response.task() else { return Ok(()) };
    loop {
        let task = bmc.client().task(job).await.map_err(|error| bmc.explain(error))?;
        match task.state {
            TaskState::Done => return Ok(()),
            TaskState::Failed => {
                let messages = task.messages.join("; ");
                return Err(bmc.failed(format!("the job of the iDRAC failed: {messages}")));
            }
            TaskState::Running => {}
        }
        if !timer.wait().await {
            return Err(bmc.failed(format!(
                "the job {job} of the iDRAC is still running after {} s; the step clear_job_queue of the \
                 management interface deletes jobs that hang",
                IMPORT_TIMEOUT.as_secs()
            )));
        }
    }
}

/// Why an iDRAC does not accept an import now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ImportRefusal {
    JobRunning,
    ConfigurationPending,
}

fn refusal(error: &RedfishError) -> Option<ImportRefusal> {
    if error.has_message_id(CONFIGURATION_PENDING) {
        Some(ImportRefusal::ConfigurationPending)
    } else if error.has_message_id(JOB_RUNNING) {
        Some(ImportRefusal::JobRunning)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn import_has_the_xml_of_ironic() {
        let body = import_body("iDRAC.Embedded.1", false);
        assert_eq!(
            body["ImportBuffer"],
            "<SystemConfiguration><Component FQDD=\"iDRAC.Embedded.1\">\
             <Attribute Name=\"ServerBoot.1#BootOnce\">Enabled</Attribute>\
             <Attribute Name=\"ServerBoot.1#FirstBootDevice\">VCD-DVD</Attribute>\
             </Component></SystemConfiguration>"
        );
        assert_eq!(body["ShareParameters"], json!({"Target": ["ALL"]}));
        let persistent = import_body("iDRAC.Embedded.1", true);
        assert!(persistent["ImportBuffer"].as_str().unwrap().contains("BootOnce\">Disabled<"));
    }

    #[test]
    fn classifies_refusals_by_message_id() {
        for (code, expected) in [
            ("IDRAC.2.8.LC068", Some(ImportRefusal::ConfigurationPending)),
            ("IDRAC.2.8.RAC0679", Some(ImportRefusal::JobRunning)),
            ("IDRAC.2.8.SYS428", None),
        ] {
            let error = RedfishError::Refused {
                method: "POST".to_owned(),
                path: "/import".to_owned(),
                status: 400,
                code: vec!["Base.1.12.GeneralError".to_owned(), code.to_owned()],
                message: String::new(),
            };
            assert_eq!(refusal(&error), expected, "{code}");
        }
    }
}
