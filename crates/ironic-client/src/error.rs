// SPDX-License-Identifier: Apache-2.0
//! What can go wrong between us and an API, in words that say what to try.

use std::path::PathBuf;

use serde_json::Value;

/// A request that did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// Nobody answered.
    #[error(
        "cannot reach {url}; is the server running, and is this its address (--url, --profile, \
         --cloud, OS_*)?"
    )]
    Unreachable {
        /// Who was asked.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// Somebody answered whom nobody vouches for.
    #[error(
        "{url} cannot be trusted ({complaint}); --cacert FILE trusts it, or who signed its \
         certificate, and --insecure trusts anybody"
    )]
    Untrusted {
        /// Who was asked.
        url: String,
        /// What is wrong with its certificate.
        complaint: String,
    },
    /// The answer broke off, or none came in time.
    #[error("{url} did not finish its answer to {request}")]
    BrokenOff {
        /// Who was asked.
        url: String,
        /// For what.
        request: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The answer is no.
    #[error("{message}")]
    Refused {
        /// Who was asked.
        url: String,
        /// For what.
        request: String,
        /// The HTTP status.
        status: u16,
        /// What the server says.
        message: String,
    },
    /// The server wants to know who we are.
    #[error(
        "{url} asks who you are{}; give --user and --password-file, a --profile, a --cloud or OS_* \
         (see docs/command-line.md)", told(.message)
    )]
    NotSignedIn {
        /// Who asked.
        url: String,
        /// What the server says.
        message: String,
    },
    /// The server does not believe the name and the password.
    #[error("{url} does not accept the user {user:?} and the password that {origin} gives{}", told(.message))]
    WrongPassword {
        /// Who was asked.
        url: String,
        /// The name.
        user: String,
        /// Where name and password come from.
        origin: String,
        /// What the server says.
        message: String,
    },
    /// The server knows who we are, and that is not enough.
    #[error("{url} does not allow {request}{}", told(.message))]
    Forbidden {
        /// Who was asked.
        url: String,
        /// For what.
        request: String,
        /// What the server says.
        message: String,
    },
    /// There is no dialect both sides speak.
    #[error("{url} speaks versions {theirs} of the API; this client speaks 1.1 to {ours}")]
    NoCommonVersion {
        /// Who was asked.
        url: String,
        /// What they speak.
        theirs: String,
        /// The newest we speak.
        ours: String,
    },
    /// What came back is not what an Ironic says.
    #[error("{url} answers {request} with {answer}; is it the address of an Ironic API?")]
    NotIronic {
        /// Who was asked.
        url: String,
        /// For what.
        request: String,
        /// What came back, in few words.
        answer: String,
    },
    /// Keystone did not let us in.
    #[error("Keystone at {url} does not sign us in: {message}")]
    SignIn {
        /// Which Keystone.
        url: String,
        /// What it says.
        message: String,
    },
    /// Keystone knows no Ironic.
    #[error(
        "the catalogue of Keystone at {url} has no {interface} endpoint of a baremetal \
         service{region}; set baremetal_endpoint_override or OS_ENDPOINT_OVERRIDE"
    )]
    NoEndpoint {
        /// Which Keystone.
        url: String,
        /// Which kind of endpoint.
        interface: String,
        /// In which region, as words.
        region: String,
    },
    /// The HTTP client cannot be made.
    #[error("cannot make HTTP requests")]
    NoClient(#[source] reqwest::Error),
    /// A file of certificates cannot be used.
    #[error("cannot use the certificates in {}: {problem}", path.display())]
    BadCertificates {
        /// Which.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}

impl ApiError {
    /// A request that got no answer; its certificate may be why.
    pub(crate) fn unreachable(url: String, source: reqwest::Error) -> Self {
        match server_trust::complaint_in(&source) {
            Some(complaint) => Self::Untrusted { url, complaint: complaint.to_string() },
            None => Self::Unreachable { url, source },
        }
    }
}

/// What an error means for a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// There is no such thing.
    NotFound,
    /// Not now, or not like this.
    Refused,
    /// Not by us.
    NotAuthorised,
    /// Nobody is there, or somebody else.
    Unreachable,
    /// Anything else.
    Other,
}

impl ApiError {
    /// What it means for a script.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Unreachable { .. }
            | Self::Untrusted { .. }
            | Self::BrokenOff { .. }
            | Self::NotIronic { .. }
            // So proxies say that the server behind them is away.
            | Self::Refused { status: 502 | 504, .. } => Kind::Unreachable,
            Self::Refused { status: 404, .. } => Kind::NotFound,
            Self::Refused { status: 400..=499, .. } => Kind::Refused,
            Self::NotSignedIn { .. }
            | Self::WrongPassword { .. }
            | Self::Forbidden { .. }
            | Self::SignIn { .. } => Kind::NotAuthorised,
            Self::Refused { .. }
            | Self::NoCommonVersion { .. }
            | Self::NoEndpoint { .. }
            | Self::NoClient(_)
            | Self::BadCertificates { .. } => Kind::Other,
        }
    }

    /// Whether the server may have done what it was asked, although nobody told us.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => !source.is_connect(),
            // An Ironic says 500 when the conductor it passed the request on to is slow to answer.
            Self::BrokenOff { .. } | Self::Refused { status: 500..=599, .. } => true,
            Self::Refused { .. }
            | Self::Untrusted { .. }
            | Self::NotSignedIn { .. }
            | Self::WrongPassword { .. }
            | Self::Forbidden { .. }
            | Self::NoCommonVersion { .. }
            | Self::NotIronic { .. }
            | Self::SignIn { .. }
            | Self::NoEndpoint { .. }
            | Self::NoClient(_)
            | Self::BadCertificates { .. } => false,
        }
    }

    /// Whether the server is away, and may come back.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        self.kind() == Kind::Unreachable || self.is_unanswered()
    }

    /// The status of the answer, if there was one that says no.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        if let Self::Refused { status, .. } = self { Some(*status) } else { None }
    }
}

