// SPDX-License-Identifier: Apache-2.0
//! The reset action of a machine: which of its types serves which purpose, and sending it.

use std::time::Duration;

use redfish::{Action, Resource};
use serde_json::json;

use super::bmc::Bmc;
use super::patience::{Retries, is_busy, is_refusal};
use super::power::Seen;
use crate::Error;

/// What a reset is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Switch on.
    On,
    /// Cut the power.
    Off,
    /// Ask the operating system to shut down.
    ShutDown,
    /// Restart without asking, and without switching off.
    Restart,
    /// Ask the operating system to restart.
    RestartSoftly,
    /// Interrupt the processors.
    Interrupt,
}

impl Purpose {
    /// The types of reset that serve it, best first. The power button is a last resort.
    pub(super) const fn types(self) -> &'static [&'static str] {
        match self {
            Self::On => &["On", "ForceOn", BUTTON],
            Self::Off => &["ForceOff", BUTTON],
            Self::ShutDown => &["GracefulShutdown", BUTTON],
            Self::Restart => &["ForceRestart", "PowerCycle"],
            Self::RestartSoftly => &["GracefulRestart"],
            Self::Interrupt => &["Nmi"],
        }
    }

    /// Where it leads.
    pub(super) const fn leads_to(self) -> Seen {
        match self {
            Self::On | Self::Restart | Self::RestartSoftly | Self::Interrupt => Seen::On,
            Self::Off | Self::ShutDown => Seen::Off,
        }
    }

    /// Whether being there already means that nothing is left to do.
    const fn is_idempotent(self) -> bool {
        match self {
            Self::On | Self::Off | Self::ShutDown => true,
            Self::Restart | Self::RestartSoftly | Self::Interrupt => false,
        }
    }
}

/// The type of reset that depends on how the machine stands.
const BUTTON: &str = "PushPowerButton";

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

    /// The types to try for `purpose`, best first.
    pub(super) fn candidates(&self, purpose: Purpose) -> Vec<&'static str> {
        let is_known = |kind: &&&str| match &self.known {
            None => true,
            Some(known) => known.iter().any(|other| other == **kind),
        };
        purpose.types().iter().filter(is_known).copied().collect()
    }

    /// Sends the reset for `purpose`, trying again while the BMC is busy and there is time, and
    /// trying other types where it refuses one. `seen` is how the machine stands. Returns the type
    /// that was taken; none if there turned out to be nothing left to do.
    pub(super) async fn send(
        &self,
        bmc: &Bmc,
        purpose: Purpose,
        seen: Seen,
        patience: Duration,
    ) -> Result<Option<&'static str>, Error> {
        let end = tokio::time::Instant::now() + patience;
        let mut retries = Retries::POWER;
        let mut candidates = self.candidates(purpose);
        // Pressing the button switches off what is on and on what is off.
        candidates.retain(|kind| *kind != BUTTON || seen != Seen::Unknown);
        let mut remaining = candidates.iter();
        let Some(mut kind) = remaining.next() else { return Err(self.lacks(bmc, purpose)) };
        loop {
            let body = json!({ "ResetType": kind });
            let error = match bmc.client().post(&self.target, &body).await {
                Ok(_) => return Ok(Some(kind)),
                Err(error) => error,
            };
            // The BMC refuses what is already so, or it did it and the answer was lost.
            if purpose.is_idempotent()
                && let Ok(system) = bmc.system().await
                && Seen::of(&system).is_at_or_going(purpose.leads_to())
            {
                return Ok(None);
            }
            if is_busy(&error) {
                let left = end.saturating_duration_since(tokio::time::Instant::now());
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

    fn lacks(&self, bmc: &Bmc, purpose: Purpose) -> Error {
        let known = self.known.as_deref().unwrap_or_default().join(", ");
        bmc.failed(format!(
            "the BMC at {} has none of the reset types {}; it has: {known}",
            bmc.address(),
            purpose.types().join(", "),
        ))
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
        for (known, purpose, tried) in [
            (None, Purpose::On, vec!["On", "ForceOn", "PushPowerButton"]),
            (Some(&["On", "ForceOff"][..]), Purpose::On, vec!["On"]),
            (Some(&["ForceOn", "ForceOff"]), Purpose::On, vec!["ForceOn"]),
            (Some(&["PushPowerButton"]), Purpose::Off, vec!["PushPowerButton"]),
            (Some(&["On", "ForceOff"]), Purpose::ShutDown, vec![]),
            (Some(&["PowerCycle"]), Purpose::Restart, vec!["PowerCycle"]),
            (Some(&["On"]), Purpose::Interrupt, vec![]),
        ] {
            assert_eq!(reset(known).candidates(purpose), tried, "{known:?} {purpose:?}");
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
