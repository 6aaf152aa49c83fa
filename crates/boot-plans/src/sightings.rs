// SPDX-License-Identifier: Apache-2.0
//! What machines ask for on their way, told to their timelines; strangers are remembered apart.
//!
//! Servers hand over what they see and go on. What was seen is written in portions, and what
//! repeats is counted rather than told again: a BMC reads a CD in thousands of pieces.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use boot_server::{Sighting, Sightings, Stage, What};
use node_model::{Actor, BootCard, Happening, JournalEntry, Mac, NodeId, StrangerSeen, Timestamp};
use tokio::sync::mpsc;

use crate::answers::mac;
use crate::services::{BootServices, Fresh};

mod words;

/// How much may wait to be written. Beyond that it is dropped, and how much is told in the log.
const QUEUE: usize = 8192;
/// How long portions are gathered.
const GATHERED: Duration = Duration::from_millis(200);
/// For how long the same is counted instead of told again.
const COUNTED: Duration = Duration::from_secs(30);
/// The most entries for one machine in a minute.
const PER_MINUTE: u32 = 200;
/// The most addresses and repetitions that are remembered.
const REMEMBERED: usize = 100_000;

/// The length of a plan's key: 32 bytes in base64.
const KEY_LENGTH: usize = 43;

/// Takes what servers see.
#[derive(Debug)]
pub struct Witness {
    sender: mpsc::Sender<Sighting>,
    lost: Arc<AtomicU64>,
}

impl Sightings for Witness {
    fn seen(&self, sighting: Sighting) {
        if self.sender.try_send(sighting).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl BootServices {
    /// A witness, and the task that writes down what it sees; the task ends with the witness.
    pub fn witness(&self) -> (Witness, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let lost = Arc::new(AtomicU64::new(0));
        let scribe = Scribe {
            services: self.clone(),
            lost: Arc::clone(&lost),
            cards: HashMap::new(),
            repeats: HashMap::new(),
            written: HashMap::new(),
        };
        (Witness { sender, lost }, scribe.run(receiver))
    }
}

/// Writes down what was seen.
struct Scribe {
    services: BootServices,
    lost: Arc<AtomicU64>,
    /// The card behind an address, as DHCP told it.
    cards: HashMap<IpAddr, Mac>,
    repeats: HashMap<(Who, String), Repeat>,
    /// How many entries each machine got in which minute.
    written: HashMap<NodeId, (i64, u32)>,
}

/// Whom something was seen of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    Node(NodeId),
    Card(Mac),
}

/// How often the same was seen since it was last told.
struct Repeat {
    since: Timestamp,
    held: u32,
    note: Note,
}

/// Something seen, in words.
#[derive(Debug, Clone)]
struct Note {
    at: Timestamp,
    who: Who,
    by: &'static str,
    text: String,
    times: u32,
    interface: Arc<str>,
    ip_address: Option<IpAddr>,
    architecture: Option<&'static str>,
}

impl Repeat {
    /// What was counted, to be told at `now`; counting starts anew.
    fn told(&mut self, now: Timestamp) -> Note {
        self.since = now;
        Note { times: std::mem::take(&mut self.held), ..self.note.clone() }
    }
}

impl Scribe {
    async fn run(mut self, mut receiver: mpsc::Receiver<Sighting>) {
        let mut portion = Vec::new();
        loop {
            portion.clear();
            tokio::select! {
                received = receiver.recv_many(&mut portion, 1024) => {
                    if received == 0 {
                        break;
                    }
                }
                () = tokio::time::sleep(COUNTED / 6) => {}
            }
            self.take(&portion).await;
            let lost = self.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                tracing::warn!(
                    lost,
                    "more was seen of booting machines than could be written down"
                );
            }
            tokio::time::sleep(GATHERED).await;
        }
        // Nobody sees any more: what was counted is told before the end.
        let rest = self.repeats.values_mut().filter(|repeat| repeat.held > 0);
        let mut rest: Vec<Note> = rest.map(|repeat| repeat.told(repeat.since)).collect();
        rest.sort_by_key(|note| note.at);
        self.write_or_warn(rest).await;
    }

    async fn take(&mut self, portion: &[Sighting]) {
        let now = self.services.0.now();
        self.forget_past();
        let mut notes = self.over(now);
        for sighting in portion {
            if let Some(note) = self.note(sighting).await {
                self.tell_or_count(note, &mut notes);
            }
        }
        self.write_or_warn(notes).await;
    }

    async fn write_or_warn(&mut self, notes: Vec<Note>) {
        if notes.is_empty() {
            return;
        }
        if let Err(error) = self.write(notes).await {
            tracing::warn!(%error, "what was seen of booting machines could not be written down");
        }
    }

    /// The sighting in words, and whom it is of. None if nobody can be named.
    async fn note(&mut self, sighting: &Sighting) -> Option<Note> {
        let card = sighting.hardware.and_then(mac);
        if let (Some(card), Some(address)) = (&card, sighting.address) {
            if self.cards.len() >= REMEMBERED {
                self.cards.clear();
            }
            self.cards.insert(address, card.clone());
        }
        let (by, text) = words::of(sighting)?;
        let who = self.who(sighting, card).await?;
        Some(Note {
            at: sighting.at,
            who,
            by,
            text,
            times: 1,
            interface: Arc::clone(&sighting.interface),
            ip_address: sighting.address,
            architecture: sighting.architecture.map(words::architecture),
        })
    }

