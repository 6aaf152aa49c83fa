// SPDX-License-Identifier: Apache-2.0
//! Limits log lines that an outage of the Kubernetes API would repeat for every object.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines about the same subject.
const INTERVAL: Duration = Duration::from_secs(60);

/// Lines about failures of the API, in all controllers.
pub(crate) static API_FAILURES: LogLimit = LogLimit::new();

/// When subjects were logged last.
pub(crate) struct LogLimit {
    subjects: Mutex<BTreeMap<String, LoggedSubject>>,
}

struct LoggedSubject {
    logged_at: Instant,
    omitted: u64,
}

impl LogLimit {
    const fn new() -> Self {
        Self { subjects: Mutex::new(BTreeMap::new()) }
    }

    /// Whether a line about a subject is logged now: the number of lines that were omitted before it. `None`
    /// counts it as omitted.
    pub(crate) fn admit(&self, subject: &str, now: Instant) -> Option<u64> {
        // The map is consistent after every statement.
        let mut subjects = self.subjects.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(logged) = subjects.get_mut(subject) {
            if now.saturating_duration_since(logged.logged_at) < INTERVAL {
                logged.omitted += 1;
                return None;
            }
            logged.logged_at = now;
            return Some(std::mem::take(&mut logged.omitted));
        }
        subjects.insert(subject.to_owned(), LoggedSubject { logged_at: now, omitted: 0 });
        Some(0)
    }

    /// Like [`LogLimit::admit`] for a failed request. A failure that concerns only one object is always logged.
    pub(crate) fn admit_failure(
        &self,
        subject: &str,
        error: &(dyn std::error::Error + 'static),
    ) -> Option<u64> {
        self.admit_unless(!is_outage(error), subject)
    }

    /// Like [`LogLimit::admit_failure`] for a failure whose error is not at hand.
    pub(crate) fn admit_unless(&self, is_of_one_object: bool, subject: &str) -> Option<u64> {
        match is_of_one_object {
            true => Some(0),
            false => self.admit(subject, Instant::now()),
        }
    }
}

/// Whether the API server cannot be reached, cannot work or does not admit this client, so that requests for other
/// objects fail too.
pub(crate) fn is_outage(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(current) = next {
        if let Some(error) = current.downcast_ref::<kube::Error>() {
            let is_client_refused = |code: u16| matches!(code, 401 | 403 | 408 | 429);
            let is_of_one_object = |code: u16| code < 500 && !is_client_refused(code);
            // An object that cannot be read does not match its type.
            let is_unreadable =
                matches!(error, kube::Error::SerdeError(_) | kube::Error::FromUtf8(_));
            return !is_unreadable
                && !matches!(error, kube::Error::Api(status) if is_of_one_object(status.code));
        }
        next = current.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn lines_are_omitted_and_counted() {
        let (limit, start) = (LogLimit::new(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(limit.admit("a", at(0)), Some(0));
        assert_eq!((limit.admit("a", at(1)), limit.admit("a", at(59))), (None, None));
        assert_eq!(limit.admit("b", at(59)), Some(0), "another subject");
        assert_eq!(limit.admit("a", at(60)), Some(2));
        assert_eq!(limit.admit("a", at(61)), None);
        assert_eq!(limit.admit("a", at(200)), Some(1));
    }

    #[test]
    fn failures_of_one_object_are_no_outage() {
        let of_one_object = [404, 409, 410, 422].map(|code| (code, false));
        let outages = [401, 403, 408, 429, 500, 503, 504].map(|code| (code, true));
        for (code, expected) in of_one_object.into_iter().chain(outages) {
            let status = Status::failure("no", "Reason").with_code(code);
            let error = kube::Error::Api(status.boxed());
            assert_eq!(is_outage(&error), expected, "{code}");
        }
        let no_object = serde_json::from_str::<bool>("{}").unwrap_err();
        assert!(!is_outage(&kube::Error::SerdeError(no_object)));
        assert!(is_outage(&kube::Error::ReadEvents(std::io::Error::other("closed"))));
        assert!(!is_outage(&std::io::Error::other("not a request")));
    }
}
