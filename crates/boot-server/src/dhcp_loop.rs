// SPDX-License-Identifier: Apache-2.0
//! The receive loop that the DHCPv4 and DHCPv6 servers share.
//!
//! One task per socket receives packets; one task owns the DHCP leases. That task takes all waiting packets
//! as a batch, looks up their machines once, handles them, commits the DHCP leases once, and only then sends
//! the replies. While the database or the disk is busy, packets queue up for the next batch.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::sockets::{self, SocketBindError};
use crate::{
    BootClock, BootDirectory, BootEventRecorder, BootLookupError, BootSnapshot,
    DhcpLeaseStoreError, HardwareAddress,
};

/// The number of packets that may wait. Further packets are dropped, and clients send them again.
const QUEUE_CAPACITY: usize = 4096;
/// The number of packets per lookup and per commit.
const MAX_BATCH: usize = 256;
/// The timeout of a lookup. Firmware repeats a request after four seconds at the earliest.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// What a DHCP server depends on.
#[derive(Clone)]
pub struct DhcpServices {
    /// Looks up what machines boot.
    pub directory: Arc<dyn BootDirectory>,
    /// Receives an event per handled packet.
    pub events: Arc<dyn BootEventRecorder>,
    /// Returns the current time.
    pub clock: BootClock,
}

/// The DHCP server cannot listen on an interface.
#[derive(Debug, thiserror::Error)]
#[error("DHCP cannot listen on {interface}")]
pub struct DhcpListenError {
    pub(crate) interface: Arc<str>,
    #[source]
    pub(crate) source: SocketBindError,
}

/// A socket that is bound to one interface.
pub(crate) struct DhcpSocket {
    /// The name of the interface.
    pub(crate) name: Arc<str>,
    /// The interface index.
    pub(crate) index: u32,
    /// The local port.
    pub(crate) port: u16,
    pub(crate) socket: UdpSocket,
}

/// A message and the socket on which it was received.
pub(crate) struct IncomingDhcpMessage<Message> {
    pub(crate) socket: Arc<DhcpSocket>,
    pub(crate) message: Message,
}

/// The parts of the loop that differ between DHCPv4 and DHCPv6.
pub(crate) trait DhcpProtocol {
    /// A decoded message and its sender.
    type Message: Send + 'static;
    /// The result of handling a message.
    type DhcpResponse: Send;
    type Leases: DurableDhcpLeases + Send + 'static;

    /// Decodes a packet. The error is the reason why it is invalid.
    fn decode(bytes: &[u8], from: SocketAddr) -> Result<Self::Message, String>;

    /// Returns the hardware address to look up, if any.
    fn hardware_address(
        &self,
        incoming: &IncomingDhcpMessage<Self::Message>,
    ) -> Option<HardwareAddress>;

    /// Handles a message without IO.
    fn handle(
        &mut self,
        incoming: &IncomingDhcpMessage<Self::Message>,
        leases: &mut Self::Leases,
        snapshot: &dyn BootSnapshot,
    ) -> Self::DhcpResponse;

    /// Records the event and sends the reply. An address that is not durable may not be assigned.
    fn deliver(
        &mut self,
        incoming: IncomingDhcpMessage<Self::Message>,
        response: Self::DhcpResponse,
        commit: &DhcpCommit,
    ) -> impl Future<Output = ()> + Send;
}

/// Which recorded leases are durable.
pub(crate) enum DhcpCommit {
    /// All but those of these addresses, which another process has leased to another client.
    Except(Vec<IpAddr>),
    /// None.
    Failed,
}

impl DhcpCommit {
    /// Returns whether a lease of this address may be assigned.
    pub(crate) fn is_durable(&self, address: IpAddr) -> bool {
        match self {
            Self::Except(conflicts) => !conflicts.contains(&address),
            Self::Failed => false,
        }
    }
}

/// DHCP leases that are recorded first and made durable by a commit.
pub(crate) trait DurableDhcpLeases {
    /// Returns whether anything was recorded since the last commit.
    fn needs_commit(&self) -> bool;

