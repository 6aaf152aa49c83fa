// SPDX-License-Identifier: Apache-2.0
//! Commands that put a system on the disk and let it start.

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::CommandError;
use serde_json::{Map, Value, json};

use super::extensions::failed;
use super::journal::{Failed, Outcome};
use crate::agent::Agent;
use crate::managers::{StepError, images};

/// The server reads the result of `standby.kexec` within this time, or learns from the machine itself.
const BEFORE_KEXEC: Duration = Duration::from_secs(2);

/// `standby.prepare_image`: writes an image, as the step `write_image` does.
pub(super) async fn prepare(agent: &Agent, params: &Map<String, Value>) -> Outcome {
    if !agent.may_touch_disks() {
        return Err(failed("ImageWriteError", "this agent may not change disks"));
    }
    images::write(agent, &agent.node(), params).await.map_err(of_step)
}

/// `image.install_bootloader`.
pub(super) async fn install_bootloader(agent: &Agent, params: &Map<String, Value>) -> Outcome {
    if !agent.may_touch_disks() {
        return Err(failed("CommandExecutionError", "this agent may not change disks"));
    }
    images::install_bootloader(agent, params).await.map(|()| Value::Null).map_err(of_step)
}

/// `standby.kexec`: loads the kernel of the deployed system, and starts it after the server had time
/// to read that this succeeded.
pub(super) async fn kexec(agent: &Arc<Agent>) -> Outcome {
    if !agent.own_machine {
        return Err(failed("CommandExecutionError", "this is not the agent's own machine"));
    }
    let from = images::load_for_kexec(agent).await.map_err(of_step)?;
    tokio::spawn(async {
        tokio::time::sleep(BEFORE_KEXEC).await;
        images::start_by_kexec();
    });
    Ok(json!({ "result": format!("kexec: {from}") }))
}

fn of_step(error: StepError) -> Failed {
    match error {
        StepError::Failed(error) => Failed::Error(error),
        StepError::NotMine => Failed::Error(CommandError::default()),
    }
}
