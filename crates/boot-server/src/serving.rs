// SPDX-License-Identifier: Apache-2.0
//! The loop that DHCP for v4 and for v6 share.
//!
//! One task per socket reads packets; one task owns the leases. It takes whatever is waiting, has the
//! plans looked up once for all of it, answers, makes the leases durable once, and only then sends.
//! While the database or the disk is busy packets gather, and the next round serves them all.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node_model::Timestamp;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::interface::{self, BindError};
use crate::{HardwareAddress, LeaseBookError, Plans, Sightings};

/// Packets that may wait to be answered. Beyond that they are dropped, and clients ask again.
const QUEUE: usize = 4096;
/// Packets answered per look-up and per flush to disk.
const BATCH: usize = 256;
/// How long the plans may be looked up. Firmware asks again after four seconds at the earliest.
const LOOK_UP_TIME: Duration = Duration::from_secs(2);

/// What a DHCP server works with.
#[derive(Clone)]
pub struct Services {
    /// What machines should boot.
    pub plans: Arc<dyn Plans>,
    /// Who is told of exchanges.
    pub sightings: Arc<dyn Sightings>,
    /// The time of day.
    pub clock: fn() -> Timestamp,
}

/// A DHCP server could not begin to listen.
#[derive(Debug, thiserror::Error)]
#[error("DHCP cannot listen on {interface}")]
pub struct ListenError {
    pub(crate) interface: Arc<str>,
    #[source]
    pub(crate) source: BindError,
}

/// One socket of one interface.
pub(crate) struct Link {
    pub(crate) name: Arc<str>,
    /// The kernel's number of the interface.
    pub(crate) index: u32,
    /// The port it listens on.
    pub(crate) port: u16,
    pub(crate) socket: UdpSocket,
}

/// A message and the socket it came in by.
pub(crate) struct Incoming<Message> {
    pub(crate) link: Arc<Link>,
    pub(crate) message: Message,
}

/// What the two versions of DHCP do each in their own way.
pub(crate) trait Version {
    /// A message and who sent it.
    type Message: Send + 'static;
    type Answer: Send;
    type Leases: Durable + Send + 'static;

    /// Reads a message; an error says why it is none.
    fn decode(bytes: &[u8], from: SocketAddr) -> Result<Self::Message, String>;

    /// The card whose plan is going to be asked for, if it will be.
    fn card(&self, incoming: &Incoming<Self::Message>) -> Option<HardwareAddress>;

    /// What to answer, out of memory.
    fn answer(
        &mut self,
        incoming: &Incoming<Self::Message>,
        leases: &mut Self::Leases,
    ) -> Self::Answer;

    /// Tells and sends what was answered. If the leases are not durable, none may be given.
    fn finish(
        &mut self,
        incoming: Incoming<Self::Message>,
        answer: Self::Answer,
        is_durable: bool,
    ) -> impl Future<Output = ()> + Send;
}

/// Leases that are recorded first and made durable later.
pub(crate) trait Durable {
    /// Whether there is anything to commit.
    fn needs_commit(&self) -> bool;

    /// Makes what was recorded durable.
    fn commit(&mut self) -> Result<(), LeaseBookError>;
}

/// The way into the loop.
pub(crate) struct Queue<Message> {
    pub(crate) sender: mpsc::Sender<Incoming<Message>>,
    receiver: mpsc::Receiver<Incoming<Message>>,
}

impl<Message> Queue<Message> {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(QUEUE);
        Self { sender, receiver }
    }
}

impl Link {
    pub(crate) fn new(name: &Arc<str>, port: u16, socket: UdpSocket) -> Result<Self, BindError> {
        Ok(Self { name: name.clone(), index: interface::index(name)?, port, socket })
    }
}

/// Serves what comes in by the links until it is dropped.
pub(crate) async fn serve<V: Version>(
    mut version: V,
    mut leases: V::Leases,
    links: Vec<Link>,
    plans: Arc<dyn Plans>,
    mut queue: Queue<V::Message>,
) {
    let mut readers = JoinSet::new();
    for link in links {
        readers.spawn(read(Arc::new(link), V::decode, queue.sender.clone()));
    }
    drop(queue.sender);
    let mut batch = Vec::with_capacity(BATCH);
    let mut answers = Vec::with_capacity(BATCH);
    while queue.receiver.recv_many(&mut batch, BATCH).await > 0 {
        let cards: HashSet<HardwareAddress> =
            batch.iter().filter_map(|incoming| version.card(incoming)).collect();
        if !look_up(&*plans, cards).await {
            let packets = batch.len();
            tracing::warn!(
                packets,
                "what machines should boot could not be found out; their packets were dropped"
            );
            batch.clear();
            continue;
        }
        for incoming in batch.drain(..) {
            let answer = version.answer(&incoming, &mut leases);
            answers.push((incoming, answer));
        }
        let mut is_durable = true;
        if leases.needs_commit() {
            (leases, is_durable) = commit(leases).await;
        }
        for (incoming, answer) in answers.drain(..) {
            version.finish(incoming, answer, is_durable).await;
        }
    }
}

/// Whether the plans of these machines are in memory now.
async fn look_up(plans: &dyn Plans, cards: HashSet<HardwareAddress>) -> bool {
    if cards.is_empty() {
        return true;
    }
    let cards: Vec<HardwareAddress> = cards.into_iter().collect();
    tokio::time::timeout(LOOK_UP_TIME, plans.look_up(&cards)).await.unwrap_or(false)
}

