// SPDX-License-Identifier: Apache-2.0
//! The modules of a kernel: what there is, what of it is wanted, and what that needs in turn.
//!
//! Everything is read from the modules themselves, as packages of kernels come without the tables
//! that `depmod` makes where they are installed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::elf::{self, Architecture, ElfError};
use crate::expand::{Packing, expanded};
use crate::patterns::{Pattern, same_letters};

/// Folders below `kernel/` with modules that others ask for by what they do (`crc32c`, `sha256`)
/// instead of by name.
const PROVIDERS: [&str; 3] = ["crypto/", "arch/", "lib/"];

/// Why modules cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// The folder cannot be read.
    #[error("the modules in {} cannot be read", path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A module is damaged.
    #[error("the module {} cannot be used", path.display())]
    Damaged {
        /// The module.
        path: PathBuf,
        /// Why.
        #[source]
        source: ElfError,
    },
    /// There are none.
    #[error(
        "{} holds no kernel modules; give a folder such as /lib/modules/6.1.0-54-amd64", path.display()
    )]
    None {
        /// The folder.
        path: PathBuf,
    },
}

/// All modules of a kernel.
#[derive(Debug)]
pub(crate) struct Library {
    folder: PathBuf,
    /// What `uname -r` says where these modules fit.
    pub(crate) version: String,
    pub(crate) architecture: Architecture,
    /// Where each module is in the folder, by name.
    files: BTreeMap<String, PathBuf>,
    /// What is part of the kernel itself.
    builtin: BTreeMap<String, String>,
    /// Which modules do what is asked for by other names; made when first asked for.
    providers: RefCell<Option<BTreeMap<String, Vec<String>>>>,
}

/// A module, ready to be loaded.
#[derive(Debug)]
pub(crate) struct Module {
    /// Its path below `/lib/modules/<version>/`, where it is packed with zstd.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) aliases: Vec<String>,
    pub(crate) firmware: Vec<String>,
    /// Modules that must be loaded before.
    pub(crate) needs: Vec<String>,
    /// Modules that should be loaded before, and after.
    pub(crate) before: Vec<String>,
    pub(crate) after: Vec<String>,
}

/// The modules that are taken.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    /// By name.
    pub(crate) modules: BTreeMap<String, Module>,
    /// What to load without being asked, dependencies first: at once, and when there is time.
    pub(crate) first: Vec<String>,
    pub(crate) later: Vec<String>,
    /// What was asked for, and this kernel does not have.
    pub(crate) unknown: Vec<String>,
}

/// Which modules are wanted.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// To be loaded at once, though no device asks for it.
    pub(crate) first: Vec<Pattern>,
    /// The same, when there is time.
    pub(crate) later: Vec<Pattern>,
    /// To be there for devices that ask for it.
    pub(crate) modules: Vec<Pattern>,
    pub(crate) except: Vec<Pattern>,
}

