// SPDX-License-Identifier: Apache-2.0
//! Client and BMC side of the protocol against each other: without a network, then over UDP with a BMC
//! that loses packets and sessions.
//!
//! The BMC side is tested with `ipmitool` in the tests of fleet-sim.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod bmc;
mod pure;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ipmi::{
    ChassisControl, CipherSuite, GetChassisStatus, GetDeviceId, IpmiClient, IpmiCredentials,
    IpmiEndpoint, IpmiError, IpmiPrivilege, IpmiTimeouts,
};
use tokio::sync::Semaphore;

use bmc::{ResponseFault, TestBmc, TestBmcBehaviour};

#[tokio::test]
async fn supports_both_suites_and_prefers_the_stronger() {
    for (offered, wanted) in [
        (vec![CipherSuite::Three, CipherSuite::Seventeen], None),
        (vec![CipherSuite::Seventeen], None),
        (vec![CipherSuite::Three], None),
        (vec![CipherSuite::Three], Some(CipherSuite::Three)),
        (vec![CipherSuite::Seventeen], Some(CipherSuite::Seventeen)),
    ] {
        let bmc = TestBmc::start(TestBmcBehaviour {
            suites: offered.clone(),
            ..TestBmcBehaviour::default()
        })
        .await;
        let client = client(IpmiEndpoint { cipher_suite: wanted, ..endpoint(&bmc) });
        client.execute(&ChassisControl::PowerUp).await.unwrap();
        assert!(client.execute(&GetChassisStatus).await.unwrap().power_on, "{offered:?}");
    }
}

#[tokio::test]
async fn gives_up_a_suite_that_the_bmc_ignores() {
    let behaviour = TestBmcBehaviour {
        suites: vec![CipherSuite::Three],
        silent_about_unknown_suites: true,
        ..TestBmcBehaviour::default()
    };
    let bmc = TestBmc::start(behaviour).await;
    let client = client(endpoint(&bmc));
    client.execute(&GetDeviceId).await.unwrap();
    // It is recorded, so that the next session does not wait again.
    let before = bmc.packets_received();
    client.close().await;
    client.execute(&GetDeviceId).await.unwrap();
    // Close Session, Open Session, RAKP 1 and 3, the privilege level, the request.
    assert_eq!(bmc.packets_received() - before, 6);
}

#[tokio::test]
async fn one_session_serves_many_requests() {
    let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
    let client = client(endpoint(&bmc));
    for _ in 0..20 {
        client.execute(&GetDeviceId).await.unwrap();
    }
    assert_eq!(bmc.packets_received(), 4 + 20);
}

#[tokio::test]
async fn reopens_a_dropped_session() {
    let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
    let client = client(endpoint(&bmc));
    client.execute(&ChassisControl::PowerUp).await.unwrap();
    bmc.drop_sessions();
    assert!(client.execute(&GetChassisStatus).await.unwrap().power_on);
}

#[tokio::test]
async fn does_not_repeat_commands_with_side_effects_if_the_bmc_is_lost() {
    for (control, times) in [
        (ChassisControl::HardReset, 1),
        (ChassisControl::PowerCycle, 1),
        (ChassisControl::Diagnostic, 1),
        (ChassisControl::SoftShutdown, 1),
        (ChassisControl::PowerUp, 2),
        (ChassisControl::PowerDown, 2),
    ] {
        let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
        let client = impatient(&bmc);
        client.execute(&GetDeviceId).await.unwrap();
        bmc.expect(ResponseFault::Restart);
        let result = client.execute(&control).await;
        assert_eq!(bmc.power_changes(), times, "{control:?}");
        match result {
            Ok(()) => assert_eq!(times, 2, "{control:?}"),
            Err(error) => {
                assert!(matches!(error, IpmiError::Uncertain { .. }), "{control:?}: {error:?}");
                assert!(error.to_string().contains("not known whether"), "{error}");
            }
        }
    }
    // The effect of a raw command is unknown.
    let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
    let client = impatient(&bmc);
    bmc.expect(ResponseFault::Restart);
    let result = client.request(0, 0, 2, &[1]).await;
    assert!(matches!(result, Err(IpmiError::Uncertain { .. })), "{result:?}");
    assert_eq!(bmc.power_changes(), 1);
    client.execute(&GetDeviceId).await.unwrap();
}

