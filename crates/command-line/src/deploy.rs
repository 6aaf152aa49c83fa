// SPDX-License-Identifier: Apache-2.0
//! `ferrite deploy` and `ferrite undeploy`: from an image to running machines in one go.
//!
//! Machines are picked by the allocation API. Everything that can be checked is checked before the first
//! machine is touched, and until then everything can be undone: the allocations are made under UUIDs of our
//! own choice, so that even one whose answer was lost can be given back.

mod reservation;

use clap::Args;
use ironic_client::Query;
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, object};
use crate::bulk::{self, BulkArguments};
use crate::config_drive::{Drive, DriveArguments};
use crate::desk::{ConnectionArguments, Desk};
use crate::failure::{Code, Failure};
use crate::node::verbs::{Verb, provision};
use crate::noderange;
use crate::output::{OutputArguments, name_of};
use crate::selection::{self, Chosen};
use crate::table::{Column, plain};
use crate::wait::{self, Patience};
use reservation::{Reservation, Wanted};

const COLUMNS: &[Column] = &[
    Column::new("HOSTNAME", |row| plain(&row["hostname"])),
    Column::new("NODE", |row| plain(&row["node"])),
    Column::new("STATE", |row| plain(&row["state"])),
    Column::new("ADDRESSES", |row| plain(&row["addresses"])),
    Column::new("CARDS", |row| plain(&row["cards"])),
    Column::wide("UUID", |row| plain(&row["uuid"])),
    Column::wide("ALLOCATION", |row| plain(&row["allocation"])),
];

/// Options of `ferrite deploy`.
#[derive(Args, Debug)]
pub struct DeployArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// The image: http://, https://, file:// or oci://.
    #[arg(long, value_name = "URL")]
    image: String,
    /// Its SHA-256 or SHA-512, or the URL of a file of checksums.
    #[arg(long, value_name = "SUM")]
    checksum: Option<String>,
    /// The resource class of the machine.
    #[arg(long, value_name = "CLASS")]
    resource_class: String,
    /// Traits the machine must have.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Machines it may be: names, UUIDs or noderanges.
    #[arg(long = "candidate", value_name = "NODES")]
    candidates: Vec<String>,
    /// How many machines.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: Option<u16>,
    /// What the instances are called: a name, or a noderange with one for each, such as web-[1-3]. With a
    /// --count, one name is numbered.
    #[arg(long, value_name = "NAMES")]
    hostname: Option<String>,
    #[command(flatten)]
    drive: DriveArguments,
    /// More of instance_info: kernel=http://…, capabilities.boot_mode=uefi.
    #[arg(long, value_name = "KEY=VALUE")]
    instance_info: Vec<Assignment>,
    /// Do not wait for the machines to be deployed.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    patience: Patience,
    /// Only show what would be done, and which machines could be taken.
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
    /// Machines or the hostnames they were deployed under: names, UUIDs or noderanges; @FILE reads them from a
    /// file, - from standard input.
    #[arg(value_name = "NODES", required = true)]
    nodes: Vec<String>,
    #[command(flatten)]
    bulk: BulkArguments,
    /// Do not wait for the machines to be clean.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn deploy(arguments: &DeployArguments) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let drive = arguments.drive.read()?;
    let instance = instance_info(arguments)?;
    let candidates = selection::names(&arguments.candidates)?;
    let wanted: Vec<Wanted> = hostnames(arguments)?
        .into_iter()
        .map(|hostname| Wanted {
            hostname,
            resource_class: arguments.resource_class.clone(),
            traits: arguments.traits.clone(),
            candidates: candidates.clone(),
        })
        .collect();
    if arguments.dry_run {
        return dry_run(&desk, arguments, &wanted, &instance, &drive).await;
    }
    let mut reservations: Vec<Reservation> = wanted.into_iter().map(Reservation::new).collect();
    let prepared = tokio::select! {
        prepared = prepare(&desk, &mut reservations, &instance) => prepared,
        _ = tokio::signal::ctrl_c() => {
            Err(Failure::Interrupted("no machine was touched, and none is kept".to_owned()))
        }
    };
    if let Err(failure) = prepared {
        for reservation in &reservations {
            reservation.undo(&desk.api, &instance).await;
        }
        return Err(failure);
    }
    let (machines, failed) = start(&desk, &reservations, &instance, &drive).await;
    finish(&desk, arguments, &reservations, machines, failed, &drive).await
}

