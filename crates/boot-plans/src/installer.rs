// SPDX-License-Identifier: Apache-2.0
//! Anaconda installations: the install request of a node, and the files that the installer reads.

use boot_media::config_drive::{self, ConfigDrive, ConfigDriveOwner, DriveFormat};
use boot_media::iso_reader;
use drivers::{DriverError, DriverTarget};
use error_chain::error_chain;
use images::ImageKind;
use images::signature::SignaturePolicy;
use node_model::{BootImage, BootPurpose, InstallerFiles};
use serde_json::Value;

use crate::boot_system::{
    AgentEndpoints, image_field, invalid_parameter, missing_instance_info, text_field,
};
use crate::kernel_parameters;
use crate::kickstart::{self, KickstartOptions};
use crate::plan_files::{PlanFile, PlanFileError};
use crate::services::BootServices;

/// File name suffixes of the archives that Anaconda unpacks; it ignores the content type.
const ARCHIVE_SUFFIXES: &[&str] =
    &[".tar.gz", ".tar.bz2", ".tar.xz", ".tar", ".tgz", ".tbz", ".txz", ".img"];

const IMAGE_SOURCE: &str = "image_source";
const KS_TEMPLATE: &str = "ks_template";

/// What is installed, and the other files that Anaconda needs for it.
pub(crate) struct InstallRequest<'a> {
    /// What is installed.
    source: InstallSource<'a>,
    /// Anaconda's second stage.
    stage2: Option<BootImage>,
    /// The kickstart template, if it is not the default one.
    template: Option<BootImage>,
}

enum InstallSource<'a> {
    /// A package repository, which also contains the second stage.
    Repository(&'a str),
    /// An archive of an installed system that the installer fetches from its URL.
    Archive(&'a str),
    /// An archive that the file service serves, and its file name suffix.
    ServedArchive(BootImage, &'static str),
}

impl<'a> InstallRequest<'a> {
    /// Parses the fields of a node.
    pub(crate) fn from_target(target: &DriverTarget<'a>) -> Result<Self, DriverError> {
        let info = target.instance_info;
        let instance_image = |key: &str| image_field(info, "instance_info", key);
        let stage2 = instance_image("stage2")?;
        let template = instance_image(KS_TEMPLATE)?;
        let Some(url) = text_field(info, "instance_info", IMAGE_SOURCE)? else {
            return Err(missing_instance_info(
                IMAGE_SOURCE,
                "set the URL of a repository, ending in /, or of an archive (.tar.gz, .img, …)",
            ));
        };
        let source = install_source(target, url, stage2.is_some())?;
        if stage2.is_none() && !matches!(source, InstallSource::Repository(_)) {
            return Err(missing_instance_info(
                "stage2",
                "only a repository contains Anaconda's second stage; set the URL of its squashfs.img, or \
                 for a repository an image_source that ends in /",
            ));
        }
        Ok(Self { source, stage2, template })
    }

    /// Returns the kernel parameters for Anaconda.
    pub(crate) fn parameters(&self, endpoints: &AgentEndpoints<'_>) -> Vec<String> {
        let files = endpoints.files_url;
        let mut parameters = vec![format!("inst.ks={files}/{}", PlanFile::Kickstart.name())];
        if let InstallSource::Repository(url) = self.source {
            parameters.push(format!("inst.repo={url}"));
        }
        if self.stage2.is_some() {
            parameters.push(format!("inst.stage2={files}"));
        }
        parameters
    }

    /// Returns the URL of what is installed.
    fn url(&self, endpoints: &AgentEndpoints<'_>) -> String {
        match &self.source {
            InstallSource::Repository(url) | InstallSource::Archive(url) => (*url).to_owned(),
            InstallSource::ServedArchive(_, suffix) => {
                format!("{}/{}{suffix}", endpoints.files_url, PlanFile::InstalledImage.name())
            }
        }
    }
}

fn install_source<'a>(
    target: &DriverTarget<'a>,
    url: &'a str,
    has_stage2: bool,
) -> Result<InstallSource<'a>, DriverError> {
    let info = target.instance_info;
    let invalid = |why: &str| invalid_parameter(&format!("instance_info/{IMAGE_SOURCE}"), why);
    // The URL becomes a word of the kickstart and of the kernel parameters.
    let is_word = kernel_parameters::split(url).is_ok_and(|words| words.len() == 1)
        && !url.contains(['\'', '"']);
    if !is_word {
        return Err(invalid(
            "it is not a URL that a kickstart can contain; percent-encode special characters",
        ));
    }
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let suffix = ARCHIVE_SUFFIXES.iter().find(|suffix| path.ends_with(**suffix)).copied();
    if url.starts_with("http://") || url.starts_with("https://") {
        let is_repository = path.ends_with('/') || (suffix.is_none() && !has_stage2);
        return Ok(if is_repository {
            InstallSource::Repository(url)
        } else {
            InstallSource::Archive(url)
        });
    }
    let Some(mut image) = image_field(info, "instance_info", IMAGE_SOURCE)? else {
        return Err(invalid("it is empty"));
    };
    image.checksum = text_field(info, "instance_info", "image_checksum")?.map(str::to_owned);
    let Some(suffix) = suffix else {
        return Err(invalid(&format!(
            "Anaconda identifies archives by their suffix, and this has none of {}; a repository must \
             be an http or https URL",
            ARCHIVE_SUFFIXES.join(", ")
        )));
    };
    Ok(InstallSource::ServedArchive(image, suffix))
}

