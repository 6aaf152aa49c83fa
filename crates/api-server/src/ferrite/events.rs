// SPDX-License-Identifier: Apache-2.0
//! The journal as a stream of server-sent events, and the timeline of a node.
//!
//! Every client has its own position in the journal and continues from there when it is ready. A slow
//! client costs one parked task and a few events of memory. No event is lost: a client that reconnects
//! sends its last position.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use access_policy::{Caller, PolicyTarget};
use authentication::CredentialHeaders;
use bytes::Bytes;
use ironic_wire::{WireError, as_uuid};
use node_model::{JournalEvent, JournalRow, Node, NodeId};
use serde_json::{Value, json};
use store::{JournalQuery, Store};
use tokio::sync::watch;

use super::visible_nodes::allowed_nodes;
use crate::app::App;
use crate::handler;
use crate::ironic::resource::ResourceIdent;
use crate::server::access::CallerAccess;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, EventSender, UNVERSIONED};

/// The rule for the journal entries of a node.
pub(crate) const TIMELINE: &str = "ferrite:node:timeline";
/// Number of entries read by one query.
const BATCH: u32 = 64;
/// Interval of comments in an idle stream, so that proxies keep it open and a lost client is detected.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Maximum duration of a stream: that of a session.
const MAX_STREAM_DURATION: Duration = Duration::from_secs(12 * 3600);
/// Maximum and default number of entries in a page of a timeline.
const MAX_LIMIT: u32 = 1000;
const DEFAULT_LIMIT: u32 = 100;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/ferrite/events", "Follow the journal of all nodes", handler!(events))
        .list("ferrite:journal:list_all", "ferrite:journal:list")
        .since(UNVERSIONED)
        .query(&["after", "node"]),
    ApiRoute::get(
        "/v1/ferrite/nodes/{node}/timeline",
        "Show the timeline of a node",
        handler!(timeline),
    )
    .resource("ferrite:node:timeline")
    .since(UNVERSIONED)
    .query(&["after", "limit", "last"]),
];

async fn events(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["after", "node"])?;
    let position = request.app.store.journal_position();
    // A list for callers of a project is filtered again and again, because nodes change their owner.
    let is_filtered = request.access.list_project(None)?.is_some();
    let node = match request.query_value("node") {
        None => None,
        Some(text) => Some(find_journal_node(&request, text).await?),
    };
    // A client that reconnects sends its last position; a new one starts at the end.
    let after = match (request.last_event_id.as_deref(), request.query_value("after")) {
        (Some(last), _) => parse_sequence("Last-Event-ID", last)?,
        (None, Some(after)) => parse_sequence("after", after)?,
        (None, None) => request.app.store.read(|reader| reader.journal_end()).await?,
    };
    let (response, sender) = ApiResponse::events();
    let stopping = request.app.watch_stopping();
    let client = StreamClient::new(&request);
    let follower = JournalFollower {
        store: request.app.store.clone(),
        access: is_filtered.then(|| request.access.clone()),
        node,
        after,
        position,
        client,
    };
    tokio::spawn(follower.run(sender, stopping));
    Ok(response)
}

/// The query parameter `name` as a number of entries, at most [`MAX_LIMIT`].
pub(crate) fn parse_limit(request: &ApiRequest, name: &str) -> Result<Option<u32>, WireError> {
    match request.query_value(name).map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(count)) if count > 0 => Ok(Some(count.min(MAX_LIMIT))),
        Some(Ok(_) | Err(_)) => Err(WireError::invalid_field(name, "it must be a positive number")),
    }
}

async fn timeline(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&["after", "limit", "last"])?;
    let after = request.query_value("after").map_or(Ok(0), |text| parse_sequence("after", text))?;
    let last = parse_limit(&request, "last")?;
    let limit = last.or(parse_limit(&request, "limit")?).unwrap_or(DEFAULT_LIMIT);
    let node = find_journal_node(&request, request.param("node")).await?;
    let entries = request
        .app
        .store
        .scan(move |reader| {
            let after = match last {
                Some(count) => reader.journal_tail(node, count)?.max(after),
                None => after,
            };
            let query = JournalQuery { node: Some(node), after, limit };
            Ok::<_, ApiError>(reader.journal(&query)?)
        })
        .await?;
    let next = entries
        .last()
        .filter(|_| entries.len() == usize::try_from(limit).unwrap_or(usize::MAX))
        .map(|last| {
            let rest = format!("ferrite/nodes/{node}/timeline?after={}&limit={limit}", last.seq);
            request.link(&rest)
        });
    let mut page = json!({"timeline": entries.iter().map(entry_json).collect::<Vec<_>>()});
    if let Some(next) = next {
        page["next"] = Value::from(next);
    }
    Ok(ApiResponse::ok(page.to_string().into_bytes()))
}

/// The client of a stream. A stream lasts longer than a request, so its authorization is checked again
/// and again.
pub(crate) struct StreamClient {
    app: Arc<App>,
    caller: Caller,
    credentials: CredentialHeaders,
    address: IpAddr,
    since: Instant,
}

impl StreamClient {
    pub(crate) fn new(request: &ApiRequest) -> Self {
        Self {
            app: request.app.clone(),
            caller: request.caller.clone(),
            credentials: request.credentials.clone(),
            address: request.client_address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            since: Instant::now(),
        }
    }

