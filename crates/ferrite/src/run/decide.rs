// SPDX-License-Identifier: Apache-2.0
//! Decides the next request of `ferrite run` from the operation, the node and the requests so far.
//!
//! The journal of the node records every accepted request in the transaction that executes it, so the
//! decision is the same after the process was killed. Each verb is requested at most once per attempt.

use std::collections::BTreeSet;

use node_model::{PowerState, PowerTarget, ProvisionState, Verb};
use serde_json::Value;

/// One operation on one machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RunOperation {
    /// Writes an image and starts it.
    Deploy,
    /// Runs the clean steps of the host file, or automated cleaning.
    Clean {
        /// Whether the host file has clean steps.
        has_steps: bool,
    },
    /// Collects the inventory.
    Inspect,
    /// Changes the power state.
    Power(PowerTarget),
    /// Shows the power state.
    PowerStatus,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RunDecision {
    /// Request a provision verb.
    Provision(Verb),
    /// Request a power change.
    Power(PowerTarget),
    /// The conductor works on the node.
    Wait,
    /// The operation is complete.
    Done,
    /// The state directory cannot be used for the operation, for this reason.
    Refused(String),
    /// The operation has failed for this reason.
    Failed(String),
}

/// How a provision state relates to `ferrite run`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunStage {
    /// The conductor works on the node, or waits for the agent.
    Busy,
    Enroll,
    Manageable,
    Available,
    Active,
    DeployFailed,
    CleanFailed,
    InspectFailed,
    /// Only requests of other clients lead to the state.
    Foreign,
}

impl RunOperation {
    /// The name in the state directory and in messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Deploy => "deploy",
            Self::Clean { .. } => "clean",
            Self::Inspect => "inspect",
            Self::Power(PowerTarget::On) => "power on",
            Self::Power(PowerTarget::Off) => "power off",
            Self::Power(PowerTarget::Reboot) => "power reboot",
            Self::Power(PowerTarget::SoftOff) => "power soft-off",
            Self::Power(PowerTarget::SoftReboot) => "power soft-reboot",
            Self::PowerStatus => "power status",
        }
    }

    /// Whether the machine may boot a ramdisk, for which boot services and the API are needed.
    pub(super) const fn boots_a_ramdisk(self) -> bool {
        match self {
            Self::Deploy | Self::Clean { .. } | Self::Inspect => true,
            Self::Power(_) | Self::PowerStatus => false,
        }
    }
}

/// Decides the next request. `requested` are the verbs and power targets that were accepted in this
/// attempt.
pub(super) fn decide(
    operation: RunOperation,
    node: &Value,
    requested: &BTreeSet<String>,
) -> RunDecision {
    let text = |field: &str| node[field].as_str().unwrap_or_default();
    let Ok(state) = text("provision_state").parse::<ProvisionState>() else {
        return failed(node);
    };
    let is_changing_power = !node["target_power_state"].is_null();
    let stage = stage(state);
    if stage == RunStage::Busy || !text("reservation").is_empty() || is_changing_power {
        return RunDecision::Wait;
    }
    let is_requested = |verb: Verb| requested.contains(verb.as_str());
    let once = |verb: Verb| match is_requested(verb) {
        true => failed(node),
        false => RunDecision::Provision(verb),
    };
    let done_after = |verb: Verb| match is_requested(verb) {
        true => RunDecision::Done,
        false => RunDecision::Provision(verb),
    };
    match (operation, stage) {
        (_, RunStage::Busy) => RunDecision::Wait,
        (_, RunStage::Enroll) => once(Verb::Manage),
        (RunOperation::Power(target), _) => power_change(target, node, requested),
        (RunOperation::PowerStatus, _) if node["power_state"].is_null() => RunDecision::Wait,
        (RunOperation::PowerStatus, _) => RunDecision::Done,
        (_, RunStage::Foreign) => failed(node),

        (RunOperation::Deploy, RunStage::Active) if is_requested(Verb::Active) => RunDecision::Done,
        (_, RunStage::Active) => RunDecision::Refused(
            "an earlier run with this state directory deployed the machine; use another --state-dir \
             to overwrite it"
                .to_owned(),
        ),
        (RunOperation::Deploy, RunStage::Manageable) => once(Verb::Provide),
        (RunOperation::Deploy, RunStage::Available | RunStage::DeployFailed) => once(Verb::Active),
        // Other operations start from `manageable`, without the failed instance.
        (_, RunStage::DeployFailed) => once(Verb::Deleted),

        (RunOperation::Clean { has_steps: true }, RunStage::Manageable) => done_after(Verb::Clean),
        (RunOperation::Clean { has_steps: false }, RunStage::Manageable) => once(Verb::Provide),
        (RunOperation::Clean { has_steps: false }, RunStage::Available)
            if is_requested(Verb::Provide) =>
        {
            RunDecision::Done
        }
        (RunOperation::Inspect, RunStage::Manageable) => done_after(Verb::Inspect),
        (RunOperation::Inspect, RunStage::InspectFailed) => once(Verb::Inspect),
        (_, RunStage::Available) => once(Verb::Manage),

        // Failures of an earlier attempt; those of this one are final.
        (_, RunStage::CleanFailed)
            if [Verb::Clean, Verb::Provide, Verb::Deleted].into_iter().any(is_requested) =>
        {
            failed(node)
        }
        (_, RunStage::CleanFailed | RunStage::InspectFailed) => once(Verb::Manage),
    }
}

