// SPDX-License-Identifier: Apache-2.0
//! Builds the static programs so that the same commit and toolchain give the same bytes, in whatever
//! folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::source_commit::SourceCommit;
use crate::interrupt::Interrupt;
use crate::{repository, shell};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Keeps glibc from loading modules; its comment has the reason.
const NAME_SERVICES: &str = "deploy/static/name_services.c";
const NAME_SERVICES_OBJECT: &str = "ferrite_name_services.o";

/// The programs of a build.
pub(crate) struct StaticPrograms {
    pub(crate) ferrite: PathBuf,
    pub(crate) agent: PathBuf,
}

/// Compiles the server and the agent in their own target folder, `target/package`.
pub(super) fn build(
    root: &Path,
    commit: &SourceCommit,
    interrupt: &Interrupt,
) -> Result<StaticPrograms> {
    let target = std::path::absolute(repository::target(root))?.join("package");
    let paths = ReplacedPaths::new(root, &target)?;
    let objects = target.join("objects");
    fs::create_dir_all(&objects)?;
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-c", NAME_SERVICES, "-o"]);
    shell::output_of(compiler.arg(objects.join(NAME_SERVICES_OBJECT)).current_dir(root))?;
    for (package, program, profile) in
        [("ferrite", "ferrite", "release"), ("agent", "ferrite-agent", "agent")]
    {
        let mut cargo = shell::cargo(root);
        cargo.args(["build", "--locked", "--package", package, "--bin", program]);
        cargo.args(["--profile", profile, "--target", TARGET, "--target-dir"]).arg(&target);
        // Not in the profile: developers read the symbols of a release build in profilers.
        cargo.args(["--config", "profile.release.strip=\"symbols\""]);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", paths.rust_flags());
        cargo.env(format!("CFLAGS_{}", TARGET.replace('-', "_")), paths.c_flags());
        // The linker searches the object here. A path in the flags would change the names of symbols.
        cargo.env("LIBRARY_PATH", &objects);
        cargo.env("SOURCE_DATE_EPOCH", commit.time.to_string());
        cargo.env("CARGO_INCREMENTAL", "0");
        for variable in ["RUSTFLAGS", "CFLAGS", "RUSTC_WRAPPER"] {
            cargo.env_remove(variable);
        }
        shell::run(&mut cargo, interrupt)?;
    }
    let folder = target.join(TARGET);
    let programs = StaticPrograms {
        ferrite: folder.join("release/ferrite"),
        agent: folder.join("agent/ferrite-agent"),
    };
    for program in [&programs.ferrite, &programs.agent] {
        let content = fs::read(program)?;
        if !is_static(&content) {
            bail!("{} needs shared libraries", program.display());
        }
        paths.check(program, &content)?;
    }
    Ok(programs)
}

/// Folders of this machine, and what stands for them in the programs.
struct ReplacedPaths(Vec<(PathBuf, String)>);

impl ReplacedPaths {
    fn new(root: &Path, target: &Path) -> Result<Self> {
        let home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
            .context("neither CARGO_HOME nor HOME is set")?;
        let version = rustc(root, &["--version", "--verbose"])?;
        let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
        let sysroot = PathBuf::from(rustc(root, &["--print", "sysroot"])?.trim());
        // The last match counts, so the target folder, which is usually below the root, is last.
        Ok(Self(vec![
            (std::path::absolute(root)?, "/ferrite".to_owned()),
            (home, "/cargo".to_owned()),
            (
                // Where rustc finds the source of the standard library if it is installed.
                sysroot.join("lib/rustlib/src/rust"),
                format!("/rustc/{}", commit.unwrap_or("unknown")),
            ),
            (sysroot, "/rust".to_owned()),
            (target.to_owned(), "/ferrite/target".to_owned()),
        ]))
    }

    /// Flags separated by the unit separator, because paths may contain spaces.
    fn rust_flags(&self) -> String {
        let mut flags = vec![
            "-Ctarget-feature=+crt-static".to_owned(),
            "-Clink-arg=-Wl,-Bstatic".to_owned(),
            format!("-Clink-arg=-l:{NAME_SERVICES_OBJECT}"),
            // After the object that needs it.
            "-Clink-arg=-lc".to_owned(),
        ];
        flags.extend(
            self.0.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())),
        );
        flags.join("\u{1f}")
    }

    fn c_flags(&self) -> String {
        let flags =
            self.0.iter().map(|(from, to)| format!("-ffile-prefix-map={}={to}", from.display()));
        flags.collect::<Vec<_>>().join(" ")
    }

    /// Fails if a program contains the name of a folder of this machine.
    fn check(&self, program: &Path, content: &[u8]) -> Result<()> {
        for (path, replacement) in &self.0 {
            let name = path.to_string_lossy();
            // A replacement may be the path itself, in a container.
            let is_contained = content.windows(name.len()).any(|part| part == name.as_bytes());
            if name != *replacement && name.len() > 1 && is_contained {
                bail!("{} contains the path {name}, so it is not reproducible", program.display());
            }
        }
        Ok(())
    }
}

fn rustc(root: &Path, arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    shell::output_of(Command::new(program).args(arguments).current_dir(root))
}

/// Returns whether an ELF program needs no interpreter, the loader of shared libraries.
pub(super) fn is_static(program: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, length: usize| -> Option<u64> {
        let bytes = program.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    // 64 bits, little endian.
    if program.get(..6) != Some(b"\x7fELF\x02\x01") {
        return false;
    }
    let (Some(table), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2))
    else {
        return false;
    };
    (0..count).all(|index| {
        let at = usize::try_from(table + index * size).ok().and_then(|at| number(at, 4));
        at.is_some_and(|kind| kind != u64::from(PT_INTERP))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_an_interpreter_is_not_static() {
        let mut program = vec![0; 64 + 2 * 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        program[32] = 64;
        program[54] = 56;
        program[56] = 2;
        program[64] = 1;
        program[64 + 56] = 2;
        assert!(is_static(&program));
        program[64 + 56] = 3;
        assert!(!is_static(&program));
        assert!(!is_static(b"#!/bin/sh"));
        assert!(!is_static(&program[..80]));
        // The test program itself is linked dynamically.
        assert!(!is_static(&fs::read(std::env::current_exe().unwrap()).unwrap()));
    }

    #[test]
    fn finds_local_paths_in_programs() {
        let paths = ReplacedPaths(vec![(PathBuf::from("/somewhere/ferrite"), "/ferrite".into())]);
        paths.check(Path::new("p"), b"..../ferrite/src").unwrap();
        let error = paths.check(Path::new("p"), b"../somewhere/ferrite/src").unwrap_err();
        assert!(error.to_string().contains("not reproducible"), "{error}");
        let flags = paths.rust_flags();
        let mut flags = flags.split('\u{1f}').rev();
        assert_eq!(flags.next(), Some("--remap-path-prefix=/somewhere/ferrite=/ferrite"));
        assert!(flags.all(|flag| !flag.contains('/')), "only replacements may contain paths");
        assert_eq!(paths.c_flags(), "-ffile-prefix-map=/somewhere/ferrite=/ferrite");
    }
}
