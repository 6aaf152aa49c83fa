// SPDX-License-Identifier: Apache-2.0
//! The trait that supplies files to the HTTP server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use boot_media::Content;

use super::request::BootHttpRequest;
use super::status::BootHttpStatus;

/// Supplies files. Called once per request on the task of the connection. It may wait, for example for a
/// database, and is cancelled after [`super::BootHttpLimits::lookup_timeout`].
#[async_trait]
pub trait HttpFiles: Send + Sync {
    /// Returns the file for this request. The server handles the method, the range and the conditions.
    ///
    /// # Errors
    /// If there is no file for this client now.
    async fn file(&self, request: &BootHttpRequest<'_>) -> Result<HttpFile, HttpFileRefusal>;
}

/// A file to send.
#[derive(Debug, Clone)]
pub struct HttpFile {
    /// The content.
    pub content: Content,
    /// The `Content-Type`.
    pub media_type: &'static str,
    /// The entity tag without quotes, in visible ASCII. Different contents of a path have different tags.
    pub etag: Option<Arc<str>>,
    /// The title for timelines and logs. Never the path, which may contain a secret.
    pub title: Arc<str>,
    /// The machine that the file is for.
    pub machine: Option<Arc<str>>,
}

/// Why a request gets no file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpFileRefusal {
    /// The reason.
    pub reason: HttpRefusalReason,
    /// The title for timelines and logs; `None` for the redacted path.
    pub title: Option<Arc<str>>,
    /// The machine that the file would be for.
    pub machine: Option<Arc<str>>,
}

/// The reason of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpRefusalReason {
    /// There is no such file.
    NotFound,
    /// The file has expired.
    Gone,
    /// The file is not for this client.
    Forbidden,
    /// The file is temporarily unavailable.
    Unavailable {
        /// The cause, shown on the machine's screen.
        reason: Arc<str>,
        /// When to retry; sent in whole seconds, at least one.
        retry_after: Duration,
    },
}

impl HttpFileRefusal {
    /// Returns a refusal without title and machine.
    #[must_use]
    pub fn new(reason: HttpRefusalReason) -> Self {
        Self { reason, title: None, machine: None }
    }

    /// Adds a title.
    #[must_use]
    pub fn with_title(self, title: impl Into<Arc<str>>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// Adds the machine.
    #[must_use]
    pub fn for_machine(self, subject: impl Into<Arc<str>>) -> Self {
        Self { machine: Some(subject.into()), ..self }
    }
}

impl HttpRefusalReason {
    /// Returns the status and the text of the response.
    pub(super) fn status_and_text(&self) -> (BootHttpStatus, &str) {
        match self {
            Self::NotFound => (BootHttpStatus::NotFound, "there is no such file"),
            Self::Gone => (BootHttpStatus::Gone, "the file has expired"),
            Self::Forbidden => (BootHttpStatus::Forbidden, "the file is not for this client"),
            Self::Unavailable { reason: why, .. } => (BootHttpStatus::Unavailable, why),
        }
    }
}
