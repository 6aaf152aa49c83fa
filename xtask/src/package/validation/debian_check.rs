// SPDX-License-Identifier: Apache-2.0
//! Validates the Debian package: dpkg reads and unpacks it, lintian and systemd-analyze find nothing
//! to improve.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::super::PackageSet;
use super::super::static_build::is_static;
use super::require;
use crate::shell;

/// The highest exposure of the service in tenths, for `systemd-analyze security`.
const HIGHEST_EXPOSURE: &str = "20";
/// What lintian reports for a program that is not static, as in the test build.
const DYNAMIC_PROGRAM_TAG: &str = "missing-dependency-on-libc";

pub(super) fn check(packages: &PackageSet) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let package = &packages.debian;
    let control = shell::output_of(Command::new("dpkg-deb").arg("--info").arg(package))?;
    let version = format!("Version: {}", packages.version.debian);
    require("the control file", &control, &["Package: ferrite", &version, "Architecture: amd64"])?;
    let contents = shell::output_of(Command::new("dpkg-deb").arg("--contents").arg(package))?;
    for line in [
        "-rwxr-xr-x root/root",
        "./usr/bin/ferrite\n",
        "./usr/lib/ferrite/ferrite-agent\n",
        "./lib/systemd/system/ferrite.service\n",
        "./etc/ferrite/ferrite.toml\n",
        "./usr/share/man/man1/ferrite.1.gz\n",
    ] {
        require("the package", &contents, &[line])?;
    }
    let root = folder.path().join("root");
    install(package, &root)?;
    check_scripts(package, &folder.path().join("control"))?;
    check_unit(&root)?;
    let is_test_build = !is_static(&fs::read(root.join("usr/bin/ferrite"))?);
    lintian(package, is_test_build)
}

/// Unpacks into an empty system, so that dpkg records files, checksums and configuration files.
/// Maintainer scripts would need the programs of a system.
fn install(package: &Path, root: &Path) -> Result<()> {
    let database = root.join("var/lib/dpkg");
    for name in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(name))?;
    }
    for name in ["status", "available"] {
        fs::write(database.join(name), "")?;
    }
    let dpkg = |arguments: &[&str]| {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display())).args(arguments);
        command
    };
    let mut unpack = dpkg(&["--force-depends", "--force-bad-path", "--unpack"]);
    shell::output_of(unpack.arg(package))?;
    // Configuration files get their names when the package is configured.
    let verified = shell::output_of(&mut dpkg(&["--verify", "ferrite"]))?;
    let mut damaged = verified.lines().filter(|line| !line.contains(" c /etc/ferrite/"));
    if damaged.next().is_some() {
        bail!("the checksums in the package are wrong:\n{verified}");
    }
    fs::metadata(root.join("etc/ferrite/ferrite.toml.dpkg-new"))?;
    let status = fs::read_to_string(database.join("status"))?;
    require(
        "the state of dpkg",
        &status,
        &["Status: install ok unpacked", "/etc/ferrite/ferrite.toml"],
    )
}

fn check_scripts(package: &Path, folder: &Path) -> Result<()> {
    shell::output_of(Command::new("dpkg-deb").arg("--control").arg(package).arg(folder))?;
    for name in ["postinst", "prerm", "postrm"] {
        let script = folder.join(name);
        if fs::metadata(&script)?.permissions().mode() & 0o111 == 0 {
            bail!("{name} is not executable");
        }
        shell::output_of(Command::new("sh").arg("-n").arg(&script))?;
    }
    Ok(())
}

fn check_unit(root: &Path) -> Result<()> {
    let unit = root.join("lib/systemd/system/ferrite.service");
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--no-pager", "--offline=true"]);
    security.arg(format!("--threshold={HIGHEST_EXPOSURE}")).arg(&unit);
    shell::output_of(&mut security)?;
    // Unknown settings are only warnings.
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    verify.arg(format!("--root={}", root.display())).arg("ferrite.service");
    let output = verify.output()?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() || !messages.trim().is_empty() {
        bail!("systemd-analyze verify: {}: {messages}", output.status);
    }
    Ok(())
}

fn lintian(package: &Path, is_test_build: bool) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--no-cfg", "--allow-root", "--fail-on", "error,warning"]);
    if is_test_build {
        lintian.args(["--suppress-tags", DYNAMIC_PROGRAM_TAG]);
        // It formats each of our 200 pages, which takes most of the time.
        lintian.args(["--dont-check-part", "documentation/manual"]);
    }
    let output = lintian.arg(package).output()?;
    if !output.status.success() {
        bail!(
            "lintian:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
