// SPDX-License-Identifier: Apache-2.0
//! The reset action of a machine: which of its types serves which purpose, and sending it.

use std::time::Duration;

use redfish::{Action, Resource};
use serde_json::json;

use super::bmc::Bmc;
use super::patience::{Retries, is_busy, is_refusal};
use super::power::seen;
use crate::Error;
use crate::power_plan::{Purpose, Seen};

/// The type of reset that depends on how the machine stands.
const BUTTON: &str = "PushPowerButton";

/// The types that interrupt the processors.
const INTERRUPT: &[&str] = &["Nmi"];

/// The reset action of a machine.
#[derive(Debug)]
pub(super) struct Reset {
    target: String,
    /// The types the BMC says it has; none if it does not say.
    known: Option<Vec<String>>,
}

impl Reset {
    /// Reads the action of `system`. Where only the action's own description says what it takes,
    /// that is read too.
    pub(super) async fn of(bmc: &Bmc, system: &Resource) -> Result<Self, Error> {
        const ACTION: &str = "ComputerSystem.Reset";
        let Some(action) = system.action(ACTION) else {
            return Err(bmc.failed(format!(
                "the BMC at {} offers no reset action for {}; check the rights of its user, and \
                 its firmware",
                bmc.address(),
                system.path
            )));
        };
        let known = match (known_types(&action), &action.info) {
            (None, Some(info)) => match bmc.client().get(info).await {
                Ok(described) => described_types(&described),
                Err(_) => None,
            },
            (known, _) => known,
        };
        Ok(Self { target: action.target, known })
    }

    /// Whether the BMC may have a type for `purpose`.
    pub(super) fn can(&self, purpose: Purpose) -> bool {
        !self.candidates(types(purpose)).is_empty()
    }

    /// Sends the reset for `purpose`, trying again while the BMC is busy and there is time, and
    /// trying other types where it refuses one. `stands` is how the machine stands. Returns the
    /// type that was taken; none if there turned out to be nothing left to do.
    pub(super) async fn send(
        &self,
        bmc: &Bmc,
        purpose: Purpose,
        stands: Seen,
        patience: Duration,
    ) -> Result<Option<&'static str>, Error> {
        let mut candidates = self.candidates(types(purpose));
        // Pressing the button switches off what is on and on what is off.
        candidates.retain(|kind| *kind != BUTTON || stands != Seen::Unknown);
        if candidates.is_empty() {
            return Err(self.lacks(bmc, types(purpose)));
        }
        let end = purpose.is_idempotent().then(|| purpose.leads_to());
        self.try_in_turn(bmc, &candidates, end, patience).await
    }

    /// Interrupts the processors; false if the BMC has no reset for that.
    pub(super) async fn interrupt(&self, bmc: &Bmc, patience: Duration) -> Result<bool, Error> {
        let candidates = self.candidates(INTERRUPT);
        if candidates.is_empty() {
            return Ok(false);
        }
        self.try_in_turn(bmc, &candidates, None, patience).await.map(|_| true)
    }

    /// Those of `types` that the BMC has, as far as it says.
    fn candidates(&self, types: &[&'static str]) -> Vec<&'static str> {
        let is_known = |kind: &&&str| match &self.known {
            None => true,
            Some(known) => known.iter().any(|other| other == **kind),
        };
        types.iter().filter(is_known).copied().collect()
    }

    /// Sends one type after the other until one is taken. A machine that is at `end` needs none.
    async fn try_in_turn(
        &self,
        bmc: &Bmc,
        types: &[&'static str],
        end: Option<Seen>,
        patience: Duration,
    ) -> Result<Option<&'static str>, Error> {
        let deadline = tokio::time::Instant::now() + patience;
        let mut retries = Retries::POWER;
        let mut remaining = types.iter();
        let Some(mut kind) = remaining.next() else { return Ok(None) };
        loop {
            let body = json!({ "ResetType": kind });
            let error = match bmc.client().post(&self.target, &body).await {
                Ok(_) => return Ok(Some(kind)),
                Err(error) => error,
            };
            // The BMC refuses what is already so, or it did it and the answer was lost.
            if let Some(end) = end
                && let Ok(system) = bmc.system().await
                && seen(&system).is_at_or_going(end)
            {
                return Ok(None);
            }
            if is_busy(&error) {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now());
                let Some(pause) = retries.next(left) else { return Err(bmc.explain(error)) };
                tokio::time::sleep(pause).await;
            } else if is_refusal(&error) {
                let Some(next) = remaining.next() else { return Err(bmc.explain(error)) };
                kind = next;
            } else {
                return Err(bmc.explain(error));
            }
        }
    }

    fn lacks(&self, bmc: &Bmc, types: &[&str]) -> Error {
        let known = self.known.as_deref().unwrap_or_default().join(", ");
        bmc.failed(format!(
            "the BMC at {} has none of the reset types {}; it has: {known}",
            bmc.address(),
            types.join(", "),
        ))
    }
}