impl Library {
    /// Looks through a folder such as `/lib/modules/6.1.0-54-amd64`.
    pub(crate) fn open(folder: &Path) -> Result<Self, ModulesError> {
        let mut paths = Vec::new();
        find_modules(folder, Path::new(""), &mut paths)?;
        // What was added later wins over what came with the kernel, as with depmod.
        paths.sort_by_key(|path| (!path.starts_with("updates"), path.clone()));
        let mut files = BTreeMap::new();
        for path in paths {
            if let Some(name) = module_name(&path) {
                files.entry(name).or_insert(path);
            }
        }
        let Some(first) = files.values().next() else {
            return Err(ModulesError::None { path: folder.to_owned() });
        };
        let (_, architecture, notes) = read(&folder.join(first))?;
        let magic = value(&notes, "vermagic").and_then(|magic| magic.split(' ').next());
        let by_name = || folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            folder: folder.to_owned(),
            version: magic.map_or_else(by_name, str::to_owned),
            architecture,
            files,
            builtin: builtin(folder)?,
            providers: RefCell::default(),
        })
    }

    /// Takes what is wanted, and what that needs.
    pub(crate) fn select(&self, wanted: &Wanted) -> Result<Selection, ModulesError> {
        let mut selection = Selection::default();
        let mut matching =
            |patterns: &[Pattern]| self.matching(patterns, &wanted.except, &mut selection.unknown);
        let (first, later) = (matching(&wanted.first), matching(&wanted.later));
        let modules = matching(&wanted.modules);
        let mut to_take: Vec<String> = [first.as_slice(), &later, &modules].concat();
        while let Some(name) = to_take.pop() {
            if selection.modules.contains_key(&name) {
                continue;
            }
            let Some(path) = self.files.get(&name) else { continue };
            let module = self.module(&name, path, &mut selection.unknown)?;
            let others = module.needs.iter().chain(&module.before).chain(&module.after);
            to_take.extend(others.cloned());
            selection.modules.insert(name, module);
        }
        selection.first = selection.order(&first);
        let mut later = selection.order(&later);
        later.retain(|name| !selection.first.contains(name));
        selection.later = later;
        selection.unknown.sort();
        selection.unknown.dedup();
        Ok(selection)
    }

    /// The modules that are meant, in the order of the patterns. A pattern that means none and
    /// nothing in the kernel itself is `unknown`.
    fn matching(
        &self,
        patterns: &[Pattern],
        except: &[Pattern],
        unknown: &mut Vec<String>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for pattern in patterns {
            let mut any = false;
            for (name, path) in &self.files {
                let below = below_kernel(path);
                if pattern.matches(name, &below) {
                    any = true;
                    if !except.iter().any(|except| except.matches(name, &below)) {
                        found.push(name.clone());
                    }
                }
            }
            if !any && !self.builtin.iter().any(|(name, path)| pattern.matches(name, path)) {
                unknown.push(pattern.to_string());
            }
        }
        found
    }

    fn module(
        &self,
        name: &str,
        path: &Path,
        unknown: &mut Vec<String>,
    ) -> Result<Module, ModulesError> {
        let (bytes, _, notes) = read(&self.folder.join(path))?;
        let mut module = Module {
            path: format!("{}.zst", path.with_file_name(file_name(path)).display()),
            bytes,
            aliases: Vec::new(),
            firmware: Vec::new(),
            needs: Vec::new(),
            before: Vec::new(),
            after: Vec::new(),
        };
        for (key, value) in notes {
            match key.as_str() {
                "alias" => module.aliases.push(value),
                "firmware" => module.firmware.push(value),
                "depends" => {
                    for other in value.split(',').filter(|other| !other.is_empty()) {
                        let other = same_letters(other);
                        if self.files.contains_key(&other) {
                            module.needs.push(other);
                        } else if !self.builtin.contains_key(&other) {
                            unknown.push(format!("{other} (which {name} needs)"));
                        }
                    }
                }
                "softdep" => {
                    let mut list = &mut module.before;
                    for word in value.split_whitespace() {
                        match word {
                            "pre:" => list = &mut module.before,
                            "post:" => list = &mut module.after,
                            other => list.extend(self.providers(other)?),
                        }
                    }
                }
                _ => {}
            }
        }
        module.firmware.sort();
        module.firmware.dedup();
        Ok(module)
    }

    /// The modules that are called this, or that do this. None is no mistake: it may be part of the
    /// kernel.
    fn providers(&self, name: &str) -> Result<Vec<String>, ModulesError> {
        let plain = same_letters(name);
        if self.files.contains_key(&plain) {
            return Ok(vec![plain]);
        }
        let mut providers = self.providers.borrow_mut();
        let known = match providers.take() {
            Some(known) => known,
            None => self.read_providers()?,
        };
        let found = known.get(name).cloned().unwrap_or_default();
        *providers = Some(known);
        Ok(found)
    }

    fn read_providers(&self) -> Result<BTreeMap<String, Vec<String>>, ModulesError> {
        let mut providers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, path) in &self.files {
            let below = below_kernel(path);
            if !PROVIDERS.iter().any(|folder| below.starts_with(folder)) {
                continue;
            }
            let (_, _, notes) = read(&self.folder.join(path))?;
            for (_, alias) in notes.into_iter().filter(|(key, _)| key == "alias") {
                let modules = providers.entry(alias).or_default();
                if !modules.contains(name) {
                    modules.push(name.clone());
                }
            }
        }
        Ok(providers)
    }
}

