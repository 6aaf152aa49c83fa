// SPDX-License-Identifier: Apache-2.0
//! Provision and power verbs of nodes.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ironic_client::{Api, ErrorClass, IronicClientError, Method, QueryString, percent_encode};
use serde_json::{Value, json};

use crate::bulk::{self, BulkArguments};
use crate::cli_error::CliError;
use crate::context::CliContext;
use crate::output::{OutputArguments, parse_json_or_yaml};
use crate::selection::{self, NodeSelection, SelectedNode};
use crate::wait::{self, TimeoutArguments, WaitGoal};

/// A provision verb, with the CLI's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Manage,
    Provide,
    Inspect,
    Adopt,
    Clean,
    Service,
    Deploy,
    Rebuild,
    Undeploy,
    Rescue,
    Unrescue,
    Abort,
    Unhold,
}

/// Options of every verb.
#[derive(Args, Clone, Debug)]
pub(crate) struct VerbArguments {
    #[command(flatten)]
    selection: NodeSelection,
    #[command(flatten)]
    bulk: BulkArguments,
    /// Wait until the operation has finished.
    #[arg(short, long, help_heading = wait::HEADING)]
    wait: bool,
    #[command(flatten)]
    timeout: TimeoutArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of verbs with steps.
#[derive(Args, Debug)]
pub(crate) struct StepsArguments {
    /// The steps, as JSON or YAML: a text, or @FILE.
    #[arg(long, value_name = "STEPS", required_unless_present = "runbook")]
    steps: Option<String>,
    /// A runbook with the steps.
    #[arg(long, value_name = "NAME", conflicts_with = "steps")]
    runbook: Option<String>,
    /// Do not boot a ramdisk for steps that need none.
    #[arg(long)]
    disable_ramdisk: bool,
    #[command(flatten)]
    verb: VerbArguments,
}

/// Options of `ferrite node deploy` and `rebuild`.
#[derive(Args, Debug)]
pub(crate) struct DeployVerbArguments {
    /// The config drive: JSON with meta_data, user_data and network_data, a URL, or @FILE.
    #[arg(long, value_name = "DRIVE")]
    config_drive: Option<String>,
    /// Additional steps, as JSON or YAML: a text, or @FILE.
    #[arg(long, value_name = "STEPS")]
    steps: Option<String>,
    #[command(flatten)]
    verb: VerbArguments,
}

/// Options of `ferrite node rescue`.
#[derive(Args, Debug)]
pub(crate) struct RescueArguments {
    /// A file with the password of the rescue system.
    #[arg(long, value_name = "FILE")]
    rescue_password_file: PathBuf,
    #[command(flatten)]
    verb: VerbArguments,
}

/// Commands of `ferrite node power`.
#[derive(Subcommand, Debug)]
pub(crate) enum PowerCommand {
    /// Power on machines.
    On(VerbArguments),
    /// Power off machines immediately.
    Off(VerbArguments),
    /// Power-cycle machines immediately.
    Reboot(VerbArguments),
    /// Shut machines down through their operating systems.
    SoftOff(VerbArguments),
    /// Reboot machines through their operating systems.
    SoftReboot(VerbArguments),
}

/// Options of `ferrite node wait`.
#[derive(Args, Debug)]
pub(crate) struct WaitArguments {
    /// The provision state to wait for; by default any stable state.
    #[arg(long = "for", value_name = "STATE")]
    state: Option<String>,
    #[command(flatten)]
    selection: NodeSelection,
    #[command(flatten)]
    timeout: TimeoutArguments,
    #[command(flatten)]
    output: OutputArguments,
}

/// A request to change the provision or power state of nodes.
struct StateRequest {
    /// The verb for messages.
    verb: &'static str,
    /// `provision` or `power`.
    state_kind: &'static str,
    body: Value,
    goal: WaitGoal,
    is_destructive: bool,
}

impl Verb {
    pub(crate) const ALL: &[Self] = &[
        Self::Manage,
        Self::Provide,
        Self::Inspect,
        Self::Adopt,
        Self::Clean,
        Self::Service,
        Self::Deploy,
        Self::Rebuild,
        Self::Undeploy,
        Self::Rescue,
        Self::Unrescue,
        Self::Abort,
        Self::Unhold,
    ];

    /// Parses a verb by its CLI or API name.
    pub(crate) fn parse(text: &str) -> Result<Self, CliError> {
        let text = if text == "delete" { "undeploy" } else { text };
        let is_named = |verb: &&Self| verb.name() == text || verb.target() == text;
        if let Some(verb) = Self::ALL.iter().find(is_named) {
            return Ok(*verb);
        }
        let names = || Self::ALL.iter().map(|verb| verb.name());
        let hint = match selection::closest_match(text, names()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("known verbs: {}", names().collect::<Vec<_>>().join(", ")),
        };
        Err(CliError::Usage(format!("unknown verb {text:?}; {hint}")))
    }

