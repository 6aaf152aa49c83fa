// SPDX-License-Identifier: Apache-2.0
//! Many machines at once: a row of racks that is switched on.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use boot_media::Content;
use boot_server::Mode;
use boot_server::dhcp4::{MessageType, Packet, Subnet, code};
use boot_server::tftp::{Files, OpenError, Server, Services, Settings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::dhcp::{lab, pxe_discover, serve};
use super::lab::{Lab, Seen, ready, wall_clock};

const MACHINES: u16 = 640;

fn card(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [0x52, 0x54, 0, 0, high, low]
}

/// Leases for all machines, got like firmware gets them: what is lost is asked for again.
fn boot_all() -> HashMap<[u8; 6], Ipv4Addr> {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 68))).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1000))).unwrap();
    let mut leased = HashMap::new();
    let mut buffer = [0; 2000];
    for _ in 0..10 {
        for number in (0..MACHINES).filter(|number| !leased.contains_key(&card(*number))) {
            let discover = pxe_discover(card(number));
            socket.send_to(&discover.encode(548), "255.255.255.255:67").unwrap();
        }
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let reply = Packet::decode(&buffer[..length]).unwrap();
            let card = reply.hardware.mac().unwrap();
            if reply.message_type() == Some(MessageType::Ack) {
                leased.insert(card, reply.your_address);
            } else {
                let mut request = pxe_discover(card);
                request.options.set(code::MESSAGE_TYPE, [MessageType::Request.number()]);
                request.options.set_addresses(code::REQUESTED_ADDRESS, &[reply.your_address]);
                let server = reply.options.address(code::SERVER_ID).unwrap();
                request.options.set_addresses(code::SERVER_ID, &[server]);
                assert_eq!(from.port(), 67);
                socket.send_to(&request.encode(548), "255.255.255.255:67").unwrap();
            }
            if leased.len() == usize::from(MACHINES) {
                return leased;
            }
        }
    }
    leased
}

#[test]
fn every_machine_of_a_row_of_racks_gets_its_own_address() {
    if !ready(&["ip"]) {
        return;
    }
    let lab = lab();
    lab.ip("client", &["route", "add", "255.255.255.255/32", "dev", "c0"]);
    let mut subnet = Subnet::new(Ipv4Addr::new(10, 77, 0, 0), 20, Mode::Discover);
    subnet.ranges = vec![(Ipv4Addr::new(10, 77, 4, 1), Ipv4Addr::new(10, 77, 7, 254))];
    let _serving = serve(&lab, vec![subnet], &Arc::new(Seen::default()));
    let start = Instant::now();
    let leased = lab.inside("client", boot_all).join().unwrap();
    println!("{} machines in {:?}", leased.len(), start.elapsed());
    let addresses: HashSet<&Ipv4Addr> = leased.values().collect();
    assert_eq!((leased.len(), addresses.len()), (usize::from(MACHINES), usize::from(MACHINES)));
}

struct OneFile(Content);

#[async_trait]
impl Files for OneFile {
    async fn open(&self, _name: &str, _client: SocketAddr) -> Result<Content, OpenError> {
        Ok(self.0.clone())
    }
}

/// Fetches the file with blocks of 1428 bytes; gives the number of bytes.
async fn fetch(server: SocketAddr) -> usize {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request = b"\x00\x01file\x00octet\x00blksize\x001428\x00";
    let mut said = request.to_vec();
    let mut to = server;
    let mut buffer = [0; 1500];
    let mut expected = 1_u16;
    let mut bytes = 0;
    loop {
        socket.send_to(&said, to).await.unwrap();
        let patience = Duration::from_secs(1);
        let Ok(received) = tokio::time::timeout(patience, socket.recv_from(&mut buffer)).await
        else {
            continue;
        };
        let (length, from) = received.unwrap();
        to = from;
        if buffer[1] == 6 {
            said = vec![0, 4, 0, 0];
        } else if buffer[1] == 3 && buffer[2..4] == expected.to_be_bytes() {
            said = [&[0, 4][..], &buffer[2..4]].concat();
            expected = expected.wrapping_add(1);
            bytes += length - 4;
            if length < 1432 {
                socket.send_to(&said, to).await.unwrap();
                return bytes;
            }
        }
    }
}

#[test]
fn two_thousand_transfers_at_once_all_end() {
    const TRANSFERS: usize = 2000;
    const SIZE: usize = 100_000;
    if !ready(&["ip"]) {
        return;
    }
    // Two sockets per transfer, where a shell's ordinary limit is a thousand.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let lab = Lab::new(&["server"]);
    let services = Services {
        files: Arc::new(OneFile(vec![7; SIZE].into())),
        sightings: Arc::new(Seen::default()),
        clock: wall_clock,
    };
    let _serving = lab.serve("server", move || {
        let mut settings = Settings::new("127.0.0.1:69".parse().unwrap());
        settings.most_per_client = TRANSFERS;
        Server::bind(settings, services).unwrap().run()
    });
    let start = Instant::now();
    let fetched = lab.inside("server", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut clients = tokio::task::JoinSet::new();
            for _ in 0..TRANSFERS {
                clients.spawn(fetch("127.0.0.1:69".parse().unwrap()));
            }
            clients.join_all().await
        })
    });
    let fetched = fetched.join().unwrap();
    println!("{TRANSFERS} transfers of {SIZE} bytes in {:?}", start.elapsed());
    assert_eq!(fetched, vec![SIZE; TRANSFERS]);
}
