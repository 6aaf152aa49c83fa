// SPDX-License-Identifier: Apache-2.0
//! What TFTP gives: boot programs, the configurations of boot loaders by card, and the kernel and
//! ramdisk of plans under names that cannot be guessed.

use std::net::SocketAddr;

use async_trait::async_trait;
use boot_media::Content;
use boot_server::tftp::{Files, OpenError};
use bytes::Bytes;
use node_model::Mac;

use crate::discovery::chain;
use crate::layouts::{LayoutError, Piece};
use crate::pages::{GRUB, IPXE, PXELINUX};
use crate::scripts;
use crate::services::BootServices;

#[async_trait]
impl Files for BootServices {
    async fn open(&self, name: &str, _client: SocketAddr) -> Result<Content, OpenError> {
        let name = name.trim_start_matches('/');
        if let Some((folder, file)) = name.rsplit_once('/') {
            if file == GRUB {
                // GRUB looks where its builder put its configuration: every distribution elsewhere.
                return Ok(text(scripts::GRUB_ROOT.to_owned()));
            }
            return match folder {
                "pxelinux.cfg" => self.text_for_card(card_of(file)?, PXELINUX).await,
                key => self.file_of_plan(key, file).await,
            };
        }
        match name {
            GRUB => Ok(text(scripts::GRUB_ROOT.to_owned())),
            IPXE => Ok(text(scripts::ROOT.to_owned())),
            _ => match name.strip_suffix(".conf") {
                Some(card) => self.text_for_card(card_of(card)?, GRUB).await,
                None => self.0.layouts.loaders().open(name).ok_or(OpenError::NotFound),
            },
        }
    }
}

impl BootServices {
    async fn text_for_card(&self, card: Mac, name: &str) -> Result<Content, OpenError> {
        let page = self.mac_page(&card, name, &self.0.places().files).await.map_err(|error| {
            tracing::warn!(%error, %card, "cannot look up what a machine boots");
            OpenError::Unavailable
        })?;
        page.map(|page| text(page.text)).ok_or(OpenError::NotFound)
    }

    async fn file_of_plan(&self, key: &str, name: &str) -> Result<Content, OpenError> {
        let piece = Piece::named(name).ok_or(OpenError::NotFound)?;
        let plan = self.plan_by_key(key).await.map_err(|error| {
            tracing::warn!(%error, "cannot look up a boot plan");
            OpenError::Unavailable
        })?;
        let plan = plan.filter(|plan| plan.is_valid(self.0.now())).ok_or(OpenError::NotFound)?;
        match self.0.layouts.get(&plan, piece).await {
            Ok(laid) => Ok(laid.content),
            Err(LayoutError::NoSuchPiece) => Err(OpenError::NotFound),
            Err(error) => {
                let why = chain(&error);
                tracing::warn!(node = %plan.node_id, why, "cannot serve what a machine boots");
                Err(OpenError::Unavailable)
            }
        }
    }
}

fn card_of(name: &str) -> Result<Mac, OpenError> {
    scripts::card_named(name).ok_or(OpenError::NotFound)
}

fn text(text: String) -> Content {
    Content::from(Bytes::from(text))
}
