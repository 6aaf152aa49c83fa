// SPDX-License-Identifier: Apache-2.0
//! Formats an error with its causes, for logs and for users.

use std::error::Error;

/// Returns `error` and its causes, separated by `": "`.
///
/// A cause is skipped only if the text of the error that it caused already ends with it, as in
/// `#[error("node {node}: {source}")]`.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut last = error.to_string();
    let mut text = last.clone();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !last.ends_with(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        last = message;
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum TestError {
        #[error("cannot read disk")]
        Outer(#[source] Box<TestError>),
        #[error("node a: {source}")]
        Containing { source: Box<TestError> },
        #[error("disk")]
        Inner,
    }

    #[test]
    fn contains_every_cause_once() {
        let outer = TestError::Outer(Box::new(TestError::Inner));
        assert_eq!(error_chain(&outer), "cannot read disk", "the text ends with its cause");
        let containing = TestError::Containing { source: Box::new(outer) };
        assert_eq!(error_chain(&containing), "node a: cannot read disk");
        let twice = TestError::Containing {
            source: Box::new(TestError::Containing { source: Box::new(TestError::Inner) }),
        };
        assert_eq!(error_chain(&twice), "node a: node a: disk");
    }

    #[test]
    fn keeps_a_cause_whose_text_occurs_elsewhere() {
        #[derive(Debug, thiserror::Error)]
        #[error("timeout while waiting for task")]
        struct TaskError(#[source] TimeoutError);
        #[derive(Debug, thiserror::Error)]
        #[error("timeout")]
        struct TimeoutError;
        assert_eq!(
            error_chain(&TaskError(TimeoutError)),
            "timeout while waiting for task: timeout"
        );
    }
}
