// SPDX-License-Identifier: Apache-2.0
//! The BMC of one driver call: its client, call logging and error conversion.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use drivers::{BmcCallLog, DriverError};
use ipmi::{IpmiClient, TypedIpmiCommand, completion};
use tokio::time::Instant;

use super::access::{IpmiAccess, driver_info_key};

/// A machine's BMC during one operation.
pub(super) struct IpmiBmc {
    client: Arc<IpmiClient>,
    pub(super) access: IpmiAccess,
    /// The operation: a verb and its object.
    what: &'static str,
    call_log: Option<Arc<BmcCallLog>>,
}

impl IpmiBmc {
    pub(super) const fn new(
        client: Arc<IpmiClient>,
        access: IpmiAccess,
        what: &'static str,
        call_log: Option<Arc<BmcCallLog>>,
    ) -> Self {
        Self { client, access, what, call_log }
    }

    /// The client, for callers that handle [`ipmi::IpmiError`]; see [`Self::explain`].
    pub(super) fn client(&self) -> &IpmiClient {
        &self.client
    }

    /// Sends a command and returns its reply.
    pub(super) async fn execute<A: TypedIpmiCommand>(
        &self,
        command: &A,
    ) -> Result<A::Response, DriverError> {
        self.try_execute(command).await.map_err(|error| self.explain(error))
    }

    /// Sends a command with a timeout.
    pub(super) async fn execute_within<A: TypedIpmiCommand>(
        &self,
        command: &A,
        total: Duration,
    ) -> Result<A::Response, DriverError> {
        let started = Instant::now();
        let reply = self.client.execute_within(command, total).await;
        self.log_command(started, command, &reply);
        reply.map_err(|error| self.explain(error))
    }

    /// Sends a command that the BMC may not support; see [`Self::explain`].
    pub(super) async fn try_execute<A: TypedIpmiCommand>(
        &self,
        command: &A,
    ) -> Result<A::Response, ipmi::IpmiError> {
        let started = Instant::now();
        let reply = self.client.execute(command).await;
        self.log_command(started, command, &reply);
        reply
    }

    /// Sends a raw command.
    pub(super) async fn request(
        &self,
        netfn: u8,
        command: u8,
        data: &[u8],
    ) -> Result<Vec<u8>, ipmi::IpmiError> {
        let started = Instant::now();
        let reply = self.client.request(netfn, 0, command, data).await;
        self.log(started, &reply, |text| {
            // Omits the data, which may contain a password.
            text.push_str("raw");
            write_bytes(text, &[netfn, command]);
        });
        reply
    }

    /// The error that the operation failed.
    pub(super) fn failed(&self, why: impl Into<String>) -> DriverError {
        DriverError::Failed { what: self.what.to_owned(), why: why.into() }
    }

