// SPDX-License-Identifier: Apache-2.0
//! The transition table of provision states, and the properties of each state.

use node_model::Event;
use node_model::ProvisionState::{self, *};

/// All transitions: event, the states in which it is allowed, the resulting state.
///
/// Events of users come first, then the five of the conductor. The diagram in `docs/lifecycle.md` is
/// generated from this table.
pub const TRANSITIONS: &[(Event, &[ProvisionState], ProvisionState)] = &[
    (Event::Deploy, &[Available, DeployFail], Deploying),
    (Event::Rebuild, &[Active, DeployFail, Error], Deploying),
    (
        Event::Delete,
        &[
            Active,
            DeployWait,
            DeployFail,
            Error,
            Rescue,
            RescueFail,
            RescueWait,
            UnrescueFail,
            ServiceFail,
            ServiceWait,
        ],
        Deleting,
    ),
    (Event::Manage, &[Enroll], Verifying),
    (Event::Manage, &[CleanFail, Cleaning, Available, InspectFail, AdoptFail], Manageable),
    (Event::Provide, &[Manageable], Cleaning),
    (Event::Inspect, &[Manageable, InspectFail], Inspecting),
    (Event::Clean, &[Manageable, Deleting], Cleaning),
    (Event::Adopt, &[Manageable, AdoptFail], Adopting),
    (Event::Rescue, &[Active, Rescue, RescueFail, UnrescueFail, ServiceFail], Rescuing),
    (Event::Unrescue, &[Rescue, RescueFail, UnrescueFail], Unrescuing),
    (Event::Service, &[Active, ServiceHold, ServiceFail], Servicing),
    (Event::Unhold, &[DeployHold], DeployWait),
    (Event::Unhold, &[CleanHold], CleanWait),
    (Event::Unhold, &[ServiceHold], ServiceWait),
    (Event::Abort, &[DeployWait, DeployHold], DeployFail),
    (Event::Abort, &[CleanWait, CleanHold], CleanFail),
    (Event::Abort, &[InspectWait], InspectFail),
    (Event::Abort, &[RescueWait], RescueFail),
    (Event::Abort, &[ServiceWait, ServiceHold], ServiceFail),
    (Event::Abort, &[ServiceFail], Active),
    (Event::Wait, &[Deploying], DeployWait),
    (Event::Wait, &[Cleaning], CleanWait),
    (Event::Wait, &[Inspecting], InspectWait),
    (Event::Wait, &[Rescuing], RescueWait),
    (Event::Wait, &[Servicing, ServiceFail], ServiceWait),
    (Event::Hold, &[Deploying, DeployWait], DeployHold),
    (Event::Hold, &[Cleaning, CleanWait], CleanHold),
    (Event::Hold, &[Servicing, ServiceWait, ServiceFail], ServiceHold),
    (Event::Resume, &[DeployWait], Deploying),
    (Event::Resume, &[CleanWait], Cleaning),
    (Event::Resume, &[InspectWait], Inspecting),
    (Event::Resume, &[RescueWait], Rescuing),
    (Event::Resume, &[ServiceWait], Servicing),
    (Event::Done, &[Deploying, Unrescuing, Adopting, Servicing], Active),
    (Event::Done, &[Cleaning], Available),
    (Event::Done, &[Inspecting, InspectWait, Verifying], Manageable),
    (Event::Done, &[Rescuing], Rescue),
    (Event::Fail, &[Deploying, DeployWait], DeployFail),
    (Event::Fail, &[Deleting], Error),
    (Event::Fail, &[Cleaning, CleanWait], CleanFail),
    (Event::Fail, &[Inspecting, InspectWait], InspectFail),
    (Event::Fail, &[Rescuing, RescueWait], RescueFail),
    (Event::Fail, &[Unrescuing], UnrescueFail),
    (Event::Fail, &[Verifying], Enroll),
    (Event::Fail, &[Adopting], AdoptFail),
    (Event::Fail, &[Servicing, ServiceWait, ServiceHold], ServiceFail),
];

/// The state after `event` in `state`, if the event is allowed there.
#[must_use]
pub fn next_state(state: ProvisionState, event: Event) -> Option<ProvisionState> {
    TRANSITIONS
        .iter()
        .find(|(on, from, _)| *on == event && from.contains(&state))
        .map(|(_, _, to)| *to)
}

/// Whether and how a job runs in a provision state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateClass {
    /// No job runs.
    Stable,
    /// A job runs.
    Working,
    /// A job waits for the agent.
    Waiting,
    /// A job is held until `unhold`.
    Held,
    /// A job failed.
    Failed,
}

