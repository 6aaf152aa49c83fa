// SPDX-License-Identifier: Apache-2.0
//! `cargo xtask package`: static programs, a container image, a Debian package, the manifests and the
//! Helm chart of the operator, a software bill of materials and checksums.
//!
//! Everything is written in this process, and the bytes depend only on the commit and the toolchain.

mod archive_tree;
mod debian_archive;
mod helm_chart;
mod oci_image;
mod operator_manifests;
mod ramdisk_layer;
mod reproduction;
mod sbom;
mod source_commit;
mod static_build;
#[cfg(test)]
mod test_manifests;
mod validation;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use sha2::{Digest as _, Sha256};

use crate::interrupt::Interrupt;
use crate::{print, repository, shell};
use archive_tree::{ArchiveRoot, ArchiveTree, gzip};
use debian_archive::PackagedPrograms;
use oci_image::ImageLayer;
use operator_manifests::OperatorManifests;
use source_commit::{PackageVersion, SourceCommit};
use static_build::StaticPrograms;
pub(crate) use validation::check_test_build;

/// Where the manifests of the operator are.
pub(crate) const OPERATOR_MANIFESTS: &str = "deploy/kubernetes/operator";
/// Maximum compressed size of the image without a ramdisk, in bytes.
const LARGEST_IMAGE: usize = 30_000_000;

/// Options of `cargo xtask package`.
#[derive(Args)]
pub(crate) struct PackageOptions {
    /// Output folder; by default `packages` in the target folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Repository of the image in the manifests and the chart, such as `registry.example/ferrite`.
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// Also make an image with the ramdisk in this folder, an output of `ferrite ramdisk build`, and
    /// the boot loaders of this host.
    #[arg(long, value_name = "DIR")]
    ramdisk: Option<PathBuf>,
    /// Folder with the kustomizations of the operator; by default `deploy/kubernetes/operator`.
    #[arg(long, value_name = "DIR", conflicts_with = "verify_reproducible")]
    manifests: Option<PathBuf>,
    /// Validate the packages with skopeo, umoci, runc, dpkg, lintian, systemd-analyze and helm.
    /// Installs them.
    #[arg(long)]
    check: bool,
    /// Build the packages a second time, from a clone of the commit in another folder, and fail if a
    /// checksum differs. Takes as long as the first build from nothing.
    #[arg(long)]
    verify_reproducible: bool,
    /// Only validate packages of the programs that `cargo xtask test` has built, and delete them.
    #[arg(
        long,
        conflicts_with_all = ["out", "image", "ramdisk", "check", "verify_reproducible"]
    )]
    test_build: bool,
}

/// What the packages are made from.
struct PackageInputs<'a> {
    root: &'a Path,
    programs: StaticPrograms,
    commit: SourceCommit,
    version: PackageVersion,
    image: Option<String>,
    ramdisk: Option<PathBuf>,
    manifests: PathBuf,
    compression: PackageCompression,
}

/// How much time compression takes.
#[derive(Clone, Copy)]
struct PackageCompression {
    gzip: u32,
    xz: u32,
}

/// For packages that are shipped.
const SMALL: PackageCompression = PackageCompression { gzip: 9, xz: 6 };

/// The files that were written.
struct PackageSet {
    folder: PathBuf,
    version: PackageVersion,
    image: PathBuf,
    image_with_ramdisk: Option<PathBuf>,
    /// Compressed size of the layers of `image`.
    image_size: usize,
    debian: PathBuf,
    operator: OperatorPackages,
}

/// The images that were written.
struct ImageFiles {
    image: PathBuf,
    /// Compressed size of its layers.
    size: usize,
    with_ramdisk: Option<PathBuf>,
}

/// The packages of the operator.
struct OperatorPackages {
    /// One file with all objects.
    installation: PathBuf,
    /// The kustomizations, as an archive.
    kustomize: PathBuf,
    chart: PathBuf,
    namespace: String,
}

