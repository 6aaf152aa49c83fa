// SPDX-License-Identifier: Apache-2.0
//! Tests of the DNS forwarder: decisions about messages, and exchanges over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use super::forwarder::{parse_resolvers, read_message, write_message};
use super::*;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn own() -> OwnDnsNames {
    OwnDnsNames::new(["ferrite", "ferrite.lab.example"], ADDRESS.into()).unwrap()
}

fn query(name: &str, record_type: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.metadata.id = 77;
    message.metadata.recursion_desired = true;
    message.queries.push(Query::query(Name::from_ascii(name).unwrap(), record_type));
    message.to_vec().unwrap()
}

/// Response code and addresses.
fn summary(response: &[u8]) -> (u16, ResponseCode, Vec<String>) {
    let message = Message::from_vec(response).unwrap();
    let answers = message.answers.iter().map(|record| record.data.to_string()).collect();
    (message.metadata.id, message.metadata.response_code, answers)
}

#[test]
fn own_names_are_resolved_here_and_others_are_forwarded() {
    let names = own();
    for (name, record_type, expected) in [
        ("ferrite.", RecordType::A, Some((ResponseCode::NoError, vec!["10.0.0.1"]))),
        ("FERRITE.lab.example.", RecordType::A, Some((ResponseCode::NoError, vec!["10.0.0.1"]))),
        ("ferrite.", RecordType::AAAA, Some((ResponseCode::NoError, vec![]))),
        ("ferrite.", RecordType::ANY, Some((ResponseCode::Refused, vec![]))),
        ("example.org.", RecordType::AXFR, Some((ResponseCode::Refused, vec![]))),
        ("example.org.", RecordType::A, None),
        ("other.ferrite.", RecordType::A, None),
    ] {
        match (names.decide(&query(name, record_type)), expected) {
            (DnsAction::Respond(response), Some((code, addresses))) => {
                let addresses: Vec<String> = addresses.into_iter().map(str::to_owned).collect();
                assert_eq!(summary(&response), (77, code, addresses), "{name} {record_type}");
            }
            (DnsAction::Forward(question), None) => assert_eq!(question.metadata.id, 77),
            (action, expected) => panic!("{name} {record_type}: {action:?} {expected:?}"),
        }
    }
}

#[test]
fn other_messages_are_rejected() {
    let names = own();
    let DnsAction::Respond(response) = names.decide(&query("ferrite.", RecordType::A)) else {
        panic!("no response");
    };
    assert_eq!(names.decide(&response), DnsAction::Drop, "a response is not a query");
    assert_eq!(names.decide(&[0; 5]), DnsAction::Drop);
    let mut two = Message::from_vec(&query("a.", RecordType::A)).unwrap();
    two.queries.push(two.queries[0].clone());
    let rejected = |message: &Message| {
        let DnsAction::Respond(response) = names.decide(&message.to_vec().unwrap()) else {
            panic!("no response to {message}");
        };
        summary(&response).1
    };
    assert_eq!(rejected(&two), ResponseCode::FormErr);
    let mut update = Message::query();
    update.metadata.op_code = OpCode::Update;
    assert_eq!(rejected(&update), ResponseCode::NotImp);
}

#[test]
fn names_are_checked() {
    assert_eq!(OwnDnsNames::new([""], ADDRESS.into()), Err(DnsNameError(String::new())));
    let long = "a".repeat(64);
    OwnDnsNames::new([long.as_str()], ADDRESS.into()).unwrap_err();
}

#[test]
fn resolvers_are_read_from_the_file() {
    let text = "# nameserver 1.1.1.1\nsearch lab\nnameserver 127.0.0.53\n nameserver fd00::53 x\n\
                nameserver fe80::1%eth0\nnameserver\n";
    let found: Vec<String> = parse_resolvers(text).iter().map(ToString::to_string).collect();
    assert_eq!(found, ["127.0.0.53:53", "[fd00::53]:53"]);
}

proptest! {
    #[test]
    fn no_message_panics_the_forwarder(message in prop::collection::vec(any::<u8>(), 0..600)) {
        let names = own();
        let _ = names.decide(&message);
        // With a valid start.
        let mut changed = query("ferrite.lab.example.", RecordType::A);
        for (byte, random) in changed.iter_mut().skip(12).zip(&message) {
            *byte ^= *random;
        }
        let _ = names.decide(&changed);
    }
}

