// SPDX-License-Identifier: Apache-2.0
//! What an instance is told at its first start: who may sign in, what to run, which network it has.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::parsed;

/// Where they are in the help.
const HEADING: &str = "What the instance is told";

/// Options that make a config drive.
#[derive(Args, Debug)]
pub(crate) struct DriveArguments {
    /// Files with public keys that may sign in.
    #[arg(help_heading = HEADING, long = "ssh-key", value_name = "FILE")]
    ssh_keys: Vec<PathBuf>,
    /// A file for cloud-init, such as one that begins with #cloud-config.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    user_data: Option<PathBuf>,
    /// The network, in OpenStack's network_data form: a JSON or YAML file.
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
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
            let lines: Vec<&str> =
                lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
            if lines.is_empty() || !lines.iter().all(|line| is_public_key(line)) {
                let told = format!("{} is no file of public SSH keys", path.display());
                return Err(Failure::Usage(told));
            }
            keys.extend(lines.into_iter().map(str::to_owned));
        }
        let user_data = self.user_data.as_deref().map(text_of).transpose()?;
        let network = match &self.network {
            Some(path) => {
                let network = parsed(&text_of(path)?, &path.display().to_string())?;
                if let Some(problem) = problem_with(&network) {
                    let told = format!("{} is no network_data: {problem}", path.display());
                    return Err(Failure::Usage(told));
                }
                Some(network)
            }
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

/// Whether a line is a key of `authorized_keys`: there may be options before it and a comment behind.
fn is_public_key(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.windows(2).any(|pair| {
        let is_kind = ["ssh-", "ecdsa-", "sk-"].iter().any(|kind| pair[0].starts_with(kind));
        is_kind
            && pair[1].bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
    })
}

/// What an instance could not make sense of in its network.
fn problem_with(network: &Value) -> Option<String> {
    let Value::Object(members) = network else { return Some("it is no object".to_owned()) };
    const LISTS: [&str; 3] = ["links", "networks", "services"];
    for (name, list) in members {
        if !LISTS.contains(&name.as_str()) {
            return Some(format!("there is no {name:?} in it, only {}", LISTS.join(", ")));
        }
        if !list.as_array().is_some_and(|items| items.iter().all(Value::is_object)) {
            return Some(format!("{name} is no list of objects"));
        }
    }
    if !members.contains_key("networks") {
        return Some("it has no networks".to_owned());
    }
    let links = network["links"].as_array().into_iter().flatten();
    let known: Vec<&str> = links.filter_map(|link| link["id"].as_str()).collect();
    for one in network["networks"].as_array().into_iter().flatten() {
        if let Some(link) = one["link"].as_str().filter(|link| !known.contains(link)) {
            return Some(format!(
                "a network is on the link {link:?}, which is not among the links"
            ));
        }
        let address = &one["ip_address"];
        let is_address = address.as_str().is_some_and(|text| {
            let (address, prefix) = text.split_once('/').unwrap_or((text, "0"));
            address.parse::<std::net::IpAddr>().is_ok()
                && prefix.parse::<u8>().is_ok_and(|it| it <= 128)
        });
        if !address.is_null() && !is_address {
            return Some(format!("{address} is no IP address"));
        }
    }
    None
}

fn text_of(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|source| Failure::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_seen() {
        for (network, problem) in [
            (json!({"networks": [{"ip_address": "10.0.0.5/24"}, {"type": "ipv4_dhcp"}]}), None),
            (
                json!({"links": [{"id": "l"}], "networks": [{"link": "l", "ip_address": "fe80::1"}]}),
                None,
            ),
            (json!("dhcp"), Some("it is no object")),
            (json!({}), Some("it has no networks")),
            (json!({"networks": {}}), Some("networks is no list of objects")),
            (
                json!({"networks": [], "ethernets": {}}),
                Some("there is no \"ethernets\" in it, only links, networks, services"),
            ),
            (
                json!({"networks": [{"link": "l"}]}),
                Some("a network is on the link \"l\", which is not among the links"),
            ),
            (json!({"networks": [{"ip_address": "10.0.0"}]}), Some("\"10.0.0\" is no IP address")),
            (json!({"networks": [{"ip_address": 7}]}), Some("7 is no IP address")),
        ] {
            assert_eq!(problem_with(&network).as_deref(), problem);
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
