// SPDX-License-Identifier: Apache-2.0
//! Many concurrent machines, as when racks are powered on.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use boot_media::Content;
use boot_server::DhcpMode;
use boot_server::dhcp4::Dhcp4Subnet;
use boot_server::tftp::{TftpFiles, TftpOpenError, TftpServer, TftpServices, TftpSettings};
use dhcp_codec::v4::{Dhcp4MessageType, Dhcp4Packet, MIN_MAX_MESSAGE_BYTES, option_code};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::dhcp::{lab, pxe_discover, serve};
use super::lab::{NetworkLab, RecordedEvents, ready, wall_clock};

const MACHINES: u16 = 640;

fn mac(number: u16) -> [u8; 6] {
    let [high, low] = number.to_be_bytes();
    [0x52, 0x54, 0, 0, high, low]
}

/// Requests a lease for every machine and repeats lost messages, like firmware.
fn boot_all() -> HashMap<[u8; 6], Ipv4Addr> {
    let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 68))).unwrap();
    socket.set_broadcast(true).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1000))).unwrap();
    let mut leased = HashMap::new();
    let mut buffer = [0; 2000];
    for _ in 0..10 {
        for number in (0..MACHINES).filter(|number| !leased.contains_key(&mac(*number))) {
            let discover = pxe_discover(mac(number));
            socket.send_to(&discover.encode(MIN_MAX_MESSAGE_BYTES), "255.255.255.255:67").unwrap();
        }
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let reply = Dhcp4Packet::decode(&buffer[..length]).unwrap();
            let mac = reply.hardware.mac().unwrap();
            if reply.message_type() == Some(Dhcp4MessageType::Ack) {
                leased.insert(mac, reply.your_address);
            } else {
                let mut request = pxe_discover(mac);
                request
                    .options
                    .set(option_code::MESSAGE_TYPE, [Dhcp4MessageType::Request.number()]);
                request
                    .options
                    .set_addresses(option_code::REQUESTED_ADDRESS, &[reply.your_address]);
                let server = reply.options.get_address(option_code::SERVER_ID).unwrap();
                request.options.set_addresses(option_code::SERVER_ID, &[server]);
                assert_eq!(from.port(), 67);
                socket
                    .send_to(&request.encode(MIN_MAX_MESSAGE_BYTES), "255.255.255.255:67")
                    .unwrap();
            }
            if leased.len() == usize::from(MACHINES) {
                return leased;
            }
        }
    }
    leased
}

#[test]
fn every_machine_gets_its_own_address() {
    if !ready(&["ip"]) {
        return;
    }
    let lab = lab();
    lab.ip("client", &["route", "add", "255.255.255.255/32", "dev", "c0"]);
    let mut subnet = Dhcp4Subnet::new(Ipv4Addr::new(10, 77, 0, 0), 20, DhcpMode::Discover);
    subnet.ranges = vec![(Ipv4Addr::new(10, 77, 4, 1), Ipv4Addr::new(10, 77, 7, 254))];
    let _server = serve(&lab, vec![subnet], &Arc::new(RecordedEvents::default()));
    let start = Instant::now();
    let leased = lab.inside("client", boot_all).join().unwrap();
    println!("{} machines in {:?}", leased.len(), start.elapsed());
    let addresses: HashSet<&Ipv4Addr> = leased.values().collect();
    assert_eq!((leased.len(), addresses.len()), (usize::from(MACHINES), usize::from(MACHINES)));
}

struct OneFile(Content);

#[async_trait]
impl TftpFiles for OneFile {
    async fn open(&self, _name: &str, _client: SocketAddr) -> Result<Content, TftpOpenError> {
        Ok(self.0.clone())
    }
}

/// Fetches the file with blocks of 1428 bytes and returns its size.
async fn fetch(server: SocketAddr) -> usize {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let request = b"\x00\x01file\x00octet\x00blksize\x001428\x00";
    let mut last_sent = request.to_vec();
    let mut to = server;
    let mut buffer = [0; 1500];
    let mut expected = 1_u16;
    let mut bytes = 0;
    loop {
        socket.send_to(&last_sent, to).await.unwrap();
        let timeout = Duration::from_secs(1);
        let Ok(received) = tokio::time::timeout(timeout, socket.recv_from(&mut buffer)).await
        else {
            continue;
        };
        let (length, from) = received.unwrap();
        to = from;
        if buffer[1] == 6 {
            last_sent = vec![0, 4, 0, 0];
        } else if buffer[1] == 3 && buffer[2..4] == expected.to_be_bytes() {
            last_sent = [&[0, 4][..], &buffer[2..4]].concat();
            expected = expected.wrapping_add(1);
            bytes += length - 4;
            if length < 1432 {
                socket.send_to(&last_sent, to).await.unwrap();
                return bytes;
            }
        }
    }
}

#[test]
fn two_thousand_concurrent_transfers_complete() {
    const TRANSFERS: usize = 2000;
    const SIZE: usize = 100_000;
    if !ready(&["ip"]) {
        return;
    }
    // Each transfer has two sockets, and the default limit is 1024 files.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let lab = NetworkLab::new(&["server"]);
    let services = TftpServices {
        files: Arc::new(OneFile(vec![7; SIZE].into())),
        events: Arc::new(RecordedEvents::default()),
        clock: Arc::new(wall_clock),
    };
    let _server = lab.serve("server", move || {
        let mut settings = TftpSettings::new("127.0.0.1:69".parse().unwrap());
        settings.max_transfers_per_client = TRANSFERS;
        TftpServer::bind(settings, services).unwrap().run()
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
