// SPDX-License-Identifier: Apache-2.0
//! Loads the kernel modules for the machine's devices.
//!
//! A ramdisk has neither udev nor modprobe. The tables beside the modules (`modules.dep`,
//! `modules.alias`, `modules.softdep`) have the formats of depmod; `ferrite.order` and `ferrite.later`
//! list modules that are always loaded, before and after those of the devices.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::system::init_module;

/// The maximum size of a decompressed module.
const MAX_MODULE_SIZE: u64 = 64 << 20;
/// Modules that may be needed long after the start: file systems, RAID, VLANs, bonds and hot-plugged
/// drives.
const RETAINED_PATHS: &[&str] = &[
    "kernel/fs/",
    "kernel/lib/",
    "kernel/crypto/",
    "kernel/net/",
    "kernel/arch/",
    "kernel/drivers/md/",
    "kernel/drivers/net/bonding/",
    "kernel/drivers/block/loop",
    "kernel/drivers/cdrom/",
    "kernel/drivers/usb/",
    "kernel/drivers/char/ipmi/",
    "kernel/drivers/scsi/sd_mod",
    "kernel/drivers/scsi/sr_mod",
];

/// Modules that detect disks when they are loaded.
const DISK_DRIVER_PATHS: &[&str] = &[
    "kernel/drivers/ata/",
    "kernel/drivers/block/",
    "kernel/drivers/message/",
    "kernel/drivers/nvme/",
    "kernel/drivers/scsi/",
];

/// Loads the modules of a kernel.
#[derive(Default)]
pub struct ModuleLoader {
    folder: PathBuf,
    /// File and dependencies (in load order) by module name.
    files: HashMap<String, (String, Vec<String>)>,
    /// Patterns and modules by the bus, the part of an alias before the colon.
    aliases: HashMap<String, Vec<(String, String)>>,
    /// Modules to load before and after, by module name.
    soft_dependencies: HashMap<String, (Vec<String>, Vec<String>)>,
    load_at_start: Vec<String>,
    later: Vec<String>,
    /// Modules whose load was attempted.
    loaded: HashSet<String>,
    /// Modules that could not be loaded.
    failed: HashSet<String>,
    /// Whether module files are deleted after loading, because they take memory.
    delete_files: bool,
}

