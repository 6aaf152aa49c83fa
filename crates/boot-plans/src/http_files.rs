// SPDX-License-Identifier: Apache-2.0
//! The files of the HTTP file service: scripts by MAC address, boot loaders, and the files of plans under
//! unguessable names.
//!
//! | path | file |
//! |---|---|
//! | `/boot.ipxe` | the script that looks for a script of each NIC |
//! | `/pxelinux.cfg/52-54-00-aa-bb-01` | the script of this MAC address |
//! | `/snponly.efi` and others | boot loaders |
//! | `/discovery/kernel`, `/discovery/ramdisk` | the agent, for unknown machines |
//! | `/image/<node>/<sealed offer>` | the image of an instance, for the agent that writes it |
//! | `/vmedia/<node>/<token>/cdrom.iso` | an image that a user has attached, for the BMC |
//! | `/<key>/kernel`, `ramdisk`, `boot.efi`, `boot.iso`, `config-drive.iso` | the files of a plan |

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use boot_media::Content;
use boot_server::http::{BootHttpRequest, HttpFile, HttpFileRefusal, HttpFiles, HttpRefusalReason};
use bytes::Bytes;
use error_chain::error_chain;
use node_model::{BootMethod, BootPlan, BootPort, Mac, NodeId};

use crate::loader_delivery::LoaderDelivery;
use crate::plan_files::{PlanFile, PlanFileError, ServedFile};
use crate::scripts;
use crate::services::BootServices;

/// Retry delay for clients that request a file which is not available yet.
const RETRY_AFTER: Duration = Duration::from_secs(5);

const TEXT_MEDIA_TYPE: &str = "text/plain; charset=utf-8";

/// A script or boot loader configuration for one MAC address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoaderScript {
    /// The text.
    pub text: String,
    /// The node of the MAC address; `None` for an unknown machine.
    pub node: Option<NodeId>,
}

#[async_trait]
impl HttpFiles for BootServices {
    async fn file(&self, request: &BootHttpRequest<'_>) -> Result<HttpFile, HttpFileRefusal> {
        let path = self.without_prefix(&request.path);
        match path.trim_start_matches('/').split_once('/') {
            None if path == "/boot.ipxe" => {
                Ok(text_file(scripts::IPXE_ROOT.into(), "boot.ipxe", None))
            }
            None => self.loader_file(path.trim_start_matches('/')),
            Some(("pxelinux.cfg", mac)) => self.ipxe_script_file(mac, request).await,
            Some(("discovery", name)) => self.discovery_image_file(name),
            Some(("image", name)) => self.instance_image_file(name).await,
            Some(("vmedia", name)) => self.attached_medium_file(name).await,
            Some((key, name)) => self.plan_file(key, name).await,
        }
    }
}

