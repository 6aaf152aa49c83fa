// SPDX-License-Identifier: Apache-2.0
//! Where the command line speaks: results to standard output, everything else to standard error.

use std::io::{IsTerminal as _, Write};

use crate::failure::Failure;

/// The user's terminal, or what stands in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Screen {
    /// Whether results go to a terminal.
    pub(crate) is_terminal: bool,
    /// Whether notes do.
    pub(crate) notes_are_seen: bool,
    /// Whether somebody can be asked.
    pub(crate) can_ask: bool,
    is_colourful: bool,
}

/// How a text is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Bad,
    Busy,
    Faint,
}

impl Screen {
    pub(crate) fn of_this_process() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let notes_are_seen = std::io::stderr().is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self {
            is_terminal,
            notes_are_seen,
            can_ask: std::io::stdin().is_terminal() && notes_are_seen,
            is_colourful: is_terminal && !no_colour,
        }
    }

    /// One that is no terminal.
    #[cfg(test)]
    pub(crate) const fn plain() -> Self {
        Self { is_terminal: false, notes_are_seen: false, can_ask: false, is_colourful: false }
    }

    /// Part of the result. Whoever closed our output has seen enough.
    pub(crate) fn print(self, text: &str) {
        write_to(std::io::stdout().lock(), text);
    }

    /// Something besides the result.
    pub(crate) fn note(self, text: &str) {
        write_to(std::io::stderr().lock(), text);
    }

    /// Something besides the result that goes over what is there, to the letter.
    pub(crate) fn redraw(self, text: &str) {
        let mut stream = std::io::stderr().lock();
        // Who does not see it misses nothing.
        let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
    }

    /// A text in the colour of its tone, where there are colours.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        let code = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Busy => "36",
            Tone::Faint => "2",
        };
        if self.is_colourful { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Asks for a yes. Ctrl-C is a no.
    pub(crate) async fn asks(self, question: &str) -> Result<bool, Failure> {
        write_to(std::io::stderr().lock(), &format!("{question} [y/N] "));
        let (tell, told) = tokio::sync::oneshot::channel();
        // Of its own: nothing ends the reading of a line, and nobody is to wait for it.
        std::thread::spawn(move || {
            let mut answer = String::new();
            let read = std::io::stdin().read_line(&mut answer).map(|_| answer);
            // Whoever asked may be gone.
            let _ = tell.send(read);
        });
        let read = tokio::select! {
            read = told => read,
            _ = tokio::signal::ctrl_c() => {
                write_to(std::io::stderr().lock(), "\n");
                return Ok(false);
            }
        };
        let answer = read
            .unwrap_or_else(|_| Ok(String::new()))
            .map_err(|source| Failure::Unreadable { path: "standard input".into(), source })?;
        if !answer.ends_with('\n') {
            write_to(std::io::stderr().lock(), "\n");
        }
        Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
    }
}

/// Whatever a server, a BMC or an agent says stays on its line, and cannot move the cursor.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// The same for a text of several lines.
pub(crate) fn harmless(text: &str) -> String {
    text.lines().map(one_line).collect::<Vec<_>>().join("\n")
}

fn write_to(mut stream: impl Write, text: &str) {
    let end = if text.is_empty() || text.ends_with(['\n', ' ']) { "" } else { "\n" };
    match write!(stream, "{text}{end}").and_then(|()| stream.flush()) {
        Ok(()) => {}
        // Nothing more can be said, and nobody listens.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            // If that cannot be said either, the exit code does.
            let _ = writeln!(std::io::stderr(), "the output cannot be written: {error}");
            std::process::exit(1)
        }
    }
}
