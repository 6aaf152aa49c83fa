// SPDX-License-Identifier: Apache-2.0
//! `ferrite port`, `allocation`, `template`, `runbook`, `rule`, `flavour`, `driver`.

use clap::{Args, Subcommand};
use ironic_client::{Query, segment};
use serde_json::{Map, json};

use crate::desk::{ConnectionArguments, Desk};
use crate::failure::Failure;
use crate::kinds::{self, Kind};
use crate::output::{OutputArguments, rows_in};
use crate::selection;
use crate::things::{
    CreateArguments, DeleteArguments, ListArguments, SetArguments, ShowArguments, UnsetArguments,
};
use crate::watch;

/// A command on things of one kind.
#[derive(Args, Debug)]
pub struct Of<Command: Subcommand> {
    #[command(flatten)]
    pub(crate) connection: ConnectionArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be done with things that have nothing peculiar.
#[derive(Subcommand, Debug)]
pub enum ThingCommand {
    /// List all.
    #[command(visible_alias = "ls")]
    List(ListArguments),
    /// Show everything about one.
    Show(ShowArguments),
    /// Create one, or all of a file.
    Create(CreateArguments),
    /// Change fields of one.
    Set(SetArguments),
    /// Empty fields of one.
    Unset(UnsetArguments),
    /// Delete some.
    #[command(visible_alias = "rm")]
    Delete(DeleteArguments),
}

/// What can be done with ports and the like, which belong to machines.
#[derive(Subcommand, Debug)]
pub enum PortCommand {
    /// List all, or those of a machine.
    #[command(visible_alias = "ls")]
    List(OfNodeArguments),
    /// Create one.
    Create(PortCreateArguments),
    #[command(flatten)]
    Other(ChangeCommand),
}

/// What needs no word about machines.
#[derive(Subcommand, Debug)]
pub enum ChangeCommand {
    /// Show everything about one.
    Show(ShowArguments),
    /// Change fields of one.
    Set(SetArguments),
    /// Empty fields of one.
    Unset(UnsetArguments),
    /// Delete some.
    #[command(visible_alias = "rm")]
    Delete(DeleteArguments),
}

/// What can be done with allocations.
#[derive(Subcommand, Debug)]
pub enum AllocationCommand {
    /// List all, or those of a machine.
    #[command(visible_alias = "ls")]
    List(OfNodeArguments),
    /// Ask for a machine.
    Create(AllocationCreateArguments),
    #[command(flatten)]
    Other(ChangeCommand),
}

/// What can be done with flavours.
#[derive(Subcommand, Debug)]
pub enum FlavourCommand {
    /// List all.
    #[command(visible_alias = "ls")]
    List(ListArguments),
    /// Show everything about one.
    Show(ShowArguments),
    /// Create or replace one, or all of a file.
    Create(CreateArguments),
    /// Delete some.
    #[command(visible_alias = "rm")]
    Delete(DeleteArguments),
    /// List the inspected machines that one fits.
    Matches(ShowArguments),
}

/// What can be done with drivers.
#[derive(Subcommand, Debug)]
pub enum DriverCommand {
    /// List those that are enabled.
    #[command(visible_alias = "ls")]
    List(ListArguments),
    /// Show what the driver_info of a driver's machines may hold.
    Properties(PropertiesArguments),
}

/// Options of lists that can be narrowed to a machine.
#[derive(Args, Debug)]
pub struct OfNodeArguments {
    /// Only those of this machine.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    list: ListArguments,
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
    create: CreateArguments,
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
    /// Machines it may be: names, UUIDs or noderanges.
    #[arg(long = "candidate", value_name = "NODES")]
    candidates: Vec<String>,
    #[command(flatten)]
    create: CreateArguments,
}

/// Options of `ferrite driver properties`.
#[derive(Args, Debug)]
pub struct PropertiesArguments {
    /// The driver.
    driver: String,
    #[command(flatten)]
    output: OutputArguments,
}

/// Templates, runbooks and rules.
pub(crate) async fn things(arguments: &Of<ThingCommand>, kind: &Kind) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    match &arguments.command {
        ThingCommand::List(arguments) => kind.list(&desk, Query::new(), arguments).await,
        ThingCommand::Show(arguments) => kind.show(&desk, arguments).await,
        ThingCommand::Create(arguments) => kind.create(&desk, Map::new(), arguments).await,
        ThingCommand::Set(arguments) => kind.set(&desk, arguments).await,
        ThingCommand::Unset(arguments) => kind.unset(&desk, arguments).await,
        ThingCommand::Delete(arguments) => kind.delete(&desk, arguments).await,
    }
}

