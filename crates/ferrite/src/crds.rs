// SPDX-License-Identifier: Apache-2.0
//! `ferrite crds`: prints the CRDs of the operator.

use std::io::{self, Write};

use anyhow::{Context as _, bail};
use clap::Args;
use kube_resources::crds::{CrdDocument, all_crds};

/// Options of `ferrite crds`.
#[derive(Args, Debug)]
pub(crate) struct CrdsArguments {
    /// Names of CRDs, such as `ironics` or `baremetalhosts.metal3.io`. By default all.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Only CRDs of this group, ironic.metal3.io or metal3.io; may be given several times.
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
}

/// Prints one YAML stream.
pub(crate) fn crds(arguments: &CrdsArguments) -> anyhow::Result<()> {
    write_all(&mut io::stdout().lock(), &yaml_stream(arguments)?)
}

/// Writes the text. A reader that closes the pipe early, such as `head`, is no error.
fn write_all(output: &mut impl Write, text: &str) -> anyhow::Result<()> {
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}

fn yaml_stream(arguments: &CrdsArguments) -> anyhow::Result<String> {
    for group in &arguments.group {
        if !all_crds().iter().any(|document| group_of(document) == group) {
            bail!("there is no CRD of group {group:?}; use one of {}", groups().join(", "));
        }
    }
    for name in &arguments.names {
        if !all_crds().iter().any(|document| is_named(document, name)) {
            let names: Vec<&str> = all_crds().iter().map(|document| document.name).collect();
            bail!("there is no CRD {name:?}; use one of {}", names.join(", "));
        }
    }
    let is_selected = |document: &&CrdDocument| {
        let CrdsArguments { names, group } = arguments;
        (names.is_empty() || names.iter().any(|name| is_named(document, name)))
            && (group.is_empty() || group.iter().any(|group| group_of(document) == group))
    };
    let documents: Vec<&CrdDocument> = all_crds().iter().filter(is_selected).collect();
    if documents.is_empty() {
        bail!("no CRD has one of these names and one of these groups");
    }
    let texts = documents
        .iter()
        .map(|document| format!("---\n{}\n", document.yaml.trim_start_matches("---\n").trim_end()));
    Ok(texts.collect())
}

fn group_of(document: &CrdDocument) -> &'static str {
    document.name.split_once('.').map_or("", |(_, group)| group)
}

fn groups() -> Vec<&'static str> {
    let mut groups: Vec<&str> = all_crds().iter().map(group_of).collect();
    groups.dedup();
    groups
}

/// With or without the group.
fn is_named(document: &CrdDocument, name: &str) -> bool {
    document.name == name || document.name.split_once('.').is_some_and(|(plural, _)| plural == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str], groups: &[&str]) -> String {
        let text = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect();
        let arguments = CrdsArguments { names: text(names), group: text(groups) };
        match yaml_stream(&arguments) {
            Err(error) => error.to_string(),
            Ok(stream) => {
                let documents = stream.split("---\n").filter(|text| !text.is_empty());
                let names = documents.map(|text| {
                    let crd: serde_json::Value = serde_saphyr::from_str(text).unwrap();
                    crd["metadata"]["name"].as_str().unwrap().to_owned()
                });
                names.collect::<Vec<_>>().join(" ")
            }
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let (reader, mut writer) = io::pipe().unwrap();
        drop(reader);
        write_all(&mut writer, "text").unwrap();
    }

    #[test]
    fn crds_are_selected_by_name_and_group() {
        let all: Vec<&str> = all_crds().iter().map(|document| document.name).collect();
        assert_eq!(names(&[], &[]), all.join(" "));
        let both = "ironicdatabases.ironic.metal3.io ironics.ironic.metal3.io";
        assert_eq!(names(&[], &["ironic.metal3.io"]), both);
        let hosts = names(&["dataimages", "baremetalhosts.metal3.io"], &[]);
        assert_eq!(hosts, "baremetalhosts.metal3.io dataimages.metal3.io");
        assert_eq!(
            names(&[], &["metal3"]),
            r#"there is no CRD of group "metal3"; use one of ironic.metal3.io, metal3.io"#
        );
        assert!(names(&["ironic"], &[]).starts_with(r#"there is no CRD "ironic"; use one of "#));
        assert_eq!(
            names(&["ironics"], &["metal3.io"]),
            "no CRD has one of these names and one of these groups"
        );
    }
}
