// SPDX-License-Identifier: Apache-2.0
//! The files of a plan: kernel, ramdisk, unified kernel image, CD and config drive.
//!
//! None of them is written anywhere. Each is laid out in memory as a list of pieces of images in
//! the cache, when it is first asked for, and kept for as long as somebody may read on: BMCs read
//! CDs in thousands of small ranges.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use boot_media::boot_iso::{BootIso, NETWORK_DATA_PATH};
use boot_media::config_drive::{self, ConfigDrive, ImageKind, Owner};
use boot_media::uki::{Parts, UkiError};
use boot_media::{Content, FileTree};
use bytes::Bytes;
use images::{Cache, Entry, Expected, Kind, Reference, Request, Source};
use node_model::{BootImage, BootPlan, BootSystem, InstallerFiles};
use serde_json::Value;

use crate::hex::hex;
use crate::loaders::Loaders;

/// How many files are kept laid out. One takes some kilobytes and its open files.
const KEPT: usize = 2048;
/// How long a file is kept that nobody reads. While it is, the cache cannot drop its images.
const KEPT_FOR: Duration = Duration::from_secs(600);

/// The most bytes of a config drive as it is fetched: 64 MiB in base64, and some air.
const LARGEST_PACKED_DRIVE: u64 = 96 << 20;

/// A file of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Piece {
    Kernel,
    Ramdisk,
    UnifiedImage,
    Cd,
    ConfigDrive,
    Kickstart,
    SecondStage,
    /// What an installer installs. How its name ends says what it is.
    InstalledImage,
    /// What an agent writes to the disk. It belongs to no plan.
    InstanceImage,
}

/// A file as it is sent.
#[derive(Clone)]
pub(crate) struct Laid {
    pub(crate) content: Content,
    pub(crate) etag: Arc<str>,
    /// While these are there, the cache keeps what the content is made of.
    _images: Arc<[Entry]>,
}

/// Why a file cannot be laid out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LayoutError {
    #[error("the plan has no such file")]
    NoSuchPiece,
    #[error(transparent)]
    Image(#[from] Arc<images::Error>),
    #[error("{0}")]
    Address(String),
    #[error("the image cannot be opened")]
    Open(#[source] std::io::Error),
    #[error("the program is about to end")]
    Ended,
    #[error(transparent)]
    Stub(#[from] crate::loaders::StubMissing),
    #[error("the kernel, the ramdisk and the parameters do not make an image")]
    Unified(#[source] UkiError),
    #[error("the CD cannot be laid out")]
    Cd(#[source] boot_media::boot_iso::BootIsoError),
    #[error("the config drive cannot be used: {0}")]
    ConfigDrive(String),
}

/// The files that are laid out.
pub(crate) struct Layouts {
    cache: Cache,
    loaders: Loaders,
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    files: HashMap<(String, Piece), (Instant, Laid)>,
}

impl Laid {
    /// An image of the cache as it is.
    pub(crate) fn of(entry: Entry) -> Result<Self, LayoutError> {
        let content = Content::open(&entry.path).map_err(LayoutError::Open)?;
        Ok(Self { content, etag: hex(&entry.sha256).into(), _images: Arc::new([entry]) })
    }
}

impl Piece {
    const NAMES: &[(&str, Self, &str)] = &[
        ("kernel", Self::Kernel, "application/octet-stream"),
        ("ramdisk", Self::Ramdisk, "application/octet-stream"),
        ("boot.efi", Self::UnifiedImage, "application/efi"),
        ("boot.iso", Self::Cd, "application/vnd.efi-iso"),
        ("config-drive.iso", Self::ConfigDrive, "application/octet-stream"),
        ("ks.cfg", Self::Kickstart, "text/plain; charset=utf-8"),
        // Where Anaconda looks below the place that it is told.
        ("LiveOS/squashfs.img", Self::SecondStage, "application/octet-stream"),
        ("image", Self::InstalledImage, "application/octet-stream"),
    ];

    /// The file called `name`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let installed = |name: &&str| name.starts_with("image.");
        let name = Some(name).filter(|name| !installed(name)).unwrap_or("image");
        Self::NAMES.iter().find(|(known, ..)| *known == name).map(|(_, piece, _)| *piece)
    }

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, piece, _)| *piece == self).map_or("", |(name, ..)| name)
    }

    /// What it is. UEFI firmware goes by this when the name does not tell.
    pub(crate) fn media_type(self) -> &'static str {
        let row = Self::NAMES.iter().find(|(_, piece, _)| *piece == self);
        row.map_or("application/octet-stream", |(.., media)| media)
    }
}

impl Layouts {
    pub(crate) fn new(cache: Cache, loaders: Loaders) -> Self {
        Self { cache, loaders, made: Mutex::default() }
    }

    /// The images that files are made of.
    pub(crate) const fn cache(&self) -> &Cache {
        &self.cache
    }

    pub(crate) fn loaders(&self) -> &Loaders {
        &self.loaders
    }