    async fn who(&self, sighting: &Sighting, card: Option<Mac>) -> Option<Who> {
        if let Some(node) = sighting.subject.as_ref().and_then(|subject| subject.parse().ok()) {
            return Some(Who::Node(NodeId(node)));
        }
        if let Some(card) = card {
            return Some(Who::Card(card));
        }
        if let What::Tftp { file, .. } = &sighting.what {
            if let Some(card) = words::card_in(file) {
                return Some(Who::Card(card));
            }
            if let Some((key, _)) = file.trim_start_matches('/').split_once('/')
                && key.len() == KEY_LENGTH
                && let Ok(Some(plan)) = self.services.plan_by_key(key).await
            {
                return Some(Who::Node(plan.node_id));
            }
        }
        self.cards.get(&sighting.address?).cloned().map(Who::Card)
    }

    /// Tells the note, or only counts it if the same was told lately. Before something new is told
    /// of a machine, what was counted of it is, so that its story stays in order.
    fn tell_or_count(&mut self, note: Note, notes: &mut Vec<Note>) {
        let key = (note.who.clone(), note.text.clone());
        if let Some(repeat) = self.repeats.get_mut(&key) {
            repeat.held += 1;
            repeat.note.at = note.at;
            return;
        }
        if self.repeats.len() >= REMEMBERED {
            self.repeats.clear();
        }
        let mut before: Vec<Note> = self
            .repeats
            .iter_mut()
            .filter(|((who, _), repeat)| *who == note.who && repeat.held > 0)
            .map(|(_, repeat)| repeat.told(note.at))
            .collect();
        before.sort_by_key(|told| told.at);
        notes.append(&mut before);
        self.repeats.insert(key, Repeat { since: note.at, held: 0, note: note.clone() });
        notes.push(note);
    }

    /// Forgets what was counted of those of whom everything is new.
    fn forget_past(&mut self) {
        let fresh = &self.services.0.fresh;
        let fresh = std::mem::take(&mut *fresh.lock().unwrap_or_else(PoisonError::into_inner));
        if fresh.is_empty() {
            return;
        }
        self.repeats.retain(|(who, _), _| {
            !fresh.iter().any(|it| match (who, it) {
                (Who::Node(seen), Fresh::Node(node)) => seen == node,
                (Who::Card(seen), Fresh::Card(card)) => seen == card,
                (Who::Node(_), Fresh::Card(_)) | (Who::Card(_), Fresh::Node(_)) => false,
            })
        });
    }

    /// What was counted for long enough.
    fn over(&mut self, now: Timestamp) -> Vec<Note> {
        let mut told = Vec::new();
        self.repeats.retain(|_, repeat| {
            if now.since(repeat.since) < COUNTED {
                return true;
            }
            if repeat.held == 0 {
                return false;
            }
            told.push(repeat.told(now));
            true
        });
        told
    }

    async fn write(&mut self, notes: Vec<Note>) -> Result<(), store::Error> {
        let cards: Vec<Mac> = notes
            .iter()
            .filter_map(|note| match &note.who {
                Who::Card(card) => Some(card.clone()),
                Who::Node(_) => None,
            })
            .collect();
        let store = self.services.0.store.clone();
        let known: HashMap<Mac, NodeId> = if cards.is_empty() {
            HashMap::new()
        } else {
            let found = store.read(move |reader| reader.boot_cards(&cards)).await?;
            found.into_iter().map(|BootCard { address, node_id, .. }| (address, node_id)).collect()
        };
        let mut entries = Vec::new();
        let mut strangers = Vec::new();
        for note in notes {
            match &note.who {
                Who::Node(node) => entries.push((*node, note)),
                Who::Card(card) => match known.get(card) {
                    Some(node) => entries.push((*node, note)),
                    None => strangers.push(stranger(card.clone(), &note)),
                },
            }
        }
        entries.retain(|(node, note)| self.may_write(*node, note.at));
        // In one order everywhere, so that two processes that saw the same do not wait for each other.
        strangers.sort_by(|one, other| one.address.cmp(&other.address));
        store
            .write(move |tx| {
                for (node_id, note) in &entries {
                    tx.append(entry(*node_id, note));
                }
                strangers.iter().try_for_each(|seen| tx.see_stranger(seen))
            })
            .await
    }

    /// Whether another entry for the machine is let through in this minute.
    fn may_write(&mut self, node: NodeId, at: Timestamp) -> bool {
        let minute = at.0 / 60_000_000;
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        let (of, count) = self.written.entry(node).or_insert((minute, 0));
        if *of != minute {
            (*of, *count) = (minute, 0);
        }
        *count += 1;
        *count <= PER_MINUTE
    }
}

fn entry(node_id: NodeId, note: &Note) -> JournalEntry {
    let address = match (&note.who, note.ip_address) {
        (Who::Card(card), _) => card.to_string(),
        (Who::Node(_), Some(address)) => address.to_string(),
        (Who::Node(_), None) => String::new(),
    };
    JournalEntry {
        at: note.at,
        node_id,
        actor: Actor::Machine { address },
        what: Happening::Seen {
            by: note.by.to_owned(),
            text: note.text.clone(),
            times: note.times,
        },
    }
}

fn stranger(address: Mac, note: &Note) -> StrangerSeen {
    StrangerSeen {
        address,
        first_seen_at: note.at,
        last_seen_at: note.at,
        times: i64::from(note.times),
        ip_address: note.ip_address.map(|address| address.to_string()),
        interface: note.interface.to_string(),
        architecture: note.architecture.map(str::to_owned),
        last: format!("{}: {}", note.by, note.text),
    }
}

/// The program that asks, for people.
fn program(stage: Stage) -> &'static str {
    match stage {
        Stage::Pxe => "firmware, by PXE",
        Stage::HttpBoot => "firmware, by HTTP",
        Stage::Ipxe => "iPXE",
        Stage::System => "a running system",
    }
}
