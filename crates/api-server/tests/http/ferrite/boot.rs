// SPDX-License-Identifier: Apache-2.0
//! Boot configuration without boot services.

use node_model::{NodeId, Port, PortId};

use crate::support::fixture::{Fixture, NOW};

#[tokio::test]
async fn all_errors_are_the_same() {
    let fixture = Fixture::start().await;
    let node: NodeId = fixture.node("known", |_| {}).await;
    let mac = "52:54:00:00:00:01".parse().unwrap();
    let port = Port::new(PortId::random(), node, mac, NOW);
    fixture.store.write(move |writer| writer.insert(&port)).await.unwrap();
    let mut responses = Vec::new();
    for path in [
        "52:54:00:00:00:01/boot.ipxe",
        "52-54-00-00-00-01/grub.cfg",
        "52:54:00:00:00:01/nonsense",
        "52:54:00:00:00:02/boot.ipxe",
        "nonsense/boot.ipxe",
    ] {
        let response = fixture.get(&format!("/v1/boot/{path}"), "").await;
        assert_eq!(response.status, 404, "{path}: {}", response.body);
        responses.push(response.body);
    }
    responses.dedup();
    assert_eq!(responses.len(), 1, "{responses:?}");
}
