// SPDX-License-Identifier: Apache-2.0
//! The end of sessions and the death of processes, with controlled time.

use std::sync::atomic::AtomicU64;

use proptest::prelude::*;

use super::*;

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

const fn limited(epoch: u64, until: u64) -> SessionState {
    SessionState { epoch, valid_until: Some(ms(until)), ended: false, closed: false }
}

/// A session with a clock in milliseconds.
fn session_with_clock() -> (Arc<ConductorSession>, Arc<AtomicU64>) {
    let time = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&time);
    let clock: MonotonicClock = Arc::new(move || ms(read.load(Ordering::SeqCst)));
    (Arc::new(ConductorSession::new(clock)), time)
}

#[test]
fn a_session_lasts_from_the_submission_of_its_last_renewal() {
    let begun = SessionState::new().renewed(ms(1000), ms(1500));
    assert_eq!(begun, limited(0, 7000));
    assert!(begun.is_valid(ms(6999)) && !begun.is_valid(ms(7000)));
    let renewed = begun.renewed(ms(6000), ms(6900));
    assert_eq!(renewed, limited(0, 12_000), "work continues after a renewal in time");
    let late = begun.renewed(ms(6000), ms(7000));
    assert_eq!(late, limited(1, 12_000), "work that began before does not continue");
    let ended = begun.ended();
    assert!(!ended.is_valid(ms(1500)));
    assert_eq!(ended.renewed(ms(2000), ms(2000)), limited(2, 8000));
    let closed = SessionState { closed: true, ..begun };
    assert!(!closed.renewed(ms(2000), ms(2000)).is_valid(ms(2000)), "it stays closed");
}

#[test]
fn a_database_of_one_process_needs_no_renewals() {
    assert!(SessionState::new().is_valid(ms(u64::MAX / 1000)));
}

fn session(renewals: i64) -> ObservedSession {
    ObservedSession {
        hostname: "there".to_owned(),
        run: Some(Uuid::nil()),
        renews: true,
        renewals,
        online: true,
    }
}

fn is_dead(watch: &mut ReplicaWatch, at: u64, observed: &ObservedSession) -> bool {
    !watch.observe("here", ms(at), std::slice::from_ref(observed)).dead.is_empty()
}

