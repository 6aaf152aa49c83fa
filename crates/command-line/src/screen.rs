// SPDX-License-Identifier: Apache-2.0
//! Terminal output: results to standard output, everything else to standard error.

use std::io::{IsTerminal as _, Write};

use crate::cli_error::CliError;

/// The standard streams of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Whether standard output is a terminal.
    pub(crate) is_stdout_terminal: bool,
    /// Whether standard error is a terminal.
    pub(crate) is_stderr_terminal: bool,
    /// Whether the user can be prompted.
    pub(crate) is_interactive: bool,
    has_colours: bool,
}

/// The meaning of a text, shown as its colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum TextStyle {
    #[default]
    Plain,
    Success,
    Error,
    Progress,
    Dim,
}

impl Screen {
    pub(crate) fn from_process() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let notes_are_seen = std::io::stderr().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            is_stdout_terminal: is_terminal,
            is_stderr_terminal: notes_are_seen,
            is_interactive: std::io::stdin().is_terminal() && notes_are_seen,
            has_colours: is_terminal && !no_colour,
        }
    }

    /// A screen that is not a terminal.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self {
            is_stdout_terminal: false,
            is_stderr_terminal: false,
            is_interactive: false,
            has_colours: false,
        }
    }

    /// Prints a part of the result. Exits if the reader closed standard output.
    pub(crate) fn print(self, text: &str) {
        write_to(std::io::stdout().lock(), text);
    }

    /// Prints a line that is not part of the result.
    pub(crate) fn note(self, text: &str) {
        write_to(std::io::stderr().lock(), text);
    }

    /// Writes to standard error without adding a newline, for redrawn lines.
    pub(crate) fn redraw(self, text: &str) {
        let mut stream = std::io::stderr().lock();
        // Progress output is optional.
        let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
    }

    /// Adds the colour of a style, if colours are enabled.
    pub(crate) fn paint(self, style: TextStyle, text: &str) -> String {
        let code = match style {
            TextStyle::Plain => return text.to_owned(),
            TextStyle::Success => "32",
            TextStyle::Error => "31",
            TextStyle::Progress => "36",
            TextStyle::Dim => "2",
        };
        if self.has_colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prompts for yes or no. Ctrl-C means no.
    pub(crate) async fn confirm(self, question: &str) -> Result<bool, CliError> {
        write_to(std::io::stderr().lock(), &format!("{question} [y/N] "));
        let (sender, receiver) = tokio::sync::oneshot::channel();
        // A separate thread, because reading a line cannot be cancelled.
        std::thread::spawn(move || {
            let mut input = String::new();
            let read = std::io::stdin().read_line(&mut input).map(|_| input);
            // The receiver is gone after Ctrl-C.
            let _ = sender.send(read);
        });
        let read = tokio::select! {
            read = receiver => read,
            _ = tokio::signal::ctrl_c() => {
                write_to(std::io::stderr().lock(), "\n");
                return Ok(false);
            }
        };
        let input = read
            .unwrap_or_else(|_| Ok(String::new()))
            .map_err(|source| CliError::Unreadable { path: "standard input".into(), source })?;
        if !input.ends_with('\n') {
            write_to(std::io::stderr().lock(), "\n");
        }
        Ok(matches!(input.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

/// Replaces control characters, so that text of a server, BMC or agent cannot move the cursor.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The same for a text of several lines.
pub(crate) fn without_control_characters(text: &str) -> String {
    text.lines().map(one_line).collect::<Vec<_>>().join("\n")
}

fn write_to(mut stream: impl Write, text: &str) {
    let end = if text.is_empty() || text.ends_with(['\n', ' ']) { "" } else { "\n" };
    match write!(stream, "{text}{end}").and_then(|()| stream.flush()) {
        Ok(()) => {}
        // The reader closed the pipe.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            // If this fails as well, only the exit code reports the error.
            let _ = writeln!(std::io::stderr(), "cannot write the output: {error}");
            std::process::exit(1)
        }
    }
}
