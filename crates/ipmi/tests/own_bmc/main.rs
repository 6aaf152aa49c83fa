// SPDX-License-Identifier: Apache-2.0
//! Both halves of the protocol against each other: first without a network, then over UDP with a
//! BMC that forgets, stays silent, answers twice or not at all.
//!
//! What the BMC's half is worth is shown by `ipmitool`, in the tests of fleet-sim.

#![expect(clippy::unwrap_used, reason = "all of this is tests")]

mod bmc;
mod pure;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ipmi::{
    ChassisControl, CipherSuite, Client, Credentials, Endpoint, Error, GetChassisStatus,
    GetDeviceId, Privilege, Timeouts,
};
use tokio::sync::Semaphore;

use bmc::{Behaviour, Mishap, TestBmc};

#[tokio::test]
async fn both_suites_work_and_the_better_one_is_chosen() {
    for (offered, wanted) in [
        (vec![CipherSuite::Three, CipherSuite::Seventeen], None),
        (vec![CipherSuite::Seventeen], None),
        (vec![CipherSuite::Three], None),
        (vec![CipherSuite::Three], Some(CipherSuite::Three)),
        (vec![CipherSuite::Seventeen], Some(CipherSuite::Seventeen)),
    ] {
        let bmc =
            TestBmc::start(Behaviour { suites: offered.clone(), ..Behaviour::default() }).await;
        let client = client(Endpoint { cipher_suite: wanted, ..endpoint(&bmc) });
        client.ask(&ChassisControl::PowerUp).await.unwrap();
        assert!(client.ask(&GetChassisStatus).await.unwrap().power_on, "{offered:?}");
    }
}

#[tokio::test]
async fn a_suite_the_bmc_is_silent_about_is_given_up() {
    let behaviour = Behaviour {
        suites: vec![CipherSuite::Three],
        silent_about_unknown_suites: true,
        ..Behaviour::default()
    };
    let bmc = TestBmc::start(behaviour).await;
    let client = client(endpoint(&bmc));
    client.ask(&GetDeviceId).await.unwrap();
    // It is remembered, so that the next session does not wait again.
    let before = bmc.heard();
    client.close().await;
    client.ask(&GetDeviceId).await.unwrap();
    // The goodbye, Open Session, RAKP 1 and 3, the privilege, the request.
    assert_eq!(bmc.heard() - before, 6);
}

#[tokio::test]
async fn one_session_serves_many_requests() {
    let bmc = TestBmc::start(Behaviour::default()).await;
    let client = client(endpoint(&bmc));
    for _ in 0..20 {
        client.ask(&GetDeviceId).await.unwrap();
    }
    assert_eq!(bmc.heard(), 4 + 20);
}

#[tokio::test]
async fn a_forgotten_session_is_opened_again() {
    let bmc = TestBmc::start(Behaviour::default()).await;
    let client = client(endpoint(&bmc));
    client.ask(&ChassisControl::PowerUp).await.unwrap();
    bmc.forget_sessions();
    assert!(client.ask(&GetChassisStatus).await.unwrap().power_on);
}