impl ModuleLoader {
    /// Reads the tables of the running kernel's modules below `root`. Missing tables are empty.
    #[must_use]
    pub fn for_running_kernel(root: &Path, consume: bool) -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut modules = Self::read(&root.join("lib/modules").join(release));
        modules.delete_files = consume;
        modules
    }

    /// Reads the tables in a directory.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let table = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let mut modules = Self { folder: folder.to_owned(), ..Self::default() };
        for line in table("modules.dep").lines() {
            let Some((file, needed)) = line.split_once(':') else { continue };
            // depmod lists the dependencies in reverse load order.
            let needed = needed.split_ascii_whitespace().rev().map(module_name).collect();
            modules.files.insert(module_name(file), (file.to_owned(), needed));
        }
        for line in table("modules.alias").lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some("alias"), Some(pattern), Some(module)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let group = modules.aliases.entry(alias_bus(pattern).to_owned()).or_default();
            group.push((pattern.to_owned(), normalize_name(module)));
        }
        for line in table("modules.softdep").lines() {
            let mut fields = line.split_ascii_whitespace();
            let (Some("softdep"), Some(module)) = (fields.next(), fields.next()) else { continue };
            let (before, after) =
                modules.soft_dependencies.entry(normalize_name(module)).or_default();
            let mut list = before;
            let mut after = Some(after);
            for field in fields {
                match field {
                    "pre:" => {}
                    "post:" => {
                        let Some(after) = after.take() else { break };
                        list = after;
                    }
                    name => list.push(normalize_name(name)),
                }
            }
        }
        let names = |name: &str| table(name).lines().map(normalize_name).collect();
        modules.load_at_start = names("ferrite.order");
        modules.later = names("ferrite.later");
        modules
    }

    /// Loads the modules of `ferrite.order`, before those of the devices.
    pub fn load_first(&mut self) {
        for name in std::mem::take(&mut self.load_at_start) {
            self.load(&name);
        }
    }

    /// Loads the modules of `ferrite.later`, after those of the devices.
    pub fn load_later(&mut self) {
        for name in std::mem::take(&mut self.later) {
            self.load(&name);
        }
    }

    /// Loads all modules that match a device alias.
    pub fn load_for_alias(&mut self, modalias: &str) {
        let names: Vec<String> = self.modules_for_alias(modalias).map(str::to_owned).collect();
        for name in names {
            self.load(&name);
        }
    }

    /// Whether a device alias matches a module that detects disks.
    #[must_use]
    pub fn is_for_disks(&self, modalias: &str) -> bool {
        self.modules_for_alias(modalias).any(|name| {
            let file = self.files.get(name).map(|(file, _)| file.as_str());
            file.is_some_and(|file| DISK_DRIVER_PATHS.iter().any(|prefix| file.starts_with(prefix)))
        })
    }

    /// Returns the modules that match a device alias.
    fn modules_for_alias<'a>(&'a self, modalias: &'a str) -> impl Iterator<Item = &'a str> {
        self.aliases
            .get(alias_bus(modalias))
            .into_iter()
            .flatten()
            .filter(move |(pattern, _)| matches(pattern.as_bytes(), modalias.as_bytes()))
            .map(|(_, module)| module.as_str())
    }

    /// Loads a module and its dependencies. Returns false if it does not exist or was rejected.
    pub fn load(&mut self, name: &str) -> bool {
        let name = normalize_name(name);
        if self.loaded.contains(&name) {
            return !self.failed.contains(&name);
        }
        let Some((_, needed)) = self.files.get(&name) else { return false };
        // Recorded first, because soft dependencies may be cyclic.
        self.loaded.insert(name.clone());
        let needed = needed.clone();
        let (before, after) = self.soft_dependencies.get(&name).cloned().unwrap_or_default();
        for other in before.iter().chain(&needed) {
            self.load(other);
        }
        let loaded = self.insert(&name);
        if !loaded {
            self.failed.insert(name.clone());
        }
        for other in &after {
            self.load(other);
        }
        loaded
    }

    /// Deletes module files that will not be needed any more, to free memory.
    pub fn discard_unneeded(&mut self) {
        if !self.delete_files {
            return;
        }
        let folder = &self.folder;
        self.files.retain(|_, (file, _)| {
            let keep = RETAINED_PATHS.iter().any(|prefix| file.starts_with(prefix));
            if !keep {
                let _ = fs::remove_file(folder.join(file.as_str()));
            }
            keep
        });
        let files = &self.files;
        for group in self.aliases.values_mut() {
            group.retain(|(_, module)| files.contains_key(module));
            group.shrink_to_fit();
        }
        self.aliases.retain(|_, group| !group.is_empty());
        self.files.shrink_to_fit();
    }

    /// Returns the number of loaded modules.
    #[must_use]
    pub fn count(&self) -> usize {
        self.loaded.len() - self.failed.len()
    }

    fn insert(&mut self, name: &str) -> bool {
        let Some((file, _)) = self.files.get(name) else { return false };
        // After a restart of the agent the modules are loaded and their files deleted.
        if Path::new("/sys/module").join(name).exists() {
            return true;
        }
        let path = self.folder.join(file);
        let module = match read_module(&path) {
            Ok(module) => module,
            Err(error) => {
                tracing::warn!(module = name, %error, "failed to read module");
                return false;
            }
        };
        // Otherwise the module creates a bond by itself.
        let parameters = if name == "bonding" { c"max_bonds=0" } else { c"" };
        match init_module(&module, parameters) {
            Ok(()) => {
                if self.delete_files {
                    let _ = fs::remove_file(path);
                }
                true
            }
            Err(Errno::EXIST) => true,
            // The hardware is not present.
            Err(Errno::NODEV | Errno::NXIO) => false,
            Err(error) => {
                tracing::warn!(module = name, %error, "kernel rejected module");
                false
            }
        }
    }
}

/// Reads and decompresses a module. Modules are compressed individually, so unused ones take little
/// memory, and few kernels can decompress them.
fn read_module(path: &Path) -> io::Result<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "zst") {
        return fs::read(path);
    }
    let mut module = Vec::new();
    let packed = ruzstd::decoding::StreamingDecoder::new(io::BufReader::new(fs::File::open(path)?))
        .map_err(io::Error::other)?;
    packed.take(MAX_MODULE_SIZE).read_to_end(&mut module)?;
    Ok(module)
}

/// Returns the aliases of all devices in sysfs, without duplicates.
#[must_use]
pub fn device_aliases(devices: &Path) -> Vec<String> {
    let mut aliases = HashSet::new();
    let mut folders = vec![devices.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(file_type) = entry.file_type() else { continue };
            if file_type.is_dir() {
                folders.push(entry.path());
            } else if file_type.is_file() && entry.file_name() == "modalias" {
                let alias = fs::read_to_string(entry.path()).unwrap_or_default();
                aliases.insert(alias.trim().to_owned());
            }
        }
    }
    aliases.remove("");
    let mut aliases: Vec<_> = aliases.into_iter().collect();
    aliases.sort();
    aliases
}

