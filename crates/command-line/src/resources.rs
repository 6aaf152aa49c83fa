// SPDX-License-Identifier: Apache-2.0
//! `ferrite port`, `allocation`, `template`, `runbook`, `rule`, `flavour`, `driver`.

use clap::{Args, Subcommand};
use ironic_client::{QueryString, percent_encode};
use serde_json::{Map, json};

use crate::cli_error::CliError;
use crate::context::{CliContext, ConnectionArguments};
use crate::output::{OutputArguments, take_rows};
use crate::resource_actions::{
    ResourceCreateArguments, ResourceDeleteArguments, ResourceListArguments, ResourceSetArguments,
    ResourceShowArguments, ResourceUnsetArguments,
};
use crate::resource_types::{self, ResourceType};
use crate::selection;
use crate::watch;

/// A command on resources of one type.
#[derive(Args, Debug)]
pub struct ResourceArguments<Command: Subcommand> {
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands of resource types without special options.
#[derive(Subcommand, Debug)]
pub enum ResourceCommand {
    /// List all.
    #[command(visible_alias = "ls")]
    List(ResourceListArguments),
    /// Show all fields.
    Show(ResourceShowArguments),
    /// Create one, or all entries of a file.
    Create(ResourceCreateArguments),
    /// Change fields.
    Set(ResourceSetArguments),
    /// Remove fields.
    Unset(ResourceUnsetArguments),
    /// Delete resources.
    #[command(visible_alias = "rm")]
    Delete(ResourceDeleteArguments),
}

/// Commands of ports and port groups, which belong to machines.
#[derive(Subcommand, Debug)]
pub enum PortCommand {
    /// List all, or those of a machine.
    #[command(visible_alias = "ls")]
    List(NodeResourceListArguments),
    /// Create one.
    Create(PortCreateArguments),
    #[command(flatten)]
    Other(ResourceChangeCommand),
}

/// Commands without machine options.
#[derive(Subcommand, Debug)]
pub enum ResourceChangeCommand {
    /// Show all fields.
    Show(ResourceShowArguments),
    /// Change fields.
    Set(ResourceSetArguments),
    /// Remove fields.
    Unset(ResourceUnsetArguments),
    /// Delete resources.
    #[command(visible_alias = "rm")]
    Delete(ResourceDeleteArguments),
}

/// Commands of allocations.
#[derive(Subcommand, Debug)]
pub enum AllocationCommand {
    /// List all, or those of a machine.
    #[command(visible_alias = "ls")]
    List(NodeResourceListArguments),
    /// Request a machine.
    Create(AllocationCreateArguments),
    #[command(flatten)]
    Other(ResourceChangeCommand),
}

/// Commands of flavours.
#[derive(Subcommand, Debug)]
pub enum FlavourCommand {
    /// List all.
    #[command(visible_alias = "ls")]
    List(ResourceListArguments),
    /// Show all fields.
    Show(ResourceShowArguments),
    /// Create or replace one, or all entries of a file.
    Create(ResourceCreateArguments),
    /// Delete flavours.
    #[command(visible_alias = "rm")]
    Delete(ResourceDeleteArguments),
    /// List the inspected machines that match a flavour.
    Matches(ResourceShowArguments),
}

/// Commands of drivers.
#[derive(Subcommand, Debug)]
pub enum DriverCommand {
    /// List the enabled drivers.
    #[command(visible_alias = "ls")]
    List(ResourceListArguments),
    /// Show the driver_info keys of a driver.
    Properties(PropertiesArguments),
}

/// Options of lists that can be limited to one machine.
#[derive(Args, Debug)]
pub struct NodeResourceListArguments {
    /// Only resources of this machine.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    list: ResourceListArguments,
}

/// Options of `create`.
#[derive(Args, Debug)]
pub struct PortCreateArguments {
    /// The machine it belongs to.
    #[arg(value_name = "NODE")]
    node: String,
    /// Its MAC address.
    #[arg(value_name = "MAC")]
    address: Option<String>,
    #[command(flatten)]
    create: ResourceCreateArguments,
}

/// Options of `ferrite allocation create`.
#[derive(Args, Debug)]
pub struct AllocationCreateArguments {
    /// Its name.
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The resource class of the machine.
    #[arg(long, value_name = "CLASS")]
    resource_class: String,
    /// Traits the machine must have.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Candidate machines: names, UUIDs or noderanges.
    #[arg(long = "candidate", value_name = "NODES")]
    candidates: Vec<String>,
    #[command(flatten)]
    create: ResourceCreateArguments,
}

/// Options of `ferrite driver properties`.
#[derive(Args, Debug)]
pub struct PropertiesArguments {
    /// The driver.
    driver: String,
    #[command(flatten)]
    output: OutputArguments,
}

/// Runs commands on deploy templates, runbooks and inspection rules.
pub(crate) async fn run(
    arguments: &ResourceArguments<ResourceCommand>,
    kind: &ResourceType,
) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        ResourceCommand::List(arguments) => {
            kind.list(&context, QueryString::new(), arguments).await
        }
        ResourceCommand::Show(arguments) => kind.show(&context, arguments).await,
        ResourceCommand::Create(arguments) => kind.create(&context, Map::new(), arguments).await,
        ResourceCommand::Set(arguments) => kind.set(&context, arguments).await,
        ResourceCommand::Unset(arguments) => kind.unset(&context, arguments).await,
        ResourceCommand::Delete(arguments) => kind.delete(&context, arguments).await,
    }
}

