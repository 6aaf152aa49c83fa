// SPDX-License-Identifier: Apache-2.0
//! Boot Loader Specification entries: `loader/entries/*.conf`, used by systemd-boot and by GRUB with
//! `blscfg`.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use super::{BootPartition, BootSelection, MenuSearch, find_file, grub, read_menu};
use crate::system_root;

#[derive(Debug, Default, PartialEq, Eq)]
struct BlsEntry {
    id: String,
    version: String,
    sort_key: String,
    kernel: Option<String>,
    initrds: Vec<String>,
    options: Vec<String>,
}

/// Finds the default entry.
pub(super) fn find(partitions: &[BootPartition]) -> MenuSearch {
    for partition in partitions {
        for prefix in ["", "boot/"] {
            let root = &partition.path;
            let mut entries = read_entries(root, &format!("{prefix}loader/entries"));
            if entries.is_empty() {
                continue;
            }
            entries.sort_by(|one, other| compare_entries(other, one));
            let configured = configured_entry(partitions, root, prefix);
            let selected = configured
                .and_then(|configured| {
                    entries.iter().find(|entry| matches_pattern(&configured, &entry.id))
                })
                .or(entries.first());
            let Some(entry) = selected else { continue };
            let menu =
                format!("loader/entries/{}.conf of partition {}", entry.id, partition.number);
            return match select(partitions, root, prefix, entry) {
                Ok(selection) => MenuSearch::Found { origin: menu, selection },
                Err(reason) => MenuSearch::Unclear { menu, reason },
            };
        }
    }
    MenuSearch::Nothing
}

fn select(
    partitions: &[BootPartition],
    root: &Path,
    prefix: &str,
    entry: &BlsEntry,
) -> Result<BootSelection, String> {
    let file = |name: &String| -> Result<PathBuf, String> {
        // Without a boot partition, paths are relative to the directory above /boot.
        let found = find_file(root, &format!("{prefix}{name}")).or_else(|| find_file(root, name));
        found.ok_or_else(|| format!("there is no {name}"))
    };
    let kernel = entry.kernel.as_ref().ok_or("it names no kernel")?;
    let variables = grub::saved_variables(partitions);
    let options = grub::expand(&entry.options.join(" "), &variables);
    Ok(BootSelection {
        kernel: file(kernel)?,
        // Fedora's entries end with a variable that is usually empty.
        initrds: entry
            .initrds
            .iter()
            .flat_map(|line| line.split_whitespace())
            .filter(|name| !name.starts_with('$'))
            .map(|name| file(&name.to_owned()))
            .collect::<Result<_, _>>()?,
        command_line: options,
    })
}

fn read_entries(root: &Path, directory: &str) -> Vec<BlsEntry> {
    let mut entries = Vec::new();
    for name in system_root::list_directory(root, directory) {
        let path = Path::new(&name);
        let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_entry = path.extension().is_some_and(|extension| extension == "conf");
        // systemd-boot counts the remaining boot attempts in the name; `+0` has none left.
        if !is_entry || id.ends_with("+0") {
            continue;
        }
        if let Some(text) = read_menu(root, &format!("{directory}/{name}")) {
            entries.push(BlsEntry { id, ..parse(&text) });
        }
    }
    entries
}

fn parse(text: &str) -> BlsEntry {
    let mut entry = BlsEntry::default();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.split_once(char::is_whitespace) else { continue };
        let value = value.trim().to_owned();
        match key {
            "version" => entry.version = value,
            "sort-key" => entry.sort_key = value,
            "linux" => entry.kernel = Some(value),
            "initrd" => entry.initrds.push(value),
            "options" => entry.options.push(value),
            _ => {}
        }
    }
    entry
}

/// Returns the configured default entry: from systemd-boot's `loader.conf`, or from GRUB's environment.
fn configured_entry(partitions: &[BootPartition], root: &Path, prefix: &str) -> Option<String> {
    let loader_default = read_menu(root, &format!("{prefix}loader/loader.conf")).and_then(|text| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix("default"))?;
        Some(value.trim().trim_end_matches(".conf").to_owned())
    });
    let grub_default = || {
        let grub_default = grub::saved_variables(partitions).remove("saved_entry");
        grub_default.filter(|entry| !entry.is_empty())
    };
    loader_default.filter(|loader_default| !loader_default.starts_with('@')).or_else(grub_default)
}

/// Whether a name matches a pattern with `*`.
fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            after.is_empty()
                || (0..=rest.len())
                    .any(|at| rest.get(at..).is_some_and(|rest| matches_pattern(after, rest)))
        }),
    }
}

/// Orders entries; the newest is the greatest. Entries with a sort key come before those without.
fn compare_entries(one: &BlsEntry, other: &BlsEntry) -> Ordering {
    let has_sort_key = |entry: &BlsEntry| !entry.sort_key.is_empty();
    has_sort_key(one)
        .cmp(&has_sort_key(other))
        .then_with(|| other.sort_key.cmp(&one.sort_key))
        .then_with(|| compare_versions(&one.version, &other.version))
        .then_with(|| compare_versions(&one.id, &other.id))
}

/// Compares runs of digits as numbers, and everything else as text.
fn compare_versions(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (a, rest_a) = split_run(one);
        let (b, rest_b) = split_run(other);
        let order = match (a.parse::<u64>(), b.parse::<u64>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            (_, _) => a.cmp(b),
        };
        if order.is_ne() || (a.is_empty() && b.is_empty()) {
            return order;
        }
        (one, other) = (rest_a, rest_b);
    }
}

fn split_run(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|first: char| first.is_ascii_digit());
    let end =
        text.find(|character: char| character.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_versions_and_matches_patterns() {
        assert_eq!(compare_versions("6.1.0-9", "6.1.0-10"), Ordering::Less);
        assert_eq!(compare_versions("5.14", "5.14.1"), Ordering::Less);
        assert_eq!(compare_versions("a", "a"), Ordering::Equal);
        assert!(matches_pattern("*-6.1*", "id-6.1.0"));
        assert!(matches_pattern("exact", "exact") && !matches_pattern("exact", "exactly"));
        assert!(!matches_pattern("a*b", "ac"));
    }
}
