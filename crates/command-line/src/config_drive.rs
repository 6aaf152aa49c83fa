// SPDX-License-Identifier: Apache-2.0
//! Config drives from options: SSH keys, user data and network configuration.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli_error::CliError;
use crate::output::parse_json_or_yaml;

/// Help heading.
const HEADING: &str = "Config drive";

/// Options that define a config drive.
#[derive(Args, Debug)]
pub(crate) struct ConfigDriveArguments {
    /// Files with public SSH keys for the instance.
    #[arg(help_heading = HEADING, long = "ssh-key", value_name = "FILE")]
    ssh_keys: Vec<PathBuf>,
    /// User data for cloud-init, such as a file that begins with #cloud-config.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    user_data: Option<PathBuf>,
    /// Network configuration in OpenStack's network_data format: a JSON or YAML file.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    network: Option<PathBuf>,
}

/// The config drive content that all instances of a command share.
pub struct ConfigDriveContent {
    keys: Vec<String>,
    user_data: Option<String>,
    pub(crate) network: Option<Value>,
}

impl ConfigDriveArguments {
    pub(crate) fn read(&self) -> Result<ConfigDriveContent, CliError> {
        let mut keys = Vec::new();
        for path in &self.ssh_keys {
            let found = public_keys(&read_text(path)?);
            keys.extend(
                found
                    .map_err(|problem| CliError::Usage(format!("{} {problem}", path.display())))?,
            );
        }
        let user_data = self.user_data.as_deref().map(read_text).transpose()?;
        let network = match &self.network {
            Some(path) => {
                let network = parse_json_or_yaml(&read_text(path)?, &path.display().to_string())?;
                if let Some(problem) = network_data_problem(&network) {
                    let message =
                        format!("{} is not valid network_data: {problem}", path.display());
                    return Err(CliError::Usage(message));
                }
                Some(network)
            }
            None => None,
        };
        Ok(ConfigDriveContent { keys, user_data, network })
    }
}

impl ConfigDriveContent {
    /// Content from texts instead of files. The error names the invalid member: `ssh_keys[0]` or
    /// `network_data`.
    pub fn new(
        ssh_keys: &[String],
        user_data: Option<String>,
        network: Option<Value>,
    ) -> Result<Self, String> {
        let mut keys = Vec::new();
        for (index, text) in ssh_keys.iter().enumerate() {
            let found = public_keys(text);
            keys.extend(found.map_err(|problem| format!("ssh_keys[{index}] {problem}"))?);
        }
        match network.as_ref().and_then(network_data_problem) {
            Some(problem) => Err(format!("network_data is invalid: {problem}")),
            None => Ok(Self { keys, user_data, network }),
        }
    }

    /// Builds the config drive of one instance; `None` if it would be empty.
    #[must_use]
    pub fn build(&self, uuid: &str, node: &str, hostname: Option<&str>) -> Option<Value> {
        let is_empty = self.keys.is_empty() && self.user_data.is_none() && self.network.is_none();
        if is_empty && hostname.is_none() {
            return None;
        }
        let keys: Map<String, Value> = self
            .keys
            .iter()
            .enumerate()
            .map(|(number, key)| (number.to_string(), json!(key)))
            .collect();
        let mut drive = json!({
            "meta_data": {
                "uuid": uuid,
                "name": node,
                "hostname": hostname.unwrap_or(node),
                "public_keys": keys,
                "launch_index": 0,
                "availability_zone": "",
                "files": [],
                "meta": {},
            }
        });
        if let Some(user_data) = &self.user_data {
            drive["user_data"] = json!(user_data);
        }
        if let Some(network) = &self.network {
            drive["network_data"] = network.clone();
        }
        Some(drive)
    }

    /// The fields of a deployment for the same content.
    pub(crate) fn into_deployment_fields(self) -> Map<String, Value> {
        let mut fields = Map::new();
        if !self.keys.is_empty() {
            fields.insert("ssh_keys".to_owned(), json!(self.keys));
        }
        if let Some(user_data) = self.user_data {
            fields.insert("user_data".to_owned(), json!(user_data));
        }
        if let Some(network) = self.network {
            fields.insert("network_data".to_owned(), network);
        }
        fields
    }

    /// The IP addresses in the network configuration.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let networks = self.network.as_ref().and_then(|network| network["networks"].as_array());
        let addresses = networks.into_iter().flatten().filter_map(|network| {
            let address = network["ip_address"].as_str()?;
            Some(address.split('/').next().unwrap_or(address).to_owned())
        });
        addresses.collect()
    }
}

