// SPDX-License-Identifier: Apache-2.0
//! Checks the dependencies between crates against the column "never depends on" of ARCHITECTURE.md.
//!
//! A crate without a rule is a violation, so that a new crate starts with a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// The forbidden dependencies of one crate, in groups.
struct DependencyRule {
    name: &'static str,
    reach: RuleScope,
    never: &'static [&'static [&'static str]],
}

/// Which dependencies a rule covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleScope {
    /// Direct and indirect dependencies.
    Transitive,
    /// Only direct dependencies.
    Direct,
}

const HTTP_SERVER: &[&str] = &["api-server", "hyper", "hyper-util"];
const DATABASE: &[&str] = &["store", "rusqlite", "postgres", "tokio-postgres", "mysql"];
const RUNTIME: &[&str] = &["tokio", "async-trait"];
/// Driver crates other than the interface traits.
const CONCRETE_DRIVERS: &[&str] =
    &["agent-driver", "driver-set", "fake-driver", "ipmi-driver", "redfish-driver"];
const DRIVERS: &[&str] =
    &["agent-driver", "driver-set", "drivers", "fake-driver", "ipmi-driver", "redfish-driver"];
/// Protocols and HTTP clients; only driver crates for them depend on them.
const MACHINE_PROTOCOLS: &[&str] = &["agent-protocol", "ipmi", "redfish", "reqwest"];
const MACHINES: &[&str] = &[
    "agent-driver",
    "boot-server",
    "driver-set",
    "drivers",
    "fake-driver",
    "images",
    "ipmi-driver",
    "redfish-driver",
];
const LIFECYCLE: &[&str] = &["lifecycle"];
const CONDUCTOR: &[&str] = &["conductor"];
const IRONIC: &[&str] = &["ironic-wire"];
/// Used by tests and developers, never by shipped crates.
const TOOLS: &[&str] =
    &["boot-bench", "http-probe", "simulation", "test-cluster", "test-databases", "xtask"];

