// SPDX-License-Identifier: Apache-2.0
//! Jobs complete although the server is killed repeatedly.
//!
//! Fifty slow fake nodes run through verifying, inspecting, cleaning, deploying, rescuing and undeploying,
//! while the server is killed with SIGKILL at random times and restarted on the same data. In the end each
//! timeline must contain every accepted verb once, every transition once and from the state of the previous
//! one, no failure, everything that was read before a kill, and the same actions as the timeline of a
//! reference node that ran through the same stages without kills.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http_probe::{ProbeClient, ServerProcess};
use serde_json::{Value, json};

use crate::journal;
use crate::seeded_random::SeededRandom;
use crate::test_process::TestHome;

const NODES: usize = 50;
const KILLS: usize = 20;
/// Minimum number of nodes with a running job, over all kills.
const MIN_INTERRUPTED: usize = 5 * KILLS;
/// Timeout of the test; two busy cores need about a minute.
const TIMEOUT: Duration = Duration::from_secs(300);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A verb and the states until the next stable state.
struct DurabilityStage {
    verb: &'static str,
    path: &'static [&'static str],
}

const fn stage(verb: &'static str, path: &'static [&'static str]) -> DurabilityStage {
    DurabilityStage { verb, path }
}

const VERIFY: DurabilityStage = stage("manage", &["verifying", "manageable"]);
const INSPECT: DurabilityStage = stage("inspect", &["inspecting", "manageable"]);
const CLEAN: DurabilityStage = stage("clean", &["cleaning", "manageable"]);
const PROVIDE: DurabilityStage = stage("provide", &["cleaning", "available"]);
const MANAGE: DurabilityStage = stage("manage", &["manageable"]);
const DEPLOY: DurabilityStage = stage("active", &["deploying", "active"]);
const REBUILD: DurabilityStage = stage("rebuild", &["deploying", "active"]);
const RESCUE: DurabilityStage = stage("rescue", &["rescuing", "rescue"]);
const UNRESCUE: DurabilityStage = stage("unrescue", &["unrescuing", "active"]);
const TEAR_DOWN: DurabilityStage = stage("deleted", &["deleting", "cleaning", "available"]);

/// Sequences of stages, assigned to the nodes in turn.
const SCENARIOS: &[&[DurabilityStage]] = &[
    &[VERIFY, PROVIDE, DEPLOY, TEAR_DOWN, DEPLOY],
    &[VERIFY, CLEAN, PROVIDE, MANAGE, CLEAN, PROVIDE],
    &[VERIFY, INSPECT, INSPECT, CLEAN, INSPECT, PROVIDE],
    &[VERIFY, PROVIDE, DEPLOY, RESCUE, UNRESCUE, RESCUE],
    &[VERIFY, INSPECT, PROVIDE, DEPLOY, REBUILD, RESCUE, UNRESCUE, TEAR_DOWN],
];

/// A node and its progress.
struct DurabilityNode {
    uuid: String,
    /// Index in [`SCENARIOS`].
    scenario: usize,
    stages: &'static [DurabilityStage],
    /// Number of accepted stages.
    accepted: usize,
    /// Number of completed stages.
    completed: usize,
}

impl DurabilityNode {
    fn is_finished(&self) -> bool {
        self.completed == self.stages.len()
    }

    fn timeline(&self, test: &DurabilityTest) -> Vec<Value> {
        test.retry(|client| journal::timeline(client, &self.uuid))
    }

    /// The stable state after the accepted stages.
    fn expected_state(&self) -> &'static str {
        match self.accepted.checked_sub(1) {
            Some(last) => self.stages[last].path.last().expect("a stage has a final state"),
            None => "enroll",
        }
    }
}

/// State shared by both threads.
struct DurabilityTest {
    home: TestHome,
    address: Mutex<SocketAddr>,
    stages_completed: AtomicUsize,
    /// Set when one of the threads has ended.
    over: AtomicBool,
    began: Instant,
}

impl DurabilityTest {
    /// Sends a request to the current server and repeats it while there is none. Only for idempotent
    /// requests.
    fn retry<T>(&self, mut request: impl FnMut(&mut ProbeClient) -> io::Result<T>) -> T {
        loop {
            let mut client = self.client();
            match request(&mut client) {
                Ok(response) => return response,
                Err(error) => {
                    let continues = self.began.elapsed() < TIMEOUT && !is_over(self);
                    assert!(continues, "no server: {error}\n{}", self.home.log());
                    thread::sleep(POLL_INTERVAL);
                }
            }
        }
    }

    fn client(&self) -> ProbeClient {
        ProbeClient::new(*self.address.lock().unwrap()).with_timeout(Duration::from_secs(10))
    }
}

