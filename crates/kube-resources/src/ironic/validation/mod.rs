// SPDX-License-Identifier: Apache-2.0
//! Validation of `Ironic` and `IronicDatabase` objects, for webhooks and controllers.
//!
//! The rules are those of Metal3's operator, with two exceptions: DHCP ranges may be missing, and
//! DHCP may be used with high availability. Deletion is never rejected.

mod addresses;
mod agent_images;
mod certificates;
mod database;
mod dhcp;
mod keepalived;
mod metrics;
mod provider_networks;

pub use certificates::check_trusted_ca_key;
pub use database::validate_ironic_database;
pub use dhcp::{DhcpPool, dhcp_pools};

use super::service::Ironic;
use super::versions::SupportedVersions;
use crate::field_error::FieldError;

#[cfg(test)]
mod tests;

/// Settings of the operator that rules depend on.
#[derive(Clone, Debug)]
pub struct IronicRules {
    /// Whether `highAvailability` may be used.
    pub allows_high_availability: bool,
    /// Versions that can be installed.
    pub versions: SupportedVersions,
}

impl Default for IronicRules {
    fn default() -> Self {
        Self { allows_high_availability: true, versions: SupportedVersions::own() }
    }
}

/// Checks an installation on creation, and as part of every update.
#[must_use]
pub fn validate_ironic(ironic: &Ironic, rules: &IronicRules) -> Vec<FieldError> {
    let spec = &ironic.spec;
    let mut errors = Vec::new();
    errors.extend(database::check(spec));
    errors.extend(high_availability_gate(ironic, rules));
    errors.extend(addresses::check(spec));
    errors.extend(dhcp::check(spec));
    errors.extend(keepalived::check(spec));
    errors.extend(metrics::check(spec));
    errors.extend(certificates::check(spec));
    errors.extend(version(ironic, rules));
    if let Some(overrides) = &spec.overrides {
        errors.extend(agent_images::check(&overrides.agent_images));
        errors.extend(override_names(ironic));
    }
    if let Some(service) = &spec.networking_service {
        errors.extend(provider_networks::check(service));
    }
    errors
}

/// Checks the new version of an installation, and what may change.
#[must_use]
pub fn validate_ironic_update(old: &Ironic, new: &Ironic, rules: &IronicRules) -> Vec<FieldError> {
    let mut errors = validate_ironic(new, rules);
    errors.extend(database::check_update(&old.spec, &new.spec));
    errors
}

/// Replicas are enabled by a feature gate of the operator.
fn high_availability_gate(ironic: &Ironic, rules: &IronicRules) -> Option<FieldError> {
    (ironic.spec.high_availability && !rules.allows_high_availability).then(|| {
        FieldError::new(
            "spec.highAvailability",
            "is disabled in the operator; start it with --feature-gates HighAvailability=true, or set \
             the field to false",
        )
    })
}

fn version(ironic: &Ironic, rules: &IronicRules) -> Option<FieldError> {
    let error = rules.versions.select(ironic.spec.version.as_deref()).err()?;
    Some(FieldError::new("spec.version", error.to_string()))
}

/// Overrides are merged by name. The schema requires names of containers and volumes.
fn override_names(ironic: &Ironic) -> Vec<FieldError> {
    let Some(overrides) = &ironic.spec.overrides else { return Vec::new() };
    let mut errors = Vec::new();
    for (list, items) in [
        ("containers", &overrides.containers),
        ("initContainers", &overrides.init_containers),
        ("volumes", &overrides.volumes),
    ] {
        for (index, item) in items.iter().enumerate() {
            let name = item.get("name").and_then(serde_json::Value::as_str).unwrap_or_default();
            let path = format!("spec.overrides.{list}[{index}].name");
            let is_repeated = items[..index]
                .iter()
                .any(|other| other.get("name").is_some_and(|other| other == name));
            if name.is_empty() {
                errors.push(FieldError::new(path, "is missing; set it"));
            } else if is_repeated {
                let problem = format!("{name:?} occurs twice; use one entry with all changes");
                errors.push(FieldError::new(path, problem));
            }
        }
    }
    errors
}

/// Whether a condition holds, as an error at a field.
fn required(is_valid: bool, path: &str, problem: impl Into<String>) -> Option<FieldError> {
    (!is_valid).then(|| FieldError::new(path, problem))
}
