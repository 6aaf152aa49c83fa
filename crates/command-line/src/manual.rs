// SPDX-License-Identifier: Apache-2.0
//! `ferrite completions` and `ferrite man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

use crate::cli_error::CliError;
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
    /// Output folder; one page per command.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Appended to the bash script: completion of machine names.
const BASH_NODE_NAMES: &str = include_str!("completions/node_names.bash");
/// Appended to the zsh script: completion of machine names.
const ZSH_NODE_NAMES: &str = include_str!("completions/node_names.zsh");

pub(crate) fn completions(program: clap::Command, arguments: &CompletionsArguments) {
    Screen::from_process().print(&completion_script(program, arguments.shell));
}

/// The completion script of a shell. For bash and zsh it also completes names of machines.
fn completion_script(mut program: clap::Command, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "ferrite", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => format!("{script}{BASH_NODE_NAMES}"),
        Shell::Zsh => with_zsh_node_names(&script),
        Shell::Elvish | Shell::Fish | Shell::PowerShell | _ => script,
    }
}

/// Replaces the default completion of node arguments, which are named `node` or `nodes`.
fn with_zsh_node_names(script: &str) -> String {
    let is_node_argument = |line: &str| {
        let line = line.trim_start();
        ["'*::nodes -- ", "':node -- ", "'*--candidate=[", "'--node=["]
            .iter()
            .any(|start| line.starts_with(start))
    };
    let mut text = String::with_capacity(script.len() + ZSH_NODE_NAMES.len());
    for line in script.split_inclusive('\n') {
        if is_node_argument(line) {
            text.push_str(&line.replace(":_default'", ":_ferrite_node_names'"));
        } else {
            text.push_str(line);
        }
    }
    // The function must be defined before the script registers or runs `_ferrite`.
    match text.split_once('\n') {
        Some((compdef, rest)) => format!("{compdef}\n{ZSH_NODE_NAMES}{rest}"),
        None => text,
    }
}

pub(crate) fn man(program: clap::Command, arguments: &ManArguments) -> Result<(), CliError> {
    let unwritable =
        |source: std::io::Error| CliError::Unwritable { path: arguments.dir.clone(), source };
    std::fs::create_dir_all(&arguments.dir).map_err(unwritable)?;
    clap_mangen::generate_to(program.name("ferrite"), &arguments.dir).map_err(unwritable)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;
    use crate::ClientCommand;

    #[derive(Parser)]
    struct CompletedProgram {
        #[command(subcommand)]
        _command: ClientCommand,
    }

    #[test]
    fn bash_and_zsh_complete_node_names() {
        let script = |shell| completion_script(CompletedProgram::command(), shell);
        assert!(script(Shell::Bash).contains("complete -F _ferrite_with_node_names"));
        let zsh = script(Shell::Zsh);
        assert!(zsh.starts_with("#compdef ferrite\n"), "{}", &zsh[..100]);
        let arguments = zsh.lines().filter(|line| line.contains(":_ferrite_node_names'"));
        let arguments: Vec<&str> = arguments.map(str::trim_start).collect();
        for start in ["'*::nodes -- ", "':node -- ", "'--node=["] {
            assert!(arguments.iter().any(|line| line.starts_with(start)), "{start}: {arguments:?}");
        }
        assert!(!script(Shell::Fish).contains("node_names"));
    }
}
