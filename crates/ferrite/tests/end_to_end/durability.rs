// SPDX-License-Identifier: Apache-2.0
//! Machines arrive where they were going, however often the program is killed on the way.
//!
//! Fifty slow fake machines are sent through verifying, inspecting, cleaning, deploying, rescuing
//! and tearing down, while the server is killed with SIGKILL at random instants and started again
//! on the same data. In the end each machine's timeline must tell exactly the story that was asked
//! for: every accepted verb once, every transition once and from where the last one ended, nothing
//! failed, nothing missing that had been seen before a kill, and every action as often as in the
//! story of a forerunner that took the same journey undisturbed.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http_probe::{Client, Server};
use serde_json::{Value, json};

use crate::ferrite::Home;
use crate::journal;
use crate::random::Random;

const NODES: usize = 50;
const KILLS: usize = 20;
/// How many machines must have been at work, over all kills, for the test to have tested anything.
const INTERRUPTED: usize = 5 * KILLS;
/// How long everything may take. Two cores that do other things as well need about a minute.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often the fleet is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One thing asked of a machine, and the states it goes through until it rests again.
struct Leg {
    verb: &'static str,
    path: &'static [&'static str],
}

const fn leg(verb: &'static str, path: &'static [&'static str]) -> Leg {
    Leg { verb, path }
}

const VERIFY: Leg = leg("manage", &["verifying", "manageable"]);
const INSPECT: Leg = leg("inspect", &["inspecting", "manageable"]);
const CLEAN: Leg = leg("clean", &["cleaning", "manageable"]);
const PROVIDE: Leg = leg("provide", &["cleaning", "available"]);
const MANAGE: Leg = leg("manage", &["manageable"]);
const DEPLOY: Leg = leg("active", &["deploying", "active"]);
const REBUILD: Leg = leg("rebuild", &["deploying", "active"]);
const RESCUE: Leg = leg("rescue", &["rescuing", "rescue"]);
const UNRESCUE: Leg = leg("unrescue", &["unrescuing", "active"]);
const TEAR_DOWN: Leg = leg("deleted", &["deleting", "cleaning", "available"]);

/// The journeys; machines take them in turn.
const JOURNEYS: &[&[Leg]] = &[
    &[VERIFY, PROVIDE, DEPLOY, TEAR_DOWN, DEPLOY],
    &[VERIFY, CLEAN, PROVIDE, MANAGE, CLEAN, PROVIDE],
    &[VERIFY, INSPECT, INSPECT, CLEAN, INSPECT, PROVIDE],
    &[VERIFY, PROVIDE, DEPLOY, RESCUE, UNRESCUE, RESCUE],
    &[VERIFY, INSPECT, PROVIDE, DEPLOY, REBUILD, RESCUE, UNRESCUE, TEAR_DOWN],
];

/// A machine under way.
struct Traveller {
    uuid: String,
    /// Which of the journeys.
    number: usize,
    journey: &'static [Leg],
    /// How many legs the server has accepted.
    accepted: usize,
    /// How many it has also finished.
    arrived: usize,
}

impl Traveller {
    fn is_home(&self) -> bool {
        self.arrived == self.journey.len()
    }

    fn timeline(&self, world: &World) -> Vec<Value> {
        world.insist(|client| journal::timeline(client, &self.uuid))
    }

    /// Where it rests after the legs accepted so far.
    fn destination(&self) -> &'static str {
        match self.accepted.checked_sub(1) {
            Some(last) => self.journey[last].path.last().expect("a leg has an end"),
            None => "enroll",
        }
    }
}

/// What both threads share.
struct World {
    home: Home,
    address: Mutex<SocketAddr>,
    legs_done: AtomicUsize,
    /// Set when one of the two threads is done or has given up.
    over: AtomicBool,
    began: Instant,
}

impl World {
    /// Talks to whichever server runs now, again and again while there is none. Only for requests
    /// that do no harm when they are repeated.
    fn insist<T>(&self, mut ask: impl FnMut(&mut Client) -> io::Result<T>) -> T {
        loop {
            let mut client = self.client();
            match ask(&mut client) {
                Ok(answer) => return answer,
                Err(error) => {
                    let goes_on = self.began.elapsed() < PATIENCE && !is_over(self);
                    assert!(goes_on, "no server any more: {error}\n{}", self.home.log());
                    thread::sleep(LOOK_EVERY);
                }
            }
        }
    }

    fn client(&self) -> Client {
        Client::new(*self.address.lock().unwrap()).with_patience(Duration::from_secs(10))
    }
}

