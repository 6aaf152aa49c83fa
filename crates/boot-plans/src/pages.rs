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
//! | `/image/<node>/<what>` | the image of an instance, for the agent that writes it |
//! | `/<key>/kernel`, `ramdisk`, `boot.efi`, `boot.iso`, `config-drive.iso` | the files of a plan |

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use boot_media::Content;
use boot_server::http::{Page, Pages, Reason, Refusal, Request};
use bytes::Bytes;
use node_model::{BootCard, BootPlan, BootWay, Mac};

use crate::discovery::chain;
use crate::layouts::{Laid, LayoutError, Piece};
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
            Some(("pxelinux.cfg", card)) => self.script_page(card, request.host).await,
            Some(("discovery", name)) => self.discovery_page(name),
            Some(("image", name)) => self.image_page(name).await,
            Some((key, name)) => self.file(key, name).await,
        }
    }
}

impl BootServices {
    /// The boot-configuration API: the text called `name` for a card (`boot.ipxe`, `pxelinux.cfg` or
    /// `grub.cfg`). None whenever there is nothing to boot for the card.
    pub async fn boot_config(
        &self,
        card: &Mac,
        name: &str,
    ) -> Result<Option<MacPage>, store::Error> {
        let files = self.0.places().files;
        match self.card(card).await? {
            Some(known) if self.plan_for_loaders(&known).is_some() => {
                Ok(self.text_of(&known, name, &files))
            }
            Some(_) => Ok(None),
            None => Ok(self.text_for_stranger(name, &files)),
        }
    }

    /// The same for machines that are on the way already: one with nothing to boot is told to boot
    /// its disk. `files` is where the machine finds us.
    pub(crate) async fn mac_page(
        &self,
        card: &Mac,
        name: &str,
        files: &str,
    ) -> Result<Option<MacPage>, store::Error> {
        Ok(match self.card(card).await? {
            Some(known) => self.text_of(&known, name, files),
            None => self.text_for_stranger(name, files),
        })
    }

    async fn card(&self, card: &Mac) -> Result<Option<BootCard>, store::Error> {
        let wanted = card.clone();
        Ok(self.0.store.read(move |reader| reader.boot_cards(&[wanted])).await?.pop())
    }

    fn text_for_stranger(&self, name: &str, files: &str) -> Option<MacPage> {
        if name != IPXE {
            return None;
        }
        self.discovery_script(files).map(|text| MacPage { text, node: None })
    }

    /// The plan that the boot loader of a card may be told. What is on a virtual CD is for the BMC
    /// alone: anybody can ask, and would be given the key of the CD and the agent's token.
    fn plan_for_loaders<'a>(&self, card: &'a BootCard) -> Option<&'a BootPlan> {
        card.plan.as_ref().filter(|plan| {
            plan.is_valid(self.0.now()) && card.pxe_enabled && plan.way != BootWay::VirtualMedia
        })
    }

    fn text_of(&self, card: &BootCard, name: &str, files: &str) -> Option<MacPage> {
        let plan = self.plan_for_loaders(card);
        let text = match (name, plan) {
            (IPXE, Some(plan)) => scripts::ipxe(plan, &format!("{files}/{}", plan.key)),
            (IPXE, None) => scripts::LOCAL.to_owned(),
            (PXELINUX, Some(plan)) => scripts::pxelinux(plan, &plan.key)?,
            (PXELINUX, None) => scripts::PXELINUX_LOCAL.to_owned(),
            (GRUB, Some(plan)) => scripts::grub(plan, &plan.key, &card.address)?,
            (GRUB, None) => scripts::GRUB_LOCAL.to_owned(),
            (_, _) => return None,
        };
        Some(MacPage { text, node: Some(card.node_id) })
    }

    async fn script_page(&self, card: &str, host: Option<&str>) -> Result<Page, Refusal> {
        let title = || format!("the script of {card}");
        let refuse = |reason| Refusal::new(reason).titled(title());
        let mac: Mac = card.parse().map_err(|_| refuse(Reason::NotFound))?;
        let files = self.files_as_called(host);
        let page = self.mac_page(&mac, IPXE, &files).await.map_err(|error| {
            tracing::warn!(%error, %mac, "cannot look up what a machine boots");
            refuse(busy("the database does not answer"))
        })?;
        let page = page.ok_or_else(|| refuse(Reason::NotFound))?;
        let subject = page.node.map(|node| node.to_string().into());
        Ok(text_page(page.text.into(), &title(), subject))
    }

    /// The file service as whoever asks calls it, so that machines on every network find it where
    /// they have found it already; unless the operator says where it is.
    fn files_as_called(&self, host: Option<&str>) -> String {
        let files = self.0.places().files;
        let is_plain = |host: &str| {
            !host.is_empty()
                && host.len() <= 255
                && host
                    .bytes()
                    .all(|letter| letter.is_ascii_alphanumeric() || b".-:[]".contains(&letter))
        };
        match (
            &self.0.settings.http_url,
            host.filter(|host| is_plain(host)),
            files.split_once("://"),
        ) {
            (None, Some(host), Some((scheme, _))) => format!("{scheme}://{host}"),
            (_, _, _) => files,
        }
    }

    fn loader(&self, name: &str) -> Result<Page, Refusal> {
        let content = self.0.layouts.loaders().open(name);
        let content = content.ok_or_else(|| Refusal::new(Reason::NotFound))?;
        let media_type = "application/efi";
        Ok(Page { content, media_type, etag: None, title: name.into(), subject: None })
    }

    fn discovery_page(&self, name: &str) -> Result<Page, Refusal> {
        let title: Arc<str> = format!("the {name} for unknown machines").into();
        let refuse = |reason| Refusal::new(reason).titled(Arc::clone(&title));
        let piece = Piece::named(name).ok_or_else(|| Refusal::new(Reason::NotFound))?;
        match self.discovery_file(piece) {
            Some(Laid { content, etag, .. }) => Ok(Page {
                content,
                media_type: piece.media_type(),
                etag: Some(etag),
                title,
                subject: None,
            }),
            None if self.discovery_script("").is_some() => {
                Err(refuse(busy("the agent for unknown machines is not at hand yet")))
            }
            None => Err(refuse(Reason::NotFound)),
        }
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
                let why = chain(&error);
                tracing::warn!(node = %plan.node_id, why, "cannot serve what a machine boots");
                let refusal = refuse(busy("what this machine boots cannot be had"));
                Err(refusal.titled(format!("{title} cannot be had ({why})")))
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

pub(crate) fn busy(why: &str) -> Reason {
    Reason::Unavailable { why: why.into(), retry_after: AGAIN }
}
