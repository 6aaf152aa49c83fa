// SPDX-License-Identifier: Apache-2.0
//! `ferrite secrets`: shows and replaces the key that encrypts the secrets in the database.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use store::{KeyStatus, RotationPhase, RotationProgress, RotationSummary, Store};

use crate::database_options::DatabaseOptions;
use crate::process::print_line;

/// Commands of `ferrite secrets`.
#[derive(Subcommand, Debug)]
pub(crate) enum SecretsCommand {
    /// Print a new key, to be stored in the configured source.
    NewKey,
    /// Show the sealing keys and the processes that use them.
    Status(DatabaseOptions),
    /// Replace the sealing key and re-seal all secrets, while servers run. Continues an interrupted
    /// rotation.
    Rotate(RotateArguments),
    /// Remove the keys that a rotation has replaced from the key file.
    RemoveOldKeys(DatabaseOptions),
}

/// Options of `ferrite secrets rotate`.
#[derive(Args, Debug)]
pub(crate) struct RotateArguments {
    #[command(flatten)]
    database: DatabaseOptions,
    /// How many seconds to wait for processes that do not have the new key yet.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    wait: u64,
}

/// Runs a command.
pub(crate) fn run(command: &SecretsCommand) -> anyhow::Result<()> {
    let (arguments, wait) = match command {
        SecretsCommand::NewKey => {
            print_line(store::new_key().reveal());
            return Ok(());
        }
        SecretsCommand::Status(arguments) | SecretsCommand::RemoveOldKeys(arguments) => {
            (arguments, Duration::ZERO)
        }
        SecretsCommand::Rotate(arguments) => {
            (&arguments.database, Duration::from_secs(arguments.wait))
        }
    };
    let store = open(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(async {
        match command {
            SecretsCommand::NewKey | SecretsCommand::Status(_) => show_status(&store).await,
            SecretsCommand::Rotate(_) => rotate(&store, wait).await,
            SecretsCommand::RemoveOldKeys(_) => remove_old_keys(&store).await,
        }
    });
    store.close();
    outcome
}

fn open(database: &DatabaseOptions) -> anyhow::Result<Store> {
    let (config, data_dir) = database.load()?;
    if !data_dir.is_dir() {
        // The command must not create a database at a mistyped path.
        bail!("the data directory {} does not exist; give --data-dir", data_dir.display());
    }
    Store::open(&config.store_with_keys(&data_dir)?).context("cannot open the database")
}

async fn show_status(store: &Store) -> anyhow::Result<()> {
    let status = store.key_status().await?;
    status_lines(&status).iter().for_each(|line| print_line(line));
    Ok(())
}

async fn rotate(store: &Store, wait: Duration) -> anyhow::Result<()> {
    let summary = store.rotate_key(wait, &mut ProgressLines::default().reporter()).await?;
    print_line(&format!("secrets are sealed with the key {} now", summary.key_id));
    report(&summary);
    print_line(
        "the old key is kept; when all servers run with the new one, run `ferrite secrets \
         remove-old-keys` and store the old key with the backups that need it",
    );
    Ok(())
}

async fn remove_old_keys(store: &Store) -> anyhow::Result<()> {
    match store.remove_old_keys(&mut ProgressLines::default().reporter()).await? {
        Some(summary) => {
            report(&summary);
            print_line(&format!("only the key {} is left", summary.key_id));
        }
        None => {
            let key_id = store.key_status().await?.sealing_key_id;
            print_line(&format!(
                "nothing is sealed with old keys; remove all keys but {key_id} from your key source"
            ));
        }
    }
    Ok(())
}

fn report(summary: &RotationSummary) {
    print_line(&format!("{} values re-sealed", summary.resealed));
    if summary.damaged > 0 {
        print_line(&format!(
            "{} values could not be decrypted with the old key and were left as they are",
            summary.damaged
        ));
    }
}

fn status_lines(status: &KeyStatus) -> Vec<String> {
    let mut lines = vec![format!("sealing key {}", status.sealing_key_id)];
    for (key_id, values) in &status.other_keys {
        lines.push(format!("other key {key_id}: {values} values"));
    }
    if let Some(rotation) = &status.rotation {
        let phase = match rotation.phase {
            RotationPhase::Announced => "waiting for processes",
            RotationPhase::Sealing => "re-sealing",
        };
        lines
            .push(format!("rotation from {} to {}: {phase}", rotation.old_key_id, rotation.key_id));
    }
    for process in &status.processes {
        lines.push(format!(
            "{} seals with {} and has {}",
            process.name,
            process.sealing_key_id,
            process.key_ids.join(", ")
        ));
    }
    lines
}

/// Prints progress: each change of the processes waited for, and about every tenth of the values.
#[derive(Default)]
struct ProgressLines {
    waiting: Vec<String>,
    tenth: u64,
}

impl ProgressLines {
    fn reporter(mut self) -> impl FnMut(RotationProgress) + Send {
        let is_terminal = std::io::stdout().is_terminal();
        move |progress| {
            if let Some(line) = self.line(progress, is_terminal) {
                print_line(&line);
            }
        }
    }

    fn line(&mut self, progress: RotationProgress, every: bool) -> Option<String> {
        match progress {
            RotationProgress::Waiting { processes } => {
                if self.waiting == processes {
                    return None;
                }
                self.waiting = processes;
                Some(format!("waiting for the key in {}", self.waiting.join(", ")))
            }
            RotationProgress::Resealing { done, total } => {
                let tenth = done.saturating_mul(10) / total.max(1);
                if !every && tenth == self.tenth {
                    return None;
                }
                self.tenth = tenth;
                Some(format!("{done} of {total} values re-sealed"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_not_repeated() {
        let mut lines = ProgressLines::default();
        let waiting = |names: &[&str]| RotationProgress::Waiting {
            processes: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(
            lines.line(waiting(&["a", "b"]), false).as_deref(),
            Some("waiting for the key in a, b")
        );
        assert_eq!(lines.line(waiting(&["a", "b"]), false), None);
        assert!(lines.line(waiting(&["b"]), false).is_some());
        let shown = (1..=100)
            .filter_map(|done| lines.line(RotationProgress::Resealing { done, total: 100 }, false));
        assert_eq!(shown.count(), 10);
    }

    #[test]
    fn status_names_processes_and_rotation() {
        let status = KeyStatus {
            sealing_key_id: "new".to_owned(),
            own_key_ids: vec!["new".to_owned(), "old".to_owned()],
            rotation: Some(store::KeyRotation {
                key_id: "new".to_owned(),
                old_key_id: "old".to_owned(),
                phase: RotationPhase::Sealing,
            }),
            processes: vec![store::KeyProcess {
                name: "host (process 7)".to_owned(),
                key_ids: vec!["new".to_owned(), "old".to_owned()],
                sealing_key_id: "new".to_owned(),
            }],
            other_keys: vec![("old".to_owned(), 3)],
            replaced_key_ids: Vec::new(),
        };
        assert_eq!(
            status_lines(&status),
            [
                "sealing key new",
                "other key old: 3 values",
                "rotation from old to new: re-sealing",
                "host (process 7) seals with new and has new, old",
            ]
        );
    }
}
