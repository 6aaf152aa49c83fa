// SPDX-License-Identifier: Apache-2.0
//! GRUB's menu: which entry is the default, and what it starts.
//!
//! `grub.cfg` is a script. What sets variables, looks for partitions and asks simple questions about
//! variables is carried out; the rest is passed over. If the kernel depends on something that only
//! GRUB can know, that is said.

mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{Choice, Found, Tree, named, read_menu};
use crate::inside;
use script::{Command, Word};

const MENUS: &[&str] = &[
    "boot/grub/grub.cfg",
    "boot/grub2/grub.cfg",
    "grub/grub.cfg",
    "grub2/grub.cfg",
    "EFI/BOOT/grub.cfg",
];
const ENVIRONMENTS: &[&str] =
    &["boot/grub/grubenv", "boot/grub2/grubenv", "grub/grubenv", "grub2/grubenv"];

/// Variables by name.
pub(super) type Variables = BTreeMap<String, String>;

/// What the default entry starts.
pub(super) fn find(trees: &[Tree]) -> Found {
    let mut unclear = Found::Nothing;
    for (index, tree) in trees.iter().enumerate() {
        for name in menus(tree) {
            let Some(text) = read_menu(&tree.path, &name) else { continue };
            let menu = format!("{name} of partition {}", tree.number);
            match choice(trees, index, &text) {
                Ok(Some(choice)) => return Found::Choice { from: menu, choice },
                // Some are there only to lead to another.
                Ok(None) => {}
                Err(why) => unclear = Found::Unclear { menu, why },
            }
        }
    }
    unclear
}

/// GRUB's saved variables, wherever they are.
pub(super) fn environment(trees: &[Tree]) -> Variables {
    let files = trees.iter().flat_map(|tree| ENVIRONMENTS.iter().map(move |name| (tree, name)));
    let text =
        files.filter_map(|(tree, name)| read_menu(&tree.path, name)).next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .collect()
}

/// A text with `$name` and `${name}` replaced. What is not set is empty.
pub(super) fn expand(text: &str, variables: &Variables) -> String {
    let word = script::expandable(text);
    let words = word.expand(&mut |name| variables.get(name).cloned().unwrap_or_default());
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn menus(tree: &Tree) -> Vec<String> {
    let mut menus: Vec<String> = MENUS.iter().map(|name| (*name).to_owned()).collect();
    let vendors = inside::names(&tree.path, "EFI");
    menus.extend(vendors.iter().map(|vendor| format!("EFI/{vendor}/grub.cfg")));
    menus.dedup();
    menus
}

fn choice(trees: &[Tree], here: usize, text: &str) -> Result<Option<Choice>, String> {
    let commands = script::parse(text)?;
    let mut state = State::new(trees, here);
    state.run(&commands)?;
    if state.entries.is_empty() {
        return state.choice();
    }
    let entry = state.default_entry();
    let Some(entry) = entry.cloned() else { return Ok(None) };
    state.run(&entry.body)?;
    state.choice()
}

/// An entry of the menu, or a menu below it.
#[derive(Debug, Clone)]
struct Entry {
    title: String,
    id: String,
    body: Vec<Command>,
    below: Vec<Entry>,
}

/// How far a script has run.
struct State<'a> {
    trees: &'a [Tree],
    variables: Variables,
    /// Variables that only GRUB could know.
    unknown: BTreeSet<String>,
    entries: Vec<Entry>,
    kernel: Option<(PathBuf, String)>,
    initrds: Vec<PathBuf>,
}

/// Whether the commands of a branch are carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branch {
    Taken,
    NotTaken,
    /// Nobody knows; commands that do no harm are carried out.
    Open,
}

impl<'a> State<'a> {
    fn new(trees: &'a [Tree], here: usize) -> Self {
        let mut variables = environment(trees);
        variables.insert("root".to_owned(), format!("@{here}"));
        Self {
            trees,
            variables,
            unknown: BTreeSet::new(),
            entries: Vec::new(),
            kernel: None,
            initrds: Vec::new(),
        }
    }

    fn choice(self) -> Result<Option<Choice>, String> {
        let Some((kernel, command_line)) = self.kernel else { return Ok(None) };
        Ok(Some(Choice { kernel, initrds: self.initrds, command_line }))
    }

