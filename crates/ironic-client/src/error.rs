// SPDX-License-Identifier: Apache-2.0
//! Errors of requests and of the connection settings, each with a hint on what to try.

use std::path::PathBuf;

use serde_json::Value;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum IronicClientError {
    /// No response.
    #[error(
        "cannot reach {url}; is the server running, and is this its address (--url, --profile, \
         --cloud, OS_*)?"
    )]
    Unreachable {
        /// Base URL.
        url: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server's certificate is not trusted.
    #[error(
        "{url} cannot be trusted ({problem}); trust its certificate or its CA with --cacert FILE, \
         or any certificate with --insecure"
    )]
    Untrusted {
        /// Base URL.
        url: String,
        /// What is wrong with the certificate.
        problem: String,
    },
    /// The connection was lost or timed out before the end of the response.
    #[error("{url} did not complete its response to {request}")]
    Interrupted {
        /// Base URL.
        url: String,
        /// Method and path.
        request: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server returned an error.
    #[error("{message}")]
    Rejected {
        /// Base URL.
        url: String,
        /// Method and path.
        request: String,
        /// The HTTP status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The server requires credentials.
    #[error(
        "{url} requires credentials{}; give --user and --password-file, --token-file, a --profile, a --cloud, \
         FERRITE_TOKEN or OS_* (see docs/command-line.md)", in_parentheses(.message)
    )]
    CredentialsRequired {
        /// Base URL.
        url: String,
        /// The server's message.
        message: String,
    },
    /// The server rejected user and password.
    #[error("{url} rejected the user {user:?} and the password from {origin}{}", in_parentheses(.message))]
    WrongPassword {
        /// Base URL.
        url: String,
        /// User name.
        user: String,
        /// Where user and password come from.
        origin: String,
        /// The server's message.
        message: String,
    },
    /// The server rejected the API token.
    #[error("{url} rejected the token from {origin}{}", in_parentheses(.message))]
    WrongToken {
        /// Base URL.
        url: String,
        /// Where the token comes from.
        origin: String,
        /// The server's message.
        message: String,
    },
    /// The user is known but lacks permission.
    #[error("{url} does not allow {request}{}", in_parentheses(.message))]
    Forbidden {
        /// Base URL.
        url: String,
        /// Method and path.
        request: String,
        /// The server's message.
        message: String,
    },
    /// Client and server have no microversion in common.
    #[error("{url} supports API versions {theirs}; this client supports 1.1 to {ours}")]
    NoCommonVersion {
        /// Base URL.
        url: String,
        /// The server's range.
        theirs: String,
        /// The newest of this client.
        ours: String,
    },
    /// The response is not one of an Ironic API.
    #[error("{url} returned {response} for {request}; is it the address of an Ironic API?")]
    NotIronic {
        /// Base URL.
        url: String,
        /// Method and path.
        request: String,
        /// Summary of the response.
        response: String,
    },
    /// The sign-in with OpenID Connect failed.
    #[error("cannot sign in with OpenID Connect at {url}: {problem}")]
    OpenIdLoginFailed {
        /// URL of the provider or of the server.
        url: String,
        /// The cause.
        problem: String,
    },
    /// Keystone rejected the sign-in.
    #[error("Keystone at {url} rejected the sign-in: {message}")]
    KeystoneRejected {
        /// URL of Keystone.
        url: String,
        /// Keystone's message.
        message: String,
    },
    /// Keystone's catalogue has no Ironic endpoint.
    #[error(
        "the catalogue of Keystone at {url} has no {interface} endpoint of a baremetal \
         service{region}; set baremetal_endpoint_override or OS_ENDPOINT_OVERRIDE"
    )]
    NoEndpoint {
        /// URL of Keystone.
        url: String,
        /// `public`, `internal` or `admin`.
        interface: String,
        /// " in REGION", or empty.
        region: String,
    },
    /// The HTTP client cannot be created.
    #[error("cannot create the HTTP client")]
    HttpClientSetup(#[source] reqwest::Error),
    /// A certificate file cannot be used.
    #[error("cannot use the certificates in {}: {problem}", path.display())]
    BadCertificates {
        /// The file.
        path: PathBuf,
        /// The cause.
        problem: String,
    },
}

impl IronicClientError {
    /// Classifies a request without a response: an untrusted certificate, or an unreachable server.
    pub(crate) fn unreachable(url: String, source: reqwest::Error) -> Self {
        match server_trust::find_certificate_error(&source) {
            Some(complaint) => Self::Untrusted { url, problem: complaint.to_string() },
            None => Self::Unreachable { url, source },
        }
    }
}