#[test]
fn jobs_complete_although_the_server_is_killed() {
    let mut random = SeededRandom::seeded();
    let home = TestHome::new();
    let server = home.serve();
    let test = DurabilityTest {
        address: Mutex::new(server.address()),
        home,
        stages_completed: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        began: Instant::now(),
    };
    let references = run_all_stages(&test, enrol(&test, "reference", SCENARIOS.len()));
    let reference_events: Vec<Vec<Value>> = references
        .iter()
        .map(|reference| journal::comparable_events(&reference.timeline(&test)))
        .collect();
    let fleet = enrol(&test, "node", NODES);
    test.stages_completed.store(0, Ordering::Relaxed);
    let stage_count: usize = fleet.iter().map(|node| node.stages.len()).sum();
    let uuids: Vec<String> = fleet.iter().map(|node| node.uuid.clone()).collect();

    let (fleet, killed) = thread::scope(|scope| {
        let driver = scope.spawn(|| {
            // Also set if this thread panics.
            let _over = SetOnDrop(&test.over);
            run_all_stages(&test, fleet)
        });
        let killed = kill_repeatedly(&test, server, &uuids, stage_count, &mut random);
        (driver.join().unwrap(), killed)
    });

    let KillSummary { count, interrupted, seen, server: _last } = killed;
    println!(
        "{stage_count} stages by {NODES} nodes, {count} kills that interrupted {interrupted} jobs, {:.1?}",
        test.began.elapsed()
    );
    assert!(count >= KILLS, "only {count} kills during the stages");
    assert!(interrupted >= MIN_INTERRUPTED, "only {interrupted} nodes had a running job at a kill");
    let mut problems = Vec::new();
    for node in fleet.iter().chain(&references) {
        let seen = seen.get(&node.uuid).map_or(&[][..], Vec::as_slice);
        problems.extend(check_node(&test, node, &reference_events[node.scenario], seen));
    }
    assert!(problems.is_empty(), "{}\n{}", problems.join("\n"), test.home.log());
}

/// Creates nodes.
fn enrol(test: &DurabilityTest, name: &str, count: usize) -> Vec<DurabilityNode> {
    let mut client = test.client();
    (0..count)
        .map(|number| {
            let body = json!({
                "driver": "fake-hardware",
                "name": format!("{name}-{number}"),
                "driver_info": {
                    "fake_power_delay": "0.02,0.1",
                    "fake_deploy_delay": "0.05,0.3",
                    "fake_boot_delay": "0.02,0.1",
                    "fake_management_delay": "0.02,0.1",
                    "fake_vendor_delay": "0.05,0.3",
                    "fake_inspect_delay": "0.05,0.3",
                    "fake_rescue_delay": "0.05,0.3",
                },
                "instance_info": {
                    "image_source": "http://127.0.0.1/image",
                    "image_checksum": "0123456789abcdef0123456789abcdef",
                },
                "automated_clean": true,
            });
            let response = client.send_json("POST", "/v1/nodes", Some(&body)).unwrap();
            assert_eq!(response.status, 201, "{}", response.text());
            let uuid = response.json()["uuid"].as_str().unwrap().to_owned();
            let number = number % SCENARIOS.len();
            DurabilityNode {
                uuid,
                scenario: number,
                stages: SCENARIOS[number],
                accepted: 0,
                completed: 0,
            }
        })
        .collect()
}

/// Requests the next stage of each node as soon as it is stable, until all are finished.
fn run_all_stages(test: &DurabilityTest, mut fleet: Vec<DurabilityNode>) -> Vec<DurabilityNode> {
    let mut states = BTreeMap::new();
    while fleet.iter().any(|node| !node.is_finished()) {
        if test.began.elapsed() > TIMEOUT {
            let stuck = fleet.iter().filter(|node| !node.is_finished());
            let stuck: Vec<String> =
                stuck.map(|node| format!("{}: {}", node.uuid, states[&node.uuid])).collect();
            panic!(
                "not all nodes finished within {TIMEOUT:?}:\n{}\n{}",
                stuck.join("\n"),
                test.home.log()
            );
        }
        states = poll_nodes(test);
        for node in fleet.iter_mut().filter(|node| !node.is_finished()) {
            let state = &states[&node.uuid];
            let now = state["provision_state"].as_str().unwrap();
            assert!(!now.ends_with("failed") && now != "error", "{state}\n{}", test.home.log());
            let is_stable =
                now == node.expected_state() && state["target_provision_state"].is_null();
            if !is_stable {
                continue;
            }
            if node.completed < node.accepted {
                node.completed = node.accepted;
                test.stages_completed.fetch_add(1, Ordering::Relaxed);
            }
            if !node.is_finished() {
                request_next_stage(test, node);
            }
        }
        thread::sleep(POLL_INTERVAL);
    }
    fleet
}

/// The nodes by UUID.
fn poll_nodes(test: &DurabilityTest) -> BTreeMap<String, Value> {
    const FIELDS: &str =
        "uuid,provision_state,target_provision_state,last_error,maintenance,reservation";
    let path = format!("/v1/nodes?fields={FIELDS}");
    let response = test.retry(|client| client.send("GET", &path, None));
    assert_eq!(response.status, 200, "{}", response.text());
    let nodes = response.json();
    let nodes = nodes["nodes"].as_array().unwrap();
    nodes.iter().map(|node| (node["uuid"].as_str().unwrap().to_owned(), node.clone())).collect()
}