/// Ports and portgroups.
pub(crate) async fn ports(arguments: &Of<PortCommand>, kind: &Kind) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    match &arguments.command {
        PortCommand::List(arguments) => list_of_node(&desk, kind, arguments).await,
        PortCommand::Create(arguments) => {
            let node = selection::one(&desk.api, &arguments.node, Some("uuid")).await?;
            let mut body = Map::new();
            body.insert("node_uuid".to_owned(), node["uuid"].clone());
            if let Some(address) = &arguments.address {
                body.insert("address".to_owned(), json!(address));
            }
            kind.create(&desk, body, &arguments.create).await
        }
        PortCommand::Other(command) => change(&desk, kind, command).await,
    }
}

pub(crate) async fn allocations(arguments: &Of<AllocationCommand>) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let kind = &kinds::ALLOCATIONS;
    match &arguments.command {
        AllocationCommand::List(arguments) => list_of_node(&desk, kind, arguments).await,
        AllocationCommand::Create(arguments) => {
            let mut body = Map::new();
            body.insert("resource_class".to_owned(), json!(arguments.resource_class));
            if let Some(name) = &arguments.name {
                body.insert("name".to_owned(), json!(name));
            }
            if !arguments.traits.is_empty() {
                body.insert("traits".to_owned(), json!(arguments.traits));
            }
            let candidates = selection::names(&arguments.candidates)?;
            if !candidates.is_empty() {
                body.insert("candidate_nodes".to_owned(), json!(candidates));
            }
            kind.create(&desk, body, &arguments.create).await
        }
        AllocationCommand::Other(command) => change(&desk, kind, command).await,
    }
}

pub(crate) async fn flavours(arguments: &Of<FlavourCommand>) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let kind = &kinds::FLAVOURS;
    match &arguments.command {
        FlavourCommand::List(arguments) => kind.list(&desk, Query::new(), arguments).await,
        FlavourCommand::Show(arguments) => kind.show(&desk, arguments).await,
        FlavourCommand::Create(arguments) => kind.create(&desk, Map::new(), arguments).await,
        FlavourCommand::Delete(arguments) => kind.delete(&desk, arguments).await,
        FlavourCommand::Matches(arguments) => kind.matches(&desk, arguments).await,
    }
}

pub(crate) async fn drivers(arguments: &Of<DriverCommand>) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    match &arguments.command {
        DriverCommand::List(arguments) => {
            let rows = async || Ok(rows_in(desk.api.get("/v1/drivers").await?, "drivers"));
            let format = arguments.output.output;
            watch::list(&desk, &arguments.watch, format, kinds::DRIVERS, rows).await
        }
        DriverCommand::Properties(arguments) => {
            let path = format!("/v1/drivers/{}/properties", segment(&arguments.driver));
            let found = desk.api.find(&path).await?.ok_or_else(|| {
                let name = &arguments.driver;
                Failure::NotFound(format!(
                    "there is no driver {name:?}; `ferrite driver list` shows all"
                ))
            })?;
            desk.screen.print(&arguments.output.output.single(&found, desk.screen));
            Ok(())
        }
    }
}

async fn list_of_node(
    desk: &Desk,
    kind: &Kind,
    arguments: &OfNodeArguments,
) -> Result<(), Failure> {
    let mut query = Query::new();
    if let Some(name) = &arguments.node {
        let node = selection::one(&desk.api, name, Some("uuid")).await?;
        query.set("node", node["uuid"].as_str().unwrap_or(name));
    }
    kind.list(desk, query, &arguments.list).await
}

async fn change(desk: &Desk, kind: &Kind, command: &ChangeCommand) -> Result<(), Failure> {
    match command {
        ChangeCommand::Show(arguments) => kind.show(desk, arguments).await,
        ChangeCommand::Set(arguments) => kind.set(desk, arguments).await,
        ChangeCommand::Unset(arguments) => kind.unset(desk, arguments).await,
        ChangeCommand::Delete(arguments) => kind.delete(desk, arguments).await,
    }
}
