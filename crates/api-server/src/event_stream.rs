// SPDX-License-Identifier: Apache-2.0
//! The journal as a stream of server-sent events, and a node's part of it as a page.
//!
//! Every client has its own place in the journal and reads on from there when it is ready for
//! more, so a slow client costs one parked task and a few events of memory, and nobody misses
//! anything: whoever reconnects says where it stopped.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ironic_wire::{WireError, as_uuid};
use node_model::{Happening, Node, NodeId, Recorded};
use serde_json::{Value, json};
use store::{JournalQuery, Store};
use tokio::sync::watch;

use crate::app::App;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::{EventSender, Reply};
use crate::routes::{Route, UNVERSIONED};

/// How many entries are read at a time.
const BATCH: u32 = 64;
/// How often a silent stream shows that it lives, so that proxies keep it open and the loss of a
/// client is noticed.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a stream may last: as a session does.
const LONGEST_STREAM: Duration = Duration::from_secs(12 * 3600);
/// How many entries a page of a timeline has at most, and when nothing is said.
const LONGEST_PAGE: u32 = 1000;
const USUAL_PAGE: u32 = 100;

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/ferrite/events", "Follow everything that happens", handler!(events))
        .since(UNVERSIONED)
        .query(&["after", "node"]),
    Route::get(
        "/v1/ferrite/nodes/{node}/timeline",
        "Show what happened to a node, when, by whom and why",
        handler!(timeline),
    )
    .since(UNVERSIONED)
    .query(&["after", "limit", "last"]),
];

async fn events(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["after", "node"])?;
    let position = call.app.store.journal_position();
    let node = match call.query_value("node") {
        None => None,
        Some(text) => Some(find_node(&call, text).await?),
    };
    // A client that was here before tells where it stopped, the rest start with what comes next.
    let after = match (call.last_event_id.as_deref(), call.query_value("after")) {
        (Some(seen), _) => sequence("Last-Event-ID", seen)?,
        (None, Some(after)) => sequence("after", after)?,
        (None, None) => call.app.store.read(|reader| reader.journal_end()).await?,
    };
    let (reply, sender) = Reply::events();
    let stopping = call.app.watch_stopping();
    let listener = Listener::of(&call);
    let follower = Follower { store: call.app.store.clone(), node, after, position, listener };
    tokio::spawn(follower.run(sender, stopping));
    Ok(reply)
}

/// How many entries are asked for under `name`, if it is said.
pub(crate) fn page_length(call: &Call, name: &str) -> Result<Option<u32>, WireError> {
    match call.query_value(name).map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(count)) if count > 0 => Ok(Some(count.min(LONGEST_PAGE))),
        Some(Ok(_) | Err(_)) => Err(WireError::invalid_field(name, "it must be a positive number")),
    }
}

async fn timeline(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &["after", "limit", "last"])?;
    let after = call.query_value("after").map_or(Ok(0), |text| sequence("after", text))?;
    let last = page_length(&call, "last")?;
    let limit = last.or(page_length(&call, "limit")?).unwrap_or(USUAL_PAGE);
    let node = find_node(&call, call.param("node")).await?;
    let entries = call
        .app
        .store
        .scan(move |reader| {
            let after = match last {
                Some(count) => reader.journal_tail(node, count)?.max(after),
                None => after,
            };
            let query = JournalQuery { node: Some(node), after, limit };
            Ok::<_, Refusal>(reader.journal(&query)?)
        })
        .await?;
    let next = entries
        .last()
        .filter(|_| entries.len() == usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|last| {
            let rest = format!("ferrite/nodes/{node}/timeline?after={}&limit={limit}", last.seq);
            call.link(&rest)
        });
    let mut page = json!({"timeline": entries.iter().map(entry_json).collect::<Vec<_>>()});
    if let Some(next) = next {
        page["next"] = Value::from(next);
    }
    Ok(Reply::ok(page.to_string().into_bytes()))
}

/// Who listens. A stream lasts longer than a look at who opens it.
pub(crate) struct Listener {
    app: Arc<App>,
    /// Their name and the hash of their password, where there are users.
    user: Option<(String, String)>,
    since: Instant,
}

impl Listener {
    pub(crate) fn of(call: &Call) -> Self {
        let hash = |name: &str| Some((name.to_owned(), call.app.authenticator.hash_of(name)?));
        let user = call.identity.name().and_then(hash);
        Self { app: call.app.clone(), user, since: Instant::now() }
    }

