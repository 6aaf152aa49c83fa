// SPDX-License-Identifier: Apache-2.0
//! `ferrite bmc`: records the Redfish resources of a BMC, and serves a recording as a BMC.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use fleet_sim::Replay;
use redfish::recording::{self, BmcRecording};
use redfish::{CertificateTrust, RedfishClient, RedfishEndpoint, RedfishTimeouts};
use tokio::sync::Semaphore;

use crate::process::{StopSignal, print_line};

/// The password of the BMC; a variable, so that it does not appear in the process list.
const PASSWORD_VARIABLE: &str = "FERRITE_BMC_PASSWORD";

/// Commands of `ferrite bmc`.
#[derive(Subcommand, Debug)]
pub(crate) enum BmcCommand {
    /// Record all Redfish resources of a BMC in a file, without identifying data.
    Record(RecordArguments),
    /// Serve a recording as a BMC until stopped.
    Replay(ReplayArguments),
}

/// Options of `ferrite bmc record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArguments {
    /// The address of the BMC, such as https://192.0.2.7.
    #[arg(long, value_name = "URL")]
    redfish: String,
    /// User name.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// A file with the password; by default the variable FERRITE_BMC_PASSWORD.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// CA certificate file.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Output file.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Options of `ferrite bmc replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayArguments {
    /// The recording.
    #[arg(value_name = "FILE")]
    recording: PathBuf,
    /// Address and port to listen on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
}

/// Runs a command.
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
    let mut endpoint = RedfishEndpoint::parse(&arguments.redfish)?;
    endpoint.username.clone_from(&arguments.user);
    endpoint.password = password(arguments)?;
    endpoint.trust = match &arguments.ca {
        Some(file) => CertificateTrust::File(file.clone()),
        None if arguments.insecure => CertificateTrust::AnyCertificate,
        None => CertificateTrust::System,
    };
    // Many BMCs handle only one request at a time.
    let client =
        RedfishClient::new(endpoint, RedfishTimeouts::default(), Arc::new(Semaphore::new(1)))?;
    let recording = recording::record(&client, |count| {
        if count.is_multiple_of(100) {
            print_line(&format!("{count} resources read"));
        }
    })
    .await;
    client.close().await;
    let recording = recording.context("cannot record the BMC")?;
    recording.write(&arguments.out)?;
    let about = &recording.about;
    print_line(&format!(
        "{} resources of {} {} ({}) written to {}; check it for sensitive data before you share it",
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
    let password = std::env::var(PASSWORD_VARIABLE).ok();
    if password.is_none() && arguments.user.is_some() {
        bail!("--user needs a password: set {PASSWORD_VARIABLE} or give --password-file");
    }
    Ok(password)
}

async fn replay(arguments: &ReplayArguments) -> anyhow::Result<()> {
    let recording = BmcRecording::read(&arguments.recording)?;
    let about = recording.about.clone();
    let replay =
        Replay::start(recording, arguments.listen).context("give another address with --listen")?;
    let mut stop = StopSignal::listen()?;
    print_line(&format!(
        "recording of {} {} on {} (any user and password)",
        about.vendor,
        about.model,
        replay.url()
    ));
    stop.received().await;
    Ok(())
}
