// SPDX-License-Identifier: Apache-2.0
//! What the state directory records about the operation, so that a killed run continues.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::outcome::RunFailure;

const RECORD_FILE: &str = "run.json";
const INVENTORY_FILE: &str = "inventory.json";

/// The operation of a state directory. It contains no secrets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct RunRecord {
    /// The name of the node.
    pub(super) name: String,
    /// The UUID of the node, chosen before it is created.
    pub(super) node_uuid: String,
    /// The name of the operation.
    pub(super) operation: String,
    /// The digest of the host file.
    pub(super) fingerprint: String,
    pub(super) status: RunStatus,
    /// The journal entry before the first request of this attempt.
    pub(super) after_seq: u64,
}

/// How far an attempt is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum RunStatus {
    /// The node is being created or updated; nothing was requested.
    Preparing,
    Running,
    Done,
    Failed,
}

/// What to do with a state directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RunStart {
    /// The operation is complete.
    AlreadyDone(RunRecord),
    /// Continue after a kill, a timeout or an interruption.
    Resume(RunRecord),
    /// Start a new attempt.
    New(RunRecord),
}

/// The files of a state directory.
#[derive(Clone, Debug)]
pub(super) struct StateDir(PathBuf);

impl RunRecord {
    /// Compares the stored record with the requested operation.
    pub(super) fn start(
        stored: Option<Self>,
        requested: Self,
        state_dir: &Path,
    ) -> Result<RunStart, RunFailure> {
        let Some(stored) = stored else { return Ok(RunStart::New(requested)) };
        let shown = state_dir.display();
        stored.check_name(&requested.name, state_dir)?;
        let is_same =
            stored.operation == requested.operation && stored.fingerprint == requested.fingerprint;
        match stored.status {
            RunStatus::Running if is_same => Ok(RunStart::Resume(stored)),
            RunStatus::Running if stored.operation != requested.operation => {
                Err(RunFailure::invalid_input(format!(
                    "the operation {:?} of {} is not complete in {shown}; complete it with `ferrite run {}` \
                     and the same host file, or use another --state-dir",
                    stored.operation, stored.name, stored.operation
                )))
            }
            RunStatus::Running => Err(RunFailure::invalid_input(format!(
                "the host file has changed, but the operation {:?} of {} is not complete in {shown}; \
                 continue it with the previous host file, or start again with another --state-dir",
                stored.operation, stored.name
            ))),
            RunStatus::Done if is_same => Ok(RunStart::AlreadyDone(stored)),
            RunStatus::Preparing | RunStatus::Done | RunStatus::Failed => {
                Ok(RunStart::New(Self { node_uuid: stored.node_uuid, ..requested }))
            }
        }
    }

    /// Rejects the state directory of another machine.
    pub(super) fn check_name(&self, name: &str, state_dir: &Path) -> Result<(), RunFailure> {
        if self.name == name {
            return Ok(());
        }
        Err(RunFailure::invalid_input(format!(
            "the state directory {} is that of the machine {}, but the host file describes {name}; use \
             another --state-dir",
            state_dir.display(),
            self.name
        )))
    }
}

