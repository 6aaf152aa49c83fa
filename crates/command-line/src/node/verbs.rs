// SPDX-License-Identifier: Apache-2.0
//! The verbs: what machines are asked to do, and waiting for it.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ironic_client::{Api, ApiError, Kind, Method, segment};
use serde_json::{Value, json};

use crate::bulk::{self, BulkArguments};
use crate::desk::Desk;
use crate::failure::Failure;
use crate::output::{OutputArguments, parsed};
use crate::selection::{self, Chosen, Selection};
use crate::wait::{self, Goal, Patience};

/// What a machine can be asked.
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
    selection: Selection,
    #[command(flatten)]
    bulk: BulkArguments,
    /// Wait until it is done.
    #[arg(short, long, help_heading = wait::HEADING)]
    wait: bool,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    output: OutputArguments,
}

/// Options of verbs with steps.
#[derive(Args, Debug)]
pub(crate) struct StepsArguments {
    /// The steps, as JSON or YAML: a text, or @FILE.
    #[arg(long, value_name = "STEPS", required_unless_present = "runbook")]
    steps: Option<String>,
    /// A runbook that has the steps.
    #[arg(long, value_name = "NAME", conflicts_with = "steps")]
    runbook: Option<String>,
    /// Run steps that need no ramdisk without booting one.
    #[arg(long)]
    disable_ramdisk: bool,
    #[command(flatten)]
    verb: VerbArguments,
}

/// Options of deploying a machine that is ready for it.
#[derive(Args, Debug)]
pub(crate) struct DeployVerbArguments {
    /// The config drive: JSON with meta_data, user_data and network_data, a URL, or @FILE.
    #[arg(long, value_name = "DRIVE")]
    config_drive: Option<String>,
    /// Steps to run besides the usual ones, as JSON or YAML: a text, or @FILE.
    #[arg(long, value_name = "STEPS")]
    steps: Option<String>,
    #[command(flatten)]
    verb: VerbArguments,
}

/// Options of rescuing.
#[derive(Args, Debug)]
pub(crate) struct RescueArguments {
    /// A file with the password of the rescue system.
    #[arg(long, value_name = "FILE")]
    rescue_password_file: PathBuf,
    #[command(flatten)]
    verb: VerbArguments,
}

/// Changes of power.
#[derive(Subcommand, Debug)]
pub(crate) enum PowerCommand {
    /// Switch machines on.
    On(VerbArguments),
    /// Switch machines off at once.
    Off(VerbArguments),
    /// Switch machines off and on again at once.
    Reboot(VerbArguments),
    /// Ask the systems on machines to shut down.
    SoftOff(VerbArguments),
    /// Ask the systems on machines to start again.
    SoftReboot(VerbArguments),
}

/// Options of `ferrite node wait`.
#[derive(Args, Debug)]
pub(crate) struct WaitArguments {
    /// The provision state to wait for. Any that lasts if none is given.
    #[arg(long = "for", value_name = "STATE")]
    state: Option<String>,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    output: OutputArguments,
}

/// A request to machines, whichever kind of state it is about.
struct Asking {
    /// What is asked, for people.
    word: &'static str,
    /// `provision` or `power`.
    kind: &'static str,
    body: Value,
    goal: Goal,
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

    /// The verb of this name: ours, or the API's.
    pub(crate) fn named(word: &str) -> Result<Self, Failure> {
        let word = if word == "delete" { "undeploy" } else { word };
        let is_meant = |verb: &&Self| verb.word() == word || verb.target() == word;
        if let Some(verb) = Self::ALL.iter().find(is_meant) {
            return Ok(*verb);
        }
        let words = || Self::ALL.iter().map(|verb| verb.word());
        let hint = match selection::alike(word, words()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("there are {}", words().collect::<Vec<_>>().join(", ")),
        };
        Err(Failure::Usage(format!("there is no verb {word:?}; {hint}")))
    }

    /// What its steps are called in the API, if it takes some.
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

    pub(crate) fn word(self) -> &'static str {
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

    /// What the API calls it.
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
            | Self::Unhold => self.word(),
        }
    }

    pub(crate) fn goal(self) -> Goal {
        match self {
            Self::Manage | Self::Inspect | Self::Clean => Goal::State(&["manageable"]),
            Self::Provide => Goal::State(&["available"]),
            // A machine that is retired does not become available again.
            Self::Undeploy => Goal::State(&["available", "manageable"]),
            Self::Adopt | Self::Service | Self::Deploy | Self::Rebuild | Self::Unrescue => {
                Goal::State(&["active"])
            }
            Self::Rescue => Goal::State(&["rescue"]),
            Self::Abort => Goal::Rest,
            Self::Unhold => Goal::RestWell,
        }
    }

    /// Whether data is lost by it, or somebody's instance interrupted.
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

    fn asking(self) -> Asking {
        Asking {
            word: self.word(),
            kind: "provision",
            body: json!({ "target": self.target() }),
            goal: self.goal(),
            is_destructive: self.is_destructive(),
        }
    }
}

pub(crate) async fn plain(
    desk: &Desk,
    arguments: &VerbArguments,
    verb: Verb,
) -> Result<(), Failure> {
    ask(desk, arguments, verb.asking()).await
}

