// SPDX-License-Identifier: Apache-2.0
//! Types, reasons and messages of the conditions of an `Ironic` and an `IronicDatabase`.

/// The service or the database can be used.
pub const READY: &str = "Ready";
/// The spec has fields that have no effect; the message lists them.
pub const FIELDS_WITHOUT_EFFECT: &str = "FieldsWithoutEffect";

/// Reason: a user has to change something.
pub const DEPLOYMENT_FAILED: &str = "DeploymentFailed";
/// Reason: objects are being created or changed.
pub const DEPLOYMENT_IN_PROGRESS: &str = "DeploymentInProgress";
/// Reason: everything is available.
pub const DEPLOYMENT_AVAILABLE: &str = "DeploymentAvailable";
/// Reason of `FieldsWithoutEffect`.
pub const NOT_APPLICABLE: &str = "NotApplicable";

/// Prefix of all messages of an `Ironic`. Scripts of users match the complete messages.
const MESSAGE_PREFIX: &str = "ironic: ";

/// Text when the service is ready.
pub const RESOURCES_AVAILABLE: &str = "resources are available";
/// Text while the service is not ready, if there is no better one.
pub const RESOURCES_NOT_READY: &str = "resources are not ready yet";
/// Text after objects were written.
pub const RESOURCES_UPDATING: &str = "dependent resources are being updated";
/// Text after another version was requested.
pub const NEW_VERSION_REQUESTED: &str = "new version requested";
/// Text after an older version was requested.
pub const DOWNGRADE_NOT_SUPPORTED: &str =
    "Ironic does not support downgrades with an external database";

/// The message with this text.
#[must_use]
pub fn message(text: &str) -> String {
    format!("{MESSAGE_PREFIX}{text}")
}
