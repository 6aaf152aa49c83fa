// SPDX-License-Identifier: Apache-2.0
//! Why a handler did not do what it was asked, before it is put in Ironic's words.
//!
//! Handlers and the closures they give to the store return this, so that `?` serves both: what is
//! wrong with the request, and what is wrong with the database.

use ironic_wire::WireError;

use crate::request_id::RequestId;

/// Why not.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request is refused.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The store refused, or failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Refusal {
    /// The refusal as clients see it. A failure of ours names the request, under which the log
    /// has the rest.
    pub(crate) fn into_wire(self, request_id: &RequestId) -> WireError {
        match self {
            Self::Wire(error) => error,
            Self::Store(error) => match error {
                store::Error::Duplicate { what } => {
                    WireError::conflict(format!("A record with the same {what} already exists."))
                }
                store::Error::Reference | store::Error::Missing => WireError::conflict(
                    "A record this request depends on is gone or still in use; look again and retry.",
                ),
                store::Error::Unfit(_) => WireError::invalid(
                    "A text is longer than the database keeps, or has a NUL character.",
                ),
                store::Error::NoSuchMarker => {
                    WireError::new(404, "The marker of this page could not be found.")
                }
                store::Error::LeaseLost | store::Error::Contended(_) => WireError::conflict(
                    "Others are changing the same records; please retry in a moment.",
                ),
                store::Error::Unavailable(_) | store::Error::Closed => WireError::unavailable(
                    "The database does not answer at the moment; please retry later.",
                ),
                store::Error::Corrupt { .. }
                | store::Error::Vault { .. }
                | store::Error::Panicked => WireError::internal(request_id.as_str()),
            },
        }
    }

    /// The field whose value another record already has, if that is the reason.
    pub(crate) fn duplicate(&self) -> Option<&'static str> {
        match self {
            Self::Store(store::Error::Duplicate { what }) => Some(what),
            Self::Store(_) | Self::Wire(_) => None,
        }
    }
}

impl From<conductor::Error> for Refusal {
    fn from(error: conductor::Error) -> Self {
        use conductor::Error;
        let message = words(&error);
        match error {
            Error::Store(error) => Self::Store(error),
            Error::NoSuchNode(_) => WireError::new(404, message).into(),
            Error::Refused(refusal) => WireError::new(status_of(&refusal), message).into(),
            Error::PowerRefused(refusal) => {
                WireError::new(power_status_of(&refusal), message).into()
            }
            Error::Driver { source, .. } if source.is_callers_fault() => {
                WireError::invalid(message).into()
            }
            Error::Driver { source, .. } if source.is_not_found() => {
                WireError::new(404, message).into()
            }
            Error::Driver { .. } => WireError::new(500, message).into(),
            Error::Selection { .. }
            | Error::Invalid { .. }
            | Error::Agent(_)
            | Error::Inspection(_) => WireError::invalid(message).into(),
            Error::Limit { .. } | Error::NotYet(_) => WireError::unavailable(message).into(),
            Error::Conflict(_) => WireError::conflict(message).into(),
        }
    }
}

/// The error with its causes, for those to whom the machine's answer is the point; without the
/// passwords of URLs.
fn words(error: &conductor::Error) -> String {
    let mut words = error.to_string();
    // The outer error says what the driver said; what follows is why.
    let conductor::Error::Driver { source, .. } = error else {
        return node_model::mask_urls(&words).into_owned();
    };
    let mut cause = std::error::Error::source(source);
    while let Some(deeper) = cause {
        words.push_str(": ");
        words.push_str(&deeper.to_string());
        cause = deeper.source();
    }
    node_model::mask_urls(&words).into_owned()
}

const fn status_of(refusal: &lifecycle::Refusal) -> u16 {
    use lifecycle::Refusal;
    match refusal {
        Refusal::Locked { .. } => 409,
        Refusal::Protected { .. } => 403,
        Refusal::Maintenance { .. }
        | Refusal::NotInThisState { .. }
        | Refusal::Retired { .. }
        | Refusal::Steps(_) => 400,
    }
}

const fn power_status_of(refusal: &lifecycle::PowerRefusal) -> u16 {
    use lifecycle::PowerRefusal;
    match refusal {
        PowerRefusal::Cleaning { .. } => 400,
        PowerRefusal::Locked { .. } | PowerRefusal::NeverOff { .. } => 409,
    }
}

/// Lets errors of one kind become refusals with another message, where `replace` knows better.
pub(crate) trait Reword<T> {
    /// Replaces the refusal for a duplicate of a field.
    fn on_duplicate(self, replace: impl FnOnce(&'static str) -> WireError) -> Result<T, Refusal>;
}

impl<T, E: Into<Refusal>> Reword<T> for Result<T, E> {
    fn on_duplicate(self, replace: impl FnOnce(&'static str) -> WireError) -> Result<T, Refusal> {
        self.map_err(|error| {
            let refusal: Refusal = error.into();
            match refusal.duplicate() {
                Some(field) => replace(field).into(),
                None => refusal,
            }
        })
    }
}
