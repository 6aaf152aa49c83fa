// SPDX-License-Identifier: Apache-2.0
//! What we put up with within one call: what a BMC may refuse, and how often it is asked again.

use std::time::Duration;

use crate::Error;

/// How often, and with which pauses, something a busy BMC refused is tried again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retries {
    left: u32,
    pause: Duration,
    longest: Duration,
}

impl Retries {
    /// For a BMC that does not take power commands for a minute after the last one.
    pub(super) const POWER: Self =
        Self { left: 8, pause: Duration::from_millis(500), longest: Duration::from_secs(15) };

    /// For a BMC that takes no changes while the machine tests itself at start.
    pub(super) const SELF_TEST: Self =
        Self { left: 5, pause: Duration::from_secs(5), longest: Duration::from_secs(30) };

    /// For a BMC that is still ejecting one image when the next is to be inserted.
    pub(super) const MEDIA: Self =
        Self { left: 3, pause: Duration::from_secs(2), longest: Duration::from_secs(5) };

    /// The pause before the next try, no longer than `left`; none if there have been enough, or if
    /// there is no time left.
    pub(super) fn next(&mut self, left: Duration) -> Option<Duration> {
        if left.is_zero() {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(self.longest);
        Some(pause)
    }
}

/// What BMCs say when they mean "not now": the last part of a message's id.
const BUSY_WORDS: &[&str] = &[
    "ActionParameterValueConflict",
    "OperationTimeout",
    "ResourceInUse",
    "ServiceInUnknownState",
    "ServiceShuttingDown",
    "ServiceTemporarilyUnavailable",
    "UnableToModifyDuringSystemPOST",
];

/// Whether the BMC refused only because it, or the machine, is busy.
pub(super) fn is_busy(error: &redfish::Error) -> bool {
    let redfish::Error::Refused { status, code, .. } = error else { return false };
    // A conflict is one with what goes on right now, unless the BMC says with what.
    let is_vague = code.iter().all(|id| id.ends_with(".GeneralError"));
    matches!(status, 423 | 429 | 503)
        || *status == 409 && is_vague
        || BUSY_WORDS.iter().any(|word| error.says(word))
}

/// Whether the BMC understood the request and will not have it that way: another way may do.
pub(super) fn is_refusal(error: &redfish::Error) -> bool {
    matches!(error.status(), Some(400 | 404 | 405 | 409 | 412 | 422 | 500 | 501)) && !is_busy(error)
}

/// What was read; nothing where the BMC answered and did not want to tell. For what is good to
/// know and not needed.
pub(super) fn forgive<T: Default>(read: Result<T, Error>) -> Result<T, Error> {
    match read {
        Err(Error::Failed { .. }) => Ok(T::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_grow_and_end() {
        let mut retries = Retries::SELF_TEST;
        let pauses: Vec<u64> = std::iter::from_fn(|| retries.next(Duration::from_secs(12)))
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [5, 10, 12, 12, 12]);
        assert_eq!({ Retries::POWER }.next(Duration::ZERO), None);
    }

    #[test]
    fn busy_and_refusal() {
        let refused = |status, code: &str| redfish::Error::Refused {
            method: "PATCH".to_owned(),
            path: "/redfish/v1/Systems/1".to_owned(),
            status,
            code: vec![code.to_owned()],
            message: String::new(),
        };
        for (error, busy, refusal) in [
            (refused(400, "iLO.2.14.UnableToModifyDuringSystemPOST"), true, false),
            (refused(400, "Base.1.8.PropertyValueNotInList"), false, true),
            (refused(409, "Base.1.8.ActionParameterValueConflict"), true, false),
            (refused(409, "Base.1.8.GeneralError"), true, false),
            (refused(409, "Base.1.8.PropertyValueConflict"), false, true),
            (refused(503, ""), true, false),
            (refused(501, ""), false, true),
            (redfish::Error::NotFound { path: String::new() }, false, true),
            (redfish::Error::Unauthorized { address: String::new() }, false, false),
        ] {
            assert_eq!((is_busy(&error), is_refusal(&error)), (busy, refusal), "{error}");
        }
    }
}
