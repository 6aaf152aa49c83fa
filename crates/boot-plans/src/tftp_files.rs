// SPDX-License-Identifier: Apache-2.0
//! The files of the TFTP server: boot loaders, their configurations by MAC address, and the kernel and
//! ramdisk of plans under unguessable names.

use std::net::{IpAddr, SocketAddr};

use async_trait::async_trait;
use boot_media::Content;
use boot_server::tftp::{TftpFiles, TftpOpenError};
use bytes::Bytes;
use error_chain::error_chain;
use node_model::Mac;

use crate::http_files::{GRUB_CONFIG, IPXE_SCRIPT, PXELINUX_CONFIG};
use crate::plan_files::{PlanFile, PlanFileError};
use crate::scripts;
use crate::services::BootServices;

#[async_trait]
impl TftpFiles for BootServices {
    async fn open(&self, name: &str, client: SocketAddr) -> Result<Content, TftpOpenError> {
        let client = client.ip();
        let name = name.trim_start_matches('/');
        if let Some((folder, file)) = name.rsplit_once('/') {
            if file == GRUB_CONFIG {
                // GRUB requests its configuration from a directory that differs between distributions.
                return Ok(text_content(scripts::GRUB_ROOT.to_owned()));
            }
            return match folder {
                "pxelinux.cfg" => {
                    self.script_for_mac(mac_from_name(file)?, PXELINUX_CONFIG, client).await
                }
                key => self.tftp_plan_file(key, file).await,
            };
        }
        match name {
            GRUB_CONFIG => Ok(text_content(scripts::GRUB_ROOT.to_owned())),
            IPXE_SCRIPT => Ok(text_content(scripts::IPXE_ROOT.to_owned())),
            _ => match name.strip_suffix(".conf") {
                Some(mac) => self.script_for_mac(mac_from_name(mac)?, GRUB_CONFIG, client).await,
                None => self.0.plan_files.loaders().open(name).ok_or(TftpOpenError::NotFound),
            },
        }
    }
}

impl BootServices {
    async fn script_for_mac(
        &self,
        mac: Mac,
        name: &str,
        client: IpAddr,
    ) -> Result<Content, TftpOpenError> {
        let files = self.0.service_urls().files;
        let script = self.loader_script(&mac, name, &files, client).await.map_err(|error| {
            tracing::warn!(%error, %mac, "boot plan lookup failed");
            TftpOpenError::Unavailable
        })?;
        let script = script.map_err(|_withheld| TftpOpenError::Forbidden)?;
        script.map(|script| text_content(script.text)).ok_or(TftpOpenError::NotFound)
    }

    async fn tftp_plan_file(&self, key: &str, name: &str) -> Result<Content, TftpOpenError> {
        let file = PlanFile::from_name(name).ok_or(TftpOpenError::NotFound)?;
        let plan = self.plan_by_key(key).await.map_err(|error| {
            tracing::warn!(%error, "boot plan lookup failed");
            TftpOpenError::Unavailable
        })?;
        let plan =
            plan.filter(|plan| plan.is_valid(self.0.now())).ok_or(TftpOpenError::NotFound)?;
        match self.0.plan_files.get(&plan, file).await {
            Ok(served) => Ok(served.content),
            Err(PlanFileError::NoSuchFile) => Err(TftpOpenError::NotFound),
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(node = %plan.node_id, error, "boot plan file could not be served");
                Err(TftpOpenError::Unavailable)
            }
        }
    }
}

fn mac_from_name(name: &str) -> Result<Mac, TftpOpenError> {
    scripts::mac_from_file_name(name).ok_or(TftpOpenError::NotFound)
}

fn text_content(text: String) -> Content {
    Content::from(Bytes::from(text))
}
