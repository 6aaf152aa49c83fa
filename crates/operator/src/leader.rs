// SPDX-License-Identifier: Apache-2.0
//! Leader election with a Lease, compatible with client-go: of all processes that use the same Lease,
//! Go or Rust, one is the leader.
//!
//! A candidate never compares the times in the Lease with its clock. It takes the Lease if it has not
//! seen a change for the duration that the holder promised, so clocks may differ. The leader stops
//! when it could not renew the Lease for the renew deadline, which is shorter than that duration; a
//! [`LeadershipFence`] rejects its writes from then on.
//!
//! Written here because no published crate fits: `kube-lease-manager` 0.13 and `kube-leader-election`
//! 0.44 compare the written times with the clock of the candidate, renew without a resource version,
//! and have no renew deadline; `kubert` needs another version of `kube`.

mod election;
mod fence;
mod steps;
#[cfg(test)]
mod tests;

pub use election::{LeaderElection, LeadershipLoss};
pub use fence::{FencedTransport, LeadershipFence, fenced_client};
pub use steps::{InvalidLeaseTiming, LeaseTiming};
