// SPDX-License-Identifier: Apache-2.0
//! `ferrite user`, `ferrite project` and `ferrite whoami` (Ferrite only).

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ironic_client::{Method, QueryString, percent_encode};
use serde_json::{Map, Value, json};

use crate::cli_error::CliError;
use crate::context::{CliContext, ConnectionArguments};
use crate::node::queries::require_ferrite;
use crate::output::OutputArguments;
use crate::password_input::{PasswordPrompt, read_password};
use crate::resource_actions::{
    ResourceDeleteArguments, ResourceListArguments, ResourceShowArguments,
};
use crate::resource_types::{PROJECTS, ResourceType, USERS};
use crate::resources::ResourceArguments;

/// Commands for users.
#[derive(Subcommand, Debug)]
pub enum UserCommand {
    /// List users and service accounts.
    #[command(visible_alias = "ls")]
    List(ResourceListArguments),
    /// Show all fields.
    Show(ResourceShowArguments),
    /// Create a user or a service account.
    Create(UserCreateArguments),
    /// Change roles and other fields.
    Set(UserSetArguments),
    /// Set a password.
    Password(UserPasswordArguments),
    /// End all sessions of the web UI.
    SignOut(UserSignOutArguments),
    /// Delete users with their tokens and sessions.
    #[command(visible_alias = "rm")]
    Delete(ResourceDeleteArguments),
}

/// Commands for projects.
#[derive(Subcommand, Debug)]
pub enum ProjectCommand {
    /// List projects.
    #[command(visible_alias = "ls")]
    List(ResourceListArguments),
    /// Show all fields.
    Show(ResourceShowArguments),
    /// Create a project.
    Create(ProjectCreateArguments),
    /// Change fields.
    Set(ProjectSetArguments),
    /// Delete projects with their role assignments and tokens.
    #[command(visible_alias = "rm")]
    Delete(ResourceDeleteArguments),
}

/// Options of `ferrite user create`.
#[derive(Args, Debug)]
pub struct UserCreateArguments {
    /// Its name.
    #[arg(value_name = "NAME")]
    name: String,
    /// Create a service account: it has no password and uses API tokens.
    #[arg(long, conflicts_with_all = ["new_password_file", "no_password"])]
    service: bool,
    /// A role and its scope: member@PROJECT, reader@system. May be given several times.
    #[arg(long = "role", value_name = "ROLE@SCOPE", value_delimiter = ',')]
    roles: Vec<String>,
    /// A file with the password, or - for standard input. By default it is read from the terminal.
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
    /// Create a user who cannot sign in with a password.
    #[arg(long, conflicts_with = "new_password_file")]
    no_password: bool,
    /// Free text.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// The project that applies if a request selects none.
    #[arg(long, value_name = "PROJECT")]
    default_project: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite user set`.
#[derive(Args, Debug)]
pub struct UserSetArguments {
    /// The user.
    #[arg(value_name = "NAME")]
    name: String,
    /// Replace all roles by these.
    #[arg(long = "role", value_name = "ROLE@SCOPE", value_delimiter = ',',
          conflicts_with_all = ["add_roles", "remove_roles"])]
    roles: Vec<String>,
    /// Add a role.
    #[arg(long = "add-role", value_name = "ROLE@SCOPE", value_delimiter = ',')]
    add_roles: Vec<String>,
    /// Remove a role.
    #[arg(long = "remove-role", value_name = "ROLE@SCOPE", value_delimiter = ',')]
    remove_roles: Vec<String>,
    #[command(flatten)]
    enabled: EnabledArguments,
    /// Free text; an empty text removes it.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// The project that applies if a request selects none; an empty text removes it.
    #[arg(long, value_name = "PROJECT")]
    default_project: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options that enable or disable.
#[derive(Args, Debug)]
pub(crate) struct EnabledArguments {
    /// Allow its use again.
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Forbid its use, without deleting it.
    #[arg(long)]
    disable: bool,
}

/// Options of `ferrite user password`.
#[derive(Args, Debug)]
pub struct UserPasswordArguments {
    /// The user.
    #[arg(value_name = "NAME")]
    name: String,
    /// A file with the new password, or - for standard input. By default it is read from the terminal.
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
    /// A file with the current password, which you need for your own password.
    #[arg(long, value_name = "FILE")]
    current_password_file: Option<PathBuf>,
}

/// Options of `ferrite user sign-out`.
#[derive(Args, Debug)]
pub struct UserSignOutArguments {
    /// The user.
    #[arg(value_name = "NAME")]
    name: String,
}

/// Options of `ferrite project create`.
#[derive(Args, Debug)]
pub struct ProjectCreateArguments {
    /// Its name, which is the owner or lessee of machines.
    #[arg(value_name = "NAME")]
    name: String,
    /// Free text.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite project set`.
#[derive(Args, Debug)]
pub struct ProjectSetArguments {
    /// The project.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    enabled: EnabledArguments,
    /// Free text; an empty text removes it.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of `ferrite whoami`.
#[derive(Args, Debug)]
pub struct WhoamiArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    #[command(flatten)]
    output: OutputArguments,
}

impl EnabledArguments {
    fn value(&self) -> Option<bool> {
        (self.enable || self.disable).then_some(self.enable)
    }
}

pub(crate) async fn users(arguments: &ResourceArguments<UserCommand>) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        UserCommand::List(arguments) => USERS.list(&context, QueryString::new(), arguments).await,
        UserCommand::Show(arguments) => USERS.show(&context, arguments).await,
        UserCommand::Create(arguments) => create_user(&context, arguments).await,
        UserCommand::Set(arguments) => set_user(&context, arguments).await,
        UserCommand::Password(arguments) => set_password(&context, arguments).await,
        UserCommand::SignOut(arguments) => {
            let path = format!("{}/sessions", path_of(&USERS, &arguments.name));
            let ended = context.api.send(Method::DELETE, &path, None).await?;
            context.screen.print(&format!("{}: {} sessions ended", arguments.name, ended["ended"]));
            Ok(())
        }
        UserCommand::Delete(arguments) => USERS.delete(&context, arguments).await,
    }
}

