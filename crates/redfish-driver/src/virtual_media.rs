// SPDX-License-Identifier: Apache-2.0
//! Inserting and ejecting virtual media.
//!
//! The drives are those of the System if it has any, else those of its managers. Which drives are
//! used, and what is sent to them, is decided in [`super::virtual_drive`]. After each change the drive
//! is polled, because some BMCs report success without making the change.

use std::time::Duration;

use drivers::{BmcImageUrl, DriverError, MediaDevice, MediaSlot, PollTimer, displayed_url};
use node_model::redact_boot_keys;
use redfish::{OperationResponse, RedfishResource, TaskState};
use serde_json::Value;

use super::bmc::RedfishBmc;
use super::quirks::MatchedQuirks;
use super::retries::{RetryBudget, is_busy};
use super::virtual_drive::{
    MediaControl, VirtualDrive, drives_for, eject_body, first_body, has_inserted, is_occupied,
    next_body, reports_content, shows_image,
};

/// Timeout for a drive to show that an image was inserted or ejected.
const MEDIA_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout if the BMC creates a task, which it does to download the whole image.
const MEDIA_TASK_TIMEOUT: Duration = Duration::from_secs(300);

/// Why inserting or ejecting failed.
enum MediaError {
    /// This drive rejected it; another drive may accept it.
    Drive(String),
    /// No drive of this BMC can accept it.
    Bmc(DriverError),
}

/// Lists the drives and their images.
pub(super) async fn slots(
    bmc: &RedfishBmc,
    system: &RedfishResource,
) -> Result<Vec<MediaSlot>, DriverError> {
    Ok(drives(bmc, system).await?.iter().map(VirtualDrive::slot).collect())
}

/// Returns the drives.
pub(super) async fn drives(
    bmc: &RedfishBmc,
    system: &RedfishResource,
) -> Result<Vec<VirtualDrive>, DriverError> {
    let own = drives_of(bmc, system).await?;
    if !own.is_empty() {
        return Ok(own);
    }
    let mut drives = Vec::new();
    for manager in managers(bmc, system).await? {
        drives.extend(drives_of(bmc, &manager).await?);
    }
    Ok(drives)
}

/// Inserts an image into a drive for `device` and replaces the image in it. Does nothing if a drive
/// already has the image.
pub(super) async fn insert(
    bmc: &RedfishBmc,
    system: &RedfishResource,
    quirks: &MatchedQuirks,
    device: MediaDevice,
    image: &BmcImageUrl,
) -> Result<(), DriverError> {
    let drives = drives(bmc, system).await?;
    let candidates = drives_for(&drives, device);
    if candidates.is_empty() {
        return Err(bmc.failed(no_drive_for(device, &drives)));
    }
    if candidates.iter().any(|drive| has_inserted(&drive.resource, image)) {
        return Ok(());
    }
    let mut refusals = Vec::new();
    for drive in candidates {
        match insert_into(bmc, drive, image, quirks).await {
            Ok(()) => return Ok(()),
            Err(MediaError::Bmc(error)) => return Err(error),
            Err(MediaError::Drive(why)) => refusals.push(format!("drive {} {why}", drive.name())),
        }
    }
    Err(bmc.failed(format!(
        "{}; check that the BMC itself can reach {}",
        refusals.join("; "),
        image.displayed()
    )))
}

/// Ejects the images of drives that can hold one of `devices`, or of all drives if the list is empty,
/// both of the System and of its managers. Succeeds if there are no drives.
pub(super) async fn eject(
    bmc: &RedfishBmc,
    system: &RedfishResource,
    quirks: &MatchedQuirks,
    devices: &[MediaDevice],
) -> Result<(), DriverError> {
    let own = drives_of(bmc, system).await?;
    let mut refusals = eject_all(bmc, &own, quirks, devices).await?;
    for manager in managers(bmc, system).await? {
        // A manager may list the drives of the System, or those of another machine.
        let is_same = manager.link("/VirtualMedia") == system.link("/VirtualMedia");
        let is_shared = manager.links("/Links/ManagerForServers").len() > 1;
        if own.is_empty() || (!is_same && !is_shared) {
            let drives = drives_of(bmc, &manager).await?;
            refusals.extend(eject_all(bmc, &drives, quirks, devices).await?);
        }
    }
    if refusals.is_empty() {
        return Ok(());
    }
    Err(bmc.failed(format!(
        "{}; eject it in the web interface of the BMC; another user may be using it",
        refusals.join("; ")
    )))
}

async fn drives_of(
    bmc: &RedfishBmc,
    owner: &RedfishResource,
) -> Result<Vec<VirtualDrive>, DriverError> {
    let members = bmc.collect(owner, "/VirtualMedia").await?;
    Ok(members.into_iter().map(VirtualDrive::new).collect())
}

