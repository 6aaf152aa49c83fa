// SPDX-License-Identifier: Apache-2.0
//! The host file of `ferrite run`: a machine and the arguments of each operation, in YAML or JSON.

mod section;

use std::path::{Path, PathBuf};

use command_line::{
    ConfigDriveContent, checksum_instance_info, is_image_reference, parse_document,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

pub(super) use section::HostFileError;
use section::{FieldPath, HostSection};

/// Maximum size of the host file and of each file it refers to.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// The name of the node without `name`.
const DEFAULT_NAME: &str = "machine";
/// Node fields that are passed to the API unchanged. It checks their values.
const NODE_FIELDS: &[&str] = &[
    "uuid",
    "name",
    "description",
    "driver",
    "driver_info",
    "properties",
    "extra",
    "resource_class",
    "automated_clean",
    "disable_power_off",
    "bios_interface",
    "boot_interface",
    "console_interface",
    "deploy_interface",
    "firmware_interface",
    "inspect_interface",
    "management_interface",
    "network_interface",
    "power_interface",
    "raid_interface",
    "rescue_interface",
    "storage_interface",
    "vendor_interface",
];
const SECTIONS: &[&str] = &["ports", "deploy", "clean"];
const PORT_FIELDS: &[&str] = &[
    "address",
    "extra",
    "is_smartnic",
    "local_link_connection",
    "name",
    "physical_network",
    "pxe_enabled",
];
const DEPLOY_FIELDS: &[&str] = &[
    "image",
    "checksum",
    "ssh_keys",
    "user_data",
    "network_data",
    "meta_data",
    "instance_info",
    "deploy_steps",
];
/// Fields of `instance_info` and the keys that set them.
const INSTANCE_KEYS: &[(&str, &str)] =
    &[("image_source", "deploy.image"), ("image_checksum", "deploy.checksum")];
const CLEAN_FIELDS: &[&str] = &["clean_steps"];

/// A machine and what the operation needs.
pub(super) struct HostFile {
    /// The fields of the node, with its name.
    pub(super) node: Map<String, Value>,
    /// The fields of its ports, with their addresses.
    pub(super) ports: Vec<Map<String, Value>>,
    /// The instance to deploy.
    pub(super) instance: Option<HostInstance>,
    /// The clean steps, if there are any.
    pub(super) clean_steps: Vec<Value>,
    /// A digest of the parts of the file that the operation uses. Contents of files and variables that
    /// it refers to are not included, so that a password can be changed.
    pub(super) fingerprint: String,
}

/// The instance to deploy.
pub(super) struct HostInstance {
    pub(super) instance_info: Map<String, Value>,
    pub(super) deploy_steps: Vec<Value>,
    drive: ConfigDriveContent,
    meta_data: Map<String, Value>,
}

/// Reads what the host file refers to with `{file: PATH}` or `{env: NAME}`.
struct ReferencedValues<'a> {
    /// Relative paths start here.
    folder: PathBuf,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl HostFile {
    /// Reads the file and everything that the operation needs. `variable` returns environment variables.
    pub(super) fn read(
        path: &Path,
        operation: HostOperation,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, HostFileError> {
        let text = read_limited(path)
            .map_err(|problem| HostFileError::whole_file(format!("cannot be read: {problem}")))?;
        let document = parse_document(&text)
            .map_err(|problem| HostFileError::whole_file(format!("is {problem}")))?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self::parse(document, operation, &ReferencedValues { folder, variable })
    }

    fn parse(
        document: Value,
        operation: HostOperation,
        values: &ReferencedValues<'_>,
    ) -> Result<Self, HostFileError> {
        let fingerprint = fingerprint(&document, operation);
        let mut file = HostSection::new(FieldPath::root(), document)?;
        file.check_keys(&[NODE_FIELDS, SECTIONS].concat())?;
        let ports = match file.list("ports")? {
            Some(ports) => port_fields(ports)?,
            None => Vec::new(),
        };
        let deploy = file.section("deploy")?;
        let clean = file.section("clean")?;
        if let Some(section) = &deploy {
            section.check_keys(DEPLOY_FIELDS)?;
        }
        if let Some(section) = &clean {
            section.check_keys(CLEAN_FIELDS)?;
        }
        let instance = match (operation, deploy) {
            (HostOperation::Deploy, Some(section)) => Some(instance(section, values)?),
            (HostOperation::Deploy, None) => {
                return Err(FieldPath::root().key("deploy").error("is missing"));
            }
            (HostOperation::Clean | HostOperation::Inspect | HostOperation::Power, _) => None,
        };
        let clean_steps = match (operation, clean) {
            (HostOperation::Clean, Some(mut section)) => section.steps("clean_steps")?,
            (_, _) => Vec::new(),
        };
        let node = node_fields(file, values)?;
        let is_automated = operation == HostOperation::Clean && clean_steps.is_empty();
        if is_automated && node.get("automated_clean") == Some(&Value::Bool(false)) {
            return Err(FieldPath::root().key("automated_clean").error(
                "is false, so there is nothing to clean; remove it, or give clean.clean_steps",
            ));
        }
        Ok(Self { node, ports, instance, clean_steps, fingerprint })
    }

    /// The name of the node.
    pub(super) fn name(&self) -> &str {
        self.node.get("name").and_then(Value::as_str).unwrap_or(DEFAULT_NAME)
    }
}

/// Replaces the fields of `instance_info` in an error of the service by the keys of the host file that set
/// them.
pub(super) fn name_host_file_keys(error: &str) -> String {
    INSTANCE_KEYS.iter().fold(error.to_owned(), |error, (field, key)| {
        error.replace(&format!("'instance_info/{field}'"), key)
    })
}

/// The part of the host file that is used besides the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostOperation {
    Deploy,
    Clean,
    Inspect,
    Power,
}

impl HostInstance {
    /// The config drive of the node, if it has any content.
    pub(super) fn config_drive(&self, uuid: &str, name: &str) -> Option<Value> {
        let hostname = self.meta_data.get("hostname").and_then(Value::as_str);
        let hostname = hostname.or_else(|| (!self.meta_data.is_empty()).then_some(name));
        let mut drive = self.drive.build(uuid, name, hostname)?;
        if let Some(meta_data) = drive["meta_data"].as_object_mut() {
            meta_data.extend(self.meta_data.clone());
        }
        Some(drive)
    }
}

fn node_fields(
    mut file: HostSection,
    values: &ReferencedValues<'_>,
) -> Result<Map<String, Value>, HostFileError> {
    let name = file.text("name")?.unwrap_or_else(|| DEFAULT_NAME.to_owned());
    let Some(driver) = file.text("driver")? else {
        return Err(file.path().key("driver").error("is missing; use redfish or ipmi"));
    };
    let driver_info = match file.section("driver_info")? {
        Some(section) => values.resolve_all(section)?,
        None => return Err(file.path().key("driver_info").error("is missing")),
    };
    for key in ["properties", "extra"] {
        if let Some(section) = file.section(key)? {
            file.put(key, Value::Object(section.into_fields()));
        }
    }
    let mut fields = file.into_fields();
    fields.insert("name".to_owned(), json!(name));
    fields.insert("driver".to_owned(), json!(driver));
    fields.insert("driver_info".to_owned(), Value::Object(driver_info));
    Ok(fields)
}

fn port_fields(ports: Vec<(FieldPath, Value)>) -> Result<Vec<Map<String, Value>>, HostFileError> {
    let mut all: Vec<Map<String, Value>> = Vec::new();
    for (path, port) in ports {
        let fields = if port.is_string() { json!({ "address": port }) } else { port };
        let mut section = HostSection::new(path.clone(), fields)?;
        section.check_keys(PORT_FIELDS)?;
        let address = section.text("address")?.unwrap_or_default().to_ascii_lowercase();
        if address.parse::<node_model::Mac>().is_err() {
            return Err(path
                .key("address")
                .error("is not a MAC address; use one such as 52:54:00:00:00:01, in quotes"));
        }
        if all.iter().any(|other| other.get("address") == Some(&json!(address))) {
            return Err(path.key("address").error("is the address of another port"));
        }
        let mut fields = section.into_fields();
        fields.insert("address".to_owned(), json!(address));
        all.push(fields);
    }
    Ok(all)
}

fn instance(
    mut section: HostSection,
    values: &ReferencedValues<'_>,
) -> Result<HostInstance, HostFileError> {
    let path = section.path().clone();
    let mut instance_info = match section.section("instance_info")? {
        Some(section) => values.resolve_all(section)?,
        None => Map::new(),
    };
    if let Some(image) = values.text(&mut section, "image")? {
        if !is_image_reference(&image) {
            return Err(path.key("image").error(
                "is not an image URL: use http://HOST/PATH, https://, file:///PATH or oci://",
            ));
        }
        instance_info.insert("image_source".to_owned(), json!(image));
    }
    if !["image_source", "boot_iso"].iter().any(|key| instance_info.contains_key(*key)) {
        return Err(path.key("image").error("is missing"));
    }
    if let Some(checksum) = values.text(&mut section, "checksum")? {
        let Some(fields) = checksum_instance_info(&checksum) else {
            return Err(path.key("checksum").error(
                "is neither a SHA-256 (64 hexadecimal digits) nor a SHA-512 (128) nor the http:// or \
                 https:// URL of a checksum file",
            ));
        };
        instance_info.extend(fields);
    }
    let mut keys = Vec::new();
    for (path, key) in section.list("ssh_keys")?.unwrap_or_default() {
        keys.push(values.referenced_text(key, &path)?);
    }
    let user_data = match section.take("user_data") {
        Some(value) => Some(values.referenced_text(value, &path.key("user_data"))?),
        None => None,
    };
    let network = match section.take("network_data") {
        Some(value) => Some(values.referenced_document(value, &path.key("network_data"))?),
        None => None,
    };
    let meta_data = match section.section("meta_data")? {
        Some(section) => section.into_fields(),
        None => Map::new(),
    };
    let drive = ConfigDriveContent::new(&keys, user_data, network)
        .map_err(|problem| HostFileError::in_section(&path, &problem))?;
    let deploy_steps = section.steps("deploy_steps")?;
    Ok(HostInstance { instance_info, deploy_steps, drive, meta_data })
}

impl ReferencedValues<'_> {
    /// Resolves the values of a mapping. A trailing newline of a file is not part of the value.
    fn resolve_all(&self, section: HostSection) -> Result<Map<String, Value>, HostFileError> {
        let path = section.path().clone();
        let mut resolved = Map::new();
        for (key, value) in section.into_fields() {
            let value = match self.reference(&value, &path.key(&key))? {
                Some(text) => json!(text.trim_end_matches(['\r', '\n'])),
                None => value,
            };
            resolved.insert(key, value);
        }
        Ok(resolved)
    }

    /// A text of a section without a trailing newline.
    fn text(&self, section: &mut HostSection, key: &str) -> Result<Option<String>, HostFileError> {
        let path = section.path().key(key);
        let Some(value) = section.take(key) else { return Ok(None) };
        let text = self.referenced_text(value, &path)?;
        Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    fn referenced_text(&self, value: Value, path: &FieldPath) -> Result<String, HostFileError> {
        match (self.reference(&value, path)?, value) {
            (Some(text), _) | (None, Value::String(text)) => Ok(text),
            (None, _) => Err(path.error("is not a text, {file: PATH} or {env: NAME}")),
        }
    }

    /// A JSON or YAML document, in the host file or in a file of its own.
    fn referenced_document(&self, value: Value, path: &FieldPath) -> Result<Value, HostFileError> {
        match self.reference(&value, path)? {
            Some(text) => {
                parse_document(&text).map_err(|problem| path.error(format!("is {problem}")))
            }
            None => Ok(value),
        }
    }

    /// The text that a value refers to; `None` if it is not a reference.
    fn reference(&self, value: &Value, path: &FieldPath) -> Result<Option<String>, HostFileError> {
        let Value::Object(fields) = value else { return Ok(None) };
        let named = |key: &str| fields.get(key).filter(|_| fields.len() == 1);
        match (named("file"), named("env")) {
            (Some(Value::String(file)), _) => {
                let file = self.folder.join(file);
                let shown = file.display();
                read_limited(&file)
                    .map(Some)
                    .map_err(|problem| path.key("file").error(format!("{shown}: {problem}")))
            }
            (_, Some(Value::String(name))) => match (self.variable)(name) {
                Some(text) => Ok(Some(text)),
                None => Err(path.key("env").error(format!("the variable {name} is not set"))),
            },
            (Some(_), _) | (_, Some(_)) => {
                Err(path.error("needs a text: {file: PATH} or {env: NAME}"))
            }
            (None, None) => Ok(None),
        }
    }
}

/// Reads a text file of limited size.
fn read_limited(path: &Path) -> Result<String, String> {
    use std::io::Read as _;
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    match read {
        Ok(bytes) if bytes as u64 > MAX_FILE_BYTES => {
            Err(format!("it is larger than {} MiB", MAX_FILE_BYTES / 1024 / 1024))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(error.to_string()),
    }
}

/// A digest of the machine and of the section of the operation.
fn fingerprint(document: &Value, operation: HostOperation) -> String {
    let mut used = document.as_object().cloned().unwrap_or_default();
    for (section, is_used) in [
        ("deploy", operation == HostOperation::Deploy),
        ("clean", operation == HostOperation::Clean),
    ] {
        if !is_used {
            used.remove(section);
        }
    }
    let digest = Sha256::digest(sorted(&Value::Object(used)).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same value with the members of all objects in alphabetical order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            fields.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests;
