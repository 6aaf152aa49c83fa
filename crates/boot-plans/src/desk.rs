// SPDX-License-Identifier: Apache-2.0
//! Where boot interfaces publish and withdraw plans.

use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bmc_drivers::{BootDesk, Error, Published, Target};
use images::Kind;
use node_model::{
    Actor, BootExperience, BootImage, BootPlan, BootPurpose, BootSystem, BootWay, Happening,
    JournalEntry, Secret,
};
use serde_json::Value;

use crate::layouts::{LayoutError, Piece};
use crate::order::{self, Home};
use crate::services::BootServices;
use crate::settings::DownloadSource;

#[async_trait]
impl BootDesk for BootServices {
    fn check(&self, target: &Target<'_>, way: BootWay, purpose: BootPurpose) -> Result<(), Error> {
        let home = Home { api_url: "http://[::1]:6385", token: None };
        order::system(target, &self.0.settings, &home, way, purpose).map(drop)
    }

    async fn publish(
        &self,
        target: &Target<'_>,
        way: BootWay,
        purpose: BootPurpose,
    ) -> Result<Published, Error> {
        let is_instance = purpose == BootPurpose::Instance;
        // Only what is read by the BMC alone may carry a token: scripts are for all to read.
        let token = (way == BootWay::VirtualMedia && !is_instance).then(random).transpose()?;
        let api_url = self.api_url(way);
        let home = Home { api_url: &api_url, token: token.as_deref() };
        let mut system = order::system(target, &self.0.settings, &home, way, purpose)?;
        let straight = self.straight_from_source(&system, way);
        if straight.is_none() {
            self.pin(&mut system, purpose).await?;
        }
        let now = self.0.now();
        let lifetime = Duration::from_secs(self.0.settings.url_lifetime);
        let plan = BootPlan {
            node_id: target.node.id,
            purpose,
            way,
            system,
            key: random()?,
            config_drive: if is_instance { config_drive(target) } else { None },
            made_at: now,
            expires_at: (!is_instance).then(|| now.plus(lifetime)),
        };
        if straight.is_none() && way != BootWay::Pxe {
            self.try_layout(&plan).await?;
        }
        let files = format!("{}/{}", self.files_url(target, way), plan.key);
        let config_drive = match &plan.config_drive {
            Some(url) if url.contains("://") && !url.starts_with('{') => Some(url.clone()),
            Some(_) => Some(format!("{files}/{}", Piece::ConfigDrive.name())),
            None => None,
        };
        let cd = straight.unwrap_or_else(|| format!("{files}/{}", Piece::Cd.name()));
        self.write(plan, token).await?;
        self.forget_cards(target);
        let cards = target.ports.iter().map(|port| port.address.clone()).collect();
        let mut published = self.0.published.lock().unwrap_or_else(PoisonError::into_inner);
        published.push((target.node.id, cards));
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

    /// The URL of a CD that the BMC is to fetch from where it is.
    fn straight_from_source(&self, system: &BootSystem, way: BootWay) -> Option<String> {
        let BootSystem::Iso { image } = system else { return None };
        let as_configured = self.0.settings.ramdisk_image_download_source == DownloadSource::Http
            && !image.source.starts_with("file:")
            && !image.source.starts_with("oci:");
        let straight =
            way == BootWay::VirtualMedia && (order::is_for_bmcs(&image.source) || as_configured);
        straight.then(|| image.source.clone())
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

    async fn pin_image(&self, image: &mut BootImage, kind: Kind, what: &str) -> Result<(), Error> {
        let entry =
            self.0.layouts.fetch(image, kind).await.map_err(|error| failed(what, &error))?;
        let digits: String = entry.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        image.checksum = Some(digits);
        Ok(())
    }

    /// Lays out what firmware reads first, so that what cannot be laid out fails here, where it can
    /// be explained, and not on the machine's screen.
    async fn try_layout(&self, plan: &BootPlan) -> Result<(), Error> {
        let piece = match plan.way {
            BootWay::VirtualMedia => Piece::Cd,
            BootWay::Http => match plan.system {
                BootSystem::Kernel { .. } => Piece::UnifiedImage,
                BootSystem::Iso { .. } => Piece::Cd,
            },
            BootWay::Ipxe | BootWay::Pxe | BootWay::HttpIpxe => return Ok(()),
        };
        let what = format!("lay out the {}", plan.purpose);
        self.0.layouts.get(plan, piece).await.map_err(|error| failed(&what, &error))?;
        if plan.config_drive.as_ref().is_some_and(|drive| !drive.contains("://")) {
            let laid = self.0.layouts.get(plan, Piece::ConfigDrive).await;
            laid.map_err(|error| failed("lay out the config drive", &error))?;
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
                if let Some(token) = &token {
                    let mut secrets = tx.reveal(&node)?;
                    secrets.agent_token = Some(Secret::new(token.clone()));
                    tx.seal_node(&mut node, secrets)?;
                    node.agent.has_token = true;
                    node.agent.token_pregenerated = true;
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
    let mut why = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        why = format!("{why}: {inner}");
        cause = inner.source();
    }
    Error::Failed { what: what.to_owned(), why }
}

fn not_written(error: &store::Error) -> Error {
    Error::Failed { what: "write down what the machine boots".to_owned(), why: error.to_string() }
}
