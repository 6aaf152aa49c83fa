// SPDX-License-Identifier: Apache-2.0
//! PXE filter for an external dnsmasq: controls which machines get a DHCP reply.
//!
//! dnsmasq reads a directory of host files (`--dhcp-hostsdir`) and watches it for changes. The filter
//! writes one file per MAC address, with the address if it may boot and the suffix `,ignore` if not,
//! and one file for all unknown MAC addresses. Ports of nodes in inspection may boot; unknown machines
//! may boot while any node is in inspection, or if automatic discovery is on. Ferrite's own DHCP server
//! does not need this filter.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use node_model::{InterfaceKind, Node, Port, ProvisionState};
use serde::{Deserialize, Serialize};
use store::{Columns, NodeColumn, NodeFilter, PortColumn, ResourceQuery, StoreReader};
use tokio::sync::watch;

use crate::Conductor;

/// The file for unknown MAC addresses.
const UNKNOWN_FILE: &str = "unknown_hosts_filter";
/// The pattern that matches every MAC address.
const ANY_MAC: &str = "*:*:*:*:*:*";

/// Settings of the PXE filter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PxeFilterSettings {
    /// The directory of dnsmasq's `--dhcp-hostsdir`, exclusively for this filter. Without it the filter
    /// is disabled.
    pub dhcp_hostsdir: Option<PathBuf>,
    /// Seconds between two updates.
    pub sync_period: u64,
    /// Only nodes with these inspect interfaces may boot.
    pub supported_inspect_interfaces: Vec<String>,
}

/// An enabled PXE filter.
#[derive(Debug)]
pub struct PxeFilter {
    directory: PathBuf,
    period: Duration,
    interfaces: Vec<String>,
}

/// The machines that may boot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct FilterState {
    /// Whether the MAC address may boot.
    allowed: BTreeMap<String, bool>,
    /// Whether unknown MAC addresses may boot.
    unknown_allowed: bool,
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
    /// The filter of the settings; `None` if it is disabled.
    ///
    /// # Errors
    /// If the directory does not exist: dnsmasq would not see one that is created later.
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

    /// Updates the directory periodically until `stopping` changes.
    pub async fn run(self, conductor: Conductor, mut stopping: watch::Receiver<bool>) {
        loop {
            if let Err(error) = self.sync(&conductor).await {
                tracing::warn!(%error, retry_in = ?self.period, "PXE filter could not be updated");
            }
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                _ = stopping.changed() => return,
            }
        }
    }

    /// Updates the directory and returns the number of changed files.
    async fn sync(&self, conductor: &Conductor) -> Result<usize, FilterSyncError> {
        let interfaces = self.interfaces.clone();
        let mut state =
            conductor.store.scan(move |reader| FilterState::read(reader, &interfaces)).await?;
        state.unknown_allowed |= conductor.inspection.auto_discovery.is_some();
        let directory = self.directory.clone();
        let write = tokio::task::spawn_blocking(move || state.write(&directory));
        Ok(write.await.map_err(io::Error::other)??)
    }
}

