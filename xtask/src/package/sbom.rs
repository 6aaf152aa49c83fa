// SPDX-License-Identifier: Apache-2.0
//! The software bill of materials, as CycloneDX JSON.
//!
//! Made from `cargo metadata`, not with cargo-cyclonedx: that program takes minutes to compile, and
//! its output has a random serial number and the current time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::source_commit::{PackageVersion, SourceCommit};
use crate::shell;

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The packages of the programs that we ship.
const ROOTS: &[&str] = &["ferrite", "agent"];

/// How a crate takes part in a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ComponentUse {
    /// Only during the build: build scripts, macros and what they use.
    Build,
    /// Linked into a program.
    Linked,
}

/// Returns the document for the programs.
pub(super) fn document(
    root: &Path,
    commit: &SourceCommit,
    version: &PackageVersion,
) -> Result<Value> {
    let mut cargo = shell::cargo(root);
    cargo.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", TARGET]);
    let metadata: Value = serde_json::from_str(&shell::output_of(&mut cargo)?)
        .context("cargo metadata is not JSON")?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    let lock: toml::Table = lock.parse().context("Cargo.lock is not TOML")?;
    let glibc = shell::output_of(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let rustc = shell::output_of(Command::new("rustc").arg("--version").current_dir(root))?;
    let toolchain = [
        ("glibc", glibc.trim().trim_start_matches("glibc "), "LGPL-2.1-or-later"),
        ("rust-std", rustc.split(' ').nth(1).unwrap_or_default(), "MIT OR Apache-2.0"),
    ];
    Ok(from_metadata(&metadata, &checksums(&lock), &toolchain, commit, version))
}

fn from_metadata(
    metadata: &Value,
    checksums: &BTreeMap<(String, String), String>,
    toolchain: &[(&str, &str, &str)],
    commit: &SourceCommit,
    version: &PackageVersion,
) -> Value {
    let packages: BTreeMap<&str, &Value> =
        list(&metadata["packages"]).map(|package| (text(package, "id"), package)).collect();
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"]["nodes"]).map(|node| (text(node, "id"), node)).collect();
    let uses = uses(&packages, &nodes);
    let reference = |id: &str| packages.get(id).map(|package| purl(package));
    let mut components: Vec<(String, Value)> = Vec::new();
    let mut dependencies = BTreeMap::new();
    for (id, component_use) in &uses {
        let (Some(package), Some(node)) = (packages.get(id), nodes.get(id)) else { continue };
        components.push((purl(package), component(package, *component_use, checksums)));
        let direct: BTreeSet<String> = list(&node["deps"])
            .map(|dependency| text(dependency, "pkg"))
            .filter(|dependency| uses.contains_key(dependency))
            .filter_map(reference)
            .collect();
        dependencies.insert(purl(package), direct);
    }
    for (name, version, license) in toolchain {
        let purl = format!("pkg:generic/{name}@{version}");
        let component = json!({
            "type": "library", "bom-ref": purl, "name": name, "version": version,
            "licenses": [{"expression": license}], "purl": purl,
        });
        components.push((purl, component));
    }
    components.sort_by(|a, b| a.0.cmp(&b.0));
    let dependencies: Vec<Value> = dependencies
        .into_iter()
        .map(|(name, direct)| json!({"ref": name, "dependsOn": direct}))
        .collect();
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": format!("urn:uuid:{}", serial_number(&commit.id)),
        "version": 1,
        "metadata": {
            "timestamp": commit.timestamp(),
            "component": {
                "type": "application",
                "bom-ref": format!("ferrite@{}", version.semantic),
                "name": "ferrite",
                "version": version.semantic,
                "licenses": [{"expression": "Apache-2.0"}],
                "properties": [{"name": "git:commit", "value": commit.id}],
            },
        },
        "components": components.into_iter().map(|(_, component)| component).collect::<Vec<_>>(),
        "dependencies": dependencies,
    })
}

/// Follows the dependencies of the programs. Development dependencies are not part of them.
fn uses<'a>(
    packages: &BTreeMap<&'a str, &'a Value>,
    nodes: &BTreeMap<&'a str, &'a Value>,
) -> BTreeMap<&'a str, ComponentUse> {
    let mut found: BTreeMap<&str, ComponentUse> = BTreeMap::new();
    let roots = packages.iter().filter(|(_, package)| {
        package["source"].is_null() && ROOTS.contains(&text(package, "name"))
    });
    let mut to_visit: Vec<(&str, ComponentUse)> =
        roots.map(|(id, _)| (*id, ComponentUse::Linked)).collect();
    while let Some((id, component_use)) = to_visit.pop() {
        let component_use = match packages.get(id) {
            Some(package) if is_macro(package) => ComponentUse::Build,
            _ => component_use,
        };
        if found.get(id).is_some_and(|known| *known >= component_use) {
            continue;
        }
        found.insert(id, component_use);
        for dependency in nodes.get(id).into_iter().flat_map(|node| list(&node["deps"])) {
            for kind in list(&dependency["dep_kinds"]) {
                let next = match kind["kind"].as_str() {
                    None => component_use,
                    Some("build") => ComponentUse::Build,
                    Some(_) => continue,
                };
                to_visit.push((text(dependency, "pkg"), next));
            }
        }
    }
    found
}