    /// The API field for its steps; `None` if it takes none.
    pub(crate) fn steps_field(self) -> Option<&'static str> {
        match self {
            Self::Clean => Some("clean_steps"),
            Self::Service => Some("service_steps"),
            Self::Deploy | Self::Rebuild => Some("deploy_steps"),
            Self::Manage
            | Self::Provide
            | Self::Inspect
            | Self::Adopt
            | Self::Undeploy
            | Self::Rescue
            | Self::Unrescue
            | Self::Abort
            | Self::Unhold => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Manage => "manage",
            Self::Provide => "provide",
            Self::Inspect => "inspect",
            Self::Adopt => "adopt",
            Self::Clean => "clean",
            Self::Service => "service",
            Self::Deploy => "deploy",
            Self::Rebuild => "rebuild",
            Self::Undeploy => "undeploy",
            Self::Rescue => "rescue",
            Self::Unrescue => "unrescue",
            Self::Abort => "abort",
            Self::Unhold => "unhold",
        }
    }

    /// The API's name of the verb.
    pub(crate) fn target(self) -> &'static str {
        match self {
            Self::Deploy => "active",
            Self::Undeploy => "deleted",
            Self::Manage
            | Self::Provide
            | Self::Inspect
            | Self::Adopt
            | Self::Clean
            | Self::Service
            | Self::Rebuild
            | Self::Rescue
            | Self::Unrescue
            | Self::Abort
            | Self::Unhold => self.name(),
        }
    }

    pub(crate) fn goal(self) -> WaitGoal {
        match self {
            Self::Manage | Self::Inspect | Self::Clean => WaitGoal::State(&["manageable"]),
            Self::Provide => WaitGoal::State(&["available"]),
            // A retired node becomes manageable instead of available.
            Self::Undeploy => WaitGoal::State(&["available", "manageable"]),
            Self::Adopt | Self::Service | Self::Deploy | Self::Rebuild | Self::Unrescue => {
                WaitGoal::State(&["active"])
            }
            Self::Rescue => WaitGoal::State(&["rescue"]),
            Self::Abort => WaitGoal::Stable,
            Self::Unhold => WaitGoal::StableWithoutFailure,
        }
    }

    /// Whether it destroys data or interrupts an instance.
    fn is_destructive(self) -> bool {
        match self {
            Self::Provide
            | Self::Clean
            | Self::Service
            | Self::Deploy
            | Self::Rebuild
            | Self::Undeploy
            | Self::Rescue
            | Self::Unrescue
            | Self::Abort => true,
            Self::Manage | Self::Inspect | Self::Adopt | Self::Unhold => false,
        }
    }

    fn request(self) -> StateRequest {
        StateRequest {
            verb: self.name(),
            state_kind: "provision",
            body: json!({ "target": self.target() }),
            goal: self.goal(),
            is_destructive: self.is_destructive(),
        }
    }
}

pub(crate) async fn run_verb(
    context: &CliContext,
    arguments: &VerbArguments,
    verb: Verb,
) -> Result<(), CliError> {
    send_request(context, arguments, verb.request()).await
}

pub(crate) async fn run_verb_with_steps(
    context: &CliContext,
    arguments: &StepsArguments,
    verb: Verb,
) -> Result<(), CliError> {
    let mut request = verb.request();
    if let Some(steps) = &arguments.steps {
        request.body[format!("{}_steps", verb.name())] = parse_option_value(steps, "--steps")?;
    }
    if let Some(runbook) = &arguments.runbook {
        request.body["runbook"] = json!(runbook);
    }
    if arguments.disable_ramdisk {
        request.body["disable_ramdisk"] = json!(true);
    }
    send_request(context, &arguments.verb, request).await
}

pub(crate) async fn deploy(
    context: &CliContext,
    arguments: &DeployVerbArguments,
    verb: Verb,
) -> Result<(), CliError> {
    let mut request = verb.request();
    if let Some(steps) = &arguments.steps {
        request.body["deploy_steps"] = parse_option_value(steps, "--steps")?;
    }
    if let Some(drive) = &arguments.config_drive {
        let is_url = drive.starts_with("http://") || drive.starts_with("https://");
        request.body["configdrive"] =
            if is_url { json!(drive) } else { parse_option_value(drive, "--config-drive")? };
    }
    send_request(context, &arguments.verb, request).await
}

pub(crate) async fn rescue(
    context: &CliContext,
    arguments: &RescueArguments,
) -> Result<(), CliError> {
    let path = &arguments.rescue_password_file;
    let text = std::fs::read_to_string(path)
        .map_err(|source| CliError::Unreadable { path: path.clone(), source })?;
    let mut request = Verb::Rescue.request();
    request.body["rescue_password"] = json!(text.trim_end());
    send_request(context, &arguments.verb, request).await
}

