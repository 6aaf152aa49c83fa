// SPDX-License-Identifier: Apache-2.0
//! The address, credentials and timeouts of a BMC.

use std::fmt;
use std::time::Duration;

use crate::CipherSuite;
use crate::message::BMC_ADDRESS;

/// A BMC and the credentials for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IpmiEndpoint {
    /// Host name or address.
    pub address: String,
    /// UDP port, usually [`PORT`](crate::PORT).
    pub port: u16,
    /// The user.
    pub credentials: IpmiCredentials,
    /// The requested privilege level.
    pub privilege: IpmiPrivilege,
    /// The cipher suite; `None` tries all supported ones.
    pub cipher_suite: Option<CipherSuite>,
    /// The route to a controller behind the BMC.
    pub bridging: Option<BridgeRoute>,
}

/// A user name, password and Kg key. `Debug` hides the secrets.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IpmiCredentials {
    username: Box<[u8]>,
    password: Box<[u8]>,
    kg: Option<Box<[u8]>>,
}

/// Why credentials are invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IpmiCredentialsError {
    /// The name is too long.
    #[error("the user name is longer than the {MAX_USERNAME} bytes that IPMI allows")]
    Username,
    /// The password is too long.
    #[error("the password is longer than the {MAX_PASSWORD} bytes that IPMI 2.0 allows")]
    Password,
    /// The key is too long.
    #[error("the Kg key is longer than the {MAX_KG} bytes that IPMI allows")]
    Kg,
}

/// Privilege levels in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IpmiPrivilege {
    /// Callback.
    Callback,
    /// User: read only.
    User,
    /// Operator: power and boot device.
    Operator,
    /// Administrator.
    Administrator,
}

/// A controller on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BridgeTarget {
    /// The channel; four bits.
    pub channel: u8,
    /// The controller's address on it.
    pub address: u8,
}

/// The route through the BMC to another controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BridgeRoute {
    /// Our address on the further channels; by default that of the BMC.
    pub local_address: u8,
    /// A transit controller, for two channels.
    pub transit: Option<BridgeTarget>,
    /// The target controller.
    pub target: BridgeTarget,
}

/// Timeouts and retransmissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpmiTimeouts {
    /// The delay before the first retransmission; doubles with each further one.
    pub first_retransmission: Duration,
    /// The upper limit of the delay.
    pub longest_wait: Duration,
    /// The timeout of a request, including the opening of a session for it.
    pub total: Duration,
    /// A session that was idle for longer is not reused. BMCs drop a session after a minute without
    /// packets.
    pub idle: Duration,
}

impl IpmiCredentials {
    /// Fails if a value is too long. An empty Kg key counts as none.
    pub fn new(
        username: &[u8],
        password: &[u8],
        kg: Option<&[u8]>,
    ) -> Result<Self, IpmiCredentialsError> {
        if username.len() > MAX_USERNAME {
            return Err(IpmiCredentialsError::Username);
        }
        if password.len() > MAX_PASSWORD {
            return Err(IpmiCredentialsError::Password);
        }
        if kg.is_some_and(|kg| kg.len() > MAX_KG) {
            return Err(IpmiCredentialsError::Kg);
        }
        // A Kg key of zeros means that there is none and the password is used instead.
        let kg = kg.filter(|kg| kg.iter().any(|byte| *byte != 0));
        Ok(Self { username: username.into(), password: password.into(), kg: kg.map(Into::into) })
    }

    /// The user name; empty for the anonymous user.
    #[must_use]
    pub fn username(&self) -> &[u8] {
        &self.username
    }

    pub(crate) fn password(&self) -> &[u8] {
        &self.password
    }

    pub(crate) fn kg(&self) -> Option<&[u8]> {
        self.kg.as_deref()
    }
}

impl fmt::Debug for IpmiCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.username);
        f.debug_struct("Credentials").field("username", &name).finish_non_exhaustive()
    }
}

impl IpmiPrivilege {
    /// All levels in ascending order.
    pub const ALL: [Self; 4] = [Self::Callback, Self::User, Self::Operator, Self::Administrator];

    /// The number of the level.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Callback => 1,
            Self::User => 2,
            Self::Operator => 3,
            Self::Administrator => 4,
        }
    }

    /// The level with this number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|privilege| privilege.number() == number)
    }

    /// The name, as in `ipmi_priv_level`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Callback => "CALLBACK",
            Self::User => "USER",
            Self::Operator => "OPERATOR",
            Self::Administrator => "ADMINISTRATOR",
        }
    }
}

impl fmt::Display for IpmiPrivilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl BridgeRoute {
    /// The route to a `target` on a channel of the BMC.
    #[must_use]
    pub const fn to(target: BridgeTarget) -> Self {
        Self { local_address: BMC_ADDRESS, transit: None, target }
    }
}

impl Default for IpmiTimeouts {
    fn default() -> Self {
        Self {
            first_retransmission: Duration::from_millis(500),
            longest_wait: Duration::from_secs(4),
            total: Duration::from_secs(15),
            idle: Duration::from_secs(50),
        }
    }
}

const MAX_USERNAME: usize = 16;
const MAX_PASSWORD: usize = 20;
const MAX_KG: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_hides_credentials() {
        let credentials = IpmiCredentials::new(b"admin", b"hunter2", Some(b"kgkey")).unwrap();
        assert_eq!(format!("{credentials:?}"), r#"Credentials { username: "admin", .. }"#);
    }

    #[test]
    fn rejects_too_long_credentials() {
        let long = [b'x'; 21];
        let cases = [
            (IpmiCredentials::new(&long, b"", None), IpmiCredentialsError::Username),
            (IpmiCredentials::new(b"", &long, None), IpmiCredentialsError::Password),
            (IpmiCredentials::new(b"", b"", Some(&long)), IpmiCredentialsError::Kg),
        ];
        for (got, wanted) in cases {
            assert_eq!(got, Err(wanted));
        }
        let zeros = IpmiCredentials::new(b"", b"", Some(&[0; 20])).unwrap();
        assert_eq!(zeros.kg(), None);
    }
}