/// Commits on a thread that may wait for the disk; gives the leases back, and whether they are durable.
async fn commit<Leases: Durable + Send + 'static>(mut leases: Leases) -> (Leases, bool) {
    let done = tokio::task::spawn_blocking(move || {
        let outcome = leases.commit();
        (leases, outcome)
    });
    let (leases, outcome) = done.await.expect("committing leases does not panic");
    if let Err(error) = &outcome {
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::error!(%error, cause, "no lease was given");
    }
    (leases, outcome.is_ok())
}

async fn read<Message>(
    link: Arc<Link>,
    decode: fn(&[u8], SocketAddr) -> Result<Message, String>,
    queue: mpsc::Sender<Incoming<Message>>,
) {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, from) = match link.socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::debug!(interface = %link.name, %error, "DHCP receive");
                // An interface that is down reports it again and again.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let message = match decode(&buffer[..length], from) {
            Ok(message) => message,
            Err(error) => {
                tracing::debug!(interface = %link.name, %from, %error, "no DHCP message");
                continue;
            }
        };
        let incoming = Incoming { link: link.clone(), message };
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
    use crate::{BootRequest, Plan};

    fn card(number: u8) -> HardwareAddress {
        HardwareAddress::ethernet([2, 0, 0, 0, 0, number])
    }

    /// Notes what it is asked, hangs when it is asked for card 0, and fails for card 255.
    #[derive(Default)]
    struct Database {
        asked: Mutex<Vec<Vec<HardwareAddress>>>,
    }

    #[async_trait]
    impl Plans for Database {
        async fn look_up(&self, machines: &[HardwareAddress]) -> bool {
            let mut machines = machines.to_vec();
            machines.sort_unstable();
            let (hangs, fails) = (machines.contains(&card(0)), machines.contains(&card(255)));
            self.asked.lock().unwrap().push(machines);
            if hangs {
                std::future::pending::<()>().await;
            }
            !fails
        }

        fn plan(&self, _request: &BootRequest<'_>) -> Plan {
            Plan::default()
        }
    }

    #[derive(Default)]
    struct Book {
        is_dirty: bool,
        fails: bool,
    }

    impl Durable for Book {
        fn needs_commit(&self) -> bool {
            self.is_dirty
        }

        fn commit(&mut self) -> Result<(), LeaseBookError> {
            self.is_dirty = false;
            let source = std::io::ErrorKind::StorageFull.into();
            if self.fails {
                return Err(LeaseBookError::Write { place: "the book".into(), source });
            }
            Ok(())
        }
    }

    /// A protocol whose messages are a card's number, each of which is given a lease.
    struct Numbers {
        sent: mpsc::UnboundedSender<(u8, bool)>,
    }

    impl Version for Numbers {
        type Message = u8;
        type Answer = u8;
        type Leases = Book;

        fn decode(bytes: &[u8], _from: SocketAddr) -> Result<u8, String> {
            bytes.first().copied().ok_or_else(|| "empty".to_owned())
        }

        fn card(&self, incoming: &Incoming<u8>) -> Option<HardwareAddress> {
            Some(card(incoming.message))
        }

        fn answer(&mut self, incoming: &Incoming<u8>, leases: &mut Book) -> u8 {
            leases.is_dirty = true;
            incoming.message
        }

        async fn finish(&mut self, _incoming: Incoming<u8>, answer: u8, is_durable: bool) {
            self.sent.send((answer, is_durable)).unwrap();
        }
    }

    /// What is sent for these messages: first the ones that are waiting, then what comes later.
    async fn sent(database: &Arc<Database>, book: Book, rounds: &[&[u8]]) -> Vec<(u8, bool)> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let link = Arc::new(Link { name: "lo".into(), index: 1, port: 67, socket });
        let queue = Queue::new();
        let sender = queue.sender.clone();
        let (told, mut telling) = mpsc::unbounded_channel();
        let serving =
            tokio::spawn(serve(Numbers { sent: told }, book, vec![], database.clone(), queue));
        for round in rounds {
            for message in *round {
                let incoming = Incoming { link: link.clone(), message: *message };
                sender.send(incoming).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
        drop(sender);
        let mut all = Vec::new();
        while let Some(one) = telling.recv().await {
            all.push(one);
        }
        serving.await.unwrap();
        all
    }

    #[tokio::test]
    async fn plans_are_looked_up_once_for_all_that_is_waiting() {
        let database = Arc::default();
        let sent = sent(&database, Book::default(), &[&[7, 8, 7, 9, 8]]).await;
        assert_eq!(sent, [7, 8, 7, 9, 8].map(|number| (number, true)));
        assert_eq!(*database.asked.lock().unwrap(), [[7, 8, 9].map(card).to_vec()]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_up_that_hangs_costs_its_packets_and_two_seconds() {
        let began = Instant::now();
        let database = Arc::default();
        // The second round gathers while the first is being looked up.
        let sent = sent(&database, Book::default(), &[&[1, 0, 2], &[3], &[4]]).await;
        assert_eq!(sent, [(3, true), (4, true)]);
        assert_eq!(began.elapsed().as_secs(), LOOK_UP_TIME.as_secs());
        assert_eq!(database.asked.lock().unwrap().last(), Some(&[3, 4].map(card).to_vec()));
    }

    #[tokio::test]
    async fn a_look_up_that_fails_costs_its_packets_and_no_others() {
        let sent = sent(&Arc::default(), Book::default(), &[&[1, 255, 2], &[3]]).await;
        assert_eq!(sent, [(3, true)]);
    }

    #[tokio::test]
    async fn nothing_counts_as_durable_when_the_book_cannot_be_written() {
        let book = Book { fails: true, ..Book::default() };
        let sent = sent(&Arc::default(), book, &[&[1, 2]]).await;
        assert_eq!(sent, [(1, false), (2, false)]);
    }
}