const fn rule(
    name: &'static str,
    reach: RuleScope,
    never: &'static [&'static [&'static str]],
) -> DependencyRule {
    DependencyRule { name, reach, never }
}

const RULES: &[DependencyRule] = &[
    rule(
        "node-model",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            RUNTIME,
            HTTP_SERVER,
            DATABASE,
            &["inspection", "http"],
        ],
    ),
    // Only decisions, no IO.
    rule(
        "access-policy",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            RUNTIME,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "inspection", "http", "reqwest"],
        ],
    ),
    rule(
        "lifecycle",
        RuleScope::Transitive,
        &[IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["inspection", "http"]],
    ),
    rule(
        "ironic-wire",
        RuleScope::Transitive,
        &[MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE],
    ),
    rule(
        "store",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, &["http"]],
    ),
    // Only messages, no IO.
    rule(
        "agent-protocol",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            RUNTIME,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "http", "reqwest"],
        ],
    ),
    // The crates of the ramdisk do not depend on server crates.
    rule(
        "machine-inventory",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            RUNTIME,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "http", "reqwest"],
        ],
    ),
    rule(
        "disk-steps",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            DRIVERS,
            &["node-model", "boot-server"],
        ],
    ),
    rule(
        "agent",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            DATABASE,
            DRIVERS,
            &["node-model", "boot-server", "api-server"],
        ],
    ),
    rule(
        "ramdisk",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    // Protocol crates do not depend on the product.
    rule(
        "server-trust",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "server-tls",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    // Used by both HTTP servers.
    rule(
        "connection-limits",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model", "http"]],
    ),
    rule(
        "redfish",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "ipmi",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model", "http"]],
    ),
    // The simulator must not share code with the side it tests.
    rule(
        "fleet-sim",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, DATABASE, &["api-server"]],
    ),
    // Boot files and packets, independent of nodes.
    rule(
        "images",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, DRIVERS, &["node-model"]],
    ),
    rule(
        "boot-media",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            RUNTIME,
            &["node-model", "http"],
        ],
    ),
    rule(
        "dhcp-codec",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            RUNTIME,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "http", "socket2"],
        ],
    ),
    // It has its own HTTP server, for sendfile.
    rule(
        "boot-server",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, DRIVERS],
    ),
    // Boot plans are independent of jobs and requests.
    rule(
        "boot-plans",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, CONCRETE_DRIVERS],
    ),
    // Traits and the registry. Driver crates register themselves, so it depends on none of them.
    rule(
        "drivers",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            CONCRETE_DRIVERS,
            MACHINE_PROTOCOLS,
            &["images", "boot-server", "boot-plans"],
        ],
    ),
    // Driver crates do not depend on each other.
    rule(
        "redfish-driver",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            &["agent-driver", "agent-protocol", "driver-set", "fake-driver", "ipmi", "ipmi-driver"],
        ],
    ),
    rule(
        "ipmi-driver",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            &["agent-driver", "driver-set", "fake-driver", "redfish-driver"],
            &["agent-protocol", "redfish", "reqwest"],
        ],
    ),
    rule(
        "agent-driver",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            &["driver-set", "fake-driver", "ipmi", "ipmi-driver", "redfish", "redfish-driver"],
        ],
    ),
    rule(
        "fake-driver",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            MACHINE_PROTOCOLS,
            &["agent-driver", "driver-set", "ipmi-driver", "redfish-driver"],
        ],
    ),
    rule(
        "driver-set",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE],
    ),
    rule("inspection", RuleScope::Transitive, &[IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE]),
    rule("conductor", RuleScope::Transitive, &[IRONIC, HTTP_SERVER, CONCRETE_DRIVERS]),
    // Static files; all data come over the API.
    rule(
        "web-ui",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            RUNTIME,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "http"],
        ],
    ),
    rule(
        "authentication",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, &["inspection"]],
    ),
    // All access to machines goes through the conductor, which must not re-export drivers.
    rule(
        "api-server",
        RuleScope::Direct,
        &[MACHINES, &["rusqlite", "postgres", "tokio-postgres", "mysql"]],
    ),
    // Runs the boot services alone, and simulates booting machines.
    rule(
        "boot-bench",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, DRIVERS, &["images"]],
    ),
    // Its machines and clients know no wire format of real ones.
    rule("simulation", RuleScope::Direct, &[IRONIC, &["hyper", "hyper-util"], MACHINE_PROTOCOLS]),
    // A client for tests, independent of the implementation.
    rule(
        "http-probe",
        RuleScope::Transitive,
        &[RUNTIME, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    // Used by tests of several crates, so it depends on none of ours.
    rule(
        "test-databases",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    // Any program can run in its pods, so it depends on none of ours.
    rule(
        "test-cluster",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "kube-resources", "operator"],
        ],
    ),
    rule(
        "xtask",
        RuleScope::Transitive,
        &[RUNTIME, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    // Types and pure translations, for clients of any Ironic.
    rule(
        "kube-resources",
        RuleScope::Transitive,
        &[
            LIFECYCLE,
            IRONIC,
            MACHINES,
            CONDUCTOR,
            RUNTIME,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "http", "reqwest"],
        ],
    ),
    // Controllers use the service only over its API, so that they work with any Ironic.
    rule(
        "operator",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, DATABASE, &["node-model", "api-server"]],
    ),
    // Clients use only the HTTP API, so that they work with any Ironic.
    rule(
        "ironic-client",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "command-line",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "demo",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, DATABASE, &["api-server"]],
    ),
    // Used by all crates, so it depends on none.
    rule(
        "error-chain",
        RuleScope::Transitive,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule("ferrite", RuleScope::Direct, &[]),
];

/// The dependencies of each workspace crate, without dev-dependencies.
pub(super) type DependencyGraph = BTreeMap<String, BTreeSet<String>>;

/// Reads the graph from `cargo metadata`.
pub(super) fn read(root: &Path) -> Result<DependencyGraph> {
    let output = shell::cargo(root)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    Ok(packages.iter().filter_map(package).collect())
}