/// The keys in the text of a file of public keys.
fn public_keys(text: &str) -> Result<Vec<String>, &'static str> {
    if text.contains("PRIVATE KEY") {
        return Err("is a private key; give the public key (.pub) instead");
    }
    let lines = text.lines().map(str::trim);
    let lines: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    if lines.is_empty() || !lines.iter().all(|line| is_public_key(line)) {
        return Err("is not a file of public SSH keys");
    }
    Ok(lines.into_iter().map(str::to_owned).collect())
}

/// Whether a line is an `authorized_keys` entry, with optional options and comment.
fn is_public_key(line: &str) -> bool {
    let parts: Vec<&str> = line.split_whitespace().collect();
    parts.windows(2).any(|pair| {
        let is_key_type = ["ssh-", "ecdsa-", "sk-"].iter().any(|kind| pair[0].starts_with(kind));
        is_key_type
            && pair[1].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
    })
}

/// Returns what is wrong with network_data.
fn network_data_problem(network: &Value) -> Option<String> {
    let Value::Object(members) = network else { return Some("not an object".to_owned()) };
    const LISTS: [&str; 3] = ["links", "networks", "services"];
    for (name, list) in members {
        if !LISTS.contains(&name.as_str()) {
            return Some(format!("unknown member {name:?}; expected {}", LISTS.join(", ")));
        }
        if !list.as_array().is_some_and(|items| items.iter().all(Value::is_object)) {
            return Some(format!("{name} is not a list of objects"));
        }
    }
    if !members.contains_key("networks") {
        return Some("networks is missing".to_owned());
    }
    let links = network["links"].as_array().into_iter().flatten();
    let known: Vec<&str> = links.filter_map(|link| link["id"].as_str()).collect();
    for one in network["networks"].as_array().into_iter().flatten() {
        if let Some(link) = one["link"].as_str().filter(|link| !known.contains(link)) {
            return Some(format!("a network refers to the link {link:?}, which is not in links"));
        }
        let address = &one["ip_address"];
        let is_address = address.as_str().is_some_and(|text| {
            let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
            address.parse::<std::net::IpAddr>().is_ok()
                && prefix.parse::<u8>().is_ok_and(|it| it <= 128)
        });
        if !address.is_null() && !is_address {
            return Some(format!("{address} is not an IP address"));
        }
    }
    None
}

fn read_text(path: &Path) -> Result<String, CliError> {
    std::fs::read_to_string(path)
        .map_err(|source| CliError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_network_data_and_keys() {
        for (network, problem) in [
            (json!({"networks": [{"ip_address": "10.0.0.5/24"}, {"type": "ipv4_dhcp"}]}), None),
            (
                json!({"links": [{"id": "l"}], "networks": [{"link": "l", "ip_address": "fe80::1"}]}),
                None,
            ),
            (json!("dhcp"), Some("not an object")),
            (json!({}), Some("networks is missing")),
            (json!({"networks": {}}), Some("networks is not a list of objects")),
            (
                json!({"networks": [], "ethernets": {}}),
                Some("unknown member \"ethernets\"; expected links, networks, services"),
            ),
            (
                json!({"networks": [{"link": "l"}]}),
                Some("a network refers to the link \"l\", which is not in links"),
            ),
            (
                json!({"networks": [{"ip_address": "10.0.0"}]}),
                Some("\"10.0.0\" is not an IP address"),
            ),
            (json!({"networks": [{"ip_address": 7}]}), Some("7 is not an IP address")),
        ] {
            assert_eq!(network_data_problem(&network).as_deref(), problem);
        }
        for (line, is_key) in [
            ("ssh-ed25519 AAAA ann", true),
            ("no-pty,command=\"ls -l\" ecdsa-sha2-nistp256 AAAA==", true),
            ("ssh-ed25519", false),
            ("hello world", false),
        ] {
            assert_eq!(is_public_key(line), is_key, "{line}");
        }
    }

    #[test]
    fn builds_a_config_drive() {
        let content = ConfigDriveContent {
            keys: vec!["ssh-ed25519 AAAA ann".to_owned()],
            user_data: Some("#cloud-config\n".to_owned()),
            network: Some(
                json!({"networks": [{"ip_address": "10.0.0.5/24"}, {"type": "ipv4_dhcp"}]}),
            ),
        };
        let drive = content.build("u", "rack1-u01", Some("web")).unwrap();
        assert_eq!(drive["meta_data"]["hostname"], "web");
        assert_eq!(drive["meta_data"]["public_keys"], json!({"0": "ssh-ed25519 AAAA ann"}));
        assert_eq!(drive["user_data"], "#cloud-config\n");
        assert_eq!(content.addresses(), ["10.0.0.5"]);
        let empty = ConfigDriveContent { keys: Vec::new(), user_data: None, network: None };
        assert_eq!(empty.build("u", "n", None), None);
        assert!(empty.build("u", "n", Some("web")).is_some());
    }
}
