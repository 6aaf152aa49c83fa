// SPDX-License-Identifier: Apache-2.0
//! Loads the kernel modules that the machine's devices ask for.
//!
//! A ramdisk has no udev and no modprobe. The tables beside the modules (`modules.dep`,
//! `modules.alias`, `modules.softdep`) are those depmod writes; `ferrite.order` and `ferrite.later`
//! name modules that are loaded always, in that order, before and after those of the devices.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::system::init_module;

/// The largest module that is unpacked.
const LARGEST: u64 = 64 << 20;
/// Where modules lie that may be asked for long after the start: file systems, RAID, VLANs, bonds
/// and drives that are plugged in.
const KEPT: &[&str] = &[
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

/// Where modules lie that look for disks when they are loaded.
const DISKS: &[&str] = &[
    "kernel/drivers/ata/",
    "kernel/drivers/block/",
    "kernel/drivers/message/",
    "kernel/drivers/nvme/",
    "kernel/drivers/scsi/",
];

/// The modules of a kernel.
#[derive(Default)]
pub struct Modules {
    folder: PathBuf,
    /// By name: the file and the names of those it needs, which come first.
    files: HashMap<String, (String, Vec<String>)>,
    /// By what stands before the colon: patterns and the modules they ask for.
    aliases: HashMap<String, Vec<(String, String)>>,
    /// By name: those that should be loaded before and after.
    soft: HashMap<String, (Vec<String>, Vec<String>)>,
    order: Vec<String>,
    later: Vec<String>,
    /// Those that were asked for.
    loaded: HashSet<String>,
    /// Those of them that could not be loaded.
    refused: HashSet<String>,
    /// Whether files are deleted once they are loaded, as they lie in memory.
    consume: bool,
}

impl Modules {
    /// Reads the tables of the running kernel's modules below `root`. Without any there are none to
    /// load.
    #[must_use]
    pub fn of_running_kernel(root: &Path, consume: bool) -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let mut modules = Self::read(&root.join("lib/modules").join(release));
        modules.consume = consume;
        modules
    }

    /// Reads the tables in a folder.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let table = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
        let mut modules = Self { folder: folder.to_owned(), ..Self::default() };
        for line in table("modules.dep").lines() {
            let Some((file, needed)) = line.split_once(':') else { continue };
            // depmod lists what a module needs with the last needed first.
            let needed = needed.split_ascii_whitespace().rev().map(name_of_file).collect();
            modules.files.insert(name_of_file(file), (file.to_owned(), needed));
        }
        for line in table("modules.alias").lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some("alias"), Some(pattern), Some(module)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let group = modules.aliases.entry(group_of(pattern).to_owned()).or_default();
            group.push((pattern.to_owned(), canonical(module)));
        }
        for line in table("modules.softdep").lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some("softdep"), Some(module)) = (words.next(), words.next()) else { continue };
            let (before, after) = modules.soft.entry(canonical(module)).or_default();
            let mut list = before;
            let mut after = Some(after);
            for word in words {
                match word {
                    "pre:" => {}
                    "post:" => {
                        let Some(after) = after.take() else { break };
                        list = after;
                    }
                    name => list.push(canonical(name)),
                }
            }
        }
        let names = |name: &str| table(name).lines().map(canonical).collect();
        modules.order = names("ferrite.order");
        modules.later = names("ferrite.later");
        modules
    }

    /// Loads the modules that are always loaded, before any device is looked at.
    pub fn load_first(&mut self) {
        for name in std::mem::take(&mut self.order) {
            self.load(&name);
        }
    }

    /// Loads the modules that are always loaded and take their time.
    pub fn load_later(&mut self) {
        for name in std::mem::take(&mut self.later) {
            self.load(&name);
        }
    }

    /// Loads what a device asks for. Several modules may want it; all are loaded.
    pub fn load_for(&mut self, modalias: &str) {
        let wanted: Vec<String> = self.wanted_by(modalias).map(str::to_owned).collect();
        for name in wanted {
            self.load(&name);
        }
    }

    /// Whether a device asks for a module that looks for disks.
    #[must_use]
    pub fn is_for_disks(&self, modalias: &str) -> bool {
        self.wanted_by(modalias).any(|name| {
            let file = self.files.get(name).map(|(file, _)| file.as_str());
            file.is_some_and(|file| DISKS.iter().any(|prefix| file.starts_with(prefix)))
        })
    }

    /// The modules whose patterns match a device.
    fn wanted_by<'a>(&'a self, modalias: &'a str) -> impl Iterator<Item = &'a str> {
        self.aliases
            .get(group_of(modalias))
            .into_iter()
            .flatten()
            .filter(move |(pattern, _)| matches(pattern.as_bytes(), modalias.as_bytes()))
            .map(|(_, module)| module.as_str())
    }

    /// Loads a module and what it needs; false if there is none or the kernel refused it.
    pub fn load(&mut self, name: &str) -> bool {
        let name = canonical(name);
        if self.loaded.contains(&name) {
            return !self.refused.contains(&name);
        }
        let Some((_, needed)) = self.files.get(&name) else { return false };
        // Marked first: soft dependencies may go round in circles.
        self.loaded.insert(name.clone());
        let needed = needed.clone();
        let (before, after) = self.soft.get(&name).cloned().unwrap_or_default();
        for other in before.iter().chain(&needed) {
            self.load(other);
        }
        let good = self.insert(&name);
        if !good {
            self.refused.insert(name.clone());
        }
        for other in &after {
            self.load(other);
        }
        good
    }

    /// Deletes the modules that nobody will ask for any more: they lie in memory.
    pub fn discard_unneeded(&mut self) {
        if !self.consume {
            return;
        }
        let folder = &self.folder;
        self.files.retain(|_, (file, _)| {
            let keep = KEPT.iter().any(|prefix| file.starts_with(prefix));
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

    /// How many were loaded.
    #[must_use]
    pub fn count(&self) -> usize {
        self.loaded.len() - self.refused.len()
    }

    fn insert(&mut self, name: &str) -> bool {
        let Some((file, _)) = self.files.get(name) else { return false };
        // After a restart of the agent the modules are there and their files are not.
        if Path::new("/sys/module").join(name).exists() {
            return true;
        }
        let path = self.folder.join(file);
        let module = match read_module(&path) {
            Ok(module) => module,
            Err(error) => {
                tracing::warn!(module = name, %error, "a module could not be read");
                return false;
            }
        };
        // A bond that nobody asked for would only be in the way.
        let parameters = if name == "bonding" { c"max_bonds=0" } else { c"" };
        match init_module(&module, parameters) {
            Ok(()) => {
                if self.consume {
                    let _ = fs::remove_file(path);
                }
                true
            }
            Err(Errno::EXIST) => true,
            // The hardware the module is for is not there.
            Err(Errno::NODEV | Errno::NXIO) => false,
            Err(error) => {
                tracing::warn!(module = name, %error, "the kernel refused a module");
                false
            }
        }
    }
}

/// A module as the kernel takes it. Ours are packed one by one: what is not loaded stays small. Few
/// kernels can unpack them.
fn read_module(path: &Path) -> io::Result<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "zst") {
        return fs::read(path);
    }
    let mut module = Vec::new();
    let packed = ruzstd::decoding::StreamingDecoder::new(io::BufReader::new(fs::File::open(path)?))
        .map_err(io::Error::other)?;
    packed.take(LARGEST).read_to_end(&mut module)?;
    Ok(module)
}

