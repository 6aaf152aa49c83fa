// SPDX-License-Identifier: Apache-2.0
//! `ferrite deployment`: deployments that the server carries out (Ferrite only).

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ironic_client::{Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::assignments::{Assignment, to_object};
use crate::cli_error::CliError;
use crate::config_drive::ConfigDriveArguments;
use crate::context::CliContext;
use crate::node::queries::require_ferrite;
use crate::output::{OutputArguments, take_rows};
use crate::resource_actions::{ResourceListArguments, ResourceShowArguments};
use crate::resource_types::DEPLOYMENTS;
use crate::resources::ResourceArguments;
use crate::selection;
use crate::wait::{self, TimeoutArguments};
use crate::watch;

/// The time between two queries for the state of a deployment.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Commands for deployments.
#[derive(Subcommand, Debug)]
pub enum DeploymentCommand {
    /// Request a machine with an image on it.
    Create(Box<DeploymentCreateArguments>),
    /// List deployments.
    #[command(visible_alias = "ls")]
    List(DeploymentListArguments),
    /// Show all fields.
    Show(ResourceShowArguments),
    /// Extend or change the lease.
    Extend(DeploymentExtendArguments),
    /// Remove the instances and release the machines.
    #[command(visible_alias = "rm")]
    Delete(DeploymentDeleteArguments),
}

/// Options of `ferrite deployment create`.
#[derive(Args, Debug)]
pub struct DeploymentCreateArguments {
    /// Name of the deployment and host name of the instance.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// URL of the image: http://, https://, file:// or oci://.
    #[arg(long, value_name = "URL")]
    image: String,
    /// SHA-256 or SHA-512 of the image, or the URL of a checksum file.
    #[arg(long, value_name = "SUM")]
    checksum: Option<String>,
    /// The flavour of the machine.
    #[arg(long, value_name = "NAME")]
    flavour: Option<String>,
    /// The resource class of the machine.
    #[arg(long, value_name = "CLASS")]
    resource_class: Option<String>,
    /// Traits the machine must have.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// The project that must own the machine.
    #[arg(long, value_name = "PROJECT")]
    owner: Option<String>,
    /// Machines to choose from: names, UUIDs or noderanges.
    #[arg(long = "node", value_name = "NODES")]
    nodes: Vec<String>,
    /// The project of the deployment; only operators can choose one.
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    #[command(flatten)]
    drive: ConfigDriveArguments,
    /// Additional instance_info: kernel=http://…, capabilities.boot_mode=uefi.
    #[arg(long, value_name = "KEY=VALUE")]
    instance_info: Vec<Assignment>,
    /// How long the machine is needed, such as 12h or 30d. By default there is no limit.
    #[arg(long, value_name = "DURATION", value_parser = wait::parse_duration)]
    lease: Option<Duration>,
    #[command(flatten)]
    lease_end: LeaseEndArguments,
    /// Do not wait until the machine is deployed.
    #[arg(long, help_heading = wait::HEADING)]
    no_wait: bool,
    #[command(flatten)]
    timeout: TimeoutArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options for the end of a lease.
#[derive(Args, Debug)]
pub(crate) struct LeaseEndArguments {
    /// How long before the end of the lease to warn.
    #[arg(long, value_name = "DURATION", value_parser = wait::parse_duration)]
    warn_before: Option<Duration>,
    /// What happens at the end of the lease.
    #[arg(long, value_enum, value_name = "ACTION")]
    at_end: Option<LeaseEndOption>,
}

/// What happens at the end of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LeaseEndOption {
    /// The instance is removed and the machine released.
    Undeploy,
    /// Only the log and the journal mention it.
    Notify,
}

/// Options of `ferrite deployment list`.
#[derive(Args, Debug)]
pub struct DeploymentListArguments {
    /// Only those of this project.
    #[arg(long, value_name = "PROJECT")]
    project: Option<String>,
    /// Only those that this user requested.
    #[arg(long = "by", value_name = "USER")]
    by: Option<String>,
    /// Only those in this state.
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    #[command(flatten)]
    list: ResourceListArguments,
}

/// Options of `ferrite deployment extend`.
#[derive(Args, Debug)]
pub struct DeploymentExtendArguments {
    /// Name or UUID.
    #[arg(value_name = "DEPLOYMENT")]
    name: String,
    /// Add this time to the lease, such as 7d.
    #[arg(value_name = "DURATION", value_parser = wait::parse_duration,
          conflicts_with_all = ["lease", "unlimited"])]
    extend_by: Option<Duration>,
    /// Let the lease end so long from now.
    #[arg(long, value_name = "DURATION", value_parser = wait::parse_duration,
          conflicts_with = "unlimited")]
    lease: Option<Duration>,
    /// Remove the end of the lease.
    #[arg(long)]
    unlimited: bool,
    #[command(flatten)]
    lease_end: LeaseEndArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite deployment delete`.
#[derive(Args, Debug)]
pub struct DeploymentDeleteArguments {
    /// Names or UUIDs.
    #[arg(value_name = "DEPLOYMENTS", required = true)]
    names: Vec<String>,
}

pub(crate) async fn run(arguments: &ResourceArguments<DeploymentCommand>) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        DeploymentCommand::Create(arguments) => create(&context, arguments).await,
        DeploymentCommand::List(arguments) => list(&context, arguments).await,
        DeploymentCommand::Show(arguments) => DEPLOYMENTS.show(&context, arguments).await,
        DeploymentCommand::Extend(arguments) => extend(&context, arguments).await,
        DeploymentCommand::Delete(arguments) => {
            for name in &arguments.names {
                DEPLOYMENTS.fetch(&context, name).await?;
                context.api.send(Method::DELETE, &path_of(name), None).await?;
                context.screen.print(&format!("{name}: removal requested"));
            }
            Ok(())
        }
    }
}

async fn list(context: &CliContext, arguments: &DeploymentListArguments) -> Result<(), CliError> {
    let mut query = QueryString::new();
    for (name, value) in
        [("project", &arguments.project), ("user", &arguments.by), ("state", &arguments.state)]
    {
        if let Some(value) = value {
            query.add(name, value);
        }
    }
    let path = query.append_to(DEPLOYMENTS.path);
    let rows = async || {
        let found = context.api.find(&path).await?;
        Ok(take_rows(require_ferrite(found, "list deployments")?, DEPLOYMENTS.list_key))
    };
    let ResourceListArguments { output, watch } = &arguments.list;
    watch::show_list(context, watch, output.output, DEPLOYMENTS.columns, rows).await
}

async fn create(
    context: &CliContext,
    arguments: &DeploymentCreateArguments,
) -> Result<(), CliError> {
    let body = create_body(arguments)?;
    let uuid = body["uuid"].as_str().unwrap_or_default().to_owned();
    let deadline = arguments.timeout.deadline();
    let created = match context.api.send(Method::POST, DEPLOYMENTS.path, Some(&body)).await {
        Ok(created) => created,
        // The client chose the UUID: the server either has the deployment or not.
        Err(error) if error.may_have_been_executed() => {
            match context.api.find(&path_of(&uuid)).await? {
                Some(found) => found,
                None => context.api.send(Method::POST, DEPLOYMENTS.path, Some(&body)).await?,
            }
        }
        Err(error) => return Err(DEPLOYMENTS.ferrite_only_error(error)),
    };
    let label = created["name"].as_str().unwrap_or(&uuid).to_owned();
    let ended = if arguments.no_wait {
        created
    } else {
        context.screen.note(&format!("{label}: requested; waiting until it is active"));
        tokio::select! {
            ended = wait_until_settled(context, &uuid) => ended?,
            () = deadline.passed() => {
                return Err(CliError::TimedOut(format!(
                    "{label} is not active yet; `ferrite deployment show {label}` shows its state"
                )));
            }
        }
    };
    context.screen.print(&arguments.output.output.format_single(&ended, context.screen));
    match ended["state"].as_str() {
        Some("failed") => {
            let why = ended["last_error"].as_str().unwrap_or("the server gives no reason");
            Err(CliError::Failed(format!(
                "{label} failed: {why}; `ferrite deployment delete {label}` releases what it holds"
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// Waits until a deployment is active or has failed.
async fn wait_until_settled(context: &CliContext, uuid: &str) -> Result<Value, CliError> {
    loop {
        let Some(found) = context.api.find(&path_of(uuid)).await? else {
            return Err(CliError::Failed("the deployment was removed".to_owned()));
        };
        if matches!(found["state"].as_str(), Some("active" | "failed")) {
            return Ok(found);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

fn create_body(arguments: &DeploymentCreateArguments) -> Result<Value, CliError> {
    if arguments.flavour.is_none()
        && arguments.resource_class.is_none()
        && arguments.nodes.is_empty()
    {
        let message = "give --flavour, --resource-class or --node, so that a machine can be chosen";
        return Err(CliError::Usage(message.to_owned()));
    }
    let mut body = arguments.drive.read()?.into_deployment_fields();
    body.insert("uuid".to_owned(), json!(Uuid::new_v4().to_string()));
    body.insert("image".to_owned(), json!(arguments.image));
    for (field, text) in [
        ("name", &arguments.name),
        ("checksum", &arguments.checksum),
        ("flavour", &arguments.flavour),
        ("resource_class", &arguments.resource_class),
        ("owner", &arguments.owner),
        ("project", &arguments.project),
    ] {
        if let Some(text) = text {
            body.insert(field.to_owned(), json!(text));
        }
    }
    if !arguments.traits.is_empty() {
        body.insert("traits".to_owned(), json!(arguments.traits));
    }
    if !arguments.nodes.is_empty() {
        body.insert("nodes".to_owned(), json!(selection::expand_names(&arguments.nodes)?));
    }
    let info = to_object(&arguments.instance_info)?;
    if !info.is_empty() {
        body.insert("instance_info".to_owned(), Value::Object(info));
    }
    let mut lease = arguments.lease_end.fields();
    match arguments.lease {
        Some(duration) => {
            lease.insert("duration".to_owned(), json!(duration.as_secs()));
            body.insert("lease".to_owned(), Value::Object(lease));
        }
        None if !lease.is_empty() => {
            let message = "--warn-before and --at-end need --lease";
            return Err(CliError::Usage(message.to_owned()));
        }
        None => {}
    }
    Ok(Value::Object(body))
}

async fn extend(
    context: &CliContext,
    arguments: &DeploymentExtendArguments,
) -> Result<(), CliError> {
    let mut lease = arguments.lease_end.fields();
    for (field, duration) in [("extend_by", arguments.extend_by), ("duration", arguments.lease)] {
        if let Some(duration) = duration {
            lease.insert(field.to_owned(), json!(duration.as_secs()));
        }
    }
    if arguments.unlimited {
        lease.insert("unlimited".to_owned(), json!(true));
    }
    if lease.is_empty() {
        return Err(CliError::Usage("give at least one change".to_owned()));
    }
    DEPLOYMENTS.fetch(context, &arguments.name).await?;
    let path = path_of(&arguments.name);
    let changed = context.api.send(Method::PATCH, &path, Some(&json!({"lease": lease}))).await?;
    if arguments.output.output.is_machine_readable() {
        context.screen.print(&arguments.output.output.format_single(&changed, context.screen));
        return Ok(());
    }
    let end = changed["lease"]["expires_at"].as_str();
    let end = end.map_or_else(|| "has no end".to_owned(), |at| format!("ends at {at}"));
    context.screen.print(&format!("{}: the lease {end}", arguments.name));
    Ok(())
}

impl LeaseEndArguments {
    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        if let Some(before) = self.warn_before {
            fields.insert("warn_before".to_owned(), json!(before.as_secs()));
        }
        if let Some(action) = self.at_end {
            let action = match action {
                LeaseEndOption::Undeploy => "undeploy",
                LeaseEndOption::Notify => "notify",
            };
            fields.insert("at_end".to_owned(), json!(action));
        }
        fields
    }
}

fn path_of(name: &str) -> String {
    format!("{}/{}", DEPLOYMENTS.path, percent_encode(name))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct DeploymentParser {
        #[command(subcommand)]
        command: DeploymentCommand,
    }

    fn parse(line: &str) -> Result<Value, CliError> {
        let words = std::iter::once("f").chain(line.split(' '));
        let DeploymentCommand::Create(arguments) = DeploymentParser::parse_from(words).command
        else {
            panic!("not a create command")
        };
        create_body(&arguments)
    }

    #[test]
    fn builds_requests() {
        let line = "create web --image http://i/a --resource-class big --trait CUSTOM_A,CUSTOM_B \
                    --lease 2d --warn-before 4h --at-end notify --node r[1-2]";
        let mut body = parse(&line.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap();
        assert!(body["uuid"].take().is_string());
        assert_eq!(
            body,
            json!({
                "uuid": null, "name": "web", "image": "http://i/a", "resource_class": "big",
                "traits": ["CUSTOM_A", "CUSTOM_B"], "nodes": ["r1", "r2"],
                "lease": {"duration": 172_800, "warn_before": 14_400, "at_end": "notify"},
            })
        );
        for invalid in
            ["create --image http://i/a", "create --image http://i/a --node n --at-end notify"]
        {
            assert!(matches!(parse(invalid), Err(CliError::Usage(_))), "{invalid}");
        }
    }
}
