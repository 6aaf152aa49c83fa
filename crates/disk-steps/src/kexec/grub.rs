// SPDX-License-Identifier: Apache-2.0
//! GRUB menus: finds the default entry and what it boots.
//!
//! `grub.cfg` is a script. Variable assignments, searches for partitions and simple conditions on
//! variables are evaluated; other commands are ignored. Fails if the kernel depends on something that
//! only GRUB can evaluate.

mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{BootPartition, BootSelection, MenuSearch, find_file, read_menu};
use crate::system_root;
use script::{GrubCommand, GrubWord};

const MENUS: &[&str] = &[
    "boot/grub/grub.cfg",
    "boot/grub2/grub.cfg",
    "grub/grub.cfg",
    "grub2/grub.cfg",
    "EFI/BOOT/grub.cfg",
];
const ENVIRONMENTS: &[&str] =
    &["boot/grub/grubenv", "boot/grub2/grubenv", "grub/grubenv", "grub2/grubenv"];

/// Values by variable name.
pub(super) type GrubVariables = BTreeMap<String, String>;

/// Finds the default entry.
pub(super) fn find(partitions: &[BootPartition]) -> MenuSearch {
    let mut unclear = MenuSearch::Nothing;
    for (index, partition) in partitions.iter().enumerate() {
        for name in menus(partition) {
            let Some(text) = read_menu(&partition.path, &name) else { continue };
            let menu = format!("{name} of partition {}", partition.number);
            match select(partitions, index, &text) {
                Ok(Some(selection)) => return MenuSearch::Found { origin: menu, selection },
                // Some menus only load another one.
                Ok(None) => {}
                Err(reason) => unclear = MenuSearch::Unclear { menu, reason },
            }
        }
    }
    unclear
}

/// Reads GRUB's saved variables (`grubenv`) from the first partition that has them.
pub(super) fn saved_variables(partitions: &[BootPartition]) -> GrubVariables {
    let files = partitions
        .iter()
        .flat_map(|partition| ENVIRONMENTS.iter().map(move |name| (partition, name)));
    let text = files
        .filter_map(|(partition, name)| read_menu(&partition.path, name))
        .next()
        .unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once('='))
        .map(|(n, v)| (n.to_owned(), v.to_owned()))
        .collect()
}

/// Replaces `$name` and `${name}`; unset variables are empty.
pub(super) fn expand(text: &str, variables: &GrubVariables) -> String {
    let word = script::parse_word(text);
    let words = word.expand(&mut |name| variables.get(name).cloned().unwrap_or_default());
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn menus(partition: &BootPartition) -> Vec<String> {
    let mut menus: Vec<String> = MENUS.iter().map(|name| (*name).to_owned()).collect();
    let vendors = system_root::list_directory(&partition.path, "EFI");
    menus.extend(vendors.iter().map(|vendor| format!("EFI/{vendor}/grub.cfg")));
    menus.dedup();
    menus
}

fn select(
    partitions: &[BootPartition],
    menu_partition: usize,
    text: &str,
) -> Result<Option<BootSelection>, String> {
    let commands = script::parse(text)?;
    let mut interpreter = GrubInterpreter::new(partitions, menu_partition);
    interpreter.run(&commands)?;
    if interpreter.entries.is_empty() {
        return interpreter.select();
    }
    let entry = interpreter.default_entry();
    let Some(entry) = entry.cloned() else { return Ok(None) };
    interpreter.run(&entry.body)?;
    interpreter.select()
}

/// A menu entry or submenu.
#[derive(Debug, Clone)]
struct GrubMenuEntry {
    title: String,
    id: String,
    body: Vec<GrubCommand>,
    submenu: Vec<GrubMenuEntry>,
}

/// State of the interpreter.
struct GrubInterpreter<'a> {
    partitions: &'a [BootPartition],
    variables: GrubVariables,
    /// Variables whose values only GRUB can determine.
    unknown_variables: BTreeSet<String>,
    entries: Vec<GrubMenuEntry>,
    kernel: Option<(PathBuf, String)>,
    initrds: Vec<PathBuf>,
}

/// Whether the commands of a branch are executed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BranchState {
    Taken,
    NotTaken,
    /// Unknown; only commands without effect on the result are executed.
    Undecided,
}

impl<'a> GrubInterpreter<'a> {
    fn new(partitions: &'a [BootPartition], menu_partition: usize) -> Self {
        let mut variables = saved_variables(partitions);
        variables.insert("root".to_owned(), format!("@{menu_partition}"));
        Self {
            partitions,
            variables,
            unknown_variables: BTreeSet::new(),
            entries: Vec::new(),
            kernel: None,
            initrds: Vec::new(),
        }
    }