/// Builds the programs and writes all packages.
pub(crate) fn run(options: &PackageOptions) -> Result<()> {
    let root = repository::root();
    let interrupt = Interrupt::watch()?;
    if options.test_build {
        return check_test_build(&root, &options.manifests(&root), &interrupt);
    }
    let commit = SourceCommit::read(&root, env!("CARGO_PKG_VERSION"))?;
    if commit.is_modified && options.verify_reproducible {
        bail!("files differ from the commit; commit or remove the changes first");
    }
    if commit.is_modified {
        print::line("files differ from the commit: these packages cannot be reproduced");
    }
    let version = commit.version(env!("CARGO_PKG_VERSION"));
    let programs = static_build::build(&root, &commit, &interrupt)?;
    let folder = match &options.out {
        Some(folder) => folder.clone(),
        None => repository::target(&root).join("packages"),
    };
    let inputs = PackageInputs {
        root: &root,
        programs,
        commit,
        version,
        image: options.image.clone(),
        ramdisk: options.ramdisk.clone(),
        manifests: options.manifests(&root),
        compression: SMALL,
    };
    let packages = inputs.write(&std::path::absolute(folder)?)?;
    if packages.image_size > LARGEST_IMAGE {
        bail!("the image has {} bytes compressed, more than {LARGEST_IMAGE}", packages.image_size);
    }
    if options.check {
        validation::check(&root, &packages, &interrupt)?;
    }
    packages.print()?;
    if options.verify_reproducible {
        let commit = &inputs.commit;
        reproduction::verify(&root, options, commit, &packages.folder, &interrupt)?;
    }
    Ok(())
}

impl PackageOptions {
    fn manifests(&self, root: &Path) -> PathBuf {
        self.manifests.clone().unwrap_or_else(|| root.join(OPERATOR_MANIFESTS))
    }
}

