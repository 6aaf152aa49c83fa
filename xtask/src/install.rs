// SPDX-License-Identifier: Apache-2.0
//! Finds the programs that tests and benchmarks need, and installs the Debian packages of missing
//! ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

use crate::interrupt::Interrupt;
use crate::{print, shell};

/// Paths of the database servers' programs.
pub(crate) struct DatabasePrograms {
    /// The folder with `initdb` and `postgres`.
    pub(crate) postgres_folder: PathBuf,
    /// `mariadbd`.
    pub(crate) mariadbd: PathBuf,
    /// `mariadb-install-db`.
    pub(crate) mariadb_install_db: PathBuf,
}

/// A program or file that tests need, and the packages that contain it.
#[derive(Clone, Copy)]
struct RequiredPackage {
    description: &'static str,
    packages: &'static [&'static str],
    is_installed: fn() -> bool,
}

const SERVERS: &[RequiredPackage] = &[
    RequiredPackage {
        description: "PostgreSQL",
        packages: &["postgresql"],
        is_installed: || postgres_folder().is_some(),
    },
    RequiredPackage {
        description: "MariaDB",
        // The core packages contain no system service that would start by itself.
        packages: &["mariadb-server-core", "mariadb-client-core"],
        is_installed: || mariadbd().is_some() && on_path("mariadb-install-db").is_some(),
    },
    RequiredPackage {
        description: "Galera",
        packages: &["galera-4"],
        is_installed: || Path::new("/usr/lib/galera/libgalera_smm.so").exists(),
    },
    RequiredPackage {
        description: "wrong clocks",
        packages: &["faketime"],
        is_installed: || on_path("faketime").is_some(),
    },
];

const PYTHON: &[RequiredPackage] = &[RequiredPackage {
    description: "Python with venv",
    packages: &["python3", "python3-venv"],
    is_installed: python_has_venv,
}];

const GO: &[RequiredPackage] = &[RequiredPackage {
    description: "Go",
    packages: &["golang-go"],
    is_installed: || on_path("go").is_some(),
}];

const NAMESPACES: &[RequiredPackage] = &[RequiredPackage {
    description: "namespaces and bridges",
    packages: &["iproute2", "util-linux"],
    is_installed: || is_program("ip") && is_program("unshare"),
}];

/// Debian's own Python, whatever else is first on the path.
pub(crate) const DEBIAN_PYTHON: &str = "/usr/bin/python3";

const LAB: &[RequiredPackage] = &[
    RequiredPackage {
        description: "QEMU for x86",
        packages: &["qemu-system-x86"],
        is_installed: || Path::new("/usr/bin/qemu-system-x86_64").exists(),
    },
    RequiredPackage {
        description: "firmware for QEMU and its NICs",
        packages: &["ovmf", "seabios", "ipxe-qemu"],
        is_installed: || {
            all_exist(&[
                "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd",
                "/usr/share/seabios/bios-256k.bin",
                "/usr/lib/ipxe/qemu/pxe-virtio.rom",
            ])
        },
    },
    RequiredPackage {
        description: "libvirt",
        // Without libvirt-daemon-system, which adds a service, a network and a user.
        packages: &["libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-clients"],
        is_installed: || {
            Path::new("/usr/sbin/libvirtd").exists()
                && libvirt_has_qemu()
                && on_path("virsh").is_some()
        },
    },
    RequiredPackage {
        description: "libvirt for Python",
        packages: &["python3-libvirt", "python3-venv"],
        is_installed: || runs(DEBIAN_PYTHON, &["-c", "import libvirt, venv, ensurepip"]),
    },
    RequiredPackage {
        description: "IPMI tools",
        packages: &["openipmi", "ipmitool"],
        is_installed: || on_path("ipmi_sim").is_some() && on_path("ipmitool").is_some(),
    },
    RequiredPackage {
        description: "OpenSSL",
        packages: &["openssl"],
        is_installed: || on_path("openssl").is_some(),
    },
];

