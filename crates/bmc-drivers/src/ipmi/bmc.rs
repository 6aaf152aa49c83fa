// SPDX-License-Identifier: Apache-2.0
//! A BMC in the middle of one call: its connection, and errors in the words of what was wanted.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ipmi::{Ask, Client, completion};
use tokio::time::Instant;

use super::access::{Access, key};
use crate::{CallLog, Error};

/// A machine's BMC, while something is wanted of it.
pub(super) struct Bmc {
    client: Arc<Client>,
    pub(super) access: Access,
    /// What is wanted: a verb and its object.
    what: &'static str,
    calls: Option<Arc<CallLog>>,
}

impl Bmc {
    pub(super) const fn new(
        client: Arc<Client>,
        access: Access,
        what: &'static str,
        calls: Option<Arc<CallLog>>,
    ) -> Self {
        Self { client, access, what, calls }
    }

    /// The connection itself, for those who have to look at its errors; see [`Self::explain`].
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Asks something.
    pub(super) async fn ask<A: Ask>(&self, ask: &A) -> Result<A::Answer, Error> {
        self.try_ask(ask).await.map_err(|error| self.explain(error))
    }

    /// Asks something for which there is at most so much time.
    pub(super) async fn ask_within<A: Ask>(
        &self,
        ask: &A,
        total: Duration,
    ) -> Result<A::Answer, Error> {
        let started = Instant::now();
        let answer = self.client.ask_within(ask, total).await;
        self.log_ask(started, ask, &answer);
        answer.map_err(|error| self.explain(error))
    }

    /// Asks something that the BMC may not know or want; see [`Self::explain`].
    pub(super) async fn try_ask<A: Ask>(&self, ask: &A) -> Result<A::Answer, ipmi::Error> {
        let started = Instant::now();
        let answer = self.client.ask(ask).await;
        self.log_ask(started, ask, &answer);
        answer
    }

    /// Sends any command.
    pub(super) async fn request(
        &self,
        netfn: u8,
        command: u8,
        data: &[u8],
    ) -> Result<Vec<u8>, ipmi::Error> {
        let started = Instant::now();
        let answer = self.client.request(netfn, 0, command, data).await;
        self.log(started, &answer, |text| {
            // Not the data: it may be a password to set.
            text.push_str("raw");
            write_bytes(text, &[netfn, command]);
        });
        answer
    }

    /// The error that what was wanted failed for this reason.
    pub(super) fn failed(&self, why: impl Into<String>) -> Error {
        Error::Failed { what: self.what.to_owned(), why: why.into() }
    }

    /// What an error of the connection means for what was wanted.
    pub(super) fn explain(&self, error: ipmi::Error) -> Error {
        let endpoint = &self.access.endpoint;
        let address = format!("{}:{}", endpoint.address, endpoint.port);
        let what = self.what.to_owned();
        match error {
            error @ ipmi::Error::Unreachable { .. } => {
                Error::Unreachable { address, what, source: Some(error.into()) }
            }
            ipmi::Error::WrongUser | ipmi::Error::WrongPassword => Error::Refused { address, what },
            ipmi::Error::SilentToUser => Error::invalid(
                key("ipmi_username"),
                format!(
                    "the BMC at {address} answers until it is told the user name '{}', and is \
                     silent then; most likely it has no such user",
                    String::from_utf8_lossy(endpoint.credentials.username())
                ),
            ),
            ipmi::Error::WrongKg => Error::invalid(
                key("ipmi_hex_kg_key"),
                format!("the BMC at {address} has another key; ask for it in its LAN settings"),
            ),
            ipmi::Error::PrivilegeTooLow { wanted } => Error::invalid(
                key("ipmi_priv_level"),
                format!(
                    "the BMC at {address} does not let the user work as {wanted}; choose a lower \
                     level, or give the user more rights on the BMC"
                ),
            ),
            error @ ipmi::Error::CipherSuite { .. } => match endpoint.cipher_suite {
                Some(_) => Error::invalid(
                    key("ipmi_cipher_suite"),
                    format!("{error}; remove the key to find out which the BMC at {address} has"),
                ),
                None => self.failed(format!(
                    "{error}; allow suite 17 or 3 in the LAN settings of the BMC at {address}"
                )),
            },
            error @ ipmi::Error::NoFreeSession => self.failed(format!(
                "{error} at {address}; others use all of them: wait a minute or restart the BMC"
            )),
            ipmi::Error::Completion { code: completion::INSUFFICIENT_PRIVILEGE, .. } => self
                .failed(format!(
                    "the BMC at {address} says that the user's privilege is too low; raise \
                     ipmi_priv_level, or the user's rights on the BMC"
                )),
            error @ ipmi::Error::Uncertain { .. } => self.failed(format!(
                "the BMC at {address} fell silent: {error}; look at the machine before trying again"
            )),
            error @ (ipmi::Error::Completion { .. }
            | ipmi::Error::Refused { .. }
            | ipmi::Error::Garbled { .. }) => {
                self.failed(format!("the BMC at {address} answered: {error}"))
            }
        }
    }

    fn log_ask<A: Ask>(&self, started: Instant, ask: &A, answer: &Result<A::Answer, ipmi::Error>) {
        self.log(started, answer, |text| {
            let mut data = Vec::new();
            ask.emit(&mut data);
            text.push_str(A::NAME);
            write_bytes(text, &data);
        });
    }

    fn log<T>(
        &self,
        started: Instant,
        answer: &Result<T, ipmi::Error>,
        describe: impl FnOnce(&mut String),
    ) {
        let Some(calls) = &self.calls else { return };
        let mut text = "IPMI ".to_owned();
        describe(&mut text);
        let result = answer.as_ref().map_or_else(ToString::to_string, |_| "ok".to_owned());
        calls.add(text, result, started.elapsed());
    }
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, " 0x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use ipmi::{Credentials, Endpoint, Privilege, Timeouts};
    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn what_is_wrong_is_said_with_what_to_do() {
        let endpoint = Endpoint {
            address: "10.0.0.5".to_owned(),
            port: 623,
            credentials: Credentials::new(b"nobody", b"secret", None).unwrap(),
            privilege: Privilege::Administrator,
            cipher_suite: None,
            bridging: None,
        };
        let turns = Arc::new(Semaphore::new(1));
        let client = Arc::new(Client::new(endpoint.clone(), Timeouts::default(), turns));
        let access = Access {
            endpoint,
            force_boot_device: false,
            disable_boot_timeout: false,
            terminal_port: None,
        };
        let bmc = Bmc::new(client, access, "reboot the machine", None);
        let waited = Duration::from_secs(15);
        for (error, words) in [
            (ipmi::Error::SilentToUser, ["driver_info/ipmi_username", "the user name 'nobody'"]),
            (
                ipmi::Error::Uncertain { command: 2, waited },
                ["not known whether it was carried out", "look at the machine"],
            ),
        ] {
            let said = bmc.explain(error);
            assert!(!said.is_transient(), "{said}");
            let text = said.to_string();
            assert!(words.iter().all(|words| text.contains(words)), "{text}");
            assert!(text.contains("10.0.0.5:623") && !text.contains("secret"), "{text}");
        }
    }
}
