// SPDX-License-Identifier: Apache-2.0
//! `ferrite import`: takes over the machines of another Ironic.
//!
//! Things keep their UUIDs, so running it again goes on where it stopped. Nothing is done to the machines:
//! those in use are adopted, the others end `manageable`, because making them available would clean them.
//! Two servers that keep the power of one machine fight over it: machines come in maintenance, until the
//! other server is known to leave them alone.
//! APIs do not give secrets away: what is masked has to be given in a file.

mod copy;
mod secrets;

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use ironic_client::{Flags, Query, SettingsError};
use serde_json::{Value, json};

use crate::desk::{ConnectionArguments, Desk};
use crate::failure::Failure;
use crate::interrupts::Interrupts;
use crate::node::verbs::{Verb, provision};
use crate::output::{OutputArguments, name_of, parsed};
use crate::selection::{self, Chosen, Filters};
use crate::table::{Column, plain};
use crate::wait::{self, Deadline, Patience};
use copy::{Belongings, Fate, Plan, plan};

const COLUMNS: &[Column] = &[
    Column::new("NODE", |row| plain(&row["node"])),
    Column::new("THERE", |row| plain(&row["there"])),
    Column::new("HERE", |row| plain(&row["here"])),
    Column::new("PORTS", |row| plain(&row["ports"])),
    Column::new("NEEDS", |row| plain(&row["needs"])),
    Column::new("NOTE", |row| plain(&row["note"])),
];

/// Options of `ferrite import`.
#[derive(Args, Debug)]
pub struct ImportArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// The Ironic to take machines from: a URL, a cloud of clouds.yaml or a profile.
    #[arg(long, value_name = "CLOUD|URL")]
    from: String,
    /// Only these machines: names, UUIDs or noderanges. All if none is given.
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    /// A YAML or JSON file of secrets: machine → key of driver_info → value. The machine "*" stands for all.
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// Put the machines into maintenance over there, so that this server looks after them from now on.
    #[arg(long, conflicts_with = "dry_run")]
    take_over: bool,
    /// Only show what would be done.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    output: OutputArguments,
}

/// A machine and what became of it.
struct Import {
    plan: Plan,
    here: String,
    note: String,
    has_failed: bool,
}

pub(crate) async fn run(arguments: &ImportArguments) -> Result<(), Failure> {
    let here = arguments.connection.desk()?;
    let there = source(&arguments.from)?;
    let secrets = match &arguments.secrets {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
            parsed(&text, &path.display().to_string())?
        }
        None => json!({}),
    };
    let names = selection::names(&arguments.nodes)?;
    let nodes = selection::rows(&there.api, &names, &Filters::default(), None).await?;
    check_apart(&there, &here, &nodes).await?;
    check_secrets(&there, &secrets, &nodes, names.is_empty()).await?;
    let ports = there.api.list("/v1/ports", "ports", &detail()).await?;
    let groups = there.api.list("/v1/portgroups", "portgroups", &detail()).await?;
    let (ports, groups) = (Belongings::of(&ports), Belongings::of(&groups));
    let import = |node| Import::of(plan(node, &ports, &groups, &secrets));
    let mut imports: Vec<Import> = nodes.iter().map(import).collect();
    if arguments.dry_run {
        for import in &mut imports {
            import.here = import.plan.fate.words().to_owned();
        }
        return told(&here, arguments, &imports, false);
    }
    if names.is_empty() {
        copy::recipes(&there, &here).await?;
    }
    let mut interrupts = Interrupts::listen()?;
    carry_out(&here, &there, arguments, &mut imports, &mut interrupts).await;
    told(&here, arguments, &imports, interrupts.is_pressed())
}