impl PackageInputs<'_> {
    /// Writes all packages and their checksums.
    fn write(&self, folder: &Path) -> Result<PackageSet> {
        let Self { root, commit, version, .. } = self;
        let name = format!("ferrite-{}", version.semantic);
        let mut output = OutputFolder::create(folder)?;
        let programs = self.read_programs()?;
        output.write(&format!("{name}-linux-amd64"), &programs.ferrite)?;
        output.write(&format!("{name}.cdx.json"), &programs.sbom)?;

        let files = debian_archive::installed_files(root, &programs, commit, version)?;
        let debian = debian_archive::write(root, &files, commit, version, self.compression.xz)?;
        let debian = output.write(&format!("ferrite_{}_amd64.deb", version.debian), &debian)?;

        let manifests = OperatorManifests::read(&self.manifests)?;
        let repository = self.image.as_deref().unwrap_or(manifests.repository());
        let images = self.write_images(&programs.ferrite, repository, &mut output)?;
        let operator = self.write_operator(&manifests, repository, &mut output)?;
        output.write_checksums()?;
        Ok(PackageSet {
            folder: output.folder,
            version: version.clone(),
            image: images.image,
            image_with_ramdisk: images.with_ramdisk,
            image_size: images.size,
            debian,
            operator,
        })
    }

    /// Reads the programs and what they print about themselves.
    fn read_programs(&self) -> Result<PackagedPrograms> {
        let StaticPrograms { ferrite, agent } = &self.programs;
        let pages = tempfile::tempdir()?;
        shell::output_of(Command::new(ferrite).args(["man", "--dir"]).arg(pages.path()))?;
        let mut manual_pages = Vec::new();
        for entry in fs::read_dir(pages.path())? {
            let entry = entry?;
            manual_pages
                .push((entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path())?));
        }
        manual_pages.sort();
        let completions = shell::output_of(Command::new(ferrite).args(["completions", "bash"]))?;
        let sbom = sbom::document(self.root, &self.commit, &self.version)?;
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        Ok(PackagedPrograms {
            ferrite: read(ferrite)?,
            agent: read(agent)?,
            manual_pages,
            bash_completions: completions.into_bytes(),
            sbom: format!("{sbom:#}\n").into_bytes(),
        })
    }

    /// Writes the image, and the one with a ramdisk if there is one.
    fn write_images(
        &self,
        ferrite: &[u8],
        repository: &str,
        output: &mut OutputFolder,
    ) -> Result<ImageFiles> {
        let Self { commit, version, compression, .. } = self;
        let mut tree = ArchiveTree::default();
        tree.program("usr/bin/ferrite", ferrite);
        oci_image::add_base_files(&mut tree, oci_image::certificates());
        let layer = ImageLayer::new(&tree, commit.time, compression.gzip, "ferrite")?;
        let name = format!("ferrite-{}", version.semantic);
        let layout = oci_image::layout(&[&layer], commit, version, repository)?;
        let archive = layout.tar(commit.time, ArchiveRoot::Plain)?;
        let image = output.write(&format!("{name}-image.tar"), &archive)?;
        let mut with_ramdisk = None;
        if let Some(folder) = &self.ramdisk {
            let files = ramdisk_layer::files(folder)?;
            let ramdisk =
                ImageLayer::new(&files, commit.time, compression.gzip, "ramdisk and boot loaders")?;
            let layout = oci_image::layout(&[&layer, &ramdisk], commit, version, repository)?;
            let archive = layout.tar(commit.time, ArchiveRoot::Plain)?;
            let name = format!("{name}-image-with-ramdisk.tar");
            with_ramdisk = Some(output.write(&name, &archive)?);
        }
        Ok(ImageFiles { image, size: layer.size(), with_ramdisk })
    }

    fn write_operator(
        &self,
        manifests: &OperatorManifests,
        repository: &str,
        output: &mut OutputFolder,
    ) -> Result<OperatorPackages> {
        let Self { root, commit, version, compression, .. } = self;
        let name = format!("{}-{}", helm_chart::CHART, version.semantic);
        let installation =
            manifests.installation_file(&format!("{repository}:{}", version.semantic));
        let archive = |tree: &ArchiveTree| -> Result<Vec<u8>> {
            Ok(gzip(&tree.tar(commit.time, ArchiveRoot::Plain)?, compression.gzip)?)
        };
        let kustomize = archive(&manifests.kustomize_folders(repository, version)?)?;
        let chart = archive(&helm_chart::chart(root, manifests, repository, version)?)?;
        Ok(OperatorPackages {
            installation: output.write(&format!("{name}.yaml"), installation.as_bytes())?,
            kustomize: output.write(&format!("{name}-kustomize.tar.gz"), &kustomize)?,
            chart: output.write(&format!("{name}.tgz"), &chart)?,
            namespace: manifests.namespace.clone(),
        })
    }
}

impl PackageSet {
    fn print(&self) -> Result<()> {
        print::line(&format!("packages in {}:", self.folder.display()));
        let checksums = fs::read_to_string(self.folder.join(CHECKSUMS))?;
        for name in checksums.lines().filter_map(|line| line.split("  ").nth(1)) {
            let size = fs::metadata(self.folder.join(name))?.len();
            print::line(&format!("{:>12.1} MB  {name}", size as f64 / 1e6));
        }
        Ok(())
    }
}

const CHECKSUMS: &str = "SHA256SUMS";

/// Writes files and collects their checksums.
struct OutputFolder {
    folder: PathBuf,
    checksums: Vec<(String, String)>,
}

impl OutputFolder {
    fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), checksums: Vec::new() })
    }

    fn write(&mut self, name: &str, content: &[u8]) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        self.checksums.push((name.to_owned(), hex::encode(Sha256::digest(content))));
        Ok(path)
    }

    /// Writes the file for `sha256sum --check`.
    fn write_checksums(&mut self) -> Result<()> {
        self.checksums.sort();
        let lines = self.checksums.iter().map(|(name, checksum)| format!("{checksum}  {name}\n"));
        fs::write(self.folder.join(CHECKSUMS), lines.collect::<String>())?;
        Ok(())
    }
}