#[tokio::test]
async fn what_must_not_happen_twice_happens_once_though_the_bmc_is_lost() {
    for (control, times) in [
        (ChassisControl::HardReset, 1),
        (ChassisControl::PowerCycle, 1),
        (ChassisControl::Diagnostic, 1),
        (ChassisControl::SoftShutdown, 1),
        (ChassisControl::PowerUp, 2),
        (ChassisControl::PowerDown, 2),
    ] {
        let bmc = TestBmc::start(Behaviour::default()).await;
        let client = impatient(&bmc);
        client.ask(&GetDeviceId).await.unwrap();
        bmc.expect(Mishap::Restart);
        let asked = client.ask(&control).await;
        assert_eq!(bmc.switched(), times, "{control:?}");
        match asked {
            Ok(()) => assert_eq!(times, 2, "{control:?}"),
            Err(error) => {
                assert!(matches!(error, Error::Uncertain { .. }), "{control:?}: {error:?}");
                assert!(error.to_string().contains("not known whether"), "{error}");
            }
        }
    }
    // What a raw command does nobody knows.
    let bmc = TestBmc::start(Behaviour::default()).await;
    let client = impatient(&bmc);
    bmc.expect(Mishap::Restart);
    let asked = client.request(0, 0, 2, &[1]).await;
    assert!(matches!(asked, Err(Error::Uncertain { .. })), "{asked:?}");
    assert_eq!(bmc.switched(), 1);
    client.ask(&GetDeviceId).await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_nothing_happens_twice() {
    let bmc = TestBmc::start(Behaviour::default()).await;
    let client = client(endpoint(&bmc));
    bmc.expect(Mishap::AnswerLost);
    client.ask(&ChassisControl::HardReset).await.unwrap();
    assert_eq!(bmc.switched(), 1);
}

#[tokio::test]
async fn a_forgotten_session_is_noticed_before_something_happens() {
    let bmc = TestBmc::start(Behaviour::default()).await;
    let client = client(endpoint(&bmc));
    client.ask(&GetDeviceId).await.unwrap();
    bmc.forget_sessions();
    client.ask(&ChassisControl::HardReset).await.unwrap();
    assert_eq!(bmc.switched(), 1);
}

#[tokio::test]
async fn a_bmc_that_took_too_long_is_asked_again_only_for_what_may_happen_twice() {
    for (control, times) in [(ChassisControl::HardReset, 1), (ChassisControl::PowerUp, 2)] {
        let bmc = TestBmc::start(Behaviour::default()).await;
        bmc.expect(Mishap::Timeout);
        let asked = client(endpoint(&bmc)).ask(&control).await;
        assert_eq!(asked.is_ok(), times == 2, "{control:?}: {asked:?}");
        assert_eq!(bmc.switched(), times, "{control:?}");
    }
}

#[tokio::test]
async fn a_bmc_that_is_slow_for_a_moment_keeps_its_session() {
    let behaviour = Behaviour { sleepy: Duration::from_millis(400), ..Behaviour::default() };
    let bmc = TestBmc::start(behaviour).await;
    let client = client(endpoint(&bmc));
    client.ask(&GetDeviceId).await.unwrap();
    let offers = bmc.offers();
    bmc.grow_sleepy();
    client.ask(&GetDeviceId).await.unwrap();
    assert_eq!(bmc.offers(), offers);
}

#[tokio::test]
async fn a_bmc_that_comes_back_is_not_kept_waiting_for_what_it_never_heard() {
    // Three messages are lost, and the fourth is answered 350 ms after the first. The time for one
    // handshake ends before the fifth would be sent.
    let bmc = TestBmc::start(Behaviour { deaf_to: 3, ..Behaviour::default() }).await;
    let endpoint = Endpoint { cipher_suite: Some(CipherSuite::Three), ..endpoint(&bmc) };
    let timeouts = Timeouts { total: Duration::from_millis(1200), ..timeouts() };
    let client = Client::new(endpoint, timeouts, Arc::new(Semaphore::new(1)));
    client.ask(&GetDeviceId).await.unwrap();
    assert_eq!(bmc.offers(), 1);
}

#[tokio::test]
async fn a_bmc_that_renumbers_its_session_is_not_thought_to_refuse_the_password() {
    for loses_second_offer in [false, true] {
        let behaviour = Behaviour {
            suites: vec![CipherSuite::Three],
            sleepy: Duration::from_millis(120),
            renumbers_sessions: true,
            loses_second_offer,
            ..Behaviour::default()
        };
        let bmc = TestBmc::start(behaviour).await;
        let cipher_suite = Some(CipherSuite::Three);
        let client = client(Endpoint { cipher_suite, ..endpoint(&bmc) });
        client.ask(&GetDeviceId).await.unwrap();
        assert!(bmc.offers() > 1, "it was asked more than once");
    }
}

#[tokio::test]
async fn a_wrong_password_is_tried_once() {
    let bmc = TestBmc::start(Behaviour::default()).await;
    let credentials = Credentials::new(b"admin", b"wrong", None).unwrap();
    let asked = client(Endpoint { credentials, ..endpoint(&bmc) }).ask(&GetDeviceId).await;
    assert!(matches!(asked, Err(Error::WrongPassword)), "{asked:?}");
    assert_eq!(bmc.named(), 1);
}

#[tokio::test]
async fn a_bmc_that_is_silent_to_strangers_is_not_thought_to_be_gone() {
    let behaviour = Behaviour { silent_to_strangers: true, ..Behaviour::default() };
    let bmc = TestBmc::start(behaviour).await;
    let credentials = Credentials::new(b"nobody", b"secret", None).unwrap();
    let timeouts = Timeouts { total: Duration::from_secs(2), ..timeouts() };
    for cipher_suite in [None, Some(CipherSuite::Three)] {
        let endpoint =
            Endpoint { credentials: credentials.clone(), cipher_suite, ..endpoint(&bmc) };
        let client = Client::new(endpoint, timeouts, Arc::new(Semaphore::new(1)));
        let error = client.ask(&GetDeviceId).await.unwrap_err();
        assert!(matches!(error, Error::SilentToUser), "{error:?}");
        assert!(error.to_string().contains("user name"), "{error}");
    }
}

#[tokio::test]
async fn lost_packets_are_sent_again() {
    let bmc = TestBmc::start(Behaviour { drop_every: 3, ..Behaviour::default() }).await;
    let client = client(endpoint(&bmc));
    for _ in 0..5 {
        client.ask(&GetDeviceId).await.unwrap();
    }
}

#[tokio::test]
async fn answers_that_come_twice_or_late_are_not_taken_for_others() {
    let bmc = TestBmc::start(Behaviour { answer_twice: true, ..Behaviour::default() }).await;
    let client = client(endpoint(&bmc));
    for round in 0..10 {
        let control =
            if round % 2 == 0 { ChassisControl::PowerUp } else { ChassisControl::PowerDown };
        client.ask(&control).await.unwrap();
        assert_eq!(client.ask(&GetChassisStatus).await.unwrap().power_on, round % 2 == 0);
    }
}

#[tokio::test]
async fn a_busy_bmc_is_asked_again() {
    let bmc = TestBmc::start(Behaviour { busy: 2, ..Behaviour::default() }).await;
    client(endpoint(&bmc)).ask(&GetDeviceId).await.unwrap();
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let bmc = TestBmc::start(Behaviour { kg: Some(b"key".to_vec()), ..Behaviour::default() }).await;
    let ask = async |username: &[u8], password: &[u8], kg: Option<&[u8]>, privilege| {
        let credentials = Credentials::new(username, password, kg).unwrap();
        let client = client(Endpoint { credentials, privilege, ..endpoint(&bmc) });
        let asked = client.ask(&ChassisControl::PowerUp).await;
        asked.err().map(|error| error.to_string())
    };
    let key = Some(&b"key"[..]);
    let admin = Privilege::Administrator;
    for (said, wanted) in [
        (ask(b"admin", b"secret", key, admin).await, None),
        (
            ask(b"nobody", b"secret", key, admin).await,
            Some("the BMC does not let this user in: it is unknown or disabled"),
        ),
        (
            ask(b"admin", b"wrong", key, admin).await,
            Some("the password (or the user name) is wrong"),
        ),
        (ask(b"admin", b"secret", None, admin).await, Some("the Kg key is wrong")),
        (
            ask(b"guest", b"guest", key, admin).await,
            Some("the user may not have the privilege level ADMINISTRATOR"),
        ),
        (
            ask(b"guest", b"guest", key, Privilege::User).await,
            Some("completion code 0xd4 to command 0x02: the user's privilege is too low"),
        ),
    ] {
        assert_eq!(said.as_deref(), wanted);
    }
}

#[tokio::test]
async fn an_unknown_suite_is_named() {
    let bmc = TestBmc::start(Behaviour { suites: Vec::new(), ..Behaviour::default() }).await;
    let refused = client(endpoint(&bmc)).ask(&GetDeviceId).await.unwrap_err();
    let wanted = "the BMC accepts none of the cipher suites that were tried (17, 3)";
    assert_eq!(refused.to_string(), wanted);
}

#[tokio::test]
async fn silence_ends_in_time_and_holds_up_nobody_else() {
    let silent = TestBmc::start(Behaviour { drop_every: 1, ..Behaviour::default() }).await;
    let total = Duration::from_millis(600);
    let timeouts = Timeouts { total, ..timeouts() };
    let turns = Arc::new(Semaphore::new(1));
    let client = Client::new(endpoint(&silent), timeouts, Arc::clone(&turns));
    let started = Instant::now();
    let error = client.ask(&GetDeviceId).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(started.elapsed() < total * 3, "{:?}", started.elapsed());
    assert_eq!(turns.available_permits(), 1);
}

#[tokio::test]
async fn who_has_less_time_is_told_sooner() {
    let silent = TestBmc::start(Behaviour { drop_every: 1, ..Behaviour::default() }).await;
    let started = Instant::now();
    let client = client(endpoint(&silent));
    let error = client.ask_within(&GetDeviceId, Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(started.elapsed() < timeouts().total, "{:?}", started.elapsed());
}

#[tokio::test]
async fn nobody_there_is_said_with_the_networks_words() {
    // The port was free a moment ago.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let timeouts = Timeouts { total: Duration::from_millis(200), ..timeouts() };
    let endpoint = Endpoint { port, ..endpoint_at(port) };
    let client = Client::new(endpoint, timeouts, Arc::new(Semaphore::new(1)));
    let error = client.ask(&GetDeviceId).await.unwrap_err();
    let Error::Unreachable { source, .. } = error else { panic!("{error:?}") };
    assert_eq!(source.unwrap().kind(), std::io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn one_request_at_a_time_whoever_asks() {
    let bmc = TestBmc::start(Behaviour { slow: true, ..Behaviour::default() }).await;
    let turns = Arc::new(Semaphore::new(1));
    let clients: Vec<_> = (0..4)
        .map(|_| Client::new(endpoint(&bmc), timeouts(), Arc::clone(&turns)))
        .map(Arc::new)
        .collect();
    let mut asked = tokio::task::JoinSet::new();
    // They outlive their requests: a goodbye is not waited for, and would count.
    for client in &clients {
        let client = Arc::clone(client);
        asked.spawn(async move { client.ask(&GetDeviceId).await.map(drop) });
    }
    asked.join_all().await.into_iter().for_each(|asked| asked.unwrap());
    assert_eq!(bmc.state.most_at_once.load(Ordering::SeqCst), 1);
}

fn endpoint(bmc: &TestBmc) -> Endpoint {
    endpoint_at(bmc.port)
}

fn endpoint_at(port: u16) -> Endpoint {
    Endpoint {
        address: "127.0.0.1".to_owned(),
        port,
        credentials: Credentials::new(b"admin", b"secret", None).unwrap(),
        privilege: Privilege::Administrator,
        cipher_suite: None,
        bridging: None,
    }
}

fn timeouts() -> Timeouts {
    Timeouts {
        first_retransmission: Duration::from_millis(50),
        longest_wait: Duration::from_millis(300),
        total: Duration::from_secs(3),
        ..Timeouts::default()
    }
}

fn client(endpoint: Endpoint) -> Client {
    Client::new(endpoint, timeouts(), Arc::new(Semaphore::new(1)))
}

/// A client that gives up soon: for BMCs of which no answer is expected.
fn impatient(bmc: &TestBmc) -> Client {
    let timeouts = Timeouts { total: Duration::from_millis(500), ..timeouts() };
    Client::new(endpoint(bmc), timeouts, Arc::new(Semaphore::new(1)))
}