pub(crate) async fn power(context: &CliContext, command: &PowerCommand) -> Result<(), CliError> {
    let (arguments, verb, target, goal) = match command {
        PowerCommand::On(arguments) => (arguments, "power on", "power on", "power on"),
        PowerCommand::Off(arguments) => (arguments, "power off", "power off", "power off"),
        PowerCommand::Reboot(arguments) => (arguments, "reboot", "rebooting", "power on"),
        PowerCommand::SoftOff(arguments) => (arguments, "shut down", "soft power off", "power off"),
        PowerCommand::SoftReboot(arguments) => {
            (arguments, "soft reboot", "soft rebooting", "power on")
        }
    };
    let request = StateRequest {
        verb,
        state_kind: "power",
        body: json!({ "target": target }),
        goal: WaitGoal::Power(goal),
        is_destructive: target != "power on",
    };
    send_request(context, arguments, request).await
}

pub(crate) async fn wait(context: &CliContext, arguments: &WaitArguments) -> Result<(), CliError> {
    let goal = match &arguments.state {
        Some(state) => WaitGoal::Named(wait::validate_state(state)?.to_owned()),
        None => WaitGoal::Stable,
    };
    let selected = arguments.selection.resolve(context).await?;
    let machines = selected.into_iter().map(|machine| (machine, goal.clone())).collect();
    let outcomes = wait::wait_for(context, machines, arguments.timeout.deadline()).await;
    bulk::report(context, outcomes, arguments.output.output)
}

/// Requests a provision state of one node. The error of a rejected request lists the obstacles, if the
/// server reports them.
pub(crate) async fn request_provision_state(
    api: &Api,
    selected: &SelectedNode,
    target: &str,
    body: &Value,
) -> Result<(), CliError> {
    let path = format!("{}/states/provision", selected.path());
    match api.send(Method::PUT, &path, Some(body)).await {
        Ok(_) => Ok(()),
        Err(error) if error.class() == ErrorClass::Rejected => {
            Err(CliError::Rejected(message_with_obstacles(api, selected, target, &error).await))
        }
        Err(error) => Err(error.into()),
    }
}

async fn send_request(
    context: &CliContext,
    arguments: &VerbArguments,
    request: StateRequest,
) -> Result<(), CliError> {
    let selected = arguments.selection.resolve(context).await?;
    if request.is_destructive {
        bulk::confirm(context, request.verb, &selected, arguments.bulk.yes).await?;
    }
    let StateRequest { verb, state_kind, body, goal, .. } = request;
    let parallel = arguments.bulk.parallel;
    let requested = bulk::for_each_node(context, selected, parallel, move |api, machine| {
        let body = body.clone();
        async move {
            if state_kind == "provision" {
                let target = body["target"].as_str().unwrap_or_default().to_owned();
                request_provision_state(&api, &machine, &target, &body).await?;
            } else {
                let path = format!("{}/states/{state_kind}", machine.path());
                api.send(Method::PUT, &path, Some(&body)).await?;
            }
            Ok(format!("{verb} requested"))
        }
    })
    .await?;
    let outcomes = match arguments.wait {
        true => requested.wait_for_goal(context, &goal, arguments.timeout.deadline()).await,
        false => requested.outcomes,
    };
    bulk::report(context, outcomes, arguments.output.output)
}

async fn message_with_obstacles(
    api: &Api,
    selected: &SelectedNode,
    target: &str,
    error: &IronicClientError,
) -> String {
    let mut message = with_cli_verb(&error.to_string(), target);
    let path = format!("/v1/ferrite/nodes/{}/explain", percent_encode(&selected.uuid));
    let path = QueryString::new().with("target", target).append_to(&path);
    // Only Ferrite has explanations; the error is complete without them.
    let explained = api.get(&path).await.unwrap_or_default();
    for obstacle in explained["obstacles"].as_array().into_iter().flatten() {
        let obstacle = obstacle.as_str().unwrap_or_default();
        if !obstacle.is_empty() && !message.contains(obstacle) {
            message = format!("{message}\n  obstacle: {obstacle}");
        }
    }
    message
}

/// The CLI's name of an API verb: `active` is `deploy`. Unknown verbs are kept.
pub(crate) fn cli_verb_name(target: &str) -> &str {
    match Verb::parse(target) {
        Ok(verb) => verb.name(),
        Err(_) => target,
    }
}

/// Replaces the API's name of a verb in an error of Ironic by the CLI's name.
fn with_cli_verb(message: &str, target: &str) -> String {
    let name = cli_verb_name(target);
    message.replace(&format!("action \"{target}\""), &format!("action \"{name}\""))
}

/// Parses the value of an option, or the file it names.
pub(crate) fn parse_option_value(text: &str, option: &str) -> Result<Value, CliError> {
    match text.strip_prefix('@') {
        None => parse_json_or_yaml(text, option),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| CliError::Unreadable { path: path.into(), source })?;
            parse_json_or_yaml(&text, path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_contain_the_names_of_cli_verbs() {
        let error = |verb: &str| {
            format!(
                "The requested action \"{verb}\" can not be performed on node \"n\" while it is in \
                 state \"active\"."
            )
        };
        assert_eq!(with_cli_verb(&error("deleted"), "deleted"), error("undeploy"));
        assert_eq!(with_cli_verb(&error("active"), "active"), error("deploy"));
        assert_eq!(with_cli_verb(&error("provide"), "provide"), error("provide"));
    }
}