    fn run(&mut self, commands: &[Command]) -> Result<(), String> {
        // For each `if`: what this branch is, and whether one was taken for sure.
        let mut branches: Vec<(Branch, bool)> = Vec::new();
        for command in commands {
            let Some(first) = command.words.first().map(Word::text) else { continue };
            match first.as_str() {
                "if" => {
                    let branch = self.question(&command.words[1..]);
                    branches.push((branch, branch == Branch::Taken));
                    continue;
                }
                "elif" | "else" => {
                    let next = match first.as_str() {
                        "elif" => self.question(&command.words[1..]),
                        _ => Branch::Taken,
                    };
                    if let Some((branch, done)) = branches.last_mut() {
                        *branch = match (*done, *branch) {
                            (true, _) => Branch::NotTaken,
                            (false, Branch::Open) => Branch::Open,
                            (false, Branch::Taken | Branch::NotTaken) => next,
                        };
                        *done |= *branch == Branch::Taken;
                    }
                    continue;
                }
                "fi" => {
                    branches.pop();
                    continue;
                }
                _ => {}
            }
            if branches.iter().any(|(branch, _)| *branch == Branch::NotTaken) {
                continue;
            }
            let open = branches.iter().any(|(branch, _)| *branch == Branch::Open);
            self.command(&first, command, open)?;
        }
        Ok(())
    }

