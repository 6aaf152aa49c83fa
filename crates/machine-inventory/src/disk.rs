// SPDX-License-Identifier: Apache-2.0
//! Disks, with all fields that root device hints use.
//!
//! IPA calls `lsblk`, which reads udev's database, which is filled by querying the disks. Here the
//! kernel's copies of the inquiry data are read. As with udev, the serial number of a disk in a USB
//! enclosure is that of the enclosure, and a SCSI disk without a serial number gets its WWN as one.

use std::path::{Path, PathBuf};

use agent_protocol::InventoryDisk;

use crate::kernel_files::{KernelFiles, collapse_whitespace, printable};
use crate::path_id;
use crate::vital_product_data::VitalProductData;

/// Unit of `size` in sysfs, independent of the disk's sector size.
const SECTOR: u64 = 512;

pub(crate) fn list(files: &KernelFiles) -> Vec<InventoryDisk> {
    let links = path_id::udev_links(files);
    let names = files.file_names("sys/block");
    names
        .into_iter()
        .filter(|name| is_disk(files, name) && !is_multipath_path(files, name))
        .filter_map(|name| {
            let block = BlockDevice::open(files, name)?;
            let mut disk = block.read();
            disk.by_path = match links.get(&disk.name) {
                Some(link) => Some(link.clone()),
                None => path_id::by_path(files, &block.name, &block.device_path),
            };
            Some(disk)
        })
        .collect()
}

/// Whether `lsblk` reports the type disk, RAID or multipath; excludes CDs, loop devices, logical
/// volumes and RAM disks.
fn is_disk(files: &KernelFiles, name: &str) -> bool {
    const EXCLUDED_PREFIXES: [&str; 5] = ["ram", "zram", "fd", "loop", "sr"];
    const SCSI_DISK: u8 = 0;
    if EXCLUDED_PREFIXES.iter().any(|prefix| is_numbered(name, prefix)) {
        return false;
    }
    let directory = Path::new("sys/block").join(name);
    if name.starts_with("dm-") {
        return multipath_id(files, name).is_some();
    }
    if name.starts_with("md") && files.is_directory(directory.join("md")) {
        // IPA ignores `linear` and containers as well.
        return files.text(directory.join("md/level")).is_some_and(|level| level.contains("raid"));
    }
    // Hidden: a single path of a multipath NVMe namespace, without device file.
    if files.text(directory.join("hidden")).as_deref() == Some("1") {
        return false;
    }
    let is_scsi = files.is_directory(directory.join("device/scsi_device"));
    !is_scsi
        || files.number::<u8>(directory.join("device/type")).is_none_or(|kind| kind == SCSI_DISK)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the multipath ID of a device: its `mpath-3600…` UUID without the prefix.
fn multipath_id(files: &KernelFiles, name: &str) -> Option<String> {
    let uuid = files.text(format!("sys/block/{name}/dm/uuid"))?;
    uuid.strip_prefix("mpath-").map(str::to_owned)
}

/// Whether a disk is a path of a multipath device; then only the multipath device is reported.
fn is_multipath_path(files: &KernelFiles, name: &str) -> bool {
    let holders = files.file_names(format!("sys/block/{name}/holders"));
    holders.iter().any(|holder| multipath_id(files, holder).is_some())
}

/// A block device in sysfs.
struct BlockDevice<'t> {
    files: &'t KernelFiles,
    name: String,
    directory: PathBuf,
    /// Path below `/sys/devices`.
    device_path: String,
    size: u64,
}

/// Names of a disk.
#[derive(Default)]
struct BlockDeviceIdentity {
    model: Option<String>,
    serial: Option<String>,
    /// With the vendor extension if there is one, as in `lsblk`.
    wwn: Option<String>,
    wwn_with_extension: Option<String>,
    wwn_vendor_extension: Option<String>,
}

impl<'t> BlockDevice<'t> {
    /// Returns `None` for a device of size 0: an empty SD reader or BMC virtual medium.
    fn open(files: &'t KernelFiles, name: String) -> Option<Self> {
        let directory = Path::new("sys/block").join(&name);
        let size = files.number::<u64>(directory.join("size"))?.checked_mul(SECTOR)?;
        let device_path = files.canonical(&directory)?.to_str()?.to_owned();
        (size > 0).then_some(Self { files, name, directory, device_path, size })
    }

    fn read(&self) -> InventoryDisk {
        let identity = self.identity();
        InventoryDisk {
            // The kernel replaces `/` in a name by `!`.
            name: format!("/dev/{}", self.name.replace('!', "/")),
            model: identity.model,
            size: self.size,
            rotational: self.text("queue/rotational").as_deref() == Some("1"),
            wwn: identity.wwn,
            serial: identity.serial,
            vendor: self.text("device/vendor"),
            wwn_with_extension: identity.wwn_with_extension,
            wwn_vendor_extension: identity.wwn_vendor_extension,
            hctl: self
                .files
                .file_names(self.directory.join("device/scsi_device"))
                .into_iter()
                .next(),
            by_path: None,
            logical_sectors: self.number("queue/logical_block_size"),
            physical_sectors: self.number("queue/physical_block_size"),
            tran: self.transport().map(str::to_owned),
        }
    }