pub(crate) async fn with_steps(
    desk: &Desk,
    arguments: &StepsArguments,
    verb: Verb,
) -> Result<(), Failure> {
    let mut asking = verb.asking();
    if let Some(steps) = &arguments.steps {
        asking.body[format!("{}_steps", verb.word())] = written(steps, "--steps")?;
    }
    if let Some(runbook) = &arguments.runbook {
        asking.body["runbook"] = json!(runbook);
    }
    if arguments.disable_ramdisk {
        asking.body["disable_ramdisk"] = json!(true);
    }
    ask(desk, &arguments.verb, asking).await
}

pub(crate) async fn deploy(
    desk: &Desk,
    arguments: &DeployVerbArguments,
    verb: Verb,
) -> Result<(), Failure> {
    let mut asking = verb.asking();
    if let Some(steps) = &arguments.steps {
        asking.body["deploy_steps"] = written(steps, "--steps")?;
    }
    if let Some(drive) = &arguments.config_drive {
        let is_url = drive.starts_with("http://") || drive.starts_with("https://");
        asking.body["configdrive"] =
            if is_url { json!(drive) } else { written(drive, "--config-drive")? };
    }
    ask(desk, &arguments.verb, asking).await
}

pub(crate) async fn rescue(desk: &Desk, arguments: &RescueArguments) -> Result<(), Failure> {
    let path = &arguments.rescue_password_file;
    let text = std::fs::read_to_string(path)
        .map_err(|source| Failure::Unreadable { path: path.clone(), source })?;
    let mut asking = Verb::Rescue.asking();
    asking.body["rescue_password"] = json!(text.trim_end());
    ask(desk, &arguments.verb, asking).await
}

pub(crate) async fn power(desk: &Desk, command: &PowerCommand) -> Result<(), Failure> {
    let (arguments, word, target, goal) = match command {
        PowerCommand::On(arguments) => (arguments, "switch on", "power on", "power on"),
        PowerCommand::Off(arguments) => (arguments, "switch off", "power off", "power off"),
        PowerCommand::Reboot(arguments) => (arguments, "reboot", "rebooting", "power on"),
        PowerCommand::SoftOff(arguments) => (arguments, "shut down", "soft power off", "power off"),
        PowerCommand::SoftReboot(arguments) => (arguments, "restart", "soft rebooting", "power on"),
    };
    let asking = Asking {
        word,
        kind: "power",
        body: json!({ "target": target }),
        goal: Goal::Power(goal),
        is_destructive: target != "power on",
    };
    ask(desk, arguments, asking).await
}

pub(crate) async fn wait(desk: &Desk, arguments: &WaitArguments) -> Result<(), Failure> {
    let goal = match &arguments.state {
        Some(state) => Goal::Named(wait::known_state(state)?.to_owned()),
        None => Goal::Rest,
    };
    let chosen = arguments.selection.chosen(desk).await?;
    let machines = chosen.into_iter().map(|machine| (machine, goal.clone())).collect();
    let outcomes = wait::wait_for(desk, machines, arguments.patience.deadline()).await;
    bulk::told(desk, outcomes, arguments.output.output)
}

/// Asks one machine for a change of provision state. A refusal says what stands in the way, where the
/// server tells.
pub(crate) async fn provision(
    api: &Api,
    chosen: &Chosen,
    target: &str,
    body: &Value,
) -> Result<(), Failure> {
    let path = format!("{}/states/provision", chosen.path());
    match api.send(Method::PUT, &path, Some(body)).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == Kind::Refused => {
            Err(Failure::Refused(with_obstacles(api, chosen, target, &error).await))
        }
        Err(error) => Err(error.into()),
    }
}

async fn ask(desk: &Desk, arguments: &VerbArguments, asking: Asking) -> Result<(), Failure> {
    let chosen = arguments.selection.chosen(desk).await?;
    if asking.is_destructive {
        bulk::consent(desk, asking.word, &chosen, arguments.bulk.yes).await?;
    }
    let Asking { word, kind, body, goal, .. } = asking;
    let asked = bulk::each(desk, chosen, arguments.bulk.parallel, move |api, machine| {
        let body = body.clone();
        async move {
            if kind == "provision" {
                let target = body["target"].as_str().unwrap_or_default().to_owned();
                provision(&api, &machine, &target, &body).await?;
            } else {
                let path = format!("{}/states/{kind}", machine.path());
                api.send(Method::PUT, &path, Some(&body)).await?;
            }
            Ok(format!("was asked to {word}"))
        }
    })
    .await?;
    let outcomes = match arguments.wait {
        true => asked.reached(desk, &goal, arguments.patience.deadline()).await,
        false => asked.outcomes,
    };
    bulk::told(desk, outcomes, arguments.output.output)
}

async fn with_obstacles(api: &Api, chosen: &Chosen, target: &str, error: &ApiError) -> String {
    let mut told = error.to_string();
    let path =
        format!("/v1/ferrite/nodes/{}/explain?target={}", segment(&chosen.uuid), segment(target));
    // Not every server can explain, and the refusal stands without it.
    let explained = api.get(&path).await.unwrap_or_default();
    for obstacle in explained["obstacles"].as_array().into_iter().flatten() {
        let obstacle = obstacle.as_str().unwrap_or_default();
        if !obstacle.is_empty() && !told.contains(obstacle) {
            told = format!("{told}\n  in its way: {obstacle}");
        }
    }
    told
}

/// What is written in an option, or in the file it names.
pub(crate) fn written(text: &str, option: &str) -> Result<Value, Failure> {
    match text.strip_prefix('@') {
        None => parsed(text, option),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| Failure::Unreadable { path: path.into(), source })?;
            parsed(&text, path)
        }
    }
}
