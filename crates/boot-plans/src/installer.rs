// SPDX-License-Identifier: Apache-2.0
//! What a node says an installer is to do, and the files that the installer then reads.

use bmc_drivers::{Error, Target};
use boot_media::config_drive::{self, ConfigDrive, ImageKind, Owner};
use boot_media::iso_reader;
use images::Kind;
use node_model::{BootImage, BootPurpose, InstallerFiles};
use serde_json::Value;

use crate::discovery::chain;
use crate::kickstart::{self, Options};
use crate::layouts::{LayoutError, Piece};
use crate::order::{Home, image_in, invalid, missing_in_instance, text};
use crate::parameters;
use crate::services::BootServices;

/// How archives end that Anaconda unpacks. It goes by the name.
const ARCHIVES: &[&str] =
    &[".tar.gz", ".tar.bz2", ".tar.xz", ".tar", ".tgz", ".tbz", ".txz", ".img"];

const SOURCE: &str = "image_source";
const TEMPLATE: &str = "ks_template";

/// What is installed, and what else Anaconda needs for it.
pub(crate) struct Order<'a> {
    /// What is installed.
    source: OrderedSource<'a>,
    /// Anaconda's second stage.
    stage2: Option<BootImage>,
    /// The URL of the kickstart's template, if it is not the usual one.
    template: Option<BootImage>,
}

enum OrderedSource<'a> {
    /// Packages, and the second stage.
    Repository(&'a str),
    /// A system as it is on a disk, that the installer fetches where it is.
    Archive(&'a str),
    /// The same, from us; and how its name ends.
    Ours(BootImage, &'static str),
}

impl<'a> Order<'a> {
    /// Reads the fields of a node.
    pub(crate) fn of(target: &Target<'a>) -> Result<Self, Error> {
        let info = target.instance_info;
        let of_instance = |key: &str| image_in(info, "instance_info", key);
        let stage2 = of_instance("stage2")?;
        let template = of_instance(TEMPLATE)?;
        let Some(url) = text(info, "instance_info", SOURCE)? else {
            return Err(missing_in_instance(
                SOURCE,
                "give the URL of what is installed: of a repository, ending in /, or of an archive \
                 (.tar.gz, .img, …)",
            ));
        };
        let source = source(target, url, stage2.is_some())?;
        if stage2.is_none() && !matches!(source, OrderedSource::Repository(_)) {
            return Err(missing_in_instance(
                "stage2",
                "only a repository brings Anaconda's second stage along; give the URL of its \
                 squashfs.img, or for a repository an image_source that ends in /",
            ));
        }
        Ok(Self { source, stage2, template })
    }

    /// The kernel's parameters that tell Anaconda where things are.
    pub(crate) fn parameters(&self, home: &Home<'_>) -> Vec<String> {
        let files = home.files;
        let mut parameters = vec![format!("inst.ks={files}/{}", Piece::Kickstart.name())];
        if let OrderedSource::Repository(url) = self.source {
            parameters.push(format!("inst.repo={url}"));
        }
        if self.stage2.is_some() {
            parameters.push(format!("inst.stage2={files}"));
        }
        parameters
    }

    /// The URL of what is installed, for the installer.
    fn url(&self, home: &Home<'_>) -> String {
        match &self.source {
            OrderedSource::Repository(url) | OrderedSource::Archive(url) => (*url).to_owned(),
            OrderedSource::Ours(_, ending) => {
                format!("{}/{}{ending}", home.files, Piece::InstalledImage.name())
            }
        }
    }
}

fn source<'a>(
    target: &Target<'a>,
    url: &'a str,
    has_stage2: bool,
) -> Result<OrderedSource<'a>, Error> {
    let info = target.instance_info;
    let wrong = |why: &str| invalid(&format!("instance_info/{SOURCE}"), why);
    // It is a word of the kickstart and of the kernel's parameters.
    let is_word =
        parameters::split(url).is_ok_and(|words| words.len() == 1) && !url.contains(['\'', '"']);
    if !is_word {
        return Err(wrong(
            "it is no URL that a kickstart can name; write it with %20 and the like",
        ));
    }
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let ending = ARCHIVES.iter().find(|ending| path.ends_with(**ending)).copied();
    if url.starts_with("http://") || url.starts_with("https://") {
        let is_repository = path.ends_with('/') || (ending.is_none() && !has_stage2);
        return Ok(if is_repository {
            OrderedSource::Repository(url)
        } else {
            OrderedSource::Archive(url)
        });
    }
    let Some(mut image) = image_in(info, "instance_info", SOURCE)? else {
        return Err(wrong("it is empty"));
    };
    image.checksum = text(info, "instance_info", "image_checksum")?.map(str::to_owned);
    let Some(ending) = ending else {
        return Err(wrong(&format!(
            "Anaconda knows archives by their names, and this ends in none of {}; a repository must \
             be an http or https URL",
            ARCHIVES.join(", ")
        )));
    };
    Ok(OrderedSource::Ours(image, ending))
}

