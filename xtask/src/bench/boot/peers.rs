// SPDX-License-Identifier: Apache-2.0
//! The measured servers: ours in one process, dnsmasq and nginx in three.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::boot_load::BootLoad;
use super::network::{BenchNetwork, RANGE, SERVER};
use crate::bench::meter::CpuUsage;

/// The servers of a peer and their network.
pub(crate) struct BootPeer {
    /// The column of the table.
    pub(crate) label: &'static str,
    servers: Vec<Child>,
    network: BenchNetwork,
}

/// The result of one load.
pub(crate) struct LoadSample {
    pub(crate) operations: f64,
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    /// Median and 99th percentile of the latencies.
    pub(crate) latencies: [f64; 2],
    pub(crate) failures: u64,
    pub(crate) first_failure: Option<String>,
    /// Processor time of the servers.
    pub(crate) cpu: Duration,
}

/// The served files and their sizes.
const FILES: &[(&str, usize)] = &[
    ("snponly.efi", 256 << 10),
    ("one", 1 << 20),
    ("large", 32 << 20),
    ("boot.ipxe", 1 << 10),
    ("kernel", 1 << 20),
    ("ramdisk", 4 << 20),
];

/// Writes the served files.
pub(crate) fn write_files(folder: &Path) -> Result<()> {
    let served = folder.join("served");
    std::fs::create_dir(&served)?;
    for (name, size) in FILES {
        let bytes: Vec<u8> = (0..*size).map(|at| (at * 31 + at / 251) as u8).collect();
        std::fs::write(served.join(name), bytes)?;
    }
    Ok(())
}

impl BootPeer {
    /// Starts our boot services.
    pub(crate) fn ferrite(program: &Path, folder: &Path) -> Result<Self> {
        let network = BenchNetwork::new("ferrite")?;
        let program = program.to_str().context("the path of boot-bench is not text")?;
        let mut command = network.in_server_namespace(program);
        command.args(["serve", "--interface", "s0", "--address", SERVER, "--prefix", "16"]);
        command.args(["--first", RANGE.0, "--last", RANGE.1]);
        command.arg("--folder").arg(folder.join("served"));
        command.arg("--leases").arg(folder.join("ferrite.leases"));
        let mut server =
            command.stdout(Stdio::piped()).spawn().context("cannot start our services")?;
        let mut first_line = String::new();
        let output = server.stdout.take().context("the output was not piped")?;
        BufReader::new(output).read_line(&mut first_line)?;
        ensure!(first_line == "ready\n", "our services did not start");
        Ok(Self { label: "ferrite", servers: vec![server], network })
    }

    /// Starts dnsmasq and nginx.
    pub(crate) fn dnsmasq_and_nginx(folder: &Path) -> Result<Self> {
        let network = BenchNetwork::new("others")?;
        let served = folder.join("served").display().to_string();
        let leases = folder.join("dnsmasq.leases").display().to_string();
        // Two processes: dnsmasq is slower with thousands of leases, which would affect the TFTP
        // figures.
        let mut dhcp = dnsmasq(&network);
        // dnsmasq is single-threaded, so it must not wait for probes.
        dhcp.args(["--no-ping", "--quiet-dhcp", "--dhcp-authoritative", "--dhcp-lease-max=100000"]);
        dhcp.arg(format!("--dhcp-range={},{},255.255.0.0,1h", RANGE.0, RANGE.1));
        dhcp.arg(format!("--dhcp-leasefile={leases}"));
        dhcp.args(["--dhcp-match=set:ipxe,175", "--dhcp-boot=tag:!ipxe,snponly.efi"]);
        dhcp.arg(format!("--dhcp-boot=tag:ipxe,http://{SERVER}/boot.ipxe"));
        let mut tftp = dnsmasq(&network);
        tftp.args(["--enable-tftp", "--quiet-tftp", "--tftp-max=4096"]);
        tftp.arg(format!("--tftp-root={served}"));
        let configuration = folder.join("nginx.conf");
        std::fs::write(&configuration, nginx_configuration(folder, &served))?;
        let mut nginx = network.in_server_namespace("nginx");
        nginx.arg("-e").arg(folder.join("nginx.log")).arg("-c").arg(configuration);
        let servers = vec![start(&mut dhcp)?, start(&mut tftp)?, start(&mut nginx)?];
        Ok(Self { label: "dnsmasq, nginx", servers, network })
    }

    /// Runs a load.
    pub(crate) fn run_load(
        &mut self,
        program: &Path,
        contest: &BootLoad,
        round: u32,
    ) -> Result<LoadSample> {
        let program = program.to_str().context("the path of boot-bench is not text")?;
        let mut command = self.network.in_machine_namespace(program);
        command.args(&contest.arguments);
        if let Some(first) = contest.fleet.first(round) {
            command.args(["--first", &first.to_string()]);
        }
        let before = self.usage()?;
        let output = command.stderr(Stdio::inherit()).output().context("cannot start machines")?;
        let after = self.usage()?;
        self.network.flush_neighbours()?;
        ensure!(output.status.success(), "the machines failed");
        let outcome: Value = serde_json::from_slice(&output.stdout).context("no outcome")?;
        let number = |name: &str| outcome[name].as_f64().unwrap_or(0.0);
        let cpu = before.iter().zip(&after).map(|(before, after)| after.since(before)).sum();
        Ok(LoadSample {
            operations: number("operations"),
            bytes: number("bytes"),
            seconds: number("seconds"),
            latencies: [number("p50"), number("p99")],
            failures: outcome["failures"].as_u64().unwrap_or(0),
            first_failure: outcome["first_failure"].as_str().map(str::to_owned),
            cpu,
        })
    }

    fn usage(&self) -> Result<Vec<CpuUsage>> {
        self.servers.iter().map(|server| CpuUsage::of(server.id())).collect()
    }
}

impl Drop for BootPeer {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // nginx stops its workers only on SIGTERM.
            let _already_gone = http_probe::send_signal(server.id(), "TERM");
            let _status = server.wait();
        }
    }
}

fn dnsmasq(network: &BenchNetwork) -> Command {
    let mut command = network.in_server_namespace("dnsmasq");
    command.args(["--keep-in-foreground", "--conf-file=/dev/null", "--pid-file", "--port=0"]);
    command.args(["--user=root", "--interface=s0", "--bind-interfaces"]);
    command
}

fn start(command: &mut Command) -> Result<Child> {
    command.spawn().with_context(|| format!("cannot start {command:?}"))
}

fn nginx_configuration(folder: &Path, served: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off; user root; worker_processes auto; pid {folder}/nginx.pid;\n\
         worker_rlimit_nofile 65536;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n\
         access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;\n\
         default_type application/octet-stream;\n\
         server {{ listen {SERVER}:80 backlog=4096; root {served}; }}\n\
         }}\n"
    )
}