/// What every device the kernel knows asks for, each once.
#[must_use]
pub fn wanted_by_devices(devices: &Path) -> Vec<String> {
    let mut wanted = HashSet::new();
    let mut folders = vec![devices.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && entry.file_name() == "modalias" {
                let alias = fs::read_to_string(entry.path()).unwrap_or_default();
                wanted.insert(alias.trim().to_owned());
            }
        }
    }
    wanted.remove("");
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort();
    wanted
}

/// `kernel/drivers/net/virtio-net.ko` is `virtio_net`.
fn name_of_file(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    canonical(name.split(".ko").next().unwrap_or(name))
}

fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn group_of(alias: &str) -> &str {
    alias.split(':').next().unwrap_or(alias)
}

/// Whether a text matches a pattern with `*`, `?` and `[…]`.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where to go on if what follows the last star does not fit here.
    let mut again: Option<(usize, usize)> = None;
    while read < text.len() || at < pattern.len() {
        let step = match pattern.get(at) {
            Some(b'*') => {
                again = Some((at, read + 1));
                at += 1;
                continue;
            }
            Some(b'?') => (read < text.len()).then_some(at + 1),
            Some(b'[') => text.get(read).and_then(|&byte| in_set(pattern, at, byte)),
            Some(&byte) => (text.get(read) == Some(&byte)).then_some(at + 1),
            None => None,
        };
        match (step, again) {
            (Some(next), _) => {
                at = next;
                read += 1;
            }
            (None, Some((star, from))) if from <= text.len() => {
                again = Some((star, from + 1));
                at = star + 1;
                read = from;
            }
            (None, _) => return false,
        }
    }
    true
}

/// If the byte is in the set that starts here, where the pattern goes on.
fn in_set(pattern: &[u8], start: usize, byte: u8) -> Option<usize> {
    let length = pattern[start..].iter().position(|&byte| byte == b']')?;
    let set = &pattern[start + 1..start + length];
    let mut index = 0;
    let mut found = false;
    while index < set.len() {
        if set.get(index + 1) == Some(&b'-') && index + 2 < set.len() {
            found |= (set[index]..=set[index + 2]).contains(&byte);
            index += 3;
        } else {
            found |= set[index] == byte;
            index += 1;
        }
    }
    found.then_some(start + length + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_they_do_for_modprobe() {
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
    fn tables_are_read() {
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
        let modules = Modules::read(folder.path());
        assert_eq!(modules.files["a_b"].1, ["d", "c"]);
        assert_eq!(modules.wanted_by("virtio:d00000001v1").collect::<Vec<_>>(), ["a_b"]);
        assert_eq!(modules.soft["a_b"], (vec!["crc32c".to_owned()], vec!["e".to_owned()]));
        assert_eq!(modules.order, ["d"]);
        assert_eq!(modules.later, ["ipmi_si"]);
        assert!(modules.is_for_disks("pci:v00001000d00000097"));
        assert!(!modules.is_for_disks("virtio:d00000001v1") && !modules.is_for_disks("usb:v1"));
    }

    /// However often it is asked for, and by whom: as what another needs, or by itself.
    #[test]
    fn what_could_not_be_loaded_does_not_count_as_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let table = "kernel/no_such_a.ko: kernel/no_such_b.ko\nkernel/no_such_b.ko:\n";
        fs::write(folder.path().join("modules.dep"), table).unwrap();
        let mut modules = Modules::read(folder.path());
        for name in ["no-such-a", "no_such_a", "no_such_b", "elsewhere"] {
            assert!(!modules.load(name), "{name}");
        }
        assert_eq!(modules.count(), 0);
    }
}
