// SPDX-License-Identifier: Apache-2.0
//! What the HTTP file service gives: scripts by card, boot programs, and the files of plans under
//! names that cannot be guessed.
//!
//! | path | what |
//! |---|---|
//! | `/boot.ipxe` | the script that looks for the machine's own |
//! | `/pxelinux.cfg/52-54-00-aa-bb-01` | the machine's own |
//! | `/snponly.efi` and others | boot programs |
//! | `/discovery/kernel`, `/discovery/ramdisk` | the agent, for machines nobody enrolled |
//! | `/<key>/kernel`, `ramdisk`, `boot.efi`, `boot.iso`, `config-drive.iso` | the files of a plan |

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use boot_media::Content;
use boot_server::http::{Page, Pages, Reason, Refusal, Request};
use bytes::Bytes;
use images::Kind;
use node_model::{BootCard, BootImage, BootPlan, BootWay, Mac};

use crate::layouts::{LayoutError, Piece};
use crate::parameters;
use crate::scripts;
use crate::services::BootServices;

/// When a client comes back that asked for what is not at hand yet.
const AGAIN: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";

/// A text for one card: what a boot loader runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacPage {
    /// The text.
    pub text: String,
    /// The machine the card belongs to, unless nobody enrolled it.
    pub node: Option<node_model::NodeId>,
}

#[async_trait]
impl Pages for BootServices {
    async fn page(&self, request: &Request<'_>) -> Result<Page, Refusal> {
        let path: &str = &request.path;
        match path.trim_start_matches('/').split_once('/') {
            None if path == "/boot.ipxe" => Ok(text_page(scripts::ROOT.into(), "boot.ipxe", None)),
            None => self.loader(path.trim_start_matches('/')),
            Some(("pxelinux.cfg", card)) => self.script_page(card).await,
            Some(("discovery", name)) => self.discovery_file(name).await,
            Some((key, name)) => self.file(key, name).await,
        }
    }
}

impl BootServices {
    /// The text called `name` for a card: `boot.ipxe`, `pxelinux.cfg` or `grub.cfg`. None if there
    /// is no such text, or nothing to boot for this card.
    pub async fn mac_page(&self, card: &Mac, name: &str) -> Result<Option<MacPage>, store::Error> {
        let wanted = card.clone();
        let found = self.0.store.read(move |reader| reader.boot_cards(&[wanted])).await?.pop();
        Ok(match found {
            Some(known) => self.text_of(&known, name),
            None if name == IPXE => {
                self.discovery_script().map(|text| MacPage { text, node: None })
            }
            None => None,
        })
    }

    fn text_of(&self, card: &BootCard, name: &str) -> Option<MacPage> {
        // What is on a virtual CD is for the BMC alone: anybody can ask for this text, and with it
        // would come the key of the CD and the agent's token.
        let is_here = |plan: &&BootPlan| {
            plan.is_valid(self.0.now()) && card.pxe_enabled && plan.way != BootWay::VirtualMedia
        };
        let plan = card.plan.as_ref().filter(is_here);
        let text = match (name, plan) {
            (IPXE, Some(plan)) => {
                scripts::ipxe(plan, &format!("{}/{}", self.0.places().files, plan.key))
            }
            (IPXE, None) => scripts::LOCAL.to_owned(),
            (PXELINUX, Some(plan)) => scripts::pxelinux(plan, &plan.key)?,
            (PXELINUX, None) => scripts::PXELINUX_LOCAL.to_owned(),
            (GRUB, Some(plan)) => scripts::grub(plan, &plan.key, &card.address)?,
            (GRUB, None) => scripts::GRUB_LOCAL.to_owned(),
            (_, _) => return None,
        };
        Some(MacPage { text, node: Some(card.node_id) })
    }

    /// What a machine runs that nobody enrolled: the agent, which reports what it is.
    fn discovery_script(&self) -> Option<String> {
        let settings = &self.0.settings;
        settings.deploy_kernel.as_ref().and(settings.deploy_ramdisk.as_ref())?;
        let places = self.0.places();
        let mut parameters = parameters::of_ramdisk(&settings.kernel_append_params, None).ok()?;
        parameters.push(format!("ipa-api-url={}", places.api));
        parameters
            .push(format!("ipa-inspection-callback-url={}/v1/continue_inspection", places.api));
        parameters.extend(parameters::split(&settings.inspection_kernel_params).ok()?);
        let line = parameters::line(&parameters).ok()?;
        let title = "echo Nobody enrolled this machine; booting the agent to have a look\n";
        Some(scripts::kernel_script(title, &format!("{}/discovery", places.files), &line))
    }

