// SPDX-License-Identifier: Apache-2.0
//! Where sealing keys come from: a file, an environment variable, a command, or what the caller
//! implements.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use node_model::Secret;

use crate::sealing_key::SealError;

/// File name of the default key file in the data directory.
pub(crate) const KEY_FILE: &str = "secrets.key";

/// Maximum size of all keys as text.
pub const MAX_KEYS_BYTES: usize = 64 * 1024;

/// A source does not return its keys.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeySourceError(pub String);

/// Where sealing keys come from.
///
/// The text has one or more keys in base64, separated by white space or commas. The database decides
/// which of them seals; all of them unseal. A source may block for some seconds.
pub trait KeySource: Send + Sync + fmt::Debug {
    /// Names the source in messages, such as `the key file /var/lib/ferrite/secrets.key`.
    fn describe(&self) -> String;
    /// The keys; `None` if there are none yet.
    fn load(&self) -> Result<Option<Secret<String>>, SealError>;
    /// Replaces the keys. Returns false if this source cannot be written.
    fn replace(&self, _keys: &[Secret<String>]) -> Result<bool, SealError> {
        Ok(false)
    }
}

/// A file with mode 600.
#[derive(Debug)]
pub struct KeyFile(pub PathBuf);

/// An environment variable.
#[derive(Debug)]
pub struct KeyVariable(pub String);

/// The output of a command.
#[derive(Debug)]
pub struct KeyCommand {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// How long it may run.
    pub timeout: Duration,
}

impl KeySource for KeyFile {
    fn describe(&self) -> String {
        format!("the key file {}", self.0.display())
    }

    fn load(&self) -> Result<Option<Secret<String>>, SealError> {
        let file = match File::open(&self.0) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let mode = file.metadata().map_err(|error| failed(&error))?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SealError::WorldReadable { mode });
        }
        let mut text = String::new();
        let limit = MAX_KEYS_BYTES as u64;
        file.take(limit).read_to_string(&mut text).map_err(|error| failed(&error))?;
        Ok(Some(Secret::new(text)))
    }

    /// Writes the file atomically: a partly written key would make the secrets unreadable.
    fn replace(&self, keys: &[Secret<String>]) -> Result<bool, SealError> {
        let new = self.0.with_extension("key.new");
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            for key in keys {
                writeln!(file, "{}", key.reveal())?;
            }
            file.sync_all()?;
            std::fs::rename(&new, &self.0)?;
            match self.0.parent() {
                Some(directory) => File::open(directory)?.sync_all(),
                None => Ok(()),
            }
        };
        write().map_err(|error: std::io::Error| failed(&error))?;
        Ok(true)
    }
}

impl KeySource for KeyVariable {
    fn describe(&self) -> String {
        format!("the environment variable {}", self.0)
    }

    fn load(&self) -> Result<Option<Secret<String>>, SealError> {
        match std::env::var(&self.0) {
            Ok(text) => Ok(Some(Secret::new(text))),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => Err(SealError::Malformed),
        }
    }
}

impl KeySource for KeyCommand {
    fn describe(&self) -> String {
        format!("the output of the key command {:?}", self.program())
    }

    fn load(&self) -> Result<Option<Secret<String>>, SealError> {
        let source = |text: String| SealError::Source(KeySourceError(text));
        let mut child = Command::new(self.program())
            .args(self.command.iter().skip(1))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| source(format!("cannot run {:?}: {error}", self.program())))?;
        let (sender, output) = channel();
        let stdout = child.stdout.take();
        // The thread ends when the command closes its output, at the latest when it is killed.
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = stdout.map_or(Ok(0), |stdout| {
                stdout.take(MAX_KEYS_BYTES as u64).read_to_string(&mut text)
            });
            let _ = sender.send(read.map(|_| Secret::new(text)));
        });
        let read = output.recv_timeout(self.timeout);
        if read.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(|error| source(error.to_string()))?;
        match read {
            Err(RecvTimeoutError::Timeout) => Err(source(format!(
                "{:?} did not finish within {} seconds",
                self.program(),
                self.timeout.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(source(format!("{:?} has no output", self.program())))
            }
            Ok(_) if !status.success() => {
                Err(source(format!("{:?} failed with {status}", self.program())))
            }
            Ok(Err(error)) => Err(source(format!("the output of {:?}: {error}", self.program()))),
            Ok(Ok(text)) => Ok(Some(text)),
        }
    }
}

impl KeyCommand {
    fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }
}

fn failed(error: &std::io::Error) -> SealError {
    SealError::Source(KeySourceError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str], timeout: Duration) -> Result<Option<String>, String> {
        let source =
            KeyCommand { command: words.iter().map(|word| (*word).to_owned()).collect(), timeout };
        match source.load() {
            Ok(text) => Ok(text.map(|text| text.reveal().clone())),
            Err(SealError::Source(KeySourceError(text))) => Err(text),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn command_prints_keys() {
        let long = Duration::from_secs(60);
        assert_eq!(command(&["echo", "a key"], long), Ok(Some("a key\n".to_owned())));
        let error = command(&["sh", "-c", "echo half; exit 3"], long).unwrap_err();
        assert_eq!(error, "\"sh\" failed with exit status: 3");
        let error = command(&["/nowhere/program"], long).unwrap_err();
        assert!(error.starts_with("cannot run \"/nowhere/program\""), "{error}");
        let error = command(&["sleep", "600"], Duration::from_millis(10)).unwrap_err();
        assert!(error.contains("did not finish within"), "{error}");
    }

    #[test]
    fn file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile(folder.path().join("secrets.key"));
        assert!(file.load().unwrap().is_none());
        let keys = ["one", "two"].map(|key| Secret::new(key.to_owned()));
        assert!(file.replace(&keys).unwrap());
        assert_eq!(file.load().unwrap().unwrap().reveal(), "one\ntwo\n");
        std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o604)).unwrap();
        assert!(matches!(file.load(), Err(SealError::WorldReadable { mode: 0o604 })));
    }
}