impl BootServices {
    /// Removes the path of a proxy.
    fn without_prefix<'a>(&self, path: &'a str) -> &'a str {
        let prefix = self.0.settings.path_prefix.as_deref();
        let rest = prefix.and_then(|prefix| path.strip_prefix(prefix));
        rest.filter(|rest| rest.starts_with('/')).unwrap_or(path)
    }

    /// Returns the text called `name` (`boot.ipxe`, `pxelinux.cfg` or `grub.cfg`) for the boot
    /// configuration API, without secrets; `None` if the MAC address has nothing to boot, or the text
    /// would lead to a secret.
    pub async fn boot_config(
        &self,
        mac: &Mac,
        name: &str,
    ) -> Result<Option<LoaderScript>, store::StoreError> {
        let files = self.0.service_urls().files;
        match self.boot_port(mac).await? {
            Some(port) if self.loader_plan(&port).is_some() => {
                Ok(self.script_for_port(&port, name, &files, None).await?.ok().flatten())
            }
            Some(_) => Ok(None),
            None => Ok(self.script_for_unknown_machine(name, &files)),
        }
    }

    /// Returns the text called `name` for a booting machine; if the node has nothing to boot, the text
    /// boots the disk. `files` is the URL of the file service.
    pub(crate) async fn loader_script(
        &self,
        mac: &Mac,
        name: &str,
        files: &str,
        client: IpAddr,
    ) -> Result<Result<Option<LoaderScript>, ScriptWithheld>, store::StoreError> {
        match self.boot_port(mac).await? {
            Some(port) => self.script_for_port(&port, name, files, Some(client)).await,
            None => Ok(Ok(self.script_for_unknown_machine(name, files))),
        }
    }

    pub(crate) async fn boot_port(&self, mac: &Mac) -> Result<Option<BootPort>, store::StoreError> {
        let mac = mac.clone();
        Ok(self.0.store.read(move |reader| reader.boot_ports(&[mac])).await?.pop())
    }

    fn script_for_unknown_machine(&self, name: &str, files: &str) -> Option<LoaderScript> {
        if name != IPXE_SCRIPT {
            return None;
        }
        self.discovery_script(files).map(|text| LoaderScript { text, node: None })
    }

    /// Returns the plan that boot loaders may read. Virtual media are for the BMC alone: any client can
    /// request these texts, and would get the key of the ISO and the agent token.
    fn loader_plan<'a>(&self, port: &'a BootPort) -> Option<&'a BootPlan> {
        port.plan.as_ref().filter(|plan| {
            plan.is_valid(self.0.now())
                && port.pxe_enabled
                && plan.method != BootMethod::VirtualMedia
        })
    }

    async fn script_for_port(
        &self,
        port: &BootPort,
        name: &str,
        files: &str,
        client: Option<IpAddr>,
    ) -> Result<Result<Option<LoaderScript>, ScriptWithheld>, store::StoreError> {
        let plan = match self.loader_plan(port) {
            None => None,
            Some(plan) => match self.loader_delivery(port, plan, client).await? {
                LoaderDelivery::Complete => Some(Cow::Borrowed(plan)),
                LoaderDelivery::WithoutSecrets => Some(Cow::Owned(plan.without_secrets())),
                LoaderDelivery::Withheld => {
                    tracing::warn!(
                        node = %port.node_id,
                        mac = %port.mac,
                        ?client,
                        "boot script withheld: the client has no DHCP lease of this process for the node"
                    );
                    return Ok(Err(ScriptWithheld { node: port.node_id }));
                }
            },
        };
        let text = loader_text(name, plan.as_deref(), port, files);
        Ok(Ok(text.map(|text| LoaderScript { text, node: Some(port.node_id) })))
    }

    async fn ipxe_script_file(
        &self,
        mac: &str,
        request: &BootHttpRequest<'_>,
    ) -> Result<HttpFile, HttpFileRefusal> {
        let title = || format!("iPXE script of {mac}");
        let refuse = |reason| HttpFileRefusal::new(reason).with_title(title());
        let mac: Mac = mac.parse().map_err(|_| refuse(HttpRefusalReason::NotFound))?;
        let files = self.files_url_for_host(request.host);
        let client = request.client.ip();
        let script =
            self.loader_script(&mac, IPXE_SCRIPT, &files, client).await.map_err(|error| {
                tracing::warn!(%error, %mac, "boot plan lookup failed");
                refuse(unavailable("the database is not available"))
            })?;
        let script = script.map_err(|ScriptWithheld { node }| {
            let title = format!("{} withheld, no DHCP lease of the machine", title());
            let refusal = HttpFileRefusal::new(HttpRefusalReason::Forbidden).with_title(title);
            refusal.for_machine(node.to_string())
        })?;
        let script = script.ok_or_else(|| refuse(HttpRefusalReason::NotFound))?;
        let node = script.node.map(|node| node.to_string().into());
        Ok(text_file(script.text.into(), &title(), node))
    }

    /// Returns the URL of the file service under the host name that the client used, so that machines on
    /// every network can reach it; unless `boot.http_url` is set.
    fn files_url_for_host(&self, host: Option<&str>) -> String {
        let files = self.0.service_urls().files;
        let is_plain = |host: &str| {
            !host.is_empty()
                && host.len() <= 255
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
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

    fn loader_file(&self, name: &str) -> Result<HttpFile, HttpFileRefusal> {
        let content = self.0.plan_files.loaders().open(name);
        let content = content.ok_or_else(|| HttpFileRefusal::new(HttpRefusalReason::NotFound))?;
        let media_type = "application/efi";
        Ok(HttpFile { content, media_type, etag: None, title: name.into(), machine: None })
    }

    fn discovery_image_file(&self, name: &str) -> Result<HttpFile, HttpFileRefusal> {
        let title: Arc<str> = format!("the {name} for unknown machines").into();
        let refuse = |reason| HttpFileRefusal::new(reason).with_title(Arc::clone(&title));
        let file = PlanFile::from_name(name)
            .ok_or_else(|| HttpFileRefusal::new(HttpRefusalReason::NotFound))?;
        match self.discovery_file(file) {
            Some(ServedFile { content, etag, .. }) => Ok(HttpFile {
                content,
                media_type: file.media_type(),
                etag: Some(etag),
                title,
                machine: None,
            }),
            None if self.discovery_script("").is_some() => {
                Err(refuse(unavailable("the agent for unknown machines is not fetched yet")))
            }
            None => Err(refuse(HttpRefusalReason::NotFound)),
        }
    }

    /// Returns a file of the plan with this key.
    async fn plan_file(&self, key: &str, name: &str) -> Result<HttpFile, HttpFileRefusal> {
        let not_found = || HttpFileRefusal::new(HttpRefusalReason::NotFound);
        let file = PlanFile::from_name(name).ok_or_else(not_found)?;
        let plan = self.plan_by_key(key).await.map_err(|error| {
            tracing::warn!(%error, "boot plan lookup failed");
            HttpFileRefusal::new(unavailable("the database is not available"))
        })?;
        let plan = plan.ok_or_else(not_found)?;
        let node: Arc<str> = plan.node_id.to_string().into();
        let title: Arc<str> = format!("{name} of the {}", plan.purpose).into();
        let refuse = |reason| {
            HttpFileRefusal::new(reason)
                .with_title(Arc::clone(&title))
                .for_machine(Arc::clone(&node))
        };
        if !plan.is_valid(self.0.now()) {
            return Err(refuse(HttpRefusalReason::Gone));
        }
        match self.0.plan_files.get(&plan, file).await {
            Ok(served) => Ok(HttpFile {
                content: served.content,
                media_type: file.media_type(),
                etag: Some(served.etag),
                title,
                machine: Some(node),
            }),
            Err(PlanFileError::NoSuchFile) => Err(refuse(HttpRefusalReason::NotFound)),
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(node = %plan.node_id, error, "boot plan file could not be served");
                let refusal =
                    refuse(unavailable("the boot files of this machine are not available"));
                Err(refusal.with_title(format!("{title} unavailable ({error})")))
            }
        }
    }

    pub(crate) async fn plan_by_key(
        &self,
        key: &str,
    ) -> Result<Option<BootPlan>, store::StoreError> {
        let key = key.to_owned();
        self.0.store.read(move |reader| reader.boot_plan_by_key(&key)).await
    }
}