impl BootServices {
    /// Fetches and makes what the installer reads once it runs.
    pub(crate) async fn installer_files(
        &self,
        target: &Target<'_>,
        home: &Home<'_>,
    ) -> Result<InstallerFiles, Error> {
        let order = Order::of(target)?;
        let mut stage2 = order.stage2.clone();
        if let Some(stage2) = &mut stage2 {
            self.pin_image(stage2, Kind::Ramdisk, "fetch the second stage of the installer")
                .await?;
        }
        let mut image = match &order.source {
            OrderedSource::Ours(image, _) => Some(image.clone()),
            OrderedSource::Repository(_) | OrderedSource::Archive(_) => None,
        };
        if let Some(image) = &mut image {
            // An archive is not of the formats that disks are written from.
            self.pin_image(image, Kind::Ramdisk, "fetch what is installed").await?;
        }
        let (template, name) = self.template(&order).await?;
        let config_drive = self.config_drive_section(target).await?;
        let (url, checksum) = (order.url(home), sha256(target));
        let heartbeat_url = format!("{}/v1/heartbeat/{}", home.api_url, target.node.id);
        let options = Options {
            source: &url,
            is_repository: matches!(order.source, OrderedSource::Repository(_)),
            checksum: checksum.as_deref(),
            token: home.token.unwrap_or_default(),
            heartbeat_url: &heartbeat_url,
            insecure: self.0.settings.insecure_heartbeat,
            config_drive: &config_drive,
        };
        let kickstart = kickstart::render(&template, &options)
            .map_err(|error| invalid(&name, &error.to_string()))?;
        Ok(InstallerFiles { kickstart, stage2, image })
    }

    /// The template of the kickstart, and who named it.
    async fn template(&self, order: &Order<'_>) -> Result<(String, String), Error> {
        let of_node = order.template.clone().map(|it| (it, format!("instance_info/{TEMPLATE}")));
        let usual = self.0.settings.default_ks_template.clone().map(|source| {
            let image = BootImage { source, checksum: None, pull_secret: None };
            (image, "boot.default_ks_template".to_owned())
        });
        let Some((image, name)) = of_node.or(usual) else {
            return Ok((kickstart::TEMPLATE.to_owned(), "the usual kickstart".to_owned()));
        };
        let what = "fetch the template of the kickstart";
        let failed = |why: String| Error::Failed { what: what.to_owned(), why };
        // Whatever it is: what it has to be is looked at here.
        let entry = self.0.layouts.fetch(&image, Kind::Ramdisk).await;
        let entry = entry.map_err(|error| failed(chain(&error)))?;
        if entry.size > kickstart::LONGEST_TEMPLATE {
            return Err(invalid(&name, "it is longer than 1 MiB, so it is no template"));
        }
        let bytes =
            tokio::fs::read(&entry.path).await.map_err(|error| failed(error.to_string()))?;
        match String::from_utf8(bytes) {
            Ok(template) => Ok((template, name)),
            Err(_) => Err(invalid(&name, "it is not text in UTF-8")),
        }
    }

    /// The section of the kickstart that writes the config drive; empty if there is none.
    async fn config_drive_section(&self, target: &Target<'_>) -> Result<String, Error> {
        let wrong = |why: &str| invalid("instance_info/configdrive", why);
        let Some(value) = target.instance_info.get("configdrive") else { return Ok(String::new()) };
        let drive = ConfigDrive::parse(value).map_err(|error| wrong(&error.to_string()))?;
        let image = match drive {
            None => return Ok(String::new()),
            Some(ConfigDrive::Url(url)) => {
                let image = BootImage { source: url.to_owned(), checksum: None, pull_secret: None };
                let content = self.0.layouts.fetched_drive(&image).await;
                whole(&content.map_err(|error: LayoutError| wrong(&chain(&error)))?)
            }
            Some(ConfigDrive::Packed(packed)) => {
                config_drive::unpack(packed).map_err(|error| wrong(&error.to_string()))
            }
            Some(ConfigDrive::Parts(parts)) => {
                let uuid = target.node.id.to_string();
                let owner = Owner { uuid: &uuid, name: target.node.name.as_deref() };
                whole(&parts.build(owner).map_err(|error| wrong(&error.to_string()))?)
            }
        }?;
        if config_drive::kind_of(&image) != ImageKind::Iso9660 {
            return Err(wrong("a kickstart carries its files, and they are read of ISO 9660 only"));
        }
        let mut files = iso_reader::files(&image).map_err(|error| wrong(&error.to_string()))?;
        if files.iter().any(|(path, _)| path.contains(char::is_control)) {
            return Err(wrong("there is a control character in the name of a file"));
        }
        files.sort();
        Ok(if files.is_empty() { String::new() } else { kickstart::config_drive_section(&files) })
    }
}

fn whole(content: &boot_media::Content) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).map_err(|error| Error::Failed {
        what: format!("read the config drive of the {}", BootPurpose::Instance),
        why: error.to_string(),
    })?;
    Ok(bytes)
}

/// The SHA-256 of what is installed, if the instance says it in digits.
fn sha256(target: &Target<'_>) -> Option<String> {
    let said = |key: &str| target.instance_info.get(key).and_then(Value::as_str);
    let by_name =
        said("image_os_hash_value").filter(|_| said("image_os_hash_algo") == Some("sha256"));
    let digits = by_name.or(said("image_checksum"))?;
    let is_sha256 = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_sha256.then(|| digits.to_ascii_lowercase())
}
