// SPDX-License-Identifier: Apache-2.0
//! The statuses this server answers with.

/// A status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// 200: the whole page.
    Ok,
    /// 206: a part of it.
    PartialContent,
    /// 304: the client has it.
    NotModified,
    /// 400: the request cannot be understood.
    BadRequest,
    /// 403: the client may not have it.
    Forbidden,
    /// 404: there is none.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 410: there was one, and it is over.
    Gone,
    /// 413: a request with a body.
    ContentTooLarge,
    /// 414: a target that is too long.
    UriTooLong,
    /// 416: a part that there is not.
    RangeNotSatisfiable,
    /// 417: an expectation.
    ExpectationFailed,
    /// 431: a head that is too long.
    HeadTooLong,
    /// 503: not now.
    Unavailable,
    /// 505: another HTTP.
    VersionNotSupported,
}

impl Status {
    /// The number.
    #[must_use]
    pub fn code(self) -> u16 {
        self.code_and_words().0
    }

    /// The number and the words of the status line.
    pub(super) fn code_and_words(self) -> (u16, &'static str) {
        match self {
            Self::Ok => (200, "OK"),
            Self::PartialContent => (206, "Partial Content"),
            Self::NotModified => (304, "Not Modified"),
            Self::BadRequest => (400, "Bad Request"),
            Self::Forbidden => (403, "Forbidden"),
            Self::NotFound => (404, "Not Found"),
            Self::MethodNotAllowed => (405, "Method Not Allowed"),
            Self::Gone => (410, "Gone"),
            Self::ContentTooLarge => (413, "Content Too Large"),
            Self::UriTooLong => (414, "URI Too Long"),
            Self::RangeNotSatisfiable => (416, "Range Not Satisfiable"),
            Self::ExpectationFailed => (417, "Expectation Failed"),
            Self::HeadTooLong => (431, "Request Header Fields Too Large"),
            Self::Unavailable => (503, "Service Unavailable"),
            Self::VersionNotSupported => (505, "HTTP Version Not Supported"),
        }
    }
}
