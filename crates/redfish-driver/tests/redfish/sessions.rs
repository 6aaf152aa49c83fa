// SPDX-License-Identifier: Apache-2.0
//! Sessions: they are deleted when unused, and a wrong password does not open_sessions new ones repeatedly.

use std::sync::Arc;
use std::time::Duration;

use drivers::DriverError;
use fleet_sim::{Personality, SessionRules};
use redfish::{RedfishAuth, RedfishClient, RedfishEndpoint, RedfishTimeouts};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::rig::RedfishRig;

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";

/// A machine whose BMC never expires sessions, and a client that lists its sessions.
fn rig_with_watcher() -> (RedfishRig, RedfishClient) {
    let mut personality = Personality::built_in("generic").expect("the personality exists");
    personality.sessions = SessionRules { timeout: u64::from(u32::MAX), ..personality.sessions };
    let rig = RedfishRig::with_personality(personality);
    let text = |key: &str| rig.driver_info[key].as_str().expect("a text");
    let mut endpoint = RedfishEndpoint::parse(text("redfish_address"))
        .expect("an address")
        .with_login(text("redfish_username"), text("redfish_password"));
    endpoint.auth = RedfishAuth::Basic;
    let permits = Arc::new(Semaphore::new(1));
    let watcher =
        RedfishClient::new(endpoint, RedfishTimeouts::default(), permits).expect("a client");
    (rig, watcher)
}

/// Number of open_sessions sessions.
async fn open_sessions(watcher: &RedfishClient) -> usize {
    watcher.members(SESSIONS).await.expect("the sessions are readable").len()
}

/// Number of session requests since the last call.
fn session_requests(rig: &RedfishRig) -> u32 {
    let (calls, _) = rig.calls.take();
    calls
        .iter()
        .filter(|call| call.request == format!("POST {SESSIONS}"))
        .map(|call| call.count)
        .sum()
}

#[tokio::test]
async fn stopping_deletes_sessions() {
    let (rig, watcher) = rig_with_watcher();
    rig.driver.power().get(&rig.target()).await.unwrap();
    rig.driver.power().get(&rig.target()).await.unwrap();
    assert_eq!((session_requests(&rig), open_sessions(&watcher).await), (1, 1));
    rig.registry.close().await;
    assert_eq!(open_sessions(&watcher).await, 0);
}

#[tokio::test]
async fn changed_auth_type_deletes_the_old_session() {
    let (mut rig, watcher) = rig_with_watcher();
    rig.driver.power().get(&rig.target()).await.unwrap();
    assert_eq!(open_sessions(&watcher).await, 1);
    rig.driver_info.insert("redfish_auth_type".to_owned(), json!("basic"));
    rig.driver.power().get(&rig.target()).await.unwrap();
    let closed = async {
        while open_sessions(&watcher).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), closed).await.expect("the session is deleted");
}

#[tokio::test]
async fn nodes_with_different_auth_keep_their_sessions() {
    let (mut rig, watcher) = rig_with_watcher();
    let mut other = rig.node.clone();
    other.id = node_model::NodeId::random();
    for _ in 0..3 {
        for auth_type in ["session", "auto"] {
            rig.driver_info.insert("redfish_auth_type".to_owned(), json!(auth_type));
            let target = rig.target();
            let node = if auth_type == "auto" { &other } else { &rig.node };
            let target = drivers::DriverTarget { node, ..target };
            rig.driver.power().get(&target).await.unwrap();
        }
    }
    assert_eq!((session_requests(&rig), open_sessions(&watcher).await), (2, 2));
}

#[tokio::test]
async fn rejected_password_is_retried_only_by_check_access() {
    let (mut rig, _) = rig_with_watcher();
    let right = rig.driver_info.insert("redfish_password".to_owned(), json!("wrong")).unwrap();
    let power = rig.driver.power();
    for _ in 0..3 {
        let error = power.get(&rig.target()).await.unwrap_err();
        assert!(matches!(error, DriverError::CredentialsRejected { .. }), "{error}");
    }
    assert_eq!(session_requests(&rig), 1, "three queries, one attempt");
    for _ in 0..2 {
        let error = power.check_access(&rig.target()).await.unwrap_err();
        assert!(matches!(error, DriverError::CredentialsRejected { .. }), "{error}");
    }
    assert_eq!(session_requests(&rig), 2, "check_access retries at once");
    rig.driver_info.insert("redfish_password".to_owned(), right);
    power.get(&rig.target()).await.unwrap();
    assert_eq!(session_requests(&rig), 1, "another password is tried at once");
}

#[tokio::test]
async fn names_the_key_of_an_empty_ca_file() {
    let (mut rig, _) = rig_with_watcher();
    let file = tempfile::NamedTempFile::new().unwrap();
    rig.driver_info.insert("redfish_address".to_owned(), json!("https://127.0.0.1:1"));
    rig.driver_info.insert("redfish_verify_ca".to_owned(), json!(file.path()));
    let error = rig.driver.power().check_access(&rig.target()).await.unwrap_err();
    let DriverError::InvalidParameter { name, why } = &error else { panic!("{error}") };
    assert_eq!(name, "driver_info/redfish_verify_ca");
    assert!(why.contains("no usable certificate in PEM format"), "{why}");
}
