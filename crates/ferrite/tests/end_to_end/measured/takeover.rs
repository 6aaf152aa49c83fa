// SPDX-License-Identifier: Apache-2.0
//! How long machines wait when their replica or the database fails.

use std::time::{Duration, Instant};

use crate::replicas::failover::{
    FailoverFleet, Replicas, power_on, serve, wait_until, wait_until_on,
};
use crate::replicas::interruptible_proxy::InterruptibleProxy;
use crate::test_database::EndToEndDatabase;
use crate::test_process::TestHome;

/// A dead replica is noticed within nine seconds; the rest is for the actions and for a busy host. Well below
/// the time of a lease, which is a minute.
const MAX_TAKEOVER: Duration = Duration::from_secs(40);

#[test]
fn machines_of_a_killed_replica_are_taken_over_soon() {
    let Some(database) = EndToEndDatabase::create("FERRITE_TEST_POSTGRES") else { return };
    let machines = FailoverFleet::start();
    let Replicas { one, two, .. } = Replicas::start(&database.url);
    let nodes = machines.enrol(&one);
    let nodes = &nodes[..nodes.len() - 1];
    power_on(&mut one.client(), nodes);
    machines.wait_for_requests();
    one.kill().unwrap();
    let killed_at = Instant::now();
    wait_until_on(&mut two.client(), nodes);
    let took = killed_at.elapsed();
    println!("all machines were on {took:?} after the kill");
    assert!(took < MAX_TAKEOVER, "{took:?}");
    machines.stop();
}

/// The outage is longer than a session lasts, but work is not delayed by the time of a lease.
#[test]
fn outage_of_the_database_delays_work_by_seconds() {
    let Some(database) = EndToEndDatabase::create("FERRITE_TEST_POSTGRES") else { return };
    let (machines, proxy) = (FailoverFleet::start(), InterruptibleProxy::default());
    let home = TestHome::new();
    let server = serve(&home, "one", &database.forwarded(|server| proxy.start(server)));
    let nodes = machines.enrol(&server);
    let nodes = &nodes[..nodes.len() - 1];
    power_on(&mut server.client(), nodes);
    machines.wait_for_requests();
    proxy.interrupt();
    // Longer than a session lasts without a renewal.
    std::thread::sleep(Duration::from_secs(10));
    proxy.resume();
    let resumed_at = Instant::now();
    let mut client = server.client();
    wait_until("the API has a database", || {
        client.send("GET", "/v1/nodes", None).is_ok_and(|response| response.status == 200)
    });
    wait_until_on(&mut client, nodes);
    let took = resumed_at.elapsed();
    println!("all machines were on {took:?} after the outage");
    assert!(took < MAX_TAKEOVER, "{took:?}\n{}", home.log());
    machines.stop();
}