#[test]
fn machines_arrive_however_often_the_server_is_killed() {
    let mut random = Random::seeded();
    let home = Home::new();
    let server = home.serve();
    let world = World {
        address: Mutex::new(server.address()),
        home,
        legs_done: AtomicUsize::new(0),
        over: AtomicBool::new(false),
        began: Instant::now(),
    };
    let forerunners = drive(&world, enrol(&world, "forerunner", JOURNEYS.len()));
    let stories: Vec<Vec<Value>> =
        forerunners.iter().map(|forerunner| journal::story(&forerunner.timeline(&world))).collect();
    let fleet = enrol(&world, "traveller", NODES);
    world.legs_done.store(0, Ordering::Relaxed);
    let legs: usize = fleet.iter().map(|traveller| traveller.journey.len()).sum();
    let uuids: Vec<String> = fleet.iter().map(|traveller| traveller.uuid.clone()).collect();

    let (fleet, killed) = thread::scope(|scope| {
        let driver = scope.spawn(|| {
            // However it ends, the other thread must hear of it.
            let _over = RaiseWhenDropped(&world.over);
            drive(&world, fleet)
        });
        let killed = kill_again_and_again(&world, server, &uuids, legs, &mut random);
        (driver.join().unwrap(), killed)
    });

    let Killed { count, interrupted, seen, server: _last } = killed;
    println!(
        "{legs} legs by {NODES} machines, {count} kills that interrupted {interrupted} of them, {:.1?}",
        world.began.elapsed()
    );
    assert!(count >= KILLS, "only {count} kills fell into the journey");
    assert!(interrupted >= INTERRUPTED, "only {interrupted} machines were at work at a kill");
    let mut complaints = Vec::new();
    for traveller in fleet.iter().chain(&forerunners) {
        let seen = seen.get(&traveller.uuid).map_or(&[][..], Vec::as_slice);
        complaints.extend(check(&world, traveller, &stories[traveller.number], seen));
    }
    assert!(complaints.is_empty(), "{}\n{}", complaints.join("\n"), world.home.log());
}

/// Creates machines while nobody is killed yet.
fn enrol(world: &World, name: &str, count: usize) -> Vec<Traveller> {
    let mut client = world.client();
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
            let answer = client.ask("POST", "/v1/nodes", Some(&body)).unwrap();
            assert_eq!(answer.status, 201, "{}", answer.text());
            let uuid = answer.json()["uuid"].as_str().unwrap().to_owned();
            let number = number % JOURNEYS.len();
            Traveller { uuid, number, journey: JOURNEYS[number], accepted: 0, arrived: 0 }
        })
        .collect()
}

