// SPDX-License-Identifier: Apache-2.0
//! Boot proof: tokens, commands and inspection only for the agent that was booted on the machine.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use agent_protocol::Heartbeat;
use async_trait::async_trait;
use drivers::{
    BootService, DriverError, DriverTarget, ExternalBootService, ImageDownloadSource,
    PublishedBootMedia, PublishedImage,
};
use inspection::HardwareReport;
use node_model::{
    BootImage, BootMethod, BootMethodStats, BootPlan, BootProof, BootPurpose, BootSystem,
    JsonObject, Mac, NodeId, Port, PortId, ProvisionState, Secret, Timestamp,
};
use serde_json::json;

use super::{AGENT_ADDRESS, TestConductor, agent_at};
use crate::{AgentCaller, AgentLookup, Conductor, ConductorError, ConductorSettings};

const MAC: &str = "52:54:00:aa:00:01";
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 9));
const TOKEN: &str = "token-in-the-kernel-parameters-of-the-boot-1";
const INSPECTION_SECRET: &str = "secret-in-the-url-for-inspection-data-00001";

/// A boot service that leased [`AGENT_ADDRESS`] to [`MAC`].
struct LeasingService;

#[async_trait]
impl BootService for LeasingService {
    fn check(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<(), DriverError> {
        ExternalBootService.check(target, method, purpose)
    }

    async fn publish(
        &self,
        target: &DriverTarget<'_>,
        method: BootMethod,
        purpose: BootPurpose,
    ) -> Result<PublishedBootMedia, DriverError> {
        ExternalBootService.publish(target, method, purpose).await
    }

    async fn withdraw(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        ExternalBootService.withdraw(target).await
    }

    async fn publish_image(
        &self,
        target: &DriverTarget<'_>,
        default: ImageDownloadSource,
    ) -> Result<PublishedImage, DriverError> {
        ExternalBootService.publish_image(target, default).await
    }

    async fn config_drive(&self, target: &DriverTarget<'_>) -> Result<Option<String>, DriverError> {
        ExternalBootService.config_drive(target).await
    }

    fn is_leased_to(&self, address: IpAddr, _: Option<&[u8]>, macs: &[Mac]) -> bool {
        address == AGENT_ADDRESS && macs.iter().any(|mac| mac.as_str() == MAC)
    }

    async fn boot_method_stats(&self, _: &str) -> Vec<BootMethodStats> {
        Vec::new()
    }

    async fn record_boot_result(&self, _: &str, _: BootMethod, _: bool) {}
}

fn strict_conductor() -> TestConductor {
    with_required(BootProof::Lease)
}

fn with_required(agent_boot_proof: BootProof) -> TestConductor {
    let settings = ConductorSettings { agent_boot_proof, ..ConductorSettings::default() };
    TestConductor::with_boot_service_and_settings(Arc::new(LeasingService), settings)
}

/// A node in `state` with a port for [`MAC`].
async fn waiting_node(test: &TestConductor, state: ProvisionState) -> NodeId {
    let id = test.insert_node(state, json!({})).await;
    let port = Port::new(PortId::random(), id, MAC.parse().unwrap(), Timestamp(0));
    test.store.write(move |tx| tx.insert(&port)).await.unwrap();
    id
}

/// As after the delivery of a boot plan with a token.
async fn deliver_token(test: &TestConductor, id: NodeId) {
    let image = || BootImage { source: "k".to_owned(), checksum: None, pull_secret: None };
    let url = "ipa-inspection-callback-url=http://h/v1/continue_inspection?boot_secret=";
    let plan = BootPlan {
        node_id: id,
        purpose: BootPurpose::InspectionRamdisk,
        method: BootMethod::VirtualMedia,
        system: BootSystem::Kernel {
            kernel: image(),
            ramdisk: image(),
            parameters: vec![
                format!("ipa-agent-token={TOKEN}"),
                format!("{url}{INSPECTION_SECRET}"),
            ],
            network_data: JsonObject::empty(),
        },
        key: "key".to_owned(),
        config_drive: None,
        installer: None,
        created_at: Timestamp(0),
        expires_at: None,
    };
    test.store
        .write(move |tx| {
            tx.set_boot_plan(&plan)?;
            let mut node = tx.get(id)?.unwrap();
            let mut secrets = tx.reveal(&node)?;
            secrets.agent_token = Some(Secret::new(TOKEN.to_owned()));
            tx.seal_node(&mut node, secrets)?;
            node.agent.replace(tx.now());
            tx.save(&mut node)
        })
        .await
        .unwrap();
}

fn with_secret(address: IpAddr, secret: &str) -> AgentCaller {
    AgentCaller { secret: Some(Secret::new(secret.to_owned())), ..agent_at(address) }
}

async fn look_up(conductor: &Conductor, id: NodeId, caller: AgentCaller) -> Option<Option<String>> {
    let lookup = AgentLookup { node: Some(id), macs: Vec::new(), caller };
    let config = conductor.lookup(lookup).await.unwrap()?;
    Some(config.token.map(|token| token.reveal().clone()))
}

fn heartbeat(token: &str, callback_url: &str) -> Heartbeat {
    Heartbeat {
        callback_url: callback_url.to_owned(),
        agent_token: token.to_owned(),
        agent_version: Some("12.0.0".to_owned()),
        ..Heartbeat::default()
    }
}

async fn rejection(
    conductor: &Conductor,
    id: NodeId,
    heartbeat: Heartbeat,
    caller: AgentCaller,
) -> String {
    match conductor.heartbeat(id, heartbeat, caller).await {
        Err(ConductorError::Agent(error)) => error,
        other => panic!("not rejected: {other:?}"),
    }
}

/// H1 of the security review: a client that knows a MAC address got the token of the agent.
#[tokio::test]
async fn only_the_leased_address_gets_a_token() {
    let test = strict_conductor();
    let id = waiting_node(&test, ProvisionState::DeployWait).await;
    for _ in 0..3 {
        assert_eq!(look_up(&test.conductor, id, agent_at(OTHER)).await, None);
    }
    let notes = test.notes(id).await;
    assert_eq!(notes.len(), 1, "refusals are recorded once a minute: {notes:?}");
    assert!(notes[0].contains("lookup from 198.51.100.9 refused"), "{notes:?}");
    test.advance(Duration::from_secs(60));
    assert_eq!(look_up(&test.conductor, id, agent_at(OTHER)).await, None);
    assert_eq!(test.notes(id).await.len(), 2);

    let token = look_up(&test.conductor, id, agent_at(AGENT_ADDRESS)).await.unwrap().unwrap();
    let agent = test.get(id).await.agent;
    assert_eq!((agent.proof, agent.address), (Some(BootProof::Lease), Some(AGENT_ADDRESS)));
    for address in [OTHER, AGENT_ADDRESS] {
        assert_eq!(look_up(&test.conductor, id, agent_at(address)).await, Some(None), "{address}");
    }
    let url = "https://192.0.2.7:9999";
    test.conductor.heartbeat(id, heartbeat(&token, url), agent_at(AGENT_ADDRESS)).await.unwrap();
    assert_eq!(test.get(id).await.agent.url.as_deref(), Some(url));
}

#[tokio::test]
async fn token_of_the_kernel_parameters_is_never_sent() {
    for required in [BootProof::Secret, BootProof::Lease, BootProof::None] {
        let test = with_required(required);
        let id = waiting_node(&test, ProvisionState::CleanWait).await;
        deliver_token(&test, id).await;
        for caller in [
            agent_at(OTHER),
            agent_at(AGENT_ADDRESS),
            with_secret(OTHER, "wrong"),
            with_secret(AGENT_ADDRESS, TOKEN),
        ] {
            assert_eq!(look_up(&test.conductor, id, caller).await, Some(None), "{required}");
        }
        let url = "https://198.51.100.9:9999";
        test.conductor.heartbeat(id, heartbeat(TOKEN, url), agent_at(OTHER)).await.unwrap();
        assert_eq!(test.get(id).await.agent.proof, Some(BootProof::Secret));
    }
}

#[tokio::test]
async fn a_lease_is_not_enough_if_the_secret_is_required() {
    let test = with_required(BootProof::Secret);
    let id = waiting_node(&test, ProvisionState::DeployWait).await;
    assert_eq!(look_up(&test.conductor, id, agent_at(AGENT_ADDRESS)).await, None);
    let open = with_required(BootProof::None);
    let id = waiting_node(&open, ProvisionState::DeployWait).await;
    assert!(look_up(&open.conductor, id, agent_at(OTHER)).await.unwrap().is_some());
}

/// An agent that got its token while weaker proofs were allowed gets no commands.
#[tokio::test]
async fn heartbeat_needs_the_required_proof() {
    let test = with_required(BootProof::None);
    let id = waiting_node(&test, ProvisionState::DeployWait).await;
    let token = look_up(&test.conductor, id, agent_at(OTHER)).await.unwrap().unwrap();
    let beat = heartbeat(&token, "https://198.51.100.9:9999");
    let strict = Conductor::new(crate::ConductorParts {
        settings: ConductorSettings::default(),
        ..super::parts(&test.store, "strict", test.conductor.clock.clone())
    });
    let error = rejection(&strict, id, beat.clone(), agent_at(OTHER)).await;
    assert!(error.contains("agent_boot_proof"), "{error}");
    test.conductor.heartbeat(id, beat, agent_at(OTHER)).await.unwrap();
}

/// The process that issued the token was killed before the first heartbeat.
#[tokio::test]
async fn token_is_issued_again_only_to_the_same_address() {
    let test = with_required(BootProof::None);
    let there = test.other_process("there");
    crate::membership::begin(&test.conductor, None).await.unwrap();
    let id = waiting_node(&test, ProvisionState::DeployWait).await;
    let token = look_up(&test.conductor, id, agent_at(AGENT_ADDRESS)).await.unwrap().unwrap();
    test.advance(Duration::from_secs(61));
    assert_eq!(look_up(&there, id, agent_at(OTHER)).await, None);
    let again = look_up(&there, id, agent_at(AGENT_ADDRESS)).await.unwrap();
    assert_eq!(again.as_deref(), Some(token.as_str()), "the agent may have received it");
}

#[tokio::test]
async fn callback_url_is_the_address_of_the_agent() {
    let test = strict_conductor();
    let id = waiting_node(&test, ProvisionState::DeployWait).await;
    deliver_token(&test, id).await;
    for url in [
        "https://192.0.2.66:9999",
        "https://evil.example:9999",
        "https://192.0.2.7:9999/path",
        "https://192.0.2.7:9999/any/path?x=",
        "https://192.0.2.7:9999/?x=",
        "https://192.0.2.7:9999/#x",
        "https://user@192.0.2.7:9999",
        "https://user:password@192.0.2.7:9999",
        "https://192.0.2.7@evil.example:9999",
        "https://192.0.2.7:9999\\@evil.example",
        "http://192.0.2.7:9999",
        "ftp://192.0.2.7",
        "https://",
        "nonsense",
    ] {
        let beat = heartbeat(TOKEN, url);
        let error = rejection(&test.conductor, id, beat, agent_at(AGENT_ADDRESS)).await;
        assert!(error.contains("callback_url"), "{url}: {error}");
    }
    assert_eq!(test.get(id).await.agent.url, None);
    let good = heartbeat(TOKEN, "https://192.0.2.7:9999/");
    test.conductor.heartbeat(id, good, agent_at(AGENT_ADDRESS)).await.unwrap();

    let relaxed = TestConductor::with_boot_service_and_settings(
        Arc::new(LeasingService),
        ConductorSettings { check_agent_address: false, ..ConductorSettings::default() },
    );
    let id = waiting_node(&relaxed, ProvisionState::DeployWait).await;
    deliver_token(&relaxed, id).await;
    let beat = heartbeat(TOKEN, "https://agent.example:9999");
    relaxed.conductor.heartbeat(id, beat, agent_at(OTHER)).await.unwrap();
}

/// L5 of the security review: errors must not depend on the state of the node before the token is checked.
#[tokio::test]
async fn token_is_checked_first() {
    let test = strict_conductor();
    let id = waiting_node(&test, ProvisionState::DeployWait).await;
    deliver_token(&test, id).await;
    let good = heartbeat(TOKEN, "https://192.0.2.7:9999");
    test.conductor.heartbeat(id, good, agent_at(AGENT_ADDRESS)).await.unwrap();
    for wrong in [
        heartbeat("wrong", "https://192.0.2.66:9999"),
        heartbeat("wrong", "nonsense"),
        Heartbeat { agent_version: None, ..heartbeat("wrong", "https://192.0.2.7:9999") },
        Heartbeat { agent_verify_ca: Some("x".repeat(100_000)), ..heartbeat("wrong", "") },
    ] {
        let error = rejection(&test.conductor, id, wrong, agent_at(OTHER)).await;
        assert_eq!(error, "Invalid or missing agent token received.");
    }
}

/// M3 of the security review: any client could send the inspection data of a node.
#[tokio::test]
async fn inspection_data_need_the_boot_proof() {
    let report = || {
        let interfaces = json!([{"name": "eno1", "mac_address": MAC}]);
        let inventory = json!({"interfaces": interfaces, "cpu": {"architecture": "x86_64"}});
        HardwareReport::from_value(json!({"inventory": inventory})).unwrap()
    };
    for (required, caller, is_accepted) in [
        (BootProof::Lease, agent_at(OTHER), false),
        (BootProof::Lease, with_secret(OTHER, "wrong"), false),
        (BootProof::Lease, with_secret(OTHER, ""), false),
        (BootProof::Lease, agent_at(AGENT_ADDRESS), true),
        (BootProof::Lease, with_secret(OTHER, INSPECTION_SECRET), true),
        (BootProof::Lease, with_secret(OTHER, TOKEN), true),
        (BootProof::Secret, agent_at(AGENT_ADDRESS), false),
        (BootProof::Secret, with_secret(AGENT_ADDRESS, INSPECTION_SECRET), true),
        (BootProof::None, agent_at(OTHER), true),
    ] {
        let test = with_required(required);
        let id = waiting_node(&test, ProvisionState::InspectWait).await;
        deliver_token(&test, id).await;
        let what = format!("{required}: {caller:?}");
        let reply = test.conductor.continue_inspection(report(), None, caller).await.unwrap();
        assert_eq!(reply.map(|reply| reply.node), is_accepted.then_some(id), "{what}");
        let node = test.get(id).await;
        assert_eq!(node.properties.get("cpu_arch").is_some(), is_accepted, "{what}");
        let is_noted = test.notes(id).await.iter().any(|note| note.contains("refused"));
        assert_eq!(is_noted, !is_accepted, "{what}");
    }
}