/// Something in flags, environment or files that does not say whom to ask, and as whom.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file does not say what it should.
    #[error("{} has a mistake: {problem}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Where.
        problem: String,
    },
    /// Something is asked for by a name nobody has.
    #[error("there is no {what} {name:?}{known}")]
    Unknown {
        /// A profile or a cloud.
        what: &'static str,
        /// Its name.
        name: String,
        /// Those there are, as words.
        known: String,
    },
    /// Something is missing.
    #[error("{by} does not say {missing}")]
    Incomplete {
        /// Who does not say it.
        by: String,
        /// What.
        missing: &'static str,
    },
    /// A way to sign in that we do not know.
    #[error(
        "{by} asks for auth_type {name:?}; known are none, http_basic, password, token and \
         v3applicationcredential"
    )]
    UnknownLogin {
        /// Who asks for it.
        by: String,
        /// Its name.
        name: String,
    },
    /// This is not the address of an API.
    #[error("{url:?} is not an http:// or https:// address")]
    NotAnAddress {
        /// What was given.
        url: String,
    },
}

/// What the API says is wrong. Ironic wraps it in one of two ways, Keystone in a third.
pub(crate) fn message_in(answer: &Value) -> String {
    let told = &answer["error_message"];
    let inner = told.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let inner = inner.as_ref().unwrap_or(told);
    let fault = inner["faultstring"].as_str().or(inner["description"].as_str());
    let keystone = answer["error"]["message"].as_str();
    let message = fault.or(told.as_str()).or(keystone).unwrap_or_default();
    message.trim().to_owned()
}

fn told(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(" ({message})") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_says_is_found_however_it_is_wrapped() {
        for (answer, expected) in [
            (json!({"error_message": {"faultstring": "No such node."}}), "No such node."),
            (json!({"error_message": "{\"faultstring\": \"Busy.\"}"}), "Busy."),
            (json!({"error_message": "{\"description\": \"No such path.\"}"}), "No such path."),
            (json!({"error_message": "plain words"}), "plain words"),
            (json!({"error": {"message": "Wrong password."}}), "Wrong password."),
            (json!([]), ""),
        ] {
            assert_eq!(message_in(&answer), expected);
        }
    }
}
