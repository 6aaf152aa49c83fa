// SPDX-License-Identifier: Apache-2.0
//! The files of a boot plan: kernel, ramdisk, unified kernel image, boot ISO and config drive.
//!
//! None of them is written to disk. Each is created in memory on the first request, as a list of ranges
//! of cached images, and stays in memory while it is read: BMCs read ISOs in thousands of small ranges.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use boot_media::boot_iso::{BootIso, NETWORK_DATA_PATH};
use boot_media::config_drive::{self, ConfigDrive, ConfigDriveOwner, DriveFormat};
use boot_media::uki::{UkiError, UkiParts};
use boot_media::{Content, FileTree};
use bytes::Bytes;
use images::{
    CacheRequest, CachedImage, ExpectedChecksum, ImageCache, ImageKind, ImageSource,
    ImageSourceError, OciReference,
};
use node_model::{BootImage, BootPlan, BootSystem, InstallerFiles};
use serde_json::Value;

use crate::agent_trust::{AgentTrustArchive, with_trust};
use crate::boot_service::has_own_image;
use crate::loaders::BootLoaders;

/// Maximum number of files in memory. Each takes some kilobytes and its open file descriptors.
const MAX_FILES: usize = 2048;
/// Time after which an unread file is dropped. Until then the cache cannot evict its images.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum size of a fetched config drive: 64 MiB in base64, with a margin.
const MAX_PACKED_DRIVE_BYTES: u64 = 96 << 20;

/// A file of a boot plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PlanFile {
    Kernel,
    Ramdisk,
    UnifiedImage,
    BootIso,
    ConfigDrive,
    Kickstart,
    SecondStage,
    /// The archive that an installer installs; the suffix of its URL states its format.
    InstalledImage,
    /// The image that an agent writes to the disk. It does not belong to a plan.
    InstanceImage,
}

/// A file that is ready to be sent.
#[derive(Clone)]
pub(crate) struct ServedFile {
    pub(crate) content: Content,
    pub(crate) etag: Arc<str>,
    /// Keeps the images of the content in the cache.
    _images: Arc<[CachedImage]>,
}

