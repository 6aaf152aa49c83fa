// SPDX-License-Identifier: Apache-2.0
//! How long one report of the benchmark's shape takes, from bytes to findings: CPU time on one
//! core, with the default hooks and with all of them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use inspection::{Context, FlavourSet, Hook, Report, RuleSet, Settings, process};
use node_model::{Node, NodeId, Timestamp};

const BODY: &[u8] = include_bytes!("../samples/bench.json");
const ROUNDS: u32 = 2000;
/// What one report may cost.
const ALLOWED: Duration = Duration::from_micros(300);

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
fn main() {
    // `cargo test --all-targets` runs this too, unoptimised; there is nothing to measure then.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
    let rules = RuleSet::default();
    let all = Settings { hooks: Hook::all().collect(), ..Settings::default() };
    for (name, settings) in [("default hooks", Settings::default()), ("all 16 hooks", all)] {
        let round = || {
            let report = Report::parse(black_box(BODY)).expect("the sample is a report");
            let context = Context {
                node: &node,
                ports: &[],
                report: &report,
                previous: None,
                settings: &settings,
                rules: &rules,
                flavours: &FlavourSet::default(),
                now: Timestamp(0),
            };
            let _ = black_box(process(&context).expect("the sample is a good report"));
        };
        (0..ROUNDS / 10).for_each(|_| round());
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| round());
        let each = start.elapsed() / ROUNDS;
        println!("{name}: {each:?} for a report of {} bytes", BODY.len());
        assert!(each <= ALLOWED, "{name}: {each:?} is more than {ALLOWED:?}");
    }
}