#[tokio::test]
async fn repeats_a_request_whose_response_was_lost_without_a_second_effect() {
    let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
    let client = client(endpoint(&bmc));
    bmc.expect(ResponseFault::ResponseLost);
    client.execute(&ChassisControl::HardReset).await.unwrap();
    assert_eq!(bmc.power_changes(), 1);
}

#[tokio::test]
async fn detects_a_dropped_session_before_a_side_effect() {
    let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
    let client = client(endpoint(&bmc));
    client.execute(&GetDeviceId).await.unwrap();
    bmc.drop_sessions();
    client.execute(&ChassisControl::HardReset).await.unwrap();
    assert_eq!(bmc.power_changes(), 1);
}

#[tokio::test]
async fn retries_after_a_timeout_code_only_if_repetition_is_safe() {
    for (control, times) in [(ChassisControl::HardReset, 1), (ChassisControl::PowerUp, 2)] {
        let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
        bmc.expect(ResponseFault::Timeout);
        let result = client(endpoint(&bmc)).execute(&control).await;
        assert_eq!(result.is_ok(), times == 2, "{control:?}: {result:?}");
        assert_eq!(bmc.power_changes(), times, "{control:?}");
    }
}

#[tokio::test]
async fn keeps_the_session_of_a_slow_bmc() {
    let behaviour =
        TestBmcBehaviour { sleepy: Duration::from_millis(400), ..TestBmcBehaviour::default() };
    let bmc = TestBmc::start(behaviour).await;
    let client = client(endpoint(&bmc));
    client.execute(&GetDeviceId).await.unwrap();
    let offers = bmc.offers();
    bmc.pause_on_next_packet();
    client.execute(&GetDeviceId).await.unwrap();
    assert_eq!(bmc.offers(), offers);
}

#[tokio::test]
async fn reaches_a_bmc_that_comes_back_during_the_handshake() {
    // Three messages are lost, and the fourth gets a response 350 ms after the first. The time for one
    // handshake ends before the fifth would be sent.
    let bmc = TestBmc::start(TestBmcBehaviour { deaf_to: 3, ..TestBmcBehaviour::default() }).await;
    let endpoint = IpmiEndpoint { cipher_suite: Some(CipherSuite::Three), ..endpoint(&bmc) };
    let timeouts = IpmiTimeouts { total: Duration::from_millis(1200), ..timeouts() };
    let client = IpmiClient::new(endpoint, timeouts, Arc::new(Semaphore::new(1)));
    client.execute(&GetDeviceId).await.unwrap();
    assert_eq!(bmc.offers(), 1);
}

#[tokio::test]
async fn a_renumbered_session_is_not_a_wrong_password() {
    for loses_second_offer in [false, true] {
        let behaviour = TestBmcBehaviour {
            suites: vec![CipherSuite::Three],
            sleepy: Duration::from_millis(120),
            renumbers_sessions: true,
            loses_second_offer,
            ..TestBmcBehaviour::default()
        };
        let bmc = TestBmc::start(behaviour).await;
        let cipher_suite = Some(CipherSuite::Three);
        let client = client(IpmiEndpoint { cipher_suite, ..endpoint(&bmc) });
        client.execute(&GetDeviceId).await.unwrap();
        assert!(bmc.offers() > 1, "it received more than one request");
    }
}

#[tokio::test]
async fn tries_a_wrong_password_once() {
    let bmc = TestBmc::start(TestBmcBehaviour::default()).await;
    let credentials = IpmiCredentials::new(b"admin", b"wrong", None).unwrap();
    let result = client(IpmiEndpoint { credentials, ..endpoint(&bmc) }).execute(&GetDeviceId).await;
    assert!(matches!(result, Err(IpmiError::WrongPassword)), "{result:?}");
    assert_eq!(bmc.names_received(), 1);
}