async fn managers(
    bmc: &RedfishBmc,
    system: &RedfishResource,
) -> Result<Vec<RedfishResource>, DriverError> {
    bmc.client().managers(system).await.map_err(|error| bmc.explain(error))
}

/// Ejects the images of occupied drives; returns the reasons for those that failed.
async fn eject_all(
    bmc: &RedfishBmc,
    drives: &[VirtualDrive],
    quirks: &MatchedQuirks,
    devices: &[MediaDevice],
) -> Result<Vec<String>, DriverError> {
    let mut refusals = Vec::new();
    for drive in drives.iter().filter(|drive| drive.fits(devices) && is_occupied(&drive.resource)) {
        match eject_from(bmc, drive, quirks).await {
            Ok(_) => {}
            Err(MediaError::Bmc(error)) => return Err(error),
            Err(MediaError::Drive(why)) => refusals.push(format!("drive {} {why}", drive.name())),
        }
    }
    Ok(refusals)
}

/// Inserts the image into this drive.
async fn insert_into(
    bmc: &RedfishBmc,
    drive: &VirtualDrive,
    image: &BmcImageUrl,
    quirks: &MatchedQuirks,
) -> Result<(), MediaError> {
    let mut drive = drive.clone();
    if is_occupied(&drive.resource) {
        drive = VirtualDrive::new(eject_from(bmc, &drive, quirks).await?);
    }
    let mut message = String::new();
    for control in drive.controls("VirtualMedia.InsertMedia", &quirks.behaviour) {
        let refused = match try_insert(bmc, &drive, &control, image, quirks).await? {
            Ok(response) => return wait_until_inserted(bmc, &drive, image, &response).await,
            Err(refused) => refused,
        };
        message = refused.message;
        match refused.reason {
            RefusalReason::Unsupported => {}
            // The request form is right, so another one would only give a less specific error.
            RefusalReason::Temporary | RefusalReason::Parameters => break,
        }
    }
    let protocols = drive.unsupported_protocols(image);
    let hint = protocols.map(|known| format!(" (it supports only {known})"));
    Err(MediaError::Drive(format!("rejected the image: {message}{}", hint.unwrap_or_default())))
}

/// Tries to insert the image with one [`MediaControl`] and different parameters. Returns the BMC's response or
/// its last refusal.
async fn try_insert(
    bmc: &RedfishBmc,
    drive: &VirtualDrive,
    control: &MediaControl,
    image: &BmcImageUrl,
    quirks: &MatchedQuirks,
) -> Result<Result<OperationResponse, MediaRefusal>, MediaError> {
    let mut retries = RetryBudget::MEDIA;
    let mut tried = Vec::new();
    let mut body = first_body(control, image, &quirks.behaviour);
    loop {
        let error = match send(bmc, drive, control, &Value::Object(body.clone())).await {
            Ok(response) => return Ok(Ok(response)),
            Err(error) => error,
        };
        let refused = refusal(bmc, error, Some(image))?;
        match refused.reason {
            RefusalReason::Temporary => match retries.next(MEDIA_TIMEOUT) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(Err(refused)),
            },
            RefusalReason::Parameters => {
                tried.push(body);
                match next_body(&tried, image, &refused.message, &quirks.behaviour) {
                    Some(next) => body = next,
                    None => return Ok(Err(refused)),
                }
            }
            RefusalReason::Unsupported => return Ok(Err(refused)),
        }
    }
}

/// Polls until the image is inserted.
async fn wait_until_inserted(
    bmc: &RedfishBmc,
    drive: &VirtualDrive,
    image: &BmcImageUrl,
    response: &OperationResponse,
) -> Result<(), MediaError> {
    let task = response.task();
    let timeout = if task.is_some() { MEDIA_TASK_TIMEOUT } else { MEDIA_TIMEOUT };
    let mut timer = PollTimer::with_timeout(timeout);
    loop {
        if let Some(task) = task {
            let task = bmc.client().task(task).await;
            let task = task.map_err(|error| MediaError::Bmc(bmc.explain(error)))?;
            if task.state == TaskState::Failed {
                let message = image.mask_secrets(task.messages.join(" "));
                return Err(MediaError::Drive(format!("failed to download the image: {message}")));
            }
        }
        let current = bmc.get(&drive.resource.path).await.map_err(MediaError::Bmc)?;
        if is_occupied(&current) || !reports_content(&current) {
            return Ok(());
        }
        if !timer.wait().await {
            if shows_image(&current, image) {
                tracing::warn!(
                    drive = drive.resource.path,
                    "virtual drive reports the image as not inserted"
                );
                return Ok(());
            }
            let waited = timeout.as_secs();
            return Err(MediaError::Drive(format!(
                "accepted the image and is still empty after {waited} s"
            )));
        }
    }
}

