// SPDX-License-Identifier: Apache-2.0
//! Images in a BMC's virtual drives.
//!
//! The drives are the machine's own if it has any, else its managers'. What is sent to a drive, and
//! in which order drives are tried, is decided in [`super::media_drive`]; here it is sent, and
//! looked whether it came true. A BMC that says yes has not always done it.

use std::time::Duration;

use node_model::without_keys;
use redfish::{Answer, Resource, TaskState};
use serde_json::Value;

use super::bmc::Bmc;
use super::image_url::{ImageUrl, shown_url};
use super::media_drive::{
    Drive, Way, eject_body, first_body, fitting, holds, is_occupied, next_body, shows, tells,
};
use super::patience::{Retries, is_busy};
use super::quirks::Quirks;
use crate::pace::Pace;
use crate::{Error, MediaDevice, MediaSlot};

/// How long a drive may take to show that it was filled or emptied.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it may take if the BMC makes a task of it, which it does to fetch the whole image.
const TASK_PATIENCE: Duration = Duration::from_secs(300);

/// Why a drive is not as it should be.
enum Trouble {
    /// This drive cannot or does not want to; another may.
    Drive(String),
    /// No drive of this BMC could.
    Bmc(Error),
}

/// The drives, and what is in them.
pub(super) async fn slots(bmc: &Bmc, system: &Resource) -> Result<Vec<MediaSlot>, Error> {
    Ok(drives(bmc, system).await?.iter().map(Drive::slot).collect())
}

