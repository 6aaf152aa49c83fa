// SPDX-License-Identifier: Apache-2.0
//! `ferrite deploy` and `ferrite undeploy`: from an image to running machines in one go.
//!
//! Machines are picked by the allocation API. Everything that can be checked is checked before the first
//! machine is touched, and until then everything can be undone: the allocations are made under UUIDs of our
//! own choice, so that even one whose answer was lost can be given back.

mod checks;
mod dry_run;
mod request;
mod reservation;

use clap::Args;
use ironic_client::segment;
use serde_json::{Map, Value, json};

use crate::assignments::{Assignment, object};
use crate::bulk::{self, BulkArguments};
use crate::config_drive::{Drive, DriveArguments};
use crate::desk::{ConnectionArguments, Desk};
use crate::failure::{Code, Failure};
use crate::interrupts::Interrupts;
use crate::node::verbs::{Verb, provision};
use crate::noderange;
use crate::output::OutputArguments;
use crate::selection::{self, Chosen};
use crate::table::{Column, plain};
use crate::wait::{self, Deadline, Patience};
use request::Answer;
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
    #[arg(long, help_heading = wait::HEADING)]
    no_wait: bool,
    #[command(flatten)]
    patience: Patience,
    /// Only show what would be done, which machines could be taken, and why the others could not.
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
    #[arg(long, help_heading = wait::HEADING)]
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
    for wanted in &wanted {
        wanted.hostname.as_deref().map_or(Ok(()), checks::hostname)?;
    }
    arguments.traits.iter().try_for_each(|name| checks::trait_name(name))?;
    if arguments.dry_run {
        return dry_run::show(&desk, arguments, &wanted, &instance, &drive).await;
    }
    let mut interrupts = Interrupts::listen()?;
    let deadline = arguments.patience.deadline();
    let mut reservations: Vec<Reservation> = wanted.into_iter().map(Reservation::new).collect();
    let prepared = tokio::select! {
        prepared = prepare(&desk, &mut reservations, &instance) => prepared,
        () = deadline.passed() => {
            Err(Failure::TimedOut("no machine was asked to deploy in time; nothing goes on".to_owned()))
        }
        () = interrupts.next() => {
            Err(Failure::Interrupted("stopped before any machine was asked to deploy".to_owned()))
        }
    };
    if let Err(failure) = prepared {
        give_back(&desk, reservations.iter(), &instance, &mut interrupts).await;
        return Err(failure);
    }
    let start = start(&desk, &reservations, &instance, &drive, &mut interrupts).await;
    finish(&desk, arguments, &reservations, start, &drive, deadline).await
}

pub(crate) async fn undeploy(arguments: &UndeployArguments) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let chosen = deployed(&desk, &selection::names(&arguments.nodes)?).await?;
    bulk::consent(&desk, Verb::Undeploy.word(), &chosen, arguments.bulk.yes).await?;
    let asked = bulk::each(&desk, chosen, arguments.bulk.parallel, |api, machine| async move {
        let target = Verb::Undeploy.target();
        provision(&api, &machine, target, &json!({ "target": target })).await?;
        Ok("was asked to undeploy".to_owned())
    })
    .await?;
    let outcomes = match arguments.no_wait {
        true => asked.outcomes,
        false => {
            let deadline = arguments.patience.deadline();
            asked.reached(&desk, &Verb::Undeploy.goal(), deadline).await
        }
    };
    bulk::told(&desk, outcomes, arguments.output.output)
}

