// SPDX-License-Identifier: Apache-2.0
//! The disks, with everything root device hints can ask for.
//!
//! The stock agent asks `lsblk`, which asks udev, which asks the disks. Here the kernel's own copies of
//! the disks' answers are read. Serial numbers of disks in USB boxes are those of the box, and a SCSI disk
//! that tells none has its world-wide name for one; both are as udev has it.

use std::path::{Path, PathBuf};

use agent_protocol::Disk;

use crate::path_id;
use crate::tree::{Tree, printable, single_blanks};
use crate::vital_product_data::VitalProductData;

/// The kernel counts sizes in these whatever the disk's sectors are.
const SECTOR: u64 = 512;

pub(crate) fn list(tree: &Tree) -> Vec<Disk> {
    let links = path_id::links(tree);
    let names = tree.names("sys/block");
    names
        .into_iter()
        .filter(|name| is_disk(tree, name) && !is_path_of_multipath(tree, name))
        .filter_map(|name| {
            let block = Block::open(tree, name)?;
            let mut disk = block.read();
            disk.by_path = match links.get(&disk.name) {
                Some(link) => Some(link.clone()),
                None => path_id::by_path(tree, &block.name, &block.place),
            };
            Some(disk)
        })
        .collect()
}

/// Whether `lsblk` would call it a disk, a RAID or a multipath device, rather than a CD, a loop device,
/// a logical volume or memory in disguise.
fn is_disk(tree: &Tree, name: &str) -> bool {
    const NEVER: [&str; 5] = ["ram", "zram", "fd", "loop", "sr"];
    const SCSI_DISK: u8 = 0;
    if NEVER.iter().any(|prefix| numbered(name, prefix)) {
        return false;
    }
    let folder = Path::new("sys/block").join(name);
    if name.starts_with("dm-") {
        return multipath_id(tree, name).is_some();
    }
    if name.starts_with("md") && tree.is_folder(folder.join("md")) {
        // `linear` and containers are no disks to the stock agent either.
        return tree.text(folder.join("md/level")).is_some_and(|level| level.contains("raid"));
    }
    // NVMe's single paths of a shared namespace have no device file.
    if tree.text(folder.join("hidden")).as_deref() == Some("1") {
        return false;
    }
    let is_scsi = tree.is_folder(folder.join("device/scsi_device"));
    !is_scsi || tree.number::<u8>(folder.join("device/type")).is_none_or(|kind| kind == SCSI_DISK)
}

fn numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What multipath calls the device, if it made it: `mpath-3600…` without the prefix.
fn multipath_id(tree: &Tree, name: &str) -> Option<String> {
    let uuid = tree.text(format!("sys/block/{name}/dm/uuid"))?;
    uuid.strip_prefix("mpath-").map(str::to_owned)
}

/// Whether a disk is one of the ways to a multipath device, which then stands for it.
fn is_path_of_multipath(tree: &Tree, name: &str) -> bool {
    let holders = tree.names(format!("sys/block/{name}/holders"));
    holders.iter().any(|holder| multipath_id(tree, holder).is_some())
}

/// A block device in sysfs.
struct Block<'t> {
    tree: &'t Tree,
    name: String,
    folder: PathBuf,
    /// Where it is among all devices.
    place: String,
    size: u64,
}

/// What names a disk.
#[derive(Default)]
struct Identity {
    model: Option<String>,
    serial: Option<String>,
    /// With the vendor's extension, if it has one: `lsblk` prefers that.
    wwn: Option<String>,
    wwn_with_extension: Option<String>,
    wwn_vendor_extension: Option<String>,
}

impl<'t> Block<'t> {
    /// Nothing if it is empty: card readers and BMCs have many such.
    fn open(tree: &'t Tree, name: String) -> Option<Self> {
        let folder = Path::new("sys/block").join(&name);
        let size = tree.number::<u64>(folder.join("size"))?.checked_mul(SECTOR)?;
        let place = tree.resolved(&folder)?.to_str()?.to_owned();
        (size > 0).then_some(Self { tree, name, folder, place, size })
    }

    fn read(&self) -> Disk {
        let identity = self.identity();
        Disk {
            // The kernel writes a `/` in a name as `!`.
            name: format!("/dev/{}", self.name.replace('!', "/")),
            model: identity.model,
            size: self.size,
            rotational: self.text("queue/rotational").as_deref() == Some("1"),
            wwn: identity.wwn,
            serial: identity.serial,
            vendor: self.text("device/vendor"),
            wwn_with_extension: identity.wwn_with_extension,
            wwn_vendor_extension: identity.wwn_vendor_extension,
            hctl: self.tree.names(self.folder.join("device/scsi_device")).into_iter().next(),
            by_path: None,
            logical_sectors: self.number("queue/logical_block_size"),
            physical_sectors: self.number("queue/physical_block_size"),
            tran: self.transport().map(str::to_owned),
        }
    }