/// Returns the module name of a file: `virtio_net` for `kernel/drivers/net/virtio-net.ko`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    normalize_name(name.split(".ko").next().unwrap_or(name))
}

fn normalize_name(name: &str) -> String {
    name.replace('-', "_")
}

fn alias_bus(alias: &str) -> &str {
    alias.split(':').next().unwrap_or(alias)
}

/// Matches a glob pattern with `*`, `?` and `[…]`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where to resume if the rest of the pattern does not match after the last `*`.
    let mut backtrack: Option<(usize, usize)> = None;
    while read < text.len() || at < pattern.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                backtrack = Some((at, read + 1));
                at += 1;
                continue;
            }
            Some(b'?') => (read < text.len()).then_some(at + 1),
            Some(b'[') => text.get(read).and_then(|&byte| match_set(pattern, at, byte)),
            Some(&byte) => (text.get(read) == Some(&byte)).then_some(at + 1),
            None => None,
        };
        match (step, backtrack) {
            (Some(next), _) => {
                at = next;
                read += 1;
            }
            (None, Some((star, from))) if from <= text.len() => {
                backtrack = Some((star, from + 1));
                at = star + 1;
                read = from;
            }
            (None, _) => return false,
        }
    }
    true
}

/// If the byte is in the set at `start`, returns the position after the set.
fn match_set(pattern: &[u8], start: usize, byte: u8) -> Option<usize> {
    let length = pattern[start..].iter().position(|&byte| byte == b']')?;
    let set = &pattern[start + 1..start + length];
    let mut index = 0;
    let mut matched = false;
    while index < set.len() {
        if set.get(index + 1) == Some(&b'-') && index + 2 < set.len() {
            matched |= (set[index]..=set[index + 2]).contains(&byte);
            index += 3;
        } else {
            matched |= set[index] == byte;
            index += 1;
        }
    }
    matched.then_some(start + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_patterns_like_modprobe() {
        let cases = [
            ("virtio:d00000001v*", "virtio:d00000001v00001AF4", true),
            ("virtio:d00000002v*", "virtio:d00000001v00001AF4", false),
            (
                "pci:v*d*sv*sd*bc01sc06i01*",
                "pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01",
                true,
            ),
            (
                "usb:v*p*d*dc*dsc*dp*ic08isc0[56]ip50in*",
                "usb:v1p1d1dc0dsc0dp0ic08isc06ip50in00",
                true,
            ),
            ("usb:v*ic08isc0[56]ip50in*", "usb:v1ic08isc07ip50in00", false),
            (
                "cpu:type:x86,ven*fam*mod*:feature:*0081*",
                "cpu:type:x86,ven0000fam0006mod003A:feature:,0080,0081",
                true,
            ),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("*", "", true),
            ("", "", true),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn parses_module_tables() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        put(
            "modules.dep",
            "kernel/a-b.ko: kernel/c.ko kernel/d.ko\nkernel/c.ko: kernel/d.ko\nkernel/d.ko:\n\
             kernel/drivers/scsi/mpt3sas/mpt3sas.ko:\n",
        );
        put("modules.alias", "# x\nalias virtio:d00000001v* a-b\nalias pci:v00001000* mpt3sas\n");
        put("modules.softdep", "softdep a_b pre: crc32c post: e\n");
        put("ferrite.order", "d\n");
        put("ferrite.later", "ipmi-si\n");
        let modules = ModuleLoader::read(folder.path());
        assert_eq!(modules.files["a_b"].1, ["d", "c"]);
        assert_eq!(modules.modules_for_alias("virtio:d00000001v1").collect::<Vec<_>>(), ["a_b"]);
        assert_eq!(
            modules.soft_dependencies["a_b"],
            (vec!["crc32c".to_owned()], vec!["e".to_owned()])
        );
        assert_eq!(modules.load_at_start, ["d"]);
        assert_eq!(modules.later, ["ipmi_si"]);
        assert!(modules.is_for_disks("pci:v00001000d00000097"));
        assert!(!modules.is_for_disks("virtio:d00000001v1") && !modules.is_for_disks("usb:v1"));
    }

    /// Both as a dependency and when requested directly.
    #[test]
    fn failed_modules_are_not_counted_as_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let table = "kernel/no_such_a.ko: kernel/no_such_b.ko\nkernel/no_such_b.ko:\n";
        fs::write(folder.path().join("modules.dep"), table).unwrap();
        let mut modules = ModuleLoader::read(folder.path());
        for name in ["no-such-a", "no_such_a", "no_such_b", "elsewhere"] {
            assert!(!modules.load(name), "{name}");
        }
        assert_eq!(modules.count(), 0);
    }
}
