// SPDX-License-Identifier: Apache-2.0
//! Records the network events of booting machines in the timelines of their nodes, and as sightings for
//! unknown machines.
//!
//! The servers queue events and continue. Events are written in batches, and repeated events are counted
//! instead of being recorded again: a BMC reads an ISO in thousands of ranges.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use boot_server::{BootEvent, BootEventDetail, BootEventRecorder, BootStage};
use node_model::{
    Actor, BootPort, JournalEntry, JournalEvent, Mac, MachineSighting, NodeId, Timestamp,
};
use tokio::sync::mpsc;

use crate::dhcp_directory::ethernet_mac;
use crate::services::BootServices;

mod description;

/// Maximum number of queued events. Further events are dropped, and their number is logged.
const QUEUE_LENGTH: usize = 8192;
/// Delay between two batches.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);
/// Time during which a repeated event is counted instead of recorded.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of journal entries per node and minute.
const MAX_ENTRIES_PER_MINUTE: u32 = 200;
/// Maximum number of cached addresses, repeated events and entry counts.
const MAX_CACHED: usize = 100_000;

/// Length of a boot plan's key: 32 bytes in base64.
const PLAN_KEY_LENGTH: usize = 43;

/// Queues the events of the boot servers.
#[derive(Debug)]
pub struct BootEventSender {
    sender: mpsc::Sender<BootEvent>,
    dropped: Arc<AtomicU64>,
}

impl BootEventRecorder for BootEventSender {
    fn record(&self, event: BootEvent) {
        if self.sender.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl BootServices {
    /// Returns a recorder and the task that writes its events. The task ends when the recorder is
    /// dropped.
    pub fn event_recorder(&self) -> (BootEventSender, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
        let dropped = Arc::new(AtomicU64::new(0));
        let writer = BootEventWriter {
            services: self.clone(),
            dropped: Arc::clone(&dropped),
            macs: HashMap::new(),
            repeats: HashMap::new(),
            entry_counts: HashMap::new(),
        };
        (BootEventSender { sender, dropped }, writer.run(receiver))
    }
}

/// Writes events to the store.
struct BootEventWriter {
    services: BootServices,
    dropped: Arc<AtomicU64>,
    /// MAC addresses by IP address, from DHCP.
    macs: HashMap<IpAddr, Mac>,
    repeats: HashMap<(EventSubject, String), RepeatedEvent>,
    /// Minute and number of the entries written in it, by node.
    entry_counts: HashMap<NodeId, (i64, u32)>,
}

/// The machine that caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum EventSubject {
    Node(NodeId),
    Mac(Mac),
}

/// The number of repetitions of an event since it was last written.
struct RepeatedEvent {
    last_written_at: Timestamp,
    count: u32,
    note: EventNote,
}

/// An event as text.
#[derive(Debug, Clone)]
struct EventNote {
    at: Timestamp,
    subject: EventSubject,
    by: &'static str,
    text: String,
    times: u32,
    interface: Arc<str>,
    ip_address: Option<IpAddr>,
    architecture: Option<&'static str>,
}

impl RepeatedEvent {
    /// Returns the counted repetitions as one note and resets the counter.
    fn take_counted(&mut self, now: Timestamp) -> EventNote {
        self.last_written_at = now;
        EventNote { times: std::mem::take(&mut self.count), ..self.note.clone() }
    }
}

impl BootEventWriter {
    async fn run(mut self, mut receiver: mpsc::Receiver<BootEvent>) {
        let mut batch = Vec::new();
        loop {
            batch.clear();
            tokio::select! {
                received = receiver.recv_many(&mut batch, 1024) => {
                    if received == 0 {
                        break;
                    }
                }
                () = tokio::time::sleep(REPEAT_INTERVAL / 6) => {}
            }
            self.process(&batch).await;
            let dropped = self.dropped.swap(0, Ordering::Relaxed);
            if dropped > 0 {
                tracing::warn!(dropped, "boot event queue was full, events dropped");
            }
            tokio::time::sleep(BATCH_INTERVAL).await;
        }
        // All recorders are dropped: write the counted repetitions.
        let rest = self.repeats.values_mut().filter(|repeat| repeat.count > 0);
        let mut rest: Vec<EventNote> =
            rest.map(|repeat| repeat.take_counted(repeat.last_written_at)).collect();
        rest.sort_by_key(|note| note.at);
        self.write_or_log(rest).await;
    }

