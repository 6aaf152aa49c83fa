// SPDX-License-Identifier: Apache-2.0
//! `ferrite completions` and `ferrite man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::screen::Screen;

/// Options of `ferrite completions`.
#[derive(Args, Debug)]
pub struct CompletionsArguments {
    /// The shell.
    shell: Shell,
}

/// Options of `ferrite man`.
#[derive(Args, Debug)]
pub struct ManArguments {
    /// The folder for the pages, one for each command.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn completions(mut program: clap::Command, arguments: &CompletionsArguments) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "ferrite", &mut script);
    Screen::of_this_process().print(&String::from_utf8_lossy(&script));
}

pub(crate) fn man(program: clap::Command, arguments: &ManArguments) -> Result<(), Failure> {
    let unwritable =
        |source: std::io::Error| Failure::Unwritable { path: arguments.dir.clone(), source };
    std::fs::create_dir_all(&arguments.dir).map_err(unwritable)?;
    clap_mangen::generate_to(program.name("ferrite"), &arguments.dir).map_err(unwritable)
}
