// SPDX-License-Identifier: Apache-2.0
//! What an operator may say about booting and about images.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use images::signature::Policy;
use serde::{Deserialize, Serialize};

/// How machines boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Whether what machines boot is served at all. Without, machines get from the network what
    /// other servers give them, and virtual media only from ISO images that nodes name.
    pub enabled: bool,
    /// Addresses and ports of the HTTP file service; by default port 6180 of the API's address and of
    /// our address on each DHCP network.
    pub listen: Vec<SocketAddr>,
    /// Where machines reach the file service; by default where it listens on the network that they
    /// boot from.
    pub http_url: Option<String>,
    /// Where BMCs reach the file service, if that is not where machines do.
    pub external_http_url: Option<String>,
    /// Where the ramdisk agent reaches the API; by default `api.public_endpoint`, or where the API
    /// listens.
    pub api_url: Option<String>,
    /// Where the agent on a machine booted from virtual media reaches the API, if that is elsewhere.
    pub external_callback_url: Option<String>,
    /// Interfaces on which the API is offered by multicast DNS, for agents that were told
    /// `ipa-api-url=mdns`. Whoever answers is believed there: name only networks that are trusted.
    pub mdns_interfaces: Vec<String>,
    /// The certificate chain (PEM) of the file service. With it and a key it speaks https.
    pub tls_certificate: Option<PathBuf>,
    /// The key (PEM) of that certificate.
    pub tls_key: Option<PathBuf>,
    /// The URL of the agent's kernel, for nodes that name none; by default the one that
    /// `ferrite ramdisk build` made.
    pub deploy_kernel: Option<String>,
    /// The URL of the agent's ramdisk, for nodes that name none; by default the one that
    /// `ferrite ramdisk build` made.
    pub deploy_ramdisk: Option<String>,
    /// The URL of the rescue system's kernel, for nodes that name none; by default the agent's.
    pub rescue_kernel: Option<String>,
    /// The URL of the rescue system's ramdisk, for nodes that name none; by default the agent's.
    pub rescue_ramdisk: Option<String>,
    /// The agent's kernel by `properties.cpu_arch` of the node.
    pub deploy_kernel_by_arch: BTreeMap<String, String>,
    /// The agent's ramdisk by `properties.cpu_arch` of the node.
    pub deploy_ramdisk_by_arch: BTreeMap<String, String>,
    /// Parameters for the ramdisk's kernel.
    pub kernel_append_params: String,
    /// More parameters for the ramdisk's kernel when it inspects.
    pub inspection_kernel_params: String,
    /// The URL of the template that kickstarts are made of, for instances that name none; by default
    /// our own.
    pub default_ks_template: Option<String>,
    /// Whether installers call without looking at the certificate of the API.
    pub insecure_heartbeat: bool,
    /// Seconds for which the files of a ramdisk are served after its boot was prepared.
    pub url_lifetime: u64,
    /// Where ISO images that nodes name come from: `local`, from us, after they were checked, or
    /// `http`, straight from where the node says.
    pub ramdisk_image_download_source: DownloadSource,
    /// Folders with boot programs (`undionly.kpxe`, `snponly.efi`, …), looked in before those of
    /// Debian's packages.
    pub loader_dirs: Vec<PathBuf>,
    /// The stub that unified kernel images are made with; by default that of Debian's
    /// `systemd-boot-efi`.
    pub uefi_stub: Option<PathBuf>,
}

/// Where an ISO image comes from that a node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DownloadSource {
    /// From us, after it was fetched and checked.
    Local,
    /// From where the node says.
    Http,
}

/// Where images come from and what is let in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageSettings {
    /// Where fetched images are kept; by default `images` in the data directory.
    pub cache_dir: Option<PathBuf>,
    /// The most disk the cache takes, in GiB.
    pub cache_size: u64,
    /// The largest image to be downloaded, in GiB.
    pub largest_download: u64,
    /// The largest disk in an image, in GiB.
    pub largest_disk: u64,
    /// Folders from which `file://` images are taken.
    pub file_url_allowed_paths: Vec<PathBuf>,
    /// Take MD5 checksums, which can be forged.
    pub allow_md5: bool,
    /// Certificates (PEM) of the authorities that vouch for image servers, instead of this machine's.
    pub ca_file: Option<PathBuf>,
    /// A docker `config.json` with credentials for container registries.
    pub registry_credentials: Option<PathBuf>,
    /// Container registries that are spoken to without TLS, as `host:port`.
    pub plain_http_registries: Vec<String>,
    /// Public keys (PEM, Ed25519 or RSA) that images are signed with.
    pub signing_keys: Vec<PathBuf>,
    /// Whether kernels must be signed by one of these keys: `off`, `when-present` or `required`.
    pub kernel_signatures: Policy,
    /// Whether ramdisks must be signed.
    pub ramdisk_signatures: Policy,
    /// Whether disk images must be signed.
    pub disk_image_signatures: Policy,
    /// Whether ISO images must be signed.
    pub iso_signatures: Policy,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: Vec::new(),
            http_url: None,
            external_http_url: None,
            api_url: None,
            external_callback_url: None,
            mdns_interfaces: Vec::new(),
            tls_certificate: None,
            tls_key: None,
            deploy_kernel: None,
            deploy_ramdisk: None,
            rescue_kernel: None,
            rescue_ramdisk: None,
            deploy_kernel_by_arch: BTreeMap::new(),
            deploy_ramdisk_by_arch: BTreeMap::new(),
            kernel_append_params: "nofb vga=normal".to_owned(),
            inspection_kernel_params: "ipa-collect-lldp=1".to_owned(),
            default_ks_template: None,
            insecure_heartbeat: false,
            url_lifetime: 24 * 60 * 60,
            ramdisk_image_download_source: DownloadSource::Local,
            loader_dirs: Vec::new(),
            uefi_stub: None,
        }
    }
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_size: 20,
            largest_download: 64,
            largest_disk: 1024,
            file_url_allowed_paths: vec![PathBuf::from("/var/lib/ferrite/images")],
            allow_md5: false,
            ca_file: None,
            registry_credentials: None,
            plain_http_registries: Vec::new(),
            signing_keys: Vec::new(),
            kernel_signatures: Policy::default(),
            ramdisk_signatures: Policy::default(),
            disk_image_signatures: Policy::default(),
            iso_signatures: Policy::default(),
        }
    }
}