    /// A file of a plan.
    pub(crate) async fn get(&self, plan: &BootPlan, piece: Piece) -> Result<Laid, LayoutError> {
        let place = (plan.key.clone(), piece);
        if let Some(laid) = self.made().find(&place) {
            return Ok(laid);
        }
        let laid = self.lay_out(plan, piece).await?;
        self.made().keep(place, &laid);
        Ok(laid)
    }

    /// Forgets the files of a plan that is over.
    pub(crate) fn forget(&self, key: &str) {
        self.made().files.retain(|(of, _), _| of != key);
    }

    /// Forgets the files that nobody reads any more, also those of plans that another process
    /// withdrew.
    pub(crate) fn forget_idle(&self) {
        self.made().forget_idle(KEPT_FOR);
    }

    /// An image as it is.
    pub(crate) async fn image(&self, image: &BootImage, kind: Kind) -> Result<Laid, LayoutError> {
        Laid::of(self.fetch(image, kind).await?)
    }

    /// A file that was laid out before.
    pub(crate) fn kept(&self, place: &(String, Piece)) -> Option<Laid> {
        self.made().find(place)
    }

    /// Keeps a file laid out for as long as somebody reads it.
    pub(crate) fn keep(&self, place: (String, Piece), laid: &Laid) {
        self.made().keep(place, laid);
    }

    /// The image itself, fetched and checked. Goes on when nobody waits for it any more: a machine
    /// that gave up asks again, and should not find the download at its beginning.
    pub(crate) async fn fetch(&self, image: &BootImage, kind: Kind) -> Result<Entry, LayoutError> {
        let address = |error: &dyn std::fmt::Display| LayoutError::Address(error.to_string());
        let source = Source::parse(&image.source).map_err(|error| address(&error))?;
        let mut request = Request::new(source, kind);
        if let Some(checksum) = &image.checksum {
            request.checksum = Some(Expected::parse(checksum).map_err(|error| address(&error))?);
        }
        request.credentials = image.pull_secret.as_deref().map(images::Credentials::pull_secret);
        self.fetch_request(request).await
    }

    /// Who we are at the registry of an image: `user:password`.
    pub(crate) fn registry_login(&self, place: &Reference) -> Option<String> {
        self.cache.registry_login(place)
    }

    /// Any image, fetched and checked.
    pub(crate) async fn fetch_request(&self, request: Request) -> Result<Entry, LayoutError> {
        let cache = self.cache.clone();
        let fetching = tokio::spawn(async move { cache.get(&request).await });
        Ok(fetching.await.map_err(|_| LayoutError::Ended)??)
    }

    async fn lay_out(&self, plan: &BootPlan, piece: Piece) -> Result<Laid, LayoutError> {
        match (piece, &plan.system) {
            (Piece::Kernel, BootSystem::Kernel { kernel, .. }) => {
                self.image(kernel, Kind::Kernel).await
            }
            (Piece::Ramdisk, BootSystem::Kernel { ramdisk, .. }) => {
                self.image(ramdisk, Kind::Ramdisk).await
            }
            (Piece::Cd, BootSystem::Iso { image }) => self.image(image, Kind::Iso).await,
            (Piece::UnifiedImage | Piece::Cd, BootSystem::Kernel { .. }) => {
                self.built(plan, piece).await
            }
            (Piece::InstanceImage, _) => Err(LayoutError::NoSuchPiece),
            (Piece::Kickstart, _) => {
                let text = installer_files(plan)?.kickstart.clone();
                let content = Content::from(Bytes::from(text));
                Ok(Laid { content, etag: etag_of(plan, piece), _images: Arc::new([]) })
            }
            (Piece::SecondStage, _) => {
                self.image_if_any(installer_files(plan)?.stage2.as_ref()).await
            }
            (Piece::InstalledImage, _) => {
                self.image_if_any(installer_files(plan)?.image.as_ref()).await
            }
            (Piece::ConfigDrive, _) => {
                let content = self.config_drive(plan).await?;
                Ok(Laid { content, etag: etag_of(plan, piece), _images: Arc::new([]) })
            }
            (Piece::Kernel | Piece::Ramdisk | Piece::UnifiedImage, BootSystem::Iso { .. }) => {
                Err(LayoutError::NoSuchPiece)
            }
        }
    }

    async fn config_drive(&self, plan: &BootPlan) -> Result<Content, LayoutError> {
        let wrong = |error: &dyn std::fmt::Display| LayoutError::ConfigDrive(error.to_string());
        let Some(text) = &plan.config_drive else { return Err(LayoutError::NoSuchPiece) };
        let value = config_drive_value(text);
        match ConfigDrive::parse(&value).map_err(|error| wrong(&error))? {
            None => Err(LayoutError::NoSuchPiece),
            Some(ConfigDrive::Url(url)) => {
                let source = url.to_owned();
                self.fetched_drive(&BootImage { source, checksum: None, pull_secret: None }).await
            }
            Some(ConfigDrive::Packed(packed)) => unpacked(packed.as_bytes().to_vec()),
            Some(ConfigDrive::Parts(mut parts)) => {
                // There is one medium called config-2: what the CD would say of the network is here.
                let network = match &plan.system {
                    BootSystem::Kernel { network_data, .. } => network_data.parse(),
                    BootSystem::Iso { .. } => serde_json::Map::new(),
                };
                if parts.network_data.is_none() && !network.is_empty() {
                    parts.network_data = Some(&network);
                }
                let uuid = plan.node_id.to_string();
                let owner = Owner { uuid: &uuid, name: None };
                parts.build(owner).map_err(|error| wrong(&error))
            }
        }
    }