impl Selection {
    /// Everything that must be loaded before a module, in that order.
    pub(crate) fn all_needs(&self, name: &str) -> Vec<&str> {
        let mut found = Vec::new();
        self.collect_needs(name, &mut found);
        // The module itself comes last.
        found.pop();
        found
    }

    fn collect_needs<'a>(&'a self, name: &str, found: &mut Vec<&'a str>) {
        let Some((name, module)) = self.modules.get_key_value(name) else { return };
        // Modules cannot need each other in a circle and load; one that says so is cut open.
        if found.contains(&name.as_str()) {
            return;
        }
        found.push(name);
        let at = found.len() - 1;
        for other in &module.needs {
            self.collect_needs(other, found);
        }
        found.remove(at);
        found.push(name);
    }

    /// The modules and everything that should be loaded with them, in that order.
    fn order(&self, names: &[String]) -> Vec<String> {
        let (mut started, mut order) = (BTreeSet::new(), Vec::new());
        for name in names {
            self.collect_order(name, &mut started, &mut order);
        }
        order
    }

    fn collect_order(&self, name: &str, started: &mut BTreeSet<String>, order: &mut Vec<String>) {
        let Some(module) = self.modules.get(name) else { return };
        if !started.insert(name.to_owned()) {
            return;
        }
        for other in module.needs.iter().chain(&module.before) {
            self.collect_order(other, started, order);
        }
        order.push(name.to_owned());
        for other in &module.after {
            self.collect_order(other, started, order);
        }
    }
}

fn find_modules(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), ModulesError> {
    let folder = if below == Path::new("") { root.to_owned() } else { root.join(below) };
    let failed = |source| ModulesError::Read { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links are not followed: `build` and `source` lead to the kernel's sources.
        let kind = entry.file_type().map_err(failed)?;
        let path = below.join(entry.file_name());
        if kind.is_dir() {
            find_modules(root, &path, found)?;
        } else if module_name(&path).is_some() {
            found.push(path);
        }
    }
    Ok(())
}

/// The name of the module in a file; none if it is another kind of file.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (_, name) = Packing::of_name(name);
    Some(same_letters(name.strip_suffix(".ko")?))
}

/// The name of a module's file, not compressed.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Packing::of_name(&name).1.to_owned()
}

/// The path that patterns are about: below `kernel/`, without the end.
fn below_kernel(path: &Path) -> String {
    let path = path.strip_prefix("kernel").unwrap_or(path).to_string_lossy();
    let (_, path) = Packing::of_name(&path);
    path.strip_suffix(".ko").unwrap_or(path).to_owned()
}

/// The modules that are part of the kernel itself, and their paths.
fn builtin(folder: &Path) -> Result<BTreeMap<String, String>, ModulesError> {
    let path = folder.join("modules.builtin");
    let list = match fs::read_to_string(&path) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(ModulesError::Read { path, source }),
    };
    let modules = list.lines().map(Path::new);
    Ok(modules.filter_map(|path| Some((module_name(path)?, below_kernel(path)))).collect())
}

type Notes = Vec<(String, String)>;

fn read(path: &Path) -> Result<(Vec<u8>, Architecture, Notes), ModulesError> {
    let failed = |source| ModulesError::Read { path: path.to_owned(), source };
    let bytes = fs::read(path).and_then(expanded).map_err(failed)?;
    let (architecture, notes) = elf::module_notes(&bytes)
        .map_err(|source| ModulesError::Damaged { path: path.to_owned(), source })?;
    Ok((bytes, architecture, notes))
}

fn value<'a>(notes: &'a Notes, key: &str) -> Option<&'a str> {
    notes.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
