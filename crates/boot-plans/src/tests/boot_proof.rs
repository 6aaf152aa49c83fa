// SPDX-License-Identifier: Apache-2.0
//! The secrets of a boot plan reach only the machine that they are for.

use boot_server::http::HttpRefusalReason;
use boot_server::tftp::TftpOpenError;
use boot_server::{DhcpLeaseIndex, DhcpLeaseRecord, DhcpLeaseStore as _, InMemoryDhcpLeaseStore};
use node_model::{BootMethod, BootPlan, BootProof, BootPurpose, Node};

use crate::DhcpLeaseLocation;

use super::{BootRig, CLIENT, MAC, SCRIPT_PATH, bytes, rig_with_efi_kernel};

const OTHER_MAC: [u8; 6] = [0x52, 0x54, 0, 0xaa, 0xbb, 2];

impl BootRig {
    /// Leases the address of the test client to a NIC.
    pub(super) fn lease_to(&self, mac: [u8; 6]) {
        let index = DhcpLeaseIndex::default();
        self.services.set_dhcp_leases(DhcpLeaseLocation::Files { index, files: Vec::new() });
        let Some(DhcpLeaseLocation::Files { index, .. }) = self.services.0.leases.get() else {
            panic!("the leases are in files");
        };
        let mut store = index.indexed(Box::new(InMemoryDhcpLeaseStore::default()));
        store.record(DhcpLeaseRecord {
            address: CLIENT.parse().unwrap(),
            client: [&[1], &mac[..]].concat(),
            expires_at: self.services.0.now().plus(std::time::Duration::from_secs(600)),
        });
        store.commit().unwrap();
    }

    /// The same rig with another required proof.
    fn with_required_proof(mut self, required: BootProof) -> Self {
        let state = std::sync::Arc::get_mut(&mut self.services.0).expect("the only clone");
        state.required_proof = required;
        self
    }

    async fn plan(&self) -> BootPlan {
        let id = self.node.id;
        self.store.read(move |reader| reader.boot_plan(id)).await.unwrap().unwrap()
    }

    async fn stored_node(&self) -> Node {
        let id = self.node.id;
        self.store.read(move |reader| reader.get(id)).await.unwrap().unwrap()
    }
}

/// H1 of the security review: any client that knows a MAC address can read its script.
#[tokio::test]
async fn token_is_only_in_the_script_for_the_lease_of_the_machine() {
    let rig = BootRig::new().await;
    rig.publish(BootMethod::Ipxe, BootPurpose::InspectionRamdisk).await.unwrap();
    let plan = rig.plan().await;
    let token = plan.token().expect("the plan has a token").to_owned();
    let secret = plan.inspection_proof().expect("and one for inspection data").to_owned();
    assert!(token.len() >= 32 && secret.len() >= 32 && token != secret);
    let has_secrets = |script: &str| (script.contains(&token), script.contains(&secret));

    let script = rig.text(SCRIPT_PATH).await;
    assert_eq!(has_secrets(&script), (false, false), "no lease: {script}");
    assert!(script.contains("/v1/continue_inspection "), "{script}");
    rig.lease_to(OTHER_MAC);
    assert_eq!(has_secrets(&rig.text(SCRIPT_PATH).await), (false, false), "of another machine");
    assert!(!rig.stored_node().await.agent.has_token, "the agent has to request a token");

    rig.lease_to(MAC);
    assert_eq!(has_secrets(&rig.text(SCRIPT_PATH).await), (true, true));
    let node = rig.stored_node().await;
    assert!(node.agent.has_token && node.agent.token_pregenerated);
    assert_eq!(node.agent.address, Some(CLIENT.parse().unwrap()));
    assert_eq!(rig.agent_token().await.as_deref(), Some(token.as_str()));
    assert_eq!(has_secrets(&rig.text(SCRIPT_PATH).await), (true, true), "the loader may retry");
    rig.advance(600);
    assert_eq!(has_secrets(&rig.text(SCRIPT_PATH).await), (false, false), "the lease expired");

    let mac = rig.ports[0].address.clone();
    let config = rig.services.boot_config(&mac, "boot.ipxe").await.unwrap().unwrap();
    assert_eq!(has_secrets(&config.text), (false, false), "the API has no authentication");
    let journal = format!("{:?}", rig.journal().await);
    assert_eq!(has_secrets(&journal), (false, false), "{journal}");
}