/// The types of reset that serve a purpose, best first. The power button is a last resort.
const fn types(purpose: Purpose) -> &'static [&'static str] {
    match purpose {
        Purpose::On => &["On", "ForceOn", BUTTON],
        Purpose::Off => &["ForceOff", BUTTON],
        Purpose::ShutDown => &["GracefulShutdown", BUTTON],
        Purpose::Restart => &["ForceRestart", "PowerCycle"],
        Purpose::RestartSoftly => &["GracefulRestart"],
    }
}

/// The types the action itself lists. An empty list says nothing.
fn known_types(action: &Action) -> Option<Vec<String>> {
    action.allowable.get("ResetType").filter(|types| !types.is_empty()).cloned()
}

/// The types an action's description lists.
fn described_types(info: &Resource) -> Option<Vec<String>> {
    let parameters = info.list("/Parameters");
    let reset_type = parameters.iter().find(|parameter| parameter["Name"] == "ResetType")?;
    let types = reset_type.get("AllowableValues")?.as_array()?;
    let types: Vec<_> = types.iter().filter_map(|kind| kind.as_str().map(str::to_owned)).collect();
    (!types.is_empty()).then_some(types)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn reset(known: Option<&[&str]>) -> Reset {
        let known = known.map(|types| types.iter().map(|kind| (*kind).to_owned()).collect());
        Reset { target: String::new(), known }
    }

    #[test]
    fn what_the_bmc_has_is_tried_best_first() {
        for (known, wanted, tried) in [
            (None, types(Purpose::On), vec!["On", "ForceOn", "PushPowerButton"]),
            (Some(&["On", "ForceOff"][..]), types(Purpose::On), vec!["On"]),
            (Some(&["ForceOn", "ForceOff"]), types(Purpose::On), vec!["ForceOn"]),
            (Some(&["PushPowerButton"]), types(Purpose::Off), vec!["PushPowerButton"]),
            (Some(&["On", "ForceOff"]), types(Purpose::ShutDown), vec![]),
            (Some(&["PowerCycle"]), types(Purpose::Restart), vec!["PowerCycle"]),
            (Some(&["On"]), INTERRUPT, vec![]),
        ] {
            assert_eq!(reset(known).candidates(wanted), tried, "{known:?} {wanted:?}");
        }
    }

    #[test]
    fn types_may_be_listed_in_the_action_or_in_its_description() {
        let resource =
            |body: Value| Resource { path: "/redfish/v1/x".to_owned(), etag: None, body };
        let system = resource(json!({"Actions": {"#ComputerSystem.Reset": {
            "target": "/reset", "ResetType@Redfish.AllowableValues": ["On", "Nmi"]}}}));
        let action = system.action("ComputerSystem.Reset").unwrap();
        assert_eq!(known_types(&action), Some(vec!["On".to_owned(), "Nmi".to_owned()]));
        let empty = resource(json!({"Actions": {"#ComputerSystem.Reset": {
            "target": "/reset", "ResetType@Redfish.AllowableValues": []}}}));
        assert_eq!(known_types(&empty.action("ComputerSystem.Reset").unwrap()), None);
        let info = resource(json!({"Parameters": [
            {"Name": "Other", "AllowableValues": ["x"]},
            {"Name": "ResetType", "AllowableValues": ["ForceOff", 3]}]}));
        assert_eq!(described_types(&info), Some(vec!["ForceOff".to_owned()]));
        for odd in
            [json!({}), json!({"Parameters": 5}), json!({"Parameters": [{"Name": "ResetType"}]})]
        {
            assert_eq!(described_types(&resource(odd)), None);
        }
    }
}