/// The machines of these names, or those that were deployed under them.
async fn deployed(desk: &Desk, names: &[String]) -> Result<Vec<Chosen>, Failure> {
    let fields = Some(selection::FIELDS);
    let mut found = selection::by_name(&desk.api, names, fields).await?;
    let open: Vec<usize> = (0..names.len()).filter(|place| found[*place].is_none()).collect();
    let path = |place: &usize| format!("/v1/allocations/{}", segment(&names[*place]));
    let allocations = selection::found(&desk.api, open.iter().map(path).collect()).await?;
    let uuid =
        |allocation: &Option<Value>| Some(allocation.as_ref()?["node_uuid"].as_str()?.to_owned());
    let uuids: Vec<Option<String>> = allocations.iter().map(uuid).collect();
    let missing = open.iter().zip(&uuids).filter(|(_, uuid)| uuid.is_none());
    let missing: Vec<&str> = missing.map(|(place, _)| names[*place].as_str()).collect();
    if !missing.is_empty() {
        return Err(selection::unknown(&desk.api, &missing).await?);
    }
    let uuids: Vec<String> = uuids.into_iter().flatten().collect();
    let nodes = selection::by_name(&desk.api, &uuids, fields).await?;
    for (place, node) in open.into_iter().zip(nodes) {
        found[place] = node;
    }
    Ok(selection::once_each(found.into_iter().flatten()).into_iter().map(Chosen::of).collect())
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

/// How machines took it that they are to deploy.
struct Start {
    started: Vec<Chosen>,
    failed: Vec<(Chosen, Failure)>,
    /// Whether somebody did not want to go on.
    is_interrupted: bool,
}

/// Asks all machines to deploy. One that refuses is given back, and the others go on. After Ctrl-C no
/// more are asked, and those that were not are given back.
async fn start(
    desk: &Desk,
    reservations: &[Reservation],
    instance: &Map<String, Value>,
    drive: &Drive,
    interrupts: &mut Interrupts,
) -> Start {
    let mut start = Start { started: Vec::new(), failed: Vec::new(), is_interrupted: false };
    let mut returned = Vec::new();
    for reservation in reservations {
        let Some(chosen) = &reservation.chosen else { continue };
        if start.is_interrupted {
            returned.push(reservation);
            continue;
        }
        let mut body = json!({ "target": Verb::Deploy.target() });
        let told = drive.of(&chosen.uuid, &chosen.label, reservation.hostname());
        if let Some(drive) = told {
            body["configdrive"] = drive;
        }
        let asking = request::deploy(&desk.api, chosen, &body);
        tokio::pin!(asking);
        let answer = tokio::select! {
            answer = &mut asking => answer,
            () = interrupts.next() => {
                start.is_interrupted = true;
                desk.screen.note(&format!(
                    "stopping as soon as the server has answered for {}; Ctrl-C again does not wait",
                    chosen.label
                ));
                tokio::select! {
                    answer = &mut asking => answer,
                    () = interrupts.next() => Answer::Unknown("stopped by Ctrl-C".to_owned()),
                }
            }
        };
        match answer {
            Answer::Accepted => start.started.push(chosen.clone()),
            Answer::Refused(failure) => {
                returned.push(reservation);
                start.failed.push((chosen.clone(), failure));
            }
            Answer::Unknown(why) => {
                let told = format!("it is not known whether the server took the request ({why})");
                start.failed.push((chosen.clone(), Failure::Unanswered(told)));
            }
        }
    }
    give_back(desk, returned.into_iter(), instance, interrupts).await;
    start
}

/// Gives machines back, and tells of those that cannot be.
async fn give_back(
    desk: &Desk,
    reservations: impl Iterator<Item = &Reservation>,
    instance: &Map<String, Value>,
    interrupts: &mut Interrupts,
) {
    let mut is_stopped = false;
    for reservation in reservations {
        let stopped = || Err(Failure::Interrupted("stopped by Ctrl-C".to_owned()));
        let undone = if is_stopped {
            stopped()
        } else {
            tokio::select! {
                undone = reservation.undo(&desk.api, instance) => undone,
                () = interrupts.next() => {
                    is_stopped = true;
                    stopped()
                }
            }
        };
        if let Err(failure) = undone {
            desk.screen.note(&format!(
                "{} was not given back ({}); `{}` does it",
                reservation.label(),
                failure.told(),
                reservation.way_back()
            ));
        }
    }
}

async fn finish(
    desk: &Desk,
    arguments: &DeployArguments,
    reservations: &[Reservation],
    start: Start,
    drive: &Drive,
    deadline: Deadline,
) -> Result<(), Failure> {
    let all = reservations.len();
    let Start { started, mut failed, mut is_interrupted } = start;
    let mut going_on: Vec<Chosen> = started.clone();
    let mut states: Vec<(Chosen, String)> = Vec::new();
    if arguments.no_wait || is_interrupted {
        states = started.into_iter().map(|it| (it, "deploying".to_owned())).collect();
    } else {
        let waiting = started.into_iter().map(|it| (it, Verb::Deploy.goal())).collect();
        for outcome in wait::wait_for(desk, waiting, deadline).await {
            match outcome.result {
                Err(Failure::Interrupted(_)) => {
                    is_interrupted = true;
                    continue;
                }
                Ok(state) => states.push((outcome.chosen.clone(), state)),
                Err(failure) => failed.push((outcome.chosen.clone(), failure)),
            }
            going_on.retain(|it| it.uuid != outcome.chosen.uuid);
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
        let hint = if matches!(failure, Failure::Failed(_) | Failure::Unanswered(_)) {
            format!(
                "\n  `ferrite node show {label}` tells how it stands, `ferrite undeploy {label}` gives it back"
            )
        } else {
            String::new()
        };
        desk.screen.note(&format!("{label}: {}{hint}", failure.told()));
    }
    if is_interrupted {
        let is_unknown = |it: &&(Chosen, Failure)| matches!(it.1, Failure::Unanswered(_));
        let unknown: Vec<&Chosen> = failed.iter().filter(is_unknown).map(|it| &it.0).collect();
        return Err(Failure::Interrupted(left_behind(&going_on, &unknown)));
    }
    match failed.len() {
        0 => Ok(()),
        1 if all == 1 => {
            let (chosen, failure) = failed.remove(0);
            let told = format!("{} is not deployed", chosen.label);
            Err(match failure.code() {
                Code::TimedOut => Failure::TimedOut(told),
                Code::Refused => Failure::Refused(told),
                Code::Unreachable => {
                    Failure::Unanswered(format!("{} may be deployed, or not", chosen.label))
                }
                Code::Failed
                | Code::Usage
                | Code::NotFound
                | Code::NotAuthorised
                | Code::Interrupted => Failure::Failed(told),
            })
        }
        count => Err(Failure::Some { failed: count, all }),
    }
}

/// What goes on after Ctrl-C, and what can be done about it.
fn left_behind(going_on: &[Chosen], unknown: &[&Chosen]) -> String {
    let mut told = "stopped".to_owned();
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(|it| it.label.as_str()).collect();
        told = format!("{told}; it is not known whether {} is being deployed", names.join(","));
    }
    if !going_on.is_empty() {
        let names: Vec<&str> = going_on.iter().map(|it| it.label.as_str()).collect();
        let (are, them) = if names.len() == 1 { ("is", "it") } else { ("are", "them") };
        let names = names.join(",");
        told = format!(
            "{told}; {names} {are} being deployed all the same: `ferrite node wait {names} --for active` \
             waits for {them}, `ferrite undeploy {names}` gives {them} back"
        );
    }
    if going_on.is_empty() && unknown.is_empty() {
        told.push_str("; nothing goes on");
    }
    told
}

/// What the machine is told about the image.
fn instance_info(arguments: &DeployArguments) -> Result<Map<String, Value>, Failure> {
    let mut info = object(&arguments.instance_info)?;
    checks::image(&arguments.image)?;
    info.insert("image_source".to_owned(), json!(arguments.image));
    if let Some(checksum) = &arguments.checksum {
        info.extend(checks::checksum(checksum)?);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::*;
    use crate::test_server::{Answer, server};

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: DeployArguments,
    }

    /// An allocation that no conductor looks after.
    #[tokio::test]
    async fn picking_a_machine_does_not_outlast_the_time_to_wait() {
        let (desk, log) = server(|asked| match asked.line.split(' ').next() {
            Some("DELETE") => Answer::Json(204, Value::Null),
            _ => Answer::Json(200, json!({"state": "allocating"})),
        });
        let line = "deploy --image http://images/a --resource-class big --timeout 1s --url";
        let words = line.split(' ').map(str::to_owned).chain([desk.api.address()]);
        let arguments = Program::parse_from(words).arguments;
        let ended = tokio::time::timeout(Duration::from_secs(60), deploy(&arguments)).await;
        assert_eq!(ended.unwrap().unwrap_err().code(), Code::TimedOut);
        let last = log.lock().unwrap().last().cloned().unwrap();
        assert!(last.starts_with("DELETE /v1/allocations/"), "{last}");
    }

    /// What is left out of the list of all machines here is not asked for there.
    #[tokio::test]
    async fn machines_are_found_by_the_names_of_their_instances() {
        let (desk, log) = server(|asked| {
            let none = || Answer::Json(404, json!({"error_message": "there is none"}));
            let path = asked.line.trim_start_matches("GET /v1/").split('?').next();
            match path.and_then(|path| path.split_once('/')) {
                Some(("nodes", uuid)) if uuid.starts_with("uuid-") => {
                    Answer::Json(200, json!({"uuid": uuid, "name": uuid}))
                }
                Some(("nodes", "web-1")) => {
                    Answer::Json(200, json!({"uuid": "uuid-x", "name": "web-1"}))
                }
                Some(("allocations", name)) if name.starts_with("web-") => {
                    Answer::Json(200, json!({"node_uuid": format!("uuid-{name}")}))
                }
                Some(_) | None => none(),
            }
        });
        let names = ["web-2", "web-1", "uuid-web-2", "web-3"].map(str::to_owned);
        let chosen = deployed(&desk, &names).await.unwrap();
        let uuids: Vec<&str> = chosen.iter().map(|it| it.uuid.as_str()).collect();
        // A machine's own name comes before that of an instance, and nobody is meant twice.
        assert_eq!(uuids, ["uuid-web-2", "uuid-x", "uuid-web-3"]);
        let told = deployed(&desk, &["a", "b"].map(str::to_owned)).await.unwrap_err().to_string();
        assert_eq!(told, "there are no machines \"a\", \"b\"; nothing was done");
        assert!(log.lock().unwrap().iter().all(|line| !line.starts_with("GET /v1/nodes?")));
    }

    #[test]
    fn whoever_stops_is_told_what_goes_on() {
        let chosen = |name: &str| Chosen::of(json!({"uuid": "u", "name": name}));
        let (one, two) = (chosen("a"), chosen("b"));
        assert_eq!(left_behind(&[], &[]), "stopped; nothing goes on");
        assert_eq!(
            left_behind(std::slice::from_ref(&one), &[&two]),
            "stopped; it is not known whether b is being deployed; a is being deployed all the same: \
             `ferrite node wait a --for active` waits for it, `ferrite undeploy a` gives it back"
        );
        assert_eq!(
            left_behind(&[one, two], &[]),
            "stopped; a,b are being deployed all the same: `ferrite node wait a,b --for active` waits for \
             them, `ferrite undeploy a,b` gives them back"
        );
    }
}
