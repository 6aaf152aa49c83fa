// SPDX-License-Identifier: Apache-2.0
//! Repeated boots with other boot methods, and the boot statistics.

use std::time::Duration;

use agent_protocol::Heartbeat;
use node_model::{
    BootImage, BootMethod, BootPlan, BootPurpose, BootSystem, InterfaceKind, JournalEvent, NodeId,
    ProvisionState, Timestamp, Verb,
};
use serde_json::{Value, json};

use super::{AGENT_ADDRESS, TestConductor, agent_at};
use crate::AgentLookup;

const MODEL: &str = "acme";

/// A node with this boot interface whose job waits for the agent.
async fn waiting(
    test: &TestConductor,
    boot: &'static str,
    verb: Verb,
    driver_info: Value,
) -> NodeId {
    let id = test
        .insert_node_with(ProvisionState::Manageable, driver_info, |node| {
            node.interfaces.set(InterfaceKind::Boot, Some(boot));
            node.interfaces.set(InterfaceKind::Inspect, Some("agent"));
            node.properties.set("vendor", MODEL);
        })
        .await;
    test.run_verb(id, verb).await;
    id
}

/// The boot statistics of the model, as `method worked/failed`.
async fn statistics(test: &TestConductor) -> Vec<String> {
    let statistics = test.store.read(|reader| reader.boot_method_stats(MODEL)).await.unwrap();
    statistics.iter().map(|row| format!("{} {}/{}", row.method, row.worked, row.failed)).collect()
}

/// The journal notes about repeated boots.
async fn boot_notes(test: &TestConductor, id: NodeId) -> Vec<String> {
    let mut notes = Vec::new();
    for row in test.journal(id).await {
        if let JournalEvent::Note { by, text } = row.entry.event
            && by == "boot"
        {
            notes.push(text);
        }
    }
    notes
}

async fn insert_plan(test: &TestConductor, id: NodeId, method: BootMethod) {
    insert_plan_with(test, id, method, "quiet").await;
}

/// Inserts a plan with a kernel parameter.
async fn insert_plan_with(test: &TestConductor, id: NodeId, method: BootMethod, parameter: &str) {
    let image = || BootImage { source: "http://h/i".to_owned(), checksum: None, pull_secret: None };
    let plan = BootPlan {
        node_id: id,
        purpose: BootPurpose::DeployRamdisk,
        method,
        system: BootSystem::Kernel {
            kernel: image(),
            ramdisk: image(),
            parameters: vec![parameter.to_owned()],
            network_data: node_model::JsonObject::empty(),
        },
        key: id.to_string(),
        config_drive: None,
        installer: None,
        created_at: Timestamp(0),
        expires_at: None,
    };
    test.store.write(move |tx| tx.set_boot_plan(&plan)).await.unwrap();
}

fn lookup(id: NodeId) -> AgentLookup {
    AgentLookup { node: Some(id), macs: Vec::new(), caller: agent_at(AGENT_ADDRESS) }
}

#[tokio::test]
async fn tries_every_boot_method_and_lists_them_in_the_error() {
    let test = TestConductor::new();
    let id = waiting(&test, "automatic", Verb::Inspect, json!({})).await;
    let method = async || test.get(id).await.driver_internal_info.get_str("boot_method");
    assert_eq!(method().await.as_deref(), Some("http"));
    for (again, failed) in [("ipxe", "http 0/1"), ("pxe", "ipxe 0/1"), ("http-ipxe", "pxe 0/1")] {
        test.advance(Duration::from_secs(599));
        test.run_node(id).await;
        assert_ne!(method().await.as_deref(), Some(again), "too early");
        test.advance(Duration::from_secs(1));
        assert_eq!(test.get(id).await.due_at, Some(test.conductor.now()));
        assert_eq!(test.run_node(id).await, ProvisionState::InspectWait);
        assert_eq!(method().await.as_deref(), Some(again));
        assert!(
            statistics(&test).await.contains(&failed.to_owned()),
            "{:?}",
            statistics(&test).await
        );
    }
    // No other method is left: the last one is repeated until the timeout.
    for _ in 0..3 {
        assert_eq!(test.get(id).await.provision_state, ProvisionState::InspectWait);
        test.advance(Duration::from_secs(600));
        test.run_node(id).await;
    }
    let node = test.get(id).await;
    assert_eq!(node.provision_state, ProvisionState::InspectFail);
    let error = node.last_error.unwrap();
    assert!(error.contains("booted 6 times; tried: http, ipxe, pxe, http-ipxe;"), "{error}");
    assert_eq!(node.driver_internal_info.get("boot_method"), None);
    assert_eq!(node.driver_internal_info.get("boot_methods_tried"), None);
    assert_eq!(statistics(&test).await, ["http 0/1", "http-ipxe 0/1", "ipxe 0/1", "pxe 0/1"]);
    let notes = boot_notes(&test, id).await;
    assert_eq!(
        notes[0],
        "no request from the agent within 600 s after booting by http; booting again by ipxe"
    );
    assert_eq!(notes.len(), 5);
}