pub(crate) async fn projects(
    arguments: &ResourceArguments<ProjectCommand>,
) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    match &arguments.command {
        ProjectCommand::List(arguments) => {
            PROJECTS.list(&context, QueryString::new(), arguments).await
        }
        ProjectCommand::Show(arguments) => PROJECTS.show(&context, arguments).await,
        ProjectCommand::Create(arguments) => {
            let body = json!({"name": arguments.name, "description": arguments.description});
            let created = context.api.send(Method::POST, PROJECTS.path, Some(&body)).await;
            let created = created.map_err(|error| PROJECTS.ferrite_only_error(error))?;
            show_created(&context, &created, &arguments.output);
            Ok(())
        }
        ProjectCommand::Set(arguments) => {
            let mut changes = Map::new();
            add_text(&mut changes, "description", arguments.description.as_deref());
            add_enabled(&mut changes, &arguments.enabled);
            patch(&context, &PROJECTS, &arguments.name, changes, &arguments.output).await
        }
        ProjectCommand::Delete(arguments) => PROJECTS.delete(&context, arguments).await,
    }
}

pub(crate) async fn whoami(arguments: &WhoamiArguments) -> Result<(), CliError> {
    let context = arguments.connection.context()?;
    let found = context.api.find("/v1/ferrite/whoami").await?;
    let found = require_ferrite(found, "show the user")?;
    context.screen.print(&arguments.output.output.format_single(&found, context.screen));
    Ok(())
}

async fn create_user(
    context: &CliContext,
    arguments: &UserCreateArguments,
) -> Result<(), CliError> {
    let mut body = json!({
        "name": arguments.name,
        "kind": if arguments.service { "service" } else { "human" },
        "roles": arguments.roles,
        "description": arguments.description,
        "default_project": arguments.default_project,
    });
    if !arguments.service && !arguments.no_password {
        let prompt = PasswordPrompt::New(&arguments.name);
        let password =
            read_password(arguments.new_password_file.as_deref(), prompt, context.screen)?;
        body["password"] = json!(password.reveal());
    }
    let created = context.api.send(Method::POST, USERS.path, Some(&body)).await;
    let created = created.map_err(|error| USERS.ferrite_only_error(error))?;
    show_created(context, &created, &arguments.output);
    Ok(())
}

async fn set_user(context: &CliContext, arguments: &UserSetArguments) -> Result<(), CliError> {
    let mut changes = Map::new();
    add_text(&mut changes, "description", arguments.description.as_deref());
    add_text(&mut changes, "default_project", arguments.default_project.as_deref());
    add_enabled(&mut changes, &arguments.enabled);
    if !arguments.roles.is_empty() {
        changes.insert("roles".to_owned(), json!(arguments.roles));
    } else if !arguments.add_roles.is_empty() || !arguments.remove_roles.is_empty() {
        let user = USERS.fetch(context, &arguments.name).await?;
        let roles = changed_roles(&user["roles"], &arguments.add_roles, &arguments.remove_roles)?;
        changes.insert("roles".to_owned(), json!(roles));
    }
    patch(context, &USERS, &arguments.name, changes, &arguments.output).await
}

