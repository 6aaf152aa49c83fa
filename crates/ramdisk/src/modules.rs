// SPDX-License-Identifier: Apache-2.0
//! Selects kernel modules and resolves their dependencies.
//!
//! All properties are read from the modules themselves, because kernel packages do not contain the
//! tables that `depmod` generates on installation.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::decompress::{CompressionFormat, decompress};
use crate::elf::{self, ElfArchitecture, ElfError};
use crate::patterns::{ModulePattern, normalize_module_name};

/// Directories below `kernel/` with modules that other modules request by alias (`crc32c`,
/// `sha256`) instead of by name.
const PROVIDER_DIRS: [&str; 3] = ["crypto/", "arch/", "lib/"];

/// The modules are not usable.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// The directory or a module cannot be read.
    #[error("cannot read the modules in {}", path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A module is damaged.
    #[error("invalid module {}", path.display())]
    Damaged {
        /// The module.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ElfError,
    },
    /// The directory has no modules.
    #[error(
        "{} contains no kernel modules; give a folder such as /lib/modules/6.1.0-54-amd64", path.display()
    )]
    None {
        /// The folder.
        path: PathBuf,
    },
}

/// All modules of a kernel.
#[derive(Debug)]
pub(crate) struct KernelModules {
    folder: PathBuf,
    /// The kernel version (`uname -r`) that the modules are for.
    pub(crate) version: String,
    pub(crate) architecture: ElfArchitecture,
    /// The path of each module below the folder, by name.
    files: BTreeMap<String, PathBuf>,
    /// Modules built into the kernel: path by name.
    builtin: BTreeMap<String, String>,
    /// Modules by alias, read on first use.
    providers: RefCell<Option<BTreeMap<String, Vec<String>>>>,
}

/// A kernel module with its properties.
#[derive(Debug)]
pub(crate) struct KernelModule {
    /// The path below `/lib/modules/<version>/` in the ramdisk, where it is compressed with zstd.
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) aliases: Vec<String>,
    pub(crate) firmware: Vec<String>,
    /// Modules that must be loaded before.
    pub(crate) dependencies: Vec<String>,
    /// Modules that should be loaded before and after, if possible.
    pub(crate) pre_dependencies: Vec<String>,
    pub(crate) post_dependencies: Vec<String>,
}

/// The selected modules.
#[derive(Debug, Default)]
pub(crate) struct ModuleSelection {
    /// The modules by name.
    pub(crate) modules: BTreeMap<String, KernelModule>,
    /// Modules to load at start, and after those of the devices. Dependencies come first.
    pub(crate) load_first: Vec<String>,
    pub(crate) load_later: Vec<String>,
    /// Requested modules that the kernel does not have.
    pub(crate) unknown: Vec<String>,
}

/// The requested modules.
#[derive(Debug, Default)]
pub(crate) struct ModuleRequest {
    /// To be loaded at start, although no device alias refers to them.
    pub(crate) load_first: Vec<ModulePattern>,
    /// To be loaded after those of the devices.
    pub(crate) load_later: Vec<ModulePattern>,
    /// To be loaded by device alias.
    pub(crate) modules: Vec<ModulePattern>,
    pub(crate) except: Vec<ModulePattern>,
}

