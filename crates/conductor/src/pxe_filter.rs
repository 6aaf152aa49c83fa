// SPDX-License-Identifier: Apache-2.0
//! Tells a dnsmasq that an operator runs which machines it may answer.
//!
//! dnsmasq reads a directory of host files (`--dhcp-hostsdir`) and follows its changes. There is a
//! file for every card: its MAC address if it may boot, with `,ignore` behind it if not, and one
//! file for all cards that nobody knows. Cards of nodes that are being inspected may boot, and so
//! may unknown ones while any node is inspected or machines enrol themselves. Ferrite's own DHCP
//! server needs none of this.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use node_model::{InterfaceKind, Node, Port, ProvisionState};
use serde::{Deserialize, Serialize};
use store::{Columns, NodeColumn, NodeFilter, PortColumn, Query, Reader};
use tokio::sync::watch;

use crate::Conductor;

/// The file for cards that nobody knows.
const UNKNOWN: &str = "unknown_hosts_filter";
/// What stands for every card in it.
const EVERY: &str = "*:*:*:*:*:*";

/// Settings of the filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PxeFilterSettings {
    /// The directory that dnsmasq is given as `--dhcp-hostsdir`, for this filter alone. Without it
    /// there is no filter.
    pub dhcp_hostsdir: Option<PathBuf>,
    /// Seconds between two looks at which machines may boot.
    pub sync_period: u64,
    /// Nodes with other inspect interfaces are not let through.
    pub supported_inspect_interfaces: Vec<String>,
}

/// A filter at work.
#[derive(Debug)]
pub struct PxeFilter {
    directory: PathBuf,
    period: Duration,
    interfaces: Vec<String>,
}

/// Who may boot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Verdicts {
    /// By card: whether it may.
    cards: BTreeMap<String, bool>,
    unknown: bool,
}

impl Default for PxeFilterSettings {
    fn default() -> Self {
        Self {
            dhcp_hostsdir: None,
            sync_period: 45,
            supported_inspect_interfaces: vec!["agent".to_owned()],
        }
    }
}

impl PxeFilter {
    /// The filter that the settings ask for; none if they ask for none.
    ///
    /// # Errors
    /// If the directory is not there: dnsmasq would not see one that is made later.
    pub fn new(settings: &PxeFilterSettings) -> io::Result<Option<Self>> {
        let Some(directory) = settings.dhcp_hostsdir.clone() else { return Ok(None) };
        if !std::fs::metadata(&directory)?.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Some(Self {
            directory,
            period: Duration::from_secs(settings.sync_period.max(1)),
            interfaces: settings.supported_inspect_interfaces.clone(),
        }))
    }

    /// Keeps the directory as it should be, until `stopping` says so.
    pub async fn run(self, conductor: Conductor, mut stopping: watch::Receiver<bool>) {
        loop {
            if let Err(error) = self.sync(&conductor).await {
                tracing::warn!(%error, "the files of the PXE filter could not be brought up to date");
            }
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                _ = stopping.changed() => return,
            }
        }
    }

    /// Brings the directory up to date; says how many files changed.
    async fn sync(&self, conductor: &Conductor) -> Result<usize, SyncError> {
        let interfaces = self.interfaces.clone();
        let mut verdicts =
            conductor.store.scan(move |reader| Verdicts::read(reader, &interfaces)).await?;
        verdicts.unknown |= conductor.inspection.auto_discovery.is_some();
        let directory = self.directory.clone();
        let write = tokio::task::spawn_blocking(move || verdicts.write(&directory));
        Ok(write.await.map_err(io::Error::other)??)
    }
}