pub(crate) async fn undeploy(arguments: &UndeployArguments) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let mut chosen = Vec::new();
    for name in selection::names(&arguments.nodes)? {
        chosen.push(deployed(&desk, &name).await?);
    }
    bulk::consent(&desk, Verb::Undeploy.word(), &chosen, arguments.bulk.yes)?;
    let outcomes = bulk::each(&desk, chosen, arguments.bulk.parallel, |api, machine| async move {
        let target = Verb::Undeploy.target();
        provision(&api, &machine, target, &json!({ "target": target })).await?;
        Ok("was asked to undeploy".to_owned())
    })
    .await;
    let (accepted, mut done): (Vec<_>, Vec<_>) =
        outcomes.into_iter().partition(|outcome| outcome.result.is_ok() && !arguments.no_wait);
    let waiting = accepted.into_iter().map(|it| (it.chosen, Verb::Undeploy.goal())).collect();
    done.extend(wait::wait_for(&desk, waiting, &arguments.patience).await);
    bulk::told(&desk, done, arguments.output.output)
}

/// The machine of a name, or the one that was deployed under it.
async fn deployed(desk: &Desk, name: &str) -> Result<Chosen, Failure> {
    let path = format!("/v1/allocations/{}", ironic_client::segment(name));
    match selection::one(&desk.api, name, Some(selection::FIELDS)).await {
        Ok(node) => Ok(Chosen::of(node)),
        Err(Failure::NotFound(told)) => {
            let allocation = desk.api.find(&path).await?;
            let node = allocation.as_ref().and_then(|it| it["node_uuid"].as_str());
            let uuid = node.ok_or(Failure::NotFound(told))?;
            Ok(Chosen::of(selection::one(&desk.api, uuid, Some(selection::FIELDS)).await?))
        }
        Err(other) => Err(other),
    }
}

/// Reserves all machines and checks that they can be deployed. Nothing is done to them yet.
async fn prepare(
    desk: &Desk,
    reservations: &mut [Reservation],
    instance: &Map<String, Value>,
) -> Result<(), Failure> {
    let wanted = reservations.len();
    for (had, reservation) in reservations.iter_mut().enumerate() {
        let made = reservation.make(desk).await;
        if let Err(Failure::Refused(why)) = &made
            && wanted > 1
        {
            let told = format!("only {had} of {wanted} machines can be had: {why}");
            return Err(Failure::Refused(told));
        }
        made?;
    }
    for reservation in reservations.iter_mut() {
        reservation.prepare(&desk.api, instance).await?;
    }
    Ok(())
}

/// Asks all machines to deploy. One that refuses is given back, and the others go on.
async fn start(
    desk: &Desk,
    reservations: &[Reservation],
    instance: &Map<String, Value>,
    drive: &Drive,
) -> (Vec<Chosen>, Vec<(Chosen, Failure)>) {
    let (mut started, mut failed) = (Vec::new(), Vec::new());
    for reservation in reservations {
        let Some(chosen) = &reservation.chosen else { continue };
        let mut body = json!({ "target": Verb::Deploy.target() });
        let told = drive.of(&chosen.uuid, &chosen.label, reservation.hostname());
        if let Some(drive) = told {
            body["configdrive"] = drive;
        }
        match provision(&desk.api, chosen, Verb::Deploy.target(), &body).await {
            Ok(()) => started.push(chosen.clone()),
            Err(failure) => {
                reservation.undo(&desk.api, instance).await;
                failed.push((chosen.clone(), failure));
            }
        }
    }
    (started, failed)
}

async fn finish(
    desk: &Desk,
    arguments: &DeployArguments,
    reservations: &[Reservation],
    started: Vec<Chosen>,
    mut failed: Vec<(Chosen, Failure)>,
    drive: &Drive,
) -> Result<(), Failure> {
    let all = reservations.len();
    let mut states: Vec<(Chosen, String)> = Vec::new();
    if arguments.no_wait {
        states = started.into_iter().map(|it| (it, "deploying".to_owned())).collect();
    } else {
        let waiting = started.into_iter().map(|it| (it, Verb::Deploy.goal())).collect();
        for outcome in wait::wait_for(desk, waiting, &arguments.patience).await {
            match outcome.result {
                Ok(state) => states.push((outcome.chosen, state)),
                Err(failure) => failed.push((outcome.chosen, failure)),
            }
        }
    }
    let mut rows = Vec::new();
    for reservation in reservations {
        let Some(chosen) = &reservation.chosen else { continue };
        let state = states.iter().find(|(it, _)| it.uuid == chosen.uuid).map(|(_, state)| state);
        let Some(state) = state else { continue };
        rows.push(json!({
            "hostname": reservation.hostname(),
            "node": chosen.label,
            "uuid": chosen.uuid,
            "allocation": reservation.uuid,
            "state": state,
            "addresses": drive.addresses(),
            "cards": reservation.cards,
        }));
    }
    let format = arguments.output.output;
    if !rows.is_empty() || format.is_for_programs() {
        desk.screen.print(&format.list(&rows, COLUMNS, desk.screen));
    }
    for (chosen, failure) in &failed {
        let label = &chosen.label;
        let hint = if matches!(failure, Failure::Failed(_)) {
            format!(
                "\n  `ferrite node show {label}` tells how it stands, `ferrite undeploy {label}` gives it back"
            )
        } else {
            String::new()
        };
        desk.screen.note(&format!("{label}: {}{hint}", failure.told()));
    }
    match failed.len() {
        0 => Ok(()),
        1 if all == 1 => {
            let (chosen, failure) = failed.remove(0);
            let told = format!("{} is not deployed", chosen.label);
            Err(match failure.code() {
                Code::TimedOut => Failure::TimedOut(told),
                Code::Interrupted => Failure::Interrupted("stopped waiting".to_owned()),
                Code::Refused => Failure::Refused(told),
                Code::Failed
                | Code::Usage
                | Code::NotFound
                | Code::NotAuthorised
                | Code::Unreachable => Failure::Failed(told),
            })
        }
        count => Err(Failure::Some { failed: count, all }),
    }
}

