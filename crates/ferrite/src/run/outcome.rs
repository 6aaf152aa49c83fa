// SPDX-License-Identifier: Apache-2.0
//! Failures of `ferrite run` and their exit codes.

use command_line::CliExitCode;
use error_chain::error_chain;
use ironic_client::{ErrorClass, IronicClientError};

/// Why a run ended without success.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct RunFailure {
    pub(super) code: CliExitCode,
    pub(super) message: String,
}

impl RunFailure {
    pub(super) fn new(code: CliExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The host file, an option or the configuration is invalid.
    pub(super) fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(CliExitCode::Usage, message)
    }

    /// The configuration is invalid, or the service cannot start with it.
    pub(super) fn configuration(error: &anyhow::Error) -> Self {
        Self::invalid_input(error_chain(error.as_ref()).replace('\n', " "))
    }

    /// The error of the node after a failed operation, with what to try.
    pub(super) fn of_operation(operation: &str, error: &str) -> Self {
        let cause = FailureCause::of(error);
        let error = error.trim_end_matches('.');
        Self::new(cause.exit_code(), format!("{operation} failed: {error}; {}", cause.advice()))
    }
}

/// Requests are built from the host file, so a rejected one is a problem of the host file.
impl From<IronicClientError> for RunFailure {
    fn from(error: IronicClientError) -> Self {
        let message = error_chain(&error).replace('\n', " ");
        match error.class() {
            ErrorClass::Rejected | ErrorClass::NotFound => Self::invalid_input(message),
            ErrorClass::NotAuthorised | ErrorClass::Unreachable | ErrorClass::Other => {
                Self::new(CliExitCode::Failed, message)
            }
        }
    }
}

/// The kind of a failure on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FailureCause {
    BmcUnreachable,
    BmcUntrusted,
    CredentialsRejected,
    InvalidField,
    FileNotAllowed,
    Other,
}

impl FailureCause {
    /// Finds the cause in the text of the node, which contains that of a `drivers::DriverError`; the API
    /// has no other field for it.
    fn of(error: &str) -> Self {
        let texts = [
            ("rejected the credentials while trying to", Self::CredentialsRejected),
            ("could not be trusted while trying to", Self::BmcUntrusted),
        ];
        let is_bmc = error.contains("the BMC at ");
        let found = texts.into_iter().find(|(text, _)| is_bmc && error.contains(text));
        match found {
            Some((_, cause)) => cause,
            None if is_bmc && error.contains("could not be reached while trying to") => {
                Self::BmcUnreachable
            }
            None if Self::is_about_field(error) => Self::InvalidField,
            None if error.contains("is not in an allowed folder") => Self::FileNotAllowed,
            None => Self::Other,
        }
    }

    /// Whether a driver rejects a field of the node before it sends a request.
    fn is_about_field(error: &str) -> bool {
        let fields = error.split("'driver_info/").skip(1);
        let mut problems = fields.filter_map(|rest| rest.split_once("' is "));
        problems.any(|(key, problem)| {
            let is_key = !key.contains(['\'', ' ']);
            is_key && (problem.starts_with("missing: ") || problem.starts_with("invalid: "))
        })
    }

    const fn exit_code(self) -> CliExitCode {
        match self {
            Self::CredentialsRejected => CliExitCode::NotAuthorised,
            Self::BmcUnreachable | Self::BmcUntrusted => CliExitCode::Unreachable,
            Self::InvalidField | Self::FileNotAllowed => CliExitCode::Usage,
            Self::Other => CliExitCode::Failed,
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::CredentialsRejected | Self::InvalidField => {
                "correct driver_info in the host file and run the command again"
            }
            Self::BmcUnreachable => {
                "check driver_info in the host file and that this host reaches the BMC, then run the \
                 command again"
            }
            Self::FileNotAllowed => {
                "add the folder to images.file_url_allowed_paths in the configuration, or move the file, \
                 and run the command again"
            }
            Self::BmcUntrusted => {
                "name the certificate of the BMC in driver_info of the host file and run the command again"
            }
            Self::Other => "run the command again to repeat it after the cause is fixed",
        }
    }
}

#[cfg(test)]
mod tests {
    use drivers::DriverError;

    use super::*;

    /// The texts are those of the drivers.
    #[test]
    fn exit_codes_follow_the_errors_of_drivers() {
        let (address, what) = ("https://10.0.0.5".to_owned(), "read the power state".to_owned());
        for (error, code) in [
            (
                DriverError::BmcUnreachable {
                    address: address.clone(),
                    what: what.clone(),
                    source: None,
                },
                CliExitCode::Unreachable,
            ),
            (
                DriverError::CredentialsRejected { address: address.clone(), what: what.clone() },
                CliExitCode::NotAuthorised,
            ),
            (
                DriverError::Untrusted {
                    address: address.clone(),
                    what: what.clone(),
                    why: "expired".to_owned(),
                },
                CliExitCode::Unreachable,
            ),
            (DriverError::missing("driver_info/redfish_username", "set both"), CliExitCode::Usage),
            (DriverError::invalid("driver_info/redfish_address", "no host"), CliExitCode::Usage),
            (DriverError::missing("image_source", "set it"), CliExitCode::Failed),
            (DriverError::AgentUnreachable { address, what, source: None }, CliExitCode::Failed),
            (DriverError::failed("write the image", "no disk"), CliExitCode::Failed),
        ] {
            let text = format!("failed to verify: {error}");
            let failure = RunFailure::of_operation("deploy", &text);
            assert_eq!(failure.code, code, "{text}");
            assert!(failure.message.contains("run the command again"), "{failure}");
        }
    }
}
