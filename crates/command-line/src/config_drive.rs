// SPDX-License-Identifier: Apache-2.0
//! What an instance is told at its first start: who may sign in, what to run, which network it has.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::parsed;

/// Options that make a config drive.
#[derive(Args, Debug)]
#[command(next_help_heading = "What the instance is told")]
pub(crate) struct DriveArguments {
    /// Files with public keys that may sign in.
    #[arg(long = "ssh-key", value_name = "FILE")]
    ssh_keys: Vec<PathBuf>,
    /// A file for cloud-init, such as one that begins with #cloud-config.
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,
    /// The network, in OpenStack's network_data form: a JSON or YAML file.
    #[arg(long, value_name = "FILE")]
    network: Option<PathBuf>,
}

/// What all instances of a command are told.
pub(crate) struct Drive {
    keys: Vec<String>,
    user_data: Option<String>,
    pub(crate) network: Option<Value>,
}

impl DriveArguments {
    pub(crate) fn read(&self) -> Result<Drive, Failure> {
        let mut keys = Vec::new();
        for path in &self.ssh_keys {
            let text = text_of(path)?;
            if text.contains("PRIVATE KEY") {
                return Err(Failure::Usage(format!(
                    "{} is a private key, which is nobody's business: give the .pub file",
                    path.display()
                )));
            }
            let lines = text.lines().map(str::trim);
            keys.extend(
                lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned),
            );
        }
        let user_data = self.user_data.as_deref().map(text_of).transpose()?;
        let network = match &self.network {
            Some(path) => Some(parsed(&text_of(path)?, &path.display().to_string())?),
            None => None,
        };
        Ok(Drive { keys, user_data, network })
    }
}

impl Drive {
    /// The drive of one instance; none if there is nothing to tell it.
    pub(crate) fn of(&self, uuid: &str, node: &str, hostname: Option<&str>) -> Option<Value> {
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

    /// The addresses the network gives the instance.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let networks = self.network.as_ref().and_then(|network| network["networks"].as_array());
        let addresses = networks.into_iter().flatten().filter_map(|network| {
            let address = network["ip_address"].as_str()?;
            Some(address.split('/').next().unwrap_or(address).to_owned())
        });
        addresses.collect()
    }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|source| Failure::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_told_what_it_needs() {
        let drive = Drive {
            keys: vec!["ssh-ed25519 AAAA ann".to_owned()],
            user_data: Some("#cloud-config\n".to_owned()),
            network: Some(
                json!({"networks": [{"ip_address": "10.0.0.5/24"}, {"type": "ipv4_dhcp"}]}),
            ),
        };
        let told = drive.of("u", "rack1-u01", Some("web")).unwrap();
        assert_eq!(told["meta_data"]["hostname"], "web");
        assert_eq!(told["meta_data"]["public_keys"], json!({"0": "ssh-ed25519 AAAA ann"}));
        assert_eq!(told["user_data"], "#cloud-config\n");
        assert_eq!(drive.addresses(), ["10.0.0.5"]);
        let silent = Drive { keys: Vec::new(), user_data: None, network: None };
        assert_eq!(silent.of("u", "n", None), None);
        assert!(silent.of("u", "n", Some("web")).is_some());
    }
}
