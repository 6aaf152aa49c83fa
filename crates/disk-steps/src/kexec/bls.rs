// SPDX-License-Identifier: Apache-2.0
//! Boot Loader Specification entries: `loader/entries/*.conf`, as systemd-boot and GRUB with
//! `blscfg` read them.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};

use super::{Choice, Found, Tree, grub, named, read_menu};
use crate::inside;

#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    id: String,
    version: String,
    sort_key: String,
    kernel: Option<String>,
    initrds: Vec<String>,
    options: Vec<String>,
}

/// The entry that would be started.
pub(super) fn find(trees: &[Tree]) -> Found {
    for tree in trees {
        for below in ["", "boot/"] {
            let root = &tree.path;
            let mut entries = read_entries(root, &format!("{below}loader/entries"));
            if entries.is_empty() {
                continue;
            }
            entries.sort_by(|one, other| compare(other, one));
            let wanted = default(trees, root, below);
            let chosen = wanted
                .and_then(|wanted| entries.iter().find(|entry| matches(&wanted, &entry.id)))
                .or(entries.first());
            let Some(entry) = chosen else { continue };
            let menu = format!("loader/entries/{}.conf of partition {}", entry.id, tree.number);
            return match choice(trees, root, below, entry) {
                Ok(choice) => Found::Choice { from: menu, choice },
                Err(why) => Found::Unclear { menu, why },
            };
        }
    }
    Found::Nothing
}

fn choice(trees: &[Tree], root: &Path, below: &str, entry: &Entry) -> Result<Choice, String> {
    let file = |name: &String| -> Result<PathBuf, String> {
        // On a root file system without a boot partition, paths begin above /boot.
        let found = named(root, &format!("{below}{name}")).or_else(|| named(root, name));
        found.ok_or_else(|| format!("there is no {name}"))
    };
    let kernel = entry.kernel.as_ref().ok_or("it names no kernel")?;
    let environment = grub::environment(trees);
    let options = grub::expand(&entry.options.join(" "), &environment);
    Ok(Choice {
        kernel: file(kernel)?,
        // Fedora's entries end in a variable that is usually empty.
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

fn read_entries(root: &Path, folder: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for name in inside::names(root, folder) {
        let path = Path::new(&name);
        let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_entry = path.extension().is_some_and(|extension| extension == "conf");
        // systemd counts failed boots in the name; `+0` has none left.
        if !is_entry || id.ends_with("+0") {
            continue;
        }
        if let Some(text) = read_menu(root, &format!("{folder}/{name}")) {
            entries.push(Entry { id, ..parse(&text) });
        }
    }
    entries
}

fn parse(text: &str) -> Entry {
    let mut entry = Entry::default();
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

/// The entry that is configured: by systemd-boot's `loader.conf`, or in GRUB's environment.
fn default(trees: &[Tree], root: &Path, below: &str) -> Option<String> {
    let told = read_menu(root, &format!("{below}loader/loader.conf")).and_then(|text| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix("default"))?;
        Some(value.trim().trim_end_matches(".conf").to_owned())
    });
    let saved = || {
        let saved = grub::environment(trees).remove("saved_entry");
        saved.filter(|entry| !entry.is_empty())
    };
    told.filter(|told| !told.starts_with('@')).or_else(saved)
}

/// Whether a name matches a pattern with stars.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            after.is_empty()
                || (0..=rest.len())
                    .any(|at| rest.get(at..).is_some_and(|rest| matches(after, rest)))
        }),
    }
}

/// The newest is the greatest. Entries with a sort key come before those without.
fn compare(one: &Entry, other: &Entry) -> Ordering {
    let keyed = |entry: &Entry| !entry.sort_key.is_empty();
    keyed(one)
        .cmp(&keyed(other))
        .then_with(|| other.sort_key.cmp(&one.sort_key))
        .then_with(|| compare_versions(&one.version, &other.version))
        .then_with(|| compare_versions(&one.id, &other.id))
}

/// Compares runs of digits as numbers, and all else as text.
fn compare_versions(one: &str, other: &str) -> Ordering {
    let (mut one, mut other) = (one, other);
    loop {
        let (a, rest_a) = run(one);
        let (b, rest_b) = run(other);
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

fn run(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|first: char| first.is_ascii_digit());
    let end = text.find(|letter: char| letter.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_patterns() {
        assert_eq!(compare_versions("6.1.0-9", "6.1.0-10"), Ordering::Less);
        assert_eq!(compare_versions("5.14", "5.14.1"), Ordering::Less);
        assert_eq!(compare_versions("a", "a"), Ordering::Equal);
        assert!(matches("*-6.1*", "id-6.1.0"));
        assert!(matches("exact", "exact") && !matches("exact", "exactly"));
        assert!(!matches("a*b", "ac"));
    }
}