/// Returns forbidden dependencies, crates without a rule, and rules without a crate.
pub(super) fn complaints(graph: &DependencyGraph) -> Vec<String> {
    let mut complaints = forbidden_dependencies(graph);
    complaints.extend(unused_rules(graph));
    complaints
}

/// Rules for crates that do not exist.
fn unused_rules(graph: &DependencyGraph) -> impl Iterator<Item = String> {
    RULES.iter().filter(|rule| !graph.contains_key(rule.name)).map(|rule| {
        format!("xtask/src/tidy/dependencies.rs has a rule for {}, and no such crate", rule.name)
    })
}

fn forbidden_dependencies(graph: &DependencyGraph) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, direct) in graph {
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            complaints.push(format!(
                "crate {name} has no rule: add its forbidden dependencies to xtask/src/tidy/dependencies.rs"
            ));
            continue;
        };
        let known = match rule.reach {
            RuleScope::Direct => {
                direct.iter().map(|other| (other.as_str(), name.as_str())).collect()
            }
            RuleScope::Transitive => reachable(graph, name),
        };
        let is_tool = TOOLS.contains(&name.as_str());
        for (other, through) in known {
            let forbidden = rule.never.iter().any(|group| group.contains(&other))
                || (!is_tool && TOOLS.contains(&other));
            if forbidden {
                complaints.push(format!(
                    "crate {name} must not depend on {other}, but does in {through}"
                ));
            }
        }
    }
    complaints
}

/// All direct and indirect dependencies of `name`, with the crate that declares each.
fn reachable<'a>(graph: &'a DependencyGraph, name: &'a str) -> BTreeMap<&'a str, &'a str> {
    let mut found = BTreeMap::new();
    let mut to_visit = vec![name];
    while let Some(through) = to_visit.pop() {
        for other in graph.get(through).into_iter().flatten() {
            if found.insert(other.as_str(), through).is_none() {
                to_visit.push(other);
            }
        }
    }
    found
}

fn package(package: &Value) -> Option<(String, BTreeSet<String>)> {
    let name = package["name"].as_str()?.to_owned();
    let dependencies = package["dependencies"].as_array()?;
    // Tests may use crates that the product code must not.
    let dependencies = dependencies
        .iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .filter_map(|dependency| Some(dependency["name"].as_str()?.to_owned()))
        .collect();
    Some((name, dependencies))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &[&str])]) -> DependencyGraph {
        edges
            .iter()
            .map(|(name, others)| {
                ((*name).to_owned(), others.iter().map(|&other| other.to_owned()).collect())
            })
            .collect()
    }

    #[test]
    fn reports_forbidden_dependencies() {
        for (edges, expected) in [
            (vec![("lifecycle", &["node-model"][..]), ("node-model", &["serde"])], None),
            (vec![("lifecycle", &["tokio"])], Some("lifecycle must not depend on tokio")),
            (
                vec![("lifecycle", &["node-model"]), ("node-model", &["tokio"])],
                Some("lifecycle must not depend on tokio, but does in node-model"),
            ),
            (
                vec![("api-server", &["conductor"]), ("conductor", &["drivers"]), ("drivers", &[])],
                None,
            ),
            (vec![("api-server", &["drivers"])], Some("api-server must not depend on drivers")),
            (vec![("conductor", &["http-probe"])], Some("conductor must not depend on http-probe")),
            (vec![("odds-and-ends", &[])], Some("odds-and-ends has no rule")),
        ] {
            let complaints = forbidden_dependencies(&graph(&edges)).join("\n");
            match expected {
                Some(expected) => assert!(complaints.contains(expected), "{complaints}"),
                None => assert_eq!(complaints, ""),
            }
        }
    }

    #[test]
    fn reports_rules_without_a_crate() {
        let mut crates: DependencyGraph =
            RULES.iter().map(|rule| (rule.name.to_owned(), BTreeSet::new())).collect();
        assert_eq!(complaints(&crates), Vec::<String>::new());
        crates.remove("lifecycle");
        let complaints = complaints(&crates).join("\n");
        assert!(complaints.contains("a rule for lifecycle, and no such crate"), "{complaints}");
    }
}
