// SPDX-License-Identifier: Apache-2.0
//! The words for what a machine is, what it should become, and what may be asked of it.
//!
//! The names are Ironic's, letter for letter: they are the domain's vocabulary, and every client
//! already speaks it. Which state may follow which is decided in `lifecycle`.

use crate::named;

named! {
    /// Where a machine stands in its life.
    ProvisionState {
        /// Known, but its BMC has not been tried yet.
        Enroll = "enroll",
        /// Its BMC is being tried.
        Verifying = "verifying",
        /// Its BMC answers; it can be inspected, cleaned, adopted or provided.
        Manageable = "manageable",
        /// Clean and free.
        Available = "available",
        /// In use.
        Active = "active",
        /// Tear-down failed; an operator has to look.
        Error = "error",
        /// Running the rescue system.
        Rescue = "rescue",
        /// An image is being put on it.
        Deploying = "deploying",
        /// A deployment waits for the agent.
        DeployWait = "wait call-back",
        /// A deployment failed.
        DeployFail = "deploy failed",
        /// A deployment is held until `unhold`.
        DeployHold = "deploy hold",
        /// It is being cleaned.
        Cleaning = "cleaning",
        /// Cleaning waits for the agent.
        CleanWait = "clean wait",
        /// Cleaning failed.
        CleanFail = "clean failed",
        /// Cleaning is held until `unhold`.
        CleanHold = "clean hold",
        /// It is being torn down.
        Deleting = "deleting",
        /// Its hardware is being looked at.
        Inspecting = "inspecting",
        /// Inspection waits for the agent.
        InspectWait = "inspect wait",
        /// Inspection failed.
        InspectFail = "inspect failed",
        /// A running machine is being taken over as it is.
        Adopting = "adopting",
        /// Adoption failed.
        AdoptFail = "adopt failed",
        /// The rescue system is being booted.
        Rescuing = "rescuing",
        /// Rescue waits for the agent.
        RescueWait = "rescue wait",
        /// Rescue failed.
        RescueFail = "rescue failed",
        /// It is being booted back into its own system.
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

named! {
    /// What makes a machine's provision state change. Thirteen come from users, five from within.
    Event {
        /// Put an image on it.
        Deploy = "deploy",
        /// Put an image on it again.
        Rebuild = "rebuild",
        /// Take it back.
        Delete = "delete",
        /// Check its BMC, or bring it back under management.
        Manage = "manage",
        /// Clean it and make it available.
        Provide = "provide",
        /// Look at its hardware.
        Inspect = "inspect",
        /// Run clean steps.
        Clean = "clean",
        /// Take over a machine that already runs.
        Adopt = "adopt",
        /// Boot the rescue system.
        Rescue = "rescue",
        /// Leave the rescue system.
        Unrescue = "unrescue",
        /// Run steps on an active machine.
        Service = "service",
        /// Go on after a hold.
        Unhold = "unhold",
        /// Stop what is going on.
        Abort = "abort",
        /// The work waits for the agent.
        Wait = "wait",
        /// The work is held.
        Hold = "hold",
        /// The agent called back.
        Resume = "resume",
        /// The work is finished.
        Done = "done",
        /// The work failed.
        Fail = "fail",
    }
}

named! {
    /// The fifteen targets a user may give to `PUT …/states/provision`.
    Verb {
        /// Deploy.
        Active = "active",
        /// Deploy again.
        Rebuild = "rebuild",
        /// Tear down.
        Deleted = "deleted",
        /// Deploy; the newer name of `active`.
        Deploy = "deploy",
        /// Tear down; the newer name of `deleted`.
        Undeploy = "undeploy",
        /// Check the BMC, or bring back under management.
        Manage = "manage",
        /// Clean and make available.
        Provide = "provide",
        /// Inspect.
        Inspect = "inspect",
        /// Stop what is going on.
        Abort = "abort",
        /// Run clean steps.
        Clean = "clean",
        /// Take over a running machine.
        Adopt = "adopt",
        /// Boot the rescue system.
        Rescue = "rescue",
        /// Leave the rescue system.
        Unrescue = "unrescue",
        /// Go on after a hold.
        Unhold = "unhold",
        /// Run service steps.
        Service = "service",
    }
}

named! {
    /// Whether a machine is on, as its BMC last said.
    PowerState {
        /// On.
        On = "power on",
        /// Off.
        Off = "power off",
        /// The BMC could not say.
        Error = "error",
    }
}

named! {
    /// What a user may ask of a machine's power.
    PowerTarget {
        /// Switch on.
        On = "power on",
        /// Switch off at once.
        Off = "power off",
        /// Switch off and on again.
        Reboot = "rebooting",
        /// Ask the operating system to shut down.
        SoftOff = "soft power off",
        /// Ask the operating system to restart.
        SoftReboot = "soft rebooting",
    }
}

impl PowerTarget {
    /// The state a machine is in once the target is reached.
    #[must_use]
    pub const fn state(self) -> PowerState {
        match self {
            Self::On | Self::Reboot | Self::SoftReboot => PowerState::On,
            Self::Off | Self::SoftOff => PowerState::Off,
        }
    }

    /// Whether the operating system is asked rather than the power cut.
    #[must_use]
    pub const fn is_soft(self) -> bool {
        matches!(self, Self::SoftOff | Self::SoftReboot)
    }
}

named! {
    /// Why Ferrite itself put a machine into maintenance.
    Fault {
        /// Its BMC does not answer.
        Power = "power failure",
        /// A clean step failed.
        Clean = "clean failure",
        /// Cleaning up after an aborted rescue failed.
        RescueAbort = "rescue abort failure",
        /// A service step failed.
        Service = "service failure",
    }
}

named! {
    /// What the BMC says of the machine's condition.
    Health {
        /// Nothing to report.
        Ok = "OK",
        /// Something needs attention.
        Warning = "WARNING",
        /// Something is broken.
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
