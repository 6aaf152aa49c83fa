// SPDX-License-Identifier: Apache-2.0
//! Measures the processing time of one report, from bytes to result: CPU time on one
//! core, with the default hooks and with all of them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use inspection::{
    FlavourSet, HardwareReport, Hook, InspectionSettings, ReportContext, RuleSet, process_report,
};
use node_model::{Node, NodeId, Timestamp};

const BODY: &[u8] = include_bytes!("../samples/bench.json");
const ROUNDS: u32 = 2000;
/// The limit for one report.
const LIMIT: Duration = Duration::from_micros(300);

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
fn main() {
    // `cargo test --all-targets` also runs this, without optimization: do not measure.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
    let rules = RuleSet::default();
    let all = InspectionSettings { hooks: Hook::all().collect(), ..InspectionSettings::default() };
    for (name, settings) in
        [("default hooks", InspectionSettings::default()), ("all 16 hooks", all)]
    {
        let round = || {
            let report = HardwareReport::parse(black_box(BODY)).expect("the sample is a report");
            let context = ReportContext {
                node: &node,
                ports: &[],
                report: &report,
                previous: None,
                settings: &settings,
                rules: &rules,
                flavours: &FlavourSet::default(),
                now: Timestamp(0),
            };
            let _ = black_box(process_report(&context).expect("the sample is a valid report"));
        };
        (0..ROUNDS / 10).for_each(|_| round());
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| round());
        let each = start.elapsed() / ROUNDS;
        println!("{name}: {each:?} for a report of {} bytes", BODY.len());
        assert!(each <= LIMIT, "{name}: {each:?} is more than {LIMIT:?}");
    }
}
