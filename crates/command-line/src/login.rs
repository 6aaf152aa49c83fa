// SPDX-License-Identifier: Apache-2.0
//! `ferrite login`: signs in with the OpenID Connect provider of the server (Ferrite only).

use clap::Args;
use ironic_client::{Api, ApiTarget, ClientEnvironment, DevicePrompt};

use crate::cli_error::CliError;
use crate::context::ConnectionArguments;
use crate::screen::{Screen, without_control_characters};

/// Options of `ferrite login`.
#[derive(Args, Debug)]
pub struct LoginArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
}

pub(crate) async fn run(arguments: &LoginArguments) -> Result<(), CliError> {
    let environment = ClientEnvironment::from_process();
    let target = ApiTarget::find(&arguments.connection.flags(), &environment)?;
    let Some(login) = target.openid_login(&environment) else {
        let problem = "there is no sign-in over a Unix socket or with Keystone; give --url";
        return Err(CliError::Usage(problem.to_owned()));
    };
    let (api, screen) = (Api::new(target)?, Screen::from_process());
    let show = |prompt: &DevicePrompt| {
        let (page, code) =
            (without_control_characters(&prompt.page), without_control_characters(&prompt.code));
        screen.note(&format!("open {page} in a browser and enter the code {code}"));
        if let Some(page) = &prompt.page_with_code {
            screen.note(&format!("or open {}", without_control_characters(page)));
        }
    };
    api.sign_in_with_device(&login, show).await?;
    screen.note(&format!("signed in to {}", api.address()));
    Ok(())
}
