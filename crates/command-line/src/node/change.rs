// SPDX-License-Identifier: Apache-2.0
//! `ferrite node set`, `unset` and `delete`.

use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, ErrorClass, IronicClientError, Method, percent_encode};
use serde_json::{Value, json};

use crate::assignments::{Assignment, is_nested, json_patch, json_pointer};
use crate::bulk::{self, BulkArguments};
use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::output::OutputArguments;
use crate::selection::{NodeSelection, SelectedNode};

/// States of machines with an instance, which `undeploy` removes.
const STATES_WITH_INSTANCE: [&str; 7] = [
    "active",
    "deploy failed",
    "error",
    "rescue",
    "rescue failed",
    "unrescue failed",
    "wait call-back",
];

/// Fields whose values are unique among nodes.
const UNIQUE_FIELDS: [&str; 3] = ["name", "uuid", "instance_uuid"];

/// Options of `ferrite node set`.
#[derive(Args, Debug)]
pub(crate) struct NodeSetArguments {
    /// A field and its value: name=rack1-u01, driver_info.redfish_address=https://bmc,
    /// properties.cpus:=8, driver_info.redfish_password=@FILE. May be given several times.
    #[arg(short, long = "field", value_name = "FIELD=VALUE")]
    fields: Vec<Assignment>,
    /// Traits to add.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    /// Reset interfaces that are not given to the defaults of the new driver.
    #[arg(long)]
    reset_interfaces: bool,
    #[command(flatten)]
    selection: NodeSelection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite node unset`.
#[derive(Args, Debug)]
pub(crate) struct NodeUnsetArguments {
    /// A field: owner, driver_info.redfish_verify_ca. May be given several times.
    #[arg(short, long = "field", value_name = "FIELD")]
    fields: Vec<String>,
    /// Traits to remove.
    #[arg(long = "trait", value_name = "TRAIT", value_delimiter = ',')]
    traits: Vec<String>,
    #[command(flatten)]
    selection: NodeSelection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite node delete`.
#[derive(Args, Debug)]
pub(crate) struct NodeDeleteArguments {
    #[command(flatten)]
    selection: NodeSelection,
    #[command(flatten)]
    bulk: BulkArguments,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn set(
    context: &CliContext,
    arguments: &NodeSetArguments,
) -> Result<(), CliError> {
    let mut fields = Vec::new();
    for field in &arguments.fields {
        fields.push((field.key.clone(), field.value()?));
    }
    require_change(fields.len(), &arguments.traits)?;
    let query = if arguments.reset_interfaces { "?reset_interfaces=true" } else { "" };
    let traits = arguments.traits.clone();
    let selected = arguments.selection.resolve(context).await?;
    if let Some((unique, _)) = fields.iter().find(|(key, _)| UNIQUE_FIELDS.contains(&key.as_str()))
        && selected.len() > 1
    {
        let message = format!("{} machines cannot have the same {unique}", selected.len());
        return Err(CliError::Usage(message));
    }
    let outcomes =
        bulk::for_each_node(context, selected, arguments.bulk.parallel, move |api, machine| {
            let fields = FieldChange::Set(fields.clone());
            NodeChange { fields, query, traits: traits.clone() }.apply(api, machine)
        })
        .await?
        .outcomes;
    bulk::report(context, outcomes, arguments.output.output)
}

pub(crate) async fn unset(
    context: &CliContext,
    arguments: &NodeUnsetArguments,
) -> Result<(), CliError> {
    let operations: Vec<Value> = arguments
        .fields
        .iter()
        .map(|field| json!({ "op": "remove", "path": json_pointer(field) }))
        .collect();
    require_change(operations.len(), &arguments.traits)?;
    let traits = arguments.traits.clone();
    let selected = arguments.selection.resolve(context).await?;
    let outcomes =
        bulk::for_each_node(context, selected, arguments.bulk.parallel, move |api, machine| {
            let fields = FieldChange::Unset(operations.clone());
            NodeChange { fields, query: "", traits: traits.clone() }.apply(api, machine)
        })
        .await?
        .outcomes;
    bulk::report(context, outcomes, arguments.output.output)
}

pub(crate) async fn delete(
    context: &CliContext,
    arguments: &NodeDeleteArguments,
) -> Result<(), CliError> {
    let selected = arguments.selection.resolve(context).await?;
    bulk::confirm(context, "delete", &selected, arguments.bulk.yes).await?;
    let outcomes = bulk::for_each_node(
        context,
        selected,
        arguments.bulk.parallel,
        |api, machine| async move {
            match api.send(Method::DELETE, &machine.path(), None).await {
                Ok(_) => Ok("deleted".to_owned()),
                Err(error) if error.class() == ErrorClass::Rejected => {
                    Err(deletion_error(&api, &machine, error).await)
                }
                Err(error) => Err(error.into()),
            }
        },
    )
    .await?
    .outcomes;
    bulk::report(context, outcomes, arguments.output.output)
}

/// The error of a rejected deletion, with what to do first if the machine has an instance.
async fn deletion_error(api: &Api, machine: &SelectedNode, error: IronicClientError) -> CliError {
    // The selection may be older than the reason of the rejection.
    let node = api.get(&machine.path()).await.unwrap_or_else(|_| machine.node.clone());
    let state = node["provision_state"].as_str().unwrap_or_default();
    if !STATES_WITH_INSTANCE.contains(&state) {
        return error.into();
    }
    let label = &machine.label;
    CliError::Rejected(format!(
        "{error}\n  hint: remove its instance with `ferrite node undeploy {label} --wait`, then delete it; to \
         delete it and leave its disks as they are, run `ferrite node maintenance on {label}` first"
    ))
}

/// A change of one node, which is applied completely or not at all.
struct NodeChange {
    fields: FieldChange,
    query: &'static str,
    traits: Vec<String>,
}

enum FieldChange {
    /// Keys and values to set.
    Set(Vec<(String, Value)>),
    /// JSON patch operations that remove fields.
    Unset(Vec<Value>),
}

impl NodeChange {
    /// Applies the change. The API changes traits separately from fields; they come first, because their
    /// previous state is known and can be restored if the fields are rejected.
    async fn apply(self, api: Arc<Api>, machine: SelectedNode) -> Result<String, CliError> {
        let mut changed_traits: Vec<&String> = Vec::new();
        let outcome = match self.change_traits(&api, &machine, &mut changed_traits).await {
            Ok(()) => self.change_fields(&api, &machine).await,
            Err(failure) => Err(failure),
        };
        // After a lost response the change may have been made, so it is not undone.
        let is_lost =
            matches!(&outcome, Err(CliError::Api(error)) if error.may_have_been_executed());
        if outcome.is_err() && !is_lost {
            let undo = self.trait_methods().1;
            for name in changed_traits {
                // If this fails as well, the traits remain visible in the node.
                let _ = api.send(undo.clone(), &trait_path(&machine, name), None).await;
            }
        }
        outcome.map(|()| "changed".to_owned())
    }

