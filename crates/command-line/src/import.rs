// SPDX-License-Identifier: Apache-2.0
//! `ferrite import`: imports nodes from another Ironic.
//!
//! Resources keep their UUIDs, so a repeated run continues where it stopped. The machines are not touched:
//! those with an instance are adopted, the others end in `manageable`, because making them available would
//! clean them. Two servers that manage the power of one machine would conflict, so imported nodes are in
//! maintenance until the source is known to leave them alone. APIs mask secrets; those have to be given in
//! a file.

mod plan;
mod secrets;

use std::collections::HashMap;
use std::path::PathBuf;

use clap::Args;
use ironic_client::{QueryString, TargetError, TargetFlags};
use serde_json::{Value, json};

use crate::cli_error::CliError;
use crate::context::{CliContext, ConnectionArguments};
use crate::interrupts::Interrupts;
use crate::node::verbs::{Verb, request_provision_state};
use crate::output::{OutputArguments, display_name, parse_json_or_yaml};
use crate::selection::{self, NodeFilters, SelectedNode};
use crate::table::{OutputColumn, value_cell};
use crate::wait::{self, TimeoutArguments, WaitDeadline};
use plan::{ImportPlan, ImportTarget, ResourcesByNode, plan_import};

const COLUMNS: &[OutputColumn] = &[
    OutputColumn::new("NODE", |row| value_cell(&row["node"])),
    OutputColumn::new("THERE", |row| value_cell(&row["there"])),
    OutputColumn::new("HERE", |row| value_cell(&row["here"])),
    OutputColumn::new("PORTS", |row| value_cell(&row["ports"])),
    OutputColumn::new("NEEDS", |row| value_cell(&row["needs"])),
    OutputColumn::new("NOTE", |row| value_cell(&row["note"])),
];

/// Options of `ferrite import`.
#[derive(Args, Debug)]
pub struct ImportArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// The source Ironic: a URL, a cloud in clouds.yaml or a profile.
    #[arg(long, value_name = "CLOUD|URL")]
    from: String,
    /// Import only these machines: names, UUIDs or noderanges.
    #[arg(value_name = "NODES")]
    nodes: Vec<String>,
    /// A YAML or JSON file of secrets: machine → driver_info key → value. The machine "*" stands for all.
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
    /// Put the machines into maintenance at the source and end their maintenance here.
    #[arg(long, conflicts_with = "dry_run")]
    take_over: bool,
    /// Show only what would be imported.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    timeout: TimeoutArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// A node and the progress of its import.
struct NodeImport {
    plan: ImportPlan,
    state: String,
    note: String,
    has_failed: bool,
}

pub(crate) async fn run(arguments: &ImportArguments) -> Result<(), CliError> {
    let destination = arguments.connection.context()?;
    let source = connect_source(&arguments.from)?;
    let secrets = match &arguments.secrets {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| CliError::Unreadable { path: path.clone(), source })?;
            parse_json_or_yaml(&text, &path.display().to_string())?
        }
        None => json!({}),
    };
    let names = selection::expand_names(&arguments.nodes)?;
    let nodes = selection::find_nodes(&source.api, &names, &NodeFilters::default(), None).await?;
    check_different_servers(&source, &destination, &nodes).await?;
    check_secrets(&source, &secrets, &nodes, names.is_empty()).await?;
    let ports = source.api.list("/v1/ports", "ports", &detail()).await?;
    let groups = source.api.list("/v1/portgroups", "portgroups", &detail()).await?;
    let (ports, groups) = (ResourcesByNode::group(&ports), ResourcesByNode::group(&groups));
    let import = |node| NodeImport::new(plan_import(node, &ports, &groups, &secrets));
    let mut imports: Vec<NodeImport> = nodes.iter().map(import).collect();
    if arguments.dry_run {
        for import in &mut imports {
            import.state = import.plan.target.state().to_owned();
        }
        return report(&destination, arguments, &imports, false);
    }
    if names.is_empty() {
        plan::import_templates(&source, &destination).await?;
    }
    let mut interrupts = Interrupts::listen()?;
    carry_out(&destination, &source, arguments, &mut imports, &mut interrupts).await;
    report(&destination, arguments, &imports, interrupts.is_interrupted())
}

