// SPDX-License-Identifier: Apache-2.0
//! Hosts that are reserved for a claim until they refer to it. A claim has at most one.

use std::collections::HashMap;

use crate::object_key::ObjectKey;

/// The reserved hosts.
#[derive(Debug, Default)]
pub(super) struct HostReservations {
    by_host: HashMap<ObjectKey, BindingReservation>,
    by_claim: HashMap<ObjectKey, ObjectKey>,
}

#[derive(Debug)]
struct BindingReservation {
    claim: ObjectKey,
    progress: BindingProgress,
}

/// How far the binding of a reserved host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BindingProgress {
    /// The claim was woken to use the host.
    Planned,
    /// The reference to the claim is being written, or it is unknown whether it was.
    Started,
    /// The reference was written as this version of the host, which the watch has not reported yet.
    Written(u64),
}

impl HostReservations {
    /// Reserves a host. An earlier reservation of the claim ends; returns its host.
    pub(super) fn insert(
        &mut self,
        host: ObjectKey,
        claim: ObjectKey,
        progress: BindingProgress,
    ) -> Option<ObjectKey> {
        let earlier = self.by_claim.insert(claim.clone(), host.clone());
        if let Some(earlier) = &earlier {
            self.by_host.remove(earlier);
        }
        self.by_host.insert(host, BindingReservation { claim, progress });
        earlier
    }

    /// Ends the reservation of a host and returns its claim.
    pub(super) fn remove(&mut self, host: &ObjectKey) -> Option<ObjectKey> {
        let BindingReservation { claim, .. } = self.by_host.remove(host)?;
        self.by_claim.remove(&claim);
        Some(claim)
    }

    /// Changes the progress of a reservation, if there is one.
    pub(super) fn set_progress(&mut self, host: &ObjectKey, progress: BindingProgress) {
        if let Some(reservation) = self.by_host.get_mut(host) {
            reservation.progress = progress;
        }
    }

    pub(super) fn progress(&self, host: &ObjectKey) -> Option<BindingProgress> {
        self.by_host.get(host).map(|reservation| reservation.progress)
    }

    /// The host that is reserved for a claim.
    pub(super) fn host_of(&self, claim: &ObjectKey) -> Option<(&ObjectKey, BindingProgress)> {
        let host = self.by_claim.get(claim)?;
        Some((host, self.progress(host)?))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_host.is_empty() && self.by_claim.is_empty()
    }
}
