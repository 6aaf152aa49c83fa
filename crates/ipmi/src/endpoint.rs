// SPDX-License-Identifier: Apache-2.0
//! Where a BMC is, who we are to it, and how patient we are with it.

use std::fmt;
use std::time::Duration;

use crate::CipherSuite;
use crate::message::BMC_ADDRESS;

/// A BMC and how to get into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Host name or address.
    pub address: String,
    /// UDP port; [`PORT`](crate::PORT) unless somebody moved it.
    pub port: u16,
    /// Who we are.
    pub credentials: Credentials,
    /// What we want to be allowed.
    pub privilege: Privilege,
    /// The suite to use; none to find out which the BMC offers.
    pub cipher_suite: Option<CipherSuite>,
    /// The way to a controller behind the BMC.
    pub bridging: Option<Bridging>,
}

/// A user with its password. Does not print.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    username: Box<[u8]>,
    password: Box<[u8]>,
    kg: Option<Box<[u8]>>,
}

/// Why credentials cannot be right.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CredentialsError {
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

/// What a session is allowed to do, least first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Privilege {
    /// Ask to be called back.
    Callback,
    /// Look.
    User,
    /// Switch and set.
    Operator,
    /// Everything.
    Administrator,
}

/// A controller on a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hop {
    /// The channel; four bits.
    pub channel: u8,
    /// The controller's address on it.
    pub address: u8,
}

/// The way through the BMC to another controller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bridging {
    /// Our address on the channels beyond; the BMC's own by default.
    pub local_address: u8,
    /// A controller on the way, where there are two channels to cross.
    pub transit: Option<Hop>,
    /// The controller that is meant.
    pub target: Hop,
}

/// How long to wait for a BMC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// How long after sending a message to send it again; each further wait is twice as long.
    pub first_retransmission: Duration,
    /// How long the waits may become.
    pub longest_wait: Duration,
    /// When to give up, counted from the first message of a request. Opening a session is part
    /// of the request that needs it.
    pub total: Duration,
    /// After how long without use a session is not trusted to live any more. BMCs let go of a
    /// session after a minute of silence.
    pub idle: Duration,
}

impl Credentials {
    /// Checks lengths and keeps the three. An empty Kg key counts as none.
    pub fn new(
        username: &[u8],
        password: &[u8],
        kg: Option<&[u8]>,
    ) -> Result<Self, CredentialsError> {
        if username.len() > MAX_USERNAME {
            return Err(CredentialsError::Username);
        }
        if password.len() > MAX_PASSWORD {
            return Err(CredentialsError::Password);
        }
        if kg.is_some_and(|kg| kg.len() > MAX_KG) {
            return Err(CredentialsError::Kg);
        }
        // A Kg of zeros is what a BMC without one has, and means that the password serves for it.
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

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = String::from_utf8_lossy(&self.username);
        f.debug_struct("Credentials").field("username", &name).finish_non_exhaustive()
    }
}

impl Privilege {
    /// All, least first.
    pub const ALL: [Self; 4] = [Self::Callback, Self::User, Self::Operator, Self::Administrator];

    /// The number that stands for it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Callback => 1,
            Self::User => 2,
            Self::Operator => 3,
            Self::Administrator => 4,
        }
    }

    /// The privilege with this number.
    #[must_use]
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|privilege| privilege.number() == number)
    }

    /// Its name, as `ipmi_priv_level` spells it.
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

impl fmt::Display for Privilege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Bridging {
    /// The way to `target`, which the BMC sees directly.
    #[must_use]
    pub const fn to(target: Hop) -> Self {
        Self { local_address: BMC_ADDRESS, transit: None, target }
    }
}

impl Default for Timeouts {
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
    fn credentials_do_not_print() {
        let credentials = Credentials::new(b"admin", b"hunter2", Some(b"kgkey")).unwrap();
        assert_eq!(format!("{credentials:?}"), r#"Credentials { username: "admin", .. }"#);
    }

    #[test]
    fn lengths_are_checked() {
        let long = [b'x'; 21];
        let cases = [
            (Credentials::new(&long, b"", None), CredentialsError::Username),
            (Credentials::new(b"", &long, None), CredentialsError::Password),
            (Credentials::new(b"", b"", Some(&long)), CredentialsError::Kg),
        ];
        for (got, wanted) in cases {
            assert_eq!(got, Err(wanted));
        }
        let zeros = Credentials::new(b"", b"", Some(&[0; 20])).unwrap();
        assert_eq!(zeros.kg(), None);
    }
}