/// Takes the machines over. After Ctrl-C the machine at hand is done with, and no other begun.
async fn carry_out(
    here: &Desk,
    there: &Desk,
    arguments: &ImportArguments,
    imports: &mut [Import],
    interrupts: &mut Interrupts,
) {
    for import in &mut *imports {
        if interrupts.is_pressed() {
            return;
        }
        if import.plan.fate == Fate::LeaveAlone {
            import.has_failed = true;
            import.note = format!("is {} there; import it when that has ended", import.plan.there);
            continue;
        }
        let address = there.api.address();
        match interrupts.finished(import.plan.made(&here.api, &address)).await {
            Some(Ok(state)) => import.here = state,
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&unfinished()),
        }
        if !import.has_failed && !import.plan.left_out.is_empty() {
            import.note = format!("not taken over: {}", import.plan.left_out.join(", "));
        }
    }
    let deadline = arguments.patience.deadline();
    let manage = |import: &Import| import.here == "enroll" && import.plan.fate != Fate::Enrol;
    advance(here, imports, Verb::Manage, deadline, interrupts, manage).await;
    let adopt = |import: &Import| import.here == "manageable" && import.plan.fate == Fate::Adopt;
    advance(here, imports, Verb::Adopt, deadline, interrupts, adopt).await;
    for import in imports.iter_mut().filter(|import| import.here == "active") {
        if interrupts.is_pressed() {
            return;
        }
        match interrupts.finished(import.plan.protect(&here.api)).await {
            Some(Ok(())) => {}
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&unfinished()),
        }
    }
    // Only what works here is taken away there.
    let is_ready = |import: &&mut Import| !import.has_failed && import.plan.needs.is_empty();
    for import in imports.iter_mut().filter(|_| arguments.take_over).filter(is_ready) {
        if interrupts.is_pressed() {
            return;
        }
        let moving = async {
            import.plan.release(&there.api, &here.api.address()).await?;
            import.plan.lift(&here.api).await
        };
        match interrupts.finished(moving).await {
            Some(Ok(())) => {}
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&unfinished()),
        }
    }
}

/// There must be two servers.
async fn check_apart(there: &Desk, here: &Desk, nodes: &[Value]) -> Result<(), Failure> {
    // One Keystone can know several.
    let address = there.api.address();
    let mut is_one = address == here.api.address() && address.starts_with("http");
    if let Some(node) = nodes.first().filter(|_| !is_one) {
        let path = Chosen::of(node.clone()).path();
        is_one = here.api.find(&path).await?.is_some_and(|known| copy::is_same(node, &known));
    }
    match is_one {
        false => Ok(()),
        true => Err(Failure::Usage(format!(
            "{} is the server to import into, too: --url, --profile or --cloud say which that is",
            there.api.address()
        ))),
    }
}

async fn check_secrets(
    there: &Desk,
    secrets: &Value,
    nodes: &[Value],
    are_all: bool,
) -> Result<(), Failure> {
    if secrets.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(());
    }
    let listed;
    let all = match are_all {
        true => nodes,
        false => {
            let query = Query::new().with("fields", "uuid,name");
            listed = there.api.list("/v1/nodes", "nodes", &query).await?;
            &listed
        }
    };
    let names = all.iter().flat_map(|node| [node["uuid"].as_str(), node["name"].as_str()]);
    let names = names.flatten().map(str::to_owned).collect();
    secrets::check(secrets, nodes, &names, are_all)
}

/// Asks the machines that are due for a verb, and waits for them.
async fn advance(
    here: &Desk,
    imports: &mut [Import],
    verb: Verb,
    deadline: Deadline,
    interrupts: &mut Interrupts,
    is_due: impl Fn(&Import) -> bool,
) {
    let (mut waiting, mut places) = (Vec::new(), HashMap::new());
    for (place, import) in imports.iter_mut().enumerate() {
        if import.has_failed || !import.plan.needs.is_empty() || !is_due(import) {
            continue;
        }
        if interrupts.is_pressed() {
            break;
        }
        let chosen = Chosen::of(import.plan.node.clone());
        let body = json!({ "target": verb.target() });
        let asking = provision(&here.api, &chosen, verb.target(), &body);
        match interrupts.finished(asking).await {
            Some(Ok(())) => {
                places.insert(chosen.uuid.clone(), place);
                waiting.push((chosen, verb.goal()));
            }
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&unfinished()),
        }
    }
    if interrupts.is_pressed() {
        for place in places.into_values() {
            imports[place].note = format!("was asked to {}", verb.word());
        }
        return;
    }
    for outcome in wait::wait_for(here, waiting, deadline).await {
        let Some(place) = places.get(&outcome.chosen.uuid) else { continue };
        let import = &mut imports[*place];
        match outcome.result {
            Ok(state) => import.here = state,
            Err(failure) => import.fail(&failure),
        }
    }
}

/// What is said of a machine that somebody did not wait for.
fn unfinished() -> Failure {
    Failure::Interrupted("stopped by Ctrl-C in the middle of it".to_owned())
}

impl Import {
    fn of(plan: Plan) -> Self {
        Self { plan, here: String::new(), note: String::new(), has_failed: false }
    }

    fn fail(&mut self, failure: &Failure) {
        self.has_failed = true;
        self.note = failure.told();
    }

