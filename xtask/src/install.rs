// SPDX-License-Identifier: Apache-2.0
//! Finds the programs the tests talk to, and installs the Debian packages of those that are missing.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use crate::interrupt::Interrupt;
use crate::{say, shell};

/// Where the programs are that are not ours.
pub(crate) struct Programs {
    /// The folder with `initdb` and `postgres`.
    pub(crate) postgres_folder: PathBuf,
    /// `mariadbd`.
    pub(crate) mariadbd: PathBuf,
    /// `mariadb-install-db`.
    pub(crate) mariadb_install_db: PathBuf,
}

/// One thing that may be missing.
struct Need {
    what: &'static str,
    packages: &'static [&'static str],
    is_there: fn() -> bool,
}

const SERVERS: &[Need] = &[
    Need {
        what: "PostgreSQL",
        packages: &["postgresql"],
        is_there: || postgres_folder().is_some(),
    },
    Need {
        what: "MariaDB",
        // The core packages have the programs and no service that would start by itself.
        packages: &["mariadb-server-core", "mariadb-client-core"],
        is_there: || mariadbd().is_some() && on_path("mariadb-install-db").is_some(),
    },
];

const PYTHON: &[Need] = &[Need {
    what: "Python with venv",
    packages: &["python3", "python3-venv"],
    is_there: python_has_venv,
}];

/// Where Debian's own Python is, whatever else is first on the path.
pub(crate) const DEBIAN_PYTHON: &str = "/usr/bin/python3";

const LAB: &[Need] = &[
    Need {
        what: "QEMU for x86",
        packages: &["qemu-system-x86"],
        is_there: || Path::new("/usr/bin/qemu-system-x86_64").exists(),
    },
    Need {
        what: "firmware for QEMU and its network cards",
        packages: &["ovmf", "seabios", "ipxe-qemu"],
        is_there: || {
            all_there(&[
                "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
                "/usr/share/seabios/bios-256k.bin",
                "/usr/lib/ipxe/qemu/pxe-virtio.rom",
            ])
        },
    },
    Need {
        what: "libvirt",
        // Without libvirt-daemon-system: no service, no network, no user of its own.
        packages: &["libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients"],
        is_there: || {
            Path::new("/usr/sbin/libvirtd").exists()
                && libvirt_has_qemu()
                && on_path("virsh").is_some()
        },
    },
    Need {
        what: "libvirt for Python",
        packages: &["python3-libvirt", "python3-venv"],
        is_there: || runs(DEBIAN_PYTHON, &["-c", "import libvirt, venv, ensurepip"]),
    },
    Need {
        what: "IPMI tools",
        packages: &["openipmi", "ipmitool"],
        is_there: || on_path("ipmi_sim").is_some() && on_path("ipmitool").is_some(),
    },
    Need {
        what: "namespaces and bridges",
        packages: &["iproute2", "util-linux"],
        is_there: || is_program("ip") && is_program("unshare"),
    },
    Need { what: "OpenSSL", packages: &["openssl"], is_there: || on_path("openssl").is_some() },
];

const BOOT: &[Need] = &[
    Need {
        what: "readers of boot media",
        packages: &["xorriso", "genisoimage", "mtools", "dosfstools", "binutils"],
        is_there: || {
            ["xorriso", "isoinfo", "mdir", "objdump"].iter().all(|name| on_path(name).is_some())
                && Path::new("/usr/sbin/fsck.fat").exists()
        },
    },
    Need {
        what: "the stub of unified kernel images",
        packages: &["systemd-boot-efi"],
        is_there: || Path::new("/usr/lib/systemd/boot/efi/linuxx64.efi.stub").exists(),
    },
    Need {
        what: "boot loaders for networks",
        packages: &["ipxe", "pxelinux", "syslinux-common", "grub-efi-amd64-signed", "shim-signed"],
        is_there: || {
            all_there(&[
                "/usr/lib/ipxe/undionly.kpxe",
                "/usr/lib/ipxe/snponly.efi",
                "/usr/lib/PXELINUX/pxelinux.0",
                "/usr/lib/syslinux/modules/bios/ldlinux.c32",
                "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
                "/usr/lib/shim/shimx64.efi.signed",
            ])
        },
    },
    Need {
        what: "busybox, modules and compression for test ramdisks",
        packages: &["busybox-static", "kmod", "zstd"],
        is_there: || ["busybox", "depmod", "zstd"].iter().all(|name| is_program(name)),
    },
    Need {
        what: "tools for disk images",
        packages: &["qemu-utils", "gdisk", "syslinux", "e2fsprogs", "dosfstools", "xorriso"],
        is_there: || {
            let programs = ["qemu-img", "sgdisk", "syslinux", "mke2fs", "mkfs.vfat", "xorriso"];
            programs.iter().all(|name| is_program(name))
        },
    },
    Need {
        what: "a neighbour that speaks LLDP, and a way to log in to machines",
        packages: &["lldpd", "dropbear-bin"],
        is_there: || ["lldpd", "dbclient"].iter().all(|name| is_program(name)),
    },
    Need {
        what: "DHCP, TFTP and HTTP clients, relay agents, dnsmasq as a peer, and a way to lose packets",
        packages: &[
            "udhcpc",
            "dhcpcd-base",
            "isc-dhcp-client",
            "isc-dhcp-relay",
            "tftp-hpa",
            "atftp",
            "dnsmasq-base",
            "curl",
            "wget",
            "iproute2",
            "nftables",
        ],
        is_there: || {
            [
                "udhcpc", "dhcpcd", "dhclient", "dhcrelay", "tftp", "atftp", "dnsmasq", "curl",
                "wget", "ip", "nft",
            ]
            .iter()
            .all(|name| is_program(name))
        },
    },
];