/// Imports the nodes. After Ctrl-C the current node is completed and no other is started.
async fn carry_out(
    destination: &CliContext,
    source: &CliContext,
    arguments: &ImportArguments,
    imports: &mut [NodeImport],
    interrupts: &mut Interrupts,
) {
    for import in &mut *imports {
        if interrupts.is_interrupted() {
            return;
        }
        if import.plan.target == ImportTarget::Skip {
            import.has_failed = true;
            import.note = format!("is {} at the source; import it later", import.plan.source_state);
            continue;
        }
        let address = source.api.address();
        match interrupts.run_to_completion(import.plan.create(&destination.api, &address)).await {
            Some(Ok(state)) => import.state = state,
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&interrupted()),
        }
        if !import.has_failed && !import.plan.skipped_fields.is_empty() {
            import.note = format!("not imported: {}", import.plan.skipped_fields.join(", "));
        }
    }
    let deadline = arguments.timeout.deadline();
    let manage =
        |import: &NodeImport| import.state == "enroll" && import.plan.target != ImportTarget::Enrol;
    advance(destination, imports, Verb::Manage, deadline, interrupts, manage).await;
    let adopt = |import: &NodeImport| {
        import.state == "manageable" && import.plan.target == ImportTarget::Adopt
    };
    advance(destination, imports, Verb::Adopt, deadline, interrupts, adopt).await;
    for import in imports.iter_mut().filter(|import| import.state == "active") {
        if interrupts.is_interrupted() {
            return;
        }
        match interrupts.run_to_completion(import.plan.protect(&destination.api)).await {
            Some(Ok(())) => {}
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&interrupted()),
        }
    }
    // Only nodes that work here are put into maintenance at the source.
    let is_ready =
        |import: &&mut NodeImport| !import.has_failed && import.plan.missing_secrets.is_empty();
    for import in imports.iter_mut().filter(|_| arguments.take_over).filter(is_ready) {
        if interrupts.is_interrupted() {
            return;
        }
        let moving = async {
            import.plan.set_source_maintenance(&source.api, &destination.api.address()).await?;
            import.plan.clear_import_maintenance(&destination.api).await
        };
        match interrupts.run_to_completion(moving).await {
            Some(Ok(())) => {}
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&interrupted()),
        }
    }
}

/// Fails if source and destination are the same server.
async fn check_different_servers(
    source: &CliContext,
    destination: &CliContext,
    nodes: &[Value],
) -> Result<(), CliError> {
    // The addresses are not compared if both come from Keystone catalogues.
    let address = source.api.address();
    let mut is_one = address == destination.api.address() && address.starts_with("http");
    if let Some(node) = nodes.first().filter(|_| !is_one) {
        let path = SelectedNode::new(node.clone()).path();
        is_one = destination
            .api
            .find(&path)
            .await?
            .is_some_and(|known| plan::is_same_record(node, &known));
    }
    match is_one {
        false => Ok(()),
        true => Err(CliError::Usage(format!(
            "{} is also the destination; select another one with --url, --profile or --cloud",
            source.api.address()
        ))),
    }
}

async fn check_secrets(
    source: &CliContext,
    secrets: &Value,
    nodes: &[Value],
    are_all: bool,
) -> Result<(), CliError> {
    if secrets.as_object().is_some_and(serde_json::Map::is_empty) {
        return Ok(());
    }
    let listed;
    let all = match are_all {
        true => nodes,
        false => {
            let query = QueryString::new().with("fields", "uuid,name");
            listed = source.api.list("/v1/nodes", "nodes", &query).await?;
            &listed
        }
    };
    let names = all.iter().flat_map(|node| [node["uuid"].as_str(), node["name"].as_str()]);
    let names = names.flatten().map(str::to_owned).collect();
    secrets::check(secrets, nodes, &names, are_all)
}

/// Requests a verb for the nodes that are due, and waits for them.
async fn advance(
    destination: &CliContext,
    imports: &mut [NodeImport],
    verb: Verb,
    deadline: WaitDeadline,
    interrupts: &mut Interrupts,
    is_due: impl Fn(&NodeImport) -> bool,
) {
    let (mut goals, mut indices) = (Vec::new(), HashMap::new());
    for (index, import) in imports.iter_mut().enumerate() {
        if import.has_failed || !import.plan.missing_secrets.is_empty() || !is_due(import) {
            continue;
        }
        if interrupts.is_interrupted() {
            break;
        }
        let selected = SelectedNode::new(import.plan.node.clone());
        let body = json!({ "target": verb.target() });
        let request = request_provision_state(&destination.api, &selected, verb.target(), &body);
        match interrupts.run_to_completion(request).await {
            Some(Ok(())) => {
                indices.insert(selected.uuid.clone(), index);
                goals.push((selected, verb.goal()));
            }
            Some(Err(failure)) => import.fail(&failure),
            None => import.fail(&interrupted()),
        }
    }
    if interrupts.is_interrupted() {
        for index in indices.into_values() {
            imports[index].note = format!("{} requested", verb.name());
        }
        return;
    }
    for outcome in wait::wait_for(destination, goals, deadline).await {
        let Some(index) = indices.get(&outcome.selected.uuid) else { continue };
        let import = &mut imports[*index];
        match outcome.result {
            Ok(state) => import.state = state,
            Err(failure) => import.fail(&failure),
        }
    }
}

/// The error after a second Ctrl-C.
fn interrupted() -> CliError {
    CliError::Interrupted("interrupted by Ctrl-C; run the same command again".to_owned())
}

impl NodeImport {
    fn new(plan: ImportPlan) -> Self {
        Self { plan, state: String::new(), note: String::new(), has_failed: false }
    }

