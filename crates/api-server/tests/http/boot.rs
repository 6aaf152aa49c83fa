// SPDX-License-Identifier: Apache-2.0
//! The boot-configuration API, as far as it goes without boot services.

use node_model::{NodeId, Port, PortId};

use crate::fixture::{Fixture, NOW};

#[tokio::test]
async fn what_cannot_be_booted_looks_alike() {
    let fixture = Fixture::start().await;
    let node: NodeId = fixture.node("known", |_| {}).await;
    let card = "52:54:00:00:00:01".parse().unwrap();
    let port = Port::new(PortId::random(), node, card, NOW);
    fixture.store.write(move |writer| writer.insert(&port)).await.unwrap();
    let mut answers = Vec::new();
    for path in [
        "52:54:00:00:00:01/boot.ipxe",
        "52-54-00-00-00-01/grub.cfg",
        "52:54:00:00:00:01/nonsense",
        "52:54:00:00:00:02/boot.ipxe",
        "nonsense/boot.ipxe",
    ] {
        let answer = fixture.get(&format!("/v1/boot/{path}"), "").await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
        answers.push(answer.body);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
}