#[tokio::test]
async fn a_bmc_that_ignores_unknown_users_is_not_unreachable() {
    let behaviour = TestBmcBehaviour { ignores_unknown_users: true, ..TestBmcBehaviour::default() };
    let bmc = TestBmc::start(behaviour).await;
    let credentials = IpmiCredentials::new(b"unknown", b"secret", None).unwrap();
    let timeouts = IpmiTimeouts { total: Duration::from_secs(2), ..timeouts() };
    for cipher_suite in [None, Some(CipherSuite::Three)] {
        let endpoint =
            IpmiEndpoint { credentials: credentials.clone(), cipher_suite, ..endpoint(&bmc) };
        let client = IpmiClient::new(endpoint, timeouts, Arc::new(Semaphore::new(1)));
        let error = client.execute(&GetDeviceId).await.unwrap_err();
        assert!(matches!(error, IpmiError::SilentToUser), "{error:?}");
        assert!(error.to_string().contains("user name"), "{error}");
    }
}

#[tokio::test]
async fn repeats_lost_packets() {
    let bmc =
        TestBmc::start(TestBmcBehaviour { drop_every: 3, ..TestBmcBehaviour::default() }).await;
    let client = client(endpoint(&bmc));
    for _ in 0..5 {
        client.execute(&GetDeviceId).await.unwrap();
    }
}

#[tokio::test]
async fn ignores_duplicate_and_late_responses() {
    let bmc =
        TestBmc::start(TestBmcBehaviour { respond_twice: true, ..TestBmcBehaviour::default() })
            .await;
    let client = client(endpoint(&bmc));
    for round in 0..10 {
        let control =
            if round % 2 == 0 { ChassisControl::PowerUp } else { ChassisControl::PowerDown };
        client.execute(&control).await.unwrap();
        assert_eq!(client.execute(&GetChassisStatus).await.unwrap().power_on, round % 2 == 0);
    }
}

#[tokio::test]
async fn retries_while_the_bmc_is_busy() {
    let bmc = TestBmc::start(TestBmcBehaviour { busy: 2, ..TestBmcBehaviour::default() }).await;
    client(endpoint(&bmc)).execute(&GetDeviceId).await.unwrap();
}

#[tokio::test]
async fn errors_explain_rejected_sessions() {
    let bmc = TestBmc::start(TestBmcBehaviour {
        kg: Some(b"key".to_vec()),
        ..TestBmcBehaviour::default()
    })
    .await;
    let attempt = async |username: &[u8], password: &[u8], kg: Option<&[u8]>, privilege| {
        let credentials = IpmiCredentials::new(username, password, kg).unwrap();
        let client = client(IpmiEndpoint { credentials, privilege, ..endpoint(&bmc) });
        let result = client.execute(&ChassisControl::PowerUp).await;
        result.err().map(|error| error.to_string())
    };
    let key = Some(&b"key"[..]);
    let admin = IpmiPrivilege::Administrator;
    for (text, wanted) in [
        (attempt(b"admin", b"secret", key, admin).await, None),
        (
            attempt(b"unknown", b"secret", key, admin).await,
            Some("the BMC rejects this user: it is unknown or disabled"),
        ),
        (
            attempt(b"admin", b"wrong", key, admin).await,
            Some("the password (or the user name) is wrong"),
        ),
        (attempt(b"admin", b"secret", None, admin).await, Some("the Kg key is wrong")),
        (
            attempt(b"guest", b"guest", key, admin).await,
            Some("the user may not have the privilege level ADMINISTRATOR"),
        ),
        (
            attempt(b"guest", b"guest", key, IpmiPrivilege::User).await,
            Some("completion code 0xd4 to command 0x02: the user's privilege is too low"),
        ),
    ] {
        assert_eq!(text.as_deref(), wanted);
    }
}

#[tokio::test]
async fn error_names_the_unsupported_suite() {
    let bmc =
        TestBmc::start(TestBmcBehaviour { suites: Vec::new(), ..TestBmcBehaviour::default() })
            .await;
    let refused = client(endpoint(&bmc)).execute(&GetDeviceId).await.unwrap_err();
    let wanted = "the BMC accepts none of the cipher suites that were tried (17, 3)";
    assert_eq!(refused.to_string(), wanted);
}

