// SPDX-License-Identifier: Apache-2.0
//! `ferrite node set`, `unset` and `delete`.

use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, Method, segment};
use serde_json::{Value, json};

use crate::assignments::{Assignment, is_deep, patch, pointer};
use crate::bulk::{self, BulkArguments};
use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::OutputArguments;
use crate::selection::{Chosen, Selection};

/// No two machines have the same.
const UNIQUE: [&str; 3] = ["name", "uuid", "instance_uuid"];

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
    let mut fields = Vec::new();
    for field in &arguments.fields {
        fields.push((field.key.clone(), field.value()?));
    }
    something(fields.len(), &arguments.traits)?;
    let query = if arguments.reset_interfaces { "?reset_interfaces=true" } else { "" };
    let traits = arguments.traits.clone();
    let chosen = arguments.selection.chosen(desk).await?;
    if let Some((unique, _)) = fields.iter().find(|(key, _)| UNIQUE.contains(&key.as_str()))
        && chosen.len() > 1
    {
        let told = format!("{} machines cannot have the same {unique}", chosen.len());
        return Err(Failure::Usage(told));
    }
    let outcomes = bulk::each(desk, chosen, arguments.bulk.parallel, move |api, machine| {
        let fields = Fields::Set(fields.clone());
        Change { fields, query, traits: traits.clone() }.made(api, machine)
    })
    .await?
    .outcomes;
    bulk::told(desk, outcomes, arguments.output.output)
}

pub(crate) async fn unset(desk: &Desk, arguments: &UnsetArguments) -> Result<(), Failure> {
    let operations: Vec<Value> = arguments
        .fields
        .iter()
        .map(|field| json!({ "op": "remove", "path": pointer(field) }))
        .collect();
    something(operations.len(), &arguments.traits)?;
    let traits = arguments.traits.clone();
    let chosen = arguments.selection.chosen(desk).await?;
    let outcomes = bulk::each(desk, chosen, arguments.bulk.parallel, move |api, machine| {
        let fields = Fields::Unset(operations.clone());
        Change { fields, query: "", traits: traits.clone() }.made(api, machine)
    })
    .await?
    .outcomes;
    bulk::told(desk, outcomes, arguments.output.output)
}

pub(crate) async fn delete(desk: &Desk, arguments: &DeleteArguments) -> Result<(), Failure> {
    let chosen = arguments.selection.chosen(desk).await?;
    bulk::consent(desk, "delete", &chosen, arguments.bulk.yes).await?;
    let outcomes = bulk::each(desk, chosen, arguments.bulk.parallel, |api, machine| async move {
        api.send(Method::DELETE, &machine.path(), None).await?;
        Ok("deleted".to_owned())
    })
    .await?
    .outcomes;
    bulk::told(desk, outcomes, arguments.output.output)
}

/// A change of one machine, which is made as a whole or not at all.
struct Change {
    fields: Fields,
    query: &'static str,
    traits: Vec<String>,
}

enum Fields {
    /// Keys and values.
    Set(Vec<(String, Value)>),
    /// Operations that remove.
    Unset(Vec<Value>),
}

impl Change {
    /// Traits have their own place in the API. They come first: of a trait it is known how it was, so
    /// that a refusal of the fields can put them back.
    async fn made(self, api: Arc<Api>, machine: Chosen) -> Result<String, Failure> {
        let mut moved: Vec<&String> = Vec::new();
        let outcome = match self.move_traits(&api, &machine, &mut moved).await {
            Ok(()) => self.change_fields(&api, &machine).await,
            Err(failure) => Err(failure),
        };
        // What a lost answer said is not known, and so not undone.
        let is_lost = matches!(&outcome, Err(Failure::Api(error)) if error.is_unanswered());
        if outcome.is_err() && !is_lost {
            let back = self.methods().1;
            for name in moved {
                // What cannot be put back either is seen in the machine's traits.
                let _ = api.send(back.clone(), &trait_path(&machine, name), None).await;
            }
        }
        outcome.map(|()| "changed".to_owned())
    }

    /// How a trait is changed, and how it is changed back.
    fn methods(&self) -> (Method, Method) {
        match self.fields {
            Fields::Set(_) => (Method::PUT, Method::DELETE),
            Fields::Unset(_) => (Method::DELETE, Method::PUT),
        }
    }

    async fn move_traits<'a>(
        &'a self,
        api: &Api,
        machine: &Chosen,
        moved: &mut Vec<&'a String>,
    ) -> Result<(), Failure> {
        if self.traits.is_empty() {
            return Ok(());
        }
        let known = api.get(&format!("{}/traits", machine.path())).await?;
        let has = |name: &String| {
            known["traits"].as_array().is_some_and(|traits| traits.iter().any(|it| it == name))
        };
        let method = self.methods().0;
        for name in &self.traits {
            // One that is there already is not ours to take away again.
            if matches!(self.fields, Fields::Set(_)) && has(name) {
                continue;
            }
            api.send(method.clone(), &trait_path(machine, name), None).await?;
            moved.push(name);
        }
        Ok(())
    }

    async fn change_fields(&self, api: &Api, machine: &Chosen) -> Result<(), Failure> {
        let operations = match &self.fields {
            Fields::Unset(operations) => operations.clone(),
            Fields::Set(fields) if fields.iter().any(|(key, _)| is_deep(key)) => {
                patch(&api.get(&machine.path()).await?, fields)
            }
            Fields::Set(fields) => patch(&Value::Null, fields),
        };
        if !operations.is_empty() {
            api.patch(&format!("{}{}", machine.path(), self.query), &operations).await?;
        }
        Ok(())
    }
}

fn trait_path(machine: &Chosen, name: &str) -> String {
    format!("{}/traits/{}", machine.path(), segment(name))
}

fn something(fields: usize, traits: &[String]) -> Result<(), Failure> {
    if fields == 0 && traits.is_empty() {
        return Err(Failure::Usage("change what? give --field or --trait".to_owned()));
    }
    Ok(())
}