impl BootServices {
    /// Fetches and generates the files that the installer reads.
    pub(crate) async fn installer_files(
        &self,
        target: &DriverTarget<'_>,
        endpoints: &AgentEndpoints<'_>,
    ) -> Result<InstallerFiles, DriverError> {
        if self.0.disk_image_signature_policy == SignaturePolicy::Required {
            return Err(DriverError::invalid(
                "deploy_interface",
                "images must be signed (images.disk_image_signatures), and the signature of what anaconda \
                 installs cannot be verified; use the deploy interface direct",
            ));
        }
        let request = InstallRequest::from_target(target)?;
        let mut stage2 = request.stage2.clone();
        if let Some(stage2) = &mut stage2 {
            self.pin_image(stage2, ImageKind::Ramdisk, "fetch the second stage of the installer")
                .await?;
        }
        let mut image = match &request.source {
            InstallSource::ServedArchive(image, _) => Some(image.clone()),
            InstallSource::Repository(_) | InstallSource::Archive(_) => None,
        };
        if let Some(image) = &mut image {
            // As a ramdisk, since that kind allows every format.
            self.pin_image(image, ImageKind::Ramdisk, "fetch what is installed").await?;
        }
        let (template, name) = self.kickstart_template(&request).await?;
        let config_drive = self.config_drive_section(target).await?;
        let (url, checksum) = (request.url(endpoints), image_sha256(target));
        let heartbeat_url = format!("{}/v1/heartbeat/{}", endpoints.api_url, target.node.id);
        let options = KickstartOptions {
            source: &url,
            is_repository: matches!(request.source, InstallSource::Repository(_)),
            checksum: checksum.as_deref(),
            token: endpoints.token.unwrap_or_default(),
            heartbeat_url: &heartbeat_url,
            insecure_heartbeat: self.0.settings.insecure_heartbeat,
            heartbeat_ca: self.0.plan_files.api_certificates(),
            config_drive: &config_drive,
        };
        let kickstart = kickstart::render(&template, &options)
            .map_err(|error| invalid_parameter(&name, &error.to_string()))?;
        Ok(InstallerFiles { kickstart, stage2, image })
    }