    fn row(&self) -> Value {
        json!({
            "node": name_of(&self.plan.node),
            "uuid": self.plan.node["uuid"],
            "there": self.plan.there,
            "here": self.here,
            "ports": self.plan.ports.len(),
            "needs": self.plan.needs,
            "note": self.note,
        })
    }
}

fn told(
    here: &Desk,
    arguments: &ImportArguments,
    imports: &[Import],
    is_stopped: bool,
) -> Result<(), Failure> {
    let rows: Vec<Value> = imports.iter().map(Import::row).collect();
    here.screen.print(&arguments.output.output.list(&rows, COLUMNS, here.screen));
    if is_stopped {
        let told = "stopped; running the same again goes on from here";
        return Err(Failure::Interrupted(told.to_owned()));
    }
    let needy = imports.iter().filter(|import| !import.plan.needs.is_empty()).count();
    if needy > 0 {
        here.screen.note(&format!(
            "secrets are missing for {needy} of {}: APIs do not give them away. Write them to a file, such as\n\
             \x20 \"*\": {{redfish_password: …}}\nand run the same again with --secrets FILE",
            imports.len()
        ));
    }
    let is_shared = imports.iter().any(|import| !import.plan.is_let_go);
    if !arguments.dry_run && !arguments.take_over && is_shared {
        here.screen.note(
            "the machines are in maintenance here, for the other server looks after them, too. Put them into \
             maintenance there or stop it, then `ferrite node maintenance off` here; or run the same again \
             with --take-over, which does both",
        );
    }
    let failed = imports.iter().filter(|it| it.has_failed || !it.plan.needs.is_empty()).count();
    if failed > 0 && !arguments.dry_run {
        return Err(Failure::Some { failed, all: imports.len() });
    }
    Ok(())
}

/// The desk of the API that machines are taken from.
fn source(from: &str) -> Result<Desk, Failure> {
    let (url, cloud, profile) = match from.contains("://") {
        true => (Some(from.to_owned()), None, None),
        false => (None, Some(from.to_owned()), Some(from.to_owned())),
    };
    if url.is_some() {
        return Desk::at(&Flags { url, ..Flags::default() });
    }
    match Desk::at(&Flags { cloud, ..Flags::default() }) {
        Err(Failure::Settings(SettingsError::Unknown { .. })) => {
            Desk::at(&Flags { profile, ..Flags::default() }).map_err(|_| {
                Failure::Usage(format!(
                    "{from:?} is no URL, no cloud of clouds.yaml and no profile"
                ))
            })
        }
        found => found,
    }
}

fn detail() -> Query {
    Query::new().with("detail", "true")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::failure::Code;
    use crate::test_server::{Answer, nobody, server};

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: ImportArguments,
    }

    /// Ctrl-C while the first of two machines is made.
    #[tokio::test]
    async fn ctrl_c_finishes_the_machine_at_hand_and_begins_no_other() {
        let (press, presses) = tokio::sync::mpsc::unbounded_channel();
        let (here, log) = server(move |asked| match &*asked.line {
            "POST /v1/nodes" => {
                press.send(()).unwrap();
                Answer::Json(201, asked.body.clone())
            }
            line if line.starts_with("GET") => Answer::Json(404, json!({"error_message": "none"})),
            _ => Answer::Json(201, json!({})),
        });
        let nodes = ["u1", "u2"].map(|uuid| json!({"uuid": uuid, "provision_state": "manageable"}));
        let ports =
            ["u1", "u2"].map(|uuid| json!({"uuid": format!("p-{uuid}"), "node_uuid": uuid}));
        let (ports, groups) = (Belongings::of(&ports), Belongings::of(&[]));
        let import = |node| Import::of(plan(node, &ports, &groups, &json!({})));
        let mut imports: Vec<Import> = nodes.iter().map(import).collect();
        let arguments = Program::parse_from(["import", "--from", "http://old"]).arguments;
        let mut interrupts = Interrupts::told(presses);
        carry_out(&here, &nobody(), &arguments, &mut imports, &mut interrupts).await;
        let log = log.lock().unwrap();
        let changes: Vec<&str> =
            log.iter().map(String::as_str).filter(|line| !line.starts_with("GET")).collect();
        assert_eq!(changes, ["POST /v1/nodes", "PUT /v1/nodes/u1/maintenance", "POST /v1/ports"]);
        let ended = told(&here, &arguments, &imports, interrupts.is_pressed());
        assert_eq!(ended.unwrap_err().code(), Code::Interrupted);
    }
}
