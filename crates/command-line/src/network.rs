// SPDX-License-Identifier: Apache-2.0
//! `ferrite sighting` and `ferrite topology`: machines nobody enrolled, and who is plugged in where.
//! Only a Ferrite knows of these.

use clap::{Args, Subcommand};
use ironic_client::{Method, Query, segment};
use serde_json::{Map, Value, json};

use crate::assignments::Assignment;
use crate::desk::{ConnectionArguments, Desk};
use crate::failure::Failure;
use crate::kinds;
use crate::node::look::of_ferrite;
use crate::order;
use crate::output::{Format, OutputArguments, rows_in};
use crate::resources::Of;
use crate::selection;
use crate::things::ListArguments;
use crate::watch;

/// What can be done with machines that were seen.
#[derive(Subcommand, Debug)]
pub enum SightingCommand {
    /// List machines that were seen on the network and that nobody enrolled.
    #[command(visible_alias = "ls")]
    List(SightingListArguments),
    /// Enrol a machine that was seen, with what its ramdisk told.
    Enrol(EnrolArguments),
    /// Forget machines that were seen.
    Forget(ForgetArguments),
}

/// Options of `ferrite sighting list`.
#[derive(Args, Debug)]
pub struct SightingListArguments {
    /// Those that were enrolled since, too.
    #[arg(long)]
    enrolled: bool,
    #[command(flatten)]
    list: ListArguments,
}

/// Options of `ferrite sighting enrol`.
#[derive(Args, Debug)]
pub struct EnrolArguments {
    /// The card it was seen with.
    #[arg(value_name = "MAC")]
    mac: String,
    /// What drives it: redfish, ipmi, fake-hardware.
    #[arg(long, value_name = "DRIVER")]
    driver: String,
    /// How its BMC is reached: redfish_address=https://bmc, redfish_password=@FILE.
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

/// Options of `ferrite sighting forget`.
#[derive(Args, Debug)]
pub struct ForgetArguments {
    /// The cards they were seen with.
    #[arg(value_name = "MAC", required = true)]
    macs: Vec<String>,
}

/// Options of `ferrite topology`.
#[derive(Args, Debug)]
pub struct TopologyArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Only what is plugged into this switch: its id or its name.
    #[arg(long, value_name = "SWITCH")]
    switch: Option<String>,
    /// Only the cables of this machine.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn sightings(arguments: &Of<SightingCommand>) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    match &arguments.command {
        SightingCommand::List(arguments) => {
            let path = if arguments.enrolled { "?enrolled=true" } else { "" };
            let path = format!("/v1/ferrite/sightings{path}");
            let rows = async || {
                let found = desk.api.find(&path).await?;
                Ok(rows_in(of_ferrite(found, "tell of sightings")?, "sightings"))
            };
            let ListArguments { output, watch } = &arguments.list;
            watch::list(&desk, watch, output.output, kinds::SIGHTINGS, rows).await
        }
        SightingCommand::Enrol(arguments) => enrol(&desk, arguments).await,
        SightingCommand::Forget(arguments) => {
            for mac in &arguments.macs {
                let path = format!("/v1/ferrite/sightings/{}", segment(mac));
                desk.api.send(Method::DELETE, &path, None).await?;
                desk.screen.print(&format!("{mac}: forgotten"));
            }
            Ok(())
        }
    }
}

async fn enrol(desk: &Desk, arguments: &EnrolArguments) -> Result<(), Failure> {
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
    let path = format!("/v1/ferrite/sightings/{}/enrol", segment(&arguments.mac));
    let made = desk.api.send(Method::POST, &path, Some(&body)).await?;
    let uuid = made["uuid"].as_str().unwrap_or_default();
    desk.screen.print(arguments.name.as_deref().unwrap_or(uuid));
    Ok(())
}

pub(crate) async fn topology(arguments: &TopologyArguments) -> Result<(), Failure> {
    let desk = arguments.connection.desk()?;
    let mut query = Query::new();
    if let Some(switch) = &arguments.switch {
        query.set("switch", switch);
    }
    if let Some(name) = &arguments.node {
        let node = selection::one(&desk.api, name, Some("uuid")).await?;
        query.set("node", node["uuid"].as_str().unwrap_or(name));
    }
    let found = desk.api.find(&query.on("/v1/ferrite/topology")).await?;
    let found = of_ferrite(found, "tell of switches")?;
    let format = arguments.output.output;
    let text = match format {
        Format::Json | Format::Yaml => format.single(&found, desk.screen),
        Format::Table | Format::Wide | Format::Name => {
            format.list(&cables(&found), kinds::CABLES, desk.screen)
        }
    };
    desk.screen.print(&text);
    Ok(())
}

/// A row for each port of each switch.
fn cables(topology: &Value) -> Vec<Value> {
    let mut rows = Vec::new();
    for switch in topology["switches"].as_array().into_iter().flatten() {
        let name = if switch["name"].is_string() { &switch["name"] } else { &switch["id"] };
        for port in switch["ports"].as_array().into_iter().flatten() {
            let mut row = port.clone();
            row["switch"] = name.clone();
            rows.push(row);
        }
    }
    order::by_fields(&mut rows, &["switch", "id"]);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cables_are_in_the_order_of_ports() {
        let ports = |ids: &[&str]| ids.iter().map(|id| json!({ "id": id })).collect::<Vec<_>>();
        let topology = json!({"switches": [
            {"id": "x", "name": "leaf10", "ports": ports(&["Ethernet1/1"])},
            {"id": "y", "name": "leaf2", "ports": ports(&["Ethernet1/1", "Ethernet10/1", "Ethernet2/1"])},
        ]});
        let rows = cables(&topology);
        let shown = |row: &Value| {
            format!("{} {}", row["switch"].as_str().unwrap(), row["id"].as_str().unwrap())
        };
        assert_eq!(
            rows.iter().map(shown).collect::<Vec<_>>(),
            ["leaf2 Ethernet1/1", "leaf2 Ethernet2/1", "leaf2 Ethernet10/1", "leaf10 Ethernet1/1"]
        );
    }
}