    fn identity(&self) -> Identity {
        if self.name.starts_with("nvme") {
            return self.nvme_identity();
        }
        if self.name.starts_with("dm-") {
            return self.multipath_identity();
        }
        if self.name.starts_with("mmcblk") {
            return Identity {
                model: self.text("device/name"),
                serial: self.text("device/serial"),
                ..Identity::default()
            };
        }
        if self.tree.is_folder(self.folder.join("device/scsi_device")) {
            return self.scsi_identity();
        }
        // Virtio tells its serial number at the block device.
        Identity {
            model: self.text("device/model").map(|model| single_blanks(&model)),
            serial: self.text("serial").or_else(|| self.text("device/serial")),
            ..Identity::default()
        }
    }

    fn nvme_identity(&self) -> Identity {
        Identity {
            model: self.text("device/model").map(|model| single_blanks(&model)),
            serial: self.text("device/serial"),
            wwn: self.text("wwid"),
            ..Identity::default()
        }
    }

    /// The device mapper's device is named by what its paths have in common: a digit for the kind of
    /// name (3 is a world-wide name) and the name.
    fn multipath_identity(&self) -> Identity {
        let id = multipath_id(self.tree, &self.name);
        Identity {
            wwn: id.as_deref().and_then(|id| id.strip_prefix('3')).map(|name| format!("0x{name}")),
            serial: id,
            ..Identity::default()
        }
    }

    fn scsi_identity(&self) -> Identity {
        let pages = VitalProductData::read(self.tree, &self.folder.join("device"));
        let model = self.text("device/model").map(|model| single_blanks(&model));
        let (model, serial) = match pages.ata {
            Some(ata) => (Some(ata.model), Some(ata.serial).filter(|s| !s.is_empty())),
            None => (model, None),
        };
        let serial = match self.is_usb() {
            true => self.usb_serial(),
            false => serial.or(pages.serial).or_else(|| pages.wwn.clone()),
        };
        // A disk in a USB box has the name of the disk, but udev does not ask for it.
        let wwn = pages.wwn.filter(|_| !self.is_usb());
        let extension = wwn.as_ref().and_then(|wwn| wwn.get(16..)).filter(|rest| !rest.is_empty());
        let whole = wwn.as_ref().map(|wwn| format!("0x{wwn}"));
        Identity {
            model,
            serial,
            wwn_vendor_extension: extension.map(|extension| format!("0x{extension}")),
            wwn_with_extension: whole.clone(),
            wwn: whole,
        }
    }

    fn is_usb(&self) -> bool {
        self.place.contains("/usb")
    }

    /// The serial number of the USB device that the disk is in: the nearest folder above with one.
    fn usb_serial(&self) -> Option<String> {
        let disk = self.place.split("/host").next()?;
        let folders =
            Path::new(disk).ancestors().take_while(|f| f.to_string_lossy().contains("/usb"));
        folders.into_iter().find_map(|folder| self.tree.text(folder.join("serial")))
    }

    /// How it is connected, in `lsblk`'s words.
    fn transport(&self) -> Option<&'static str> {
        const BY_NAME: [(&str, &str); 3] = [("nvme", "nvme"), ("vd", "virtio"), ("mmcblk", "mmc")];
        if let Some((_, transport)) = BY_NAME.iter().find(|(name, _)| self.name.starts_with(name)) {
            return Some(transport);
        }
        const BY_HOST_CLASS: [(&str, &str); 4] =
            [("spi_host", "spi"), ("fc_host", "fc"), ("sas_host", "sas"), ("iscsi_host", "iscsi")];
        let host = path_id::part_with_number(&self.place, "host")?;
        for (class, transport) in BY_HOST_CLASS {
            if self.tree.exists(format!("sys/class/{class}/{host}")) {
                return Some(transport);
            }
        }
        if self.is_usb() {
            return Some("usb");
        }
        let driver = self.tree.text(format!("sys/class/scsi_host/{host}/proc_name"))?;
        if driver.starts_with("ahci") || driver.starts_with("sata") {
            return Some("sata");
        }
        driver.contains("ata").then_some("ata")
    }

    fn text(&self, attribute: &str) -> Option<String> {
        let text = self.tree.text(self.folder.join(attribute))?;
        Some(printable(text.as_bytes()))
    }

    fn number(&self, attribute: &str) -> Option<u32> {
        self.tree.number(self.folder.join(attribute))
    }
}
