// SPDX-License-Identifier: Apache-2.0
//! The host of an object with the same name, if its node can be used.

use std::sync::Arc;

use kube::ResourceExt;
use kube_resources::hosts::annotations::{DETACHED, PAUSED};
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_status::OperationalStatus;

use super::super::provisioner::ManagedHost;
use super::watching::ObjectCache;
use crate::object_key::ObjectKey;

/// The host, unless it does not exist, is not registered, paused, detached or deleted. Changes of all
/// that are reported, so the caller waits for the next one.
pub(super) fn registered_host(
    hosts: &ObjectCache<BareMetalHost>,
    key: &ObjectKey,
) -> Option<(Arc<BareMetalHost>, ManagedHost)> {
    let host = hosts.get(key)?;
    let status = host.status.as_ref()?;
    let is_detached = host.annotation(DETACHED).is_some()
        || status.operational_status == OperationalStatus::Detached;
    let is_usable = !status.provisioning.id.is_empty()
        && host.annotation(PAUSED).is_none()
        && !is_detached
        && host.metadata.deletion_timestamp.is_none();
    let managed = ManagedHost {
        namespace: key.namespace().to_owned(),
        name: key.name().to_owned(),
        uid: host.uid().unwrap_or_default(),
        node_id: Some(status.provisioning.id.clone()),
        boot_mac_address: host.spec.boot_mac_address.clone(),
        bmc: None,
        disable_power_off: host.spec.disable_power_off,
    };
    is_usable.then_some((host, managed))
}
