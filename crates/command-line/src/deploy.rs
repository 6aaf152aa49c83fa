// SPDX-License-Identifier: Apache-2.0
//! `ferrite deploy` and `ferrite undeploy`: select machines, deploy an image and wait.
//!
//! The allocation API selects the machines. All checks run before the first deployment is requested, and
//! until then everything is undone after an error: the client chooses the UUIDs of the allocations, so that
//! even one whose response was lost can be deleted.

mod checks;
mod dry_run;
mod report;
mod request;
mod reservation;

use clap::Args;
use ironic_client::percent_encode;
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, to_object};
use crate::bulk::{self, BulkArguments};
use crate::cli_error::CliError;
use crate::config_drive::{ConfigDriveArguments, ConfigDriveContent};
use crate::context::{CliContext, ConnectionArguments};
use crate::interrupts::Interrupts;
use crate::node::verbs::{Verb, request_provision_state};
use crate::noderange;
use crate::output::OutputArguments;
use crate::selection::{self, SelectedNode};
use crate::wait::{self, TimeoutArguments};
pub use checks::{checksum_instance_info, is_image_reference};
use report::DeployResults;
use request::DeployResponse;
use reservation::{AllocationRequest, DeployReservation};

/// Options of `ferrite deploy`.
#[derive(Args, Debug)]
pub struct DeployArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// URL of the image: http://, https://, file:// or oci://.
    #[arg(long, value_name = "URL")]
    image: String,
    /// SHA-256 or SHA-512 of the image, or the URL of a checksum file.
    #[arg(long, value_name = "SUM")]
    checksum: Option<String>,
    /// The resource class of the machine.
    #[arg(long, value_name = "CLASS")]
    resource_class: String,
    /// Traits the machine must have.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Candidate machines: names, UUIDs or noderanges.
    #[arg(long = "candidate", value_name = "NODES")]
    candidates: Vec<String>,
    /// Number of machines.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: Option<u16>,
    /// Hostnames of the instances: a name, or a noderange with one name per machine, such as web-[1-3].
    /// With --count, a single name is numbered.
    #[arg(long, value_name = "NAMES")]
    hostname: Option<String>,
    #[command(flatten)]
    drive: ConfigDriveArguments,
    /// Additional instance_info: kernel=http://…, capabilities.boot_mode=uefi.
    #[arg(long, value_name = "KEY=VALUE")]
    instance_info: Vec<Assignment>,
    /// Do not wait until the machines are deployed.
    #[arg(long, help_heading = wait::HEADING)]
    no_wait: bool,
    #[command(flatten)]
    timeout: TimeoutArguments,
    /// Show only which machines could be deployed and why the others could not.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite undeploy`.
#[derive(Args, Debug)]
pub struct UndeployArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Machines, or hostnames of their instances: names, UUIDs or noderanges; @FILE reads them from a file,
    /// - from standard input.
    #[arg(value_name = "NODES", required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    bulk: BulkArguments,
    /// Do not wait until the machines are cleaned.
    #[arg(long, help_heading = wait::HEADING)]
    no_wait: bool,
    #[command(flatten)]
    timeout: TimeoutArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn deploy(arguments: &DeployArguments) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let drive = arguments.drive.read()?;
    let instance = instance_info(arguments)?;
    let candidates = selection::expand_names(&arguments.candidates)?;
    let requests: Vec<AllocationRequest> = hostnames(arguments)?
        .into_iter()
        .map(|hostname| AllocationRequest {
            hostname,
            resource_class: arguments.resource_class.clone(),
            traits: arguments.traits.clone(),
            candidates: candidates.clone(),
        })
        .collect();
    for request in &requests {
        request.hostname.as_deref().map_or(Ok(()), checks::check_hostname)?;
    }
    arguments.traits.iter().try_for_each(|name| checks::check_trait_name(name))?;
    if arguments.dry_run {
        return dry_run::show(&context, arguments, &requests, &instance, &drive).await;
    }
    let mut interrupts = Interrupts::listen()?;
    let deadline = arguments.timeout.deadline();
    let mut reservations: Vec<DeployReservation> =
        requests.into_iter().map(DeployReservation::new).collect();
    let prepared = tokio::select! {
        prepared = prepare(&context, &mut reservations, &instance) => prepared,
        () = deadline.passed() => {
            Err(CliError::TimedOut("timed out before any deployment was requested".to_owned()))
        }
        () = interrupts.next() => {
            Err(CliError::Interrupted("stopped before any deployment was requested".to_owned()))
        }
    };
    if let Err(failure) = prepared {
        release(&context, reservations.iter(), &instance, &mut interrupts).await;
        return Err(failure);
    }
    let requested =
        request_deployments(&context, &reservations, &instance, &drive, &mut interrupts).await;
    let results = match arguments.no_wait {
        true => DeployResults::without_waiting(requested),
        false => DeployResults::wait_for(&context, requested, deadline).await,
    };
    results.print(&context, &reservations, &drive.addresses(), arguments.output.output);
    results.into_result(reservations.len())
}

