// SPDX-License-Identifier: Apache-2.0
//! Publishes and withdraws boot plans for the boot interfaces.

use std::net::IpAddr;
use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use drivers::instance_image::{InstanceImage, pull_secret};
use drivers::{
    BootService, DriverError, DriverTarget, ImageDownloadSource, MediaDevice, PublishedBootMedia,
    PublishedImage,
};
use error_chain::error_chain;
use images::signature::SignaturePolicy;
use images::{ImageKind, ImageSource, OciReference};
use node_model::{
    Actor, BootImage, BootMethod, BootMethodStats, BootPlan, BootPurpose, BootSystem, JournalEntry,
    JournalEvent, Mac, Secret,
};
use serde_json::Value;

use crate::boot_events::EventSubject;
use crate::boot_system::{self, AgentEndpoints};
use crate::dhcp_networks::{DhcpClient, DhcpLeaseLocation};
use crate::instance_images::{given_config_drive, packed_config_drive};
use crate::plan_files::{PlanFile, PlanFileError};
use crate::services::BootServices;
use crate::settings::IsoDownloadSource;

#[async_trait]
impl BootService for BootServices {
    fn check(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<(), DriverError> {
        let endpoints = AgentEndpoints {
            api_url: "http://[::1]:6385",
            token: None,
            inspection_proof: None,
            files_url: "http://[::1]:6180",
            now: self.0.now(),
        };
        boot_system::resolve_boot_system(target, &self.0.settings, &endpoints, method, purpose)
            .map(drop)
    }

    async fn publish(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<PublishedBootMedia, DriverError> {
        let is_instance = purpose == BootPurpose::Instance;
        let is_installer = purpose == BootPurpose::Installer;
        // The token is the secret of the boot: an agent that has it read the kernel parameters, or the
        // kickstart of an installer.
        let token = (!is_instance).then(random_secret).transpose()?;
        let inspection_proof =
            (purpose == BootPurpose::InspectionRamdisk).then(random_secret).transpose()?;
        let (api_url, key) = (self.api_url(method), random_secret()?);
        let files_url = format!("{}/{key}", self.0.service_urls().files);
        let endpoints = AgentEndpoints {
            api_url: &api_url,
            token: token.as_deref(),
            inspection_proof: inspection_proof.as_deref(),
            files_url: &files_url,
            now: self.0.now(),
        };
        let mut system = boot_system::resolve_boot_system(
            target,
            &self.0.settings,
            &endpoints,
            method,
            purpose,
        )?;
        let direct_url = self.direct_media_url(&system, method)?;
        if direct_url.is_none() {
            self.pin_images(&mut system, purpose).await?;
        }
        let installer = match is_installer {
            true => Some(self.installer_files(target, &endpoints).await?),
            false => None,
        };
        // A prebuilt ISO cannot contain the token. Boot loaders get it with a script that only the
        // machine may read: it is stored when that is delivered, see `loader_delivery`.
        let is_delivered =
            matches!(system, BootSystem::Kernel { .. }) && (is_installer || has_own_image(method));
        let token = token.filter(|_| is_delivered);
        let now = self.0.now();
        let lifetime = Duration::from_secs(self.0.settings.url_lifetime);
        let plan = BootPlan {
            node_id: target.node.id,
            purpose,
            method,
            system,
            key,
            config_drive: if is_instance { instance_config_drive(target) } else { None },
            installer,
            created_at: now,
            expires_at: (!is_instance).then(|| now.plus(lifetime)),
        };
        self.prepare_media(&plan, direct_url.is_some()).await?;
        let files = format!("{}/{}", self.files_url(target, method), plan.key);
        let config_drive =
            plan.config_drive.as_ref().map(|_| format!("{files}/{}", PlanFile::ConfigDrive.name()));
        let boot_url =
            direct_url.unwrap_or_else(|| format!("{files}/{}", PlanFile::BootIso.name()));
        self.store_plan(plan, token).await?;
        self.invalidate_cached_ports(target);
        let mut resets = self.0.repeat_resets.lock().unwrap_or_else(PoisonError::into_inner);
        resets.push(EventSubject::Node(target.node.id));
        resets.extend(target.ports.iter().map(|port| EventSubject::Mac(port.address.clone())));
        Ok(PublishedBootMedia { boot_url, config_drive })
    }

    async fn withdraw(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
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
                    // The token is in the kickstart, and installers leave a copy of it in the system.
                    let mut secrets = tx.reveal(&node)?;
                    secrets.agent_token = None;
                    tx.seal_node(&mut node, secrets)?;
                    node.agent.token_pregenerated = false;
                    tx.save(&mut node)?;
                }
                Ok::<_, store::StoreError>(plan)
            })
            .await
            .map_err(|error| store_failed(&error))?;
        if let Some(plan) = removed {
            self.0.plan_files.remove_plan(&plan.key);
            self.invalidate_cached_ports(target);
        }
        Ok(())
    }

    async fn publish_image(
        &self,
        target: &DriverTarget<'_>,
        default: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError> {
        self.offer_instance_image(target, default).await
    }

    fn check_image(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        let image = InstanceImage::from_target(target)?;
        // Other sources are checked when the image is fetched.
        let Ok(source) = ImageSource::parse(image.source) else { return Ok(()) };
        let checked = self.0.plan_files.check_source(&source);
        checked.map_err(|error| {
            DriverError::invalid("instance_info/image_source", error_chain(&error))
        })
    }

    async fn verified_container(
        &self,
        target: &DriverTarget<'_>,
        source: &str,
    ) -> Result<String, DriverError> {
        let invalid = |why: String| DriverError::invalid("instance_info/image_source", why);
        let reference = OciReference::parse(source).map_err(|error| invalid(error.to_string()))?;
        let secret = pull_secret(target, source)?.map(images::ImageCredentials::pull_secret);
        let verified = self.0.plan_files.verify_container(&reference, secret.as_ref()).await;
        let verified = verified.map_err(|error| {
            DriverError::failed("verify the container of the instance", error_chain(&error))
        })?;
        // An unchanged reference is passed on as the user wrote it.
        Ok(if verified == reference { source.to_owned() } else { verified.to_string() })
    }

    fn verifies_disk_images(&self) -> bool {
        self.0.disk_image_signature_policy != SignaturePolicy::Off
    }

    async fn publish_medium(
        &self,
        target: &DriverTarget<'_>,
        device: MediaDevice,
        image_url: &str,
        source: ImageDownloadSource,
    ) -> Result<String, DriverError> {
        let is_direct = source == ImageDownloadSource::Http;
        self.publish_attached_medium(target, device, image_url, is_direct).await
    }

    async fn withdraw_media(
        &self,
        target: &DriverTarget<'_>,
        devices: &[MediaDevice],
    ) -> Result<(), DriverError> {
        self.withdraw_attached_media(target, devices).await
    }

    async fn config_drive(&self, target: &DriverTarget<'_>) -> Result<Option<String>, DriverError> {
        packed_config_drive(target)
    }

    fn registry_login(&self, source: &str) -> Option<Secret<String>> {
        let Ok(ImageSource::Oci(reference)) = ImageSource::parse(source) else { return None };
        self.0.plan_files.registry_login(&reference).map(Secret::new)
    }

    fn is_leased_to(&self, address: IpAddr, stored_client: Option<&[u8]>, macs: &[Mac]) -> bool {
        let address = address.to_canonical();
        let client = match self.0.leases.get() {
            None => None,
            Some(DhcpLeaseLocation::Files { index, .. }) => index.holder(address, self.0.now()),
            Some(DhcpLeaseLocation::Database) => stored_client.map(<[u8]>::to_vec),
        };
        client
            .and_then(|client| DhcpClient::from_client_id(address, client).to_mac())
            .is_some_and(|mac| macs.contains(&mac))
    }

    async fn boot_method_stats(&self, model: &str) -> Vec<BootMethodStats> {
        let model = model.to_owned();
        let stats = self.0.store.read(move |reader| reader.boot_method_stats(&model)).await;
        stats.unwrap_or_else(|error| {
            tracing::warn!(%error, "boot method statistics could not be read");
            Vec::new()
        })
    }

    async fn record_boot_result(&self, model: &str, method: BootMethod, worked: bool) {
        let model = model.to_owned();
        let stored =
            self.0.store.write(move |tx| tx.record_boot_result(&model, method, worked)).await;
        if let Err(error) = stored {
            tracing::warn!(%error, "boot method result could not be stored");
        }
    }
}

