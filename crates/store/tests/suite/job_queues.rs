// SPDX-License-Identifier: Apache-2.0
//! Counts and order of queued jobs.

use node_model::{Actor, JobCounts, JobQueue, Node, NodeId, Timestamp, Work, WorkKind};
use store::DueFilter;
use uuid::Uuid;

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! { counts_and_orders_queued_jobs finds_jobs_that_earlier_versions_ended }

/// A node with a job in the queue for deployments: queued at `queued_at`, or started.
fn with_job(name: &str, queued_at: Option<i64>) -> Node {
    let mut node = node(name);
    let actor = Actor::Conductor { hostname: "test".to_owned() };
    node.work = Some(Work::new(Uuid::new_v4(), WorkKind::Deploy, actor, Timestamp(1)));
    node.job_queue = Some(JobQueue::Deploy);
    node.queued_at = queued_at.map(Timestamp);
    node
}

fn filter(group: &str) -> DueFilter {
    DueFilter { conductor_group: group.to_owned(), drivers: vec!["fake-hardware".to_owned()] }
}

fn counts_and_orders_queued_jobs(db: &TestDatabase) {
    let in_maintenance = Node { maintenance: true, ..with_job("held", Some(10)) };
    let elsewhere = Node { conductor_group: "east".to_owned(), ..with_job("east", Some(15)) };
    let nodes = vec![
        with_job("late", Some(30)),
        with_job("early", Some(20)),
        with_job("same time", Some(30)),
        with_job("runs", None),
        in_maintenance,
        elsewhere,
    ];
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let written = nodes.clone();
    db.write(move |w| written.iter().try_for_each(|node| w.insert(node))).unwrap();
    db.read(move |r| {
        assert_eq!(r.job_counts(JobQueue::Deploy)?, JobCounts { running: 1, queued: 5 });
        assert_eq!(r.job_counts(JobQueue::Clean)?, JobCounts::default());
        let (late, early, same_time, east) = (ids[0], ids[1], ids[2], ids[5]);
        let here = filter("");
        assert_eq!(r.next_queued_nodes(JobQueue::Deploy, &here, 9)?, [early, late, same_time]);
        assert_eq!(r.next_queued_nodes(JobQueue::Deploy, &here, 1)?, [early]);
        assert_eq!(r.next_queued_nodes(JobQueue::Deploy, &filter("EAST"), 9)?, [east]);
        assert_eq!(r.next_queued_nodes(JobQueue::Clean, &here, 9)?, []);
        let mut positions = Vec::new();
        for node in &nodes {
            let position = r.queue_position(node)?;
            assert!(position.is_none_or(|queued| queued.length == 5), "{position:?}");
            positions.push(position.map(|queued| queued.position));
        }
        assert_eq!(positions, [Some(4), Some(3), Some(5), None, Some(1), Some(2)]);
        Ok(())
    })
    .unwrap();
}

fn finds_jobs_that_earlier_versions_ended(db: &TestDatabase) {
    let mut ended = [with_job("queued", Some(1)), with_job("ran", None)];
    for node in &mut ended {
        node.work = None;
    }
    let (runs, [queued, ran]) = (with_job("runs", None), ended);
    let mut expected = vec![queued.id, ran.id];
    db.write(move |w| [&runs, &queued, &ran].into_iter().try_for_each(|node| w.insert(node)))
        .unwrap();
    let mut found = db.read(|r| r.nodes_with_ended_jobs(9)).unwrap();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(db.read(|r| r.nodes_with_ended_jobs(1)).unwrap().len(), 1);
}
