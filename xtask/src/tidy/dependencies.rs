// SPDX-License-Identifier: Apache-2.0
//! Who may depend on whom: the arrows between our crates point one way.
//!
//! The table is ARCHITECTURE.md's column "must never know". A crate that is not in the table is a
//! complaint, so that a new one starts with a decision.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// What one crate must never know, in groups.
struct Rule {
    name: &'static str,
    reach: Reach,
    never: &'static [&'static [&'static str]],
}

/// How far a crate must stay away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Not even through another crate of ours.
    Anywhere,
    /// It must not name it; that a crate it uses does is that crate's business.
    Directly,
}

const HTTP_SERVER: &[&str] = &["api-server", "hyper", "hyper-util"];
const DATABASE: &[&str] = &["store", "rusqlite", "postgres", "mysql"];
const RUNTIME: &[&str] = &["tokio", "async-trait"];
const MACHINES: &[&str] = &["bmc-drivers", "images", "boot-server"];
const LIFECYCLE: &[&str] = &["lifecycle"];
const CONDUCTOR: &[&str] = &["conductor"];
const IRONIC: &[&str] = &["ironic-wire"];
/// Used by tests and developers; what we ship does without.
const TOOLS: &[&str] = &["boot-bench", "http-probe", "xtask"];

const fn rule(name: &'static str, reach: Reach, never: &'static [&'static [&'static str]]) -> Rule {
    Rule { name, reach, never }
}

