// SPDX-License-Identifier: Apache-2.0
//! `ferrite node set`, `unset` and `delete`.

use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, Method, segment};
use serde_json::{Value, json};

use crate::assignments::{Assignment, pointer};
use crate::bulk::{self, BulkArguments};
use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::OutputArguments;
use crate::selection::{Chosen, Selection};

/// Options of `ferrite node set`.
#[derive(Args, Debug)]
pub(crate) struct SetArguments {
    /// A field and its value: name=rack1-u01, driver_info.redfish_address=https://bmc,
    /// properties.cpus:=8, driver_info.redfish_password=@FILE. May be given several times.
    #[arg(short, long = "field", value_name = "FIELD=VALUE")]
    fields: Vec<Assignment>,
    /// Traits to add.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Set interfaces that are not named to the defaults of the new driver.
    #[arg(long)]
    reset_interfaces: bool,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite node unset`.
#[derive(Args, Debug)]
pub(crate) struct UnsetArguments {
    /// A field: owner, driver_info.redfish_verify_ca. May be given several times.
    #[arg(short, long = "field", value_name = "FIELD")]
    fields: Vec<String>,
    /// Traits to take away.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite node delete`.
#[derive(Args, Debug)]
pub(crate) struct DeleteArguments {
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn set(desk: &Desk, arguments: &SetArguments) -> Result<(), Failure> {
    let mut operations = Vec::new();
    for field in &arguments.fields {
        operations
            .push(json!({ "op": "add", "path": pointer(&field.key), "value": field.value()? }));
    }
    something(&operations, &arguments.traits)?;
    let query = if arguments.reset_interfaces { "?reset_interfaces=true" } else { "" };
    let traits = arguments.traits.clone();
    let chosen = arguments.selection.chosen(desk).await?;
    let outcomes = bulk::each(desk, chosen, arguments.bulk.parallel, move |api, machine| {
        let change = Change { operations: operations.clone(), query, traits: traits.clone() };
        change.made(api, machine, Method::PUT)
    })
    .await;
    bulk::told(desk, outcomes, arguments.output.output)
}

pub(crate) async fn unset(desk: &Desk, arguments: &UnsetArguments) -> Result<(), Failure> {
    let operations: Vec<Value> = arguments
        .fields
        .iter()
        .map(|field| json!({ "op": "remove", "path": pointer(field) }))
        .collect();
    something(&operations, &arguments.traits)?;
    let traits = arguments.traits.clone();
    let chosen = arguments.selection.chosen(desk).await?;
    let outcomes = bulk::each(desk, chosen, arguments.bulk.parallel, move |api, machine| {
        let change = Change { operations: operations.clone(), query: "", traits: traits.clone() };
        change.made(api, machine, Method::DELETE)
    })
    .await;
    bulk::told(desk, outcomes, arguments.output.output)
}

pub(crate) async fn delete(desk: &Desk, arguments: &DeleteArguments) -> Result<(), Failure> {
    let chosen = arguments.selection.chosen(desk).await?;
    bulk::consent(desk, "delete", &chosen, arguments.bulk.yes)?;
    let outcomes = bulk::each(desk, chosen, arguments.bulk.parallel, |api, machine| async move {
        api.send(Method::DELETE, &machine.path(), None).await?;
        Ok("deleted".to_owned())
    })
    .await;
    bulk::told(desk, outcomes, arguments.output.output)
}

/// A change of one machine.
struct Change {
    operations: Vec<Value>,
    query: &'static str,
    traits: Vec<String>,
}

impl Change {
    /// Traits have their own place in the API: `method` adds or removes them there.
    async fn made(self, api: Arc<Api>, machine: Chosen, method: Method) -> Result<String, Failure> {
        if !self.operations.is_empty() {
            api.patch(&format!("{}{}", machine.path(), self.query), &self.operations).await?;
        }
        for name in &self.traits {
            let path = format!("{}/traits/{}", machine.path(), segment(name));
            api.send(method.clone(), &path, None).await?;
        }
        Ok("changed".to_owned())
    }
}

fn something(operations: &[Value], traits: &[String]) -> Result<(), Failure> {
    if operations.is_empty() && traits.is_empty() {
        return Err(Failure::Usage("change what? give --field or --trait".to_owned()));
    }
    Ok(())
}