    /// Makes what was recorded durable. Returns the addresses that another process has leased to another client.
    fn commit(&mut self) -> Result<Vec<IpAddr>, DhcpLeaseStoreError>;

    /// Returns whether other processes may have recorded something since the last refresh.
    fn is_stale(&self) -> bool;

    /// Applies what other processes recorded.
    fn refresh(&mut self) -> Result<(), DhcpLeaseStoreError>;
}

/// The queue between the receiving tasks and the loop.
pub(crate) struct DhcpQueue<Message> {
    pub(crate) sender: mpsc::Sender<IncomingDhcpMessage<Message>>,
    receiver: mpsc::Receiver<IncomingDhcpMessage<Message>>,
}

impl<Message> DhcpQueue<Message> {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
        Self { sender, receiver }
    }
}

impl DhcpSocket {
    pub(crate) fn new(
        name: &Arc<str>,
        port: u16,
        socket: UdpSocket,
    ) -> Result<Self, SocketBindError> {
        Ok(Self { name: name.clone(), index: sockets::interface_index(name)?, port, socket })
    }
}

/// Serves the sockets until the future is dropped.
pub(crate) async fn serve<P: DhcpProtocol>(
    mut protocol: P,
    mut leases: P::Leases,
    sockets: Vec<DhcpSocket>,
    directory: Arc<dyn BootDirectory>,
    mut queue: DhcpQueue<P::Message>,
) {
    let mut receivers = JoinSet::new();
    for socket in sockets {
        receivers.spawn(receive(Arc::new(socket), P::decode, queue.sender.clone()));
    }
    drop(queue.sender);
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut responses = Vec::with_capacity(MAX_BATCH);
    while queue.receiver.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let machines: HashSet<HardwareAddress> =
            batch.iter().filter_map(|incoming| protocol.hardware_address(incoming)).collect();
        let Some(snapshot) = look_up(&*directory, machines, batch.len()).await else {
            batch.clear();
            continue;
        };
        if leases.is_stale() {
            leases = refresh(leases).await;
        }
        for incoming in batch.drain(..) {
            let response = protocol.handle(&incoming, &mut leases, &*snapshot);
            responses.push((incoming, response));
        }
        drop(snapshot);
        let mut outcome = DhcpCommit::Except(Vec::new());
        if leases.needs_commit() {
            (leases, outcome) = commit(leases).await;
        }
        for (incoming, response) in responses.drain(..) {
            protocol.deliver(incoming, response, &outcome).await;
        }
    }
}

/// Looks up the machines of a batch. Returns `None` if the packets have to be dropped.
async fn look_up(
    directory: &dyn BootDirectory,
    machines: HashSet<HardwareAddress>,
    packets: usize,
) -> Option<Box<dyn BootSnapshot>> {
    let machines: Vec<HardwareAddress> = machines.into_iter().collect();
    let timed_out = |_| Err(BootLookupError::new("the lookup timed out"));
    tokio::time::timeout(LOOKUP_TIMEOUT, directory.look_up(&machines))
        .await
        .unwrap_or_else(timed_out)
        .inspect_err(|error| {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::warn!(packets, cause, "boot lookup failed, DHCP packets dropped");
        })
        .ok()
}

/// Applies what other processes recorded, on a thread that may block. Without it no address is assigned twice,
/// because the commit fails for an address that another process has leased.
async fn refresh<Leases: DurableDhcpLeases + Send + 'static>(mut leases: Leases) -> Leases {
    let refreshing = tokio::task::spawn_blocking(move || {
        let result = leases.refresh();
        (leases, result)
    });
    let (leases, result) = refreshing.await.expect("refreshing DHCP leases does not panic");
    if let Err(error) = &result {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::warn!(%error, cause, "DHCP leases of other processes could not be read");
    }
    leases
}

