// SPDX-License-Identifier: Apache-2.0
//! What every command has at hand: the API it asks and the screen it shows things on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, Flags, Surroundings, Target};

use crate::failure::Failure;
use crate::screen::Screen;

/// Where they are in the help.
const HEADING: &str = "Whom to ask";

/// Options that say whom to ask, and as whom.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConnectionArguments {
    /// The API's address, such as http://127.0.0.1:6385. Without these options: FERRITE_PROFILE, OS_*,
    /// the default profile, the only cloud in clouds.yaml, this machine.
    #[arg(help_heading = HEADING, long, global = true, value_name = "URL")]
    url: Option<String>,
    /// A name to sign in with.
    #[arg(help_heading = HEADING,
          long, global = true, value_name = "NAME", requires_all = ["url", "password_file"],
          conflicts_with_all = ["profile", "cloud"])]
    user: Option<String>,
    /// A file with its password, such as DATA_DIR/admin-password.
    #[arg(help_heading = HEADING, long, global = true, value_name = "FILE", requires = "url",
          conflicts_with_all = ["profile", "cloud"])]
    password_file: Option<PathBuf>,
    /// A profile of ~/.config/ferrite/profiles.toml.
    #[arg(help_heading = HEADING, long, global = true, value_name = "NAME", conflicts_with = "url")]
    profile: Option<String>,
    /// A cloud of clouds.yaml.
    #[arg(help_heading = HEADING,
          long, global = true, value_name = "NAME", conflicts_with_all = ["url", "profile"])]
    cloud: Option<String>,
    /// Authorities to believe besides the usual ones, as PEM.
    #[arg(help_heading = HEADING, long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Believe any certificate.
    #[arg(help_heading = HEADING, long, global = true)]
    insecure: bool,
}

/// What every command has at hand.
#[derive(Clone)]
pub(crate) struct Desk {
    pub(crate) api: Arc<Api>,
    pub(crate) screen: Screen,
}

impl ConnectionArguments {
    pub(crate) fn desk(&self) -> Result<Desk, Failure> {
        let flags = Flags {
            url: self.url.clone(),
            user: self.user.clone(),
            password_file: self.password_file.clone(),
            profile: self.profile.clone(),
            cloud: self.cloud.clone(),
            authorities: self.cacert.clone(),
            insecure: self.insecure,
        };
        Desk::at(&flags)
    }
}

/// The words of a command line with what says whom to ask behind the command, where it is understood:
/// people also write it before.
pub(crate) fn connection_behind(mut words: Vec<OsString>) -> Vec<OsString> {
    const WITH_VALUE: [&str; 6] =
        ["--url", "--user", "--password-file", "--profile", "--cloud", "--cacert"];
    let mut command = 1;
    while let Some(word) = words.get(command).and_then(|word| word.to_str()) {
        let name = word.split('=').next().unwrap_or_default();
        command += match word {
            "--insecure" => 1,
            word if WITH_VALUE.contains(&word) => 2,
            _ if WITH_VALUE.contains(&name) => 1,
            _ => break,
        };
    }
    if command > 1 && command < words.len() {
        words[1..=command].rotate_right(1);
    }
    words
}

impl Desk {
    /// The desk for an API.
    pub(crate) fn at(flags: &Flags) -> Result<Self, Failure> {
        let target = Target::find(flags, &Surroundings::of_this_process())?;
        Ok(Self { api: Arc::new(Api::new(target)?), screen: Screen::of_this_process() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_to_ask_can_be_said_before_the_command() {
        for (given, understood) in [
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
            let words = given.split(' ').map(OsString::from).collect();
            let moved = connection_behind(words);
            assert_eq!(moved.join(&OsString::from(" ")), OsString::from(understood));
        }
    }
}
