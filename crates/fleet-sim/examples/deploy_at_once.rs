// SPDX-License-Identifier: Apache-2.0
//! How long a server takes to deploy a fleet at once, and what that costs it.
//!
//! `cargo run --release -p fleet-sim --example deploy_at_once -- target/release/ferrite 100 300 1000`
//! prints a line for each size. Every fleet gets a server of its own with empty data.
#![expect(clippy::print_stdout, reason = "this is a program that speaks")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fleet_sim::{AgentConfig, Fleet, FleetConfig, Personality};
use http_probe::{Client, Server};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// How many times faster than real ones the machines are: what is measured is the server.
const SPEED: f64 = 50.0;
/// How often the fleet is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long one stage may take.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// Ticks of the kernel's clock in a second, for all Linux we know.
const TICKS: f64 = 100.0;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let binary = arguments.next().ok_or("give the path of ferrite, and numbers of machines")?;
    let sizes: Vec<u32> = arguments.map(|size| size.parse()).collect::<Result<_, _>>()?;
    println!(
        "machines  clean s  deploy s  deploys/s  server CPU s  ms CPU/deploy  empty MiB  peak MiB  failed"
    );
    for size in sizes {
        measure(Path::new(&binary), size)?;
    }
    Ok(())
}

fn measure(binary: &Path, size: u32) -> Outcome<()> {
    let data = tempfile::tempdir()?;
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--auth", "none", "--data-dir"]);
    command.arg(data.path().join("data"));
    let config = data.path().join("ferrite.toml");
    // What simulated machines boot from the network is nobody's business.
    std::fs::write(
        &config,
        format!(
            "[boot]\nenabled = false\n[lifecycle]\nmax_concurrent_deploy = {size}\nmax_concurrent_clean = {size}\n"
        ),
    )?;
    command.arg("--config").arg(config);
    let server = Server::start(&mut command, &data.path().join("log"))
        .map_err(|error| format!("the server does not start: {error}"))?;
    let empty = peak_mebibytes(server.pid())?;
    let runtime = Runtime::new()?;
    let guard = runtime.enter();
    let agents = AgentConfig {
        tls: true,
        inspects: false,
        step: 10.0,
        ..AgentConfig::calling(&server.url())
    };
    let fleet = Fleet::start(FleetConfig {
        bmcs: size,
        personalities: vec![Personality::named("generic")?],
        speed: SPEED,
        agents: Some(agents),
        ..FleetConfig::default()
    })?;
    drop(guard);
    let mut client = server.client().with_patience(Duration::from_secs(60));
    enrol(&mut client, &fleet)?;
    ask_all(&mut client, &fleet, "manage")?;
    await_all(&mut client, size, "manageable")?;
    let began = Instant::now();
    ask_all(&mut client, &fleet, "provide")?;
    await_all(&mut client, size, "available")?;
    let cleaned = began.elapsed();

    let (began, cpu_before) = (Instant::now(), cpu_seconds(server.pid())?);
    ask_all(&mut client, &fleet, "active")?;
    let failed = await_all(&mut client, size, "active")?;
    let (took, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds(server.pid())? - cpu_before);
    let each = f64::from(size);
    println!(
        "{size:8}  {:7.1}  {took:8.1}  {:9.1}  {cpu:12.2}  {:13.1}  {empty:9.1}  {:8.1}  {failed:6}",
        cleaned.as_secs_f64(),
        each / took,
        cpu * 1_000.0 / each,
        peak_mebibytes(server.pid())?,
    );
    runtime.block_on(fleet.stop());
    server.stop(Duration::from_secs(30))?;
    Ok(())
}

fn enrol(client: &mut Client, fleet: &Fleet) -> Outcome<()> {
    for machine in fleet.machines() {
        let enrolment = machine.enrolment(None);
        let body = json!({
            "name": enrolment.name,
            "driver": enrolment.driver,
            "driver_info": enrolment.driver_info,
            "properties": enrolment.properties,
            "boot_interface": "pxe",
            "deploy_interface": "direct",
            "automated_clean": true,
            "instance_info": {"image_source": "http://127.0.0.1:1/image.raw", "image_checksum": "0".repeat(64)},
        });
        let made = client.ask("POST", "/v1/nodes", Some(&body))?;
        if made.status != 201 {
            return Err(made.text().into());
        }
        let uuid = made.json()["uuid"].clone();
        for port in enrolment.ports {
            let port = json!({"node_uuid": uuid, "address": port.address});
            client.ask("POST", "/v1/ports", Some(&port))?;
        }
    }
    Ok(())
}

fn ask_all(client: &mut Client, fleet: &Fleet, verb: &str) -> Outcome<()> {
    for machine in fleet.machines() {
        let path = format!("/v1/nodes/{}/states/provision", machine.enrolment(None).name);
        let asked = client.ask("PUT", &path, Some(&json!({"target": verb})))?;
        if asked.status != 202 {
            return Err(format!("{verb}: {}", asked.text()).into());
        }
    }
    Ok(())
}

/// Waits until all rest, and gives the number of those that do elsewhere than in `state`.
fn await_all(client: &mut Client, size: u32, state: &str) -> Outcome<usize> {
    let began = Instant::now();
    loop {
        let (mut there, mut failed) = (0, 0);
        let mut path =
            Some("/v1/nodes?fields=provision_state,target_provision_state,last_error".to_owned());
        let mut complaint = Value::Null;
        while let Some(page) = path.take() {
            let listed = client.ask("GET", &page, None)?.json();
            for node in listed["nodes"].as_array().into_iter().flatten() {
                let now = node["provision_state"].as_str().unwrap_or_default();
                if now == state && node["target_provision_state"].is_null() {
                    there += 1;
                } else if now.ends_with("failed") || now == "error" {
                    failed += 1;
                    complaint = node["last_error"].clone();
                }
            }
            let next = listed["next"].as_str();
            path = next.and_then(|next| Some(format!("/v1{}", next.split_once("/v1")?.1)));
        }
        if there + failed >= usize::try_from(size)? {
            if failed > 0 {
                println!("{failed} failed: {complaint}");
            }
            return Ok(failed);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("only {there} of {size} are {state}, {failed} failed").into());
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// User and system time of a process.
fn cpu_seconds(pid: u32) -> Outcome<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(") ").ok_or("a line of /proc/PID/stat")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = (ticks(11).ok_or("utime")?, ticks(12).ok_or("stime")?);
    Ok((user + system) / TICKS)
}

/// The most memory it ever had.
fn peak_mebibytes(pid: u32) -> Outcome<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("VmHWM")?;
    let kibibytes: f64 = line.split_whitespace().nth(1).ok_or("a number")?.parse()?;
    Ok(kibibytes / 1024.0)
}
