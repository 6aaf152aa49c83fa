// SPDX-License-Identifier: Apache-2.0
//! Reads a password from a file, from standard input or from the terminal.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use ironic_client::HiddenText;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::cli_error::CliError;
use crate::screen::Screen;

/// Longest accepted file.
const MAX_FILE_BYTES: u64 = 4096;

/// What a password is read for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PasswordPrompt<'p> {
    /// The new password of a user, which has to be typed twice.
    New(&'p str),
    /// The current password of a user.
    Current(&'p str),
}

/// Reads the first line of `file` (`-` for standard input); without a file, prompts for it.
pub(crate) fn read_password(
    file: Option<&Path>,
    prompt: PasswordPrompt<'_>,
    screen: Screen,
) -> Result<HiddenText, CliError> {
    if let Some(path) = file {
        let unreadable = |source| CliError::Unreadable { path: path.to_owned(), source };
        let mut text = String::new();
        if path == Path::new("-") {
            std::io::stdin().lock().take(MAX_FILE_BYTES).read_to_string(&mut text)
        } else {
            std::fs::File::open(path)
                .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
        }
        .map_err(unreadable)?;
        return Ok(HiddenText::new(text.lines().next().unwrap_or_default()));
    }
    if !screen.is_interactive {
        let message = "there is no terminal to read the password from; give --new-password-file";
        return Err(CliError::Usage(message.to_owned()));
    }
    match prompt {
        PasswordPrompt::Current(user) => {
            Ok(HiddenText::new(prompt_hidden(&format!("current password of {user}: "), screen)?))
        }
        PasswordPrompt::New(user) => {
            let first = prompt_hidden(&format!("new password of {user}: "), screen)?;
            if first != prompt_hidden("repeat it: ", screen)? {
                return Err(CliError::Usage("the passwords differ".to_owned()));
            }
            Ok(HiddenText::new(first))
        }
    }
}

/// Restores the terminal.
struct EchoOff(Termios);

impl Drop for EchoOff {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Reads a line without showing what is typed.
fn prompt_hidden(prompt: &str, screen: Screen) -> Result<String, CliError> {
    let failed =
        |error: std::io::Error| CliError::Failed(format!("cannot read the password: {error}"));
    let before = tcgetattr(std::io::stdin()).map_err(|error| failed(error.into()))?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    screen.redraw(prompt);
    let echo_off = EchoOff(before);
    tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden)
        .map_err(|error| failed(error.into()))?;
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    drop(echo_off);
    screen.redraw("\n");
    read.map_err(failed)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