const BOOT: &[RequiredPackage] = &[
    RequiredPackage {
        description: "readers of boot media",
        packages: &["xorriso", "genisoimage", "mtools", "dosfstools", "binutils"],
        is_installed: || {
            ["xorriso", "isoinfo", "mdir", "objdump"].iter().all(|name| on_path(name).is_some())
                && Path::new("/usr/sbin/fsck.fat").exists()
        },
    },
    RequiredPackage {
        description: "the stub of unified kernel images",
        packages: &["systemd-boot-efi"],
        is_installed: || Path::new("/usr/lib/systemd/boot/efi/linuxx64.efi.stub").exists(),
    },
    RequiredPackage {
        description: "boot loaders for networks",
        packages: &["ipxe", "pxelinux", "syslinux-common", "grub-efi-amd64-signed", "shim-signed"],
        is_installed: || {
            all_exist(&[
                "/usr/lib/ipxe/undionly.kpxe",
                "/usr/lib/ipxe/snponly.efi",
                "/usr/lib/PXELINUX/pxelinux.0",
                "/usr/lib/syslinux/modules/bios/ldlinux.c32",
                "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
                "/usr/lib/shim/shimx64.efi.signed",
            ])
        },
    },
    RequiredPackage {
        description: "busybox, modules and compression for test ramdisks",
        packages: &["busybox-static", "kmod", "zstd"],
        is_installed: || ["busybox", "depmod", "zstd"].iter().all(|name| is_program(name)),
    },
    RequiredPackage {
        description: "tools for disk images",
        packages: &["qemu-utils", "gdisk", "syslinux", "e2fsprogs", "dosfstools", "xorriso"],
        is_installed: || {
            let programs = ["qemu-img", "sgdisk", "syslinux", "mke2fs", "mkfs.vfat", "xorriso"];
            programs.iter().all(|name| is_program(name))
        },
    },
    RequiredPackage {
        description: "an LLDP daemon and an SSH client",
        packages: &["lldpd", "dropbear-bin"],
        is_installed: || ["lldpd", "dbclient"].iter().all(|name| is_program(name)),
    },
    RequiredPackage {
        description: "DHCP, TFTP and HTTP clients, relay agents, dnsmasq, and nftables to drop packets",
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
        is_installed: || {
            [
                "udhcpc", "dhcpcd", "dhclient", "dhcrelay", "tftp", "atftp", "dnsmasq", "curl",
                "wget", "ip", "nft",
            ]
            .iter()
            .all(|name| is_program(name))
        },
    },
];

const BROWSER: &[RequiredPackage] = &[
    RequiredPackage {
        description: "Node.js",
        packages: &["nodejs", "npm"],
        is_installed: || on_path("node").is_some() && on_path("npm").is_some(),
    },
    // Without a font the browser draws boxes.
    RequiredPackage {
        description: "Chromium",
        packages: &["chromium", "fonts-dejavu-core"],
        is_installed: || Path::new(CHROMIUM).exists(),
    },
];

/// Debian's Chromium.
pub(crate) const CHROMIUM: &str = "/usr/bin/chromium";

const PACKAGE_TOOLS: &[RequiredPackage] = &[
    RequiredPackage {
        description: "tools for container images",
        packages: &["skopeo", "umoci", "runc"],
        is_installed: || ["skopeo", "umoci", "runc"].iter().all(|name| is_program(name)),
    },
    RequiredPackage {
        description: "checkers of Debian packages and units",
        packages: &["lintian", "systemd", "binutils"],
        is_installed: || {
            ["lintian", "systemd-analyze", "strip"].iter().all(|name| is_program(name))
        },
    },
];

const BOOT_PEERS: &[RequiredPackage] = &[
    RequiredPackage {
        description: "dnsmasq",
        packages: &["dnsmasq-base", "iproute2"],
        is_installed: || is_program("dnsmasq") && is_program("ip"),
    },
    // Some systems start its service on installation; the benchmark starts its own process.
    RequiredPackage {
        description: "nginx",
        packages: &["nginx-light"],
        is_installed: || is_program("nginx"),
    },
];

/// Installs everything that `cargo xtask test` needs.
pub(crate) fn all_for_tests(interrupt: &Interrupt) -> Result<()> {
    let packages = [SERVERS, PYTHON, GO, NAMESPACES, LAB, BOOT, BROWSER, PACKAGE_TOOLS];
    ensure(&packages.concat(), interrupt)
}