/// Times, what is seen then, and whether the process is dead.
type Observations<'a> = &'a [(u64, &'a ObservedSession, bool)];

#[test]
fn decides_who_is_dead() {
    let other_version = ObservedSession { renews: false, ..session(1) };
    let stopped = ObservedSession { online: false, ..session(1) };
    let own = ObservedSession { hostname: "here".to_owned(), ..session(1) };
    let restarted = ObservedSession { run: Some(Uuid::max()), ..session(1) };
    let cases: &[(&str, Observations<'_>)] = &[
        (
            "no renewal",
            &[
                (0, &session(1), false),
                (4000, &session(1), false),
                (7999, &session(1), false),
                (8000, &session(1), true),
            ],
        ),
        (
            "a late renewal",
            &[
                (0, &session(1), false),
                (4000, &session(1), false),
                (7999, &session(2), false),
                (11_000, &session(2), false),
                (15_000, &session(2), false),
                (15_999, &session(2), true),
            ],
        ),
        (
            "an outage of the database",
            &[
                (0, &session(1), false),
                (4000, &session(1), false),
                (9000, &session(1), false),
                (13_000, &session(1), false),
                (16_999, &session(1), false),
                (17_000, &session(1), true),
            ],
        ),
        (
            "a restart",
            &[(0, &session(1), false), (4000, &session(1), false), (8000, &restarted, false)],
        ),
        (
            "a process that stopped",
            &[(0, &stopped, false), (4000, &stopped, false), (8000, &stopped, false)],
        ),
        (
            "an earlier version",
            &[
                (0, &other_version, false),
                (4000, &other_version, false),
                (8000, &other_version, false),
            ],
        ),
        ("this process", &[(0, &own, false), (4000, &own, false), (8000, &own, false)]),
        (
            "a session that could not be ended is ended again after a second",
            &[
                (0, &session(1), false),
                (4000, &session(1), false),
                (8000, &session(1), true),
                (8500, &session(1), false),
                (9000, &session(1), true),
            ],
        ),
    ];
    for (name, observations) in cases {
        let mut watch = ReplicaWatch::default();
        for (at, observed, expected) in *observations {
            assert_eq!(is_dead(&mut watch, *at, observed), *expected, "{name} at {at} ms");
        }
    }
}

#[test]
fn reports_processes_that_come_and_go() {
    let mut watch = ReplicaWatch::default();
    let mut observe =
        |sessions: &[ObservedSession]| watch.observe("here", ms(0), sessions).members_changed;
    assert!(observe(&[session(1)]));
    assert!(!observe(&[session(2)]));
    assert!(observe(&[ObservedSession { online: false, ..session(2) }]));
    assert!(observe(&[session(3)]));
    assert!(observe(&[ObservedSession { run: Some(Uuid::max()), ..session(4) }]));
    assert!(observe(&[]));
}

proptest! {
    /// Whatever the delays of renewals and observations: when an observer declares a process dead that has
    /// not renewed its session since, the process has stopped commanding machines.
    #[test]
    fn a_process_stops_before_it_is_declared_dead(
        // For each renewal: the time since the previous one, its delay until the commit, and the delay of
        // the response.
        renewals in prop::collection::vec((0_u64..9000, 0_u64..5000, 0_u64..5000), 1..20),
        // For each observation: the time since the previous one, and how long reading takes.
        observations in prop::collection::vec((0_u64..6000, 0_u64..3000), 1..60),
    ) {
        let mut committed = Vec::new();
        let mut state = SessionState::new();
        let mut states = Vec::new();
        let mut time = 0;
        for (number, (pause, commit, response)) in (1_i64..).zip(&renewals) {
            let submitted = time + pause;
            time = submitted + commit + response;
            committed.push((submitted + commit, number));
            state = state.renewed(ms(submitted), ms(time));
            states.push((time, state));
        }
        let mut watch = ReplicaWatch::default();
        let mut time = 0;
        for (pause, reading) in observations {
            let read = time + pause;
            time = read + reading;
            let count = |at: u64| {
                committed.iter().filter(|(when, _)| *when <= at).map(|(_, number)| *number).max()
            };
            let Some(renewals) = count(read) else { continue };
            if is_dead(&mut watch, time, &session(renewals)) && count(time) == Some(renewals) {
                let known = states.iter().rfind(|(when, _)| *when <= time);
                let can_act = known.is_some_and(|(_, state)| state.is_valid(ms(time)));
                prop_assert!(!can_act, "declared dead at {time} ms");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_is_cancelled_at_the_end_of_the_session() {
    let (session, time) = session_with_clock();
    session.renewed(ms(0));
    let hold = session.hold(NodeId::random()).unwrap();
    assert!(hold.while_valid(async { 1 }).await.is_ok());
    let advance = async {
        tokio::time::sleep(SESSION_TIMEOUT - ms(1)).await;
        time.store(6000, Ordering::SeqCst);
        std::future::pending::<()>().await;
    };
    let ended = tokio::time::timeout(SESSION_TIMEOUT * 2, hold.while_valid(advance)).await;
    assert!(matches!(ended, Ok(Err(StoreError::LeaseLost))), "{ended:?}");
    // The work is not polled again, also not by a call that begins later.
    let work = async { panic!("polled after the end of the session") };
    assert!(hold.while_valid(work).await.is_err());
    session.renewed(ms(6000));
    assert!(session.is_valid() && !hold.is_valid());
    let work = async { panic!("polled in another session") };
    assert!(hold.while_valid(work).await.is_err());
}

/// A suspended process: when it continues, both the timer and the response of the machine are ready.
#[tokio::test]
async fn work_of_a_suspended_process_is_not_polled() {
    let (session, time) = session_with_clock();
    session.renewed(ms(0));
    let hold = session.hold(NodeId::random()).unwrap();
    let (responds, response) = tokio::sync::oneshot::channel();
    let work = async {
        response.await.unwrap();
        panic!("the next request was sent");
    };
    let mut guarded = pin!(hold.while_valid(work));
    let first = poll_fn(|context| Poll::Ready(guarded.as_mut().poll(context).is_pending())).await;
    assert!(first);
    time.store(6000, Ordering::SeqCst);
    responds.send(()).unwrap();
    let ended: Result<(), StoreError> = guarded.await;
    assert!(matches!(ended, Err(StoreError::LeaseLost)));
}

#[tokio::test]
async fn work_is_cancelled_when_another_process_ends_the_session_or_takes_the_node() {
    let (session, _) = session_with_clock();
    let node = NodeId::random();
    let hold = session.hold(node).unwrap();
    let lease = NodeLease { node, token: 7 };
    hold.claimed(lease);
    assert_eq!(session.held_leases(), [lease]);
    session.lost(&NodeLease { node, token: 6 });
    assert!(hold.is_valid());
    let taken = async {
        session.lost(&lease);
        std::future::pending::<()>().await;
    };
    assert!(hold.while_valid(taken).await.is_err());
    let ended = async {
        session.ended();
        std::future::pending::<()>().await;
    };
    assert!(session.while_valid(ended).await.is_err());
    assert!(!session.is_valid());
}

#[tokio::test]
async fn one_task_holds_a_node_and_the_next_one_is_run_afterwards() {
    let (session, _) = session_with_clock();
    let (mut unreleased, mut freed) =
        (session.take_unreleased().unwrap(), session.take_freed().unwrap());
    let node = NodeId::random();
    let first = session.hold(node).unwrap();
    first.released();
    drop(first);
    assert!(freed.try_recv().is_err(), "no task wanted it");
    let second = session.hold(node).unwrap();
    assert!(session.hold(node).is_none());
    second.released();
    drop(second);
    assert_eq!(freed.try_recv(), Ok(node));
    // A task that panics or is dropped leaves the lease in the database.
    drop(session.hold(node).unwrap());
    assert_eq!(unreleased.try_recv(), Ok(UnreleasedNode { node, runs_again: false }));
    let held = session.hold(node).unwrap();
    session.ended();
    drop(held);
    assert_eq!(unreleased.try_recv(), Ok(UnreleasedNode { node, runs_again: true }));
}

#[tokio::test(start_paused = true)]
async fn results_are_recorded_after_an_outage_but_not_after_the_end_of_the_session() {
    let (session, time) = session_with_clock();
    session.renewed(ms(0));
    let hold = session.hold(NodeId::random()).unwrap();
    let outage = || StoreError::Contended(Arc::new(std::io::Error::other("down")));
    let mut attempts = 0;
    let done = hold.repeat_during_outage(|| {
        attempts += 1;
        std::future::ready(if attempts < 5 { Err(outage()) } else { Ok(attempts) })
    });
    assert_eq!(done.await.unwrap(), 5);
    let mut attempts = 0;
    let rejected: Result<(), _> = hold
        .repeat_during_outage(|| {
            attempts += 1;
            std::future::ready(Err(StoreError::LeaseLost))
        })
        .await;
    assert_eq!((attempts, rejected.is_err()), (1, true), "only outages are repeated");
    let failed: Result<(), _> = hold
        .repeat_during_outage(|| {
            time.fetch_add(1000, Ordering::SeqCst);
            std::future::ready(Err(outage()))
        })
        .await;
    assert!(failed.is_err());
    assert_eq!(time.load(Ordering::SeqCst), 6000);
}