/// Why the directory is not up to date.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error("the database could not be read: {0}")]
    Store(#[from] store::Error),
    #[error("the directory could not be written: {0}")]
    Files(#[from] io::Error),
}

impl Verdicts {
    fn read(reader: &mut Reader<'_>, interfaces: &[String]) -> Result<Self, store::Error> {
        let mut inspected = std::collections::HashSet::new();
        let query = Query::<Node> {
            filter: NodeFilter {
                provision_states: Some(vec![
                    ProvisionState::Inspecting,
                    ProvisionState::InspectWait,
                ]),
                ..NodeFilter::default()
            },
            select: Columns::of(&[NodeColumn::Uuid, NodeColumn::InspectInterface]),
            ..Query::default()
        };
        reader.list(&query, |node| {
            let chosen = node.interfaces.get(InterfaceKind::Inspect);
            if interfaces.iter().any(|known| Some(known.as_str()) == chosen) {
                inspected.insert(node.id);
            }
        })?;
        let mut verdicts = Self { unknown: !inspected.is_empty(), ..Self::default() };
        let query = Query::<Port> {
            select: Columns::of(&[PortColumn::Address, PortColumn::NodeUuid]),
            ..Query::default()
        };
        reader.list(&query, |port| {
            let may = inspected.contains(&port.node_id);
            verdicts.cards.insert(port.address.as_str().to_owned(), may);
        })?;
        Ok(verdicts)
    }

    /// Writes what differs from what is there. Cards that are no port's any more are treated as
    /// unknown ones; their files stay, because dnsmasq forgets nothing that goes away.
    fn write(mut self, directory: &Path) -> io::Result<usize> {
        // The name says what is in a file, its length whether there is `,ignore` behind: thousands
        // of files need not be read.
        let mut there = BTreeMap::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name == UNKNOWN || is_card(&name) {
                if name != UNKNOWN {
                    self.cards.entry(name.clone()).or_insert(self.unknown);
                }
                there.insert(name, entry.metadata()?.len());
            }
        }
        let wanted = self.cards.into_iter().map(|(card, may)| (card.clone(), line(&card, may)));
        let unknown = (UNKNOWN.to_owned(), line(EVERY, self.unknown));
        let mut changed = 0;
        for (name, content) in wanted.chain(std::iter::once(unknown)) {
            if there.get(&name).copied() != Some(content.len() as u64) {
                put(directory, &name, &content)?;
                changed += 1;
            }
        }
        Ok(changed)
    }
}

/// Whether a file of this name is one of ours.
fn is_card(name: &str) -> bool {
    name.parse::<node_model::Mac>().is_ok_and(|card| card.as_str() == name)
}

fn line(card: &str, may: bool) -> String {
    if may { format!("{card}\n") } else { format!("{card},ignore\n") }
}

/// dnsmasq reads a file when it is closed after writing or moved into the directory, and passes over
/// names that begin with a dot.
fn put(directory: &Path, name: &str, content: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let passing = directory.join(format!(".{name}"));
    let mut file = std::fs::File::create(&passing)?;
    file.write_all(content.as_bytes())?;
    // dnsmasq gave up being root, and must read it.
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    drop(file);
    std::fs::rename(&passing, directory.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> BTreeMap<String, String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries
            .map(|entry| {
                let entry = entry.unwrap();
                let content = std::fs::read_to_string(entry.path()).unwrap();
                (entry.file_name().into_string().unwrap(), content)
            })
            .collect()
    }

    #[test]
    fn only_differences_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::write(path.join("README"), "mine").unwrap();
        let verdicts = |cards: &[(&str, bool)], unknown| Verdicts {
            cards: cards.iter().map(|(card, may)| ((*card).to_owned(), *may)).collect(),
            unknown,
        };
        let (one, two) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
        // Cards and whether they may, the same for unknown ones, how many files that changes, and
        // some of them.
        type Step<'a> = (&'a [(&'a str, bool)], bool, usize, &'a [(&'a str, &'a str)]);
        let steps: [Step<'_>; 4] = [
            (
                &[(one, true), (two, false)],
                true,
                3,
                &[
                    (one, "52:54:00:00:00:01\n"),
                    (two, "52:54:00:00:00:02,ignore\n"),
                    (UNKNOWN, "*:*:*:*:*:*\n"),
                ],
            ),
            (&[(one, true), (two, false)], true, 0, &[]),
            (
                &[(one, false), (two, false)],
                false,
                2,
                &[(one, "52:54:00:00:00:01,ignore\n"), (UNKNOWN, "*:*:*:*:*:*,ignore\n")],
            ),
            // The second card is nobody's any more, and unknown ones may boot.
            (&[(one, false)], true, 2, &[(two, "52:54:00:00:00:02\n"), (UNKNOWN, "*:*:*:*:*:*\n")]),
        ];
        for (cards, unknown, changed, expected) in steps {
            assert_eq!(verdicts(cards, unknown).write(path).unwrap(), changed);
            let found = files(path);
            assert_eq!(found["README"], "mine");
            assert_eq!(found.len(), 4, "{found:?}");
            for (name, content) in expected {
                assert_eq!(found[*name], *content);
            }
        }
    }
}
