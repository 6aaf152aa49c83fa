// SPDX-License-Identifier: Apache-2.0
//! `ferrite node console NAME attach`: a machine's serial console in this terminal.

use ironic_client::{ApiError, Kind, Method, segment};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use tokio::sync::mpsc;

use crate::desk::Desk;
use crate::failure::Failure;
use crate::selection::Chosen;

/// Ctrl-], as everywhere.
const LEAVE: u8 = 0x1d;
/// How much is typed with one request.
const MOST_TYPED: usize = 1024;

/// What somebody did at the keyboard.
#[derive(Debug, PartialEq, Eq)]
enum Typed {
    Text(String),
    Leave,
}

/// Shows what the console says and types what is typed, until Ctrl-], or until it is switched off.
pub(super) async fn attach(desk: &Desk, chosen: &Chosen) -> Result<(), Failure> {
    let path = format!("/v1/ferrite/nodes/{}/console", segment(&chosen.uuid));
    let mut events = match desk.api.stream(&path).await {
        Ok(events) => events,
        Err(error) => return Err(why_not(desk, chosen, error).await),
    };
    desk.screen.note(&format!("the console of {}; Ctrl-] leaves", chosen.label));
    let raw = Raw::begin();
    let (typed, mut keys) = mpsc::channel(16);
    // A thread of its own: reading from a terminal cannot be given up, and the program need not wait.
    std::thread::spawn(move || read_keys(&mut std::io::stdin().lock(), &typed));
    let mut is_typing = true;
    let why = loop {
        tokio::select! {
            event = events.next() => match event? {
                Some(event) => match event.data.as_str() {
                    Some(text) => desk.screen.print(text),
                    None => break "the console was switched off",
                },
                None => break "the server ended the connection",
            },
            typed = keys.recv(), if is_typing => match typed {
                Some(Typed::Text(text)) => {
                    let body = json!({ "text": text });
                    if let Err(error) = desk.api.send(Method::POST, &path, Some(&body)).await {
                        desk.screen.note(&format!("\r\n{error}\r"));
                    }
                }
                Some(Typed::Leave) => break "left",
                None => is_typing = false,
            },
        }
    };
    drop(raw);
    desk.screen.note(&format!("\n{why}"));
    Ok(())
}

/// Why nobody can sit down at a console, and what to do about it.
async fn why_not(desk: &Desk, chosen: &Chosen, error: ApiError) -> Failure {
    let label = &chosen.label;
    let console = match error.kind() {
        Kind::Refused | Kind::NotFound => {
            desk.api.get(&format!("{}/states/console", chosen.path())).await.unwrap_or_default()
        }
        Kind::NotAuthorised | Kind::Unreachable | Kind::Other => return error.into(),
    };
    if console["console_enabled"] == false {
        return Failure::Refused(format!(
            "the console of {label} is off; `ferrite node console {label} on` switches it on"
        ));
    }
    if error.kind() == Kind::NotFound {
        return Failure::Refused(format!(
            "this server does not pass consoles on: it is an Ironic and no Ferrite; `ferrite node console \
             {label}` tells where the console is"
        ));
    }
    error.into()
}

/// Reads keys until there are no more, or until somebody leaves.
fn read_keys(from: &mut impl std::io::Read, typed: &mpsc::Sender<Typed>) {
    let mut buffer = [0; MOST_TYPED];
    let mut bytes = Vec::new();
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        let read = &buffer[..count];
        let leave = read.iter().position(|byte| *byte == LEAVE);
        bytes.extend_from_slice(&read[..leave.unwrap_or(count)]);
        let text = take_text(&mut bytes);
        if !text.is_empty() && typed.blocking_send(Typed::Text(text)).is_err() {
            return;
        }
        if leave.is_some() {
            let _ = typed.blocking_send(Typed::Leave);
        }
        if leave.is_some() || count == 0 {
            return;
        }
    }
}

/// The text of these bytes; the beginning of a letter that is not whole yet stays.
fn take_text(bytes: &mut Vec<u8>) -> String {
    let whole = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    let taken: Vec<u8> = bytes.drain(..whole).collect();
    String::from_utf8_lossy(&taken).into_owned()
}

/// The terminal as the machine needs it: every key is passed on as it is. Dropping it ends that.
struct Raw(Termios);

impl Raw {
    /// None where there is no terminal.
    fn begin() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;
    use crate::test_server::{Answer, server};

    #[tokio::test]
    async fn a_console_that_is_off_can_be_switched_on() {
        for (status, is_on, expected) in [
            (409, false, "the console of n is off; `ferrite node console n on` switches it on"),
            (409, true, "busy"),
            (404, true, "this server does not pass consoles on"),
        ] {
            let (desk, _) = server(move |asked| match asked.line.ends_with("/states/console") {
                true => Answer::Json(200, json!({"console_enabled": is_on})),
                false => Answer::Json(status, json!({"error_message": "busy"})),
            });
            let chosen = Chosen::of(json!({"uuid": "u", "name": "n"}));
            let failure = attach(&desk, &chosen).await.unwrap_err();
            assert_eq!(failure.code(), Code::Refused);
            assert!(failure.to_string().starts_with(expected), "{failure}");
        }
    }

    fn typed(pieces: &[&[u8]]) -> Vec<Typed> {
        struct Pieces<'a>(std::slice::Iter<'a, &'a [u8]>);
        impl std::io::Read for Pieces<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let Some(piece) = self.0.next() else { return Ok(0) };
                buffer[..piece.len()].copy_from_slice(piece);
                Ok(piece.len())
            }
        }
        let (sender, mut receiver) = mpsc::channel(16);
        read_keys(&mut Pieces(pieces.iter()), &sender);
        std::iter::from_fn(|| receiver.try_recv().ok()).collect()
    }

    #[test]
    fn keys() {
        let text = |text: &str| Typed::Text(text.to_owned());
        assert_eq!(typed(&[b"ls\r", b"\x03"]), [text("ls\r"), text("\x03")]);
        assert_eq!(typed(&[b"ab\x1dcd", b"ef"]), [text("ab"), Typed::Leave]);
        assert_eq!(typed(&[b"gr\xc3", b"\xbcn"]), [text("gr"), text("ün")]);
        assert_eq!(typed(&[b"\xff"]), [text("\u{fffd}")]);
        assert_eq!(typed(&[]), []);
    }
}