impl StateDir {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the record; `None` in a new directory. Fails for the data directory of a service, whose other
    /// machines a run would continue to work on.
    pub(super) fn load(&self) -> Result<Option<RunRecord>, RunFailure> {
        let path = self.0.join(RECORD_FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return match self.0.join(store::SQLITE_FILE).exists() {
                    true => Err(RunFailure::invalid_input(format!(
                        "{} is the data directory of a service; use another --state-dir",
                        self.0.display()
                    ))),
                    false => Ok(None),
                };
            }
            Err(error) => {
                let message = format!("cannot read {}: {error}", path.display());
                return Err(RunFailure::invalid_input(message));
            }
        };
        serde_json::from_str(&text).map(Some).map_err(|error| {
            RunFailure::invalid_input(format!(
                "{} is damaged ({error}); use another --state-dir",
                path.display()
            ))
        })
    }

    /// Stores the record durably.
    pub(super) fn store(&self, record: &RunRecord) -> Result<(), RunFailure> {
        self.write(RECORD_FILE, &serde_json::json!(record))
    }

    pub(super) fn load_inventory(&self) -> Result<Value, RunFailure> {
        let path = self.0.join(INVENTORY_FILE);
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        let inventory =
            text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
        inventory.map_err(|error| {
            RunFailure::invalid_input(format!("cannot read {}: {error}", path.display()))
        })
    }

    pub(super) fn store_inventory(&self, inventory: &Value) -> Result<(), RunFailure> {
        self.write(INVENTORY_FILE, inventory)
    }

    /// Replaces a file as a whole, so that a kill leaves the old or the new content.
    fn write(&self, name: &str, content: &Value) -> Result<(), RunFailure> {
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        let replace = || {
            let mut file = std::fs::File::create(&new)?;
            writeln!(file, "{content}")?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            std::fs::File::open(&self.0)?.sync_all()
        };
        replace().map_err(|error: std::io::Error| {
            let message = format!("cannot write {}: {error}", path.display());
            RunFailure::new(command_line::CliExitCode::Failed, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use command_line::CliExitCode;

    use super::*;

    fn record(operation: &str, fingerprint: &str, status: RunStatus) -> RunRecord {
        RunRecord {
            name: "m".to_owned(),
            node_uuid: format!("uuid-{status:?}"),
            operation: operation.to_owned(),
            fingerprint: fingerprint.to_owned(),
            status,
            after_seq: 7,
        }
    }

    #[test]
    fn decides_how_to_start() {
        use RunStatus::{Done, Failed, Preparing, Running};
        let requested = record("deploy", "a", Preparing);
        for (status, operation, fingerprint, expected) in [
            (Preparing, "deploy", "a", "new"),
            (Preparing, "deploy", "b", "new"),
            (Running, "deploy", "a", "resume"),
            (Running, "deploy", "b", "the host file has changed"),
            (Running, "clean", "a", "\"clean\" of m is not complete"),
            (Done, "deploy", "a", "done"),
            (Done, "deploy", "b", "new"),
            (Done, "inspect", "a", "new"),
            (Failed, "deploy", "a", "new"),
            (Failed, "deploy", "b", "new"),
        ] {
            let stored = record(operation, fingerprint, status);
            let start = RunRecord::start(Some(stored.clone()), requested.clone(), Path::new("/s"));
            let text = match start {
                Ok(RunStart::New(new)) => {
                    assert_eq!(new.node_uuid, stored.node_uuid, "the node is used again");
                    assert_eq!(new.fingerprint, requested.fingerprint);
                    "new".to_owned()
                }
                Ok(RunStart::Resume(same)) => {
                    assert_eq!(same, stored);
                    "resume".to_owned()
                }
                Ok(RunStart::AlreadyDone(same)) => {
                    assert_eq!(same, stored);
                    "done".to_owned()
                }
                Err(failure) => {
                    assert_eq!(failure.code, CliExitCode::Usage);
                    failure.message
                }
            };
            assert!(text.contains(expected), "{status:?} {operation} {fingerprint}: {text}");
        }
        let start = RunRecord::start(None, requested.clone(), Path::new("/s")).unwrap();
        assert_eq!(start, RunStart::New(requested.clone()));
        let other = RunRecord { name: "other".to_owned(), ..record("deploy", "a", Failed) };
        let failure = RunRecord::start(Some(other), requested, Path::new("/s")).unwrap_err();
        assert!(failure.message.contains("is that of the machine other"), "{failure}");
    }

    #[test]
    fn records_are_stored_and_damage_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir::new(folder.path().to_owned());
        assert_eq!(state.load().unwrap(), None);
        let record = record("clean", "a", RunStatus::Running);
        state.store(&record).unwrap();
        assert_eq!(state.load().unwrap(), Some(record));
        std::fs::write(folder.path().join(RECORD_FILE), "{").unwrap();
        let failure = state.load().unwrap_err();
        assert!(failure.message.contains("is damaged"), "{failure}");
        assert_eq!(state.load_inventory().unwrap_err().code, CliExitCode::Usage);
        state.store_inventory(&serde_json::json!({"a": 1})).unwrap();
        assert_eq!(state.load_inventory().unwrap()["a"], 1);
    }
}