#[tokio::test]
async fn records_a_successful_boot_once() {
    let test = TestConductor::new();
    let info = json!({"fake_wait_for_agent": true});
    let id = waiting(&test, "ipxe", Verb::Provide, info).await;
    assert_eq!(test.get(id).await.provision_state, ProvisionState::CleanWait);
    insert_plan(&test, id, BootMethod::Ipxe).await;
    let token = test.conductor.lookup(lookup(id)).await.unwrap().unwrap().token.unwrap();
    assert_eq!(statistics(&test).await, ["ipxe 1/0"], "the lookup confirms the boot");
    test.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    let heartbeat = Heartbeat {
        callback_url: "https://192.0.2.7:9999".to_owned(),
        agent_token: token.reveal().clone(),
        agent_version: Some("12.0.0".to_owned()),
        ..Heartbeat::default()
    };
    test.conductor.heartbeat(id, heartbeat, agent_at(AGENT_ADDRESS)).await.unwrap();
    assert_eq!(statistics(&test).await, ["ipxe 1/0"]);
}

#[tokio::test]
async fn records_no_statistics_without_a_model() {
    let test = TestConductor::new();
    let id = waiting(&test, "ipxe", Verb::Provide, json!({"fake_wait_for_agent": true})).await;
    test.change(id, |node| node.properties.remove("vendor")).await;
    insert_plan(&test, id, BootMethod::Ipxe).await;
    test.conductor.lookup(lookup(id)).await.unwrap().unwrap();
    assert!(statistics(&test).await.is_empty());
}

#[tokio::test]
async fn agent_not_booted_from_cd_gets_its_own_token() {
    let test = TestConductor::new();
    for (method, parameter, is_issued) in [
        (BootMethod::VirtualMedia, "ipa-agent-token=on the CD", false),
        (BootMethod::Ipxe, "ipa-agent-token=not yet loaded", true),
        (BootMethod::Http, "quiet", true),
    ] {
        let info = json!({"fake_wait_for_agent": true});
        let id = waiting(&test, "automatic", Verb::Provide, info).await;
        insert_plan_with(&test, id, method, parameter).await;
        // As after publishing a CD with a token.
        let publish = move |tx: &mut store::StoreWriter<'_>| {
            let mut node = tx.get(id)?.unwrap();
            let mut secrets = tx.reveal(&node)?;
            secrets.agent_token = Some(node_model::Secret::new("on the CD".to_owned()));
            tx.seal_node(&mut node, secrets)?;
            node.agent.replace(tx.now());
            tx.save(&mut node)
        };
        test.store.write(publish).await.unwrap();
        let token = test.conductor.lookup(lookup(id)).await.unwrap().unwrap().token;
        assert_eq!(token.is_some(), is_issued, "{method}");
        let again = test.conductor.lookup(lookup(id)).await.unwrap().unwrap().token;
        assert!(again.is_none(), "{method}: the token is issued once");
    }
}

#[tokio::test]
async fn booting_again_power_cycles_the_machine() {
    let test = TestConductor::new();
    let id = waiting(&test, "ipxe", Verb::Provide, json!({"fake_wait_for_agent": true})).await;
    test.change(id, |node| node.agent.url = Some("https://gone".to_owned())).await;
    test.advance(Duration::from_secs(600));
    assert_eq!(test.run_node(id).await, ProvisionState::CleanWait);
    let node = test.get(id).await;
    assert_eq!(node.power_state, Some(node_model::PowerState::On));
    assert_eq!(node.agent.url, None);
    assert_eq!(
        boot_notes(&test, id).await,
        ["no request from the agent within 600 s after booting by ipxe; booting again by ipxe"]
    );
}