#[tokio::test]
async fn a_silent_bmc_times_out_and_delays_no_other() {
    let silent =
        TestBmc::start(TestBmcBehaviour { drop_every: 1, ..TestBmcBehaviour::default() }).await;
    let total = Duration::from_millis(600);
    let timeouts = IpmiTimeouts { total, ..timeouts() };
    let turns = Arc::new(Semaphore::new(1));
    let client = IpmiClient::new(endpoint(&silent), timeouts, Arc::clone(&turns));
    let started = Instant::now();
    let error = client.execute(&GetDeviceId).await.unwrap_err();
    assert!(matches!(error, IpmiError::Unreachable { .. }), "{error:?}");
    // Much longer than the timeout: the host may be busy.
    assert!(started.elapsed() < total * 50, "{:?}", started.elapsed());
    assert_eq!(turns.available_permits(), 1);
}

#[tokio::test]
async fn a_shorter_timeout_fails_sooner() {
    let silent =
        TestBmc::start(TestBmcBehaviour { drop_every: 1, ..TestBmcBehaviour::default() }).await;
    let started = Instant::now();
    let total = Duration::from_secs(60);
    let timeouts = IpmiTimeouts { total, ..timeouts() };
    let client = IpmiClient::new(endpoint(&silent), timeouts, Arc::new(Semaphore::new(1)));
    let error = client.execute_within(&GetDeviceId, Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, IpmiError::Unreachable { .. }), "{error:?}");
    assert!(started.elapsed() < total, "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_unreachable_port_is_reported_with_the_network_error() {
    // The port was just released.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let timeouts = IpmiTimeouts { total: Duration::from_millis(200), ..timeouts() };
    let endpoint = IpmiEndpoint { port, ..endpoint_at(port) };
    let client = IpmiClient::new(endpoint, timeouts, Arc::new(Semaphore::new(1)));
    let error = client.execute(&GetDeviceId).await.unwrap_err();
    let IpmiError::Unreachable { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn sends_one_request_at_a_time_for_all_clients() {
    let bmc = TestBmc::start(TestBmcBehaviour { slow: true, ..TestBmcBehaviour::default() }).await;
    let turns = Arc::new(Semaphore::new(1));
    let clients: Vec<_> = (0..4)
        .map(|_| IpmiClient::new(endpoint(&bmc), timeouts(), Arc::clone(&turns)))
        .map(Arc::new)
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    // They outlive their requests: Close Session packets would count.
    for client in &clients {
        let client = Arc::clone(client);
        tasks.spawn(async move { client.execute(&GetDeviceId).await.map(drop) });
    }
    tasks.join_all().await.into_iter().for_each(|result| result.unwrap());
    assert_eq!(bmc.state.most_at_once.load(Ordering::SeqCst), 1);
}

fn endpoint(bmc: &TestBmc) -> IpmiEndpoint {
    endpoint_at(bmc.port)
}

fn endpoint_at(port: u16) -> IpmiEndpoint {
    IpmiEndpoint {
        address: "127.0.0.1".to_owned(),
        port,
        credentials: IpmiCredentials::new(b"admin", b"secret", None).unwrap(),
        privilege: IpmiPrivilege::Administrator,
        cipher_suite: None,
        bridging: None,
    }
}

fn timeouts() -> IpmiTimeouts {
    IpmiTimeouts {
        first_retransmission: Duration::from_millis(50),
        longest_wait: Duration::from_millis(300),
        total: Duration::from_secs(3),
        ..IpmiTimeouts::default()
    }
}

fn client(endpoint: IpmiEndpoint) -> IpmiClient {
    IpmiClient::new(endpoint, timeouts(), Arc::new(Semaphore::new(1)))
}

/// A client with a short timeout, for BMCs that do not respond.
fn impatient(bmc: &TestBmc) -> IpmiClient {
    let timeouts = IpmiTimeouts { total: Duration::from_millis(500), ..timeouts() };
    IpmiClient::new(endpoint(bmc), timeouts, Arc::new(Semaphore::new(1)))
}
