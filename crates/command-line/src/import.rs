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

use std::path::PathBuf;

use clap::Args;
use ironic_client::{Flags, Query, SettingsError};
use serde_json::{Value, json};

use crate::desk::{ConnectionArguments, Desk};
use crate::failure::Failure;
use crate::node::verbs::{Verb, provision};
use crate::output::{OutputArguments, name_of, parsed};
use crate::selection::{self, Chosen, Filters};
use crate::table::{Column, plain};
use crate::wait::{self, Patience};
use copy::{Fate, Plan, plan};

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
    let mut imports: Vec<Import> = nodes
        .iter()
        .map(|node| Import {
            plan: plan(node, &ports, &groups, &secrets),
            here: String::new(),
            note: String::new(),
            has_failed: false,
        })
        .collect();
    if arguments.dry_run {
        for import in &mut imports {
            import.here = import.plan.fate.words().to_owned();
        }
        return told(&here, arguments, &imports);
    }
    if names.is_empty() {
        copy::recipes(&there, &here).await?;
    }
    for import in &mut imports {
        if import.plan.fate == Fate::LeaveAlone {
            import.has_failed = true;
            import.note = format!("is {} there; import it when that has ended", import.plan.there);
            continue;
        }
        match import.plan.made(&here.api, &there.api.address()).await {
            Ok(state) => import.here = state,
            Err(failure) => import.fail(&failure),
        }
        if !import.has_failed && !import.plan.left_out.is_empty() {
            import.note = format!("not taken over: {}", import.plan.left_out.join(", "));
        }
    }
    let manage = |import: &Import| import.here == "enroll" && import.plan.fate != Fate::Enrol;
    advance(&here, &mut imports, Verb::Manage, &arguments.patience, manage).await;
    let adopt = |import: &Import| import.here == "manageable" && import.plan.fate == Fate::Adopt;
    advance(&here, &mut imports, Verb::Adopt, &arguments.patience, adopt).await;
    for import in imports.iter_mut().filter(|import| import.here == "active") {
        if let Err(failure) = import.plan.protect(&here.api).await {
            import.fail(&failure);
        }
    }
    // Only what works here is taken away there.
    let is_ready = |import: &&mut Import| !import.has_failed && import.plan.needs.is_empty();
    for import in imports.iter_mut().filter(|_| arguments.take_over).filter(is_ready) {
        let released = import.plan.release(&there.api, &here.api.address()).await;
        let lifted = match released {
            Ok(()) => import.plan.lift(&here.api).await,
            Err(failure) => Err(failure),
        };
        if let Err(failure) = lifted {
            import.fail(&failure);
        }
    }
    told(&here, arguments, &imports)
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
    patience: &Patience,
    is_due: impl Fn(&Import) -> bool,
) {
    let mut waiting = Vec::new();
    for import in imports.iter_mut() {
        if import.has_failed || !import.plan.needs.is_empty() || !is_due(import) {
            continue;
        }
        let chosen = Chosen::of(import.plan.node.clone());
        let body = json!({ "target": verb.target() });
        match provision(&here.api, &chosen, verb.target(), &body).await {
            Ok(()) => waiting.push((chosen, verb.goal())),
            Err(failure) => import.fail(&failure),
        }
    }
    for outcome in wait::wait_for(here, waiting, patience).await {
        let uuid = &outcome.chosen.uuid;
        let Some(import) = imports.iter_mut().find(|it| it.plan.node["uuid"] == uuid.as_str())
        else {
            continue;
        };
        match outcome.result {
            Ok(state) => import.here = state,
            Err(failure) => import.fail(&failure),
        }
    }
}

impl Import {
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

fn told(here: &Desk, arguments: &ImportArguments, imports: &[Import]) -> Result<(), Failure> {
    let rows: Vec<Value> = imports.iter().map(Import::row).collect();
    here.screen.print(&arguments.output.output.list(&rows, COLUMNS, here.screen));
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
