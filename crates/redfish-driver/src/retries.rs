// SPDX-License-Identifier: Apache-2.0
//! Classification of BMC refusals, and the retries within one driver call.

use std::time::Duration;

use drivers::DriverError;

/// Number of retries and the delays between them, for requests that a busy BMC rejects.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryBudget {
    left: u32,
    pause: Duration,
    longest: Duration,
}

impl RetryBudget {
    /// For BMCs that reject power commands for up to a minute after the last one.
    pub(super) const POWER: Self =
        Self { left: 8, pause: Duration::from_millis(500), longest: Duration::from_secs(15) };

    /// For BMCs that reject changes during the power-on self-test.
    pub(super) const SELF_TEST: Self =
        Self { left: 5, pause: Duration::from_secs(5), longest: Duration::from_secs(30) };

    /// For BMCs that are still ejecting one image when the next is inserted.
    pub(super) const MEDIA: Self =
        Self { left: 3, pause: Duration::from_secs(2), longest: Duration::from_secs(5) };

    /// Returns the delay before the next attempt, at most `left`; `None` if the retries or the time
    /// are used up. The delay doubles up to `longest`.
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

/// Message ids (last segment) that mean the BMC or the machine is busy.
const BUSY_MESSAGE_IDS: &[&str] = &[
    "ActionParameterValueConflict",
    "OperationTimeout",
    "ResourceInUse",
    "ServiceInUnknownState",
    "ServiceShuttingDown",
    "ServiceTemporarilyUnavailable",
    "UnableToModifyDuringSystemPOST",
];

/// Whether the BMC rejected the request only because it or the machine is busy.
pub(super) fn is_busy(error: &redfish::RedfishError) -> bool {
    let redfish::RedfishError::Refused { status, code, .. } = error else { return false };
    // A 409 without a specific message id is a conflict with a running operation.
    let is_unspecific = code.iter().all(|id| id.ends_with(".GeneralError"));
    matches!(status, 423 | 429 | 503)
        || *status == 409 && is_unspecific
        || BUSY_MESSAGE_IDS.iter().any(|id| error.has_message_id(id))
}

/// Whether the BMC rejected the request because of its content; another form may be accepted.
pub(super) fn is_refusal(error: &redfish::RedfishError) -> bool {
    matches!(error.status(), Some(400 | 404 | 405 | 409 | 412 | 422 | 500 | 501)) && !is_busy(error)
}

/// Replaces a refusal of the BMC by the default value. For data that is optional.
pub(super) fn ignore_failure<T: Default>(read: Result<T, DriverError>) -> Result<T, DriverError> {
    match read {
        Err(DriverError::Failed { .. }) => Ok(T::default()),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_and_end() {
        let mut retries = RetryBudget::SELF_TEST;
        let pauses: Vec<u64> = std::iter::from_fn(|| retries.next(Duration::from_secs(12)))
            .map(|pause| pause.as_secs())
            .collect();
        assert_eq!(pauses, [5, 10, 12, 12, 12]);
        assert_eq!({ RetryBudget::POWER }.next(Duration::ZERO), None);
    }

    #[test]
    fn classifies_refusals() {
        let refused = |status, code: &str| redfish::RedfishError::Refused {
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
            (redfish::RedfishError::NotFound { path: String::new() }, false, true),
            (redfish::RedfishError::Unauthorized { address: String::new() }, false, false),
        ] {
            assert_eq!((is_busy(&error), is_refusal(&error)), (busy, refusal), "{error}");
        }
    }
}