fn power_change(target: PowerTarget, node: &Value, requested: &BTreeSet<String>) -> RunDecision {
    if !requested.contains(target.as_str()) {
        return RunDecision::Power(target);
    }
    let expected: PowerState = target.state();
    match node["power_state"] == expected.as_str() && node["last_error"].is_null() {
        true => RunDecision::Done,
        false => failed(node),
    }
}

/// The failure with the error of the node.
fn failed(node: &Value) -> RunDecision {
    let state = node["provision_state"].as_str().unwrap_or("in an unknown state");
    RunDecision::Failed(match node["last_error"].as_str() {
        Some(error) => error.to_owned(),
        None => format!("the node is {state} without a reported error"),
    })
}

const fn stage(state: ProvisionState) -> RunStage {
    match state {
        ProvisionState::Enroll => RunStage::Enroll,
        ProvisionState::Manageable => RunStage::Manageable,
        ProvisionState::Available => RunStage::Available,
        ProvisionState::Active => RunStage::Active,
        ProvisionState::DeployFail => RunStage::DeployFailed,
        ProvisionState::CleanFail => RunStage::CleanFailed,
        ProvisionState::InspectFail => RunStage::InspectFailed,
        ProvisionState::Verifying
        | ProvisionState::Deploying
        | ProvisionState::DeployWait
        | ProvisionState::DeployHold
        | ProvisionState::Cleaning
        | ProvisionState::CleanWait
        | ProvisionState::CleanHold
        | ProvisionState::Deleting
        | ProvisionState::Inspecting
        | ProvisionState::InspectWait
        | ProvisionState::Adopting
        | ProvisionState::Rescuing
        | ProvisionState::RescueWait
        | ProvisionState::Unrescuing
        | ProvisionState::Servicing
        | ProvisionState::ServiceWait
        | ProvisionState::ServiceHold => RunStage::Busy,
        ProvisionState::Error
        | ProvisionState::Rescue
        | ProvisionState::AdoptFail
        | ProvisionState::RescueFail
        | ProvisionState::UnrescueFail
        | ProvisionState::ServiceFail => RunStage::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    const OPERATIONS: [(&str, RunOperation); 6] = [
        ("deploy", RunOperation::Deploy),
        ("steps", RunOperation::Clean { has_steps: true }),
        ("auto", RunOperation::Clean { has_steps: false }),
        ("inspect", RunOperation::Inspect),
        ("reboot", RunOperation::Power(PowerTarget::Reboot)),
        ("status", RunOperation::PowerStatus),
    ];

    fn short(decision: RunDecision) -> String {
        match decision {
            RunDecision::Provision(verb) => verb.to_string(),
            RunDecision::Power(target) => target.to_string(),
            RunDecision::Wait => "-".to_owned(),
            RunDecision::Done => "done".to_owned(),
            RunDecision::Refused(_) => "REFUSED".to_owned(),
            RunDecision::Failed(_) => "FAILED".to_owned(),
        }
    }

    fn table(requested: &[&str]) -> String {
        let requested: BTreeSet<String> = requested.iter().map(|it| (*it).to_owned()).collect();
        let mut table = format!("{:16}", "");
        for (name, _) in OPERATIONS {
            table.push_str(&format!("{name:10}"));
        }
        for state in ProvisionState::ALL {
            table.push_str(&format!("\n{:16}", state.as_str()));
            let node = json!({"provision_state": state, "power_state": "power on"});
            for (_, operation) in OPERATIONS {
                table.push_str(&format!("{:10}", short(decide(operation, &node, &requested))));
            }
        }
        table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n"
    }

    #[test]
    fn decides_the_first_request_in_every_state() {
        expect![[r#"
                            deploy    steps     auto      inspect   reboot    status
            enroll          manage    manage    manage    manage    manage    manage
            verifying       -         -         -         -         -         -
            manageable      provide   clean     provide   inspect   rebooting done
            available       active    manage    manage    manage    rebooting done
            active          REFUSED   REFUSED   REFUSED   REFUSED   rebooting done
            error           FAILED    FAILED    FAILED    FAILED    rebooting done
            rescue          FAILED    FAILED    FAILED    FAILED    rebooting done
            deploying       -         -         -         -         -         -
            wait call-back  -         -         -         -         -         -
            deploy failed   active    deleted   deleted   deleted   rebooting done
            deploy hold     -         -         -         -         -         -
            cleaning        -         -         -         -         -         -
            clean wait      -         -         -         -         -         -
            clean failed    manage    manage    manage    manage    rebooting done
            clean hold      -         -         -         -         -         -
            deleting        -         -         -         -         -         -
            inspecting      -         -         -         -         -         -
            inspect wait    -         -         -         -         -         -
            inspect failed  manage    manage    manage    inspect   rebooting done
            adopting        -         -         -         -         -         -
            adopt failed    FAILED    FAILED    FAILED    FAILED    rebooting done
            rescuing        -         -         -         -         -         -
            rescue wait     -         -         -         -         -         -
            rescue failed   FAILED    FAILED    FAILED    FAILED    rebooting done
            unrescuing      -         -         -         -         -         -
            unrescue failed FAILED    FAILED    FAILED    FAILED    rebooting done
            servicing       -         -         -         -         -         -
            service wait    -         -         -         -         -         -
            service failed  FAILED    FAILED    FAILED    FAILED    rebooting done
            service hold    -         -         -         -         -         -
        "#]]
        .assert_eq(&table(&[]));
    }

    /// No verb is requested again.
    #[test]
    fn decides_after_all_requests_in_every_state() {
        let all: Vec<&str> = Verb::ALL.iter().map(|verb| verb.as_str()).collect();
        let all = [&all[..], &["rebooting"]].concat();
        expect![[r#"
                            deploy    steps     auto      inspect   reboot    status
            enroll          FAILED    FAILED    FAILED    FAILED    FAILED    FAILED
            verifying       -         -         -         -         -         -
            manageable      FAILED    done      FAILED    done      done      done
            available       FAILED    FAILED    done      FAILED    done      done
            active          done      REFUSED   REFUSED   REFUSED   done      done
            error           FAILED    FAILED    FAILED    FAILED    done      done
            rescue          FAILED    FAILED    FAILED    FAILED    done      done
            deploying       -         -         -         -         -         -
            wait call-back  -         -         -         -         -         -
            deploy failed   FAILED    FAILED    FAILED    FAILED    done      done
            deploy hold     -         -         -         -         -         -
            cleaning        -         -         -         -         -         -
            clean wait      -         -         -         -         -         -
            clean failed    FAILED    FAILED    FAILED    FAILED    done      done
            clean hold      -         -         -         -         -         -
            deleting        -         -         -         -         -         -
            inspecting      -         -         -         -         -         -
            inspect wait    -         -         -         -         -         -
            inspect failed  FAILED    FAILED    FAILED    FAILED    done      done
            adopting        -         -         -         -         -         -
            adopt failed    FAILED    FAILED    FAILED    FAILED    done      done
            rescuing        -         -         -         -         -         -
            rescue wait     -         -         -         -         -         -
            rescue failed   FAILED    FAILED    FAILED    FAILED    done      done
            unrescuing      -         -         -         -         -         -
            unrescue failed FAILED    FAILED    FAILED    FAILED    done      done
            servicing       -         -         -         -         -         -
            service wait    -         -         -         -         -         -
            service failed  FAILED    FAILED    FAILED    FAILED    done      done
            service hold    -         -         -         -         -         -
        "#]]
        .assert_eq(&table(&all));
    }

    /// The states and requests of whole operations, without and with earlier attempts.
    #[test]
    fn operations_end() {
        let follow = |operation: RunOperation, first: &str, results: &[(&str, &str)]| {
            let mut requested = BTreeSet::new();
            let mut state = first.to_owned();
            let mut path = Vec::new();
            loop {
                let node = json!({"provision_state": state, "power_state": "power off"});
                let decision = decide(operation, &node, &requested);
                path.push(short(decision.clone()));
                let RunDecision::Provision(verb) = decision else { return path.join(" ") };
                requested.insert(verb.to_string());
                let result = results.iter().find(|(name, _)| *name == verb.as_str());
                state = result.unwrap().1.to_owned();
            }
        };
        let good = [
            ("manage", "manageable"),
            ("provide", "available"),
            ("active", "active"),
            ("clean", "manageable"),
            ("inspect", "manageable"),
            ("deleted", "available"),
        ];
        let [deploy, steps, automated, inspect, _, status] = OPERATIONS.map(|(_, it)| it);
        for (operation, first, expected) in [
            (deploy, "enroll", "manage provide active done"),
            (deploy, "clean failed", "manage provide active done"),
            (deploy, "deploy failed", "active done"),
            (deploy, "inspect failed", "manage provide active done"),
            (deploy, "active", "REFUSED"),
            (steps, "enroll", "manage clean done"),
            (steps, "available", "manage clean done"),
            (steps, "clean failed", "manage clean done"),
            (steps, "deploy failed", "deleted manage clean done"),
            (automated, "enroll", "manage provide done"),
            (automated, "available", "manage provide done"),
            (automated, "deploy failed", "deleted manage provide done"),
            (inspect, "enroll", "manage inspect done"),
            (inspect, "available", "manage inspect done"),
            (inspect, "inspect failed", "inspect done"),
            (inspect, "active", "REFUSED"),
            (status, "enroll", "manage done"),
            (status, "active", "done"),
        ] {
            assert_eq!(follow(operation, first, &good), expected, "{operation:?} {first}");
        }
        for (operation, results, expected) in [
            (deploy, [("manage", "enroll")].as_slice(), "manage FAILED"),
            (
                deploy,
                &[("manage", "manageable"), ("provide", "clean failed")],
                "manage provide FAILED",
            ),
            (
                deploy,
                &[("manage", "manageable"), ("provide", "available"), ("active", "deploy failed")],
                "manage provide active FAILED",
            ),
            (steps, &[("manage", "manageable"), ("clean", "clean failed")], "manage clean FAILED"),
            (
                inspect,
                &[("manage", "manageable"), ("inspect", "inspect failed")],
                "manage inspect FAILED",
            ),
        ] {
            assert_eq!(follow(operation, "enroll", results), expected, "{operation:?}");
        }
    }

    #[test]
    fn power_changes_end_with_the_expected_state_or_the_error() {
        let requested = BTreeSet::from(["power off".to_owned()]);
        let off = RunOperation::Power(PowerTarget::Off);
        for (power, target, error, expected) in [
            ("power on", Some("power off"), None, RunDecision::Wait),
            ("power off", None, None, RunDecision::Done),
            ("power on", None, Some("stuck"), RunDecision::Failed("stuck".to_owned())),
            (
                "power on",
                None,
                None,
                RunDecision::Failed("the node is active without a reported error".to_owned()),
            ),
        ] {
            let node = json!({"provision_state": "active", "power_state": power,
                              "target_power_state": target, "last_error": error});
            assert_eq!(decide(off, &node, &requested), expected);
        }
        let node = json!({"provision_state": "active", "power_state": "power off"});
        let nothing = BTreeSet::new();
        assert_eq!(decide(off, &node, &nothing), RunDecision::Power(PowerTarget::Off));
        let node = json!({"provision_state": "manageable", "power_state": null});
        assert_eq!(decide(RunOperation::PowerStatus, &node, &nothing), RunDecision::Wait);
    }

    #[test]
    fn waits_for_locked_nodes() {
        let node = json!({"provision_state": "clean failed", "reservation": "conductor"});
        assert_eq!(decide(RunOperation::Deploy, &node, &BTreeSet::new()), RunDecision::Wait);
        let node = json!({"provision_state": "invented"});
        let decision = decide(RunOperation::Deploy, &node, &BTreeSet::new());
        assert!(matches!(decision, RunDecision::Failed(_)), "{decision:?}");
    }
}