    /// A config drive from elsewhere.
    pub(crate) async fn fetched_drive(&self, image: &BootImage) -> Result<Content, LayoutError> {
        // Whatever it is: what it has to be is looked at here.
        let entry = self.fetch(image, Kind::Ramdisk).await?;
        if entry.size > LARGEST_PACKED_DRIVE {
            let why = "it is larger than a config drive can be";
            return Err(LayoutError::ConfigDrive(why.to_owned()));
        }
        unpacked(tokio::fs::read(&entry.path).await.map_err(LayoutError::Open)?)
    }

    /// An image that a plan may lack.
    async fn image_if_any(&self, image: Option<&BootImage>) -> Result<Laid, LayoutError> {
        self.image(image.ok_or(LayoutError::NoSuchPiece)?, Kind::Ramdisk).await
    }

    /// A unified kernel image, alone or on a CD.
    async fn built(&self, plan: &BootPlan, piece: Piece) -> Result<Laid, LayoutError> {
        let BootSystem::Kernel { kernel, ramdisk, parameters, network_data } = &plan.system else {
            return Err(LayoutError::NoSuchPiece);
        };
        let kernel = self.fetch(kernel, Kind::Kernel).await?;
        let ramdisk = self.fetch(ramdisk, Kind::Ramdisk).await?;
        let parts = Parts {
            kernel: Content::open(&kernel.path).map_err(LayoutError::Open)?,
            ramdisks: vec![Content::open(&ramdisk.path).map_err(LayoutError::Open)?],
            command_line: parameters.join(" "),
            ..Parts::default()
        };
        let (stub, stub_name) = self.loaders.stub()?;
        let image = stub.build(&parts).map_err(LayoutError::Unified)?;
        let content = if piece == Piece::UnifiedImage {
            image
        } else {
            let mut files = FileTree::new();
            if !network_data.is_empty() && plan.config_drive.is_none() {
                let bytes = Bytes::from(network_data.as_str().to_owned());
                files
                    .insert(NETWORK_DATA_PATH, Content::from(bytes))
                    .expect("the path is one of ours");
            }
            let publisher = plan.node_id.to_string();
            let architecture = stub.architecture();
            BootIso { image: &image, architecture, files, publisher: Some(&publisher) }
                .layout()
                .map_err(LayoutError::Cd)?
        };
        let etag = format!("{}-{stub_name}", etag_of(plan, piece)).into();
        Ok(Laid { content, etag, _images: Arc::new([kernel, ramdisk]) })
    }

    fn made(&self) -> std::sync::MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    fn find(&mut self, place: &(String, Piece)) -> Option<Laid> {
        let (last, laid) = self.files.get_mut(place)?;
        *last = Instant::now();
        Some(laid.clone())
    }

    fn keep(&mut self, place: (String, Piece), laid: &Laid) {
        self.forget_idle(KEPT_FOR);
        if self.files.len() >= KEPT {
            // What was read longest ago goes, half of it at once, so that this is done seldom.
            let mut uses: Vec<Instant> = self.files.values().map(|(last, _)| *last).collect();
            uses.sort_unstable();
            let middle = uses[uses.len() / 2];
            self.files.retain(|_, (last, _)| *last > middle);
        }
        self.files.insert(place, (Instant::now(), laid.clone()));
    }

    fn forget_idle(&mut self, idle: Duration) {
        self.files.retain(|_, (last, _)| last.elapsed() < idle);
    }
}

fn installer_files(plan: &BootPlan) -> Result<&InstallerFiles, LayoutError> {
    plan.installer.as_ref().ok_or(LayoutError::NoSuchPiece)
}

/// A config drive from outside: unpacked, and checked to be something that can be mounted.
fn unpacked(bytes: Vec<u8>) -> Result<Content, LayoutError> {
    let wrong = |error: &dyn std::fmt::Display| LayoutError::ConfigDrive(error.to_string());
    let image = match std::str::from_utf8(&bytes) {
        Ok(packed) => config_drive::unpack(packed).map_err(|error| wrong(&error))?,
        Err(_) => bytes,
    };
    match config_drive::kind_of(&image) {
        ImageKind::Iso9660 | ImageKind::Fat => Ok(Content::from(Bytes::from(image))),
        ImageKind::Unknown => Err(wrong(&"it is neither an ISO 9660 nor a FAT image")),
    }
}

/// A config drive as it was given. Contents are kept as JSON text; neither of the other forms begins
/// with a brace.
fn config_drive_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(parts @ Value::Object(_)) => parts,
        Ok(_) | Err(_) => Value::String(text.to_owned()),
    }
}

/// A name for exactly these bytes: they follow from the plan, and a plan is never changed.
fn etag_of(plan: &BootPlan, piece: Piece) -> Arc<str> {
    format!("{:x}-{}", plan.made_at.0, piece.name()).into()
}