pub(crate) async fn undeploy(arguments: &UndeployArguments) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let selected = find_deployed(&context, &selection::expand_names(&arguments.nodes)?).await?;
    bulk::confirm(&context, Verb::Undeploy.name(), &selected, arguments.bulk.yes).await?;
    let parallel = arguments.bulk.parallel;
    let requested = bulk::for_each_node(&context, selected, parallel, |api, machine| async move {
        let target = Verb::Undeploy.target();
        request_provision_state(&api, &machine, target, &json!({ "target": target })).await?;
        Ok("undeploy requested".to_owned())
    })
    .await?;
    let outcomes = match arguments.no_wait {
        true => requested.outcomes,
        false => {
            let deadline = arguments.timeout.deadline();
            requested.wait_for_goal(&context, &Verb::Undeploy.goal(), deadline).await
        }
    };
    bulk::report(&context, outcomes, arguments.output.output)
}

/// Finds nodes by their names, or by the hostnames of their instances.
async fn find_deployed(
    context: &CliContext,
    names: &[String],
) -> Result<Vec<SelectedNode>, CliError> {
    let fields = Some(selection::FIELDS);
    let mut found = selection::find_by_name(&context.api, names, fields).await?;
    let missing: Vec<usize> = (0..names.len()).filter(|index| found[*index].is_none()).collect();
    let path = |index: &usize| format!("/v1/allocations/{}", percent_encode(&names[*index]));
    let allocations =
        selection::fetch_all(&context.api, missing.iter().map(path).collect()).await?;
    let uuid =
        |allocation: &Option<Value>| Some(allocation.as_ref()?["node_uuid"].as_str()?.to_owned());
    let uuids: Vec<Option<String>> = allocations.iter().map(uuid).collect();
    let unknown = missing.iter().zip(&uuids).filter(|(_, uuid)| uuid.is_none());
    let unknown: Vec<&str> = unknown.map(|(index, _)| names[*index].as_str()).collect();
    if !unknown.is_empty() {
        return Err(selection::unknown_nodes_error(&context.api, &unknown).await?);
    }
    let uuids: Vec<String> = uuids.into_iter().flatten().collect();
    let nodes = selection::find_by_name(&context.api, &uuids, fields).await?;
    for (index, node) in missing.into_iter().zip(nodes) {
        found[index] = node;
    }
    Ok(selection::deduplicate(found.into_iter().flatten())
        .into_iter()
        .map(SelectedNode::new)
        .collect())
}

/// Reserves all nodes and validates that they can be deployed. No deployment is requested yet.
async fn prepare(
    context: &CliContext,
    reservations: &mut [DeployReservation],
    instance: &Map<String, Value>,
) -> Result<(), CliError> {
    let total = reservations.len();
    for (allocated, reservation) in reservations.iter_mut().enumerate() {
        let outcome = reservation.allocate(context).await;
        if let Err(CliError::Rejected(why)) = &outcome
            && total > 1
        {
            let message = format!("only {allocated} of {total} machines are available: {why}");
            return Err(CliError::Rejected(message));
        }
        outcome?;
    }
    for reservation in reservations.iter_mut() {
        reservation.prepare(&context.api, instance).await?;
    }
    Ok(())
}

/// The responses to the deploy requests.
struct DeployRequests {
    accepted: Vec<SelectedNode>,
    failed: Vec<(SelectedNode, CliError)>,
    /// Whether Ctrl-C was pressed.
    is_interrupted: bool,
}

/// Requests the deployment of all reserved nodes. A node that rejects it is released and the others
/// continue. After Ctrl-C no further deployments are requested and the remaining nodes are released.
async fn request_deployments(
    context: &CliContext,
    reservations: &[DeployReservation],
    instance: &Map<String, Value>,
    drive: &ConfigDriveContent,
    interrupts: &mut Interrupts,
) -> DeployRequests {
    let mut requests =
        DeployRequests { accepted: Vec::new(), failed: Vec::new(), is_interrupted: false };
    let mut to_release = Vec::new();
    for reservation in reservations {
        let Some(node) = &reservation.node else { continue };
        if requests.is_interrupted {
            to_release.push(reservation);
            continue;
        }
        let mut body = json!({ "target": Verb::Deploy.target() });
        if let Some(drive) = drive.build(&node.uuid, &node.label, reservation.hostname()) {
            body["configdrive"] = drive;
        }
        let request = request::deploy(&context.api, node, &body);
        tokio::pin!(request);
        let response = tokio::select! {
            response = &mut request => response,
            () = interrupts.next() => {
                requests.is_interrupted = true;
                context.screen.note(&format!(
                    "stopping after the response for {}; press Ctrl-C again to stop now",
                    node.label
                ));
                tokio::select! {
                    response = &mut request => response,
                    () = interrupts.next() => DeployResponse::Unknown("stopped by Ctrl-C".to_owned()),
                }
            }
        };
        match response {
            DeployResponse::Accepted => requests.accepted.push(node.clone()),
            DeployResponse::Rejected(failure) => {
                to_release.push(reservation);
                requests.failed.push((node.clone(), failure));
            }
            DeployResponse::Unknown(why) => {
                let message =
                    format!("the server may or may not have accepted the request ({why})");
                requests.failed.push((node.clone(), CliError::OutcomeUnknown(message)));
            }
        }
    }
    release(context, to_release.into_iter(), instance, interrupts).await;
    requests
}

