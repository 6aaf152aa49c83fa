// SPDX-License-Identifier: Apache-2.0
//! Commands that write an image, install a boot loader or start the deployed system.

use std::sync::Arc;
use std::time::Duration;

use agent_protocol::AgentCommandError;
use serde_json::{Map, Value, json};

use super::command_log::{CommandFailure, CommandResult};
use super::extensions::command_failure;
use crate::agent::RamdiskAgent;
use crate::managers::{ManagerStepError, images};

/// Time for the server to read the result of `standby.kexec`.
const KEXEC_DELAY: Duration = Duration::from_secs(2);

/// `standby.prepare_image`: writes an image, like the step `write_image`.
pub(super) async fn prepare_image(
    agent: &RamdiskAgent,
    params: &Map<String, Value>,
) -> CommandResult {
    if !agent.may_modify_disks() {
        return Err(command_failure("ImageWriteError", "this agent may not modify disks"));
    }
    images::write_image(agent, &agent.node(), params).await.map_err(step_failure)
}

/// `image.install_bootloader`.
pub(super) async fn install_bootloader(
    agent: &RamdiskAgent,
    params: &Map<String, Value>,
) -> CommandResult {
    if !agent.may_modify_disks() {
        return Err(command_failure("CommandExecutionError", "this agent may not modify disks"));
    }
    images::install_bootloader(agent, params).await.map(|()| Value::Null).map_err(step_failure)
}

/// `standby.kexec`: loads the kernel of the deployed system, and starts it after the server had time
/// to read the result.
pub(super) async fn kexec(agent: &Arc<RamdiskAgent>) -> CommandResult {
    if !agent.in_ramdisk {
        return Err(command_failure(
            "CommandExecutionError",
            "kexec needs the agent's own ramdisk",
        ));
    }
    let from = images::load_for_kexec(agent).await.map_err(step_failure)?;
    tokio::spawn(async {
        tokio::time::sleep(KEXEC_DELAY).await;
        images::start_loaded_kernel();
    });
    Ok(json!({ "result": format!("kexec: {from}") }))
}

fn step_failure(error: ManagerStepError) -> CommandFailure {
    match error {
        ManagerStepError::Failed(error) => CommandFailure::Error(error),
        ManagerStepError::NotSupported => CommandFailure::Error(AgentCommandError::default()),
    }
}
