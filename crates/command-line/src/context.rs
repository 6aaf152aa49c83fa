// SPDX-License-Identifier: Apache-2.0
//! The API client and the screen of a command, and the options that select the server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, ApiTarget, ClientEnvironment, TargetFlags};

use crate::cli_error::CliError;
use crate::screen::Screen;

/// Help heading.
const HELP_HEADING: &str = "Connection";

/// Options that select the server and the credentials.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectionArguments {
    /// URL of the API, such as http://127.0.0.1:6385. Without these options: FERRITE_URL, FERRITE_PROFILE, OS_*,
    /// the default profile, the only cloud in clouds.yaml, this host.
    #[arg(help_heading = HELP_HEADING, long, global = true, value_name = "URL")]
    url: Option<String>,
    /// User name.
    #[arg(help_heading = HELP_HEADING,
          long, global = true, value_name = "NAME", requires_all = ["url", "password_file"],
          conflicts_with_all = ["profile", "cloud"])]
    user: Option<String>,
    /// A file with the password, such as DATA_DIR/admin-password.
    #[arg(help_heading = HELP_HEADING, long, global = true, value_name = "FILE", requires = "url",
          conflicts_with_all = ["profile", "cloud"])]
    password_file: Option<PathBuf>,
    /// A file with an API token; without it, FERRITE_TOKEN is used for FERRITE_URL.
    #[arg(help_heading = HELP_HEADING, long, global = true, value_name = "FILE", requires = "url",
          conflicts_with_all = ["user", "password_file", "profile", "cloud"])]
    token_file: Option<PathBuf>,
    /// A profile in ~/.config/ferrite/profiles.toml.
    #[arg(help_heading = HELP_HEADING, long, global = true, value_name = "NAME", conflicts_with = "url")]
    profile: Option<String>,
    /// A cloud in clouds.yaml.
    #[arg(help_heading = HELP_HEADING,
          long, global = true, value_name = "NAME", conflicts_with_all = ["url", "profile"])]
    cloud: Option<String>,
    /// CA certificates to trust in addition to the system's (PEM).
    #[arg(help_heading = HELP_HEADING, long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// A certificate that authenticates you to the server (PEM); by default OS_CERT.
    #[arg(help_heading = HELP_HEADING, long, global = true, value_name = "FILE")]
    client_certificate: Option<PathBuf>,
    /// The private key of that certificate (PEM), if it is in another file; by default OS_KEY.
    #[arg(help_heading = HELP_HEADING, long, global = true, value_name = "FILE",
          requires = "client_certificate")]
    client_key: Option<PathBuf>,
    /// Accept any certificate.
    #[arg(help_heading = HELP_HEADING, long, global = true)]
    insecure: bool,
}

/// The API client and the screen.
#[derive(Clone)]
pub(crate) struct CliContext {
    pub(crate) api: Arc<Api>,
    pub(crate) screen: Screen,
}

impl ConnectionArguments {
    pub(crate) fn context(&self) -> Result<CliContext, CliError> {
        CliContext::connect(&self.flags())
    }

    pub(crate) fn flags(&self) -> TargetFlags {
        TargetFlags {
            url: self.url.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            token_file: self.token_file.clone(),
            profile: self.profile.clone(),
            cloud: self.cloud.clone(),
            ca_file: self.cacert.clone(),
            client_certificate: self.client_certificate.clone(),
            client_key: self.client_key.clone(),
            insecure: self.insecure,
        }
    }
}

/// Moves connection options from before the subcommand, where users also write them, to after it,
/// where the parser accepts them.
pub(crate) fn move_connection_options(mut arguments: Vec<OsString>) -> Vec<OsString> {
    const WITH_VALUE: [&str; 9] = [
        "--url",
        "--user",
        "--password-file",
        "--token-file",
        "--profile",
        "--cloud",
        "--cacert",
        "--client-certificate",
        "--client-key",
    ];
    let mut command = 1;
    while let Some(argument) = arguments.get(command).and_then(|argument| argument.to_str()) {
        let name = argument.split('=').next().unwrap_or_default();
        command += match argument {
            "--insecure" => 1,
            argument if WITH_VALUE.contains(&argument) => 2,
            _ if WITH_VALUE.contains(&name) => 1,
            _ => break,
        };
    }
    if command > 1 && command < arguments.len() {
        arguments[1..=command].rotate_right(1);
    }
    arguments
}

impl CliContext {
    /// Creates the context for the server that the flags and the environment select.
    pub(crate) fn connect(flags: &TargetFlags) -> Result<Self, CliError> {
        let target = ApiTarget::find(flags, &ClientEnvironment::from_process())?;
        Ok(Self { api: Arc::new(Api::new(target)?), screen: Screen::from_process() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_options_are_accepted_before_the_subcommand() {
        for (given, expected) in [
            ("f node list", "f node list"),
            ("f --url u node list", "f node --url u list"),
            ("f --url=u --insecure deploy --image i", "f deploy --url=u --insecure --image i"),
            ("f --profile p --cacert c node show n", "f node --profile p --cacert c show n"),
            ("f node --url u list", "f node --url u list"),
            ("f --verbose --url u node", "f --verbose --url u node"),
            ("f --url u", "f --url u"),
            ("f --url", "f --url"),
            ("f --help", "f --help"),
            ("f", "f"),
        ] {
            let arguments = given.split(' ').map(OsString::from).collect();
            let moved = move_connection_options(arguments);
            assert_eq!(moved.join(&OsString::from(" ")), OsString::from(expected));
        }
    }
}