/// Releases reserved nodes, and reports those that cannot be released.
async fn release(
    context: &CliContext,
    reservations: impl Iterator<Item = &DeployReservation>,
    instance: &Map<String, Value>,
    interrupts: &mut Interrupts,
) {
    let mut is_stopped = false;
    for reservation in reservations {
        let stopped = || Err(CliError::Interrupted("stopped by Ctrl-C".to_owned()));
        let released = if is_stopped {
            stopped()
        } else {
            tokio::select! {
                released = reservation.release(&context.api, instance) => released,
                () = interrupts.next() => {
                    is_stopped = true;
                    stopped()
                }
            }
        };
        if let Err(failure) = released {
            context.screen.note(&format!(
                "{} was not released ({}); release it with `{}`",
                reservation.label(),
                failure.message(),
                reservation.release_command()
            ));
        }
    }
}

/// Builds `instance_info` from the options.
fn instance_info(arguments: &DeployArguments) -> Result<Map<String, Value>, CliError> {
    let mut info = to_object(&arguments.instance_info)?;
    checks::check_image(&arguments.image)?;
    info.insert("image_source".to_owned(), json!(arguments.image));
    if let Some(checksum) = &arguments.checksum {
        info.extend(checks::checksum_fields(checksum)?);
    }
    Ok(info)
}

/// Returns an optional hostname for each requested machine.
fn hostnames(arguments: &DeployArguments) -> Result<Vec<Option<String>>, CliError> {
    let names = match &arguments.hostname {
        Some(range) => {
            noderange::expand(range).map_err(|error| CliError::Usage(error.to_string()))?
        }
        None => Vec::new(),
    };
    let count = arguments.count.map(usize::from);
    match (names.len(), count.unwrap_or(names.len().max(1))) {
        (0, count) => Ok(vec![None; count]),
        (names_given, count) if names_given == count => Ok(names.into_iter().map(Some).collect()),
        (1, count) => {
            Ok((1..=count).map(|number| Some(format!("{}-{number}", names[0]))).collect())
        }
        (names_given, count) => Err(CliError::Usage(format!(
            "--hostname has {names_given} names, but --count is {count}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{TestResponse, start_server};

    #[derive(Parser)]
    struct DeployParser {
        #[command(flatten)]
        arguments: DeployArguments,
    }

    /// The allocation stays in `allocating`.
    #[tokio::test]
    async fn timeout_applies_to_the_allocation() {
        let (context, log) = start_server(|request| match request.line.split(' ').next() {
            Some("DELETE") => TestResponse::Json(204, Value::Null),
            _ => TestResponse::Json(200, json!({"state": "allocating"})),
        });
        let line = "deploy --image http://images/a --resource-class big --timeout 1s --url";
        let words = line.split(' ').map(str::to_owned).chain([context.api.address()]);
        let arguments = DeployParser::parse_from(words).arguments;
        let ended = tokio::time::timeout(Duration::from_secs(60), deploy(&arguments)).await;
        assert_eq!(ended.unwrap().unwrap_err().exit_code(), CliExitCode::TimedOut);
        let last = log.lock().unwrap().last().cloned().unwrap();
        assert!(last.starts_with("DELETE /v1/allocations/"), "{last}");
    }

    #[tokio::test]
    async fn finds_nodes_by_hostnames_of_their_instances() {
        let (context, log) = start_server(|request| {
            let none = || TestResponse::Json(404, json!({"error_message": "not found"}));
            let path = request.line.trim_start_matches("GET /v1/").split('?').next();
            match path.and_then(|path| path.split_once('/')) {
                Some(("nodes", uuid)) if uuid.starts_with("uuid-") => {
                    TestResponse::Json(200, json!({"uuid": uuid, "name": uuid}))
                }
                Some(("nodes", "web-1")) => {
                    TestResponse::Json(200, json!({"uuid": "uuid-x", "name": "web-1"}))
                }
                Some(("allocations", name)) if name.starts_with("web-") => {
                    TestResponse::Json(200, json!({"node_uuid": format!("uuid-{name}")}))
                }
                Some(_) | None => none(),
            }
        });
        let names = ["web-2", "web-1", "uuid-web-2", "web-3"].map(str::to_owned);
        let selected = find_deployed(&context, &names).await.unwrap();
        let uuids: Vec<&str> = selected.iter().map(|it| it.uuid.as_str()).collect();
        // Node names take precedence over hostnames; duplicates are ignored.
        assert_eq!(uuids, ["uuid-web-2", "uuid-x", "uuid-web-3"]);
        let message =
            find_deployed(&context, &["a", "b"].map(str::to_owned)).await.unwrap_err().to_string();
        assert_eq!(message, "unknown machines \"a\", \"b\"; nothing was done");
        assert!(log.lock().unwrap().iter().all(|line| !line.starts_with("GET /v1/nodes?")));
    }
}