/// Requests the next stage. After a lost response the timeline shows whether it was accepted.
fn request_next_stage(test: &DurabilityTest, node: &mut DurabilityNode) {
    let stage = &node.stages[node.accepted];
    let mut body = json!({"target": stage.verb});
    match stage.verb {
        "clean" => {
            body["clean_steps"] = json!([
                {"interface": "deploy", "step": "erase_devices"},
                {"interface": "vendor", "step": "log_passthrough"},
            ]);
        }
        "rescue" => body["rescue_password"] = json!("rescue-password"),
        _ => {}
    }
    let path = format!("/v1/nodes/{}/states/provision", node.uuid);
    let accepted = match test.client().send_json("PUT", &path, Some(&body)) {
        Ok(response) if response.status == 202 => true,
        // Locked, or the server is starting: requested again after the next poll.
        Ok(response) if matches!(response.status, 409 | 503) => false,
        Ok(response) => {
            panic!("{} {}: {} {}", stage.verb, node.uuid, response.status, response.text())
        }
        Err(_) => {
            let timeline = test.retry(|client| journal::timeline(client, &node.uuid));
            match journal::requested_targets(&timeline).len().checked_sub(node.accepted) {
                Some(0) => false,
                Some(1) => true,
                more => {
                    panic!("{}: {more:?} more verbs than were sent:\n{timeline:?}", node.uuid)
                }
            }
        }
    };
    if accepted {
        node.accepted += 1;
    }
}

/// The result of the killing thread.
struct KillSummary {
    count: usize,
    /// Number of nodes with a running job, over all kills.
    interrupted: usize,
    /// The longest timeline of each node that was read just before a kill.
    seen: BTreeMap<String, Vec<Value>>,
    /// The server after the last kill.
    server: ServerProcess,
}

/// Kills the server `KILLS` times, spread over all stages; sometimes again right after its start.
fn kill_repeatedly(
    test: &DurabilityTest,
    mut server: ServerProcess,
    uuids: &[String],
    stage_count: usize,
    random: &mut SeededRandom,
) -> KillSummary {
    let _over = SetOnDrop(&test.over);
    let (mut count, mut interrupted, mut seen) = (0, 0, BTreeMap::new());
    for kill in 0..KILLS {
        // Wait for enough stages, so that the kills are spread.
        let enough = stage_count * kill / (KILLS + 1);
        while test.stages_completed.load(Ordering::Relaxed) < enough && !is_over(test) {
            thread::sleep(POLL_INTERVAL);
        }
        thread::sleep(Duration::from_millis(random.below(400)));
        for _ in 0..3 {
            let uuid = &uuids[usize::try_from(random.below(NODES as u64)).unwrap()];
            seen.insert(uuid.clone(), journal::timeline(&mut server.client(), uuid).unwrap());
        }
        loop {
            if is_over(test) {
                return KillSummary { count, interrupted, seen, server };
            }
            let states = poll_nodes(test);
            interrupted +=
                states.values().filter(|node| !node["target_provision_state"].is_null()).count();
            server.kill().unwrap();
            count += 1;
            server = test.home.serve();
            *test.address.lock().unwrap() = server.address();
            // Recovery must survive a kill as well.
            if random.below(4) > 0 {
                break;
            }
            thread::sleep(Duration::from_millis(random.below(60)));
        }
    }
    while !is_over(test) {
        thread::sleep(POLL_INTERVAL);
    }
    KillSummary { count, interrupted, seen, server }
}

fn is_over(test: &DurabilityTest) -> bool {
    test.over.load(Ordering::Relaxed)
}

/// Returns the problems of a finished node, given the events of its reference node and the entries that were
/// read before a kill.
fn check_node(
    test: &DurabilityTest,
    node: &DurabilityNode,
    expected: &[Value],
    seen: &[Value],
) -> Vec<String> {
    let timeline = node.timeline(test);
    let verbs: Vec<&str> = node.stages.iter().map(|stage| stage.verb).collect();
    let path: Vec<&str> = node.stages.iter().flat_map(|stage| stage.path).copied().collect();
    let mut problems = journal::problems(&timeline, &verbs, &path);
    if timeline.get(..seen.len()) != Some(seen) {
        problems.push("entries that were read before a kill are missing or changed".to_owned());
    }
    let events = journal::comparable_events(&timeline);
    if events != expected {
        let differs = events.iter().zip(expected).position(|(event, expected)| event != expected);
        let differs = differs.unwrap_or(events.len().min(expected.len()));
        problems.push(format!(
            "{} events instead of {}, first difference at {differs}: {:?} instead of {:?}",
            events.len(),
            expected.len(),
            events.get(differs),
            expected.get(differs)
        ));
    }
    let states = poll_nodes(test);
    let state = &states[&node.uuid];
    if state["maintenance"] != false
        || !state["last_error"].is_null()
        || !state["reservation"].is_null()
    {
        problems.push(format!("not in a clean final state: {state}"));
    }
    problems.into_iter().map(|problem| format!("{}: {problem}", node.uuid)).collect()
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