/// Classes of errors that scripts distinguish by exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// The resource does not exist.
    NotFound,
    /// The request is invalid or conflicts with the current state.
    Rejected,
    /// Credentials are missing, wrong or insufficient.
    NotAuthorised,
    /// No server, or not an Ironic API.
    Unreachable,
    /// Anything else.
    Other,
}

impl IronicClientError {
    /// The class of this error.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::Interrupted { .. }
            | Self::NotIronic { .. }
            // Proxies return these for a server that is down.
            | Self::Rejected { status: 502 | 504, .. } => ErrorClass::Unreachable,
            Self::Rejected { status: 404, .. } => ErrorClass::NotFound,
            Self::Rejected { status: 400..=499, .. } => ErrorClass::Rejected,
            Self::CredentialsRequired { .. }
            | Self::WrongPassword { .. }
            | Self::WrongToken { .. }
            | Self::Forbidden { .. }
            | Self::OpenIdLoginFailed { .. }
            | Self::KeystoneRejected { .. } => ErrorClass::NotAuthorised,
            Self::Rejected { .. }
            | Self::NoCommonVersion { .. }
            | Self::NoEndpoint { .. }
            | Self::HttpClientSetup(_)
            | Self::BadCertificates { .. } => ErrorClass::Other,
        }
    }

    /// Whether the server may have executed the request although no success was reported.
    #[must_use]
    pub fn may_have_been_executed(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !source.is_connect(),
            // Ironic returns 500 if the conductor does not reply to the API in time.
            Self::Interrupted { .. } | Self::Rejected { status: 500..=599, .. } => true,
            Self::Rejected { .. }
            | Self::Untrusted { .. }
            | Self::CredentialsRequired { .. }
            | Self::WrongPassword { .. }
            | Self::WrongToken { .. }
            | Self::Forbidden { .. }
            | Self::NoCommonVersion { .. }
            | Self::NotIronic { .. }
            | Self::OpenIdLoginFailed { .. }
            | Self::KeystoneRejected { .. }
            | Self::NoEndpoint { .. }
            | Self::HttpClientSetup(_)
            | Self::BadCertificates { .. } => false,
        }
    }

    /// Whether the server is unavailable, so that a retry may succeed.
    #[must_use]
    pub fn is_server_unavailable(&self) -> bool {
        self.class() == ErrorClass::Unreachable || self.may_have_been_executed()
    }

    /// The HTTP status of an error response.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        if let Self::Rejected { status, .. } = self { Some(*status) } else { None }
    }
}

/// An error in the flags, variables or files that select server and credentials.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file is malformed.
    #[error("{} is malformed: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// An unknown profile or cloud.
    #[error("unknown {kind} {name:?}{available}")]
    UnknownName {
        /// `profile` or `cloud`.
        kind: &'static str,
        /// The name.
        name: String,
        /// The available names, as a suffix of the message.
        available: String,
    },
    /// A required setting is missing.
    #[error("{origin}: {missing} is missing")]
    Incomplete {
        /// Where it is missing.
        origin: String,
        /// What is missing.
        missing: &'static str,
    },
    /// An unsupported `auth_type`.
    #[error(
        "{origin}: auth_type {name:?} is not supported; use none, http_basic, admin_token, password, token \
         or v3applicationcredential"
    )]
    UnknownAuthType {
        /// Where it is configured.
        origin: String,
        /// The `auth_type`.
        name: String,
    },
    /// Not a URL of an API.
    #[error("{url:?} is not an http:// or https:// URL")]
    InvalidUrl {
        /// The given text, without a password.
        url: String,
    },
}

/// Extracts the message of an error response. Ironic has three formats, Keystone a fourth.
#[must_use]
pub fn error_message(body: &Value) -> String {
    let error = &body["error_message"];
    let nested = error.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let nested = nested.as_ref().unwrap_or(error);
    let fault = nested["faultstring"].as_str().or(nested["description"].as_str());
    let flat = body["faultstring"].as_str();
    let keystone = body["error"]["message"].as_str();
    let message = fault.or(error.as_str()).or(flat).or(keystone).unwrap_or_default();
    message.trim().to_owned()
}

fn in_parentheses(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn extracts_the_message_from_all_formats() {
        for (body, expected) in [
            (json!({"error_message": {"faultstring": "No such node."}}), "No such node."),
            (json!({"error_message": "{\"faultstring\": \"Busy.\"}"}), "Busy."),
            (json!({"error_message": "{\"description\": \"No such path.\"}"}), "No such path."),
            (json!({"error_message": "plain text"}), "plain text"),
            (json!({"error": {"message": "Wrong password."}}), "Wrong password."),
            (json!({"faultcode": "Client", "faultstring": "Too large."}), "Too large."),
            (json!([]), ""),
        ] {
            assert_eq!(error_message(&body), expected);
        }
    }
}
