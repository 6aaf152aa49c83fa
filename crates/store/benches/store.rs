// SPDX-License-Identifier: Apache-2.0
//! Benchmark of the store on SQLite: CPU and wall time per operation, compared with a budget.
//!
//! `cargo bench -p store` prints a table. CPU time is of the whole process, including the writer thread.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a program that prints a table"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use node_model::{AgentInfo, Mac, Node, NodeId, Port, Timestamp};
use serde_json::json;
use store::{
    Columns, NodeColumn, NodeSecrets, ResourcePage, ResourceQuery, SqliteSynchronous, Store,
    StoreError, StoreSettings, StoreWriter,
};
use tokio::runtime::Runtime;

const NODES: usize = 10_000;
const CONCURRENT_WRITES: usize = 32;

fn main() {
    for synchronous in [SqliteSynchronous::Full, SqliteSynchronous::Normal] {
        println!("--- {synchronous:?}, {NODES} nodes, {CONCURRENT_WRITES} writes at once");
        bench(synchronous);
    }
}

fn bench(synchronous: SqliteSynchronous) {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = StoreSettings::in_dir(dir.path());
    settings.synchronous = synchronous;
    let store =
        Store::open_with_clock(&settings, Arc::new(|| Timestamp(1_800_000_000_000_000))).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let ids: Vec<NodeId> = (0..NODES).map(|_| NodeId::random()).collect();

    let list = ids.clone();
    writes(&runtime, &store, "insert (sealed)", 60.0, NODES, move |w, i| {
        let mut node = typical(list[i], i);
        w.seal_node(&mut node, secrets(i))?;
        w.insert(&node)
    });
    let list = ids.clone();
    writes(&runtime, &store, "insert port", 60.0, NODES, move |w, i| w.insert(&port(list[i], i)));
    let list = ids.clone();
    writes(&runtime, &store, "load + save", 60.0, NODES, move |w, i| {
        let mut node = w.get(list[i * 7919 % NODES])?.ok_or(StoreError::Missing)?;
        node.extra.set("unit", i);
        w.save(&mut node)
    });
    let list = ids.clone();
    writes(&runtime, &store, "update_agent", 30.0, NODES, move |w, i| {
        let agent = AgentInfo {
            url: Some("https://10.0.0.1:9999".to_owned()),
            version: Some("11.0.0".to_owned()),
            last_heartbeat: Some(Timestamp(i64::try_from(i).unwrap_or(0))),
            ..AgentInfo::default()
        };
        w.update_agent(list[i * 7919 % NODES], &agent, Some(Timestamp(5)))
    });
    let list = ids.clone();
    reads(&runtime, "point read", 10.0, 100_000, 1, |i| {
        let id = list[i * 7919 % NODES];
        let store = store.clone();
        async move { store.read(move |r| r.get(id)).await.map(drop) }
    });
    reads(&runtime, "read by name", 10.0, 50_000, 1, |i| {
        let name = format!("n-bench-{}", i % NODES);
        let store = store.clone();
        async move { store.read(move |r| r.find::<Node>(NodeColumn::Name, &name)).await.map(drop) }
    });
    for (what, budget, select) in [
        ("list of 1000, default", 1.5, default_columns()),
        ("list of 1000, all", 5.0, Columns::ALL),
    ] {
        let marker = ids[NODES / 2].0;
        reads(&runtime, what, budget, 500, 1000, |_| {
            let store = store.clone();
            let page =
                ResourcePage { limit: Some(1000), marker: Some(marker), ..ResourcePage::default() };
            let query = ResourceQuery::<Node> { page, select, ..ResourceQuery::default() };
            async move {
                store
                    .read(move |r| {
                        let mut bytes = 0;
                        r.list(&query, |node| bytes += node.extra.as_str().len())?;
                        Ok(bytes)
                    })
                    .await
                    .map(drop)
            }
        });
    }
    let list = ids;
    writes(&runtime, &store, "delete (with port)", 60.0, NODES / 2, move |w, i| {
        w.delete(list[i]).map(drop)
    });
    store.close();
}

