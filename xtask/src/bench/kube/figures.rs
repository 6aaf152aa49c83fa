// SPDX-License-Identifier: Apache-2.0
//! The figures of the benchmark as a table, with their targets.

use std::time::Duration;

use super::request_counts::RequestCounts;
use super::usage::ClusterUsage;
use crate::print;

/// Target for the creation of hosts, in minutes, and what users of Metal3 report for 1,000 hosts.
const CREATION_MINUTES: f64 = 10.0;
const CREATION_PEER: &str = "Metal3: about 48 h on 24 cores for 1,000 hosts";
/// Targets of the idle operator: MiB, and percent of a core.
const IDLE_MEMORY: f64 = 150.0;
const IDLE_CPU: f64 = 1.0;
/// Requests of a kind that are fewer per host are not listed.
const LISTED_REQUESTS: f64 = 0.05;

/// When the idle operator is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum IdleLabel {
    /// After it made all hosts available.
    AfterCreation,
    /// After a restart.
    AfterRestart,
}

/// The rows of the table, and the requests by kind.
#[derive(Default)]
pub(super) struct HostFigures {
    rows: Vec<FigureRow>,
    requests: Vec<String>,
}

struct FigureRow {
    name: String,
    figure: String,
    target: String,
    is_met: Option<bool>,
}

impl HostFigures {
    /// Hosts from creation to available; `peak` is the operator's peak memory in MiB.
    pub(super) fn add_creation(&mut self, hosts: usize, usage: &ClusterUsage, peak: f64) {
        let minutes = usage.elapsed.as_secs_f64() / 60.0;
        self.push(FigureRow {
            name: format!("{hosts} hosts from creation to available"),
            figure: format!("{minutes:.1} min"),
            target: format!("{CREATION_MINUTES} min ({CREATION_PEER})"),
            is_met: Some(minutes <= CREATION_MINUTES),
        });
        self.add_processor_times(hosts, usage);
        for (api, counts) in [("Kubernetes", &usage.kubernetes), ("Ironic", &usage.ironic)] {
            self.add_requests(api, hosts, counts);
        }
        self.add("operator's peak memory", format!("{peak:.0} MiB"));
    }

    /// Hosts that need no inspection and no cleaning.
    pub(super) fn add_short_creation(&mut self, hosts: usize, usage: &ClusterUsage) {
        let minutes = usage.elapsed.as_secs_f64() / 60.0;
        self.add(
            &format!("{hosts} more hosts, without inspection and cleaning"),
            format!("{minutes:.1} min"),
        );
        self.add_processor_times(hosts, usage);
    }

    /// The start of an operator: time and processor time until it is settled, and peak memory in MiB.
    pub(super) fn add_restart(&mut self, hosts: usize, took: Duration, cpu: Duration, peak: f64) {
        self.add(
            &format!("restart with {hosts} hosts, until settled"),
            format!("{:.0} s", took.as_secs_f64()),
        );
        self.add("operator's processor time", format!("{:.1} s", cpu.as_secs_f64()));
        self.add("operator's peak memory", format!("{peak:.0} MiB"));
    }

    /// The idle operator; `memory` is its resident memory in MiB.
    pub(super) fn add_idle(
        &mut self,
        label: IdleLabel,
        hosts: usize,
        usage: &ClusterUsage,
        memory: f64,
    ) {
        let when = match label {
            IdleLabel::AfterCreation => "",
            IdleLabel::AfterRestart => " after a restart",
        };
        let name = |what: &str| format!("{hosts} idle hosts{when}: {what}");
        let seconds = usage.elapsed.as_secs_f64();
        let percent = |used: Duration| used.as_secs_f64() / seconds * 100.0;
        self.push(FigureRow {
            name: name("operator's memory"),
            figure: format!("{memory:.0} MiB"),
            target: format!("{IDLE_MEMORY} MiB"),
            is_met: Some(memory < IDLE_MEMORY),
        });
        let cpu = percent(usage.operator);
        self.push(FigureRow {
            name: name(&format!("operator's processor time in {seconds:.0} s")),
            figure: format!("{cpu:.2} % of a core"),
            target: format!("{IDLE_CPU} %"),
            is_met: Some(cpu < IDLE_CPU),
        });
        for (process, used) in [("service", usage.service), ("API server", usage.api_server)] {
            self.add(
                &name(&format!("{process}'s processor time")),
                format!("{:.2} % of a core", percent(used)),
            );
        }
        for (api, counts) in [("Kubernetes", &usage.kubernetes), ("Ironic", &usage.ironic)] {
            let each_minute = counts.total() * 60.0 / seconds;
            self.add(
                &name(&format!("requests to the {api} API")),
                format!("{each_minute:.0} a minute"),
            );
        }
    }

    /// Prints the table and the requests by kind.
    pub(super) fn print(&self) {
        print::line("| figure | measured | target | met |");
        print::line("|---|---|---|---|");
        for FigureRow { name, figure, target, is_met } in &self.rows {
            let met = is_met.map_or("", |is_met| if is_met { "yes" } else { "no" });
            print::line(&format!("| {name} | {figure} | {target} | {met} |"));
        }
        self.requests.iter().for_each(|line| print::line(line));
    }

    fn add(&mut self, name: &str, figure: String) {
        let name = name.to_owned();
        self.push(FigureRow { name, figure, target: String::new(), is_met: None });
    }

    /// Adds a row and prints it at once.
    fn push(&mut self, row: FigureRow) {
        print::line(&format!("{}: {}", row.name, row.figure));
        self.rows.push(row);
    }

    fn add_processor_times(&mut self, hosts: usize, usage: &ClusterUsage) {
        for (process, used) in [
            ("operator", usage.operator),
            ("service", usage.service),
            ("API server", usage.api_server),
        ] {
            let each = used.as_secs_f64() * 1e3 / hosts as f64;
            self.add(&format!("{process}'s processor time per host"), format!("{each:.1} ms"));
        }
    }

    fn add_requests(&mut self, api: &str, hosts: usize, counts: &RequestCounts) {
        let each = |count: f64| count / hosts as f64;
        let by_verb: Vec<String> = counts
            .by_verb()
            .into_iter()
            .map(|(verb, count)| format!("{verb} {:.1}", each(count)))
            .collect();
        self.add(
            &format!("requests to the {api} API per host"),
            format!("{:.1} ({})", each(counts.total()), by_verb.join(", ")),
        );
        self.requests.push(format!("\nrequests to the {api} API per host:"));
        for (kind, count) in counts.most_frequent() {
            if each(count) >= LISTED_REQUESTS {
                self.requests.push(format!("{:>8.2}  {kind}", each(count)));
            }
        }
    }
}
