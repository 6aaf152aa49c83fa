// SPDX-License-Identifier: Apache-2.0
//! `ferrite sighting` and `ferrite topology`: unknown machines and switch ports (Ferrite only).

use clap::{Args, Subcommand};
use ironic_client::{Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};

use crate::assignments::Assignment;
use crate::cli_error::CliError;
use crate::context::{CliContext, ConnectionArguments};
use crate::natural_order;
use crate::node::queries::require_ferrite;
use crate::output::{OutputArguments, OutputFormat, take_rows};
use crate::resource_actions::ResourceListArguments;
use crate::resource_types;
use crate::resources::ResourceArguments;
use crate::selection;
use crate::watch;

/// Commands for unknown machines.
#[derive(Subcommand, Debug)]
pub enum SightingCommand {
    /// List unknown machines seen on the network.
    #[command(visible_alias = "ls")]
    List(SightingListArguments),
    /// Enrol an unknown machine with the data that its ramdisk reported.
    Enrol(SightingEnrolArguments),
    /// Delete sightings.
    #[command(alias = "forget")]
    Delete(SightingDeleteArguments),
}

/// Options of `ferrite sighting list`.
#[derive(Args, Debug)]
pub struct SightingListArguments {
    /// Include those that were enrolled since.
    #[arg(long)]
    enrolled: bool,
    #[command(flatten)]
    list: ResourceListArguments,
}

/// Options of `ferrite sighting enrol`.
#[derive(Args, Debug)]
pub struct SightingEnrolArguments {
    /// MAC address it was seen with.
    #[arg(value_name = "MAC")]
    mac: String,
    /// The driver: redfish, ipmi, fake-hardware.
    #[arg(long, value_name = "DRIVER")]
    driver: String,
    /// How to reach its BMC: redfish_address=https://bmc, redfish_password=@FILE.
    #[arg(long, value_name = "KEY=VALUE")]
    driver_info: Vec<Assignment>,
    /// Its name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Its resource class.
    #[arg(long, value_name = "CLASS")]
    resource_class: Option<String>,
    /// Its conductor group.
    #[arg(long, value_name = "GROUP")]
    conductor_group: Option<String>,
}

/// Options of `ferrite sighting delete`.
#[derive(Args, Debug)]
pub struct SightingDeleteArguments {
    /// MAC addresses they were seen with.
    #[arg(value_name = "MAC", required = true)]
    macs: Vec<String>,
}

/// Options of `ferrite topology`.
#[derive(Args, Debug)]
pub struct TopologyArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Show only this switch: its id or name.
    #[arg(long, value_name = "SWITCH")]
    switch: Option<String>,
    /// Show only this machine.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn sightings(
    arguments: &ResourceArguments<SightingCommand>,
) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        SightingCommand::List(arguments) => {
            let path = if arguments.enrolled { "?enrolled=true" } else { "" };
            let path = format!("/v1/ferrite/sightings{path}");
            let rows = async || {
                let found = context.api.find(&path).await?;
                Ok(take_rows(require_ferrite(found, "list sightings")?, "sightings"))
            };
            let ResourceListArguments { output, watch } = &arguments.list;
            watch::show_list(&context, watch, output.output, resource_types::SIGHTING_COLUMNS, rows)
                .await
        }
        SightingCommand::Enrol(arguments) => enrol(&context, arguments).await,
        SightingCommand::Delete(arguments) => {
            for mac in &arguments.macs {
                let path = format!("/v1/ferrite/sightings/{}", percent_encode(mac));
                context.api.send(Method::DELETE, &path, None).await?;
                context.screen.print(&format!("{mac}: deleted"));
            }
            Ok(())
        }
    }
}

async fn enrol(context: &CliContext, arguments: &SightingEnrolArguments) -> Result<(), CliError> {
    let mut driver_info = Map::new();
    for assignment in &arguments.driver_info {
        driver_info.insert(assignment.key.clone(), assignment.value()?);
    }
    let mut body = json!({ "driver": arguments.driver, "driver_info": driver_info });
    for (field, value) in [
        ("name", &arguments.name),
        ("resource_class", &arguments.resource_class),
        ("conductor_group", &arguments.conductor_group),
    ] {
        if let Some(value) = value {
            body[field] = json!(value);
        }
    }
    let path = format!("/v1/ferrite/sightings/{}/enrol", percent_encode(&arguments.mac));
    let created = context.api.send(Method::POST, &path, Some(&body)).await?;
    let uuid = created["uuid"].as_str().unwrap_or_default();
    context.screen.print(arguments.name.as_deref().unwrap_or(uuid));
    Ok(())
}

pub(crate) async fn topology(arguments: &TopologyArguments) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let mut query = QueryString::new();
    if let Some(switch) = &arguments.switch {
        query.add("switch", switch);
    }
    if let Some(name) = &arguments.node {
        let node = selection::find_node(&context.api, name, Some("uuid")).await?;
        query.add("node", node["uuid"].as_str().unwrap_or(name));
    }
    let found = context.api.find(&query.append_to("/v1/ferrite/topology")).await?;
    let found = require_ferrite(found, "show the topology")?;
    let format = arguments.output.output;
    let text = match format {
        OutputFormat::Json | OutputFormat::Yaml => format.format_single(&found, context.screen),
        OutputFormat::Table | OutputFormat::Wide | OutputFormat::Name => format.format_list(
            &topology_rows(&found),
            resource_types::TOPOLOGY_COLUMNS,
            context.screen,
        ),
    };
    context.screen.print(&text);
    Ok(())
}

/// One row per switch port.
fn topology_rows(topology: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for switch in topology["switches"].as_array().into_iter().flatten() {
        let name = if switch["name"].is_string() { &switch["name"] } else { &switch["id"] };
        for port in switch["ports"].as_array().into_iter().flatten() {
            let mut row = port.clone();
            row["switch"] = name.clone();
            rows.push(row);
        }
    }
    natural_order::sort_by_fields(&mut rows, &["switch", "id"]);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topology_rows_are_in_natural_order() {
        let ports = |ids: &[&str]| ids.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>();
        let topology = json!({"switches": [
            {"id": "x", "name": "leaf10", "ports": ports(&["Ethernet1/1"])},
            {"id": "y", "name": "leaf2", "ports": ports(&["Ethernet1/1", "Ethernet10/1", "Ethernet2/1"])},
        ]});
        let rows = topology_rows(&topology);
        let shown = |row: &Value| {
            format!("{} {}", row["switch"].as_str().unwrap(), row["id"].as_str().unwrap())
        };
        assert_eq!(
            rows.iter().map(shown).collect::<Vec<_>>(),
            ["leaf2 Ethernet1/1", "leaf2 Ethernet2/1", "leaf2 Ethernet10/1", "leaf10 Ethernet1/1"]
        );
    }
}
