// SPDX-License-Identifier: Apache-2.0
//! Measures how long a server takes to deploy a whole fleet at once, and its CPU time and memory.
//!
//! `cargo run --release -p fleet-sim --example deploy_at_once -- target/release/ferrite 100 1000`
//! prints one line per size. Each size starts a new server with an empty database.
#![expect(clippy::print_stdout, reason = "this is a command line program")]

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use fleet_sim::{FleetConfig, Personality, SimulatedAgentConfig, SimulatedFleet};
use http_probe::{ProbeClient, ServerProcess};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Speed-up of the machines. High, because the server is measured and not the machines.
const SPEED: f64 = 50.0;
/// Interval at which the node states are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time limit for each stage.
const STAGE_TIMEOUT: Duration = Duration::from_secs(1_200);
/// Kernel clock ticks per second (USER_HZ), which is 100 on all Linux architectures we support.
const TICKS: f64 = 100.0;

type ExampleResult<T> = Result<T, Box<dyn Error>>;

fn main() -> ExampleResult<()> {
    let mut arguments = std::env::args().skip(1);
    let binary =
        arguments.next().ok_or("usage: deploy_at_once PATH_OF_FERRITE NUMBER_OF_MACHINES...")?;
    let sizes: Vec<u32> = arguments.map(|size| size.parse()).collect::<Result<_, _>>()?;
    println!(
        "machines  clean s  deploy s  deploys/s  server CPU s  ms CPU/deploy  empty MiB  peak MiB  failed"
    );
    for size in sizes {
        measure(Path::new(&binary), size)?;
    }
    Ok(())
}

fn measure(binary: &Path, size: u32) -> ExampleResult<()> {
    let data = tempfile::tempdir()?;
    let mut command = Command::new(binary);
    command.args(["serve", "--listen", "127.0.0.1:0", "--auth", "none", "--data-dir"]);
    command.arg(data.path().join("data"));
    let config = data.path().join("ferrite.toml");
    // Simulated machines do not load boot files, so no boot services are needed, and their agents have no
    // boot proof.
    std::fs::write(
        &config,
        format!(
            "[boot]\nenabled = false\n[conductor]\nagent_boot_proof = \"none\"\n[lifecycle]\nmax_concurrent_deploy = {size}\nmax_concurrent_clean = {size}\n"
        ),
    )?;
    command.arg("--config").arg(config);
    let server = ServerProcess::start(&mut command, &data.path().join("log"))
        .map_err(|error| format!("cannot start the server: {error}"))?;
    let empty = peak_mebibytes(server.pid())?;
    let runtime = Runtime::new()?;
    let guard = runtime.enter();
    let agents = SimulatedAgentConfig {
        tls: true,
        sends_inspection_data: false,
        step_seconds: 10.0,
        ..SimulatedAgentConfig::for_api(&server.url())
    };
    let fleet = SimulatedFleet::start(FleetConfig {
        bmcs: size,
        personalities: vec![Personality::built_in("generic")?],
        speed: SPEED,
        agents: Some(agents),
        ..FleetConfig::default()
    })?;
    drop(guard);
    let mut client = server.client().with_timeout(Duration::from_secs(60));
    enrol(&mut client, &fleet)?;
    request_all(&mut client, &fleet, "manage")?;
    wait_for_all(&mut client, size, "manageable")?;
    let began = Instant::now();
    request_all(&mut client, &fleet, "provide")?;
    wait_for_all(&mut client, size, "available")?;
    let cleaned = began.elapsed();

    let (began, cpu_before) = (Instant::now(), cpu_seconds(server.pid())?);
    request_all(&mut client, &fleet, "active")?;
    let failed = wait_for_all(&mut client, size, "active")?;
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

fn enrol(client: &mut ProbeClient, fleet: &SimulatedFleet) -> ExampleResult<()> {
    for machine in fleet.machines() {
        let enrolment = machine.redfish_enrolment(None);
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
        let created = client.send_json("POST", "/v1/nodes", Some(&body))?;
        if created.status != 201 {
            return Err(created.text().into());
        }
        let uuid = created.json()["uuid"].clone();
        for port in enrolment.ports {
            let port = json!({"node_uuid": uuid, "address": port.address});
            client.send_json("POST", "/v1/ports", Some(&port))?;
        }
    }
    Ok(())
}

fn request_all(client: &mut ProbeClient, fleet: &SimulatedFleet, verb: &str) -> ExampleResult<()> {
    for machine in fleet.machines() {
        let path = format!("/v1/nodes/{}/states/provision", machine.redfish_enrolment(None).name);
        let response = client.send_json("PUT", &path, Some(&json!({"target": verb})))?;
        if response.status != 202 {
            return Err(format!("{verb}: {}", response.text()).into());
        }
    }
    Ok(())
}

/// Waits until every node is in `state` or has failed. Returns the number of failed nodes.
fn wait_for_all(client: &mut ProbeClient, size: u32, state: &str) -> ExampleResult<usize> {
    let began = Instant::now();
    loop {
        let (mut reached, mut failed) = (0, 0);
        let mut path =
            Some("/v1/nodes?fields=provision_state,target_provision_state,last_error".to_owned());
        let mut last_error = Value::Null;
        while let Some(page) = path.take() {
            let listed = client.send_json("GET", &page, None)?.json();
            for node in listed["nodes"].as_array().into_iter().flatten() {
                let now = node["provision_state"].as_str().unwrap_or_default();
                if now == state && node["target_provision_state"].is_null() {
                    reached += 1;
                } else if now.ends_with("failed") || now == "error" {
                    failed += 1;
                    last_error = node["last_error"].clone();
                }
            }
            let next = listed["next"].as_str();
            path = next.and_then(|next| Some(format!("/v1{}", next.split_once("/v1")?.1)));
        }
        if reached + failed >= usize::try_from(size)? {
            if failed > 0 {
                println!("{failed} failed: {last_error}");
            }
            return Ok(failed);
        }
        if began.elapsed() > STAGE_TIMEOUT {
            return Err(format!("only {reached} of {size} are {state}, {failed} failed").into());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the user and system time of a process.
fn cpu_seconds(pid: u32) -> ExampleResult<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let rest = stat.rsplit_once(") ").ok_or("malformed /proc/PID/stat")?.1;
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    let (user, system) = (
        ticks(11).ok_or("no utime in /proc/PID/stat")?,
        ticks(12).ok_or("no stime in /proc/PID/stat")?,
    );
    Ok((user + system) / TICKS)
}

/// Returns the peak resident memory of a process.
fn peak_mebibytes(pid: u32) -> ExampleResult<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .ok_or("no VmHWM in /proc/PID/status")?;
    let kibibytes: f64 =
        line.split_whitespace().nth(1).ok_or("malformed VmHWM in /proc/PID/status")?.parse()?;
    Ok(kibibytes / 1024.0)
}