impl KernelModules {
    /// Lists the modules in a directory such as `/lib/modules/6.1.0-54-amd64`.
    pub(crate) fn open(folder: &Path) -> Result<Self, ModulesError> {
        let mut paths = Vec::new();
        find_modules(folder, Path::new(""), &mut paths)?;
        // `updates` takes precedence, as with depmod.
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
        let (_, architecture, modinfo) = read_module(&folder.join(first))?;
        let magic = modinfo_value(&modinfo, "vermagic").and_then(|magic| magic.split(' ').next());
        let by_name = || folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            folder: folder.to_owned(),
            version: magic.map_or_else(by_name, str::to_owned),
            architecture,
            files,
            builtin: read_builtin_list(folder)?,
            providers: RefCell::default(),
        })
    }

    /// Selects the requested modules and their dependencies.
    pub(crate) fn select(&self, request: &ModuleRequest) -> Result<ModuleSelection, ModulesError> {
        let mut selection = ModuleSelection::default();
        let mut matching = |patterns: &[ModulePattern]| {
            self.matching_modules(patterns, &request.except, &mut selection.unknown)
        };
        let (first, later) = (matching(&request.load_first), matching(&request.load_later));
        let modules = matching(&request.modules);
        let mut to_take: Vec<String> = [first.as_slice(), &later, &modules].concat();
        while let Some(name) = to_take.pop() {
            if selection.modules.contains_key(&name) {
                continue;
            }
            let Some(path) = self.files.get(&name) else { continue };
            let module = self.read_selected(&name, path, &mut selection.unknown)?;
            let others = module
                .dependencies
                .iter()
                .chain(&module.pre_dependencies)
                .chain(&module.post_dependencies);
            to_take.extend(others.cloned());
            selection.modules.insert(name, module);
        }
        selection.load_first = selection.load_order(&first);
        let mut later = selection.load_order(&later);
        later.retain(|name| !selection.load_first.contains(name));
        selection.load_later = later;
        selection.unknown.sort();
        selection.unknown.dedup();
        Ok(selection)
    }

    /// Returns the modules that match, in the order of the patterns. A pattern that matches neither
    /// a module nor a built-in one is added to `unknown`.
    fn matching_modules(
        &self,
        patterns: &[ModulePattern],
        except: &[ModulePattern],
        unknown: &mut Vec<String>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for pattern in patterns {
            let mut any = false;
            for (name, path) in &self.files {
                let below = path_below_kernel(path);
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

    fn read_selected(
        &self,
        name: &str,
        path: &Path,
        unknown: &mut Vec<String>,
    ) -> Result<KernelModule, ModulesError> {
        let (bytes, _, modinfo) = read_module(&self.folder.join(path))?;
        let mut module = KernelModule {
            path: format!("{}.zst", path.with_file_name(uncompressed_file_name(path)).display()),
            bytes,
            aliases: Vec::new(),
            firmware: Vec::new(),
            dependencies: Vec::new(),
            pre_dependencies: Vec::new(),
            post_dependencies: Vec::new(),
        };
        for (key, value) in modinfo {
            match key.as_str() {
                "alias" => module.aliases.push(value),
                "firmware" => module.firmware.push(value),
                "depends" => {
                    for other in value.split(',').filter(|other| !other.is_empty()) {
                        let other = normalize_module_name(other);
                        if self.files.contains_key(&other) {
                            module.dependencies.push(other);
                        } else if !self.builtin.contains_key(&other) {
                            unknown.push(format!("{other} (which {name} needs)"));
                        }
                    }
                }
                "softdep" => {
                    let mut list = &mut module.pre_dependencies;
                    for word in value.split_whitespace() {
                        match word {
                            "pre:" => list = &mut module.pre_dependencies,
                            "post:" => list = &mut module.post_dependencies,
                            other => list.extend(self.find_providers(other)?),
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

    /// Returns the modules with this name or alias. An empty result is no error: it may be built in.
    fn find_providers(&self, name: &str) -> Result<Vec<String>, ModulesError> {
        let normalized = normalize_module_name(name);
        if self.files.contains_key(&normalized) {
            return Ok(vec![normalized]);
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
            let below = path_below_kernel(path);
            if !PROVIDER_DIRS.iter().any(|folder| below.starts_with(folder)) {
                continue;
            }
            let (_, _, modinfo) = read_module(&self.folder.join(path))?;
            for (_, alias) in modinfo.into_iter().filter(|(key, _)| key == "alias") {
                let modules = providers.entry(alias).or_default();
                if !modules.contains(name) {
                    modules.push(name.clone());
                }
            }
        }
        Ok(providers)
    }
}

impl ModuleSelection {
    /// Returns everything that must be loaded before a module, in order.
    pub(crate) fn dependencies_in_load_order(&self, name: &str) -> Vec<&str> {
        let mut found = Vec::new();
        self.collect_dependencies(name, &mut found);
        // The module itself comes last.
        found.pop();
        found
    }

    fn collect_dependencies<'a>(&'a self, name: &str, found: &mut Vec<&'a str>) {
        let Some((name, module)) = self.modules.get_key_value(name) else { return };
        // A dependency cycle cannot be loaded anyway; this ends the recursion.
        if found.contains(&name.as_str()) {
            return;
        }
        found.push(name);
        let at = found.len() - 1;
        for other in &module.dependencies {
            self.collect_dependencies(other, found);
        }
        found.remove(at);
        found.push(name);
    }

    /// Returns the modules with their hard and soft dependencies, in load order.
    fn load_order(&self, names: &[String]) -> Vec<String> {
        let (mut started, mut order) = (BTreeSet::new(), Vec::new());
        for name in names {
            self.collect_load_order(name, &mut started, &mut order);
        }
        order
    }

    fn collect_load_order(
        &self,
        name: &str,
        started: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) {
        let Some(module) = self.modules.get(name) else { return };
        if !started.insert(name.to_owned()) {
            return;
        }
        for other in module.dependencies.iter().chain(&module.pre_dependencies) {
            self.collect_load_order(other, started, order);
        }
        order.push(name.to_owned());
        for other in &module.post_dependencies {
            self.collect_load_order(other, started, order);
        }
    }
}

fn find_modules(root: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), ModulesError> {
    let folder = if below == Path::new("") { root.to_owned() } else { root.join(below) };
    let failed = |source| ModulesError::Read { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // Links are not followed: `build` and `source` point to the kernel's sources.
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

/// Returns the name of the module in a file, or `None` for other files.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (_, name) = CompressionFormat::from_file_name(name);
    Some(normalize_module_name(name.strip_suffix(".ko")?))
}

/// Returns the name of a module's file without the compression suffix.
fn uncompressed_file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    CompressionFormat::from_file_name(&name).1.to_owned()
}

/// Returns the path that patterns match: below `kernel/`, without suffixes.
fn path_below_kernel(path: &Path) -> String {
    let path = path.strip_prefix("kernel").unwrap_or(path).to_string_lossy();
    let (_, path) = CompressionFormat::from_file_name(&path);
    path.strip_suffix(".ko").unwrap_or(path).to_owned()
}

/// Reads `modules.builtin`: the built-in modules and their paths.
fn read_builtin_list(folder: &Path) -> Result<BTreeMap<String, String>, ModulesError> {
    let path = folder.join("modules.builtin");
    let list = match fs::read_to_string(&path) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(ModulesError::Read { path, source }),
    };
    let modules = list.lines().map(Path::new);
    Ok(modules.filter_map(|path| Some((module_name(path)?, path_below_kernel(path)))).collect())
}

type ModInfo = Vec<(String, String)>;

fn read_module(path: &Path) -> Result<(Vec<u8>, ElfArchitecture, ModInfo), ModulesError> {
    let failed = |source| ModulesError::Read { path: path.to_owned(), source };
    let bytes = fs::read(path).and_then(decompress).map_err(failed)?;
    let (architecture, modinfo) = elf::module_info(&bytes)
        .map_err(|source| ModulesError::Damaged { path: path.to_owned(), source })?;
    Ok((bytes, architecture, modinfo))
}

fn modinfo_value<'a>(modinfo: &'a ModInfo, key: &str) -> Option<&'a str> {
    modinfo.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests;