fn component(
    package: &Value,
    component_use: ComponentUse,
    checksums: &BTreeMap<(String, String), String>,
) -> Value {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let purl = purl(package);
    let mut component = Map::new();
    component.insert("type".to_owned(), json!("library"));
    component.insert("bom-ref".to_owned(), json!(purl));
    component.insert("name".to_owned(), json!(name));
    component.insert("version".to_owned(), json!(version));
    let scope = match component_use {
        ComponentUse::Linked => "required",
        ComponentUse::Build => "excluded",
    };
    component.insert("scope".to_owned(), json!(scope));
    if let Some(license) = package["license"].as_str() {
        // Old crates separate alternatives with a slash.
        let expression = license.replace('/', " OR ");
        component.insert("licenses".to_owned(), json!([{"expression": expression}]));
    }
    if let Some(checksum) = checksums.get(&(name.to_owned(), version.to_owned())) {
        component.insert("hashes".to_owned(), json!([{"alg": "SHA-256", "content": checksum}]));
    }
    if !package["source"].is_null() {
        component.insert("purl".to_owned(), json!(purl));
    }
    Value::Object(component)
}

/// Package URL, with the path of crates in this repository left out.
fn purl(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text(package, "name"), text(package, "version"))
}

fn is_macro(package: &Value) -> bool {
    list(&package["targets"]).any(|target| list(&target["kind"]).any(|kind| kind == "proc-macro"))
}

/// Checksums in Cargo.lock by name and version.
fn checksums(lock: &toml::Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    packages
        .filter_map(|package| {
            let field = |name: &str| Some(package.get(name)?.as_str()?.to_owned());
            Some(((field("name")?, field("version")?), field("checksum")?))
        })
        .collect()
}

/// A UUID of version 8 from the commit, so that the same commit has the same document.
fn serial_number(commit: &str) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Sha256::digest(commit.as_bytes())[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hex::encode(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_linked_and_build_components_once() {
        let crates_io = "registry+https://github.com/rust-lang/crates.io-index";
        let package = |name: &str, source: Value, kind: &str| {
            json!({"id": name, "name": name, "version": "1.0.0", "source": source,
                   "license": "MIT/Apache-2.0", "targets": [{"kind": [kind]}]})
        };
        let edge = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [
                package("ferrite", Value::Null, "bin"),
                package("agent", Value::Null, "bin"),
                package("xtask", Value::Null, "bin"),
                package("linked", json!(crates_io), "lib"),
                package("derive", json!(crates_io), "proc-macro"),
                package("parser", json!(crates_io), "lib"),
                package("compiler", json!(crates_io), "lib"),
                package("tester", json!(crates_io), "lib"),
            ],
            "resolve": {"nodes": [
                {"id": "ferrite", "deps": [edge("linked", Value::Null), edge("derive", Value::Null),
                    edge("compiler", json!("build")), edge("tester", json!("dev"))]},
                {"id": "derive", "deps": [edge("parser", Value::Null), edge("linked", Value::Null)]},
                {"id": "linked", "deps": []},
                {"id": "parser", "deps": []},
                {"id": "compiler", "deps": []},
                {"id": "agent", "deps": [edge("linked", Value::Null)]},
            ]},
        });
        let lock = "[[package]]\nname = \"linked\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n";
        let checksums = checksums(&lock.parse().unwrap());
        let commit = SourceCommit::example();
        let toolchain = [("glibc", "2.36", "LGPL-2.1-or-later")];
        let make =
            || from_metadata(&metadata, &checksums, &toolchain, &commit, &commit.version("1.2.0"));
        let document = make();
        assert_eq!(document, make());
        let components: Vec<String> = list(&document["components"])
            .map(|component| format!("{} {}", text(component, "bom-ref"), text(component, "scope")))
            .collect();
        let expected = [
            "pkg:cargo/agent@1.0.0 required",
            "pkg:cargo/compiler@1.0.0 excluded",
            "pkg:cargo/derive@1.0.0 excluded",
            "pkg:cargo/ferrite@1.0.0 required",
            "pkg:cargo/linked@1.0.0 required",
            "pkg:cargo/parser@1.0.0 excluded",
            "pkg:generic/glibc@2.36 ",
        ];
        assert_eq!(components, expected);
        let linked = &document["components"][4];
        assert_eq!(linked["hashes"][0]["content"], "00ff");
        assert_eq!(linked["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(document["dependencies"][3]["dependsOn"].as_array().unwrap().len(), 3);
    }
}
