// SPDX-License-Identifier: Apache-2.0
//! The configurations that the operator generates are accepted.

use std::net::IpAddr;
use std::path::Path;

use serde_json::Value as Json;

use super::{Config, ConfigSource};
use crate::network_interfaces::{HostInterface, InterfaceAddress};

/// Stands for the addresses of the node and the pod.
const POD_ADDRESS: &str = "192.0.2.7";

/// The expected objects of an installation.
fn objects(case: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(case.join("objects.yaml")).unwrap();
    let documents = text.split("---\n").skip(1);
    documents.map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The variables that the kubelet sets.
fn variables(objects: &[Json]) -> Vec<(String, String)> {
    let is_workload =
        |object: &&Json| object["kind"] == "Deployment" || object["kind"] == "DaemonSet";
    let workload = objects.iter().find(is_workload).unwrap();
    let variables = &workload["spec"]["template"]["spec"]["containers"][0]["env"];
    let variable = |variable: &Json| {
        let value = match variable["value"].as_str() {
            Some(text) => text.replace("$(IRONIC_IP)", POD_ADDRESS),
            None if variable["name"] == "FERRITE_DATABASE__URL" => {
                "postgresql://user:password@database/ironic".to_owned()
            }
            None => "value".to_owned(),
        };
        (variable["name"].as_str().unwrap().to_owned(), value)
    };
    variables.as_array().unwrap().iter().map(variable).collect()
}

/// A node with all interfaces and addresses of the cases.
fn interfaces() -> Vec<HostInterface> {
    let address = |text: &str, prefix: u8| InterfaceAddress {
        address: text.parse::<IpAddr>().unwrap(),
        prefix,
    };
    let interface = |name: &str, mac: u8, addresses: Vec<InterfaceAddress>| HostInterface {
        name: name.to_owned(),
        macs: vec![[0, 0x53, 0, 0x12, 0x34, mac]],
        is_up: true,
        is_loopback: false,
        addresses,
    };
    vec![
        // As keepalived assigns it.
        interface("eth0", 0, vec![address(POD_ADDRESS, 24)]),
        interface("eth1", 0xbb, vec![address("192.0.2.2", 32), address("2001:db8::2", 64)]),
    ]
}

fn accepted(case: &Path) -> anyhow::Result<Config> {
    let objects = objects(case);
    let map = objects.iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("ferrite.toml");
    std::fs::write(&file, map["data"]["ferrite.toml"].as_str().unwrap())?;
    let source = ConfigSource::read(Some(&file), variables(&objects).into_iter())?;
    let mut config = source.config(None)?;
    if config.provisioning.is_set() {
        let found = config.provisioning.find(&interfaces()).map_err(anyhow::Error::msg)?;
        config = source.config(Some(found))?;
    }
    assert!(config.api.htpasswd_file.is_some());
    // It is in a Secret.
    config.api.htpasswd_file = Some(file);
    config.check()?;
    config.inspection()?;
    config.key_source()?;
    config.dhcp.server_config()?;
    let own = config.dhcp.dns_networks().iter().map(|(address, _)| *address).collect();
    config.dns.upstreams(own)?;
    Ok(config)
}

#[test]
fn generated_configurations_are_accepted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../operator/tests/goldens");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let case = entry.unwrap().path();
        let config =
            accepted(&case).unwrap_or_else(|error| panic!("{}: {error:#}", case.display()));
        found.push((case.file_name().unwrap().to_str().unwrap().to_owned(), config));
    }
    assert!(found.len() >= 11, "{}", found.len());
    let config = |name: &str| &found.iter().find(|(case, _)| case == name).unwrap().1;
    assert_eq!(config("interface").api.listen.to_string(), "192.0.2.2:6385");
    assert_eq!(config("node-address").api.listen.to_string(), "192.0.2.7:6385");
    let replicas = config("replicas-with-dhcp");
    assert_eq!(replicas.dhcp.networks[0].address, "192.0.2.2/24");
    assert_eq!(replicas.dhcp.networks[0].interface.as_deref(), Some("eth1"));
    assert_eq!(config("relays").dhcp.networks[0].address, "192.0.2.2/32");
    assert_eq!(config("ipv6-dhcp").dhcp.networks[0].interface.as_deref(), Some("eth1"));
}