    fn select(self) -> Result<Option<BootSelection>, String> {
        let Some((kernel, command_line)) = self.kernel else { return Ok(None) };
        Ok(Some(BootSelection { kernel, initrds: self.initrds, command_line }))
    }

    fn run(&mut self, commands: &[GrubCommand]) -> Result<(), String> {
        // For each nested `if`: the state of the current branch, and whether one was taken.
        let mut branches: Vec<(BranchState, bool)> = Vec::new();
        for command in commands {
            let Some(first) = command.words.first().map(GrubWord::text) else { continue };
            match first.as_str() {
                "if" => {
                    let branch = self.evaluate_condition(&command.words[1..]);
                    branches.push((branch, branch == BranchState::Taken));
                    continue;
                }
                "elif" | "else" => {
                    let next = match first.as_str() {
                        "elif" => self.evaluate_condition(&command.words[1..]),
                        _ => BranchState::Taken,
                    };
                    if let Some((branch, done)) = branches.last_mut() {
                        *branch = match (*done, *branch) {
                            (true, _) => BranchState::NotTaken,
                            (false, BranchState::Undecided) => BranchState::Undecided,
                            (false, BranchState::Taken | BranchState::NotTaken) => next,
                        };
                        *done |= *branch == BranchState::Taken;
                    }
                    continue;
                }
                "fi" => {
                    branches.pop();
                    continue;
                }
                _ => {}
            }
            if branches.iter().any(|(branch, _)| *branch == BranchState::NotTaken) {
                continue;
            }
            let is_undecided = branches.iter().any(|(branch, _)| *branch == BranchState::Undecided);
            self.command(&first, command, is_undecided)?;
        }
        Ok(())
    }