/// A resolver that responds with one address, after a message that is not the response.
async fn fake_resolver() -> SocketAddr {
    let (udp, tcp) = loop {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        // Another program may use the port for TCP.
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            break (udp, tcp);
        }
    };
    let address = udp.local_addr().unwrap();
    let respond = |message: &[u8], last: u8| {
        let mut response = Message::from_vec(message).unwrap().into_response();
        let name = response.queries[0].name.clone();
        let data = RData::A(A(Ipv4Addr::new(192, 0, 2, last)));
        response.answers.push(Record::from_rdata(name, 5, data));
        response.to_vec().unwrap()
    };
    tokio::spawn(async move {
        let mut buffer = [0; 4096];
        loop {
            let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
            let mut response = respond(&buffer[..length], 1);
            // A forged response has another ID.
            response[0] ^= 1;
            udp.send_to(&response, from).await.unwrap();
            udp.send_to(&respond(&buffer[..length], 2), from).await.unwrap();
        }
    });
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = tcp.accept().await.unwrap();
            let message = read_message(&mut stream, 4096).await.unwrap();
            write_message(&mut stream, &respond(&message, 3)).await.unwrap();
        }
    });
    address
}

fn start(upstreams: DnsUpstreams, is_client: bool) -> SocketAddr {
    let upstreams = Arc::new(upstreams);
    let bind = || {
        let settings = DnsServerSettings {
            listen: ([127, 0, 0, 1], 0).into(),
            interface: None,
            names: own(),
            is_client: Arc::new(move |_| is_client),
        };
        DnsListener::bind(settings, Arc::clone(&upstreams))
    };
    // The UDP port that the system chooses may be in use for TCP.
    let listener = (0..50).find_map(|_| bind().ok()).unwrap();
    let address = listener.local_address().unwrap();
    tokio::spawn(listener.run());
    address
}

async fn exchange_with(server: SocketAddr, message: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.send_to(message, server).await.unwrap();
    let mut buffer = [0; 4096];
    let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
    assert_eq!(from, server);
    buffer[..length].to_vec()
}

#[tokio::test]
async fn queries_are_forwarded_over_both_transports() {
    let resolver = fake_resolver().await;
    let server = start(DnsUpstreams::fixed(vec![resolver]), true);
    let message = query("example.org.", RecordType::A);
    let expected = |last: u8| (77, ResponseCode::NoError, vec![format!("192.0.2.{last}")]);
    assert_eq!(
        summary(&exchange_with(server, &message).await),
        expected(2),
        "the forged one is ignored"
    );
    let mut stream = TcpStream::connect(server).await.unwrap();
    for (message, expected) in [
        (message, expected(3)),
        (
            query("ferrite.", RecordType::A),
            (77, ResponseCode::NoError, vec!["10.0.0.1".to_owned()]),
        ),
    ] {
        write_message(&mut stream, &message).await.unwrap();
        assert_eq!(summary(&read_message(&mut stream, 4096).await.unwrap()), expected);
    }
}

#[tokio::test]
async fn failing_resolvers_are_skipped_and_reported() {
    let resolver = fake_resolver().await;
    // Bound and not read from: nothing responds.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    let server = start(DnsUpstreams::fixed(vec![silent_address, resolver]), true);
    let message = query("example.org.", RecordType::A);
    assert_eq!(summary(&exchange_with(server, &message).await).2, ["192.0.2.2"]);
    let server = start(DnsUpstreams::fixed(Vec::new()), true);
    assert_eq!(summary(&exchange_with(server, &message).await).1, ResponseCode::ServFail);
    drop(silent);
}

#[tokio::test]
async fn clients_of_other_networks_get_no_response() {
    let server = start(DnsUpstreams::fixed(Vec::new()), false);
    let message = query("ferrite.", RecordType::A);
    let response = exchange_with(server, &message);
    tokio::time::timeout(Duration::from_millis(200), response).await.unwrap_err();
    let mut stream = TcpStream::connect(server).await.unwrap();
    let closed = async {
        let _ = write_message(&mut stream, &query("ferrite.", RecordType::A)).await;
        read_message(&mut stream, 4096).await
    };
    closed.await.unwrap_err();
}
