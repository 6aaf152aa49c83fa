// SPDX-License-Identifier: Apache-2.0
//! Errors of handlers, and their HTTP status and message.
//!
//! Handlers and the closures they pass to the store return [`ApiError`], so that `?` works for both
//! wire errors and store errors.

use error_chain::error_chain;
use ironic_wire::WireError;

use super::request_id::RequestId;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// The request is rejected.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The store rejected a change, or failed.
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

impl ApiError {
    /// The error as clients see it. An internal error contains only the request id, under which the
    /// log has the cause.
    pub(crate) fn into_wire(self, request_id: &RequestId) -> WireError {
        match self {
            Self::Wire(error) => error,
            Self::Store(error) => match error {
                store::StoreError::Duplicate { what } => {
                    WireError::conflict(format!("A record with the same {what} already exists."))
                }
                store::StoreError::Reference | store::StoreError::Missing => WireError::conflict(
                    "A record this request depends on is gone or still in use; read it again and retry.",
                ),
                store::StoreError::ValueRejected(_) => WireError::invalid(
                    "A text is too long for the database or contains a NUL character.",
                ),
                store::StoreError::MarkerNotFound => {
                    WireError::new(404, "The marker of this page could not be found.")
                }
                store::StoreError::LeaseLost | store::StoreError::Contended(_) => {
                    WireError::conflict(
                        "Other requests are changing the same records; please retry.",
                    )
                }
                store::StoreError::Unavailable(_) | store::StoreError::Closed => {
                    WireError::unavailable("The database does not respond; please retry later.")
                }
                store::StoreError::CommitUnknown(_) => WireError::unavailable(
                    "The database does not respond, and the change may be stored or not; please \
                     check the record before you retry.",
                ),
                store::StoreError::KeyMissing { .. } => WireError::unavailable(
                    "This server does not have the current sealing key; please retry later.",
                ),
                store::StoreError::Corrupt { .. }
                | store::StoreError::Unseal { .. }
                | store::StoreError::Panicked => WireError::internal(request_id.as_str()),
            },
        }
    }

    /// The field whose value another record already has, if this is the error.
    pub(crate) fn duplicate(&self) -> Option<&'static str> {
        match self {
            Self::Store(store::StoreError::Duplicate { what }) => Some(what),
            Self::Store(_) | Self::Wire(_) => None,
        }
    }
}

impl From<conductor::ConductorError> for ApiError {
    fn from(error: conductor::ConductorError) -> Self {
        use conductor::ConductorError;
        let message = client_message(&error);
        match error {
            ConductorError::Store(error) => Self::Store(error),
            ConductorError::NoSuchNode(_) => WireError::new(404, message).into(),
            ConductorError::ProvisionRejected(reason) => {
                WireError::new(provision_status(&reason), message).into()
            }
            ConductorError::PowerRejected(reason) => {
                WireError::new(power_status(&reason), message).into()
            }
            ConductorError::Driver { source, .. } if source.is_caller_error() => {
                WireError::invalid(message).into()
            }
            ConductorError::Driver { source, .. } if source.is_not_found() => {
                WireError::new(404, message).into()
            }
            ConductorError::Driver { .. } => WireError::new(500, message).into(),
            ConductorError::Selection { .. }
            | ConductorError::Invalid { .. }
            | ConductorError::Agent(_)
            | ConductorError::Inspection(_) => WireError::invalid(message).into(),
            ConductorError::NotYet(_) => WireError::unavailable(message).into(),
            ConductorError::Conflict(_) => WireError::conflict(message).into(),
        }
    }
}

/// The message of an error with its causes and without passwords in URLs.
fn client_message(error: &conductor::ConductorError) -> String {
    node_model::mask_urls(&error_chain(error)).into_owned()
}

const fn provision_status(error: &lifecycle::ProvisionRequestError) -> u16 {
    use lifecycle::ProvisionRequestError;
    match error {
        ProvisionRequestError::Locked { .. } => 409,
        ProvisionRequestError::Protected { .. } => 403,
        ProvisionRequestError::Maintenance { .. }
        | ProvisionRequestError::NotInThisState { .. }
        | ProvisionRequestError::Retired { .. }
        | ProvisionRequestError::Steps(_) => 400,
    }
}

const fn power_status(error: &lifecycle::PowerRequestError) -> u16 {
    use lifecycle::PowerRequestError;
    match error {
        PowerRequestError::Cleaning { .. } => 400,
        PowerRequestError::Locked { .. }
        | PowerRequestError::PowerOffDisabled { .. }
        | PowerRequestError::WorkHeld { .. } => 409,
    }
}

/// Replaces the generic message for a duplicate value by a specific one.
pub(crate) trait ReplaceDuplicate<T> {
    /// Replaces the error if it is a duplicate; `replace` gets the field.
    fn on_duplicate(self, replace: impl FnOnce(&'static str) -> WireError) -> Result<T, ApiError>;
}

impl<T, E: Into<ApiError>> ReplaceDuplicate<T> for Result<T, E> {
    fn on_duplicate(self, replace: impl FnOnce(&'static str) -> WireError) -> Result<T, ApiError> {
        self.map_err(|error| {
            let error: ApiError = error.into();
            match error.duplicate() {
                Some(field) => replace(field).into(),
                None => error,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use conductor::ConductorError;
    use drivers::DriverError;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot connect: {0}")]
    struct ConnectError(#[source] std::io::Error);

    #[test]
    fn driver_error_contains_each_cause_once() {
        let refused = std::io::Error::other("https://admin:secret@192.0.2.7 refused");
        let source = DriverError::BmcUnreachable {
            address: "192.0.2.7".to_owned(),
            what: "read the power state".to_owned(),
            source: Some(Box::new(ConnectError(refused))),
        };
        let error = ConductorError::Driver { node: "rack1-u02".to_owned(), source };
        assert_eq!(
            client_message(&error),
            "node rack1-u02: the BMC at 192.0.2.7 could not be reached while trying to read the \
             power state; check its address, its network and that it is up: cannot connect: \
             https://admin:******@192.0.2.7 refused"
        );
    }
}