/// Installs the database servers and returns the paths of their programs.
pub(crate) fn database_servers(interrupt: &Interrupt) -> Result<DatabasePrograms> {
    ensure(SERVERS, interrupt)?;
    installed_database_programs()
}

/// Installs Go.
pub(crate) fn go(interrupt: &Interrupt) -> Result<()> {
    ensure(GO, interrupt)
}

/// Installs what tests with a Kubernetes cluster need.
pub(crate) fn for_clusters(interrupt: &Interrupt) -> Result<DatabasePrograms> {
    ensure(&[SERVERS, NAMESPACES].concat(), interrupt)?;
    installed_database_programs()
}

/// Returns the paths of the database servers' programs. Fails if they are not installed.
pub(crate) fn installed_database_programs() -> Result<DatabasePrograms> {
    match (postgres_folder(), mariadbd(), on_path("mariadb-install-db")) {
        (Some(postgres_folder), Some(mariadbd), Some(mariadb_install_db)) => {
            Ok(DatabasePrograms { postgres_folder, mariadbd, mariadb_install_db })
        }
        _ => bail!("the programs of PostgreSQL or MariaDB are missing"),
    }
}

/// Installs what the benchmarks with machines need.
pub(crate) fn lab_and_boot(interrupt: &Interrupt) -> Result<()> {
    ensure(&[PYTHON, NAMESPACES, LAB, BOOT].concat(), interrupt)
}

/// Installs the programs that validate packages.
pub(crate) fn package_tools(interrupt: &Interrupt) -> Result<()> {
    ensure(&[PYTHON, PACKAGE_TOOLS].concat(), interrupt)
}

/// Installs the servers that our boot services are measured against.
pub(crate) fn boot_peers(interrupt: &Interrupt) -> Result<()> {
    ensure(BOOT_PEERS, interrupt)
}

/// Returns whether the process runs as root.
pub(crate) fn is_root() -> bool {
    // The owner of /proc/self is the effective user of the process.
    std::fs::metadata("/proc/self")
        .is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}

fn ensure(needs: &[RequiredPackage], interrupt: &Interrupt) -> Result<()> {
    // Several threads install packages, and apt runs only once at a time.
    static INSTALLATION: Mutex<()> = Mutex::new(());
    let _one_at_a_time = INSTALLATION.lock().unwrap_or_else(PoisonError::into_inner);
    let missing: Vec<&RequiredPackage> =
        needs.iter().filter(|need| !(need.is_installed)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let descriptions =
        missing.iter().map(|need| need.description).collect::<Vec<_>>().join(" and ");
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    let by_hand = format!("apt-get install {}", packages.join(" "));
    if !is_root() {
        bail!(
            "{descriptions} missing and only root can install it: run `sudo {by_hand}` and try again, or use --quick"
        );
    }
    if on_path("apt-get").is_none() {
        bail!(
            "{descriptions} missing and this is not a Debian system: install it and try again, or use --quick"
        );
    }
    print::line(&format!("installing {descriptions}: {by_hand}"));
    shell::run(apt().arg("update"), interrupt)?;
    shell::run(apt().args(["install", "-y", "--no-install-recommends"]).args(&packages), interrupt)
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.arg("-qq").env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Debian has one folder per version, none of them on the path.
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

fn all_exist(files: &[&str]) -> bool {
    files.iter().all(|file| Path::new(file).exists())
}

/// Returns whether a program is installed, also in the `sbin` folders.
fn is_program(name: &str) -> bool {
    on_path(name).is_some()
        || ["/usr/sbin", "/sbin"].iter().any(|folder| Path::new(folder).join(name).is_file())
}

pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn python_has_venv() -> bool {
    runs("python3", &["-c", "import venv, ensurepip"])
}

/// The folder of libvirt's drivers is named after the architecture.
fn libvirt_has_qemu() -> bool {
    let folders = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    folders
        .map(|entry| entry.path().join("libvirt/connection-driver/libvirt_driver_qemu.so"))
        .any(|driver| driver.exists())
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}
