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

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn python_has_venv() -> bool {
    Command::new("python3")
        .args(["-c", "import venv, ensurepip"])
        .output()
        .is_ok_and(|output| output.status.success())
}
