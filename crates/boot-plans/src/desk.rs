// SPDX-License-Identifier: Apache-2.0
//! Where boot interfaces publish and withdraw plans.

use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bmc_drivers::{BootDesk, Error, ImageDownloadSource, OfferedImage, Published, Target};
use images::{Kind, Source};
use node_model::{
    Actor, BootExperience, BootImage, BootPlan, BootPurpose, BootSystem, BootWay, Happening,
    JournalEntry, Secret,
};
use serde_json::Value;

use crate::discovery::chain;
use crate::hex::hex;
use crate::instance_images::packed_config_drive;
use crate::layouts::{LayoutError, Piece};
use crate::order::{self, Home};
use crate::services::{BootServices, Fresh};
use crate::settings::DownloadSource;

#[async_trait]
impl BootDesk for BootServices {
    fn check(&self, target: &Target<'_>, way: BootWay, purpose: BootPurpose) -> Result<(), Error> {
        let home = Home { api_url: "http://[::1]:6385", token: None, files: "http://[::1]:6180" };
        order::system(target, &self.0.settings, &home, way, purpose).map(drop)
    }

    async fn publish(
        &self,
        target: &Target<'_>,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<Published, Error> {
        let is_instance = purpose == BootPurpose::Instance;
        let is_installer = purpose == BootPurpose::Installer;
        // Only what is read by the BMC alone may carry a token: scripts are for all to read. An
        // installer cannot ask for one, so it is in its kickstart.
        let carries_token = (way == BootWay::VirtualMedia && !is_instance) || is_installer;
        let token = carries_token.then(random).transpose()?;
        let (api_url, key) = (self.api_url(way), random()?);
        let files = format!("{}/{key}", self.0.places().files);
        let home = Home { api_url: &api_url, token: token.as_deref(), files: &files };
        let mut system = order::system(target, &self.0.settings, &home, way, purpose)?;
        let straight = self.straight_from_source(&system, way)?;
        if straight.is_none() {
            self.pin(&mut system, purpose).await?;
        }
        let installer = match is_installer {
            true => Some(self.installer_files(target, &home).await?),
            false => None,
        };
        // A CD that somebody built has no place for it.
        let token = token.filter(|_| matches!(system, BootSystem::Kernel { .. }));
        let now = self.0.now();
        let lifetime = Duration::from_secs(self.0.settings.url_lifetime);
        let plan = BootPlan {
            node_id: target.node.id,
            purpose,
            way,
            system,
            key,
            config_drive: if is_instance { config_drive(target) } else { None },
            installer,
            made_at: now,
            expires_at: (!is_instance).then(|| now.plus(lifetime)),
        };
        self.try_layout(&plan, straight.is_some()).await?;
        let files = format!("{}/{}", self.files_url(target, way), plan.key);
        let config_drive =
            plan.config_drive.as_ref().map(|_| format!("{files}/{}", Piece::ConfigDrive.name()));
        let cd = straight.unwrap_or_else(|| format!("{files}/{}", Piece::Cd.name()));
        self.write(plan, token).await?;
        self.forget_cards(target);
        let mut fresh = self.0.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        fresh.push(Fresh::Node(target.node.id));
        fresh.extend(target.ports.iter().map(|port| Fresh::Card(port.address.clone())));
        Ok(Published { cd, config_drive })
    }

    async fn withdraw(&self, target: &Target<'_>) -> Result<(), Error> {
        let node = target.node.id;
        let removed = self
            .0
            .store
            .write(move |tx| {
                let plan = tx.boot_plan(node)?;
                tx.remove_boot_plan(node)?;
                let was_installer =
                    plan.as_ref().is_some_and(|plan| plan.purpose == BootPurpose::Installer);
                if was_installer && let Some(mut node) = tx.get(node)? {
                    // It is in the kickstart, of which installers leave a copy in the system.
                    let mut secrets = tx.reveal(&node)?;
                    secrets.agent_token = None;
                    tx.seal_node(&mut node, secrets)?;
                    node.agent.has_token = false;
                    node.agent.token_pregenerated = false;
                    tx.save(&mut node)?;
                }
                Ok::<_, store::Error>(plan)
            })
            .await
            .map_err(|error| not_written(&error))?;
        if let Some(plan) = removed {
            self.0.layouts.forget(&plan.key);
            self.forget_cards(target);
        }
        Ok(())
    }