    /// Returns the kickstart template and the name of the field or setting it comes from.
    async fn kickstart_template(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<(String, String), DriverError> {
        let node_template =
            request.template.clone().map(|it| (it, format!("instance_info/{KS_TEMPLATE}")));
        let default = self.0.settings.default_ks_template.clone().map(|source| {
            let image = BootImage { source, checksum: None, pull_secret: None };
            (image, "boot.default_ks_template".to_owned())
        });
        let Some((image, name)) = node_template.or(default) else {
            return Ok((
                kickstart::DEFAULT_TEMPLATE.to_owned(),
                "the default kickstart".to_owned(),
            ));
        };
        let what = "fetch the template of the kickstart";
        let failed = |why: String| DriverError::Failed { what: what.to_owned(), why };
        // As a ramdisk, since that kind allows every format; the content is checked below.
        let entry = self.0.plan_files.fetch(&image, ImageKind::Ramdisk).await;
        let entry = entry.map_err(|error| failed(error_chain(&error)))?;
        if entry.size > kickstart::MAX_TEMPLATE_BYTES {
            return Err(invalid_parameter(&name, "it is longer than 1 MiB"));
        }
        let bytes =
            tokio::fs::read(&entry.path).await.map_err(|error| failed(error.to_string()))?;
        match String::from_utf8(bytes) {
            Ok(template) => Ok((template, name)),
            Err(_) => Err(invalid_parameter(&name, "it is not UTF-8 text")),
        }
    }

    /// Returns the kickstart section that writes the config drive; empty without a config drive.
    async fn config_drive_section(&self, target: &DriverTarget<'_>) -> Result<String, DriverError> {
        let invalid = |why: &str| invalid_parameter("instance_info/configdrive", why);
        let Some(value) = target.instance_info.get("configdrive") else { return Ok(String::new()) };
        let drive = ConfigDrive::parse(value).map_err(|error| invalid(&error.to_string()))?;
        let image = match drive {
            None => return Ok(String::new()),
            Some(ConfigDrive::Url(url)) => {
                let image = BootImage { source: url.to_owned(), checksum: None, pull_secret: None };
                let content = self.0.plan_files.fetch_config_drive(&image).await;
                read_all(&content.map_err(|error: PlanFileError| invalid(&error_chain(&error)))?)
            }
            Some(ConfigDrive::Packed(packed)) => {
                config_drive::unpack(packed).map_err(|error| invalid(&error.to_string()))
            }
            Some(ConfigDrive::Parts(parts)) => {
                let uuid = target.node.id.to_string();
                let owner = ConfigDriveOwner { uuid: &uuid, name: target.node.name.as_deref() };
                read_all(&parts.build(owner).map_err(|error| invalid(&error.to_string()))?)
            }
        }?;
        if config_drive::detect_format(&image) != DriveFormat::Iso9660 {
            return Err(invalid("only an ISO 9660 config drive can be copied into a kickstart"));
        }
        let mut files = iso_reader::files(&image).map_err(|error| invalid(&error.to_string()))?;
        if files.iter().any(|(path, _)| path.contains(char::is_control)) {
            return Err(invalid("a file name contains a control character"));
        }
        files.sort();
        Ok(if files.is_empty() { String::new() } else { kickstart::config_drive_section(&files) })
    }
}

fn read_all(content: &boot_media::Content) -> Result<Vec<u8>, DriverError> {
    let mut bytes = Vec::new();
    content.write_to(&mut bytes).map_err(|error| DriverError::Failed {
        what: format!("read the config drive of the {}", BootPurpose::Instance),
        why: error.to_string(),
    })?;
    Ok(bytes)
}

/// Returns the SHA-256 of what is installed, if the instance has it as hexadecimal digits.
fn image_sha256(target: &DriverTarget<'_>) -> Option<String> {
    let field = |key: &str| target.instance_info.get(key).and_then(Value::as_str);
    let named =
        field("image_os_hash_value").filter(|_| field("image_os_hash_algo") == Some("sha256"));
    let digits = named.or(field("image_checksum"))?;
    let is_sha256 = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_sha256.then(|| digits.to_ascii_lowercase())
}
