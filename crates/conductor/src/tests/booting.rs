// SPDX-License-Identifier: Apache-2.0
//! Machines that are booted again because their agent stays silent, and what is learnt from it.

use std::time::Duration;

use node_model::{
    BootImage, BootPlan, BootPurpose, BootSystem, BootWay, Happening, InterfaceKind, NodeId,
    ProvisionState, Secret, Timestamp, Verb,
};
use serde_json::{Value, json};

use super::House;
use crate::{Heartbeat, Lookup};

const MODEL: &str = "acme";

/// A machine that waits for the agent in a job, with this boot interface.
async fn waiting(house: &House, boot: &'static str, verb: Verb, driver_info: Value) -> NodeId {
    let id = house
        .node_with(ProvisionState::Manageable, driver_info, |node| {
            node.interfaces.set(InterfaceKind::Boot, Some(boot));
            node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
            node.properties.set("vendor", MODEL);
        })
        .await;
    house.through(id, verb).await;
    id
}

/// What is known about booting the model, as `way worked/failed`.
async fn known(house: &House) -> Vec<String> {
    let known = house.store.read(|reader| reader.boot_experience(MODEL)).await.unwrap();
    known.iter().map(|known| format!("{} {}/{}", known.way, known.worked, known.failed)).collect()
}

/// What the timeline says about booting again.
async fn told(house: &House, id: NodeId) -> Vec<String> {
    let mut told = Vec::new();
    for recorded in house.journal(id).await {
        if let Happening::Noted { by, text } = recorded.entry.what
            && by == "boot"
        {
            told.push(text);
        }
    }
    told
}

async fn plan(house: &House, id: NodeId, way: BootWay) {
    let image =
        |source: &str| BootImage { source: source.to_owned(), checksum: None, pull_secret: None };
    let plan = BootPlan {
        node_id: id,
        purpose: BootPurpose::DeployRamdisk,
        way,
        system: BootSystem::Iso { image: image("http://h/i") },
        key: id.to_string(),
        config_drive: None,
        installer: None,
        made_at: Timestamp(0),
        expires_at: None,
    };
    house.store.write(move |tx| tx.set_boot_plan(&plan)).await.unwrap();
}

fn lookup(id: NodeId) -> Lookup {
    Lookup { node: Some(id), macs: Vec::new(), request_id: "req-agent".to_owned() }
}

#[tokio::test]
async fn every_way_is_tried_and_the_error_lists_them() {
    let house = House::new();
    let id = waiting(&house, "automatic", Verb::Inspect, json!({})).await;
    let way = async || house.get(id).await.driver_internal_info.get_str("boot_way");
    assert_eq!(way().await.as_deref(), Some("http"));
    for (again, failed) in [("ipxe", "http 0/1"), ("pxe", "ipxe 0/1"), ("http-ipxe", "pxe 0/1")] {
        house.pass(Duration::from_secs(599));
        house.work(id).await;
        assert_ne!(way().await.as_deref(), Some(again), "too early");
        house.pass(Duration::from_secs(1));
        assert_eq!(house.get(id).await.due_at, Some(house.conductor.now()));
        assert_eq!(house.work(id).await, ProvisionState::InspectWait);
        assert_eq!(way().await.as_deref(), Some(again));
        assert!(known(&house).await.contains(&failed.to_owned()), "{:?}", known(&house).await);
    }
    // There is no other way: the last gets its whole time, and the same again.
    for _ in 0..3 {
        assert_eq!(house.get(id).await.provision_state, ProvisionState::InspectWait);
        house.pass(Duration::from_secs(600));
        house.work(id).await;
    }
    let node = house.get(id).await;
    assert_eq!(node.provision_state, ProvisionState::InspectFail);
    let error = node.last_error.unwrap();
    assert!(error.contains("booted 6 times; tried: http, ipxe, pxe, http-ipxe;"), "{error}");
    assert_eq!(node.driver_internal_info.get("boot_way"), None);
    assert_eq!(node.driver_internal_info.get("boot_ways_tried"), None);
    assert_eq!(known(&house).await, ["http 0/1", "http-ipxe 0/1", "ipxe 0/1", "pxe 0/1"]);
    let told = told(&house, id).await;
    assert_eq!(
        told[0],
        "the agent did not call within 600 s of booting by http; booting again by ipxe"
    );
    assert_eq!(told.len(), 5);
}

#[tokio::test]
async fn what_brought_the_agent_up_is_remembered_once() {
    let house = House::new();
    let info = json!({"fake_wait_for_agent": true});
    let id = waiting(&house, "ipxe", Verb::Provide, info).await;
    assert_eq!(house.get(id).await.provision_state, ProvisionState::CleanWait);
    plan(&house, id, BootWay::Ipxe).await;
    let token = house.conductor.lookup(lookup(id)).await.unwrap().unwrap().token.unwrap();
    assert_eq!(known(&house).await, ["ipxe 1/0"], "it looked its node up, so it has booted");
    house.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    let heartbeat = Heartbeat {
        callback_url: "https://192.0.2.7:9999".to_owned(),
        token: Secret::new(token.reveal().clone()),
        version: Some("12.0.0".to_owned()),
        verify_ca: None,
        status: None,
        status_message: None,
        request_id: "req-agent".to_owned(),
    };
    house.conductor.heartbeat(id, heartbeat).await.unwrap();
    assert_eq!(known(&house).await, ["ipxe 1/0"]);
}

#[tokio::test]
async fn a_machine_without_a_model_teaches_nothing() {
    let house = House::new();
    let id = waiting(&house, "ipxe", Verb::Provide, json!({"fake_wait_for_agent": true})).await;
    house.change(id, |node| node.properties.remove("vendor")).await;
    plan(&house, id, BootWay::Ipxe).await;
    house.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    assert!(known(&house).await.is_empty());
}

#[tokio::test]
async fn an_agent_that_did_not_come_with_a_cd_gets_a_token_of_its_own() {
    let house = House::new();
    for (way, is_given) in [(BootWay::VirtualMedia, false), (BootWay::Http, true)] {
        let info = json!({"fake_wait_for_agent": true});
        let id = waiting(&house, "automatic", Verb::Provide, info).await;
        plan(&house, id, way).await;
        // As the boot services leave it when they have made a CD with a token on it.
        house
            .change(id, |node| {
                node.agent.has_token = true;
                node.agent.token_pregenerated = true;
            })
            .await;
        let token = house.conductor.lookup(lookup(id)).await.unwrap().unwrap().token;
        assert_eq!(token.is_some(), is_given, "{way}");
        let again = house.conductor.lookup(lookup(id)).await.unwrap().unwrap().token;
        assert!(again.is_none(), "{way}: a token is given once");
    }
}

#[tokio::test]
async fn a_machine_that_is_booted_again_is_switched_off_and_on() {
    let house = House::new();
    let id = waiting(&house, "ipxe", Verb::Provide, json!({"fake_wait_for_agent": true})).await;
    house.change(id, |node| node.agent.url = Some("https://gone".to_owned())).await;
    house.pass(Duration::from_secs(600));
    assert_eq!(house.work(id).await, ProvisionState::CleanWait);
    let node = house.get(id).await;
    assert_eq!(node.power_state, Some(node_model::PowerState::On));
    assert_eq!(node.agent.url, None);
    assert_eq!(
        told(&house, id).await,
        ["the agent did not call within 600 s of booting by ipxe; booting again by ipxe"]
    );
}
