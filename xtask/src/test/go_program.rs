// SPDX-License-Identifier: Apache-2.0
//! Programs of the tests that are built from Go modules, and kept below `target/`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::go_toolchain;
use crate::interrupt::Interrupt;
use crate::{install, repository, shell};

/// Other users of the processors come first.
const NICENESS: &str = "10";
/// Lines of the compiler that an error contains.
const SHOWN_LINES: usize = 20;

/// A program and where its source is.
pub(super) struct GoProgram {
    /// File name of the program.
    pub(super) name: &'static str,
    /// The folder with the exact versions of its modules.
    pub(super) source: &'static str,
    /// The files of that folder. The first is `go.mod`.
    pub(super) source_files: &'static [&'static str],
    /// The package to build.
    pub(super) package: &'static str,
    /// Options of the linker, from the text of `go.mod`.
    pub(super) link_flags: fn(&str) -> Result<String>,
}

impl GoProgram {
    /// Builds the program unless it is up to date, and returns its path.
    pub(super) fn ensure(&self, root: &Path, interrupt: &Interrupt) -> Result<PathBuf> {
        let source = std::path::absolute(root.join(self.source))?;
        let mut inputs = Vec::new();
        for name in self.source_files {
            let text = fs::read_to_string(source.join(name));
            inputs.push(text.with_context(|| format!("cannot read {}/{name}", self.source))?);
        }
        let folder = std::path::absolute(repository::target(root).join("kube"))?;
        fs::create_dir_all(&folder)?;
        let program = folder.join(self.name);
        let wanted = inputs.concat();
        // Written at the end, so that an interrupted build is repeated.
        let stamp = folder.join(format!("{}.sources", self.name));
        if program.exists() && fs::read_to_string(&stamp).is_ok_and(|built| built == wanted) {
            return Ok(program);
        }
        self.build(root, &source, &inputs[0], &program, interrupt)
            .with_context(|| format!("cannot build {}", self.name))?;
        fs::write(&stamp, wanted)?;
        Ok(program)
    }

    fn build(
        &self,
        root: &Path,
        source: &Path,
        module_file: &str,
        program: &Path,
        interrupt: &Interrupt,
    ) -> Result<()> {
        install::go(interrupt)?;
        let wanted = directive(module_file, "go").context("go.mod has no version of Go")?;
        let go = go_toolchain::ensure(root, wanted)?;
        let environment = go_toolchain::command(root, &go)?;
        let log = program.with_extension("log");
        let mut build = Command::new("nice");
        build.args(["-n", NICENESS]).arg(&go).arg("build").arg("-trimpath");
        build.args(["-gcflags", "all=-dwarf=false"]);
        build.arg("-ldflags").arg((self.link_flags)(module_file)?);
        build.arg("-o").arg(program).arg(self.package).current_dir(source);
        for (name, value) in environment.get_envs() {
            build.env(name, value.unwrap_or_default());
        }
        build.env("CGO_ENABLED", "0").env("GOFLAGS", "-buildvcs=false -mod=readonly -modcacherw");
        // Less garbage collection: memory is cheaper here than time.
        build.env("GOGC", "400").stdin(Stdio::null());
        // It prints each module that it downloads.
        build.stderr(File::create(&log)?);
        shell::run(&mut build, interrupt).map_err(|error| {
            let printed = fs::read_to_string(&log).unwrap_or_default();
            let mut last: Vec<&str> = printed.lines().rev().take(SHOWN_LINES).collect();
            last.reverse();
            error.context(last.join("\n"))
        })
    }
}

/// The second word of the line of `go.mod` that starts with `name`.
pub(super) fn directive<'a>(module_file: &'a str, name: &str) -> Option<&'a str> {
    module_file.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some(name)).then(|| words.next()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_module_file() {
        let text = "module x\n\ngo 1.26.0\n\nrequire (\n\tk8s.io/kubernetes v1.36.4\n)\n";
        assert_eq!(directive(text, "go"), Some("1.26.0"));
        assert_eq!(directive(text, "k8s.io/kubernetes"), Some("v1.36.4"));
        assert_eq!(directive(text, "k8s.io/kube"), None);
    }
}