    fn command(&mut self, name: &str, command: &Command, open: bool) -> Result<(), String> {
        let rest = &command.words[1..];
        match name {
            "menuentry" | "submenu" => self.define(name, command),
            "set" => {
                let words = self.texts(rest);
                if let Some((name, value)) = words.first().and_then(|word| word.split_once('=')) {
                    self.unknown.remove(name);
                    self.variables.insert(name.to_owned(), value.to_owned());
                }
            }
            "search" | "search.fs_uuid" | "search.fs_label" | "search.file" => {
                let words = self.texts(rest);
                self.search(name, &words);
            }
            // Whatever these find out, they put it into a variable.
            "probe" | "regexp" | "smbios" | "getenv" | "read" | "cutmem" => {
                for name in set_by(&self.texts(rest)) {
                    self.unknown.insert(name);
                }
            }
            "linux" | "linuxefi" | "linux16" | "initrd" | "initrdefi" | "initrd16" => {
                if open {
                    return Err(
                        "what is started depends on a question only GRUB can answer".to_owned()
                    );
                }
                self.load(name, rest)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn load(&mut self, name: &str, words: &[Word]) -> Result<(), String> {
        for variable in words.iter().flat_map(Word::variables) {
            if self.unknown.contains(&variable) {
                return Err(format!("only GRUB knows ${variable}"));
            }
        }
        let texts: Vec<String> =
            self.texts(words).into_iter().flat_map(|text| split_words(&text)).collect();
        if name.starts_with("linux") {
            let (kernel, arguments) = texts.split_first().ok_or("it names no kernel")?;
            self.kernel = Some((self.file(kernel)?, arguments.join(" ")));
        } else {
            let files = texts.iter().map(|text| self.file(text));
            self.initrds = files.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// A file by GRUB's name for it: on the partition in brackets, else on `root`.
    fn file(&self, name: &str) -> Result<PathBuf, String> {
        let (place, path) = match name.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((place, path)) => (place.to_owned(), path),
            None => (self.variables.get("root").cloned().unwrap_or_default(), name),
        };
        let place = place.trim_matches(|letter| letter == '(' || letter == ')');
        let tree =
            self.tree(place).ok_or_else(|| format!("its partition {place:?} is not known"))?;
        named(&tree.path, path)
            .ok_or_else(|| format!("there is no {path} on partition {}", tree.number))
    }

    /// A partition by what [`Self::search`] found, or by GRUB's name: `hd0,gpt2`.
    fn tree(&self, place: &str) -> Option<&Tree> {
        if let Some(index) = place.strip_prefix('@') {
            return self.trees.get(index.parse::<usize>().ok()?);
        }
        let (_, partition) = place.split_once(',')?;
        let number = partition.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let number: u32 = number.parse().ok()?;
        self.trees.iter().find(|tree| tree.number == number)
    }

    fn search(&mut self, command: &str, words: &[String]) {
        let mut by =
            command.strip_prefix("search.").unwrap_or("fs_uuid").replace("file", "fs_file");
        let mut variable = "root".to_owned();
        let mut plain = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--fs-uuid" | "-u" => by = "fs_uuid".to_owned(),
                "--label" | "-l" | "--fs-label" => by = "fs_label".to_owned(),
                "--file" | "-f" => by = "fs_file".to_owned(),
                "--set" | "-s" => variable = words.next().cloned().unwrap_or(variable),
                option if option.starts_with("--set=") => variable = option[6..].to_owned(),
                option if option.starts_with('-') => {}
                text => plain.push(text.to_owned()),
            }
        }
        let Some(wanted) = plain.first() else { return };
        if command.contains('.') {
            variable = plain.get(1).cloned().unwrap_or(variable);
        }
        let found = self.trees.iter().position(|tree| match by.as_str() {
            "fs_uuid" => {
                tree.identity.uuid.as_deref().is_some_and(|uuid| uuid.eq_ignore_ascii_case(wanted))
            }
            "fs_label" => tree.identity.label.as_deref() == Some(wanted.as_str()),
            _ => named(&tree.path, wanted).is_some(),
        });
        if let Some(index) = found {
            self.variables.insert(variable, format!("@{index}"));
        }
    }

    /// `[ … ]` about variables; anything else is open.
    fn question(&self, words: &[Word]) -> Branch {
        if words.iter().flat_map(Word::variables).any(|name| self.unknown.contains(&name)) {
            return Branch::Open;
        }
        let texts = self.texts(words);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let answer = match texts.as_slice() {
            ["[", one, "=" | "==", other, "]"] => Some(one == other),
            ["[", one, "!=", other, "]"] => Some(one != other),
            ["[", "-n", text, "]"] => Some(!text.is_empty()),
            ["[", "-z", text, "]"] => Some(text.is_empty()),
            ["[", text, "]"] => Some(!text.is_empty()),
            _ => None,
        };
        match answer {
            Some(true) => Branch::Taken,
            Some(false) => Branch::NotTaken,
            None => Branch::Open,
        }
    }

    fn texts(&self, words: &[Word]) -> Vec<String> {
        let mut value = |name: &str| self.variables.get(name).cloned().unwrap_or_default();
        words.iter().map(|word| word.expand(&mut value)).collect()
    }

    fn define(&mut self, name: &str, command: &Command) {
        let texts = self.texts(&command.words[1..]);
        let title = texts.first().cloned().unwrap_or_default();
        let mut id = String::new();
        let mut words = texts.iter().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--id" | "$menuentry_id_option" => id = words.next().cloned().unwrap_or_default(),
                option if option.starts_with("--id=") => id = option[5..].to_owned(),
                // `$menuentry_id_option` is `--id`, set by GRUB itself.
                "" => id = words.next().cloned().unwrap_or_default(),
                _ => {}
            }
        }
        let mut entry = Entry { title, id, body: command.body.clone(), below: Vec::new() };
        if name == "submenu" {
            let outer = std::mem::take(&mut self.entries);
            // What cannot be understood in it cannot be started from it either.
            let _ = self.run(&command.body);
            entry.below = std::mem::replace(&mut self.entries, outer);
        }
        self.entries.push(entry);
    }

    /// The entry that `default` names: by number, title or id, and below a menu after `>`.
    fn default_entry(&self) -> Option<&Entry> {
        let default = self.variables.get("default").map_or("", String::as_str);
        let mut level = &self.entries;
        let mut chosen = None;
        for part in default.split('>').map(str::trim) {
            let named =
                |entry: &&Entry| entry.title == part || (!part.is_empty() && entry.id == part);
            let number = part.parse::<usize>().ok();
            chosen = level.iter().find(named).or_else(|| level.get(number?));
            level = match chosen {
                Some(entry) => &entry.below,
                None => break,
            };
        }
        let mut entry = chosen.or(self.entries.first())?;
        while let Some(first) = entry.below.first() {
            entry = first;
        }
        Some(entry)
    }
}

/// The variables that a command sets: `--set=name`, `--set name`, `-s name`.
fn set_by(words: &[String]) -> Vec<String> {
    let mut names = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if let Some(name) = word.strip_prefix("--set=") {
            names.push(name.to_owned());
        } else if matches!(word.as_str(), "--set" | "-s") {
            names.extend(words.next().cloned());
        }
    }
    names
}

/// GRUB splits what a variable brings into words, unless it is in quotes; kernels split anyway.
fn split_words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
