// SPDX-License-Identifier: Apache-2.0
//! The two variants of the Redfish implementations: standard, and with the extensions of Dell iDRACs.

/// Which extensions an implementation uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RedfishVariant {
    /// None.
    Standard,
    /// Those of Dell iDRACs.
    Idrac,
}

impl RedfishVariant {
    /// The name of the implementations, except boot interfaces.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Standard => super::NAME,
            Self::Idrac => "idrac-redfish",
        }
    }
}
