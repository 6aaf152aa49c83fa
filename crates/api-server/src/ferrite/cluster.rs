// SPDX-License-Identifier: Apache-2.0
//! The processes that share the database: which nodes they manage, how many they work on, and how late
//! they are.
//!
//! Everything is computed from the database, so each process returns the same.

use std::collections::BTreeMap;

use lifecycle::job_limit;
use node_model::{ConductorInfo, JobQueue, Node, Timestamp};
use serde_json::{Value, json};
use store::{Columns, NodeColumn, NodeFilter, ResourcePage, ResourceQuery, StoreReader};

use crate::handler;
use crate::ironic::conductors::is_alive;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/cluster",
    "Show the processes of this service",
    handler!(cluster),
)
.rule("ferrite:cluster:get")
.since(UNVERSIONED)];

async fn cluster(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let (now, timeout) = (request.now(), request.app.config.conductor_timeout);
    let rules = request.app.conductor.rules().clone();
    let read = request.app.store.scan(move |reader| {
        let conductors = reader.conductors()?;
        let is_alive = |info: &ConductorInfo| is_alive(info, now, timeout);
        let loads = ClusterLoad::read(reader, conductors.iter().filter(|it| is_alive(it)), now)?;
        let mut queues = Vec::new();
        for queue in JobQueue::ALL {
            let counts = reader.job_counts(*queue)?;
            queues.push(json!({
                "name": queue.as_str(),
                "running": counts.running,
                "waiting": counts.queued,
                "limit": job_limit(*queue, &rules),
            }));
        }
        let replicas: Vec<Value> = conductors
            .iter()
            .map(|info| replica_body(info, is_alive(info), loads.of(&info.hostname)))
            .collect();
        Ok::<_, ApiError>((replicas, loads.unmanaged, queues))
    });
    let (replicas, unmanaged, queues) = read.await?;
    let clock = request.app.store.clock_status();
    Ok(ApiResponse::ok_value(&json!({
        "replicas": replicas,
        "unmanaged_nodes": unmanaged,
        "queues": queues,
        "shared_database": request.app.store.is_shared(),
        "responder": {
            "hostname": request.app.conductor.hostname(),
            "clock_ahead_seconds": seconds(clock.ahead_micros),
            "clock_beyond_tolerance": clock.beyond_tolerance,
            "waiting_statements": request.app.store.queued_jobs(),
        },
    })))
}

fn replica_body(info: &ConductorInfo, is_alive: bool, load: ReplicaLoad) -> Value {
    let state = match (info.online, is_alive) {
        (true, true) => "online",
        (true, false) => "dead",
        (false, _) => "offline",
    };
    json!({
        "hostname": info.hostname,
        "state": state,
        "version": info.version,
        "conductor_group": info.conductor_group,
        "drivers": info.drivers,
        "registered_at": info.created_at.to_string(),
        "renewed_at": info.updated_at.to_string(),
        "nodes": load.nodes,
        "working": load.working,
        "late": load.late,
        "lag_seconds": seconds(load.lag_micros),
    })
}

fn seconds(micros: i64) -> f64 {
    // Exact for more than 200 years.
    #[expect(clippy::cast_precision_loss)]
    let micros = micros as f64;
    micros / 1e6
}

/// The nodes of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct ReplicaLoad {
    /// Nodes that it manages.
    nodes: u64,
    /// Nodes that it has reserved, because it works on them.
    working: u64,
    /// Nodes that it manages, that are due, and that no process works on.
    late: u64,
    /// For how long the node of `late` is due that has waited longest.
    lag_micros: i64,
}

/// The nodes of all processes.
#[derive(PartialEq, Eq, Debug, Default)]
struct ClusterLoad {
    replicas: BTreeMap<String, ReplicaLoad>,
    /// Nodes whose conductor group or driver no running process has.
    unmanaged: u64,
}

impl ClusterLoad {
    fn read<'a>(
        reader: &mut StoreReader<'_>,
        alive: impl Iterator<Item = &'a ConductorInfo>,
        now: Timestamp,
    ) -> Result<Self, ApiError> {
        let alive: Vec<&ConductorInfo> = alive.collect();
        let query: ResourceQuery<Node> = ResourceQuery {
            filter: NodeFilter::default(),
            page: ResourcePage::default(),
            select: Columns::only(&[
                NodeColumn::Uuid,
                NodeColumn::Driver,
                NodeColumn::ConductorGroup,
                NodeColumn::DueAt,
                NodeColumn::Reservation,
            ]),
        };
        let mut load = Self::default();
        reader.list(&query, |node| load.add(node, &alive, now))?;
        Ok(load)
    }

    fn add(&mut self, node: &Node, alive: &[&ConductorInfo], now: Timestamp) {
        if let Some(holder) = &node.reservation {
            self.replicas.entry(holder.clone()).or_default().working += 1;
        }
        let Some(manager) = conductor::conductor_of(node, alive.iter().copied()) else {
            self.unmanaged += 1;
            return;
        };
        let load = self.replicas.entry(manager.to_owned()).or_default();
        load.nodes += 1;
        let due = node.due_at.filter(|due| *due < now && node.reservation.is_none());
        if let Some(due) = due {
            load.late += 1;
            load.lag_micros = load.lag_micros.max(now.0 - due.0);
        }
    }

    fn of(&self, hostname: &str) -> ReplicaLoad {
        self.replicas.get(hostname).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use node_model::NodeId;

    use super::*;

    fn conductor(hostname: &str, group: &str) -> ConductorInfo {
        ConductorInfo {
            hostname: hostname.to_owned(),
            run: None,
            version: None,
            conductor_group: group.to_owned(),
            drivers: vec!["fake-hardware".to_owned()],
            created_at: Timestamp(0),
            updated_at: Timestamp(0),
            online: true,
        }
    }

    #[test]
    fn counts_the_nodes_of_each_process() {
        let (here, there) = (conductor("here", "left"), conductor("there", "right"));
        let now = Timestamp(10_000_000);
        let mut load = ClusterLoad::default();
        for (group, due, reservation) in [
            ("left", None, None),
            ("left", Some(9_000_000), None),
            ("left", Some(4_000_000), None),
            ("left", Some(11_000_000), None),
            ("right", Some(2_000_000), Some("there")),
            // Reserved by the process that managed it before.
            ("left", Some(1_000_000), Some("there")),
            ("nowhere", Some(1_000_000), None),
        ] {
            let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
            node.conductor_group = group.to_owned();
            node.due_at = due.map(Timestamp);
            node.reservation = reservation.map(str::to_owned);
            load.add(&node, &[&here, &there], now);
        }
        assert_eq!(
            load.of("here"),
            ReplicaLoad { nodes: 5, working: 0, late: 2, lag_micros: 6_000_000 }
        );
        assert_eq!(
            load.of("there"),
            ReplicaLoad { nodes: 1, working: 2, ..ReplicaLoad::default() }
        );
        assert_eq!(load.of("gone"), ReplicaLoad::default());
        assert_eq!(load.unmanaged, 1);
    }
}
