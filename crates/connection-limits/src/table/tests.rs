// SPDX-License-Identifier: Apache-2.0
//! Tests of the connection table.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const LIMITS: ConnectionLimits = ConnectionLimits { total: 10, reserved: 2, per_client: 4 };

fn client(number: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, number])
}

fn admit(table: &Arc<ConnectionTable>, number: u8) -> Option<ConnectionSlot> {
    table.admit(client(number), Instant::now())
}

fn is_closing(slot: &ConnectionSlot) -> bool {
    !slot.table.lock().clients.get(&slot.client).is_some_and(|it| it.open.contains_key(&slot.id))
}

#[test]
fn a_client_over_its_limit_loses_the_connection_that_waited_longest() {
    let table = ConnectionTable::new(LIMITS);
    let slots: Vec<_> = (0..4).map(|_| admit(&table, 1).unwrap()).collect();
    assert!(slots[0].start_work());
    let newest = admit(&table, 1).unwrap();
    assert_eq!(table.open(), 4);
    assert_eq!(slots.iter().map(is_closing).collect::<Vec<_>>(), [false, true, false, false]);
    slots[0].finish_work();
    let _last = admit(&table, 1).unwrap();
    assert!(is_closing(&slots[2]), "it waits longer than the one that worked");
    assert!(!is_closing(&newest) && !is_closing(&slots[0]));
    assert!(!slots[1].start_work(), "a connection that is being closed starts no work");
}

#[test]
fn a_client_whose_connections_all_work_is_refused() {
    let table = ConnectionTable::new(LIMITS);
    let slots: Vec<_> = (0..4).map(|_| admit(&table, 1).unwrap()).collect();
    assert!(slots.iter().all(ConnectionSlot::start_work));
    assert!(admit(&table, 1).is_none());
    assert!(admit(&table, 2).is_some(), "other clients are not affected");
    assert_eq!((table.refused(), table.closed_for_others()), (1, 0));
    drop(slots);
    assert_eq!(table.open(), 0);
}

#[test]
fn a_full_table_closes_a_connection_of_the_busiest_client() {
    let table = ConnectionTable::new(LIMITS);
    let busy: Vec<_> = (0..4).map(|_| admit(&table, 1).unwrap()).collect();
    let others: Vec<_> = (2..6).map(|number| admit(&table, number).unwrap()).collect();
    assert_eq!(table.open(), 8, "the rest is reserved");
    let newest = admit(&table, 9).unwrap();
    assert!(is_closing(&busy[0]));
    assert!(!others.iter().chain([&newest]).any(is_closing));
    assert_eq!((table.open(), table.closed_for_others()), (8, 1));
}

#[test]
fn known_clients_use_the_reserved_connections_and_have_no_limit() {
    let table = ConnectionTable::new(LIMITS);
    let now = Instant::now();
    let first = admit(&table, 1).unwrap();
    first.mark_known(now);
    let mut slots: Vec<_> = (0..9).map(|_| table.admit(client(1), now).unwrap()).collect();
    slots.push(first);
    assert!(slots.iter().all(ConnectionSlot::start_work));
    assert_eq!(table.open(), 10);
    assert!(table.admit(client(1), now).is_none(), "everything is in use");
    slots.truncate(9);
    assert!(table.admit(client(2), now).is_none(), "the last ones are reserved");
    assert!(table.admit(client(1), now).is_some());
    let later = now + KNOWN_TIME;
    assert!(table.admit(client(1), later).is_none(), "the client is not known any more");
    assert!(table.admit(IpAddr::V4(Ipv4Addr::LOCALHOST), later).is_some());
}

/// The attack of the security review: half-open connections of one address.
#[test]
fn half_open_connections_of_one_client_leave_room_for_others_and_for_itself() {
    let table =
        ConnectionTable::new(ConnectionLimits { total: 8192, reserved: 1024, per_client: 256 });
    let mut attack = Vec::new();
    for _ in 0..8300 {
        attack.push(admit(&table, 1).expect("an older connection is closed"));
    }
    assert_eq!(table.open(), 256);
    let other = admit(&table, 2).unwrap();
    let same = admit(&table, 1).unwrap();
    assert!(!is_closing(&other) && !is_closing(&same));
    drop(attack);
    assert_eq!(table.open(), 2);
}

#[test]
fn keeps_a_bounded_number_of_known_clients() {
    let table = ConnectionTable::new(LIMITS);
    let now = Instant::now();
    let mut state = table.lock();
    for number in 0..u32::try_from(MAX_KNOWN).unwrap() + 10 {
        state.mark_known(IpAddr::V4(Ipv4Addr::from_bits(number)), now);
    }
    assert_eq!(state.known.len(), MAX_KNOWN);
    state.mark_known(client(1), now + KNOWN_TIME + Duration::from_secs(1));
    assert_eq!(state.known.len(), 1, "expired entries are removed");
}

#[tokio::test]
async fn a_closed_connection_is_notified_even_if_it_waits_later() {
    let table = ConnectionTable::new(ConnectionLimits { total: 1, reserved: 0, per_client: 1 });
    let first = admit(&table, 1).unwrap();
    let _second = admit(&table, 2).unwrap();
    first.closing().await;
}

proptest! {
    /// Counts stay consistent, limits are kept, and only waiting connections are closed.
    #[test]
    fn stays_consistent(steps in prop::collection::vec((0u8..5, 0u8..4, any::<prop::sample::Index>()), 0..200)) {
        let table = ConnectionTable::new(LIMITS);
        let mut slots: Vec<(ConnectionSlot, bool)> = Vec::new();
        for (action, number, index) in steps {
            match action {
                0 | 1 => {
                    if let Some(slot) = admit(&table, number) {
                        slots.push((slot, false));
                    }
                }
                _ if slots.is_empty() => {}
                2 => {
                    let (slot, works) = index.get_mut(&mut slots);
                    *works = slot.start_work();
                }
                3 => {
                    let (slot, works) = index.get_mut(&mut slots);
                    slot.finish_work();
                    *works = false;
                }
                _ => {
                    slots.swap_remove(index.index(slots.len()));
                }
            }
            for (slot, works) in &slots {
                prop_assert!(!works || !is_closing(slot), "a working connection was closed");
            }
            let state = table.lock();
            let open: usize = state.clients.values().map(|it| it.open.len()).sum();
            prop_assert_eq!(state.total, open);
            prop_assert!(state.total <= LIMITS.total);
            for connections in state.clients.values() {
                prop_assert!(!connections.open.is_empty() && connections.open.len() <= LIMITS.per_client);
                let waiting = connections.open.values().filter(|it| it.waiting_since.is_some()).count();
                prop_assert_eq!(connections.waiting.len(), waiting);
            }
        }
    }
}