    fn command(
        &mut self,
        name: &str,
        command: &GrubCommand,
        is_undecided: bool,
    ) -> Result<(), String> {
        let rest = &command.words[1..];
        match name {
            "menuentry" | "submenu" => self.add_entry(name, command),
            "set" => {
                let words = self.expand_all(rest);
                if let Some((name, value)) = words.first().and_then(|word| word.split_once('=')) {
                    self.unknown_variables.remove(name);
                    self.variables.insert(name.to_owned(), value.to_owned());
                }
            }
            "search" | "search.fs_uuid" | "search.fs_label" | "search.file" => {
                let words = self.expand_all(rest);
                self.search(name, &words);
            }
            // The results of these are unknown; they are stored in variables.
            "probe" | "regexp" | "smbios" | "getenv" | "read" | "cutmem" => {
                for name in variables_set_by(&self.expand_all(rest)) {
                    self.unknown_variables.insert(name);
                }
            }
            "linux" | "linuxefi" | "linux16" | "initrd" | "initrdefi" | "initrd16" => {
                if is_undecided {
                    return Err(
                        "what is started depends on a condition only GRUB can evaluate".to_owned()
                    );
                }
                self.load(name, rest)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn load(&mut self, name: &str, words: &[GrubWord]) -> Result<(), String> {
        for variable in words.iter().flat_map(GrubWord::variables) {
            if self.unknown_variables.contains(&variable) {
                return Err(format!("only GRUB knows ${variable}"));
            }
        }
        let texts: Vec<String> =
            self.expand_all(words).into_iter().flat_map(|text| split_whitespace(&text)).collect();
        if name.starts_with("linux") {
            let (kernel, arguments) = texts.split_first().ok_or("it names no kernel")?;
            self.kernel = Some((self.resolve_file(kernel)?, arguments.join(" ")));
        } else {
            let files = texts.iter().map(|text| self.resolve_file(text));
            self.initrds = files.collect::<Result<_, _>>()?;
        }
        Ok(())
    }

    /// Resolves a GRUB file name: on the partition in parentheses, else on `root`.
    fn resolve_file(&self, name: &str) -> Result<PathBuf, String> {
        let (device, path) = match name.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((device, path)) => (device.to_owned(), path),
            None => (self.variables.get("root").cloned().unwrap_or_default(), name),
        };
        let device = device.trim_matches(|character| character == '(' || character == ')');
        let partition = self
            .partition(device)
            .ok_or_else(|| format!("its partition {device:?} is not known"))?;
        find_file(&partition.path, path)
            .ok_or_else(|| format!("there is no {path} on partition {}", partition.number))
    }

    /// Returns the partition found by [`Self::search`], or by its GRUB name: `hd0,gpt2`.
    fn partition(&self, device: &str) -> Option<&BootPartition> {
        if let Some(index) = device.strip_prefix('@') {
            return self.partitions.get(index.parse::<usize>().ok()?);
        }
        let (_, partition) = device.split_once(',')?;
        let number = partition.trim_start_matches(|character: char| !character.is_ascii_digit());
        let number: u32 = number.parse().ok()?;
        self.partitions.iter().find(|partition| partition.number == number)
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
        let Some(value) = plain.first() else { return };
        if command.contains('.') {
            variable = plain.get(1).cloned().unwrap_or(variable);
        }
        let found = self.partitions.iter().position(|partition| match by.as_str() {
            "fs_uuid" => partition
                .identity
                .uuid
                .as_deref()
                .is_some_and(|uuid| uuid.eq_ignore_ascii_case(value)),
            "fs_label" => partition.identity.label.as_deref() == Some(value.as_str()),
            _ => find_file(&partition.path, value).is_some(),
        });
        if let Some(index) = found {
            self.variables.insert(variable, format!("@{index}"));
        }
    }

    /// Evaluates `[ … ]` on variables; other conditions are undecided.
    fn evaluate_condition(&self, words: &[GrubWord]) -> BranchState {
        if words
            .iter()
            .flat_map(GrubWord::variables)
            .any(|name| self.unknown_variables.contains(&name))
        {
            return BranchState::Undecided;
        }
        let texts = self.expand_all(words);
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let result = match texts.as_slice() {
            ["[", one, "=" | "==", other, "]"] => Some(one == other),
            ["[", one, "!=", other, "]"] => Some(one != other),
            ["[", "-n", text, "]"] => Some(!text.is_empty()),
            ["[", "-z", text, "]"] => Some(text.is_empty()),
            ["[", text, "]"] => Some(!text.is_empty()),
            _ => None,
        };
        match result {
            Some(true) => BranchState::Taken,
            Some(false) => BranchState::NotTaken,
            None => BranchState::Undecided,
        }
    }

    fn expand_all(&self, words: &[GrubWord]) -> Vec<String> {
        let mut value = |name: &str| self.variables.get(name).cloned().unwrap_or_default();
        words.iter().map(|word| word.expand(&mut value)).collect()
    }

    fn add_entry(&mut self, name: &str, command: &GrubCommand) {
        let texts = self.expand_all(&command.words[1..]);
        let title = texts.first().cloned().unwrap_or_default();
        let mut id = String::new();
        let mut words = texts.iter().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--id" | "$menuentry_id_option" => id = words.next().cloned().unwrap_or_default(),
                option if option.starts_with("--id=") => id = option[5..].to_owned(),
                // `$menuentry_id_option` is `--id`, and is set by GRUB itself.
                "" => id = words.next().cloned().unwrap_or_default(),
                _ => {}
            }
        }
        let mut entry =
            GrubMenuEntry { title, id, body: command.body.clone(), submenu: Vec::new() };
        if name == "submenu" {
            let outer = std::mem::take(&mut self.entries);
            // An entry that cannot be interpreted cannot be selected either.
            let _ = self.run(&command.body);
            entry.submenu = std::mem::replace(&mut self.entries, outer);
        }
        self.entries.push(entry);
    }

    /// Returns the entry named by `default`: number, title or ID, with `>` before a submenu entry.
    fn default_entry(&self) -> Option<&GrubMenuEntry> {
        let default = self.variables.get("default").map_or("", String::as_str);
        let mut level = &self.entries;
        let mut chosen = None;
        for part in default.split('>').map(str::trim) {
            let find_file = |entry: &&GrubMenuEntry| {
                entry.title == part || (!part.is_empty() && entry.id == part)
            };
            let number = part.parse::<usize>().ok();
            chosen = level.iter().find(find_file).or_else(|| level.get(number?));
            level = match chosen {
                Some(entry) => &entry.submenu,
                None => break,
            };
        }
        let mut entry = chosen.or(self.entries.first())?;
        while let Some(first) = entry.submenu.first() {
            entry = first;
        }
        Some(entry)
    }
}

/// Returns the variables set by a command: `--set=name`, `--set name`, `-s name`.
fn variables_set_by(words: &[String]) -> Vec<String> {
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

/// GRUB splits unquoted variable values into words; the kernel splits its command line anyway.
fn split_whitespace(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
