// SPDX-License-Identifier: Apache-2.0
//! Validates the container image: skopeo reads it, umoci unpacks it, runc runs it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::super::PackageSet;
use super::super::oci_image::IMAGE_USER;
use super::super::static_build::is_static;
use super::require;
use crate::shell;

/// How long the server in the container takes to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Folders with the loader and the libraries of a program that is not static.
const LIBRARIES: &[&str] = &["/lib", "/lib64", "/usr/lib"];

pub(super) fn check(packages: &PackageSet) -> Result<()> {
    let tag = &packages.version.semantic;
    inspect(&packages.image, tag, 1)?;
    if let Some(image) = &packages.image_with_ramdisk {
        inspect(image, tag, 2)?;
    }
    let folder = tempfile::tempdir()?;
    let bundle = unpack(&packages.image, tag, folder.path())?;
    check_files(&bundle.join("rootfs"))?;
    run(&bundle)
}

/// Checks what skopeo reads.
fn inspect(image: &Path, tag: &str, layers: usize) -> Result<()> {
    let reference = format!("oci-archive:{}:{tag}", image.display());
    let inspected = shell::output_of(Command::new("skopeo").arg("inspect").arg(reference))?;
    let inspected: Value = serde_json::from_str(&inspected)?;
    if inspected["Labels"]["org.opencontainers.image.version"] != json!(tag)
        || inspected["Architecture"] != "amd64"
        || inspected["Layers"].as_array().is_none_or(|found| found.len() != layers)
    {
        bail!("skopeo reads another image: {inspected:#}");
    }
    Ok(())
}

/// Unpacks the layers and returns the folder with `rootfs` and `config.json`.
fn unpack(image: &Path, tag: &str, folder: &Path) -> Result<PathBuf> {
    let layout = folder.join("layout");
    tar::Archive::new(File::open(image)?).unpack(&layout)?;
    let bundle = folder.join("bundle");
    let mut umoci = Command::new("umoci");
    umoci.args(["unpack", "--image"]).arg(format!("{}:{tag}", layout.display()));
    shell::output_of(umoci.arg(&bundle))?;
    Ok(bundle)
}

fn check_files(root: &Path) -> Result<()> {
    let certificates = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt"))?;
    require("ca-certificates.crt", &certificates, &["BEGIN CERTIFICATE"])?;
    require("passwd", &fs::read_to_string(root.join("etc/passwd"))?, &["ferrite:x:65532:65532:"])
}

/// Runs `ferrite --version`, and the server with the arguments of the image until it listens.
fn run(bundle: &Path) -> Result<()> {
    let path = bundle.join("config.json");
    let original: Value = serde_json::from_slice(&fs::read(&path)?)?;
    let process = &original["process"];
    if process["user"]["uid"] != json!(IMAGE_USER) || process["user"]["gid"] != json!(IMAGE_USER) {
        bail!("the process runs as another user: {}", process["user"]);
    }
    let mut config = original.clone();
    config["process"]["terminal"] = json!(false);
    // They need rights that test environments lack.
    remove(&mut config["process"], "rlimits");
    remove(&mut config["linux"], "resources");
    config["root"]["readonly"] = json!(true);
    let mounts = config["mounts"].as_array_mut().context("the image has no mounts")?;
    for folder in ["/var/lib/ferrite", "/tmp"] {
        mounts.retain(|mount| mount["destination"] != folder);
        mounts.push(json!({
            "destination": folder, "type": "tmpfs", "source": "tmpfs",
            // runc keeps the mode of the folder in the image, but not its owner.
            "options": ["nosuid", "nodev", format!("uid={IMAGE_USER}"), format!("gid={IMAGE_USER}")],
        }));
    }
    if !is_static(&fs::read(bundle.join("rootfs/usr/bin/ferrite"))?) {
        for folder in LIBRARIES.iter().filter(|folder| Path::new(folder).exists()) {
            mounts.push(json!({
                "destination": folder, "type": "bind", "source": folder,
                "options": ["rbind", "ro"],
            }));
        }
    }
    let mut short = config.clone();
    short["process"]["args"] = json!(["/usr/bin/ferrite", "--version"]);
    fs::write(&path, short.to_string())?;
    let printed = shell::output_of(&mut runc(bundle, &["run", "--bundle"], Some("version")))?;
    require("ferrite --version", &printed, &[env!("CARGO_PKG_VERSION")])?;
    fs::write(&path, config.to_string())?;
    serve(bundle)
}

fn serve(bundle: &Path) -> Result<()> {
    let mut child = runc(bundle, &["run", "--bundle"], Some("serve"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(bundle.join("stderr"))?)
        .spawn()
        .context("cannot run runc")?;
    let output = child.stdout.take().context("the output was not piped")?;
    // The server prints this line when it is ready, and ends its output when it fails.
    let is_ready = BufReader::new(output)
        .lines()
        .map_while(std::result::Result::ok)
        .any(|line| line.starts_with("ferrite listening on"));
    if is_ready {
        shell::output_of(runc(bundle, &["kill"], None).args(["serve", "TERM"]))?;
    }
    let stopped = shell::exits_within(&mut child, STOP_TIMEOUT)?;
    if !stopped {
        shell::output_of(runc(bundle, &["kill"], None).args(["serve", "KILL"]))?;
        child.wait()?;
    }
    let log = fs::read_to_string(bundle.join("stderr"))?;
    if !is_ready || !stopped {
        bail!("the server in the container did not start and stop:\n{log}");
    }
    Ok(())
}

/// A command of runc with its own state folder. `container` comes after the bundle.
fn runc(bundle: &Path, arguments: &[&str], container: Option<&str>) -> Command {
    let mut command = Command::new("/usr/sbin/runc");
    command.arg("--root").arg(bundle.with_file_name("runc")).args(arguments);
    if let Some(container) = container {
        command.arg(bundle).arg(container);
    }
    command
}

fn remove(object: &mut Value, key: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(key);
    }
}
