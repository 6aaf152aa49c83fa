// SPDX-License-Identifier: Apache-2.0
//! The Debian package: an `ar` archive of two tar archives.
//!
//! Written here and not with `cargo deb`: that program builds the crate itself, adds 150 crates to
//! compile, and takes modification times and compression from the machine. The format is small.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use md5::{Digest as _, Md5};

use super::archive_tree::{ArchiveRoot, ArchiveTree, gzip};
use super::source_commit::{PackageVersion, SourceCommit};

/// Where the templates of the package are in the repository.
const SOURCES: &str = "deploy/debian";
const UNIT: &str = "deploy/systemd/ferrite.service";
const CONFIGURATION: &str = "etc/ferrite/ferrite.toml";
const MAINTAINER: &str = "Ferrite authors <ferrite@example.org>";

/// What the service needs, and what it uses to boot machines.
const DEPENDS: &str = "adduser, init-system-helpers (>= 1.54~)";
const RECOMMENDS: &str = "ca-certificates, ipxe, systemd-boot-efi";
const SUGGESTS: &str =
    "grub-efi-amd64-signed, mariadb-server, postgresql, pxelinux, shim-signed, syslinux-common";

/// The files of the programs that go into the package.
pub(super) struct PackagedPrograms {
    pub(super) ferrite: Vec<u8>,
    /// `ferrite ramdisk build` puts it into the ramdisk.
    pub(super) agent: Vec<u8>,
    /// Pages by file name.
    pub(super) manual_pages: Vec<(String, Vec<u8>)>,
    pub(super) bash_completions: Vec<u8>,
    pub(super) sbom: Vec<u8>,
}

/// Returns the installed files.
pub(super) fn installed_files(
    root: &Path,
    programs: &PackagedPrograms,
    commit: &SourceCommit,
    version: &PackageVersion,
) -> Result<ArchiveTree> {
    let mut tree = ArchiveTree::default();
    tree.program("usr/bin/ferrite", programs.ferrite.as_slice());
    tree.program("usr/lib/ferrite/ferrite-agent", programs.agent.as_slice());
    tree.file("lib/systemd/system/ferrite.service", read(root, UNIT)?);
    tree.file(CONFIGURATION, read(root, &format!("{SOURCES}/ferrite.toml"))?);
    let bash = "usr/share/bash-completion/completions/ferrite";
    tree.file(bash, programs.bash_completions.as_slice());
    for (name, page) in &programs.manual_pages {
        tree.file(&format!("usr/share/man/man1/{name}.gz"), gzip(page, 9)?);
    }
    let documents = "usr/share/doc/ferrite";
    tree.file(&format!("{documents}/copyright"), read(root, &format!("{SOURCES}/copyright"))?);
    tree.file(&format!("{documents}/configuration.md"), read(root, "docs/configuration.md")?);
    tree.file(&format!("{documents}/sbom.cdx.json.gz"), gzip(&programs.sbom, 9)?);
    let changelog = format!(
        "ferrite ({}) unstable; urgency=medium\n\n  * Commit {}.\n\n -- {MAINTAINER}  {}\n",
        version.debian,
        commit.id,
        commit.changelog_date()
    );
    tree.file(&format!("{documents}/changelog.gz"), gzip(changelog.as_bytes(), 9)?);
    tree.file("usr/share/lintian/overrides/ferrite", read(root, &format!("{SOURCES}/overrides"))?);
    Ok(tree)
}

/// Returns the package. `level` is that of xz.
pub(super) fn write(
    root: &Path,
    files: &ArchiveTree,
    commit: &SourceCommit,
    version: &PackageVersion,
    level: u32,
) -> Result<Vec<u8>> {
    let mut control = ArchiveTree::default();
    let description = String::from_utf8(read(root, &format!("{SOURCES}/description"))?)
        .context("the description is not UTF-8")?;
    control.file("control", control_file(files.size(), version, &description));
    control.file("conffiles", format!("/{CONFIGURATION}\n"));
    control.file("md5sums", md5sums(files));
    for script in ["postinst", "postrm", "prerm"] {
        control.program(script, read(root, &format!("{SOURCES}/{script}"))?);
    }
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.xz", xz(&control.tar(commit.time, ArchiveRoot::CurrentFolder)?, level)?),
        ("data.tar.xz", xz(&files.tar(commit.time, ArchiveRoot::CurrentFolder)?, level)?),
    ];
    Ok(ar(&members, commit.time))
}

fn control_file(installed_size: u64, version: &PackageVersion, description: &str) -> String {
    format!(
        "Package: ferrite\n\
         Version: {}\n\
         Architecture: amd64\n\
         Maintainer: {MAINTAINER}\n\
         Installed-Size: {}\n\
         Depends: {DEPENDS}\n\
         Recommends: {RECOMMENDS}\n\
         Suggests: {SUGGESTS}\n\
         Section: admin\n\
         Priority: optional\n\
         Description: {description}",
        version.debian,
        installed_size.div_ceil(1024)
    )
}

/// Checksums of all files but the configuration, for `dpkg --verify`.
fn md5sums(files: &ArchiveTree) -> String {
    let checked = files.files().filter(|(path, _)| *path != CONFIGURATION);
    checked
        .map(|(path, content)| format!("{}  {path}\n", hex::encode(Md5::digest(content))))
        .collect()
}

/// The `ar` format: a magic line, then a header of 60 bytes before each member, padded to even
/// offsets.
fn ar(members: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in members {
        let size = content.len();
        archive.extend(format!("{name:<16}{time:<12}0     0     100644  {size:<10}`\n").bytes());
        archive.extend(content);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

fn xz(content: &[u8], level: u32) -> Result<Vec<u8>> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), level);
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

fn read(root: &Path, path: &str) -> Result<Vec<u8>> {
    fs::read(root.join(path)).with_context(|| format!("cannot read {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Vec<u8> {
        let root = crate::repository::root();
        let programs = PackagedPrograms {
            ferrite: b"server".to_vec(),
            agent: b"agent".to_vec(),
            manual_pages: vec![("ferrite.1".to_owned(), b".TH ferrite 1".to_vec())],
            bash_completions: b"complete ferrite".to_vec(),
            sbom: b"{}".to_vec(),
        };
        let commit = SourceCommit::example();
        let version = commit.version("1.2.0");
        let files = installed_files(&root, &programs, &commit, &version).unwrap();
        write(&root, &files, &commit, &version, 0).unwrap()
    }

    #[test]
    fn same_inputs_give_the_same_bytes() {
        assert!(example() == example(), "the packages differ");
    }

    #[test]
    fn ar_members_are_padded_to_even_offsets() {
        let archive = ar(&[("a", b"1".to_vec()), ("b", b"22".to_vec())], 7);
        let text = String::from_utf8(archive).unwrap();
        let expected = "!<arch>\n\
            a               7           0     0     100644  1         `\n1\n\
            b               7           0     0     100644  2         `\n22";
        assert_eq!(text, expected);
    }

    #[test]
    fn xz_is_the_format_of_the_reference_decoder() {
        let mut text = String::new();
        let compressed = xz(b"content", 6).unwrap();
        std::io::Read::read_to_string(
            &mut liblzma::read::XzDecoder::new(compressed.as_slice()),
            &mut text,
        )
        .unwrap();
        assert_eq!(text, "content");
    }
}
