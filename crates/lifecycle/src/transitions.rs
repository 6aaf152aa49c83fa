// SPDX-License-Identifier: Apache-2.0
//! The one table of which provision state follows which, and what each state is.

use node_model::Event;
use node_model::ProvisionState::{self, *};

/// Every transition there is: event, the states it may happen in, the state it leads to.
///
/// Order: the events users cause, then the five from within. The diagram in `docs/lifecycle.md` is
/// drawn from this table.
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

/// The state that `event` leads to from `state`, if it may happen there.
#[must_use]
pub fn next_state(state: ProvisionState, event: Event) -> Option<ProvisionState> {
    TRANSITIONS
        .iter()
        .find(|(on, from, _)| *on == event && from.contains(&state))
        .map(|(_, _, to)| *to)
}

/// What a machine in this state is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing; it can stay like this for ever.
    Stable,
    /// A job runs.
    Working,
    /// A job waits for the agent.
    Waiting,
    /// A job is held by an operator.
    Held,
    /// A job failed.
    Failed,
}

/// What a machine in `state` is doing.
#[must_use]
pub const fn rest(state: ProvisionState) -> Rest {
    match state {
        Enroll | Manageable | Available | Active | Error | Rescue => Rest::Stable,
        Verifying | Deploying | Cleaning | Deleting | Inspecting | Adopting | Rescuing
        | Unrescuing | Servicing => Rest::Working,
        DeployWait | CleanWait | InspectWait | RescueWait | ServiceWait => Rest::Waiting,
        DeployHold | CleanHold | ServiceHold => Rest::Held,
        DeployFail | CleanFail | InspectFail | AdoptFail | RescueFail | UnrescueFail
        | ServiceFail => Rest::Failed,
    }
}

/// Where a machine that enters `state` is going, unless its job says otherwise.
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

/// Whether a job is under way, so that boot mode and the like must not be changed by hand.
#[must_use]
pub const fn is_unstable(state: ProvisionState) -> bool {
    matches!(rest(state), Rest::Working | Rest::Waiting)
}

/// Whether fields may be changed while the machine is on its way somewhere.
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

/// Whether a machine may be removed without being in maintenance.
#[must_use]
pub const fn delete_allowed(state: ProvisionState) -> bool {
    matches!(state, Manageable | Enroll | AdoptFail)
}

/// Whether the ramdisk of a machine in this state may look itself up. With fast track, agents also
/// wait on machines that no job runs on.
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

/// Whether the periodic power check leaves a machine in this state alone.
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
    fn there_are_ninety_three() {
        assert_eq!(count(), 93);
    }

    #[test]
    fn no_state_has_two_answers_to_one_event() {
        for state in ProvisionState::ALL {
            for event in Event::ALL {
                let answers = TRANSITIONS
                    .iter()
                    .filter(|(on, from, _)| on == event && from.contains(state))
                    .count();
                assert!(answers <= 1, "{state} on {event}");
            }
        }
    }

    #[test]
    fn a_working_state_can_always_fail_and_end() {
        for state in ProvisionState::ALL {
            if rest(*state) == Rest::Working {
                assert!(next_state(*state, Event::Fail).is_some(), "{state} cannot fail");
                let ends = next_state(*state, Event::Done).or(next_state(*state, Event::Clean));
                assert!(ends.is_some(), "{state} cannot end");
            }
        }
    }

    #[test]
    fn stable_states_are_exactly_those_without_a_target() {
        for state in ProvisionState::ALL {
            assert_eq!(rest(*state) == Rest::Stable, default_target(*state).is_none(), "{state}");
        }
    }
}
