// SPDX-License-Identifier: Apache-2.0
//! `ferrite quota`: how many machines projects may have (Ferrite only).

use clap::{Args, Subcommand};
use ironic_client::{Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::output::OutputArguments;
use crate::resource_actions::ResourceListArguments;
use crate::resource_types::{QUOTA_COLUMNS, QUOTAS};
use crate::resources::ResourceArguments;

/// Commands for quotas.
#[derive(Subcommand, Debug)]
pub enum QuotaCommand {
    /// List the quotas of all projects and their use.
    #[command(visible_alias = "ls")]
    List(ResourceListArguments),
    /// Show the quotas of a project and their use.
    Show(QuotaShowArguments),
    /// Set or remove quotas of a project. Others stay as they are.
    Set(QuotaSetArguments),
    /// Remove all quotas of a project.
    Clear(QuotaClearArguments),
}

/// Options of `ferrite quota show`.
#[derive(Args, Debug)]
pub struct QuotaShowArguments {
    /// The project.
    #[arg(value_name = "PROJECT")]
    project: String,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite quota set`.
#[derive(Args, Debug)]
pub struct QuotaSetArguments {
    /// The project.
    #[arg(value_name = "PROJECT")]
    project: String,
    /// machines=10, resource_class:NAME=5 or flavour:NAME=2; an empty number removes the quota.
    #[arg(value_name = "QUOTA=NUMBER", required = true)]
    limits: Vec<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite quota clear`.
#[derive(Args, Debug)]
pub struct QuotaClearArguments {
    /// The project.
    #[arg(value_name = "PROJECT")]
    project: String,
}

pub(crate) async fn run(arguments: &ResourceArguments<QuotaCommand>) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        QuotaCommand::List(arguments) => QUOTAS.list(&context, QueryString::new(), arguments).await,
        QuotaCommand::Show(arguments) => {
            let quotas = QUOTAS.fetch(&context, &arguments.project).await?;
            show(&context, &quotas, &arguments.output);
            Ok(())
        }
        QuotaCommand::Set(arguments) => {
            let before = QUOTAS.fetch(&context, &arguments.project).await?;
            let body = changed_limits(&before, &arguments.limits)?;
            let path = path_of(&arguments.project);
            let after = context.api.send(Method::PUT, &path, Some(&Value::Object(body))).await?;
            show(&context, &after, &arguments.output);
            Ok(())
        }
        QuotaCommand::Clear(arguments) => {
            context.api.send(Method::DELETE, &path_of(&arguments.project), None).await?;
            context.screen.print(&format!("{}: quotas removed", arguments.project));
            Ok(())
        }
    }
}

fn show(context: &CliContext, quotas: &Value, output: &OutputArguments) {
    if output.output.is_machine_readable() {
        context.screen.print(&output.output.format_single(quotas, context.screen));
        return;
    }
    let limits = quotas["limits"].as_array().cloned().unwrap_or_default();
    context.screen.print(&output.output.format_list(&limits, QUOTA_COLUMNS, context.screen));
    context.screen.note(&format!(
        "{} has {} machines{}",
        quotas["project"].as_str().unwrap_or_default(),
        quotas["machines_used"],
        if limits.is_empty() { " and no quotas" } else { "" }
    ));
}

/// The quotas after the changes.
fn changed_limits(before: &Value, changes: &[String]) -> Result<Map<String, Value>, CliError> {
    let mut limits = Map::new();
    for limit in before["limits"].as_array().into_iter().flatten() {
        let subject = limit["subject"].as_str().unwrap_or_default();
        limits.insert(subject.to_owned(), limit["machines"].clone());
    }
    for change in changes {
        let usage =
            || CliError::Usage(format!("{change:?} is not QUOTA=NUMBER, such as machines=10"));
        let (subject, number) = change.rsplit_once('=').ok_or_else(usage)?;
        if number.is_empty() {
            limits.remove(subject);
        } else {
            let number: u32 = number.parse().map_err(|_| usage())?;
            limits.insert(subject.to_owned(), json!(number));
        }
    }
    Ok(limits)
}

fn path_of(project: &str) -> String {
    format!("{}/{}", QUOTAS.path, percent_encode(project))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_limits() {
        let before = json!({"limits": [
            {"subject": "machines", "machines": 5}, {"subject": "flavour:a", "machines": 1},
        ]});
        let changes = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(ToString::to_string).collect();
            changed_limits(&before, &texts).map(Value::Object)
        };
        assert_eq!(
            changes(&["machines=7", "flavour:a=", "resource_class:big=2"]).unwrap(),
            json!({"machines": 7, "resource_class:big": 2})
        );
        for invalid in ["machines", "machines=many", "machines=-1"] {
            assert!(matches!(changes(&[invalid]), Err(CliError::Usage(_))), "{invalid}");
        }
    }
}