    fn fail(&mut self, failure: &CliError) {
        self.has_failed = true;
        self.note = failure.message();
    }

    fn row(&self) -> Value {
        json!({
            "node": display_name(&self.plan.node),
            "uuid": self.plan.node["uuid"],
            "there": self.plan.source_state,
            "here": self.state,
            "ports": self.plan.ports.len(),
            "needs": self.plan.missing_secrets,
            "note": self.note,
        })
    }
}

fn report(
    destination: &CliContext,
    arguments: &ImportArguments,
    imports: &[NodeImport],
    is_stopped: bool,
) -> Result<(), CliError> {
    let rows: Vec<Value> = imports.iter().map(NodeImport::row).collect();
    destination.screen.print(&arguments.output.output.format_list(
        &rows,
        COLUMNS,
        destination.screen,
    ));
    if is_stopped {
        let message = "stopped; run the same command again to continue";
        return Err(CliError::Interrupted(message.to_owned()));
    }
    let incomplete = imports.iter().filter(|it| !it.plan.missing_secrets.is_empty()).count();
    if incomplete > 0 {
        destination.screen.note(&format!(
            "{incomplete} of {} machines need secrets, which APIs mask. Write them to a file, such as\n\
             \x20 \"*\": {{redfish_password: …}}\nand run the same command again with --secrets FILE",
            imports.len()
        ));
    }
    let is_shared = imports.iter().any(|import| !import.plan.is_in_maintenance_at_source);
    if !arguments.dry_run && !arguments.take_over && is_shared {
        destination.screen.note(
            "the machines are in maintenance destination, because the source still manages them. Put them into \
             maintenance at the source or stop it, then run `ferrite node maintenance off` destination; or run the \
             same command again with --take-over, which does both",
        );
    }
    let failed =
        imports.iter().filter(|it| it.has_failed || !it.plan.missing_secrets.is_empty()).count();
    if failed > 0 && !arguments.dry_run {
        return Err(CliError::SomeFailed { failed, total: imports.len() });
    }
    Ok(())
}

/// Connects to the source.
fn connect_source(from: &str) -> Result<CliContext, CliError> {
    let (url, cloud, profile) = match from.contains("://") {
        true => (Some(from.to_owned()), None, None),
        false => (None, Some(from.to_owned()), Some(from.to_owned())),
    };
    if url.is_some() {
        return CliContext::connect(&TargetFlags { url, ..TargetFlags::default() });
    }
    match CliContext::connect(&TargetFlags { cloud, ..TargetFlags::default() }) {
        Err(CliError::Target(TargetError::UnknownName { .. })) => {
            CliContext::connect(&TargetFlags { profile, ..TargetFlags::default() }).map_err(|_| {
                CliError::Usage(format!(
                    "{from:?} is neither a URL nor a cloud in clouds.yaml nor a profile"
                ))
            })
        }
        found => found,
    }
}

fn detail() -> QueryString {
    QueryString::new().with("detail", "true")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{TestResponse, start_server, unreachable_server};

    #[derive(Parser)]
    struct ImportParser {
        #[command(flatten)]
        arguments: ImportArguments,
    }

    /// Ctrl-C arrives while the first of two nodes is created.
    #[tokio::test]
    async fn ctrl_c_completes_the_current_node() {
        let (press, presses) = tokio::sync::mpsc::unbounded_channel();
        let (destination, log) = start_server(move |request| match &*request.line {
            "POST /v1/nodes" => {
                press.send(()).unwrap();
                TestResponse::Json(201, request.body.clone())
            }
            line if line.starts_with("GET") => {
                TestResponse::Json(404, json!({"error_message": "none"}))
            }
            _ => TestResponse::Json(201, json!({})),
        });
        let nodes = ["u1", "u2"].map(|uuid| json!({"uuid": uuid, "provision_state": "manageable"}));
        let ports =
            ["u1", "u2"].map(|uuid| json!({"uuid": format!("p-{uuid}"), "node_uuid": uuid}));
        let (ports, groups) = (ResourcesByNode::group(&ports), ResourcesByNode::group(&[]));
        let import = |node| NodeImport::new(plan_import(node, &ports, &groups, &json!({})));
        let mut imports: Vec<NodeImport> = nodes.iter().map(import).collect();
        let arguments = ImportParser::parse_from(["import", "--from", "http://old"]).arguments;
        let mut interrupts = Interrupts::from_channel(presses);
        carry_out(&destination, &unreachable_server(), &arguments, &mut imports, &mut interrupts)
            .await;
        let log = log.lock().unwrap();
        let changes: Vec<&str> =
            log.iter().map(String::as_str).filter(|line| !line.starts_with("GET")).collect();
        assert_eq!(changes, ["POST /v1/nodes", "PUT /v1/nodes/u1/maintenance", "POST /v1/ports"]);
        let ended = report(&destination, &arguments, &imports, interrupts.is_interrupted());
        assert_eq!(ended.unwrap_err().exit_code(), CliExitCode::Interrupted);
    }
}
