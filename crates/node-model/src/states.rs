// SPDX-License-Identifier: Apache-2.0
//! Enumerations of node states, events, verbs and power targets.
//!
//! The names are Ironic's, letter for letter, because every client uses them. Which state follows
//! which is decided in `lifecycle`.

use crate::named_enum;

named_enum! {
    /// Ironic's provision states.
    ProvisionState {
        /// Enrolled; access to the BMC is not verified yet.
        Enroll = "enroll",
        /// Access to the BMC is being verified.
        Verifying = "verifying",
        /// The BMC is accessible; the node can be inspected, cleaned, adopted or provided.
        Manageable = "manageable",
        /// Clean and ready for deployment.
        Available = "available",
        /// Runs an instance.
        Active = "active",
        /// Tear-down failed.
        Error = "error",
        /// Runs the rescue system.
        Rescue = "rescue",
        /// An instance is being deployed.
        Deploying = "deploying",
        /// A deployment waits for the agent.
        DeployWait = "wait call-back",
        /// A deployment failed.
        DeployFail = "deploy failed",
        /// A deployment is held until `unhold`.
        DeployHold = "deploy hold",
        /// The node is being cleaned.
        Cleaning = "cleaning",
        /// Cleaning waits for the agent.
        CleanWait = "clean wait",
        /// Cleaning failed.
        CleanFail = "clean failed",
        /// Cleaning is held until `unhold`.
        CleanHold = "clean hold",
        /// The instance is being removed.
        Deleting = "deleting",
        /// The hardware is being inspected.
        Inspecting = "inspecting",
        /// Inspection waits for the agent.
        InspectWait = "inspect wait",
        /// Inspection failed.
        InspectFail = "inspect failed",
        /// A running machine is being adopted without changes.
        Adopting = "adopting",
        /// Adoption failed.
        AdoptFail = "adopt failed",
        /// The rescue system is being booted.
        Rescuing = "rescuing",
        /// Rescue waits for the agent.
        RescueWait = "rescue wait",
        /// Rescue failed.
        RescueFail = "rescue failed",
        /// The machine is being booted back into its own system.
        Unrescuing = "unrescuing",
        /// Unrescue failed.
        UnrescueFail = "unrescue failed",
        /// Steps run on an active machine.
        Servicing = "servicing",
        /// Service waits for the agent.
        ServiceWait = "service wait",
        /// Service failed.
        ServiceFail = "service failed",
        /// Service is held until `unhold`.
        ServiceHold = "service hold",
    }
}

named_enum! {
    /// The events that change a provision state. Thirteen come from users, five from the conductor.
    Event {
        /// Deploys an instance.
        Deploy = "deploy",
        /// Deploys an instance again.
        Rebuild = "rebuild",
        /// Removes the instance.
        Delete = "delete",
        /// Verifies access to the BMC, or makes the node manageable again.
        Manage = "manage",
        /// Cleans the node and makes it available.
        Provide = "provide",
        /// Inspects the hardware.
        Inspect = "inspect",
        /// Runs clean steps.
        Clean = "clean",
        /// Takes over a running machine.
        Adopt = "adopt",
        /// Boots the rescue system.
        Rescue = "rescue",
        /// Leaves the rescue system.
        Unrescue = "unrescue",
        /// Runs steps on an active machine.
        Service = "service",
        /// Continues after a hold.
        Unhold = "unhold",
        /// Stops the job.
        Abort = "abort",
        /// The job waits for the agent.
        Wait = "wait",
        /// The job is held.
        Hold = "hold",
        /// What the job waited for has happened.
        Resume = "resume",
        /// The job succeeded.
        Done = "done",
        /// The job failed.
        Fail = "fail",
    }
}

named_enum! {
    /// The fifteen targets of `PUT …/states/provision`.
    Verb {
        /// Deploys.
        Active = "active",
        /// Deploys again.
        Rebuild = "rebuild",
        /// Tears down.
        Deleted = "deleted",
        /// Deploys; the newer name of `active`.
        Deploy = "deploy",
        /// Tears down; the newer name of `deleted`.
        Undeploy = "undeploy",
        /// Verifies access to the BMC, or makes the node manageable again.
        Manage = "manage",
        /// Cleans and makes available.
        Provide = "provide",
        /// Inspects.
        Inspect = "inspect",
        /// Stops the job.
        Abort = "abort",
        /// Runs clean steps.
        Clean = "clean",
        /// Takes over a running machine.
        Adopt = "adopt",
        /// Boots the rescue system.
        Rescue = "rescue",
        /// Leaves the rescue system.
        Unrescue = "unrescue",
        /// Continues after a hold.
        Unhold = "unhold",
        /// Runs service steps.
        Service = "service",
    }
}

named_enum! {
    /// The power state, as last reported by the BMC.
    PowerState {
        /// On.
        On = "power on",
        /// Off.
        Off = "power off",
        /// The BMC could not determine it.
        Error = "error",
    }
}

named_enum! {
    /// The power changes that a user can request.
    PowerTarget {
        /// Powers on.
        On = "power on",
        /// Powers off immediately.
        Off = "power off",
        /// Powers off and on again.
        Reboot = "rebooting",
        /// Requests a shutdown of the operating system.
        SoftOff = "soft power off",
        /// Requests a restart of the operating system.
        SoftReboot = "soft rebooting",
    }
}

impl PowerTarget {
    /// The power state once the change is done.
    #[must_use]
    pub const fn state(self) -> PowerState {
        match self {
            Self::On | Self::Reboot | Self::SoftReboot => PowerState::On,
            Self::Off | Self::SoftOff => PowerState::Off,
        }
    }

    /// Whether the change is requested from the operating system instead of cutting power.
    #[must_use]
    pub const fn is_soft(self) -> bool {
        matches!(self, Self::SoftOff | Self::SoftReboot)
    }
}

named_enum! {
    /// Why Ferrite put a node into maintenance.
    Fault {
        /// The BMC does not respond.
        Power = "power failure",
        /// A clean step failed.
        Clean = "clean failure",
        /// Cleaning up after an aborted rescue failed.
        RescueAbort = "rescue abort failure",
        /// A service step failed.
        Service = "service failure",
    }
}

named_enum! {
    /// The health that the BMC reports.
    Health {
        /// No problems.
        Ok = "OK",
        /// Needs attention.
        Warning = "WARNING",
        /// Broken.
        Critical = "CRITICAL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_ironics() {
        assert_eq!(ProvisionState::ALL.len(), 30);
        assert_eq!(Event::ALL.len(), 18);
        assert_eq!(Verb::ALL.len(), 15);
        assert_eq!(Fault::ALL.len(), 4);
    }

    #[test]
    fn names_round_trip() {
        for state in ProvisionState::ALL {
            assert_eq!(state.as_str().parse(), Ok(*state));
        }
        assert!("Deploying".parse::<ProvisionState>().is_err());
    }
}
