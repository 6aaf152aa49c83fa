// SPDX-License-Identifier: Apache-2.0
//! `ferrite token`: API tokens (Ferrite only).

use std::time::Duration;

use clap::{Args, Subcommand};
use ironic_client::{Method, QueryString};
use serde_json::{Map, Value, json};

use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::node::queries::require_ferrite;
use crate::output::{OutputArguments, take_rows};
use crate::resource_actions::{
    ResourceDeleteArguments, ResourceListArguments, ResourceShowArguments,
};
use crate::resource_types::TOKENS;
use crate::resources::ResourceArguments;
use crate::{wait, watch};

/// Commands for API tokens.
#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// List tokens, without their secrets.
    #[command(visible_alias = "ls")]
    List(TokenListArguments),
    /// Show all fields, without the secret.
    Show(ResourceShowArguments),
    /// Create a token. It is printed once and cannot be shown again.
    Create(TokenCreateArguments),
    /// Revoke tokens.
    #[command(visible_alias = "delete")]
    Revoke(ResourceDeleteArguments),
}

/// Options of `ferrite token list`.
#[derive(Args, Debug)]
pub struct TokenListArguments {
    /// Only tokens of this user.
    #[arg(long, value_name = "NAME")]
    of: Option<String>,
    #[command(flatten)]
    list: ResourceListArguments,
}

/// Options of `ferrite token create`.
#[derive(Args, Debug)]
pub struct TokenCreateArguments {
    /// The user or service account it is for; by default you.
    #[arg(long = "for", value_name = "NAME")]
    for_user: Option<String>,
    /// What it is for.
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// When it expires, such as 12h or 90d, which is the default.
    #[arg(long, value_name = "DURATION", value_parser = wait::parse_duration)]
    expires: Option<Duration>,
    /// Create a token that does not expire.
    #[arg(long, conflicts_with = "expires")]
    never_expires: bool,
    /// Limit it to this role and the roles below it.
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Limit it to one project, or to `system`.
    #[arg(long, value_name = "SCOPE")]
    scope: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

pub(crate) async fn run(arguments: &ResourceArguments<TokenCommand>) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        TokenCommand::List(arguments) => {
            let mut query = QueryString::new();
            if let Some(user) = &arguments.of {
                query.add("user", user);
            }
            let path = query.append_to(TOKENS.path);
            let rows = async || {
                let found = context.api.find(&path).await?;
                Ok(take_rows(require_ferrite(found, "list tokens")?, TOKENS.list_key))
            };
            let ResourceListArguments { output, watch } = &arguments.list;
            watch::show_list(&context, watch, output.output, TOKENS.columns, rows).await
        }
        TokenCommand::Show(arguments) => TOKENS.show(&context, arguments).await,
        TokenCommand::Create(arguments) => create(&context, arguments).await,
        TokenCommand::Revoke(arguments) => TOKENS.delete(&context, arguments).await,
    }
}

async fn create(context: &CliContext, arguments: &TokenCreateArguments) -> Result<(), CliError> {
    let body = request_body(arguments);
    let created = context.api.send(Method::POST, TOKENS.path, Some(&body)).await;
    let created = created.map_err(|error| TOKENS.ferrite_only_error(error))?;
    if arguments.output.output.is_machine_readable() {
        context.screen.print(&arguments.output.output.format_single(&created, context.screen));
        return Ok(());
    }
    context.screen.print(created["token"].as_str().unwrap_or_default());
    let expiry = match created["expires_at"].as_str() {
        Some(at) => format!("it expires at {at}"),
        None => "it does not expire".to_owned(),
    };
    let id = created["id"].as_str().unwrap_or_default();
    let note = format!(
        "store this token, it cannot be shown again; {expiry}; revoke it with `ferrite token revoke {id}`"
    );
    context.screen.note(&note);
    Ok(())
}

fn request_body(arguments: &TokenCreateArguments) -> Value {
    let mut body = Map::new();
    body.insert("description".to_owned(), json!(arguments.description));
    body.insert("never_expires".to_owned(), json!(arguments.never_expires));
    for (field, value) in
        [("user", &arguments.for_user), ("role", &arguments.role), ("scope", &arguments.scope)]
    {
        if let Some(value) = value {
            body.insert(field.to_owned(), json!(value));
        }
    }
    if let Some(expires) = arguments.expires {
        body.insert("expires_in".to_owned(), json!(expires.as_secs()));
    }
    Value::Object(body)
}