const PAGE: &[Need] = &[
    Need {
        what: "Node.js",
        packages: &["nodejs", "npm"],
        is_there: || on_path("node").is_some() && on_path("npm").is_some(),
    },
    // With a font that has the letters of the page: a browser without any draws boxes.
    Need {
        what: "Chromium",
        packages: &["chromium", "fonts-dejavu-core"],
        is_there: || Path::new(CHROMIUM).exists(),
    },
];

/// Where Debian's Chromium is.
pub(crate) const CHROMIUM: &str = "/usr/bin/chromium";

const BOOT_PEERS: &[Need] = &[
    Need {
        what: "dnsmasq",
        packages: &["dnsmasq-base", "iproute2"],
        is_there: || is_program("dnsmasq") && is_program("ip"),
    },
    // Where services are started on installation this one is too; it is not what is measured.
    Need { what: "nginx", packages: &["nginx-light"], is_there: || is_program("nginx") },
];

/// The database servers, installed if need be.
pub(crate) fn servers(interrupt: &Interrupt) -> Result<Programs> {
    ensure(SERVERS, interrupt)?;
    match (postgres_folder(), mariadbd(), on_path("mariadb-install-db")) {
        (Some(postgres_folder), Some(mariadbd), Some(mariadb_install_db)) => {
            Ok(Programs { postgres_folder, mariadbd, mariadb_install_db })
        }
        _ => bail!("the packages of PostgreSQL and MariaDB are installed, but not their programs"),
    }
}

/// A Python that can make virtual environments, installed if need be.
pub(crate) fn python(interrupt: &Interrupt) -> Result<()> {
    ensure(PYTHON, interrupt)
}

/// What the lab is made of but for the emulators from PyPI, installed if need be.
pub(crate) fn lab(interrupt: &Interrupt) -> Result<()> {
    ensure(LAB, interrupt)
}

/// What the tests of boot media and boot services compare with, installed if need be.
pub(crate) fn boot(interrupt: &Interrupt) -> Result<()> {
    ensure(BOOT, interrupt)
}

/// What the web page is tested with, installed if need be.
pub(crate) fn page(interrupt: &Interrupt) -> Result<()> {
    ensure(PAGE, interrupt)
}

/// The servers our boot services are measured beside, installed if need be.
pub(crate) fn boot_peers(interrupt: &Interrupt) -> Result<()> {
    ensure(BOOT_PEERS, interrupt)
}

/// Whether we may do what only root may.
pub(crate) fn is_root() -> bool {
    // /proc/self belongs to the effective user of the process.
    std::fs::metadata("/proc/self")
        .is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}

fn ensure(needs: &[Need], interrupt: &Interrupt) -> Result<()> {
    let missing: Vec<&Need> = needs.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let what = missing.iter().map(|need| need.what).collect::<Vec<_>>().join(" and ");
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if !is_root() {
        bail!(
            "{what} missing and only root can install it: run `sudo {by_hand}` and try again, or use --quick"
        );
    }
    if on_path("apt-get").is_none() {
        bail!(
            "{what} missing and this is not a Debian system: install it and try again, or use --quick"
        );
    }
    say::line(&format!("installing {what}: {by_hand}"));
    shell::run(apt().arg("update"), interrupt)?;
    shell::run(apt().args(["install", "-y", "--no-install-recommends"]).args(&packages), interrupt)
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-qq").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Debian keeps one folder per version and links none of the server's programs into the path.
fn postgres_folder() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let folder = entry.path().join("bin");
            folder.join("initdb").exists().then_some((version, folder))
        })
        .max();
    match newest {
        Some((_, folder)) => Some(folder),
        None => on_path("initdb")?.parent().map(Path::to_owned),
    }
}

fn mariadbd() -> Option<PathBuf> {
    on_path("mariadbd")
        .or_else(|| Some(PathBuf::from("/usr/sbin/mariadbd")).filter(|path| path.exists()))
}

fn all_there(files: &[&str]) -> bool {
    files.iter().all(|file| Path::new(file).exists())
}

/// Whether a program is there, also one for the administrator only.
fn is_program(name: &str) -> bool {
    on_path(name).is_some()
        || ["/usr/sbin", "/sbin"].iter().any(|folder| Path::new(folder).join(name).is_file())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn python_has_venv() -> bool {
    runs("python3", &["-c", "import venv, ensurepip"])
}

/// libvirt looks for its drivers in a folder named for the architecture.
fn libvirt_has_qemu() -> bool {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|entry| entry.path().join("libvirt/connection-driver/libvirt_driver_qemu.so"))
        .any(|driver| driver.exists())
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
