// SPDX-License-Identifier: Apache-2.0
//! What the ramdisk wrote down: whether it is kept, and under which heading.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bmc_drivers::{NodeChanges, Target};
use inspection::{CollectLogs, Report};
use lifecycle::Action;
use node_model::{Happening, JournalEntry, JsonObject, KeptLogs, LogKind, NodeId, Stage, WorkKind};
use store::Writer;

use crate::Conductor;

/// How a compressed archive begins.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Logs that came with something.
pub(crate) struct Logs {
    kind: LogKind,
    content: Option<Vec<u8>>,
}

impl Conductor {
    /// How much of the ramdisks' logs is kept.
    #[must_use]
    pub fn kept_logs(&self) -> KeptLogs {
        self.inspection.kept_logs
    }

    /// Whether the logs of an operation that ended well, or failed, are kept.
    #[must_use]
    pub fn collects_logs(&self, failed: bool) -> bool {
        match self.inspection.collect_logs {
            CollectLogs::Always => true,
            CollectLogs::OnFailure => failed,
            CollectLogs::Never => false,
        }
    }
}

/// How long an agent may take to collect them, while its machine waits to be switched off.
const WITHIN: Duration = Duration::from_secs(60);

impl Conductor {
    /// The logs of the agent on a machine, before `action` ends it; none if they are not wanted, or
    /// if it was asked at an earlier try.
    pub(crate) async fn collect(&self, target: &Target<'_>, action: &Action) -> Option<Logs> {
        let work = target.node.work.as_ref()?;
        let kind = match work.kind {
            WorkKind::Deploy | WorkKind::Rebuild => LogKind::Deploy,
            WorkKind::Clean | WorkKind::ManualClean => LogKind::Clean,
            WorkKind::Service => LogKind::Service,
            WorkKind::Rescue => LogKind::Rescue,
            WorkKind::Inspect
            | WorkKind::Verify
            | WorkKind::TearDown
            | WorkKind::Unrescue
            | WorkKind::Adopt => return None,
        };
        let failed = work.stage == Stage::CleanUp;
        let was_asked = work.notes.get(COLLECTED).is_some();
        if was_asked || !(ends_agent(action) && self.collects_logs(failed)) {
            return None;
        }
        let collecting = self.registry.agent_logs(target);
        match tokio::time::timeout(WITHIN, collecting).await {
            Ok(Ok(Some(text))) => Some(Logs::of_base64(&text, kind)),
            Ok(Ok(None)) => Some(Logs::none(kind)),
            Ok(Err(error)) => {
                tracing::info!(node = %target.node.id, %error, "no logs of the agent");
                Some(Logs::none(kind))
            }
            Err(_) => {
                tracing::info!(node = %target.node.id, "the agent took too long with its logs");
                Some(Logs::none(kind))
            }
        }
    }
}

/// The note that the agent was asked for its logs.
const COLLECTED: &str = "logs_collected";

/// Writes down that the agent was asked, beside what is noted already.
pub(crate) fn logs_collected(notes: &JsonObject) -> NodeChanges {
    NodeChanges::note(notes, COLLECTED, true)
}

/// Whether the agent is over after `action`.
fn ends_agent(action: &Action) -> bool {
    match action {
        Action::CleanUpDeploy
        | Action::TearDownCleaning
        | Action::TearDownService
        | Action::CleanUpRescue => true,
        Action::RunStep { step, .. } => step.qualified() == "deploy.tear_down_agent",
        Action::CheckPower
        | Action::CacheHardware
        | Action::ListSteps(_)
        | Action::PollStep { .. }
        | Action::PrepareDeploy
        | Action::TearDown
        | Action::PrepareCleaning
        | Action::PrepareService
        | Action::Inspect
        | Action::FinishInspection
        | Action::AbortInspection
        | Action::BootAgain
        | Action::Rescue
        | Action::FinishRescue
        | Action::Unrescue
        | Action::Adopt
        | Action::SetPower { .. } => false,
    }
}

impl Logs {
    /// None at all.
    pub(crate) const fn none(kind: LogKind) -> Self {
        Self { kind, content: None }
    }

    /// The logs that came with inspection data.
    pub(crate) fn of_report(report: &Report, kind: LogKind) -> Self {
        report.logs().map_or(Self::none(kind), |text| Self::of_base64(text, kind))
    }

    /// Logs as ramdisks send them. What is no archive in base64 counts as none.
    pub(crate) fn of_base64(text: &str, kind: LogKind) -> Self {
        // IPA breaks no lines; other ramdisks may.
        let content = if text.contains(['\n', '\r']) {
            STANDARD.decode(text.replace(['\n', '\r'], ""))
        } else {
            STANDARD.decode(text)
        };
        Self { kind, content: content.ok().filter(|bytes| bytes.starts_with(&GZIP)) }
    }

    /// Keeps them, if they are to be kept; `failure` is why the operation failed, if it did.
    pub(crate) fn keep(
        &self,
        conductor: &Conductor,
        tx: &mut Writer<'_>,
        node: NodeId,
        failure: Option<&str>,
    ) -> Result<(), store::Error> {
        let Some(content) = &self.content else { return Ok(()) };
        if !conductor.collects_logs(failure.is_some()) {
            return Ok(());
        }
        let why = failure.unwrap_or("it went well");
        let kept = tx.keep_log(node, self.kind, why, content, conductor.kept_logs())?;
        let bytes = content.len();
        let text = match kept {
            Some(id) => format!("kept the ramdisk's logs as {id}, {bytes} bytes"),
            None => format!("the ramdisk's logs are too long to be kept: {bytes} bytes"),
        };
        let (at, actor) = (tx.now(), conductor.actor());
        let what = Happening::Noted { by: self.kind.as_str().to_owned(), text };
        tx.append(JournalEntry { at, node_id: node, actor, what });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_archives_are_logs() {
        for (logs, kept) in [
            (json!("H4sIAAAA"), true),
            (json!("H4sI\nAAAA"), true),
            (json!("aGVsbG8="), false),
            (json!("not base64"), false),
            (json!(""), false),
            (json!(null), false),
        ] {
            let body = json!({"inventory": {"interfaces": [{"mac_address": "a"}]}, "logs": logs});
            let report = Report::from_value(body).unwrap();
            let found = Logs::of_report(&report, LogKind::Inspection);
            assert_eq!(found.content.is_some(), kept, "{logs}");
        }
    }
}