    /// Converts an error of the client for the operation.
    pub(super) fn explain(&self, error: ipmi::IpmiError) -> DriverError {
        let endpoint = &self.access.endpoint;
        let address = format!("{}:{}", endpoint.address, endpoint.port);
        let what = self.what.to_owned();
        match error {
            error @ ipmi::IpmiError::Unreachable { .. } => {
                DriverError::BmcUnreachable { address, what, source: Some(error.into()) }
            }
            ipmi::IpmiError::WrongUser | ipmi::IpmiError::WrongPassword => {
                DriverError::CredentialsRejected { address, what }
            }
            ipmi::IpmiError::SilentToUser => DriverError::invalid(
                driver_info_key("ipmi_username"),
                format!(
                    "the BMC at {address} stops responding when it gets the user name '{}'; most \
                     likely it has no such user",
                    String::from_utf8_lossy(endpoint.credentials.username())
                ),
            ),
            ipmi::IpmiError::WrongKg => DriverError::invalid(
                driver_info_key("ipmi_hex_kg_key"),
                format!("the BMC at {address} has another key; check its LAN settings"),
            ),
            ipmi::IpmiError::PrivilegeTooLow { wanted } => DriverError::invalid(
                driver_info_key("ipmi_priv_level"),
                format!(
                    "the BMC at {address} does not grant the user the privilege {wanted}; choose a \
                     lower level, or grant the user more rights on the BMC"
                ),
            ),
            error @ ipmi::IpmiError::CipherSuite { .. } => match endpoint.cipher_suite {
                Some(_) => DriverError::invalid(
                    driver_info_key("ipmi_cipher_suite"),
                    format!("{error}; remove the key to detect what the BMC at {address} supports"),
                ),
                None => self.failed(format!(
                    "{error}; enable cipher suite 17 or 3 in the LAN settings of the BMC at {address}"
                )),
            },
            error @ ipmi::IpmiError::NoFreeSession => self.failed(format!(
                "{error} at {address}; all sessions are in use: wait a minute or restart the BMC"
            )),
            ipmi::IpmiError::Completion { code: completion::INSUFFICIENT_PRIVILEGE, .. } => self
                .failed(format!(
                    "the BMC at {address} reports that the user's privilege is too low; raise \
                     ipmi_priv_level, or the user's rights on the BMC"
                )),
            error @ ipmi::IpmiError::Uncertain { .. } => self.failed(format!(
                "the BMC at {address} stopped responding: {error}; check the machine before you retry"
            )),
            error @ (ipmi::IpmiError::Completion { .. }
            | ipmi::IpmiError::Refused { .. }
            | ipmi::IpmiError::Garbled { .. }) => {
                self.failed(format!("the BMC at {address} replied: {error}"))
            }
        }
    }

    fn log_command<A: TypedIpmiCommand>(
        &self,
        started: Instant,
        command: &A,
        reply: &Result<A::Response, ipmi::IpmiError>,
    ) {
        self.log(started, reply, |text| {
            let mut data = Vec::new();
            command.emit(&mut data);
            text.push_str(A::NAME);
            write_bytes(text, &data);
        });
    }

    fn log<T>(
        &self,
        started: Instant,
        reply: &Result<T, ipmi::IpmiError>,
        describe: impl FnOnce(&mut String),
    ) {
        let Some(call_log) = &self.call_log else { return };
        let mut text = "IPMI ".to_owned();
        describe(&mut text);
        let result = reply.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned());
        call_log.add(text, result, started.elapsed());
    }
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, " 0x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use ipmi::{IpmiCredentials, IpmiEndpoint, IpmiPrivilege, IpmiTimeouts};
    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn errors_name_cause_and_advice() {
        let endpoint = IpmiEndpoint {
            address: "10.0.0.5".to_owned(),
            port: 623,
            credentials: IpmiCredentials::new(b"admin2", b"secret", None).unwrap(),
            privilege: IpmiPrivilege::Administrator,
            cipher_suite: None,
            bridging: None,
        };
        let semaphore = Arc::new(Semaphore::new(1));
        let client =
            Arc::new(IpmiClient::new(endpoint.clone(), IpmiTimeouts::default(), semaphore));
        let access = IpmiAccess {
            endpoint,
            force_boot_device: false,
            disable_boot_timeout: false,
            terminal_port: None,
        };
        let bmc = IpmiBmc::new(client, access, "reboot the machine", None);
        let waited = Duration::from_secs(15);
        for (error, fragments) in [
            (
                ipmi::IpmiError::SilentToUser,
                ["driver_info/ipmi_username", "the user name 'admin2'"],
            ),
            (
                ipmi::IpmiError::Uncertain { command: 2, waited },
                ["not known whether it was carried out", "check the machine"],
            ),
        ] {
            let explained = bmc.explain(error);
            assert!(!explained.is_transient(), "{explained}");
            let text = explained.to_string();
            assert!(fragments.iter().all(|fragments| text.contains(fragments)), "{text}");
            assert!(text.contains("10.0.0.5:623") && !text.contains("secret"), "{text}");
        }
    }
}