/// Sends each machine on as soon as it has arrived, until all are home.
fn drive(world: &World, mut fleet: Vec<Traveller>) -> Vec<Traveller> {
    let mut states = BTreeMap::new();
    while fleet.iter().any(|traveller| !traveller.is_home()) {
        if world.began.elapsed() > PATIENCE {
            let stuck = fleet.iter().filter(|traveller| !traveller.is_home());
            let stuck: Vec<String> = stuck
                .map(|traveller| format!("{}: {}", traveller.uuid, states[&traveller.uuid]))
                .collect();
            panic!(
                "not everybody arrived in {PATIENCE:?}:\n{}\n{}",
                stuck.join("\n"),
                world.home.log()
            );
        }
        states = look(world);
        for traveller in fleet.iter_mut().filter(|traveller| !traveller.is_home()) {
            let state = &states[&traveller.uuid];
            let now = state["provision_state"].as_str().unwrap();
            assert!(!now.ends_with("failed") && now != "error", "{state}\n{}", world.home.log());
            let rests = now == traveller.destination() && state["target_provision_state"].is_null();
            if !rests {
                continue;
            }
            if traveller.arrived < traveller.accepted {
                traveller.arrived = traveller.accepted;
                world.legs_done.fetch_add(1, Ordering::Relaxed);
            }
            if !traveller.is_home() {
                send_on(world, traveller);
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    fleet
}

/// The states of all machines, by id.
fn look(world: &World) -> BTreeMap<String, Value> {
    const FIELDS: &str =
        "uuid,provision_state,target_provision_state,last_error,maintenance,reservation";
    let path = format!("/v1/nodes?fields={FIELDS}");
    let answer = world.insist(|client| client.send("GET", &path, None));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let nodes = answer.json();
    let nodes = nodes["nodes"].as_array().unwrap();
    nodes.iter().map(|node| (node["uuid"].as_str().unwrap().to_owned(), node.clone())).collect()
}

/// Asks for the next leg. If the answer is lost, the journal knows whether it was accepted.
fn send_on(world: &World, traveller: &mut Traveller) {
    let leg = &traveller.journey[traveller.accepted];
    let mut body = json!({"target": leg.verb});
    match leg.verb {
        "clean" => {
            body["clean_steps"] = json!([
                {"interface": "deploy", "step": "erase_devices"},
                {"interface": "vendor", "step": "log_passthrough"},
            ]);
        }
        "rescue" => body["rescue_password"] = json!("let-me-in"),
        _ => {}
    }
    let path = format!("/v1/nodes/{}/states/provision", traveller.uuid);
    let accepted = match world.client().ask("PUT", &path, Some(&body)) {
        Ok(answer) if answer.status == 202 => true,
        // Busy, or just starting: asked again after the next look.
        Ok(answer) if matches!(answer.status, 409 | 503) => false,
        Ok(answer) => {
            panic!("{} {}: {} {}", leg.verb, traveller.uuid, answer.status, answer.text())
        }
        Err(_) => {
            let timeline = world.insist(|client| journal::timeline(client, &traveller.uuid));
            match journal::asked(&timeline).len().checked_sub(traveller.accepted) {
                Some(0) => false,
                Some(1) => true,
                more => {
                    panic!("{}: {more:?} verbs more than were sent:\n{timeline:?}", traveller.uuid)
                }
            }
        }
    };
    if accepted {
        traveller.accepted += 1;
    }
}

/// What the killing thread found.
struct Killed {
    count: usize,
    /// How many machines were at work, over all kills.
    interrupted: usize,
    /// The longest timeline of each machine that was read just before a kill.
    seen: BTreeMap<String, Vec<Value>>,
    /// The server that came after the last kill.
    server: Server,
}

/// Kills the server `KILLS` times, spread over the journey; sometimes again right after its start.
fn kill_again_and_again(
    world: &World,
    mut server: Server,
    uuids: &[String],
    legs: usize,
    random: &mut Random,
) -> Killed {
    let _over = RaiseWhenDropped(&world.over);
    let (mut count, mut interrupted, mut seen) = (0, 0, BTreeMap::new());
    for kill in 0..KILLS {
        // Not before the fleet has come this far, so that the kills fall into the whole journey.
        let enough = legs * kill / (KILLS + 1);
        while world.legs_done.load(Ordering::Relaxed) < enough && !is_over(world) {
            thread::sleep(LOOK_EVERY);
        }
        thread::sleep(Duration::from_millis(random.below(400)));
        for _ in 0..3 {
            let uuid = &uuids[usize::try_from(random.below(NODES as u64)).unwrap()];
            seen.insert(uuid.clone(), journal::timeline(&mut server.client(), uuid).unwrap());
        }
        loop {
            if is_over(world) {
                return Killed { count, interrupted, seen, server };
            }
            let states = look(world);
            interrupted +=
                states.values().filter(|node| !node["target_provision_state"].is_null()).count();
            server.kill().unwrap();
            count += 1;
            server = world.home.serve();
            *world.address.lock().unwrap() = server.address();
            // Recovery must survive being interrupted, too.
            if random.below(4) > 0 {
                break;
            }
            thread::sleep(Duration::from_millis(random.below(60)));
        }
    }
    while !is_over(world) {
        thread::sleep(LOOK_EVERY);
    }
    Killed { count, interrupted, seen, server }
}

fn is_over(world: &World) -> bool {
    world.over.load(Ordering::Relaxed)
}

/// What is wrong with the end of a journey, given the story of the forerunner and what was seen of
/// the timeline before a kill.
fn check(world: &World, traveller: &Traveller, story: &[Value], seen: &[Value]) -> Vec<String> {
    let timeline = traveller.timeline(world);
    let verbs: Vec<&str> = traveller.journey.iter().map(|leg| leg.verb).collect();
    let path: Vec<&str> = traveller.journey.iter().flat_map(|leg| leg.path).copied().collect();
    let mut complaints = journal::complaints(&timeline, &verbs, &path);
    if timeline.get(..seen.len()) != Some(seen) {
        complaints.push("entries that were seen before a kill are gone or changed".to_owned());
    }
    let told = journal::story(&timeline);
    if told != story {
        let differs = told.iter().zip(story).position(|(told, expected)| told != expected);
        let differs = differs.unwrap_or(told.len().min(story.len()));
        complaints.push(format!(
            "tells {} things instead of {}, and differs from the forerunner's story at {differs}: {:?} instead of {:?}",
            told.len(), story.len(), told.get(differs), story.get(differs)
        ));
    }
    let states = look(world);
    let state = &states[&traveller.uuid];
    if state["maintenance"] != false
        || !state["last_error"].is_null()
        || !state["reservation"].is_null()
    {
        complaints.push(format!("not left in order: {state}"));
    }
    complaints.into_iter().map(|complaint| format!("{}: {complaint}", traveller.uuid)).collect()
}

struct RaiseWhenDropped<'a>(&'a AtomicBool);

impl Drop for RaiseWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
