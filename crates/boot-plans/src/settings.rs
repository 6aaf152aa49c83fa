// SPDX-License-Identifier: Apache-2.0
//! Settings of the boot services and of images.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use images::signature::SignaturePolicy;
use serde::{Deserialize, Serialize};

/// Settings of the boot services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BootServiceSettings {
    /// Whether the boot services run. Without them, machines boot from other servers, and virtual media
    /// only from ISO images that nodes name.
    pub enabled: bool,
    /// Addresses and ports of the HTTP file service; by default port 6180 of the API's address and of
    /// this host's address on each DHCP network.
    pub listen: Vec<SocketAddr>,
    /// URL of the file service for machines; by default the address on the network that they boot from.
    pub http_url: Option<String>,
    /// URL of the HTTPS file service for agents, if it differs from its address. With `http_url` and without
    /// this key, agents use `http_url`.
    pub https_url: Option<String>,
    /// Path below which a proxy, such as an Ingress, passes requests to the file service without removing it,
    /// such as `/images`. Files are served with and without it; add it to the URLs that lead through the proxy.
    pub path_prefix: Option<String>,
    /// URL of the file service for BMCs, if it differs.
    pub external_http_url: Option<String>,
    /// URL of the API for the agent; by default `api.public_endpoint`, or the address of the API.
    pub api_url: Option<String>,
    /// URL of the API for agents that were booted from virtual media, if it differs.
    pub external_callback_url: Option<String>,
    /// Interfaces on which the API is announced by multicast DNS, for agents with `ipa-api-url=mdns`.
    /// These agents trust any reply, so use trusted networks only.
    pub mdns_interfaces: Vec<String>,
    /// Addresses and ports of the HTTPS file service, which agents use; by default port 6183 of the
    /// addresses of the HTTP file service if the API uses TLS. Its certificate is the one of the API.
    pub tls_listen: Vec<SocketAddr>,
    /// The URL of the agent's kernel, for nodes without one; by default the result of
    /// `ferrite ramdisk build`.
    pub deploy_kernel: Option<String>,
    /// The URL of the agent's ramdisk, for nodes without one; by default the result of
    /// `ferrite ramdisk build`.
    pub deploy_ramdisk: Option<String>,
    /// The URL of the rescue kernel, for nodes without one; by default the agent's.
    pub rescue_kernel: Option<String>,
    /// The URL of the rescue ramdisk, for nodes without one; by default the agent's.
    pub rescue_ramdisk: Option<String>,
    /// The agent's kernel by `properties.cpu_arch` of the node.
    pub deploy_kernel_by_arch: BTreeMap<String, String>,
    /// The agent's ramdisk by `properties.cpu_arch` of the node.
    pub deploy_ramdisk_by_arch: BTreeMap<String, String>,
    /// Kernel parameters of the ramdisk.
    pub kernel_append_params: String,
    /// Additional kernel parameters of the ramdisk for inspections.
    pub inspection_kernel_params: String,
    /// The URL of the kickstart template, for instances without one; by default the built-in template.
    pub default_ks_template: Option<String>,
    /// Whether installers send heartbeats without verifying the certificate of the API.
    pub insecure_heartbeat: bool,
    /// Seconds for which the files of a ramdisk are served after its boot was prepared.
    pub url_lifetime: u64,
    /// The source of ISO images that nodes name: `local`, from the file service, after verification, or
    /// `http`, from the URL of the node.
    pub ramdisk_image_download_source: IsoDownloadSource,
    /// Directories with boot loaders (`undionly.kpxe`, `snponly.efi`, …), searched before those of
    /// Debian packages.
    pub loader_dirs: Vec<PathBuf>,
    /// The stub of unified kernel images; by default that of Debian's `systemd-boot-efi`.
    pub uefi_stub: Option<PathBuf>,
}

/// The source of an ISO image that a node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsoDownloadSource {
    /// The file service, after the image was fetched and verified.
    Local,
    /// The URL of the node.
    Http,
}

/// Settings of the image cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImageSettings {
    /// Directory of the image cache; by default `images` in the data directory.
    pub cache_dir: Option<PathBuf>,
    /// Maximum size of the cache, in GiB.
    pub cache_size: u64,
    /// Maximum size of a download, in GiB.
    pub largest_download: u64,
    /// Maximum virtual size of a disk image, in GiB.
    pub largest_disk: u64,
    /// How many times larger than its file an unpacked image may be, if it is larger than 32 GiB. Limits the
    /// processor time for small files of large empty disks.
    pub largest_expansion: u64,
    /// Fetch images from loopback and link-local addresses, also after a redirect. Users who may deploy
    /// can then read everything that is served to this host only, such as the metadata service of a cloud.
    pub allow_local_urls: bool,
    /// Directories whose files may be used as `file://` images.
    pub file_url_allowed_paths: Vec<PathBuf>,
    /// Accept MD5 checksums, which can be forged.
    pub allow_md5: bool,
    /// CA certificates (PEM) for image servers, instead of those of this host.
    pub ca_file: Option<PathBuf>,
    /// A docker `config.json` with credentials for container registries.
    pub registry_credentials: Option<PathBuf>,
    /// Container registries that are accessed without TLS, as `host:port`.
    pub plain_http_registries: Vec<String>,
    /// Public keys (PEM, Ed25519, ECDSA P-256 or RSA) for image signatures.
    pub signing_keys: Vec<PathBuf>,
    /// Whether kernels must be signed with one of these keys: `off`, `when-present` or `required`.
    pub kernel_signatures: SignaturePolicy,
    /// Whether ramdisks must be signed.
    pub ramdisk_signatures: SignaturePolicy,
    /// Whether disk images must be signed, and containers that `bootc` installs.
    pub disk_image_signatures: SignaturePolicy,
    /// Whether ISO images must be signed.
    pub iso_signatures: SignaturePolicy,
}

impl Default for BootServiceSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: Vec::new(),
            http_url: None,
            https_url: None,
            path_prefix: None,
            external_http_url: None,
            api_url: None,
            external_callback_url: None,
            mdns_interfaces: Vec::new(),
            tls_listen: Vec::new(),
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
            ramdisk_image_download_source: IsoDownloadSource::Local,
            loader_dirs: Vec::new(),
            uefi_stub: None,
        }
    }
}

impl ImageSettings {
    /// Whether any images must be signed.
    #[must_use]
    pub fn requires_signatures(&self) -> bool {
        [
            self.kernel_signatures,
            self.ramdisk_signatures,
            self.disk_image_signatures,
            self.iso_signatures,
        ]
        .iter()
        .any(|policy| *policy != SignaturePolicy::Off)
    }
}

impl Default for ImageSettings {
    fn default() -> Self {
        Self {
            cache_dir: None,
            cache_size: 20,
            largest_download: 64,
            largest_disk: 1024,
            largest_expansion: 256,
            allow_local_urls: false,
            file_url_allowed_paths: vec![PathBuf::from("/var/lib/ferrite/images")],
            allow_md5: false,
            ca_file: None,
            registry_credentials: None,
            plain_http_registries: Vec::new(),
            signing_keys: Vec::new(),
            kernel_signatures: SignaturePolicy::default(),
            ramdisk_signatures: SignaturePolicy::default(),
            disk_image_signatures: SignaturePolicy::default(),
            iso_signatures: SignaturePolicy::default(),
        }
    }
}
