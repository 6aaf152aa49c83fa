// SPDX-License-Identifier: Apache-2.0
//! The objects of the hosts: created with several connections, and checked at the end.

use std::thread;

use anyhow::{Context, Result, bail};
use http_probe::ProbeClient;
use serde_json::{Value, json};

use super::control_plane::BenchControlPlane;
use super::machines::MachineAddress;

/// The namespace of all hosts.
pub(super) const NAMESPACE: &str = "hosts";
/// Connections that create objects.
const CONNECTIONS: usize = 4;
/// Objects per page of a list.
const PAGE_SIZE: usize = 500;

/// How hosts get their hardware details.
pub(super) enum HostTemplate {
    /// By an inspection. They are cleaned too.
    Inspected,
    /// They are given, and the host is not cleaned.
    WithHardware(Value),
}

/// Hosts to create.
pub(super) struct HostCreation<'a> {
    /// The number of the first host.
    pub(super) first: usize,
    pub(super) machines: &'a [MachineAddress],
    pub(super) template: &'a HostTemplate,
}

impl HostCreation<'_> {
    /// Creates the hosts and a Secret for each.
    pub(super) fn run(&self, cluster: &BenchControlPlane) -> Result<()> {
        thread::scope(|scope| {
            let threads: Vec<_> = (0..CONNECTIONS)
                .map(|connection| {
                    let client = cluster.client();
                    scope.spawn(move || self.create_every(connection, &mut client?))
                })
                .collect();
            for thread in threads {
                match thread.join() {
                    Ok(result) => result?,
                    Err(_) => bail!("creating hosts panicked"),
                }
            }
            Ok(())
        })
    }

    fn create_every(&self, connection: usize, client: &mut ProbeClient) -> Result<()> {
        let machines = self.machines.iter().enumerate();
        for (index, machine) in machines.skip(connection).step_by(CONNECTIONS) {
            let name = format!("host-{:05}", self.first + index);
            post(client, &format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &secret(&name))?;
            post(client, &hosts_path(), &self.template.host(&name, machine))?;
        }
        Ok(())
    }
}

impl HostTemplate {
    fn host(&self, name: &str, machine: &MachineAddress) -> Value {
        let mut host = json!({
            "apiVersion": "metal3.io/v1alpha1",
            "kind": "BareMetalHost",
            "metadata": {"name": name},
            "spec": {
                "online": true,
                "bootMACAddress": machine.mac,
                "bmc": {"address": machine.bmc, "credentialsName": credentials_name(name)},
            },
        });
        if let Self::WithHardware(hardware) = self {
            host["metadata"]["annotations"] = json!({
                "inspect.metal3.io": "disabled",
                "inspect.metal3.io/hardwaredetails": hardware.to_string(),
            });
            host["spec"]["automatedCleaningMode"] = json!("disabled");
        }
        host
    }
}

fn credentials_name(host: &str) -> String {
    format!("{host}-bmc")
}

/// The credentials of `ferrite sim`.
fn secret(host: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": credentials_name(host)},
        "stringData": {"username": "admin", "password": "password"},
    })
}

fn hosts_path() -> String {
    format!("/apis/metal3.io/v1alpha1/namespaces/{NAMESPACE}/baremetalhosts")
}

fn post(client: &mut ProbeClient, path: &str, object: &Value) -> Result<()> {
    let response = client.send_json("POST", path, Some(object))?;
    if response.status != 201 {
        bail!("POST {path}: {} {}", response.status, response.text());
    }
    Ok(())
}

/// Returns the hardware details of the first host.
pub(super) fn inspected_hardware(client: &mut ProbeClient) -> Result<Value> {
    let path = format!("{}?limit=1", hosts_path());
    let mut list = client.send_json("GET", &path, None)?.json();
    let hardware = list["items"][0]["status"]["hardware"].take();
    if hardware["nics"].as_array().is_none_or(Vec::is_empty) {
        bail!("the first host has no hardware details");
    }
    Ok(hardware)
}

/// Describes a host that is not available, or a wrong number of hosts. `None` if all `expected` hosts are
/// available without an error. Adds the number of requests to `requests`.
pub(super) fn find_unavailable(
    client: &mut ProbeClient,
    expected: usize,
    requests: &mut usize,
) -> Result<Option<String>> {
    let mut found = 0;
    let mut next = String::new();
    loop {
        let path = format!("{}?limit={PAGE_SIZE}&continue={next}", hosts_path());
        *requests += 1;
        let response = client.send_json("GET", &path, None)?;
        if response.status != 200 {
            bail!("cannot list hosts: {} {}", response.status, response.text());
        }
        let page = response.json();
        for host in page["items"].as_array().context("the list has no items")? {
            if let Some(problem) = problem_of(host) {
                return Ok(Some(problem));
            }
            found += 1;
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => next = token.to_owned(),
            _ => break,
        }
    }
    Ok((found != expected).then(|| format!("there are {found} hosts instead of {expected}")))
}

fn problem_of(host: &Value) -> Option<String> {
    let (name, status) = (&host["metadata"]["name"], &host["status"]);
    let state = status["provisioning"]["state"].as_str().unwrap_or_default();
    let error = status["errorMessage"].as_str().unwrap_or_default();
    if state != "available" || !error.is_empty() {
        return Some(format!("host {name} is {state:?} with the error {error:?}"));
    }
    let has_nics = status["hardware"]["nics"].as_array().is_some_and(|nics| !nics.is_empty());
    (!has_nics).then(|| format!("host {name} has no hardware details"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_available_hosts_with_hardware_are_accepted() {
        let host = |state: &str, error: &str, nics: Value| {
            json!({"metadata": {"name": "a"}, "status": {"errorMessage": error,
                "provisioning": {"state": state}, "hardware": {"nics": nics}}})
        };
        let nics = json!([{"mac": "52:54:00:00:00:01"}]);
        assert_eq!(problem_of(&host("available", "", nics.clone())), None);
        assert!(problem_of(&host("preparing", "", nics.clone())).is_some());
        assert!(problem_of(&host("available", "power", nics)).is_some());
        assert!(problem_of(&host("available", "", json!([]))).is_some());
    }

    #[test]
    fn given_hardware_replaces_inspection_and_cleaning() {
        let machine = MachineAddress { bmc: "redfish://x".into(), mac: "52:54:00:00:00:01".into() };
        let inspected = HostTemplate::Inspected.host("a", &machine);
        assert!(inspected["metadata"]["annotations"].is_null());
        assert_eq!(inspected["spec"]["bmc"]["credentialsName"], secret("a")["metadata"]["name"]);
        let given = HostTemplate::WithHardware(json!({"ramMebibytes": 1})).host("a", &machine);
        let annotations = &given["metadata"]["annotations"];
        assert_eq!(annotations["inspect.metal3.io/hardwaredetails"], "{\"ramMebibytes\":1}");
        assert_eq!(given["spec"]["automatedCleaningMode"], "disabled");
    }
}
