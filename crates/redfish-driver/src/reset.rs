// SPDX-License-Identifier: Apache-2.0
//! The `ComputerSystem.Reset` action: choice of the reset type, and sending it.

use std::time::Duration;

use drivers::DriverError;
use drivers::power_plan::{ObservedPower, PowerPlanCommand};
use redfish::{RedfishAction, RedfishResource};
use serde_json::json;

use super::bmc::RedfishBmc;
use super::power::observed_power;
use super::retries::{RetryBudget, is_busy, is_refusal};

/// The reset type whose effect depends on the power state.
const BUTTON: &str = "PushPowerButton";

/// The reset types that inject an NMI.
const INTERRUPT: &[&str] = &["Nmi"];

/// The reset action of a machine.
#[derive(Debug)]
pub(super) struct ResetAction {
    target: String,
    /// The allowable reset types; `None` if the BMC does not list them.
    supported_types: Option<Vec<String>>,
}

impl ResetAction {
    /// Reads the action of `system`. The `ActionInfo` resource is read if the action does not list its
    /// allowable values.
    pub(super) async fn read(
        bmc: &RedfishBmc,
        system: &RedfishResource,
    ) -> Result<Self, DriverError> {
        const ACTION: &str = "ComputerSystem.Reset";
        let Some(action) = system.action(ACTION) else {
            return Err(bmc.failed(format!(
                "the BMC at {} has no reset action for {}; check the rights of its user, and its \
                 firmware",
                bmc.address(),
                system.path
            )));
        };
        let known = match (allowable_types(&action), &action.info) {
            (None, Some(info)) => match bmc.client().get(info).await {
                Ok(described) => action_info_types(&described),
                Err(_) => None,
            },
            (known, _) => known,
        };
        Ok(Self { target: action.target, supported_types: known })
    }

    /// Whether the BMC may support `purpose`.
    pub(super) fn supports(&self, purpose: PowerPlanCommand) -> bool {
        !self.candidates(reset_types(purpose)).is_empty()
    }

    /// Sends the reset for `purpose`. Retries while the BMC is busy, up to `timeout`, and tries other
    /// types if one is rejected. `current` is the power state. Returns the type that was accepted;
    /// `None` if the machine already is in the target state.
    pub(super) async fn send(
        &self,
        bmc: &RedfishBmc,
        purpose: PowerPlanCommand,
        current: ObservedPower,
        timeout: Duration,
    ) -> Result<Option<&'static str>, DriverError> {
        let mut candidates = self.candidates(reset_types(purpose));
        // The power button switches a running machine off and a stopped one on.
        candidates.retain(|reset_type| *reset_type != BUTTON || current != ObservedPower::Unknown);
        if candidates.is_empty() {
            return Err(self.unsupported(bmc, reset_types(purpose)));
        }
        let end = purpose.is_idempotent().then(|| purpose.expected_power());
        self.send_first_accepted(bmc, &candidates, end, timeout).await
    }

    /// Injects an NMI; returns false if the BMC has no reset type for it.
    pub(super) async fn interrupt(
        &self,
        bmc: &RedfishBmc,
        timeout: Duration,
    ) -> Result<bool, DriverError> {
        let candidates = self.candidates(INTERRUPT);
        if candidates.is_empty() {
            return Ok(false);
        }
        self.send_first_accepted(bmc, &candidates, None, timeout).await.map(|_| true)
    }

    /// Returns those of `types` that the BMC may support.
    fn candidates(&self, types: &[&'static str]) -> Vec<&'static str> {
        let is_known = |reset_type: &&&str| match &self.supported_types {
            None => true,
            Some(known) => known.iter().any(|other| other == **reset_type),
        };
        types.iter().filter(is_known).copied().collect()
    }

    /// Sends the types in order until one is accepted. Stops if the machine is in the state `end`.
    async fn send_first_accepted(
        &self,
        bmc: &RedfishBmc,
        types: &[&'static str],
        end: Option<ObservedPower>,
        timeout: Duration,
    ) -> Result<Option<&'static str>, DriverError> {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut retries = RetryBudget::POWER;
        let mut remaining = types.iter();
        let Some(mut reset_type) = remaining.next() else { return Ok(None) };
        loop {
            let body = json!({ "ResetType": reset_type });
            let error = match bmc.client().post(&self.target, &body).await {
                Ok(_) => return Ok(Some(reset_type)),
                Err(error) => error,
            };
            // The BMC rejects a change to the current state, or it made the change and the response was lost.
            if let Some(end) = end
                && let Ok(system) = bmc.system().await
                && observed_power(&system).is_in_or_entering(end)
            {
                return Ok(None);
            }
            if is_busy(&error) {
                let left = deadline.saturating_duration_since(tokio::time::Instant::now());
                let Some(pause) = retries.next(left) else { return Err(bmc.explain(error)) };
                tokio::time::sleep(pause).await;
            } else if is_refusal(&error) {
                let Some(next) = remaining.next() else { return Err(bmc.explain(error)) };
                reset_type = next;
            } else {
                return Err(bmc.explain(error));
            }
        }
    }

    fn unsupported(&self, bmc: &RedfishBmc, types: &[&str]) -> DriverError {
        let known = self.supported_types.as_deref().unwrap_or_default().join(", ");
        bmc.failed(format!(
            "the BMC at {} supports none of the reset types {}; it supports: {known}",
            bmc.address(),
            types.join(", "),
        ))
    }
}

/// The reset types for a purpose, best first. The power button is the last resort.
const fn reset_types(purpose: PowerPlanCommand) -> &'static [&'static str] {
    match purpose {
        PowerPlanCommand::On => &["On", "ForceOn", BUTTON],
        PowerPlanCommand::Off => &["ForceOff", BUTTON],
        PowerPlanCommand::SoftOff => &["GracefulShutdown", BUTTON],
        PowerPlanCommand::Restart => &["ForceRestart", "PowerCycle"],
        PowerPlanCommand::SoftRestart => &["GracefulRestart"],
    }
}

