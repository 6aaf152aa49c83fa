// SPDX-License-Identifier: Apache-2.0
//! The status codes that the server sends.

/// A status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BootHttpStatus {
    /// 200: the whole file.
    Ok,
    /// 206: a range of the file.
    PartialContent,
    /// 304: the client has the current version.
    NotModified,
    /// 400: the request is malformed.
    BadRequest,
    /// 403: the file is not for this client.
    Forbidden,
    /// 404: there is no such file.
    NotFound,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 410: the file has expired.
    Gone,
    /// 413: the request has a body.
    ContentTooLarge,
    /// 414: the target is too long.
    UriTooLong,
    /// 416: the range is outside the file.
    RangeNotSatisfiable,
    /// 417: the request has an `Expect` header.
    ExpectationFailed,
    /// 431: the request head is too long.
    HeadTooLong,
    /// 503: temporarily unavailable.
    Unavailable,
    /// 505: not HTTP/1.
    VersionNotSupported,
}

impl BootHttpStatus {
    /// Returns the number.
    #[must_use]
    pub fn code(self) -> u16 {
        self.code_and_phrase().0
    }

    /// Returns the number and the reason phrase.
    pub(super) fn code_and_phrase(self) -> (u16, &'static str) {
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