/// Commits on a thread that may block. Returns the leases and which of them are durable.
async fn commit<Leases: DurableDhcpLeases + Send + 'static>(
    mut leases: Leases,
) -> (Leases, DhcpCommit) {
    let committing = tokio::task::spawn_blocking(move || {
        let result = leases.commit();
        (leases, result)
    });
    let (leases, result) = committing.await.expect("committing DHCP leases does not panic");
    let outcome = match result {
        Ok(conflicts) => DhcpCommit::Except(conflicts),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            tracing::error!(%error, cause, "DHCP lease commit failed, addresses not assigned");
            DhcpCommit::Failed
        }
    };
    (leases, outcome)
}

async fn receive<Message>(
    socket: Arc<DhcpSocket>,
    decode: fn(&[u8], SocketAddr) -> Result<Message, String>,
    queue: mpsc::Sender<IncomingDhcpMessage<Message>>,
) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, from) = match socket.socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(interface = %socket.name, %error, "DHCP receive failed");
                // An interface that is down reports this error continuously.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let message = match decode(&buffer[..length], from) {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(interface = %socket.name, %from, %error, "invalid DHCP message");
                continue;
            }
        };
        let incoming = IncomingDhcpMessage { socket: socket.clone(), message };
        if let Err(mpsc::error::TrySendError::Closed(_)) = queue.try_send(incoming) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use tokio::time::Instant;

    use super::*;
    use crate::{BootInstructions, BootRequest};

    fn hardware(number: u8) -> HardwareAddress {
        HardwareAddress::ethernet([2, 0, 0, 0, 0, number])
    }

    /// Records lookups, hangs if address 0 is looked up, and fails for address 255.
    #[derive(Default)]
    struct FakeDirectory {
        lookups: Mutex<Vec<Vec<HardwareAddress>>>,
    }

    struct EmptySnapshot;

    impl BootSnapshot for EmptySnapshot {
        fn instructions(&self, _request: &BootRequest<'_>) -> BootInstructions {
            BootInstructions::default()
        }
    }

    #[async_trait]
    impl BootDirectory for FakeDirectory {
        async fn look_up(
            &self,
            machines: &[HardwareAddress],
        ) -> Result<Box<dyn BootSnapshot>, BootLookupError> {
            let mut machines = machines.to_vec();
            machines.sort_unstable();
            let hangs = machines.contains(&hardware(0));
            let fails = machines.contains(&hardware(255));
            self.lookups.lock().unwrap().push(machines);
            if hangs {
                std::future::pending::<()>().await;
            }
            if fails {
                return Err(BootLookupError::new("no database"));
            }
            Ok(Box::new(EmptySnapshot))
        }
    }

    #[derive(Default)]
    struct FakeLeases {
        is_dirty: bool,
        is_refreshed: bool,
        fails: bool,
    }

    /// Another process has leased the address of this machine.
    const CONFLICT: u8 = 77;

    fn address(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    impl DurableDhcpLeases for FakeLeases {
        fn needs_commit(&self) -> bool {
            self.is_dirty
        }

        fn commit(&mut self) -> Result<Vec<IpAddr>, DhcpLeaseStoreError> {
            self.is_dirty = false;
            let source = std::io::ErrorKind::StorageFull.into();
            if self.fails {
                return Err(DhcpLeaseStoreError::Write { location: "leases".into(), source });
            }
            Ok(vec![address(CONFLICT)])
        }

        fn is_stale(&self) -> bool {
            !self.is_refreshed
        }

        fn refresh(&mut self) -> Result<(), DhcpLeaseStoreError> {
            self.is_refreshed = true;
            Ok(())
        }
    }

    /// A protocol whose messages are the last byte of a hardware address. Each message gets a lease.
    struct OneByteProtocol {
        sent: mpsc::UnboundedSender<(u8, bool)>,
    }

    impl DhcpProtocol for OneByteProtocol {
        type Message = u8;
        type DhcpResponse = u8;
        type Leases = FakeLeases;

        fn decode(bytes: &[u8], _from: SocketAddr) -> Result<u8, String> {
            bytes.first().copied().ok_or_else(|| "empty".to_owned())
        }

        fn hardware_address(&self, incoming: &IncomingDhcpMessage<u8>) -> Option<HardwareAddress> {
            Some(hardware(incoming.message))
        }

        fn handle(
            &mut self,
            incoming: &IncomingDhcpMessage<u8>,
            leases: &mut FakeLeases,
            _snapshot: &dyn BootSnapshot,
        ) -> u8 {
            assert!(leases.is_refreshed, "leases are refreshed before packets are handled");
            leases.is_dirty = true;
            incoming.message
        }

        async fn deliver(
            &mut self,
            _incoming: IncomingDhcpMessage<u8>,
            response: u8,
            commit: &DhcpCommit,
        ) {
            self.sent.send((response, commit.is_durable(address(response)))).unwrap();
        }
    }

    /// Returns what is sent for these messages. Each round is queued while the previous one is handled.
    async fn serve_rounds(
        directory: &Arc<FakeDirectory>,
        leases: FakeLeases,
        rounds: &[&[u8]],
    ) -> Vec<(u8, bool)> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let socket = Arc::new(DhcpSocket { name: "lo".into(), index: 1, port: 67, socket });
        let queue = DhcpQueue::new();
        let sender = queue.sender.clone();
        let (sent, mut delivered) = mpsc::unbounded_channel();
        let protocol = OneByteProtocol { sent };
        let serving = tokio::spawn(serve(protocol, leases, vec![], directory.clone(), queue));
        for round in rounds {
            for message in *round {
                let incoming = IncomingDhcpMessage { socket: socket.clone(), message: *message };
                sender.send(incoming).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
        drop(sender);
        let mut all = Vec::new();
        while let Some(one) = delivered.recv().await {
            all.push(one);
        }
        serving.await.unwrap();
        all
    }

    #[tokio::test]
    async fn looks_up_all_machines_of_a_batch_at_once() {
        let directory = Arc::default();
        let sent = serve_rounds(&directory, FakeLeases::default(), &[&[7, 8, 7, 9, 8]]).await;
        assert_eq!(sent, [7, 8, 7, 9, 8].map(|number| (number, true)));
        assert_eq!(*directory.lookups.lock().unwrap(), [[7, 8, 9].map(hardware).to_vec()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_lookup_drops_its_packets_after_two_seconds() {
        let started = Instant::now();
        let directory = Arc::default();
        // The later rounds queue up while the first is looked up.
        let rounds: [&[u8]; 3] = [&[1, 0, 2], &[3], &[4]];
        let sent = serve_rounds(&directory, FakeLeases::default(), &rounds).await;
        assert_eq!(sent, [(3, true), (4, true)]);
        assert_eq!(started.elapsed().as_secs(), LOOKUP_TIMEOUT.as_secs());
        let lookups = directory.lookups.lock().unwrap();
        assert_eq!(lookups.last(), Some(&[3, 4].map(hardware).to_vec()));
    }

    #[tokio::test]
    async fn a_failing_lookup_drops_only_its_packets() {
        let rounds: [&[u8]; 2] = [&[1, 255, 2], &[3]];
        let sent = serve_rounds(&Arc::default(), FakeLeases::default(), &rounds).await;
        assert_eq!(sent, [(3, true)]);
    }

    #[tokio::test]
    async fn only_leases_of_other_processes_are_not_durable() {
        let sent = serve_rounds(&Arc::default(), FakeLeases::default(), &[&[1, CONFLICT, 2]]).await;
        assert_eq!(sent, [(1, true), (CONFLICT, false), (2, true)]);
    }

    #[tokio::test]
    async fn responses_are_not_durable_if_the_commit_fails() {
        let leases = FakeLeases { fails: true, ..FakeLeases::default() };
        let sent = serve_rounds(&Arc::default(), leases, &[&[1, 2]]).await;
        assert_eq!(sent, [(1, false), (2, false)]);
    }
}
