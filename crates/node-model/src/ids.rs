// SPDX-License-Identifier: Apache-2.0
//! One type per kind of identifier, so that a port can never be looked up by a node's id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A fresh random id.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                Uuid::from_str(text).map(Self)
            }
        }
    )*};
}

ids! {
    /// What a ramdisk wrote down.
    AgentLogId
    /// A reservation of a machine by its properties.
    AllocationId
    /// A rack or enclosure that groups nodes.
    ChassisId
    /// Steps added to a deployment by a trait.
    DeployTemplateId
    /// A kind of machine.
    FlavourId
    /// One line of a node's history.
    HistoryId
    /// A machine.
    NodeId
    /// A network card of a machine.
    PortId
    /// Several ports bonded into one.
    PortgroupId
    /// What a machine that nobody enrolled told about itself.
    ReportId
    /// A rule that runs over inspection data.
    RuleId
    /// A named, approved list of steps.
    RunbookId
    /// How a node reaches remote volumes.
    VolumeConnectorId
    /// A remote volume of a node.
    VolumeTargetId
}