/// Runs commands on ports and port groups.
pub(crate) async fn ports(
    arguments: &ResourceArguments<PortCommand>,
    kind: &ResourceType,
) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        PortCommand::List(arguments) => list_for_node(&context, kind, arguments).await,
        PortCommand::Create(arguments) => {
            let node = selection::find_node(&context.api, &arguments.node, Some("uuid")).await?;
            let mut body = Map::new();
            body.insert("node_uuid".to_owned(), node["uuid"].clone());
            if let Some(address) = &arguments.address {
                body.insert("address".to_owned(), json!(address));
            }
            kind.create(&context, body, &arguments.create).await
        }
        PortCommand::Other(command) => change(&context, kind, command).await,
    }
}

pub(crate) async fn allocations(
    arguments: &ResourceArguments<AllocationCommand>,
) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let kind = &resource_types::ALLOCATIONS;
    match &arguments.command {
        AllocationCommand::List(arguments) => list_for_node(&context, kind, arguments).await,
        AllocationCommand::Create(arguments) => {
            let mut body = Map::new();
            body.insert("resource_class".to_owned(), json!(arguments.resource_class));
            if let Some(name) = &arguments.name {
                body.insert("name".to_owned(), json!(name));
            }
            if !arguments.traits.is_empty() {
                body.insert("traits".to_owned(), json!(arguments.traits));
            }
            let candidates = selection::expand_names(&arguments.candidates)?;
            if !candidates.is_empty() {
                body.insert("candidate_nodes".to_owned(), json!(candidates));
            }
            kind.create(&context, body, &arguments.create).await
        }
        AllocationCommand::Other(command) => change(&context, kind, command).await,
    }
}

pub(crate) async fn flavours(
    arguments: &ResourceArguments<FlavourCommand>,
) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let kind = &resource_types::FLAVOURS;
    match &arguments.command {
        FlavourCommand::List(arguments) => kind.list(&context, QueryString::new(), arguments).await,
        FlavourCommand::Show(arguments) => kind.show(&context, arguments).await,
        FlavourCommand::Create(arguments) => kind.create(&context, Map::new(), arguments).await,
        FlavourCommand::Delete(arguments) => kind.delete(&context, arguments).await,
        FlavourCommand::Matches(arguments) => kind.matches(&context, arguments).await,
    }
}

pub(crate) async fn drivers(arguments: &ResourceArguments<DriverCommand>) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        DriverCommand::List(arguments) => {
            let rows = async || Ok(take_rows(context.api.get("/v1/drivers").await?, "drivers"));
            let format = arguments.output.output;
            watch::show_list(
                &context,
                &arguments.watch,
                format,
                resource_types::DRIVER_COLUMNS,
                rows,
            )
            .await
        }
        DriverCommand::Properties(arguments) => {
            let path = format!("/v1/drivers/{}/properties", percent_encode(&arguments.driver));
            let found = context.api.find(&path).await?.ok_or_else(|| {
                let name = &arguments.driver;
                CliError::NotFound(format!(
                    "unknown driver {name:?}; `ferrite driver list` lists all"
                ))
            })?;
            context.screen.print(&arguments.output.output.format_single(&found, context.screen));
            Ok(())
        }
    }
}

async fn list_for_node(
    context: &CliContext,
    kind: &ResourceType,
    arguments: &NodeResourceListArguments,
) -> Result<(), CliError> {
    let mut query = QueryString::new();
    if let Some(name) = &arguments.node {
        let node = selection::find_node(&context.api, name, Some("uuid")).await?;
        query.add("node", node["uuid"].as_str().unwrap_or(name));
    }
    kind.list(context, query, &arguments.list).await
}

async fn change(
    context: &CliContext,
    kind: &ResourceType,
    command: &ResourceChangeCommand,
) -> Result<(), CliError> {
    match command {
        ResourceChangeCommand::Show(arguments) => kind.show(context, arguments).await,
        ResourceChangeCommand::Set(arguments) => kind.set(context, arguments).await,
        ResourceChangeCommand::Unset(arguments) => kind.unset(context, arguments).await,
        ResourceChangeCommand::Delete(arguments) => kind.delete(context, arguments).await,
    }
}