    async fn offer_image(
        &self,
        target: &Target<'_>,
        usual: ImageDownloadSource,
    ) -> Result<OfferedImage, Error> {
        self.offer(target, usual).await
    }

    async fn config_drive(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        packed_config_drive(target)
    }

    fn registry_login(&self, source: &str) -> Option<Secret<String>> {
        let Ok(Source::Oci(place)) = Source::parse(source) else { return None };
        self.0.layouts.registry_login(&place).map(Secret::new)
    }

    async fn experience(&self, model: &str) -> Vec<BootExperience> {
        let model = model.to_owned();
        let known = self.0.store.read(move |reader| reader.boot_experience(&model)).await;
        known.unwrap_or_else(|error| {
            tracing::warn!(%error, "what is known about booting cannot be read");
            Vec::new()
        })
    }

    async fn note(&self, model: &str, way: BootWay, worked: bool) {
        let model = model.to_owned();
        let noted = self.0.store.write(move |tx| tx.note_boot(&model, way, worked)).await;
        if let Err(error) = noted {
            tracing::warn!(%error, "what was learnt about booting cannot be kept");
        }
    }
}

impl BootServices {
    fn api_url(&self, way: BootWay) -> String {
        let external = self.0.settings.external_callback_url.as_deref();
        match external.filter(|_| way == BootWay::VirtualMedia) {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => self.0.places().api,
        }
    }

    /// Where the files of a plan are reached by whoever reads them.
    fn files_url(&self, target: &Target<'_>, way: BootWay) -> String {
        let of_node = target.driver_info.get("external_http_url").and_then(Value::as_str);
        let external = of_node.or(self.0.settings.external_http_url.as_deref());
        match external.filter(|_| way == BootWay::VirtualMedia) {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => self.0.places().files,
        }
    }

    /// The URL of a CD that the BMC is to fetch from where it is. Nobody can check what it fetches.
    pub(crate) fn straight_from_source(
        &self,
        system: &BootSystem,
        way: BootWay,
    ) -> Result<Option<String>, Error> {
        let BootSystem::Iso { image } = system else { return Ok(None) };
        if way != BootWay::VirtualMedia {
            return Ok(None);
        }
        let must_be_checked = image.checksum.is_some()
            || self.0.iso_signatures == images::signature::Policy::Required;
        if order::is_for_bmcs(&image.source) {
            if must_be_checked {
                return Err(Error::InvalidParameter {
                    name: "boot_iso or deploy_iso".to_owned(),
                    why: "only the BMC can fetch it from there, so neither its checksum nor its \
                          signature can be checked; give an http, https, file or oci URL"
                        .to_owned(),
                });
            }
            return Ok(Some(image.source.clone()));
        }
        let by_http = image.source.starts_with("http:") || image.source.starts_with("https:");
        let wanted = self.0.settings.ramdisk_image_download_source == DownloadSource::Http;
        Ok((wanted && by_http && !must_be_checked).then(|| image.source.clone()))
    }

    /// Fetches and checks what is to be booted, and notes exactly which bytes were checked: the same
    /// are served later, by whichever of our processes is asked.
    async fn pin(&self, system: &mut BootSystem, purpose: BootPurpose) -> Result<(), Error> {
        match system {
            BootSystem::Kernel { kernel, ramdisk, .. } => {
                self.pin_image(kernel, Kind::Kernel, &format!("fetch the kernel of the {purpose}"))
                    .await?;
                self.pin_image(
                    ramdisk,
                    Kind::Ramdisk,
                    &format!("fetch the ramdisk of the {purpose}"),
                )
                .await
            }
            BootSystem::Iso { image } => {
                self.pin_image(image, Kind::Iso, &format!("fetch the CD of the {purpose}")).await
            }
        }
    }

