// SPDX-License-Identifier: Apache-2.0
//! Rejects the retired words of `docs/glossary.md` in names, comments, texts and documents.

use std::collections::BTreeSet;

use crate::repository::TextFile;

const GLOSSARY: &str = "docs/glossary.md";
const RETIRED_HEADING: &str = "## Retired words";
/// Endings of the files that are checked.
const CHECKED_ENDINGS: &[&str] = &["rs", "js", "css", "html", "md", "sh", "toml", "py"];
/// Code of other projects is not changed.
const VENDORED: &str = "/vendor/";
/// Uses of retired words that cannot be changed: a path prefix and a text of the line.
const ALLOWED: &[(&str, &str)] = &[
    ("xtask/src/tidy/vocabulary.rs", ""),
    // Labels of dmidecode.
    ("crates/machine-inventory/src/dmi", "Card"),
    // The unprivileged user in /etc/passwd.
    ("crates/ramdisk/src/build.rs", "nobody:x:"),
    // Table names in released migrations.
    ("crates/store/src/schema.rs", "stranger"),
    ("crates/store/tests/suite", "stranger"),
    // The names that a migration replaces, and the notes for operators about them.
    ("crates/store/src/rename_existing.rs", ""),
    ("crates/store/tests/suite/migrations.rs", "\""),
    ("docs/guide/upgrading.md", "`"),
    // The sections of a DNS message.
    ("crates/boot-server/src/dns.rs", "answer"),
    ("crates/boot-server/src/dns/", "answer"),
    ("crates/boot-server/src/mdns.rs", "answer"),
    // Texts in journal entries that earlier versions stored.
    ("crates/web-ui/page/app/machine/timeline/entries.js", "goes on|at it"),
    // Names in jobs that earlier versions stored.
    ("crates/redfish-driver/src/raid.rs", "alias"),
    ("crates/node-model/src/work.rs", "alias"),
    ("crates/node-model/src/work.rs", "\"told\""),
    ("crates/node-model/src/work.rs", "\"whom\""),
    ("crates/node-model/src/work.rs", "\"asked_by\""),
    ("crates/node-model/src/work.rs", "\"heard\""),
    ("crates/node-model/src/work.rs", "\"answered\""),
    ("crates/node-model/src/wait", "answer\""),
    ("crates/agent-driver/src/finish_deploy.rs", "\"told_to_stop\""),
    ("crates/driver-set/tests/drivers/agent.rs", "\"told_to_stop\""),
];

/// Returns a complaint for every line with a retired word.
pub(super) fn complaints(files: &[TextFile]) -> Vec<String> {
    let Some(glossary) = files.iter().find(|file| file.path == GLOSSARY) else {
        return vec![format!("{GLOSSARY}: missing")];
    };
    let retired = retired_words(&glossary.text);
    if retired.is_empty() {
        return vec![format!("{GLOSSARY}: no words below `{RETIRED_HEADING}`")];
    }
    let checked = files.iter().filter(|file| {
        file.path != GLOSSARY
            && !file.path.contains(VENDORED)
            && CHECKED_ENDINGS.iter().any(|ending| file.has_ending(ending))
    });
    checked.flat_map(|file| file_complaints(file, &retired)).collect()
}

fn file_complaints(file: &TextFile, retired: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let is_allowed =
            ALLOWED.iter().any(|(path, text)| file.path.starts_with(path) && line.contains(text));
        if is_allowed {
            continue;
        }
        for word in retired_in(line, retired) {
            complaints.push(format!(
                "{}:{}: `{word}` is a retired word; see {GLOSSARY}",
                file.path,
                index + 1
            ));
        }
    }
    complaints
}

/// Reads the words in backticks in the first column of the table of retired words.
fn retired_words(glossary: &str) -> BTreeSet<String> {
    let table = glossary.lines().skip_while(|line| *line != RETIRED_HEADING);
    let cells = table.filter_map(|line| line.strip_prefix("| ")?.split('|').next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The retired words and phrases of a line.
fn retired_in(line: &str, retired: &BTreeSet<String>) -> Vec<String> {
    let words = split_words(line);
    let pairs = words.windows(2).map(|pair| pair.join(" "));
    let triples = words.windows(3).map(|triple| triple.join(" "));
    let candidates = words.iter().cloned().chain(pairs).chain(triples);
    candidates.filter(|candidate| retired.contains(candidate)).collect()
}

/// Splits at everything that is not a letter, and `camelCase` before its capitals; lower case.
fn split_words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous_is_lower = false;
    for character in line.chars() {
        let starts_word = character.is_uppercase() && previous_is_lower;
        if (!character.is_alphabetic() && character != '\'') || starts_word {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && (character.is_alphabetic() || character == '\'')
        {
            word.extend(character.to_lowercase());
        }
        previous_is_lower = character.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_retired_words_in_names_and_text() {
        let glossary = "| `other` | x |\n## Retired words\n| word | use |\n|---|---|\n\
                        | `told`, `goes on` | reports |\n";
        let retired = retired_words(glossary);
        for (line, expected) in [
            ("fn told(&self)", vec!["told"]),
            ("struct BeingTold;", vec!["told"]),
            ("let was_told_of = 1;", vec!["told"]),
            ("// The work goes on.", vec!["goes on"]),
            ("// Untold other totals", vec![]),
        ] {
            assert_eq!(retired_in(line, &retired), expected, "{line}");
        }
    }
}
