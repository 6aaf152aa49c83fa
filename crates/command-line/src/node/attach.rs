// SPDX-License-Identifier: Apache-2.0
//! `ferrite node console NAME attach`: connects this terminal to a machine's serial console.

use ironic_client::{ErrorClass, IronicClientError, Method, percent_encode};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use tokio::sync::mpsc;

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::selection::SelectedNode;

/// Ctrl-], as in telnet and virsh.
const DETACH_KEY: u8 = 0x1d;
/// Limit for the input of one request.
const MAX_INPUT_BYTES: usize = 1024;

/// Input of the user.
#[derive(Debug, PartialEq, Eq)]
enum KeyboardInput {
    Text(String),
    Detach,
}

/// Shows console output and sends input, until Ctrl-] or until the console is disabled.
pub(super) async fn attach(context: &CliContext, selected: &SelectedNode) -> Result<(), CliError> {
    let path = format!("/v1/ferrite/nodes/{}/console", percent_encode(&selected.uuid));
    let mut events = match context.api.stream(&path).await {
        Ok(events) => events,
        Err(error) => return Err(attach_error(context, selected, error).await),
    };
    context.screen.note(&format!("attached to the console of {}; Ctrl-] detaches", selected.label));
    let raw = RawTerminal::enable();
    let (sender, mut input) = mpsc::channel(16);
    // A separate thread, because reading from a terminal cannot be cancelled.
    std::thread::spawn(move || read_keys(&mut std::io::stdin().lock(), &sender));
    let mut has_input = true;
    let reason = loop {
        tokio::select! {
            event = events.next() => match event? {
                Some(event) => match event.data.as_str() {
                    Some(text) => context.screen.print(text),
                    None => break "the console was disabled",
                },
                None => break "the server ended the connection",
            },
            typed = input.recv(), if has_input => match typed {
                Some(KeyboardInput::Text(text)) => {
                    let body = json!({ "text": text });
                    if let Err(error) = context.api.send(Method::POST, &path, Some(&body)).await {
                        context.screen.note(&format!("\r\n{error}\r"));
                    }
                }
                Some(KeyboardInput::Detach) => break "detached",
                None => has_input = false,
            },
        }
    };
    drop(raw);
    context.screen.note(&format!("\n{reason}"));
    Ok(())
}

/// Explains why attaching failed and what to do.
async fn attach_error(
    context: &CliContext,
    selected: &SelectedNode,
    error: IronicClientError,
) -> CliError {
    let label = &selected.label;
    let console = match error.class() {
        ErrorClass::Rejected | ErrorClass::NotFound => context
            .api
            .get(&format!("{}/states/console", selected.path()))
            .await
            .unwrap_or_default(),
        ErrorClass::NotAuthorised | ErrorClass::Unreachable | ErrorClass::Other => {
            return error.into();
        }
    };
    if console["console_enabled"] == false {
        return CliError::Rejected(format!(
            "the console of {label} is disabled; enable it with `ferrite node console {label} on`"
        ));
    }
    if error.class() == ErrorClass::NotFound {
        return CliError::Rejected(format!(
            "this server does not forward consoles; it is an Ironic, not a Ferrite (`ferrite node console \
             {label}` shows the address of the console)"
        ));
    }
    error.into()
}

/// Reads keys until the end of the input or the detach key.
fn read_keys(from: &mut impl std::io::Read, sender: &mpsc::Sender<KeyboardInput>) {
    let mut buffer = [0; MAX_INPUT_BYTES];
    let mut bytes = Vec::new();
    loop {
        let count = from.read(&mut buffer).unwrap_or(0);
        let read = &buffer[..count];
        let detach = read.iter().position(|byte| *byte == DETACH_KEY);
        bytes.extend_from_slice(&read[..detach.unwrap_or(count)]);
        let text = take_complete_text(&mut bytes);
        if !text.is_empty() && sender.blocking_send(KeyboardInput::Text(text)).is_err() {
            return;
        }
        if detach.is_some() {
            let _ = sender.blocking_send(KeyboardInput::Detach);
        }
        if detach.is_some() || count == 0 {
            return;
        }
    }
}

/// Takes the text of these bytes; an incomplete UTF-8 sequence at the end is kept.
fn take_complete_text(bytes: &mut Vec<u8>) -> String {
    let complete = match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    let taken: Vec<u8> = bytes.drain(..complete).collect();
    String::from_utf8_lossy(&taken).into_owned()
}

/// The terminal in raw mode, which passes on every key. Dropping it restores the previous mode.
struct RawTerminal(Termios);

impl RawTerminal {
    /// Returns `None` if standard input is not a terminal.
    fn enable() -> Option<Self> {
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{TestResponse, start_server};

    #[tokio::test]
    async fn explains_why_attaching_failed() {
        for (status, is_on, expected) in [
            (
                409,
                false,
                "the console of n is disabled; enable it with `ferrite node console n on`",
            ),
            (409, true, "busy"),
            (404, true, "this server does not forward consoles"),
        ] {
            let (context, _) =
                start_server(move |request| match request.line.ends_with("/states/console") {
                    true => TestResponse::Json(200, json!({"console_enabled": is_on})),
                    false => TestResponse::Json(status, json!({"error_message": "busy"})),
                });
            let selected = SelectedNode::new(json!({"uuid": "u", "name": "n"}));
            let failure = attach(&context, &selected).await.unwrap_err();
            assert_eq!(failure.exit_code(), CliExitCode::Rejected);
            assert!(failure.to_string().starts_with(expected), "{failure}");
        }
    }

    fn typed(pieces: &[&[u8]]) -> Vec<KeyboardInput> {
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
    fn splits_input_at_the_detach_key() {
        let text = |text: &str| KeyboardInput::Text(text.to_owned());
        assert_eq!(typed(&[b"ls\r", b"\x03"]), [text("ls\r"), text("\x03")]);
        assert_eq!(typed(&[b"ab\x1dcd", b"ef"]), [text("ab"), KeyboardInput::Detach]);
        assert_eq!(typed(&[b"gr\xc3", b"\xbcn"]), [text("gr"), text("ün")]);
        assert_eq!(typed(&[b"\xff"]), [text("\u{fffd}")]);
        assert_eq!(typed(&[]), []);
    }
}
