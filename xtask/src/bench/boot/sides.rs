// SPDX-License-Identifier: Apache-2.0
//! The servers that are measured: ours in one process, dnsmasq and nginx in three.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::contest::Contest;
use super::network::{Network, RANGE, SERVER};
use crate::bench::meter::Usage;

/// Servers and the network of the machines they serve.
pub(crate) struct Side {
    /// Its column in the table.
    pub(crate) label: &'static str,
    servers: Vec<Child>,
    network: Network,
}

/// What one load came to.
pub(crate) struct Sample {
    pub(crate) operations: f64,
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
    /// How long half of the operations took at most, and nearly all.
    pub(crate) latencies: [f64; 2],
    pub(crate) failures: u64,
    pub(crate) first_failure: Option<String>,
    /// Processor time of the servers.
    pub(crate) cpu: Duration,
}

/// What is served, and how large it is.
const FILES: &[(&str, usize)] = &[
    ("snponly.efi", 256 << 10),
    ("one", 1 << 20),
    ("large", 32 << 20),
    ("boot.ipxe", 1 << 10),
    ("kernel", 1 << 20),
    ("ramdisk", 4 << 20),
];

/// Writes what is served.
pub(crate) fn write_files(folder: &Path) -> Result<()> {
    let served = folder.join("served");
    std::fs::create_dir(&served)?;
    for (name, size) in FILES {
        let bytes: Vec<u8> = (0..*size).map(|at| (at * 31 + at / 251) as u8).collect();
        std::fs::write(served.join(name), bytes)?;
    }
    Ok(())
}

impl Side {
    /// Our services.
    pub(crate) fn ferrite(program: &Path, folder: &Path) -> Result<Self> {
        let network = Network::new("ferrite")?;
        let program = program.to_str().context("the path of boot-bench is not text")?;
        let mut command = network.beside_servers(program);
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

    /// What people use.
    pub(crate) fn dnsmasq_and_nginx(folder: &Path) -> Result<Self> {
        let network = Network::new("others")?;
        let served = folder.join("served").display().to_string();
        let leases = folder.join("dnsmasq.leases").display().to_string();
        // Two of them: with thousands of leases each round of its one loop is slower, and TFTP would
        // pay for the DHCP that was measured before.
        let mut dhcp = dnsmasq(&network);
        // It does one thing at a time, so it may not wait for probes.
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
        let mut nginx = network.beside_servers("nginx");
        nginx.arg("-e").arg(folder.join("nginx.log")).arg("-c").arg(configuration);
        let servers = vec![start(&mut dhcp)?, start(&mut tftp)?, start(&mut nginx)?];
        Ok(Self { label: "dnsmasq, nginx", servers, network })
    }

    /// Puts the side under a load.
    pub(crate) fn play(&mut self, program: &Path, contest: &Contest, round: u32) -> Result<Sample> {
        let program = program.to_str().context("the path of boot-bench is not text")?;
        let mut command = self.network.beside_machines(program);
        command.args(&contest.arguments);
        if let Some(first) = contest.fleet.first(round) {
            command.args(["--first", &first.to_string()]);
        }
        let before = self.usage()?;
        let output = command.stderr(Stdio::inherit()).output().context("cannot start machines")?;
        let after = self.usage()?;
        self.network.forget_neighbours()?;
        ensure!(output.status.success(), "the machines failed");
        let outcome: Value = serde_json::from_slice(&output.stdout).context("no outcome")?;
        let number = |name: &str| outcome[name].as_f64().unwrap_or(0.0);
        let cpu = before.iter().zip(&after).map(|(before, after)| after.since(before)).sum();
        Ok(Sample {
            operations: number("operations"),
            bytes: number("bytes"),
            seconds: number("seconds"),
            latencies: [number("p50"), number("p99")],
            failures: outcome["failures"].as_u64().unwrap_or(0),
            first_failure: outcome["first_failure"].as_str().map(str::to_owned),
            cpu,
        })
    }

    fn usage(&self) -> Result<Vec<Usage>> {
        self.servers.iter().map(|server| Usage::of(server.id())).collect()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // nginx takes its workers along only when it is asked to end.
            let _already_gone = http_probe::send_signal(server.id(), "TERM");
            let _status = server.wait();
        }
    }
}

fn dnsmasq(network: &Network) -> Command {
    let mut command = network.beside_servers("dnsmasq");
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