/// What would be done, and which machines could be taken.
async fn dry_run(
    desk: &Desk,
    arguments: &DeployArguments,
    wanted: &[Wanted],
    instance: &Map<String, Value>,
    drive: &Drive,
) -> Result<(), Failure> {
    let query = Query::new()
        .with("provision_state", "available")
        .with("resource_class", &arguments.resource_class)
        .with("associated", "false")
        .with("maintenance", "false")
        .with("fields", "uuid,name,traits,resource_class,power_state");
    let available = desk.api.list("/v1/nodes", "nodes", &query).await?;
    let candidates = selection::names(&arguments.candidates)?;
    let fits = |node: &&Value| {
        let has = |name: &String| {
            node["traits"].as_array().is_some_and(|traits| traits.iter().any(|it| it == name))
        };
        let is_candidate = candidates.is_empty()
            || ["name", "uuid"].iter().any(|field| {
                node[field].as_str().is_some_and(|it| candidates.iter().any(|name| name == it))
            });
        // A machine whose power is unknown is never picked.
        arguments.traits.iter().all(has) && is_candidate && !node["power_state"].is_null()
    };
    let fitting: Vec<&str> = available.iter().filter(fits).map(name_of).collect();
    let hostnames: Vec<&str> = wanted.iter().filter_map(|it| it.hostname.as_deref()).collect();
    let plan = json!({
        "machines_wanted": wanted.len(),
        "machines_that_fit": fitting,
        "hostnames": hostnames,
        "instance_info": instance,
        "config_drive": drive.of("…", "…", hostnames.first().copied()),
    });
    desk.screen.print(&arguments.output.output.single(&plan, desk.screen));
    if fitting.len() < wanted.len() {
        return Err(Failure::Refused(format!(
            "{} machines fit, and {} are wanted",
            fitting.len(),
            wanted.len()
        )));
    }
    Ok(())
}

/// What the machine is told about the image.
fn instance_info(arguments: &DeployArguments) -> Result<Map<String, Value>, Failure> {
    let mut info = object(&arguments.instance_info)?;
    info.insert("image_source".to_owned(), json!(arguments.image));
    if let Some(checksum) = &arguments.checksum {
        let hash = checksum.rsplit_once(':').map_or(checksum.as_str(), |(_, hash)| hash);
        let is_hash = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let algorithm = match hash.len() {
            64 if is_hash => Some("sha256"),
            128 if is_hash => Some("sha512"),
            _ => None,
        };
        match algorithm {
            Some(algorithm) => {
                info.insert("image_os_hash_algo".to_owned(), json!(algorithm));
                info.insert("image_os_hash_value".to_owned(), json!(hash));
            }
            None => {
                info.insert("image_checksum".to_owned(), json!(checksum));
            }
        }
    }
    Ok(info)
}

/// A hostname, or none, for each machine that is wanted.
fn hostnames(arguments: &DeployArguments) -> Result<Vec<Option<String>>, Failure> {
    let names = match &arguments.hostname {
        Some(range) => {
            noderange::expand(range).map_err(|error| Failure::Usage(error.to_string()))?
        }
        None => Vec::new(),
    };
    let count = arguments.count.map(usize::from);
    match (names.len(), count.unwrap_or(names.len().max(1))) {
        (0, count) => Ok(vec![None; count]),
        (there, count) if there == count => Ok(names.into_iter().map(Some).collect()),
        (1, count) => {
            Ok((1..=count).map(|number| Some(format!("{}-{number}", names[0]))).collect())
        }
        (there, count) => {
            Err(Failure::Usage(format!("--hostname means {there} machines, --count says {count}")))
        }
    }
}