const RULES: &[Rule] = &[
    rule(
        "node-model",
        Reach::Anywhere,
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
    rule(
        "lifecycle",
        Reach::Anywhere,
        &[IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["inspection", "http"]],
    ),
    rule("ironic-wire", Reach::Anywhere, &[MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE]),
    rule(
        "store",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, &["http"]],
    ),
    // What the agent and its server share does nothing by itself.
    rule(
        "agent-protocol",
        Reach::Anywhere,
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
    // What runs in the ramdisk knows nothing of the server that commands it.
    rule(
        "machine-inventory",
        Reach::Anywhere,
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
        Reach::Anywhere,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            HTTP_SERVER,
            DATABASE,
            &["node-model", "bmc-drivers", "boot-server"],
        ],
    ),
    rule(
        "agent",
        Reach::Anywhere,
        &[
            LIFECYCLE,
            IRONIC,
            CONDUCTOR,
            DATABASE,
            &["node-model", "bmc-drivers", "boot-server", "api-server"],
        ],
    ),
    rule(
        "ramdisk",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    // The two protocols know nothing of us.
    rule(
        "server-trust",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, RUNTIME, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "redfish",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "ipmi",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model", "http"]],
    ),
    // It plays the other side, so it must not share our ideas of it.
    rule(
        "fleet-sim",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, DATABASE, &["api-server"]],
    ),
    // What machines boot: bytes, files and packets, and nothing of whose they are.
    rule(
        "images",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model", "bmc-drivers"]],
    ),
    rule(
        "boot-media",
        Reach::Anywhere,
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
    // Its HTTP is its own, for sendfile.
    rule(
        "boot-server",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, &["bmc-drivers"]],
    ),
    // It knows machines by what they boot, and neither why nor who asked.
    rule("boot-plans", Reach::Anywhere, &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER]),
    rule("bmc-drivers", Reach::Anywhere, &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE]),
    rule("inspection", Reach::Anywhere, &[IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE]),
    rule("conductor", Reach::Anywhere, &[IRONIC, HTTP_SERVER]),
    // It is files for a browser; what they show comes over the API.
    rule(
        "web-ui",
        Reach::Anywhere,
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
    // It asks the conductor for what a BMC has to answer, and must not go round it.
    rule("api-server", Reach::Directly, &[MACHINES, &["rusqlite", "postgres", "mysql"]]),
    // It runs boot services without the rest, and plays the machines they are for.
    rule(
        "boot-bench",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, &["bmc-drivers", "images"]],
    ),
    // It shows what a client sees, so it knows nothing of how the answers come about.
    rule(
        "http-probe",
        Reach::Anywhere,
        &[RUNTIME, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "xtask",
        Reach::Anywhere,
        &[RUNTIME, IRONIC, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    // They see what any user of the API sees, so that they work with any Ironic.
    rule(
        "ironic-client",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule(
        "command-line",
        Reach::Anywhere,
        &[LIFECYCLE, IRONIC, MACHINES, CONDUCTOR, HTTP_SERVER, DATABASE, &["node-model"]],
    ),
    rule("ferrite", Reach::Directly, &[]),
];

/// What each crate of ours depends on, tests aside.
pub(super) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Asks cargo for the graph.
pub(super) fn read(root: &Path) -> Result<Graph> {
    let output = shell::cargo(root)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    Ok(packages.iter().filter_map(package).collect())
}

/// Every edge that must not be, every crate without a rule, and every rule without a crate.
pub(super) fn complaints(graph: &Graph) -> Vec<String> {
    let mut complaints = wrong_edges(graph);
    complaints.extend(idle_rules(graph));
    complaints
}

/// A rule that binds nobody looks like a check and is none.
fn idle_rules(graph: &Graph) -> impl Iterator<Item = String> {
    RULES.iter().filter(|rule| !graph.contains_key(rule.name)).map(|rule| {
        format!("xtask/src/tidy/dependencies.rs has a rule for {}, and no such crate", rule.name)
    })
}

fn wrong_edges(graph: &Graph) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, direct) in graph {
        let Some(rule) = RULES.iter().find(|rule| rule.name == name) else {
            complaints.push(format!(
                "crate {name} has no rule: say in xtask/src/tidy/dependencies.rs what it must never know"
            ));
            continue;
        };
        let known = match rule.reach {
            Reach::Directly => direct.iter().map(|other| (other.as_str(), name.as_str())).collect(),
            Reach::Anywhere => reachable(graph, name),
        };
        let is_tool = TOOLS.contains(&name.as_str());
        for (other, through) in known {
            let forbidden = rule.never.iter().any(|group| group.contains(&other))
                || (!is_tool && TOOLS.contains(&other));
            if forbidden {
                complaints.push(format!(
                    "crate {name} must never know {other}, but depends on it in {through}"
                ));
            }
        }
    }
    complaints
}

/// Everything `name` depends on through crates of ours, with the crate that names it.
fn reachable<'a>(graph: &'a Graph, name: &'a str) -> BTreeMap<&'a str, &'a str> {
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
    // Tests may use what the crate itself must not know.
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

    fn graph(edges: &[(&str, &[&str])]) -> Graph {
        edges
            .iter()
            .map(|(name, others)| {
                ((*name).to_owned(), others.iter().map(|&other| other.to_owned()).collect())
            })
            .collect()
    }

    #[test]
    fn forbidden_edges_are_found() {
        for (edges, expected) in [
            (vec![("lifecycle", &["node-model"][..]), ("node-model", &["serde"])], None),
            (vec![("lifecycle", &["tokio"])], Some("lifecycle must never know tokio")),
            (
                vec![("lifecycle", &["node-model"]), ("node-model", &["tokio"])],
                Some("lifecycle must never know tokio, but depends on it in node-model"),
            ),
            (
                vec![
                    ("api-server", &["conductor"]),
                    ("conductor", &["bmc-drivers"]),
                    ("bmc-drivers", &[]),
                ],
                None,
            ),
            (
                vec![("api-server", &["bmc-drivers"])],
                Some("api-server must never know bmc-drivers"),
            ),
            (vec![("conductor", &["http-probe"])], Some("conductor must never know http-probe")),
            (vec![("odds-and-ends", &[])], Some("odds-and-ends has no rule")),
        ] {
            let complaints = wrong_edges(&graph(&edges)).join("\n");
            match expected {
                Some(expected) => assert!(complaints.contains(expected), "{complaints}"),
                None => assert_eq!(complaints, ""),
            }
        }
    }

    #[test]
    fn rules_without_a_crate_are_found() {
        let mut crates: Graph =
            RULES.iter().map(|rule| (rule.name.to_owned(), BTreeSet::new())).collect();
        assert_eq!(complaints(&crates), Vec::<String>::new());
        crates.remove("lifecycle");
        let complaints = complaints(&crates).join("\n");
        assert!(complaints.contains("a rule for lifecycle, and no such crate"), "{complaints}");
    }
}
