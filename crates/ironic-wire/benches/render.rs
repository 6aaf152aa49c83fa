// SPDX-License-Identifier: Apache-2.0
//! Benchmark of rendering nodes as JSON, with the fields of the default list and with all fields.
//!
//! Run with `cargo bench -p ironic-wire`. Prints nanoseconds per node.

#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::hint::black_box;
use std::time::Instant;

use ironic_wire::{ApiVersion, FieldSelection, JsonWriter, RenderContext};
use node_model::{InterfaceKind, JsonObject, Node, NodeId, PowerState, Timestamp};

const NODES: usize = 1_000;
const ROUNDS: usize = 200;

fn main() {
    let nodes: Vec<Node> = (0..NODES).map(typical_node).collect();
    let version = ApiVersion::MAX;
    measure("default list", &nodes, &FieldSelection::default_list(version));
    measure("detail", &nodes, &FieldSelection::detail(version));
}

fn measure(what: &str, nodes: &[Node], selection: &FieldSelection<Node>) {
    let conductor_of = |_: &Node| Some("conductor-1");
    let context =
        RenderContext::new(ApiVersion::MAX, "http://127.0.0.1:6385").with_conductors(&conductor_of);
    let mut best = f64::INFINITY;
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let mut writer = JsonWriter::with_capacity(4 << 20);
        let start = Instant::now();
        for node in black_box(nodes) {
            selection.write(&mut writer, node, &context);
        }
        let took = start.elapsed().as_secs_f64();
        bytes = black_box(writer.into_bytes()).len();
        best = best.min(took);
    }
    let per_node = best * 1e9 / nodes.len() as f64;
    println!("{what}: {per_node:.0} ns/node, {} bytes/node", bytes / nodes.len());
}

fn typical_node(number: usize) -> Node {
    let mut node = Node::new(NodeId::random(), "redfish", Timestamp(1_795_001_049_123_456));
    node.name = Some(format!("node-{number}"));
    node.power_state = Some(PowerState::On);
    node.updated_at = Some(Timestamp(1_795_001_050_654_321));
    node.provision_updated_at = Some(Timestamp(1_795_001_050_654_321));
    for kind in InterfaceKind::ALL {
        node.interfaces.set(*kind, Some("redfish"));
    }
    node.driver_info = JsonObject::from_stored(
        r#"{"redfish_address":"https://10.0.0.1","redfish_username":"admin","redfish_password":"******","deploy_kernel":"http://10.0.0.2/kernel","deploy_ramdisk":"http://10.0.0.2/ramdisk"}"#,
    );
    node.properties = JsonObject::from_stored(
        r#"{"cpus":64,"memory_mb":262144,"local_gb":960,"cpu_arch":"x86_64","capabilities":"boot_mode:uefi"}"#,
    );
    node.resource_class = Some("baremetal".to_owned());
    node
}