/// The drives themselves.
pub(super) async fn drives(bmc: &Bmc, system: &Resource) -> Result<Vec<Drive>, Error> {
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

/// Puts an image into a drive for `device`, in place of what is in it. A drive that has it already
/// is left alone.
pub(super) async fn insert(
    bmc: &Bmc,
    system: &Resource,
    quirks: &Quirks,
    device: MediaDevice,
    image: &ImageUrl,
) -> Result<(), Error> {
    let drives = drives(bmc, system).await?;
    let candidates = fitting(&drives, device);
    if candidates.is_empty() {
        return Err(bmc.failed(no_drive_for(device, &drives)));
    }
    if candidates.iter().any(|drive| holds(&drive.resource, image)) {
        return Ok(());
    }
    let mut refusals = Vec::new();
    for drive in candidates {
        match fill(bmc, drive, image, quirks).await {
            Ok(()) => return Ok(()),
            Err(Trouble::Bmc(error)) => return Err(error),
            Err(Trouble::Drive(why)) => refusals.push(format!("drive {} {why}", drive.name())),
        }
    }
    Err(bmc.failed(format!(
        "{}; check that the BMC itself can reach {}",
        refusals.join("; "),
        image.shown()
    )))
}

/// Empties the drives that can hold one of `devices`, or all if the list is empty, be they the
/// machine's or its managers'. Having no drives is fine.
pub(super) async fn eject(
    bmc: &Bmc,
    system: &Resource,
    quirks: &Quirks,
    devices: &[MediaDevice],
) -> Result<(), Error> {
    let own = drives_of(bmc, system).await?;
    let mut refusals = empty_all(bmc, &own, quirks, devices).await?;
    for manager in managers(bmc, system).await? {
        // A manager may show the machine's own drives, and one of several machines another's.
        let is_same = manager.link("/VirtualMedia") == system.link("/VirtualMedia");
        let is_shared = manager.links("/Links/ManagerForServers").len() > 1;
        if own.is_empty() || (!is_same && !is_shared) {
            let drives = drives_of(bmc, &manager).await?;
            refusals.extend(empty_all(bmc, &drives, quirks, devices).await?);
        }
    }
    if refusals.is_empty() {
        return Ok(());
    }
    Err(bmc.failed(format!(
        "{}; eject it on the BMC's own page, where it may also be in use by somebody",
        refusals.join("; ")
    )))
}

async fn drives_of(bmc: &Bmc, owner: &Resource) -> Result<Vec<Drive>, Error> {
    let members = bmc.collect(owner, "/VirtualMedia").await?;
    Ok(members.into_iter().map(Drive::new).collect())
}

async fn managers(bmc: &Bmc, system: &Resource) -> Result<Vec<Resource>, Error> {
    bmc.client().managers(system).await.map_err(|error| bmc.explain(error))
}

/// Empties what is occupied; what could not be emptied is told.
async fn empty_all(
    bmc: &Bmc,
    drives: &[Drive],
    quirks: &Quirks,
    devices: &[MediaDevice],
) -> Result<Vec<String>, Error> {
    let mut refusals = Vec::new();
    for drive in drives.iter().filter(|drive| drive.fits(devices) && is_occupied(&drive.resource)) {
        match empty(bmc, drive, quirks).await {
            Ok(_) => {}
            Err(Trouble::Bmc(error)) => return Err(error),
            Err(Trouble::Drive(why)) => refusals.push(format!("drive {} {why}", drive.name())),
        }
    }
    Ok(refusals)
}

/// Puts the image into this drive.
async fn fill(bmc: &Bmc, drive: &Drive, image: &ImageUrl, quirks: &Quirks) -> Result<(), Trouble> {
    let mut drive = drive.clone();
    if is_occupied(&drive.resource) {
        drive = Drive::new(empty(bmc, &drive, quirks).await?);
    }
    let mut said = String::new();
    for way in drive.ways("VirtualMedia.InsertMedia", &quirks.behaviour) {
        let complaint = match offer(bmc, &drive, &way, image, quirks).await? {
            Ok(answer) => return watch_filling(bmc, &drive, image, &answer).await,
            Err(complaint) => complaint,
        };
        said = complaint.words;
        match complaint.about {
            About::Way => {}
            // The way is right, so another one would only add a complaint that says less.
            About::Moment | About::Wording => break,
        }
    }
    let protocols = drive.protocols_instead_of(image);
    let hint = protocols.map(|known| format!(" (it says that it fetches by {known} only)"));
    Err(Trouble::Drive(format!("did not take it: {said}{}", hint.unwrap_or_default())))
}

/// Offers the image to a drive in one way, in as many wordings as it takes: the BMC's yes, or its
/// last complaint.
async fn offer(
    bmc: &Bmc,
    drive: &Drive,
    way: &Way,
    image: &ImageUrl,
    quirks: &Quirks,
) -> Result<Result<Answer, Complaint>, Trouble> {
    let mut retries = Retries::MEDIA;
    let mut tried = Vec::new();
    let mut body = first_body(way, image, &quirks.behaviour);
    loop {
        let error = match send(bmc, drive, way, &Value::Object(body.clone())).await {
            Ok(answer) => return Ok(Ok(answer)),
            Err(error) => error,
        };
        let complaint = complaint(bmc, error, Some(image))?;
        match complaint.about {
            About::Moment => match retries.next(PATIENCE) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Ok(Err(complaint)),
            },
            About::Wording => {
                tried.push(body);
                match next_body(&tried, image, &complaint.words, &quirks.behaviour) {
                    Some(next) => body = next,
                    None => return Ok(Err(complaint)),
                }
            }
            About::Way => return Ok(Err(complaint)),
        }
    }
}

/// Looks until the image is in the drive.
async fn watch_filling(
    bmc: &Bmc,
    drive: &Drive,
    image: &ImageUrl,
    answer: &Answer,
) -> Result<(), Trouble> {
    let task = answer.task();
    let patience = if task.is_some() { TASK_PATIENCE } else { PATIENCE };
    let mut pace = Pace::within(patience);
    loop {
        if let Some(task) = task {
            let task = bmc.client().task(task).await;
            let task = task.map_err(|error| Trouble::Bmc(bmc.explain(error)))?;
            if task.state == TaskState::Failed {
                let said = image.masked(task.messages.join(" "));
                return Err(Trouble::Drive(format!("failed to fetch it: {said}")));
            }
        }
        let seen = bmc.get(&drive.resource.path).await.map_err(Trouble::Bmc)?;
        if is_occupied(&seen) || !tells(&seen) {
            return Ok(());
        }
        if !pace.pause().await {
            if shows(&seen, image) {
                tracing::warn!(drive = drive.resource.path, "shows the image as not inserted");
                return Ok(());
            }
            let waited = patience.as_secs();
            return Err(Trouble::Drive(format!("took it and is still empty after {waited} s")));
        }
    }
}

