// SPDX-License-Identifier: Apache-2.0
//! Sessions are few: they are given back, and a wrong password does not ask for one again and again.

use std::sync::Arc;
use std::time::Duration;

use bmc_drivers::Error;
use fleet_sim::{Personality, SessionRules};
use redfish::{Auth, Client, Endpoint, Timeouts};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::rig::Rig;

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// A machine whose BMC never ends a session by itself, and somebody who watches its sessions.
fn watched() -> (Rig, Client) {
    let mut personality = Personality::named("generic").expect("the kind exists");
    personality.sessions = SessionRules { timeout: u64::from(u32::MAX), ..personality.sessions };
    let rig = Rig::of(personality);
    let text = |key: &str| rig.driver_info[key].as_str().expect("a text");
    let mut endpoint = Endpoint::parse(text("redfish_address"))
        .expect("an address")
        .with_login(text("redfish_username"), text("redfish_password"));
    endpoint.auth = Auth::Basic;
    let turns = Arc::new(Semaphore::new(1));
    let watcher = Client::new(endpoint, Timeouts::default(), turns).expect("a client");
    (rig, watcher)
}

/// How many sessions are open.
async fn open(watcher: &Client) -> usize {
    watcher.members(SESSIONS).await.expect("the BMC tells").len()
}

/// How many sessions were asked for since the last time.
fn asked_for(rig: &Rig) -> u32 {
    let (calls, _) = rig.calls.take();
    calls.iter().filter(|call| call.what == format!("POST {SESSIONS}")).map(|call| call.times).sum()
}

#[tokio::test]
async fn stopping_gives_sessions_back() {
    let (rig, watcher) = watched();
    rig.driver.power().get(&rig.target()).await.unwrap();
    rig.driver.power().get(&rig.target()).await.unwrap();
    assert_eq!((asked_for(&rig), open(&watcher).await), (1, 1));
    rig.registry.close().await;
    assert_eq!(open(&watcher).await, 0);
}

#[tokio::test]
async fn signing_in_otherwise_gives_the_old_session_back() {
    let (mut rig, watcher) = watched();
    rig.driver.power().get(&rig.target()).await.unwrap();
    assert_eq!(open(&watcher).await, 1);
    rig.driver_info.insert("redfish_auth_type".to_owned(), json!("basic"));
    rig.driver.power().get(&rig.target()).await.unwrap();
    let closed = async {
        while open(&watcher).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.expect("it is given back");
}

#[tokio::test]
async fn two_nodes_that_sign_in_otherwise_do_not_end_each_other_s_sessions() {
    let (mut rig, watcher) = watched();
    let mut other = rig.node.clone();
    other.id = node_model::NodeId::random();
    for _ in 0..3 {
        for auth_type in ["session", "auto"] {
            rig.driver_info.insert("redfish_auth_type".to_owned(), json!(auth_type));
            let target = rig.target();
            let node = if auth_type == "auto" { &other } else { &rig.node };
            let target = bmc_drivers::Target { node, ..target };
            rig.driver.power().get(&target).await.unwrap();
        }
    }
    assert_eq!((asked_for(&rig), open(&watcher).await), (2, 2));
}

#[tokio::test]
async fn a_wrong_password_is_tried_when_somebody_asks_and_not_at_every_look() {
    let (mut rig, _) = watched();
    let right = rig.driver_info.insert("redfish_password".to_owned(), json!("wrong")).unwrap();
    let power = rig.driver.power();
    for _ in 0..3 {
        let error = power.get(&rig.target()).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    assert_eq!(asked_for(&rig), 1, "three looks, one attempt");
    for _ in 0..2 {
        let error = power.check_access(&rig.target()).await.unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    assert_eq!(asked_for(&rig), 2, "whoever validates wants to know");
    rig.driver_info.insert("redfish_password".to_owned(), right);
    power.get(&rig.target()).await.unwrap();
    assert_eq!(asked_for(&rig), 1, "another password is tried at once");
}

#[tokio::test]
async fn a_ca_file_without_a_certificate_is_named_with_its_key() {
    let (mut rig, _) = watched();
    let file = tempfile::NamedTempFile::new().unwrap();
    rig.driver_info.insert("redfish_address".to_owned(), json!("https://127.0.0.1:1"));
    rig.driver_info.insert("redfish_verify_ca".to_owned(), json!(file.path()));
    let error = rig.driver.power().check_access(&rig.target()).await.unwrap_err();
    let Error::InvalidParameter { name, why } = &error else { panic!("{error}") };
    assert_eq!(name, "driver_info/redfish_verify_ca");
    assert!(why.contains("no certificate in PEM form"), "{why}");
}