    fn identity(&self) -> BlockDeviceIdentity {
        if self.name.starts_with("nvme") {
            return self.nvme_identity();
        }
        if self.name.starts_with("dm-") {
            return self.multipath_identity();
        }
        if self.name.starts_with("mmcblk") {
            return BlockDeviceIdentity {
                model: self.text("device/name"),
                serial: self.text("device/serial"),
                ..BlockDeviceIdentity::default()
            };
        }
        if self.files.is_directory(self.directory.join("device/scsi_device")) {
            return self.scsi_identity();
        }
        // Virtio has its serial number at the block device.
        BlockDeviceIdentity {
            model: self.text("device/model").map(|model| collapse_whitespace(&model)),
            serial: self.text("serial").or_else(|| self.text("device/serial")),
            ..BlockDeviceIdentity::default()
        }
    }

    fn nvme_identity(&self) -> BlockDeviceIdentity {
        BlockDeviceIdentity {
            model: self.text("device/model").map(|model| collapse_whitespace(&model)),
            serial: self.text("device/serial"),
            wwn: self.text("wwid"),
            ..BlockDeviceIdentity::default()
        }
    }

    /// The multipath ID is a digit for the type of name (3 is a WWN) followed by the name.
    fn multipath_identity(&self) -> BlockDeviceIdentity {
        let id = multipath_id(self.files, &self.name);
        BlockDeviceIdentity {
            wwn: id.as_deref().and_then(|id| id.strip_prefix('3')).map(|name| format!("0x{name}")),
            serial: id,
            ..BlockDeviceIdentity::default()
        }
    }

    fn scsi_identity(&self) -> BlockDeviceIdentity {
        let pages = VitalProductData::read(self.files, &self.directory.join("device"));
        let model = self.text("device/model").map(|model| collapse_whitespace(&model));
        let (model, serial) = match pages.ata {
            Some(ata) => (Some(ata.model), Some(ata.serial).filter(|s| !s.is_empty())),
            None => (model, None),
        };
        let serial = match self.is_usb() {
            true => self.usb_serial(),
            false => serial.or(pages.serial).or_else(|| pages.wwn.clone()),
        };
        // A disk in a USB enclosure has a WWN, but udev does not read it.
        let wwn = pages.wwn.filter(|_| !self.is_usb());
        let extension = wwn.as_ref().and_then(|wwn| wwn.get(16..)).filter(|rest| !rest.is_empty());
        let whole = wwn.as_ref().map(|wwn| format!("0x{wwn}"));
        BlockDeviceIdentity {
            model,
            serial,
            wwn_vendor_extension: extension.map(|extension| format!("0x{extension}")),
            wwn_with_extension: whole.clone(),
            wwn: whole,
        }
    }

    fn is_usb(&self) -> bool {
        self.device_path.contains("/usb")
    }

    /// Returns the serial number of the USB device that contains the disk: the nearest parent with one.
    fn usb_serial(&self) -> Option<String> {
        let disk = self.device_path.split("/host").next()?;
        let directories =
            Path::new(disk).ancestors().take_while(|f| f.to_string_lossy().contains("/usb"));
        directories.into_iter().find_map(|directory| self.files.text(directory.join("serial")))
    }

    /// Returns the transport, named as in `lsblk`.
    fn transport(&self) -> Option<&'static str> {
        const BY_NAME: [(&str, &str); 3] = [("nvme", "nvme"), ("vd", "virtio"), ("mmcblk", "mmc")];
        if let Some((_, transport)) = BY_NAME.iter().find(|(name, _)| self.name.starts_with(name)) {
            return Some(transport);
        }
        const BY_HOST_CLASS: [(&str, &str); 4] =
            [("spi_host", "spi"), ("fc_host", "fc"), ("sas_host", "sas"), ("iscsi_host", "iscsi")];
        let host = path_id::numbered_component(&self.device_path, "host")?;
        for (class, transport) in BY_HOST_CLASS {
            if self.files.exists(format!("sys/class/{class}/{host}")) {
                return Some(transport);
            }
        }
        if self.is_usb() {
            return Some("usb");
        }
        let driver = self.files.text(format!("sys/class/scsi_host/{host}/proc_name"))?;
        if driver.starts_with("ahci") || driver.starts_with("sata") {
            return Some("sata");
        }
        driver.contains("ata").then_some("ata")
    }

    fn text(&self, attribute: &str) -> Option<String> {
        let text = self.files.text(self.directory.join(attribute))?;
        Some(printable(text.as_bytes()))
    }

    fn number(&self, attribute: &str) -> Option<u32> {
        self.files.number(self.directory.join(attribute))
    }
}