impl BootServices {
    fn api_url(&self, method: BootMethod) -> String {
        let external = self.0.settings.external_callback_url.as_deref();
        match external.filter(|_| method == BootMethod::VirtualMedia) {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => self.0.service_urls().api,
        }
    }

    /// Returns the URL of the file service for the reader of the plan's files: the BMC for virtual media,
    /// the machine otherwise.
    pub(crate) fn files_url(&self, target: &DriverTarget<'_>, method: BootMethod) -> String {
        let node_url = target.driver_info.get("external_http_url").and_then(Value::as_str);
        let external = node_url.or(self.0.settings.external_http_url.as_deref());
        match external.filter(|_| method == BootMethod::VirtualMedia) {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => self.0.service_urls().files,
        }
    }

    /// Returns the URL of an ISO that the BMC fetches from its source. Such an ISO cannot be verified.
    pub(crate) fn direct_media_url(
        &self,
        system: &BootSystem,
        method: BootMethod,
    ) -> Result<Option<String>, DriverError> {
        let BootSystem::Iso { image } = system else { return Ok(None) };
        if method != BootMethod::VirtualMedia {
            return Ok(None);
        }
        let must_be_checked =
            image.checksum.is_some() || self.0.iso_signature_policy == SignaturePolicy::Required;
        if boot_system::is_bmc_only_url(&image.source) {
            if must_be_checked {
                return Err(DriverError::InvalidParameter {
                    name: "boot_iso or deploy_iso".to_owned(),
                    why: "only the BMC can fetch it from there, so neither its checksum nor its \
                          signature can be verified; use an http, https, file or oci URL"
                        .to_owned(),
                });
            }
            return Ok(Some(image.source.clone()));
        }
        let is_http = image.source.starts_with("http:") || image.source.starts_with("https:");
        let direct = self.0.settings.ramdisk_image_download_source == IsoDownloadSource::Http;
        Ok((direct && is_http && !must_be_checked).then(|| image.source.clone()))
    }