/// The allowable types of the action. An empty list counts as absent.
fn allowable_types(action: &RedfishAction) -> Option<Vec<String>> {
    action.allowable.get("ResetType").filter(|types| !types.is_empty()).cloned()
}

/// The allowable types in the `ActionInfo` resource.
fn action_info_types(info: &RedfishResource) -> Option<Vec<String>> {
    let parameters = info.list("/Parameters");
    let reset_type = parameters.iter().find(|parameter| parameter["Name"] == "ResetType")?;
    let types = reset_type.get("AllowableValues")?.as_array()?;
    let types: Vec<_> =
        types.iter().filter_map(|reset_type| reset_type.as_str().map(str::to_owned)).collect();
    (!types.is_empty()).then_some(types)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn reset(known: Option<&[&str]>) -> ResetAction {
        let known =
            known.map(|types| types.iter().map(|reset_type| (*reset_type).to_owned()).collect());
        ResetAction { target: String::new(), supported_types: known }
    }

    #[test]
    fn tries_supported_types_best_first() {
        for (known, wanted, tried) in [
            (None, reset_types(PowerPlanCommand::On), vec!["On", "ForceOn", "PushPowerButton"]),
            (Some(&["On", "ForceOff"][..]), reset_types(PowerPlanCommand::On), vec!["On"]),
            (Some(&["ForceOn", "ForceOff"]), reset_types(PowerPlanCommand::On), vec!["ForceOn"]),
            (
                Some(&["PushPowerButton"]),
                reset_types(PowerPlanCommand::Off),
                vec!["PushPowerButton"],
            ),
            (Some(&["On", "ForceOff"]), reset_types(PowerPlanCommand::SoftOff), vec![]),
            (Some(&["PowerCycle"]), reset_types(PowerPlanCommand::Restart), vec!["PowerCycle"]),
            (Some(&["On"]), INTERRUPT, vec![]),
        ] {
            assert_eq!(reset(known).candidates(wanted), tried, "{known:?} {wanted:?}");
        }
    }

    #[test]
    fn reads_types_from_action_or_action_info() {
        let resource =
            |body: Value| RedfishResource { path: "/redfish/v1/x".to_owned(), etag: None, body };
        let system = resource(json!({"Actions": {"#ComputerSystem.Reset": {
            "target": "/reset", "ResetType@Redfish.AllowableValues": ["On", "Nmi"]}}}));
        let action = system.action("ComputerSystem.Reset").unwrap();
        assert_eq!(allowable_types(&action), Some(vec!["On".to_owned(), "Nmi".to_owned()]));
        let empty = resource(json!({"Actions": {"#ComputerSystem.Reset": {
            "target": "/reset", "ResetType@Redfish.AllowableValues": []}}}));
        assert_eq!(allowable_types(&empty.action("ComputerSystem.Reset").unwrap()), None);
        let info = resource(json!({"Parameters": [
            {"Name": "Other", "AllowableValues": ["x"]},
            {"Name": "ResetType", "AllowableValues": ["ForceOff", 3]}]}));
        assert_eq!(action_info_types(&info), Some(vec!["ForceOff".to_owned()]));
        for odd in
            [json!({}), json!({"Parameters": 5}), json!({"Parameters": [{"Name": "ResetType"}]})]
        {
            assert_eq!(action_info_types(&resource(odd)), None);
        }
    }
}