#[tokio::test]
async fn tftp_configurations_have_the_token_only_for_the_machine() {
    let rig = BootRig::new().await;
    rig.publish(BootMethod::Pxe, BootPurpose::DeployRamdisk).await.unwrap();
    let token = rig.plan().await.token().unwrap().to_owned();
    for is_leased in [false, true] {
        if is_leased {
            rig.lease_to(MAC);
        }
        for name in ["pxelinux.cfg/01-52-54-00-aa-bb-01", "52:54:00:aa:bb:01.conf"] {
            let text = String::from_utf8(rig.tftp(name).await.unwrap()).unwrap();
            assert_eq!(text.contains(&token), is_leased, "{name}: {text}");
        }
    }
}

/// A lookup of another client may have got a token before the machine loaded its script.
#[tokio::test]
async fn token_of_the_script_replaces_one_of_an_earlier_lookup() {
    let rig = BootRig::new().await;
    rig.publish(BootMethod::Ipxe, BootPurpose::DeployRamdisk).await.unwrap();
    let id = rig.node.id;
    rig.store
        .write(move |tx| {
            let mut node = tx.get(id)?.unwrap();
            let mut secrets = tx.reveal(&node)?;
            secrets.agent_token = Some(node_model::Secret::new("of another client".to_owned()));
            tx.seal_node(&mut node, secrets)?;
            node.agent.has_token = true;
            node.agent.url = Some("https://10.0.0.66:9999".to_owned());
            node.agent.address = Some([10, 0, 0, 66].into());
            tx.save(&mut node)
        })
        .await
        .unwrap();
    rig.lease_to(MAC);
    let script = rig.text(SCRIPT_PATH).await;
    let token = rig.agent_token().await.unwrap();
    assert!(script.contains(&format!("ipa-agent-token={token} ")), "{script}");
    let agent = rig.stored_node().await.agent;
    assert_eq!((agent.url, agent.address), (None, Some(CLIENT.parse().unwrap())));
}

/// The key of the plan is in its public script.
#[tokio::test]
async fn images_of_a_plan_with_a_public_script_have_no_token() {
    let Some(rig) = rig_with_efi_kernel().await else { return };
    for (method, has_token) in [(BootMethod::Ipxe, false), (BootMethod::Http, true)] {
        rig.publish(method, BootPurpose::DeployRamdisk).await.unwrap();
        let plan = rig.plan().await;
        let token = plan.token().unwrap().as_bytes();
        for name in ["boot.efi", "boot.iso"] {
            let image = bytes(&rig.get(&format!("/{}/{name}", plan.key)).await.unwrap().content);
            let found = image.windows(token.len()).any(|window| window == token);
            assert_eq!(found, has_token, "{name} by {method}");
        }
    }
}

/// With `http` the key of the plan leads to an image with the token, so scripts must not have it.
#[tokio::test]
async fn script_that_leads_to_the_token_is_withheld() {
    for required in [BootProof::Lease, BootProof::None] {
        let rig = match rig_with_efi_kernel().await {
            Some(rig) => rig.with_required_proof(required),
            None => return,
        };
        rig.publish(BootMethod::Http, BootPurpose::DeployRamdisk).await.unwrap();
        let script = rig.get(SCRIPT_PATH).await.map(|_| ());
        let mac = rig.ports[0].address.clone();
        let config = rig.services.boot_config(&mac, "boot.ipxe").await.unwrap();
        let tftp = rig.tftp("52:54:00:aa:bb:01.conf").await;
        if required == BootProof::None {
            assert!(script.is_ok() && config.is_some() && tftp.is_ok());
            continue;
        }
        assert_eq!(script.unwrap_err(), HttpRefusalReason::Forbidden);
        assert!(config.is_none() && matches!(tftp, Err(TftpOpenError::Forbidden)));
        rig.lease_to(MAC);
        assert!(rig.text(SCRIPT_PATH).await.contains(rig.plan().await.token().unwrap()));
    }
}