/// Why a file of a plan cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanFileError {
    #[error("the plan has no such file")]
    NoSuchFile,
    #[error(transparent)]
    Image(#[from] Arc<images::ImageError>),
    #[error("{0}")]
    InvalidImage(String),
    #[error("the image cannot be opened")]
    Open(#[source] std::io::Error),
    #[error("the process is shutting down")]
    ShuttingDown,
    #[error(transparent)]
    Stub(#[from] crate::loaders::UefiStubError),
    #[error("cannot build a unified kernel image")]
    Unified(#[source] UkiError),
    #[error("cannot build the boot ISO")]
    BootIso(#[source] boot_media::boot_iso::BootIsoError),
    #[error("invalid config drive: {0}")]
    ConfigDrive(String),
}

/// Creates the files of plans and keeps them in memory.
pub(crate) struct PlanFiles {
    cache: ImageCache,
    loaders: BootLoaders,
    files: Mutex<ServedFileCache>,
    agent_trust: OnceLock<AgentTrustArchive>,
}

/// Files in memory by plan key, with the time of their last use.
#[derive(Default)]
struct ServedFileCache {
    files: HashMap<(String, PlanFile), (Instant, ServedFile)>,
}

impl ServedFile {
    /// Opens a cached image.
    pub(crate) fn from_image(entry: CachedImage) -> Result<Self, PlanFileError> {
        let content = Content::open(&entry.path).map_err(PlanFileError::Open)?;
        Ok(Self { content, etag: hex::encode(entry.sha256).into(), _images: Arc::new([entry]) })
    }
}

impl ServedFile {
    /// Returns the file with other content, which contains the previous one.
    pub(crate) fn with_content(self, content: Content, etag: String) -> Self {
        Self { content, etag: etag.into(), ..self }
    }
}

impl PlanFile {
    const TABLE: &[(&str, Self, &str)] = &[
        ("kernel", Self::Kernel, "application/octet-stream"),
        ("ramdisk", Self::Ramdisk, "application/octet-stream"),
        ("boot.efi", Self::UnifiedImage, "application/efi"),
        ("boot.iso", Self::BootIso, "application/vnd.efi-iso"),
        ("config-drive.iso", Self::ConfigDrive, "application/octet-stream"),
        ("ks.cfg", Self::Kickstart, "text/plain; charset=utf-8"),
        // The path that Anaconda appends to inst.stage2.
        ("LiveOS/squashfs.img", Self::SecondStage, "application/octet-stream"),
        ("image", Self::InstalledImage, "application/octet-stream"),
    ];

    /// Returns the file with this name. The name of the installed image may have a suffix.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let installed = |name: &&str| name.starts_with("image.");
        let name = Some(name).filter(|name| !installed(name)).unwrap_or("image");
        Self::TABLE.iter().find(|(known, ..)| *known == name).map(|(_, file, _)| *file)
    }

    /// Returns the name of the file in URLs.
    pub(crate) fn name(self) -> &'static str {
        Self::TABLE.iter().find(|(_, file, _)| *file == self).map_or("", |(name, ..)| name)
    }

    /// Returns the media type, which UEFI firmware uses if the URL has no known suffix.
    pub(crate) fn media_type(self) -> &'static str {
        let row = Self::TABLE.iter().find(|(_, file, _)| *file == self);
        row.map_or("application/octet-stream", |(.., media)| media)
    }
}

impl PlanFiles {
    pub(crate) fn new(cache: ImageCache, loaders: BootLoaders) -> Self {
        Self { cache, loaders, files: Mutex::default(), agent_trust: OnceLock::new() }
    }

    /// Returns the image cache.
    pub(crate) const fn cache(&self) -> &ImageCache {
        &self.cache
    }

    /// The CA certificates for agents.
    pub(crate) const fn agent_trust(&self) -> &OnceLock<AgentTrustArchive> {
        &self.agent_trust
    }

    pub(crate) fn loaders(&self) -> &BootLoaders {
        &self.loaders
    }

    /// Returns a file of a plan.
    pub(crate) async fn get(
        &self,
        plan: &BootPlan,
        file: PlanFile,
    ) -> Result<ServedFile, PlanFileError> {
        let key = (plan.key.clone(), file);
        if let Some(served) = self.lock().get(&key) {
            return Ok(served);
        }
        let served = self.create(plan, file).await?;
        self.lock().insert(key, &served);
        Ok(served)
    }

    /// Drops the files of a withdrawn plan.
    pub(crate) fn remove_plan(&self, key: &str) {
        self.lock().files.retain(|(plan_key, _), _| plan_key != key);
    }

    /// Drops unread files, also those of plans that another process withdrew.
    pub(crate) fn evict_idle(&self) {
        self.lock().evict_idle(IDLE_TIMEOUT);
    }

    /// Fetches and opens an image.
    pub(crate) async fn open_image(
        &self,
        image: &BootImage,
        kind: ImageKind,
    ) -> Result<ServedFile, PlanFileError> {
        ServedFile::from_image(self.fetch(image, kind).await?)
    }

    /// Returns a file that is in memory.
    pub(crate) fn cached(&self, key: &(String, PlanFile)) -> Option<ServedFile> {
        self.lock().get(key)
    }

    /// Keeps a file in memory while it is read.
    pub(crate) fn insert(&self, key: (String, PlanFile), served: &ServedFile) {
        self.lock().insert(key, served);
    }

    /// Fetches and verifies an image. The fetch continues if the caller is dropped, so that the retry of
    /// a machine that timed out finds the download advanced.
    pub(crate) async fn fetch(
        &self,
        image: &BootImage,
        kind: ImageKind,
    ) -> Result<CachedImage, PlanFileError> {
        let invalid =
            |error: &dyn std::fmt::Display| PlanFileError::InvalidImage(error.to_string());
        let source = ImageSource::parse(&image.source).map_err(|error| invalid(&error))?;
        let mut request = CacheRequest::new(source, kind);
        if let Some(checksum) = &image.checksum {
            request.checksum =
                Some(ExpectedChecksum::parse(checksum).map_err(|error| invalid(&error))?);
        }
        request.credentials =
            image.pull_secret.as_deref().map(images::ImageCredentials::pull_secret);
        self.fetch_request(request).await
    }

    /// Returns the configured credentials for the registry of an image, as `user:password`.
    pub(crate) fn registry_login(&self, reference: &OciReference) -> Option<String> {
        self.cache.registry_login(reference)
    }

    /// Verifies the signature of a container and returns its reference by digest.
    pub(crate) async fn verify_container(
        &self,
        reference: &OciReference,
        credentials: Option<&images::ImageCredentials>,
    ) -> Result<OciReference, images::ImageError> {
        self.cache.verify_container(reference, credentials).await
    }

    /// Checks that the source of an image may be used, without fetching it.
    pub(crate) fn check_source(&self, source: &ImageSource) -> Result<(), ImageSourceError> {
        self.cache.check_source(source)
    }

    /// Fetches and verifies an image.
    pub(crate) async fn fetch_request(
        &self,
        request: CacheRequest,
    ) -> Result<CachedImage, PlanFileError> {
        let cache = self.cache.clone();
        let fetching = tokio::spawn(async move { cache.get(&request).await });
        Ok(fetching.await.map_err(|_| PlanFileError::ShuttingDown)??)
    }

    async fn create(&self, plan: &BootPlan, file: PlanFile) -> Result<ServedFile, PlanFileError> {
        match (file, &plan.system) {
            (PlanFile::Kernel, BootSystem::Kernel { kernel, .. }) => {
                self.open_image(kernel, ImageKind::Kernel).await
            }
            (PlanFile::Ramdisk, BootSystem::Kernel { ramdisk, .. }) => {
                let ramdisk = self.open_image(ramdisk, ImageKind::Ramdisk).await?;
                Ok(with_trust(ramdisk, self.trust_of(plan)))
            }
            (PlanFile::BootIso, BootSystem::Iso { image }) => {
                self.open_image(image, ImageKind::Iso).await
            }
            (PlanFile::UnifiedImage | PlanFile::BootIso, BootSystem::Kernel { .. }) => {
                self.build_unified_image(plan, file).await
            }
            (PlanFile::InstanceImage, _) => Err(PlanFileError::NoSuchFile),
            (PlanFile::Kickstart, _) => {
                let text = installer_files(plan)?.kickstart.clone();
                let content = Content::from(Bytes::from(text));
                Ok(ServedFile { content, etag: plan_etag(plan, file), _images: Arc::new([]) })
            }
            (PlanFile::SecondStage, _) => {
                self.open_optional_image(installer_files(plan)?.stage2.as_ref()).await
            }
            (PlanFile::InstalledImage, _) => {
                self.open_optional_image(installer_files(plan)?.image.as_ref()).await
            }
            (PlanFile::ConfigDrive, _) => {
                let content = self.config_drive(plan).await?;
                Ok(ServedFile { content, etag: plan_etag(plan, file), _images: Arc::new([]) })
            }
            (
                PlanFile::Kernel | PlanFile::Ramdisk | PlanFile::UnifiedImage,
                BootSystem::Iso { .. },
            ) => Err(PlanFileError::NoSuchFile),
        }
    }

    async fn config_drive(&self, plan: &BootPlan) -> Result<Content, PlanFileError> {
        let invalid = |error: &dyn std::fmt::Display| PlanFileError::ConfigDrive(error.to_string());
        let Some(text) = &plan.config_drive else { return Err(PlanFileError::NoSuchFile) };
        let value = config_drive_value(text);
        match ConfigDrive::parse(&value).map_err(|error| invalid(&error))? {
            None => Err(PlanFileError::NoSuchFile),
            Some(ConfigDrive::Url(url)) => {
                let source = url.to_owned();
                self.fetch_config_drive(&BootImage { source, checksum: None, pull_secret: None })
                    .await
            }
            Some(ConfigDrive::Packed(packed)) => unpack_config_drive(packed.as_bytes().to_vec()),
            Some(ConfigDrive::Parts(mut parts)) => {
                // Only one medium may be labelled config-2, so the network data of the ISO goes here.
                let network = match &plan.system {
                    BootSystem::Kernel { network_data, .. } => network_data.parse(),
                    BootSystem::Iso { .. } => serde_json::Map::new(),
                };
                if parts.network_data.is_none() && !network.is_empty() {
                    parts.network_data = Some(&network);
                }
                let uuid = plan.node_id.to_string();
                let owner = ConfigDriveOwner { uuid: &uuid, name: None };
                parts.build(owner).map_err(|error| invalid(&error))
            }
        }
    }

    /// Fetches a config drive and unpacks it.
    pub(crate) async fn fetch_config_drive(
        &self,
        image: &BootImage,
    ) -> Result<Content, PlanFileError> {
        // As a ramdisk, since that kind allows every format; the format is checked after unpacking.
        let entry = self.fetch(image, ImageKind::Ramdisk).await?;
        if entry.size > MAX_PACKED_DRIVE_BYTES {
            let why = "it is larger than the maximum size of a config drive";
            return Err(PlanFileError::ConfigDrive(why.to_owned()));
        }
        unpack_config_drive(tokio::fs::read(&entry.path).await.map_err(PlanFileError::Open)?)
    }

    /// Opens an image; fails with `NoSuchFile` if the plan does not have it.
    async fn open_optional_image(
        &self,
        image: Option<&BootImage>,
    ) -> Result<ServedFile, PlanFileError> {
        self.open_image(image.ok_or(PlanFileError::NoSuchFile)?, ImageKind::Ramdisk).await
    }

    /// Builds a unified kernel image, alone or in a boot ISO.
    async fn build_unified_image(
        &self,
        plan: &BootPlan,
        file: PlanFile,
    ) -> Result<ServedFile, PlanFileError> {
        // The key of another plan is in scripts that any client may read.
        let plan = match has_own_image(plan.method) {
            true => Cow::Borrowed(plan),
            false => Cow::Owned(plan.without_secrets()),
        };
        let BootSystem::Kernel { kernel, ramdisk, parameters, network_data } = &plan.system else {
            return Err(PlanFileError::NoSuchFile);
        };
        let kernel = self.fetch(kernel, ImageKind::Kernel).await?;
        let ramdisk = self.fetch(ramdisk, ImageKind::Ramdisk).await?;
        let trust = self.trust_of(&plan).map(AgentTrustArchive::content);
        let main = Content::open(&ramdisk.path).map_err(PlanFileError::Open)?;
        let parts = UkiParts {
            kernel: Content::open(&kernel.path).map_err(PlanFileError::Open)?,
            ramdisks: trust.into_iter().chain([main]).collect(),
            command_line: parameters.join(" "),
            ..UkiParts::default()
        };
        let (stub, stub_name) = self.loaders.stub()?;
        let image = stub.build(&parts).map_err(PlanFileError::Unified)?;
        let content = if file == PlanFile::UnifiedImage {
            image
        } else {
            let mut files = FileTree::new();
            if !network_data.is_empty() && plan.config_drive.is_none() {
                let bytes = Bytes::from(network_data.as_str().to_owned());
                files.insert(NETWORK_DATA_PATH, Content::from(bytes)).expect("the path is valid");
            }
            let publisher = plan.node_id.to_string();
            let architecture = stub.architecture();
            BootIso { image: &image, architecture, files, publisher: Some(&publisher) }
                .layout()
                .map_err(PlanFileError::BootIso)?
        };
        let etag = format!("{}-{stub_name}", plan_etag(&plan, file)).into();
        Ok(ServedFile { content, etag, _images: Arc::new([kernel, ramdisk]) })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ServedFileCache> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServedFileCache {
    fn get(&mut self, key: &(String, PlanFile)) -> Option<ServedFile> {
        let (last_used, served) = self.files.get_mut(key)?;
        *last_used = Instant::now();
        Some(served.clone())
    }

    fn insert(&mut self, key: (String, PlanFile), served: &ServedFile) {
        self.evict_idle(IDLE_TIMEOUT);
        if self.files.len() >= MAX_FILES {
            // Evicts the least recently used half at once, so that this is seldom done.
            let mut uses: Vec<Instant> = self.files.values().map(|(used, _)| *used).collect();
            uses.sort_unstable();
            let median = uses[uses.len() / 2];
            self.files.retain(|_, (last_used, _)| *last_used > median);
        }
        self.files.insert(key, (Instant::now(), served.clone()));
    }

    fn evict_idle(&mut self, idle: Duration) {
        self.files.retain(|_, (last_used, _)| last_used.elapsed() < idle);
    }
}

fn installer_files(plan: &BootPlan) -> Result<&InstallerFiles, PlanFileError> {
    plan.installer.as_ref().ok_or(PlanFileError::NoSuchFile)
}

/// Unpacks a config drive if it is packed, and checks that its format can be mounted.
fn unpack_config_drive(bytes: Vec<u8>) -> Result<Content, PlanFileError> {
    let invalid = |error: &dyn std::fmt::Display| PlanFileError::ConfigDrive(error.to_string());
    let image = match std::str::from_utf8(&bytes) {
        Ok(packed) => config_drive::unpack(packed).map_err(|error| invalid(&error))?,
        Err(_) => bytes,
    };
    match config_drive::detect_format(&image) {
        DriveFormat::Iso9660 | DriveFormat::Fat => Ok(Content::from(Bytes::from(image))),
        DriveFormat::Unknown => Err(invalid(&"it is neither an ISO 9660 nor a FAT image")),
    }
}

/// Parses a stored config drive. Contents are stored as JSON text; the other forms never start with a
/// brace.
fn config_drive_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(parts @ Value::Object(_)) => parts,
        Ok(_) | Err(_) => Value::String(text.to_owned()),
    }
}

/// Returns the ETag of a generated file: its bytes depend only on the plan, and a plan never changes.
fn plan_etag(plan: &BootPlan, file: PlanFile) -> Arc<str> {
    format!("{:x}-{}", plan.created_at.0, file.name()).into()
}
