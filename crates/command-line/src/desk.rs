// SPDX-License-Identifier: Apache-2.0
//! What every command has at hand: the API it asks and the screen it shows things on.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ironic_client::{Api, Flags, Surroundings, Target};

use crate::failure::Failure;
use crate::screen::Screen;

/// Options that say whom to ask, and as whom.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Whom to ask")]
pub(crate) struct ConnectionArguments {
    /// The API's address, such as http://127.0.0.1:6385. Without these options: FERRITE_PROFILE, OS_*,
    /// the default profile, the only cloud in clouds.yaml, this machine.
    #[arg(long, global = true, value_name = "URL")]
    url: Option<String>,
    /// A name to sign in with.
    #[arg(long, global = true, value_name = "NAME", requires_all = ["url", "password_file"])]
    user: Option<String>,
    /// A file with its password, such as DATA_DIR/admin-password.
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// A profile of ~/.config/ferrite/profiles.toml.
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "url")]
    profile: Option<String>,
    /// A cloud of clouds.yaml.
    #[arg(long, global = true, value_name = "NAME", conflicts_with_all = ["url", "profile"])]
    cloud: Option<String>,
    /// Authorities to believe besides the usual ones, as PEM.
    #[arg(long, global = true, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// Believe any certificate.
    #[arg(long, global = true)]
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

impl Desk {
    /// The desk for an API.
    pub(crate) fn at(flags: &Flags) -> Result<Self, Failure> {
        let target = Target::find(flags, &Surroundings::of_this_process())?;
        Ok(Self { api: Arc::new(Api::new(target)?), screen: Screen::of_this_process() })
    }
}