    pub(crate) async fn pin_image(
        &self,
        image: &mut BootImage,
        kind: Kind,
        what: &str,
    ) -> Result<(), Error> {
        let entry =
            self.0.layouts.fetch(image, kind).await.map_err(|error| failed(what, &error))?;
        image.checksum = Some(hex(&entry.sha256));
        Ok(())
    }

    /// Lays out what firmware reads first, so that what cannot be laid out fails here, where it can
    /// be explained, and not on the machine's screen. A CD that goes `straight` to the BMC is not
    /// ours to lay out.
    async fn try_layout(&self, plan: &BootPlan, straight: bool) -> Result<(), Error> {
        let first = match (plan.way, &plan.system) {
            (BootWay::VirtualMedia, _) | (BootWay::Http, BootSystem::Iso { .. }) => Some(Piece::Cd),
            (BootWay::Http, BootSystem::Kernel { .. }) => Some(Piece::UnifiedImage),
            (BootWay::Ipxe | BootWay::Pxe | BootWay::HttpIpxe, _) => None,
        };
        let first = first.filter(|_| !straight);
        let drive = plan.config_drive.as_ref().map(|_| Piece::ConfigDrive);
        for piece in first.into_iter().chain(drive) {
            let what = format!("lay out {} of the {}", piece.name(), plan.purpose);
            self.0.layouts.get(plan, piece).await.map_err(|error| failed(&what, &error))?;
        }
        Ok(())
    }

    async fn write(&self, plan: BootPlan, token: Option<String>) -> Result<(), Error> {
        let actor = Actor::Conductor { hostname: self.0.hostname.clone() };
        let now = plan.made_at;
        let told = Happening::Noted { by: "boot plan".to_owned(), text: told(&plan) };
        self.0
            .store
            .write(move |tx| {
                let Some(mut node) = tx.get(plan.node_id)? else {
                    return Err(store::Error::Missing);
                };
                // The agent of this boot has the token that is on its way to it, or none yet.
                if plan.purpose != BootPurpose::Instance {
                    let mut secrets = tx.reveal(&node)?;
                    secrets.agent_token = token.clone().map(Secret::new);
                    tx.seal_node(&mut node, secrets)?;
                    node.agent.replace(token.is_some(), tx.now());
                    tx.save(&mut node)?;
                }
                tx.set_boot_plan(&plan)?;
                let (actor, what) = (actor.clone(), told.clone());
                tx.append(JournalEntry { at: now, node_id: plan.node_id, actor, what });
                Ok(())
            })
            .await
            .map_err(|error| not_written(&error))
    }
}

/// The plan in words, without what opens doors.
fn told(plan: &BootPlan) -> String {
    let shown = |image: &BootImage| {
        let address = images::Source::parse(&image.source);
        address.map_or_else(|_| "an image".to_owned(), |source| source.to_string())
    };
    let system = match &plan.system {
        BootSystem::Kernel { kernel, ramdisk, .. } => {
            format!("kernel {}, ramdisk {}", shown(kernel), shown(ramdisk))
        }
        BootSystem::Iso { image } => format!("CD {}", shown(image)),
    };
    format!("the machine is to boot the {} by {}: {system}", plan.purpose, plan.way)
}

/// The config drive of an instance that lives in memory: as it stands, or its contents as JSON.
fn config_drive(target: &Target<'_>) -> Option<String> {
    match target.instance_info.get("configdrive")? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        parts @ Value::Object(_) => Some(parts.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            None
        }
    }
}

fn random() -> Result<String, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| Error::Failed {
        what: "make a secret".to_owned(),
        why: "this system has no source of random numbers".to_owned(),
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn failed(what: &str, error: &LayoutError) -> Error {
    Error::Failed { what: what.to_owned(), why: chain(error) }
}

fn not_written(error: &store::Error) -> Error {
    Error::Failed { what: "write down what the machine boots".to_owned(), why: error.to_string() }
}