    async fn script_page(&self, card: &str) -> Result<Page, Refusal> {
        let title = || format!("the script of {card}");
        let refuse = |reason| Refusal::new(reason).titled(title());
        let mac: Mac = card.parse().map_err(|_| refuse(Reason::NotFound))?;
        let page = self.mac_page(&mac, IPXE).await.map_err(|error| {
            tracing::warn!(%error, %mac, "cannot look up what a machine boots");
            refuse(busy("the database does not answer"))
        })?;
        let page = page.ok_or_else(|| refuse(Reason::NotFound))?;
        let subject = page.node.map(|node| node.to_string().into());
        Ok(text_page(page.text.into(), &title(), subject))
    }

    fn loader(&self, name: &str) -> Result<Page, Refusal> {
        let content = self.0.layouts.loaders().open(name);
        let content = content.ok_or_else(|| Refusal::new(Reason::NotFound))?;
        let media_type = "application/efi";
        Ok(Page { content, media_type, etag: None, title: name.into(), subject: None })
    }

    async fn discovery_file(&self, name: &str) -> Result<Page, Refusal> {
        let settings = &self.0.settings;
        let (source, kind) = match Piece::named(name) {
            Some(Piece::Kernel) => (&settings.deploy_kernel, Kind::Kernel),
            Some(Piece::Ramdisk) => (&settings.deploy_ramdisk, Kind::Ramdisk),
            Some(Piece::UnifiedImage | Piece::Cd | Piece::ConfigDrive) | None => {
                return Err(Refusal::new(Reason::NotFound));
            }
        };
        let title: Arc<str> = format!("the {name} for unknown machines").into();
        let refuse = |reason| Refusal::new(reason).titled(Arc::clone(&title));
        let source = source.clone().ok_or_else(|| refuse(Reason::NotFound))?;
        let image = BootImage { source, checksum: None, pull_secret: None };
        let entry = self.0.layouts.fetch(&image, kind).await.map_err(|error| {
            tracing::warn!(%error, "cannot serve the agent to unknown machines");
            refuse(busy("the image cannot be had"))
        })?;
        let content =
            Content::open(&entry.path).map_err(|_| refuse(busy("the image cannot be opened")))?;
        let media_type = "application/octet-stream";
        Ok(Page { content, media_type, etag: None, title, subject: None })
    }

    /// A file of the plan that `key` opens.
    async fn file(&self, key: &str, name: &str) -> Result<Page, Refusal> {
        let not_found = || Refusal::new(Reason::NotFound);
        let piece = Piece::named(name).ok_or_else(not_found)?;
        let plan = self.plan_by_key(key).await.map_err(|error| {
            tracing::warn!(%error, "cannot look up a boot plan");
            Refusal::new(busy("the database does not answer"))
        })?;
        let plan = plan.ok_or_else(not_found)?;
        let subject: Arc<str> = plan.node_id.to_string().into();
        let title: Arc<str> = format!("{name} of the {}", plan.purpose).into();
        let refuse =
            |reason| Refusal::new(reason).titled(Arc::clone(&title)).about(Arc::clone(&subject));
        if !plan.is_valid(self.0.now()) {
            return Err(refuse(Reason::Gone));
        }
        match self.0.layouts.get(&plan, piece).await {
            Ok(laid) => Ok(Page {
                content: laid.content,
                media_type: piece.media_type(),
                etag: Some(laid.etag),
                title,
                subject: Some(subject),
            }),
            Err(LayoutError::NoSuchPiece) => Err(refuse(Reason::NotFound)),
            Err(error) => {
                tracing::warn!(node = %plan.node_id, %error, "cannot serve what a machine boots");
                Err(refuse(busy("what this machine boots cannot be had")))
            }
        }
    }

    pub(crate) async fn plan_by_key(&self, key: &str) -> Result<Option<BootPlan>, store::Error> {
        let key = key.to_owned();
        self.0.store.read(move |reader| reader.boot_plan_by_key(&key)).await
    }
}

pub(crate) const IPXE: &str = "boot.ipxe";
pub(crate) const PXELINUX: &str = "pxelinux.cfg";
pub(crate) const GRUB: &str = "grub.cfg";

fn text_page(text: Bytes, title: &str, subject: Option<Arc<str>>) -> Page {
    Page {
        content: Content::from(text),
        media_type: TEXT,
        etag: None,
        title: title.into(),
        subject,
    }
}

fn busy(why: &str) -> Reason {
    Reason::Unavailable { why: why.into(), retry_after: AGAIN }
}