    /// The methods that change a trait and undo the change.
    fn trait_methods(&self) -> (Method, Method) {
        match self.fields {
            FieldChange::Set(_) => (Method::PUT, Method::DELETE),
            FieldChange::Unset(_) => (Method::DELETE, Method::PUT),
        }
    }

    async fn change_traits<'a>(
        &'a self,
        api: &Api,
        machine: &SelectedNode,
        changed: &mut Vec<&'a String>,
    ) -> Result<(), CliError> {
        if self.traits.is_empty() {
            return Ok(());
        }
        let known = api.get(&format!("{}/traits", machine.path())).await?;
        let has = |name: &String| {
            known["traits"].as_array().is_some_and(|traits| traits.iter().any(|it| it == name))
        };
        let method = self.trait_methods().0;
        for name in &self.traits {
            // An existing trait must not be removed if the change is undone.
            if matches!(self.fields, FieldChange::Set(_)) && has(name) {
                continue;
            }
            api.send(method.clone(), &trait_path(machine, name), None).await?;
            changed.push(name);
        }
        Ok(())
    }

    async fn change_fields(&self, api: &Api, machine: &SelectedNode) -> Result<(), CliError> {
        let operations = match &self.fields {
            FieldChange::Unset(operations) => operations.clone(),
            FieldChange::Set(fields) if fields.iter().any(|(key, _)| is_nested(key)) => {
                json_patch(&api.get(&machine.path()).await?, fields)
            }
            FieldChange::Set(fields) => json_patch(&Value::Null, fields),
        };
        if !operations.is_empty() {
            api.patch(&format!("{}{}", machine.path(), self.query), &operations).await?;
        }
        Ok(())
    }
}

fn trait_path(machine: &SelectedNode, name: &str) -> String {
    format!("{}/traits/{}", machine.path(), percent_encode(name))
}

fn require_change(fields: usize, traits: &[String]) -> Result<(), CliError> {
    if fields == 0 && traits.is_empty() {
        return Err(CliError::Usage("nothing to change; give --field or --trait".to_owned()));
    }
    Ok(())
}