/// Whether and how a job runs in `state`.
#[must_use]
pub const fn state_class(state: ProvisionState) -> StateClass {
    match state {
        Enroll | Manageable | Available | Active | Error | Rescue => StateClass::Stable,
        Verifying | Deploying | Cleaning | Deleting | Inspecting | Adopting | Rescuing
        | Unrescuing | Servicing => StateClass::Working,
        DeployWait | CleanWait | InspectWait | RescueWait | ServiceWait => StateClass::Waiting,
        DeployHold | CleanHold | ServiceHold => StateClass::Held,
        DeployFail | CleanFail | InspectFail | AdoptFail | RescueFail | UnrescueFail
        | ServiceFail => StateClass::Failed,
    }
}

/// The target state of `state`, unless the job defines another.
#[must_use]
pub const fn default_target(state: ProvisionState) -> Option<ProvisionState> {
    match state {
        Enroll | Manageable | Available | Active | Error | Rescue => None,
        Verifying | Inspecting | InspectWait | InspectFail => Some(Manageable),
        Deploying | DeployWait | DeployFail | DeployHold | Adopting | AdoptFail | Unrescuing
        | UnrescueFail | Servicing | ServiceWait | ServiceFail | ServiceHold => Some(Active),
        Cleaning | CleanWait | CleanFail | CleanHold | Deleting => Some(Available),
        Rescuing | RescueWait | RescueFail => Some(Rescue),
    }
}

/// Whether a job runs, so that users must not change the boot mode and similar settings.
#[must_use]
pub const fn is_unstable(state: ProvisionState) -> bool {
    matches!(state_class(state), StateClass::Working | StateClass::Waiting)
}

/// Whether fields may be changed although the node has a target state.
#[must_use]
pub const fn update_allowed(state: ProvisionState) -> bool {
    match state {
        DeployFail | Inspecting | InspectFail | InspectWait | CleanFail | Error | Verifying
        | AdoptFail | RescueFail | UnrescueFail | ServiceHold | ServiceFail => true,
        Enroll | Manageable | Available | Active | Rescue | Deploying | DeployWait | DeployHold
        | Cleaning | CleanWait | CleanHold | Deleting | Adopting | Rescuing | RescueWait
        | Unrescuing | Servicing | ServiceWait => false,
    }
}

/// Whether a node may be deleted without maintenance.
#[must_use]
pub const fn delete_allowed(state: ProvisionState) -> bool {
    matches!(state, Manageable | Enroll | AdoptFail)
}

/// Whether the agent of a node in this state may look up the node. With fast track, agents also run
/// on nodes without a job.
#[must_use]
pub const fn lookup_allowed(state: ProvisionState, fast_track: bool) -> bool {
    match state {
        Deploying | DeployWait | Cleaning | CleanWait | Inspecting | InspectWait | Rescuing
        | RescueWait | ServiceWait => true,
        Enroll | Manageable | Available | Servicing | ServiceHold => fast_track,
        Verifying | Active | Error | Rescue | DeployFail | DeployHold | CleanFail | CleanHold
        | Deleting | InspectFail | Adopting | AdoptFail | RescueFail | Unrescuing
        | UnrescueFail | ServiceFail => false,
    }
}

/// Whether interfaces and connectivity may be changed in this state without maintenance.
#[must_use]
pub const fn reconfigure_allowed(state: ProvisionState) -> bool {
    matches!(state, Enroll | Inspecting | InspectWait | Manageable | Available)
}

/// Whether nodes in this state are excluded from power synchronisation.
#[must_use]
pub const fn power_sync_excluded(state: ProvisionState) -> bool {
    matches!(state, DeployWait | CleanWait | Enroll | AdoptFail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count() -> usize {
        TRANSITIONS.iter().map(|(_, from, _)| from.len()).sum()
    }

    #[test]
    fn table_has_ninety_three_transitions() {
        assert_eq!(count(), 93);
    }

    #[test]
    fn transitions_are_unambiguous() {
        for state in ProvisionState::ALL {
            for event in Event::ALL {
                let matches = TRANSITIONS
                    .iter()
                    .filter(|(on, from, _)| on == event && from.contains(state))
                    .count();
                assert!(matches <= 1, "{state} on {event}");
            }
        }
    }

    #[test]
    fn working_states_can_fail_and_end() {
        for state in ProvisionState::ALL {
            if state_class(*state) == StateClass::Working {
                assert!(next_state(*state, Event::Fail).is_some(), "{state} cannot fail");
                let ends = next_state(*state, Event::Done).or(next_state(*state, Event::Clean));
                assert!(ends.is_some(), "{state} cannot end");
            }
        }
    }

    #[test]
    fn only_stable_states_have_no_target() {
        for state in ProvisionState::ALL {
            assert_eq!(
                state_class(*state) == StateClass::Stable,
                default_target(*state).is_none(),
                "{state}"
            );
        }
    }
}