/// Runs concurrent writes and prints the cost of each.
fn writes(
    runtime: &Runtime,
    store: &Store,
    what: &str,
    budget: f64,
    count: usize,
    write: impl Fn(&mut StoreWriter<'_>, usize) -> Result<(), StoreError> + Send + Sync + 'static,
) {
    let write = Arc::new(write);
    measure(what, budget, count, || {
        runtime.block_on(async {
            let tasks: Vec<_> = (0..CONCURRENT_WRITES)
                .map(|first| {
                    let (store, write) = (store.clone(), Arc::clone(&write));
                    tokio::spawn(async move {
                        for number in (first..count).step_by(CONCURRENT_WRITES) {
                            let write = Arc::clone(&write);
                            store
                                .write(move |w| write(w, number))
                                .await
                                .unwrap_or_else(|error| panic!("{error:?}"));
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    });
}

fn reads<F: Future<Output = Result<(), StoreError>>>(
    runtime: &Runtime,
    what: &str,
    budget: f64,
    times: usize,
    rows: usize,
    read: impl Fn(usize) -> F,
) {
    measure(what, budget, times * rows, || {
        runtime.block_on(async {
            for number in 0..times {
                read(number).await.unwrap();
            }
        });
    });
}

fn measure(what: &str, budget: f64, count: usize, work: impl FnOnce()) {
    let (cpu, wall) = (cpu(), Instant::now());
    work();
    let per = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    let (cpu, wall) = (per(self::cpu() - cpu), per(wall.elapsed()));
    let over_budget = if cpu <= budget { "" } else { "  OVER" };
    println!("{what:<24} {cpu:7.2} us cpu  {wall:7.2} us wall  (budget {budget}){over_budget}");
}

/// CPU time of this process so far, in ticks of 10 ms.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn default_columns() -> Columns<Node> {
    Columns::only(&[
        NodeColumn::Uuid,
        NodeColumn::Name,
        NodeColumn::InstanceUuid,
        NodeColumn::PowerState,
        NodeColumn::ProvisionState,
        NodeColumn::Maintenance,
    ])
}

fn typical(id: NodeId, i: usize) -> Node {
    let mut node = Node::new(id, "fake-hardware", Timestamp(1));
    node.name = Some(format!("n-bench-{i}"));
    node.resource_class = Some(format!("bm.{}", i % 8));
    node.owner = Some(format!("owner-{}", i % 10));
    node.description = Some(format!("bench node {i}"));
    node.properties =
        json!({"cpus": 64, "memory_mb": 262_144, "local_gb": 1862, "cpu_arch": "x86_64",
        "capabilities": "boot_mode:uefi,secure_boot:true", "vendor": "acme"})
        .as_object()
        .cloned()
        .unwrap()
        .into();
    node.extra =
        json!({"rack": format!("r{:02}", i / 40), "unit": i % 40, "serial": format!("SN{i:08}")})
            .as_object()
            .cloned()
            .unwrap()
            .into();
    for kind in node_model::InterfaceKind::ALL {
        node.interfaces.set(*kind, Some("fake"));
    }
    node
}

fn secrets(i: usize) -> NodeSecrets {
    let driver_info = json!({"ipmi_address": format!("10.100.{}.{}", i >> 8 & 255, i & 255), "ipmi_username": "admin",
        "ipmi_password": "secret", "deploy_kernel": "http://10.0.0.1/ipa.kernel",
        "deploy_ramdisk": "http://10.0.0.1/ipa.initramfs"});
    NodeSecrets { driver_info: driver_info.as_object().cloned().unwrap(), ..NodeSecrets::default() }
}

fn port(node: NodeId, i: usize) -> Port {
    let address: Mac =
        format!("52:54:{:02x}:{:02x}:{:02x}:01", i >> 16 & 255, i >> 8 & 255, i & 255)
            .parse()
            .unwrap();
    Port {
        id: node_model::PortId::random(),
        created_at: Timestamp(1),
        updated_at: None,
        node_id: node,
        address,
        name: None,
        description: None,
        pxe_enabled: true,
        local_link_connection:
            json!({"switch_id": "aa:bb:cc:dd:ee:ff", "port_id": "Gi1/1", "switch_info": "tor"})
                .as_object()
                .cloned()
                .unwrap()
                .into(),
        portgroup_id: None,
        physical_network: None,
        is_smartnic: false,
        vendor: None,
        category: None,
        available_for_dynamic_portgroup: false,
        extra: node_model::JsonObject::empty(),
        internal_info: node_model::JsonObject::empty(),
    }
}