    /// Whether they may go on: nobody removed the user or changed the password, and a session that
    /// began with the stream would not be over. Who may comes back by itself.
    pub(crate) fn may_go_on(&self) -> bool {
        let same = self
            .user
            .as_ref()
            .is_none_or(|(name, hash)| self.app.authenticator.hash_of(name).as_ref() == Some(hash));
        same && self.since.elapsed() < LONGEST_STREAM
    }
}

/// Reads the journal for one client.
struct Follower {
    listener: Listener,
    store: Store,
    node: Option<NodeId>,
    after: i64,
    position: watch::Receiver<i64>,
}

impl Follower {
    /// Runs until the client goes away, the server stops or the store fails. In the last case the
    /// client reconnects and goes on from where it was.
    async fn run(mut self, sender: EventSender, mut stopping: watch::Receiver<bool>) {
        let stopped = async {
            // Also over when the server is gone altogether.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            () = self.follow(&sender) => {}
            () = sender.closed() => {}
            () = stopped => {}
        }
    }

    async fn follow(&mut self, sender: &EventSender) {
        // Opens the stream for clients that wait for its first bytes.
        let mut sign_of_life = Some(Bytes::from_static(b": following\n\n"));
        loop {
            if let Some(bytes) = sign_of_life.take()
                && sender.send(bytes).await.is_err()
            {
                return;
            }
            match self.catch_up(sender).await {
                Ok(Progress::ClientGone) => return,
                Ok(Progress::AtTheEnd) => {}
                Err(error) => {
                    tracing::warn!(%error, "an event stream ends because the journal cannot be read");
                    return;
                }
            }
            match tokio::time::timeout(HEARTBEAT, self.position.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => sign_of_life = Some(Bytes::from_static(b": heartbeat\n\n")),
            }
            if !self.listener.may_go_on() {
                return;
            }
        }
    }

    /// Sends everything there is after the place reached.
    async fn catch_up(&mut self, sender: &EventSender) -> Result<Progress, store::Error> {
        loop {
            // What comes while we read moves the position again, so nothing is slept through.
            self.position.borrow_and_update();
            let query = JournalQuery { node: self.node, after: self.after, limit: BATCH };
            let batch = self.store.scan(move |reader| reader.journal(&query)).await?;
            let full = batch.len() == usize::try_from(BATCH).unwrap_or(usize::MAX);
            for recorded in &batch {
                if sender.send(event_bytes(recorded)).await.is_err() {
                    return Ok(Progress::ClientGone);
                }
                self.after = recorded.seq;
            }
            if !full {
                return Ok(Progress::AtTheEnd);
            }
        }
    }
}

/// How a client stands after what there was to send.
enum Progress {
    AtTheEnd,
    ClientGone,
}

fn event_bytes(recorded: &Recorded) -> Bytes {
    let data = entry_json(recorded);
    let kind = data["what"]["kind"].as_str().unwrap_or("entry");
    // JSON text has no line breaks, so one data line holds it.
    Bytes::from(format!("id: {}\nevent: {kind}\ndata: {data}\n\n", recorded.seq))
}

pub(crate) fn entry_json(recorded: &Recorded) -> Value {
    let entry = &recorded.entry;
    let mut what = json!(entry.what);
    // The journal keeps moments as numbers; readers get them all in the same form.
    if let Happening::Waiting { until: Some(until), .. } = &entry.what {
        what["until"] = Value::from(until.to_string());
    }
    json!({
        "seq": recorded.seq,
        "at": entry.at.to_string(),
        "node_uuid": entry.node_id.to_string(),
        "who": entry.actor,
        "what": what,
    })
}

pub(crate) async fn find_node(call: &Call, text: &str) -> Result<NodeId, Refusal> {
    // The timeline of a node outlives it, but then only its UUID still names it.
    if let Some(uuid) = as_uuid(text) {
        return Ok(NodeId(uuid));
    }
    let ident = Ident::of_text(call, text);
    let node: Node = call.app.store.read(move |reader| ident.find(reader)).await?;
    Ok(node.id)
}

pub(crate) fn sequence(name: &str, text: &str) -> Result<i64, WireError> {
    match text.trim().parse::<i64>() {
        Ok(number) if number >= 0 => Ok(number),
        Ok(_) | Err(_) => Err(WireError::invalid_field(name, "it must be the number of an event")),
    }
}
