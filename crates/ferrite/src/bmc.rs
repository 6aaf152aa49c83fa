// SPDX-License-Identifier: Apache-2.0
//! `ferrite bmc`: records what a real BMC shows, and serves a recording as if it were that BMC.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use fleet_sim::Replay;
use redfish::recording::{self, Recording};
use redfish::{Client, Endpoint, Timeouts, Trust};
use tokio::sync::Semaphore;

use crate::process::StopRequest;

/// The password of the BMC is read from here, so that it is in no list of processes.
const PASSWORD: &str = "FERRITE_BMC_PASSWORD";

/// What can be done with recordings of BMCs.
#[derive(Subcommand, Debug)]
pub(crate) enum BmcCommand {
    /// Read everything a BMC shows and write it to a file, without what identifies the machine.
    Record(RecordArguments),
    /// Serve a recording as if it were the BMC, until stopped.
    Replay(ReplayArguments),
}

/// Options of `ferrite bmc record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArguments {
    /// The address of the BMC, such as https://192.0.2.7.
    #[arg(long, value_name = "URL")]
    redfish: String,
    /// The name to sign in with.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A file with the password; otherwise FERRITE_BMC_PASSWORD has it.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// Accept certificates of the authority in this file.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Where to write the recording.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Options of `ferrite bmc replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayArguments {
    /// The recording.
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// Address and port to serve it on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
}

/// Runs one of the commands.
pub(crate) fn run(command: &BmcCommand) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    match command {
        BmcCommand::Record(arguments) => runtime.block_on(record(arguments)),
        BmcCommand::Replay(arguments) => runtime.block_on(replay(arguments)),
    }
}

async fn record(arguments: &RecordArguments) -> anyhow::Result<()> {
    let mut endpoint = Endpoint::parse(&arguments.redfish)?;
    endpoint.username.clone_from(&arguments.user);
    endpoint.password = password(arguments)?;
    endpoint.trust = match &arguments.ca {
        Some(file) => Trust::File(file.clone()),
        None if arguments.insecure => Trust::Nobody,
        None => Trust::System,
    };
    // Many BMCs can do one thing at a time.
    let client = Client::new(endpoint, Timeouts::default(), Arc::new(Semaphore::new(1)))?;
    let recording = recording::record(&client, |count| {
        if count.is_multiple_of(100) {
            tell(&format!("{count} resources read"));
        }
    })
    .await;
    client.close().await;
    let recording = recording.context("the BMC cannot be recorded")?;
    recording.write(&arguments.out)?;
    let about = &recording.about;
    tell(&format!(
        "{} resources of {} {} ({}) written to {}; look through it before you give it away",
        recording.resources.len(),
        about.vendor,
        about.model,
        about.firmware,
        arguments.out.display()
    ));
    Ok(())
}

fn password(arguments: &RecordArguments) -> anyhow::Result<Option<String>> {
    if let Some(file) = &arguments.password_file {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the password from {}", file.display()))?;
        return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
    }
    let password = std::env::var(PASSWORD).ok();
    if password.is_none() && arguments.user.is_some() {
        bail!("a user needs a password: set {PASSWORD} or give --password-file");
    }
    Ok(password)
}

async fn replay(arguments: &ReplayArguments) -> anyhow::Result<()> {
    let recording = Recording::read(&arguments.recording)?;
    let about = recording.about.clone();
    let replay =
        Replay::start(recording, arguments.listen).context("give another address with --listen")?;
    let mut stop = StopRequest::listen()?;
    tell(&format!(
        "a recording of {} {} on {} (any user and password)",
        about.vendor,
        about.model,
        replay.url()
    ));
    stop.come().await;
    Ok(())
}

/// What happens, for people and for programs that start us.
#[expect(clippy::print_stdout, reason = "this is where the program speaks to its user")]
fn tell(line: &str) {
    println!("{line}");
}