    async fn process(&mut self, batch: &[BootEvent]) {
        let now = self.services.0.now();
        self.reset_counters();
        let mut notes = self.take_due(now);
        for event in batch {
            if let Some(note) = self.note(event).await {
                self.add_or_count(note, &mut notes);
            }
        }
        self.write_or_log(notes).await;
    }

    async fn write_or_log(&mut self, notes: Vec<EventNote>) {
        if notes.is_empty() {
            return;
        }
        if let Err(error) = self.write(notes).await {
            tracing::warn!(%error, "boot events could not be written");
        }
    }

    /// Returns the event as text with its subject, or `None` if the event is not recorded or its subject
    /// is unknown.
    async fn note(&mut self, event: &BootEvent) -> Option<EventNote> {
        let mac = event.hardware.and_then(ethernet_mac);
        if let (Some(mac), Some(address)) = (&mac, event.address) {
            if self.macs.len() >= MAX_CACHED {
                self.macs.clear();
            }
            self.macs.insert(address, mac.clone());
        }
        let (by, text) = description::describe_event(event)?;
        let subject = self.find_subject(event, mac).await?;
        Some(EventNote {
            at: event.at,
            subject,
            by,
            text,
            times: 1,
            interface: Arc::clone(&event.interface),
            ip_address: event.address,
            architecture: event.architecture.map(description::architecture_name),
        })
    }

    async fn find_subject(&self, event: &BootEvent, mac: Option<Mac>) -> Option<EventSubject> {
        if let Some(node) = event.machine.as_ref().and_then(|machine| machine.parse().ok()) {
            return Some(EventSubject::Node(NodeId(node)));
        }
        if let Some(mac) = mac {
            return Some(EventSubject::Mac(mac));
        }
        if let BootEventDetail::Tftp { file, .. } = &event.detail {
            if let Some(mac) = description::mac_in_file_name(file) {
                return Some(EventSubject::Mac(mac));
            }
            if let Some((key, _)) = file.trim_start_matches('/').split_once('/')
                && key.len() == PLAN_KEY_LENGTH
                && let Ok(Some(plan)) = self.services.plan_by_key(key).await
            {
                return Some(EventSubject::Node(plan.node_id));
            }
        }
        self.macs.get(&event.address?).cloned().map(EventSubject::Mac)
    }

    /// Adds the note to `notes`, or counts it if the same event was written recently. Counted
    /// repetitions of the same machine are added before a new event, so that its timeline stays in order.
    fn add_or_count(&mut self, note: EventNote, notes: &mut Vec<EventNote>) {
        let key = (note.subject.clone(), note.text.clone());
        if let Some(repeat) = self.repeats.get_mut(&key) {
            repeat.count += 1;
            repeat.note.at = note.at;
            return;
        }
        if self.repeats.len() >= MAX_CACHED {
            self.repeats.clear();
        }
        let mut counted: Vec<EventNote> = self
            .repeats
            .iter_mut()
            .filter(|((subject, _), repeat)| *subject == note.subject && repeat.count > 0)
            .map(|(_, repeat)| repeat.take_counted(note.at))
            .collect();
        counted.sort_by_key(|note| note.at);
        notes.append(&mut counted);
        self.repeats
            .insert(key, RepeatedEvent { last_written_at: note.at, count: 0, note: note.clone() });
        notes.push(note);
    }

    /// Removes the counters of the subjects in `repeat_resets`.
    fn reset_counters(&mut self) {
        let resets = &self.services.0.repeat_resets;
        let resets = std::mem::take(&mut *resets.lock().unwrap_or_else(PoisonError::into_inner));
        if !resets.is_empty() {
            self.repeats.retain(|(subject, _), _| !resets.contains(subject));
        }
    }