/// Empties a drive; answers with the drive as it is then.
async fn empty(bmc: &Bmc, drive: &Drive, quirks: &Quirks) -> Result<Resource, Trouble> {
    let mut said = String::new();
    for way in drive.ways("VirtualMedia.EjectMedia", &quirks.behaviour) {
        let mut retries = Retries::MEDIA;
        loop {
            let error = match send(bmc, drive, &way, &eject_body(&way)).await {
                Ok(_) => return watch_emptying(bmc, drive).await,
                Err(error) => error,
            };
            let complaint = complaint(bmc, error, None)?;
            said = complaint.words;
            // It may have said no because there is nothing in it any more.
            let seen = bmc.get(&drive.resource.path).await.map_err(Trouble::Bmc)?;
            if !is_occupied(&seen) {
                return Ok(seen);
            }
            let pause = match complaint.about {
                About::Moment => retries.next(PATIENCE),
                About::Wording | About::Way => None,
            };
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => break,
            }
        }
    }
    Err(Trouble::Drive(format!("could not be emptied: {said}")))
}

/// Looks until the drive is empty. Some BMCs show an image for a while after it was ejected (Dell
/// iDRAC); inserting one meanwhile fails.
async fn watch_emptying(bmc: &Bmc, drive: &Drive) -> Result<Resource, Trouble> {
    let mut pace = Pace::within(PATIENCE);
    loop {
        let seen = bmc.get(&drive.resource.path).await.map_err(Trouble::Bmc)?;
        if !is_occupied(&seen) {
            return Ok(seen);
        }
        if !pace.pause().await {
            let image = seen.text("/Image").map_or_else(|| "an image".to_owned(), shown_url);
            let waited = PATIENCE.as_secs();
            return Err(Trouble::Drive(format!(
                "was told to eject and still shows {image} after {waited} s"
            )));
        }
    }
}

async fn send(bmc: &Bmc, drive: &Drive, way: &Way, body: &Value) -> Result<Answer, redfish::Error> {
    match way {
        Way::Action(target) => bmc.client().post(target, body).await,
        Way::Change => {
            let Resource { path, etag, .. } = &drive.resource;
            bmc.client().patch(path, body, etag.as_deref()).await
        }
    }
}

/// A BMC's refusal, and what about the request it concerns.
#[derive(Debug)]
struct Complaint {
    about: About,
    words: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    /// Not now.
    Moment,
    /// Not with these keys.
    Wording,
    /// Not like this at all.
    Way,
}

/// What the BMC complains about. An error that is no refusal ends the whole matter.
fn complaint(
    bmc: &Bmc,
    error: redfish::Error,
    image: Option<&ImageUrl>,
) -> Result<Complaint, Trouble> {
    match about(&error) {
        None => Err(Trouble::Bmc(bmc.explain(error))),
        Some(about) => {
            let said = error.to_string();
            let words = match image {
                Some(image) => image.masked(said),
                None => without_keys(&said),
            };
            Ok(Complaint { about, words })
        }
    }
}

fn about(error: &redfish::Error) -> Option<About> {
    match error.status()? {
        401 | 403 => None,
        404 | 405 | 501 => Some(About::Way),
        // An eject that goes on behind the scenes is answered with these (Dell iDRAC).
        500 | 502 | 504 => Some(About::Moment),
        _ if is_busy(error) => Some(About::Moment),
        _ => Some(About::Wording),
    }
}

fn no_drive_for(device: MediaDevice, drives: &[Drive]) -> String {
    if drives.is_empty() {
        return "the BMC has no virtual drives; its licence or its user's rights may lack them"
            .to_owned();
    }
    let names: Vec<_> = drives.iter().map(Drive::name).collect();
    format!("none of the BMC's virtual drives ({}) takes a {device}", names.join(", "))
}
