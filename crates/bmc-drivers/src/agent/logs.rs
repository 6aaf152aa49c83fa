// SPDX-License-Identifier: Apache-2.0
//! The logs of an agent, collected before its machine is switched off.

use serde_json::{Map, Value};

use super::InBand;
use super::line::COLLECT_LOGS;
use crate::{Error, Target};

impl InBand {
    /// The logs of the machine's agent: a tar archive, compressed with gzip, in base64. None if
    /// there is no agent.
    pub(crate) async fn collect_logs(&self, target: &Target<'_>) -> Result<Option<String>, Error> {
        if target.node.agent.url.is_none() {
            return Ok(None);
        }
        let result = self.line.ask(target, COLLECT_LOGS, Map::new()).await?;
        Ok(result.get("system_logs").and_then(Value::as_str).map(str::to_owned))
    }
}
