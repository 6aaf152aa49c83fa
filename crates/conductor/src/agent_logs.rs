// SPDX-License-Identifier: Apache-2.0
//! Collects and stores the logs of ramdisks.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drivers::DriverTarget;
use inspection::{CollectLogs, HardwareReport};
use lifecycle::Action;
use node_model::{
    AgentLogKind, AgentLogLimits, JournalEntry, JournalEvent, NodeId, Stage, WorkKind,
};
use store::StoreWriter;

use crate::Conductor;
use crate::error::error_text;

/// The magic number of gzip.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The log archive of a ramdisk, if it sent one.
pub(crate) struct AgentLogArchive {
    kind: AgentLogKind,
    content: Option<Vec<u8>>,
}

impl Conductor {
    /// The limits on stored logs.
    #[must_use]
    pub fn agent_log_limits(&self) -> AgentLogLimits {
        self.inspection.log_limits
    }

    /// Whether the logs of a successful or failed job are stored.
    #[must_use]
    pub fn collects_logs(&self, failed: bool) -> bool {
        match self.inspection.collect_logs {
            CollectLogs::Always => true,
            CollectLogs::OnFailure => failed,
            CollectLogs::Never => false,
        }
    }
}

/// How long the end of a job is delayed for the logs.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(60);

impl Conductor {
    /// Requests the logs of the agent that `action` stops. Returns `None` if they are not collected, or
    /// were requested in an earlier attempt.
    pub(crate) async fn collect_agent_logs(
        &self,
        target: &DriverTarget<'_>,
        action: &Action,
    ) -> Option<AgentLogArchive> {
        let work = target.node.work.as_ref()?;
        let kind = match work.kind {
            WorkKind::Deploy | WorkKind::Rebuild => AgentLogKind::Deploy,
            WorkKind::Clean | WorkKind::ManualClean => AgentLogKind::Clean,
            WorkKind::Service => AgentLogKind::Service,
            WorkKind::Rescue => AgentLogKind::Rescue,
            WorkKind::Inspect
            | WorkKind::Verify
            | WorkKind::TearDown
            | WorkKind::Unrescue
            | WorkKind::Adopt => return None,
        };
        let failed = work.stage == Stage::CleanUp;
        if work.logs_collected || !action.ends_agent() || !self.collects_logs(failed) {
            return None;
        }
        match tokio::time::timeout(COLLECT_TIMEOUT, self.registry.agent_logs(target)).await {
            Ok(Ok(Some(text))) => Some(AgentLogArchive::from_base64(&text, kind)),
            Ok(Ok(None)) => Some(AgentLogArchive::none(kind)),
            Ok(Err(error)) => {
                tracing::info!(node = %target.node.id, error = error_text(&error), "agent logs could not be collected");
                Some(AgentLogArchive::none(kind))
            }
            Err(_) => {
                tracing::info!(node = %target.node.id, timeout = ?COLLECT_TIMEOUT, "agent logs could not be collected in time");
                Some(AgentLogArchive::none(kind))
            }
        }
    }
}

impl AgentLogArchive {
    /// No logs.
    pub(crate) const fn none(kind: AgentLogKind) -> Self {
        Self { kind, content: None }
    }

    /// The logs in inspection data.
    pub(crate) fn from_report(report: &HardwareReport, kind: AgentLogKind) -> Self {
        report.logs().map_or(Self::none(kind), |text| Self::from_base64(text, kind))
    }

    /// Decodes base64. Anything but a gzip archive counts as no logs.
    pub(crate) fn from_base64(text: &str, kind: AgentLogKind) -> Self {
        // ironic-python-agent sends one line; other ramdisks may wrap lines.
        let content = if text.contains(['\n', '\r']) {
            STANDARD.decode(text.replace(['\n', '\r'], ""))
        } else {
            STANDARD.decode(text)
        };
        Self { kind, content: content.ok().filter(|bytes| bytes.starts_with(&GZIP_MAGIC)) }
    }

    /// Stores the logs if the settings require it. `failure` is the error of a failed job.
    pub(crate) fn write(
        &self,
        conductor: &Conductor,
        tx: &mut StoreWriter<'_>,
        node: NodeId,
        failure: Option<&str>,
    ) -> Result<(), store::StoreError> {
        let Some(content) = &self.content else { return Ok(()) };
        if !conductor.collects_logs(failure.is_some()) {
            return Ok(());
        }
        let reason = failure.unwrap_or("the job succeeded");
        let stored =
            tx.insert_agent_log(node, self.kind, reason, content, conductor.agent_log_limits())?;
        let bytes = content.len();
        let text = match stored {
            Some(id) => format!("stored the ramdisk logs as {id}, {bytes} bytes"),
            None => {
                format!("the ramdisk logs exceed the size limit and are not stored: {bytes} bytes")
            }
        };
        let (at, actor) = (tx.now(), conductor.actor());
        let event = JournalEvent::Note { by: self.kind.as_str().to_owned(), text };
        tx.append(JournalEntry { at, node_id: node, actor, event });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accepts_only_gzip_archives() {
        for (logs, is_accepted) in [
            (json!("H4sIAAAA"), true),
            (json!("H4sI\nAAAA"), true),
            (json!("aGVsbG8="), false),
            (json!("not base64"), false),
            (json!(""), false),
            (json!(null), false),
        ] {
            let body = json!({"inventory": {"interfaces": [{"mac_address": "a"}]}, "logs": logs});
            let report = HardwareReport::from_value(body).unwrap();
            let archive = AgentLogArchive::from_report(&report, AgentLogKind::Inspection);
            assert_eq!(archive.content.is_some(), is_accepted, "{logs}");
        }
    }
}
