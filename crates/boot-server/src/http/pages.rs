// SPDX-License-Identifier: Apache-2.0
//! What this server asks for: the page at a path, or why there is none.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use boot_media::Content;

use super::request::Request;
use super::status::Status;

/// Gives pages. Asked once per request, on the task of the connection; it may wait (for a database), and
/// is given up after [`super::Limits::page`].
#[async_trait]
pub trait Pages: Send + Sync {
    /// The page for this request. The method, the range and the conditions are seen to by the server.
    ///
    /// # Errors
    /// If there is none for this client at this time.
    async fn page(&self, request: &Request<'_>) -> Result<Page, Refusal>;
}

/// Something to send.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its bytes.
    pub content: Content,
    /// What it is, for `Content-Type`.
    pub media_type: &'static str,
    /// A name for exactly these bytes, without the quotes: visible ASCII characters. Two contents of
    /// one path never share one.
    pub etag: Option<Arc<str>>,
    /// What is told about it, in timelines and logs: never the path, which may hold a secret.
    pub title: Arc<str>,
    /// The machine it is for.
    pub subject: Option<Arc<str>>,
}

/// Why there is no page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What the client is told.
    pub reason: Reason,
    /// What is told about it; without one, the path without what may be a secret.
    pub title: Option<Arc<str>>,
    /// The machine it would have been for.
    pub subject: Option<Arc<str>>,
}

/// What a client is told that gets no page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// There is none.
    NotFound,
    /// There was one: it has expired.
    Gone,
    /// There is one, and not for this client.
    Forbidden,
    /// Not now.
    Unavailable {
        /// What is missing, for whoever looks at the machine's screen.
        why: Arc<str>,
        /// When to try again; sent in whole seconds, at least one.
        retry_after: Duration,
    },
}

impl Refusal {
    /// A refusal about nobody in particular.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self { reason, title: None, subject: None }
    }

    /// With something to tell about it.
    #[must_use]
    pub fn titled(self, title: impl Into<Arc<str>>) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// With the machine it is about.
    #[must_use]
    pub fn about(self, subject: impl Into<Arc<str>>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }
}

impl Reason {
    /// The status, and a sentence for whoever reads it.
    pub(super) fn said(&self) -> (Status, &str) {
        match self {
            Self::NotFound => (Status::NotFound, "there is no such page"),
            Self::Gone => (Status::Gone, "this page has expired"),
            Self::Forbidden => (Status::Forbidden, "this page is not for you"),
            Self::Unavailable { why, .. } => (Status::Unavailable, why),
        }
    }
}