    /// Fetches and verifies the images and stores their checksums in the plan, so that every process
    /// serves the same bytes later.
    async fn pin_images(
        &self,
        system: &mut BootSystem,
        purpose: BootPurpose,
    ) -> Result<(), DriverError> {
        match system {
            BootSystem::Kernel { kernel, ramdisk, .. } => {
                self.pin_image(
                    kernel,
                    ImageKind::Kernel,
                    &format!("fetch the kernel of the {purpose}"),
                )
                .await?;
                self.pin_image(
                    ramdisk,
                    ImageKind::Ramdisk,
                    &format!("fetch the ramdisk of the {purpose}"),
                )
                .await
            }
            BootSystem::Iso { image } => {
                self.pin_image(image, ImageKind::Iso, &format!("fetch the ISO of the {purpose}"))
                    .await
            }
        }
    }

    pub(crate) async fn pin_image(
        &self,
        image: &mut BootImage,
        kind: ImageKind,
        what: &str,
    ) -> Result<(), DriverError> {
        let entry = self
            .0
            .plan_files
            .fetch(image, kind)
            .await
            .map_err(|error| plan_file_failed(what, &error))?;
        image.checksum = Some(hex::encode(entry.sha256));
        Ok(())
    }

    /// Creates the files that firmware reads first, so that an error is reported here and not on the
    /// machine's screen. `is_direct` is whether the BMC fetches the ISO from its source.
    async fn prepare_media(&self, plan: &BootPlan, is_direct: bool) -> Result<(), DriverError> {
        let first = match (plan.method, &plan.system) {
            (BootMethod::VirtualMedia, _) | (BootMethod::Http, BootSystem::Iso { .. }) => {
                Some(PlanFile::BootIso)
            }
            (BootMethod::Http, BootSystem::Kernel { .. }) => Some(PlanFile::UnifiedImage),
            (BootMethod::Ipxe | BootMethod::Pxe | BootMethod::HttpIpxe, _) => None,
        };
        let first = first.filter(|_| !is_direct);
        let drive = plan.config_drive.as_ref().map(|_| PlanFile::ConfigDrive);
        for file in first.into_iter().chain(drive) {
            let what = format!("create {} of the {}", file.name(), plan.purpose);
            self.0
                .plan_files
                .get(plan, file)
                .await
                .map_err(|error| plan_file_failed(&what, &error))?;
        }
        Ok(())
    }