/// Ejects the image of a drive; returns the drive as read afterwards.
async fn eject_from(
    bmc: &RedfishBmc,
    drive: &VirtualDrive,
    quirks: &MatchedQuirks,
) -> Result<RedfishResource, MediaError> {
    let mut message = String::new();
    for control in drive.controls("VirtualMedia.EjectMedia", &quirks.behaviour) {
        let mut retries = RetryBudget::MEDIA;
        loop {
            let error = match send(bmc, drive, &control, &eject_body(&control)).await {
                Ok(_) => return wait_until_ejected(bmc, drive).await,
                Err(error) => error,
            };
            let refused = refusal(bmc, error, None)?;
            message = refused.message;
            // It may have rejected the request because the drive is already empty.
            let current = bmc.get(&drive.resource.path).await.map_err(MediaError::Bmc)?;
            if !is_occupied(&current) {
                return Ok(current);
            }
            let pause = match refused.reason {
                RefusalReason::Temporary => retries.next(MEDIA_TIMEOUT),
                RefusalReason::Parameters | RefusalReason::Unsupported => None,
            };
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break,
            }
        }
    }
    Err(MediaError::Drive(format!("could not be ejected: {message}")))
}

/// Polls until the drive is empty. Dell iDRAC shows an image for a while after it was ejected;
/// inserting one in that time fails.
async fn wait_until_ejected(
    bmc: &RedfishBmc,
    drive: &VirtualDrive,
) -> Result<RedfishResource, MediaError> {
    let mut timer = PollTimer::with_timeout(MEDIA_TIMEOUT);
    loop {
        let current = bmc.get(&drive.resource.path).await.map_err(MediaError::Bmc)?;
        if !is_occupied(&current) {
            return Ok(current);
        }
        if !timer.wait().await {
            let image = current.text("/Image").map_or_else(|| "an image".to_owned(), displayed_url);
            let waited = MEDIA_TIMEOUT.as_secs();
            return Err(MediaError::Drive(format!(
                "was ejected and still shows {image} after {waited} s"
            )));
        }
    }
}

async fn send(
    bmc: &RedfishBmc,
    drive: &VirtualDrive,
    control: &MediaControl,
    body: &Value,
) -> Result<OperationResponse, redfish::RedfishError> {
    match control {
        MediaControl::Action(target) => bmc.client().post(target, body).await,
        MediaControl::Patch => {
            let RedfishResource { path, etag, .. } = &drive.resource;
            bmc.client().patch(path, body, etag.as_deref()).await
        }
    }
}

/// A refusal of the BMC, with its reason.
#[derive(Debug)]
struct MediaRefusal {
    reason: RefusalReason,
    message: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RefusalReason {
    /// The BMC is busy; retry later.
    Temporary,
    /// The BMC rejects the parameters.
    Parameters,
    /// The BMC does not support the action or the PATCH.
    Unsupported,
}

/// Classifies an error. Fails with [`MediaError::Bmc`] if it is not a refusal.
fn refusal(
    bmc: &RedfishBmc,
    error: redfish::RedfishError,
    image: Option<&BmcImageUrl>,
) -> Result<MediaRefusal, MediaError> {
    match refusal_reason(&error) {
        None => Err(MediaError::Bmc(bmc.explain(error))),
        Some(reason) => {
            let message = error.to_string();
            let message = match image {
                Some(image) => image.mask_secrets(message),
                None => redact_boot_keys(&message),
            };
            Ok(MediaRefusal { reason, message })
        }
    }
}

fn refusal_reason(error: &redfish::RedfishError) -> Option<RefusalReason> {
    match error.status()? {
        401 | 403 => None,
        404 | 405 | 501 => Some(RefusalReason::Unsupported),
        // Dell iDRAC returns these while an eject is still running.
        500 | 502 | 504 => Some(RefusalReason::Temporary),
        _ if is_busy(error) => Some(RefusalReason::Temporary),
        _ => Some(RefusalReason::Parameters),
    }
}

fn no_drive_for(device: MediaDevice, drives: &[VirtualDrive]) -> String {
    if drives.is_empty() {
        return "the BMC has no virtual drives; check the licence of the BMC and the rights of its user"
            .to_owned();
    }
    let names: Vec<_> = drives.iter().map(VirtualDrive::name).collect();
    format!("none of the BMC's virtual drives ({}) supports {device}", names.join(", "))
}