/// A script was not delivered, because it leads to a secret and the client may not be the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScriptWithheld {
    pub(crate) node: NodeId,
}

/// Returns the text called `name`; without a plan it boots the disk.
fn loader_text(
    name: &str,
    plan: Option<&BootPlan>,
    port: &BootPort,
    files: &str,
) -> Option<String> {
    match (name, plan) {
        (IPXE_SCRIPT, Some(plan)) => Some(scripts::ipxe(plan, &format!("{files}/{}", plan.key))),
        (IPXE_SCRIPT, None) => Some(scripts::IPXE_LOCAL.to_owned()),
        (PXELINUX_CONFIG, Some(plan)) => scripts::pxelinux(plan, &plan.key),
        (PXELINUX_CONFIG, None) => Some(scripts::PXELINUX_LOCAL.to_owned()),
        (GRUB_CONFIG, Some(plan)) => scripts::grub(plan, &plan.key, &port.mac),
        (GRUB_CONFIG, None) => Some(scripts::GRUB_LOCAL.to_owned()),
        (_, _) => None,
    }
}

pub(crate) const IPXE_SCRIPT: &str = "boot.ipxe";
pub(crate) const PXELINUX_CONFIG: &str = "pxelinux.cfg";
pub(crate) const GRUB_CONFIG: &str = "grub.cfg";

fn text_file(text: Bytes, title: &str, machine: Option<Arc<str>>) -> HttpFile {
    HttpFile {
        content: Content::from(text),
        media_type: TEXT_MEDIA_TYPE,
        etag: None,
        title: title.into(),
        machine,
    }
}

pub(crate) fn unavailable(reason: &str) -> HttpRefusalReason {
    HttpRefusalReason::Unavailable { reason: reason.into(), retry_after: RETRY_AFTER }
}