    async fn store_plan(&self, plan: BootPlan, token: Option<String>) -> Result<(), DriverError> {
        let actor = Actor::Conductor { hostname: self.0.hostname.clone() };
        let now = plan.created_at;
        let event = JournalEvent::Note { by: "boot plan".to_owned(), text: describe_plan(&plan) };
        self.0
            .store
            .write(move |tx| {
                let Some(mut node) = tx.get(plan.node_id)? else {
                    return Err(store::StoreError::Missing);
                };
                // The agent of this boot gets the new token with its kernel parameters, or none yet.
                if plan.purpose != BootPurpose::Instance {
                    let mut secrets = tx.reveal(&node)?;
                    secrets.agent_token = token.clone().map(Secret::new);
                    tx.seal_node(&mut node, secrets)?;
                    node.agent.replace(tx.now());
                    tx.save(&mut node)?;
                }
                tx.set_boot_plan(&plan)?;
                let (actor, event) = (actor.clone(), event.clone());
                tx.append(JournalEntry { at: now, node_id: plan.node_id, actor, event });
                Ok(())
            })
            .await
            .map_err(|error| store_failed(&error))
    }
}

/// Whether the machine loads one image with its kernel parameters, under the unguessable key of the
/// plan, instead of a script that is named after its MAC address.
pub(crate) fn has_own_image(method: BootMethod) -> bool {
    match method {
        BootMethod::VirtualMedia | BootMethod::Http => true,
        BootMethod::Ipxe | BootMethod::Pxe | BootMethod::HttpIpxe => false,
    }
}

/// Returns a description of the plan for the timeline, without secrets.
fn describe_plan(plan: &BootPlan) -> String {
    let shown = |image: &BootImage| {
        let source = images::ImageSource::parse(&image.source);
        source.map_or_else(|_| "an image".to_owned(), |source| source.to_string())
    };
    let system = match &plan.system {
        BootSystem::Kernel { kernel, ramdisk, .. } => {
            format!("kernel {}, ramdisk {}", shown(kernel), shown(ramdisk))
        }
        BootSystem::Iso { image } => format!("ISO {}", shown(image)),
    };
    format!("boot {} by {}: {system}", plan.purpose, plan.method)
}

/// Returns the config drive of a ramdisk instance: the given string, or its contents as JSON.
fn instance_config_drive(target: &DriverTarget<'_>) -> Option<String> {
    match given_config_drive(target)? {
        Value::String(text) => Some(text.clone()),
        parts @ Value::Object(_) => Some(parts.to_string()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

pub(crate) fn random_secret() -> Result<String, DriverError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| DriverError::Failed {
        what: "generate a secret".to_owned(),
        why: "this system has no source of random numbers".to_owned(),
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn plan_file_failed(what: &str, error: &PlanFileError) -> DriverError {
    DriverError::Failed { what: what.to_owned(), why: error_chain(error) }
}

fn store_failed(error: &store::StoreError) -> DriverError {
    DriverError::Failed { what: "store the boot plan".to_owned(), why: error.to_string() }
}