/// Why the directory could not be updated.
#[derive(Debug, thiserror::Error)]
enum FilterSyncError {
    #[error("the database could not be read: {0}")]
    Store(#[from] store::StoreError),
    #[error("the directory could not be written: {0}")]
    Files(#[from] io::Error),
}

impl FilterState {
    fn read(
        reader: &mut StoreReader<'_>,
        interfaces: &[String],
    ) -> Result<Self, store::StoreError> {
        let mut inspected = std::collections::HashSet::new();
        let query = ResourceQuery::<Node> {
            filter: NodeFilter {
                provision_states: Some(vec![
                    ProvisionState::Inspecting,
                    ProvisionState::InspectWait,
                ]),
                ..NodeFilter::default()
            },
            select: Columns::only(&[NodeColumn::Uuid, NodeColumn::InspectInterface]),
            ..ResourceQuery::default()
        };
        reader.list(&query, |node| {
            let chosen = node.interfaces.get(InterfaceKind::Inspect);
            if interfaces.iter().any(|known| Some(known.as_str()) == chosen) {
                inspected.insert(node.id);
            }
        })?;
        let mut state = Self { unknown_allowed: !inspected.is_empty(), ..Self::default() };
        let query = ResourceQuery::<Port> {
            select: Columns::only(&[PortColumn::Address, PortColumn::NodeUuid]),
            ..ResourceQuery::default()
        };
        reader.list(&query, |port| {
            let is_allowed = inspected.contains(&port.node_id);
            state.allowed.insert(port.address.as_str().to_owned(), is_allowed);
        })?;
        Ok(state)
    }

    /// Writes the files that changed. MAC addresses without a port are treated as unknown; their files
    /// are kept, because dnsmasq does not forget the content of deleted files.
    fn write(mut self, directory: &Path) -> io::Result<usize> {
        // Name and length of a file determine its content, so thousands of files need not be read.
        let mut existing = BTreeMap::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name == UNKNOWN_FILE || is_mac_file(&name) {
                if name != UNKNOWN_FILE {
                    self.allowed.entry(name.clone()).or_insert(self.unknown_allowed);
                }
                existing.insert(name, entry.metadata()?.len());
            }
        }
        let hosts = self.allowed.into_iter();
        let hosts = hosts.map(|(mac, is_allowed)| (mac.clone(), host_line(&mac, is_allowed)));
        let unknown = (UNKNOWN_FILE.to_owned(), host_line(ANY_MAC, self.unknown_allowed));
        let mut changed = 0;
        for (name, content) in hosts.chain(std::iter::once(unknown)) {
            if existing.get(&name).copied() != Some(content.len() as u64) {
                replace_file(directory, &name, &content)?;
                changed += 1;
            }
        }
        Ok(changed)
    }
}

/// Whether the file belongs to this filter.
fn is_mac_file(name: &str) -> bool {
    name.parse::<node_model::Mac>().is_ok_and(|mac| mac.as_str() == name)
}

fn host_line(mac: &str, is_allowed: bool) -> String {
    if is_allowed { format!("{mac}\n") } else { format!("{mac},ignore\n") }
}

/// Replaces a file atomically. dnsmasq reads a file when it is closed after writing or moved into the
/// directory, and ignores names that begin with a dot.
fn replace_file(directory: &Path, name: &str, content: &str) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let temporary = directory.join(format!(".{name}"));
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(content.as_bytes())?;
    // dnsmasq reads it as an unprivileged user.
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    drop(file);
    std::fs::rename(&temporary, directory.join(name))
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
    fn writes_only_changed_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        std::fs::write(path.join("README"), "mine").unwrap();
        let state = |macs: &[(&str, bool)], unknown_allowed| FilterState {
            allowed: macs.iter().map(|(mac, allowed)| ((*mac).to_owned(), *allowed)).collect(),
            unknown_allowed,
        };
        let (one, two) = ("52:54:00:00:00:01", "52:54:00:00:00:02");
        // MAC addresses and whether they may boot, whether unknown ones may, the number of changed
        // files, and some of the files.
        type Step<'a> = (&'a [(&'a str, bool)], bool, usize, &'a [(&'a str, &'a str)]);
        let steps: [Step<'_>; 4] = [
            (
                &[(one, true), (two, false)],
                true,
                3,
                &[
                    (one, "52:54:00:00:00:01\n"),
                    (two, "52:54:00:00:00:02,ignore\n"),
                    (UNKNOWN_FILE, "*:*:*:*:*:*\n"),
                ],
            ),
            (&[(one, true), (two, false)], true, 0, &[]),
            (
                &[(one, false), (two, false)],
                false,
                2,
                &[(one, "52:54:00:00:00:01,ignore\n"), (UNKNOWN_FILE, "*:*:*:*:*:*,ignore\n")],
            ),
            // The second MAC address has no port any more, and unknown ones may boot.
            (
                &[(one, false)],
                true,
                2,
                &[(two, "52:54:00:00:00:02\n"), (UNKNOWN_FILE, "*:*:*:*:*:*\n")],
            ),
        ];
        for (macs, unknown, changed, expected) in steps {
            assert_eq!(state(macs, unknown).write(path).unwrap(), changed);
            let found = files(path);
            assert_eq!(found["README"], "mine");
            assert_eq!(found.len(), 4, "{found:?}");
            for (name, content) in expected {
                assert_eq!(found[*name], *content);
            }
        }
    }
}