/// The roles after adding and removing some. Fails if a removed role is not there.
fn changed_roles(
    current: &Value,
    added: &[String],
    removed: &[String],
) -> Result<Vec<String>, CliError> {
    let current = current.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut roles: Vec<String> = current.map(str::to_owned).collect();
    for role in removed {
        let before = roles.len();
        roles.retain(|other| other != role);
        if roles.len() == before {
            let assigned = if roles.is_empty() { "none".to_owned() } else { roles.join(", ") };
            return Err(CliError::Usage(format!(
                "the user does not have the role {role}; assigned: {assigned}"
            )));
        }
    }
    for role in added {
        if !roles.contains(role) {
            roles.push(role.clone());
        }
    }
    Ok(roles)
}

async fn set_password(
    context: &CliContext,
    arguments: &UserPasswordArguments,
) -> Result<(), CliError> {
    let mut body = Map::new();
    if let Some(file) = &arguments.current_password_file {
        let prompt = PasswordPrompt::Current(&arguments.name);
        let current = read_password(Some(file), prompt, context.screen)?;
        body.insert("current_password".to_owned(), json!(current.reveal()));
    } else if context.screen.is_interactive && arguments.new_password_file.is_none() {
        let own = context.api.find("/v1/ferrite/whoami").await?.unwrap_or_default();
        if own["user"].as_str() == Some(&arguments.name) {
            let prompt = PasswordPrompt::Current(&arguments.name);
            let current = read_password(None, prompt, context.screen)?;
            body.insert("current_password".to_owned(), json!(current.reveal()));
        }
    }
    let prompt = PasswordPrompt::New(&arguments.name);
    let password = read_password(arguments.new_password_file.as_deref(), prompt, context.screen)?;
    body.insert("password".to_owned(), json!(password.reveal()));
    let path = format!("{}/password", path_of(&USERS, &arguments.name));
    context.api.send(Method::PUT, &path, Some(&Value::Object(body))).await?;
    context.screen.print(&format!("{}: password changed", arguments.name));
    Ok(())
}

async fn patch(
    context: &CliContext,
    kind: &ResourceType,
    name: &str,
    changes: Map<String, Value>,
    output: &OutputArguments,
) -> Result<(), CliError> {
    if changes.is_empty() {
        return Err(CliError::Usage("give at least one change".to_owned()));
    }
    let body = Value::Object(changes);
    let changed = context.api.send(Method::PATCH, &path_of(kind, name), Some(&body)).await?;
    if output.output.is_machine_readable() {
        context.screen.print(&output.output.format_single(&changed, context.screen));
    } else {
        context.screen.print(&format!("{name}: changed"));
    }
    Ok(())
}

fn show_created(context: &CliContext, created: &Value, output: &OutputArguments) {
    if output.output.is_machine_readable() {
        context.screen.print(&output.output.format_single(created, context.screen));
    } else {
        context.screen.print(created["name"].as_str().unwrap_or_default());
    }
}

fn path_of(kind: &ResourceType, name: &str) -> String {
    format!("{}/{}", kind.path, percent_encode(name))
}

/// Adds a text, or null if it is empty.
fn add_text(changes: &mut Map<String, Value>, field: &str, text: Option<&str>) {
    if let Some(text) = text {
        let value = if text.is_empty() { Value::Null } else { json!(text) };
        changes.insert(field.to_owned(), value);
    }
}

fn add_enabled(changes: &mut Map<String, Value>, enabled: &EnabledArguments) {
    if let Some(enabled) = enabled.value() {
        changes.insert("enabled".to_owned(), json!(enabled));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_and_removes_roles() {
        let current = json!(["member@a", "reader@system"]);
        let texts = |roles: &[&str]| roles.iter().map(ToString::to_string).collect::<Vec<String>>();
        for (added, removed, expected) in [
            (
                &["admin@b", "member@a"][..],
                &[][..],
                Ok(&["member@a", "reader@system", "admin@b"][..]),
            ),
            (&[], &["member@a"], Ok(&["reader@system"])),
            (
                &[],
                &["admin@a"],
                Err("the user does not have the role admin@a; assigned: member@a, reader@system"),
            ),
        ] {
            let roles = changed_roles(&current, &texts(added), &texts(removed));
            let roles = roles.map_err(|error| error.to_string());
            let expected = expected.map(texts).map_err(str::to_owned);
            assert_eq!(roles, expected);
        }
    }
}