    /// Returns the repetitions that were counted for [`REPEAT_INTERVAL`].
    fn take_due(&mut self, now: Timestamp) -> Vec<EventNote> {
        let mut due = Vec::new();
        self.repeats.retain(|_, repeat| {
            if now.since(repeat.last_written_at) < REPEAT_INTERVAL {
                return true;
            }
            if repeat.count == 0 {
                return false;
            }
            due.push(repeat.take_counted(now));
            true
        });
        due
    }

    async fn write(&mut self, notes: Vec<EventNote>) -> Result<(), store::StoreError> {
        let macs: Vec<Mac> = notes
            .iter()
            .filter_map(|note| match &note.subject {
                EventSubject::Mac(mac) => Some(mac.clone()),
                EventSubject::Node(_) => None,
            })
            .collect();
        let store = self.services.0.store.clone();
        let nodes: HashMap<Mac, NodeId> = if macs.is_empty() {
            HashMap::new()
        } else {
            let ports = store.read(move |reader| reader.boot_ports(&macs)).await?;
            ports.into_iter().map(|BootPort { mac, node_id, .. }| (mac, node_id)).collect()
        };
        let mut entries = Vec::new();
        let mut sightings = Vec::new();
        for note in notes {
            match &note.subject {
                EventSubject::Node(node) => entries.push((*node, note)),
                EventSubject::Mac(mac) => match nodes.get(mac) {
                    Some(node) => entries.push((*node, note)),
                    None => sightings.push(machine_sighting(mac.clone(), &note)),
                },
            }
        }
        entries.retain(|(node, note)| self.may_write(*node, note.at));
        // A fixed order avoids deadlocks between two processes that saw the same machines.
        sightings.sort_by(|one, other| one.mac.cmp(&other.mac));
        store
            .write(move |tx| {
                for (node_id, note) in &entries {
                    tx.append(journal_entry(*node_id, note));
                }
                sightings.iter().try_for_each(|sighting| tx.record_sighting(sighting))
            })
            .await
    }

    /// Counts an entry and returns whether the node's limit for this minute allows it.
    fn may_write(&mut self, node: NodeId, at: Timestamp) -> bool {
        let minute = at.0 / 60_000_000;
        if self.entry_counts.len() >= MAX_CACHED {
            self.entry_counts.clear();
        }
        let (counted_minute, count) = self.entry_counts.entry(node).or_insert((minute, 0));
        if *counted_minute != minute {
            (*counted_minute, *count) = (minute, 0);
        }
        *count += 1;
        *count <= MAX_ENTRIES_PER_MINUTE
    }
}

fn journal_entry(node_id: NodeId, note: &EventNote) -> JournalEntry {
    let address = match (&note.subject, note.ip_address) {
        (EventSubject::Mac(mac), _) => mac.to_string(),
        (EventSubject::Node(_), Some(address)) => address.to_string(),
        (EventSubject::Node(_), None) => String::new(),
    };
    JournalEntry {
        at: note.at,
        node_id,
        actor: Actor::Machine { address },
        event: JournalEvent::NetworkActivity {
            by: note.by.to_owned(),
            text: note.text.clone(),
            times: note.times,
        },
    }
}

fn machine_sighting(mac: Mac, note: &EventNote) -> MachineSighting {
    MachineSighting {
        mac,
        first_seen_at: note.at,
        last_seen_at: note.at,
        times: i64::from(note.times),
        ip_address: note.ip_address.map(|address| address.to_string()),
        interface: note.interface.to_string(),
        architecture: note.architecture.map(str::to_owned),
        last_activity: format!("{}: {}", note.by, note.text),
    }
}

/// Returns the name of the requesting program as shown in timelines.
fn stage_name(stage: BootStage) -> &'static str {
    match stage {
        BootStage::Pxe => "PXE firmware",
        BootStage::HttpBoot => "UEFI HTTP firmware",
        BootStage::Ipxe => "iPXE",
        BootStage::System => "a running system",
    }
}
