// SPDX-License-Identifier: Apache-2.0
//! Labels, finalizers and other fixed names of group `metal3.io`.

/// Name of the Lease of the leader.
pub const LEADER_ELECTION_ID: &str = "baremetal-operator";

/// Group of the kinds.
pub const GROUP: &str = "metal3.io";
/// Version of the kinds.
pub const VERSION: &str = "v1alpha1";

/// Finalizer of a `BareMetalHost`.
pub const HOST_FINALIZER: &str = "baremetalhost.metal3.io";
/// Finalizer of the Secrets that a host uses.
pub const SECRET_FINALIZER: &str = "baremetalhost.metal3.io/secret";
/// Finalizer of a `HardwareData`.
pub const HARDWARE_DATA_FINALIZER: &str = "baremetalhost.metal3.io/hardwareData";
/// Finalizer that the controller of hosts sets on a `PreprovisioningImage`.
pub const HOST_PREPROVISIONING_IMAGE_FINALIZER: &str =
    "baremetalhost.metal3.io/preprovisioningImage";
/// Finalizer that the controller of images sets on a `PreprovisioningImage`.
pub const PREPROVISIONING_IMAGE_FINALIZER: &str = "preprovisioningimage.metal3.io";
/// Finalizer of a `DataImage`.
pub const DATA_IMAGE_FINALIZER: &str = "dataimage.metal3.io";
/// Finalizer of a `BMCEventSubscription`.
pub const BMC_EVENT_SUBSCRIPTION_FINALIZER: &str = "bmceventsubscription.metal3.io";
/// Finalizer of a `HostClaim`.
pub const HOST_CLAIM_FINALIZER: &str = "metal3.io/hostclaim";

/// Label of a host with its failure domain, as in Cluster API.
pub const FAILURE_DOMAIN_LABEL: &str = "infrastructure.cluster.x-k8s.io/failure-domain";
/// Label of the copies of a claim's Secrets in the namespace of a host: the UID of the host. Not part of
/// Metal3.
pub const CLAIM_COPY_LABEL: &str = "hostclaim.metal3.io/host-uid";
/// Annotation of a copy: namespace and name of the claim. Not part of Metal3.
pub const CLAIM_COPY_ANNOTATION: &str = "hostclaim.metal3.io/claim";
/// Annotation of a copy: UID and version of the Secret that was copied. Not part of Metal3.
pub const CLAIM_SOURCE_ANNOTATION: &str = "hostclaim.metal3.io/source";

/// Label of all Secrets that are used, and its value. Caches select by it.
pub const SECRET_LABEL: (&str, &str) = ("environment.metal3.io", "baremetal");

/// Component that events name as their source.
pub const EVENT_COMPONENT: &str = "metal3-baremetal-controller";
/// Controller that events name as their reporter.
pub const EVENT_CONTROLLER: &str = "metal3.io/baremetal-controller";