    /// Whether the stream may continue: the credentials are still valid with the same rights, and the
    /// stream is younger than [`MAX_STREAM_DURATION`]. An authorized client reconnects by itself.
    pub(crate) async fn is_authorized(&self) -> bool {
        self.since.elapsed() < MAX_STREAM_DURATION
            && self.app.authenticator.is_still(&self.caller, &self.credentials, self.address).await
    }
}

/// Sends the journal to one client.
struct JournalFollower {
    client: StreamClient,
    store: Store,
    /// Filters the entries; `None` if the client may see all.
    access: Option<CallerAccess>,
    node: Option<NodeId>,
    after: i64,
    position: watch::Receiver<i64>,
}

impl JournalFollower {
    /// Runs until the client disconnects, the server stops or the store fails. In the last case the
    /// client reconnects and continues.
    async fn run(mut self, sender: EventSender, mut stopping: watch::Receiver<bool>) {
        let stopped = async {
            // An error means that the server is gone.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        tokio::select! {
            () = self.follow(&sender) => {}
            () = sender.closed() => {}
            () = stopped => {}
        }
    }

    async fn follow(&mut self, sender: &EventSender) {
        // Some clients report the stream as open only after its first bytes.
        let mut comment = Some(Bytes::from_static(b": following\n\n"));
        loop {
            if let Some(bytes) = comment.take()
                && sender.send(bytes).await.is_err()
            {
                return;
            }
            match self.catch_up(sender).await {
                Ok(FollowProgress::ClientGone) => return,
                Ok(FollowProgress::CaughtUp) => {}
                Err(error) => {
                    tracing::warn!(%error, "reading the journal failed, closing event stream");
                    return;
                }
            }
            match tokio::time::timeout(KEEP_ALIVE, self.position.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => comment = Some(Bytes::from_static(b": heartbeat\n\n")),
            }
            if !self.client.is_authorized().await {
                return;
            }
        }
    }

    /// Sends all entries after the current position.
    async fn catch_up(
        &mut self,
        sender: &EventSender,
    ) -> Result<FollowProgress, store::StoreError> {
        loop {
            // Entries written during the read change the position again, so none is missed.
            self.position.borrow_and_update();
            let query = JournalQuery { node: self.node, after: self.after, limit: BATCH };
            let access = self.access.clone();
            let (batch, allowed) = self
                .store
                .scan(move |reader| {
                    let batch = reader.journal(&query)?;
                    let allowed = match &access {
                        None => None,
                        Some(access) => {
                            let ids = batch.iter().map(|row| row.entry.node_id).collect();
                            Some(allowed_nodes(reader, access, TIMELINE, ids)?)
                        }
                    };
                    Ok::<_, store::StoreError>((batch, allowed))
                })
                .await?;
            let full = batch.len() == usize::try_from(BATCH).unwrap_or(usize::MAX);
            for recorded in &batch {
                let is_allowed = |nodes: &HashSet<NodeId>| nodes.contains(&recorded.entry.node_id);
                if allowed.as_ref().is_none_or(is_allowed)
                    && sender.send(event_bytes(recorded)).await.is_err()
                {
                    return Ok(FollowProgress::ClientGone);
                }
                self.after = recorded.seq;
            }
            if !full {
                return Ok(FollowProgress::CaughtUp);
            }
        }
    }
}

/// Result of sending all entries.
enum FollowProgress {
    CaughtUp,
    ClientGone,
}

fn event_bytes(recorded: &JournalRow) -> Bytes {
    let data = entry_json(recorded);
    let kind = recorded.entry.event.kind();
    // JSON contains no line breaks, so one data line is enough.
    Bytes::from(format!("id: {}\nevent: {kind}\ndata: {data}\n\n", recorded.seq))
}

pub(crate) fn entry_json(recorded: &JournalRow) -> Value {
    let entry = &recorded.entry;
    let mut event = json!(entry.event);
    // The journal stores these timestamps as numbers; the API has text.
    if let JournalEvent::Waiting { until, next_action_at, .. } = &entry.event {
        for (field, time) in [("until", until), ("next_action_at", next_action_at)] {
            if let Some(time) = time {
                event[field] = Value::from(time.to_string());
            }
        }
    }
    json!({
        "seq": recorded.seq,
        "at": entry.at.to_string(),
        "node_uuid": entry.node_id.to_string(),
        "actor": entry.actor,
        "event": event,
    })
}

/// The node whose journal entries are requested. Only callers who may see those of all nodes find
/// those of a deleted one, by UUID.
pub(crate) async fn find_journal_node(
    request: &ApiRequest,
    text: &str,
) -> Result<NodeId, ApiError> {
    let sees_all = request.access.allows("ferrite:journal:list_all", &PolicyTarget::NONE);
    if let Some(uuid) = as_uuid(text).filter(|_| sees_all) {
        return Ok(NodeId(uuid));
    }
    let ident = ResourceIdent::from_text(request, text).with_rule(TIMELINE);
    let node: Node = request.app.store.read(move |reader| ident.find(reader)).await?;
    Ok(node.id)
}

pub(crate) fn parse_sequence(name: &str, text: &str) -> Result<i64, WireError> {
    match text.trim().parse::<i64>() {
        Ok(number) if number >= 0 => Ok(number),
        Ok(_) | Err(_) => {
            Err(WireError::invalid_field(name, "it must be the sequence number of an event"))
        }
    }
}
