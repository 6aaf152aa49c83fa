// SPDX-License-Identifier: Apache-2.0
//! Identity associations for non-temporary addresses (`IA_NA`) and the addresses in them.

use std::net::Ipv6Addr;

use super::options::{Dhcp6Options, option_code};

/// The value of an `IA_NA` option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityAssociation {
    /// The client's identifier of the association.
    pub iaid: [u8; 4],
    /// T1 in seconds: when the client contacts the same server again. 0 leaves it to the client.
    pub renew_after: u32,
    /// T2 in seconds: when the client contacts any server. 0 leaves it to the client.
    pub rebind_after: u32,
    /// The addresses and the status code.
    pub options: Dhcp6Options,
}

/// The value of an IA address option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IaAddress {
    /// The address.
    pub address: Ipv6Addr,
    /// The preferred lifetime in seconds.
    pub preferred_lifetime: u32,
    /// The valid lifetime in seconds.
    pub valid_lifetime: u32,
}

impl IdentityAssociation {
    /// Decodes an option value, `None` if it is malformed.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        match Self::decode_complete(value)? {
            (association, []) => Some(association),
            (_, [_, ..]) => None,
        }
    }

    /// Returns the first association of a reply for a client. A truncated last option in it is ignored.
    #[must_use]
    pub fn first_in_reply(options: &Dhcp6Options) -> Option<Self> {
        let (association, _truncated) = Self::decode_complete(options.get(option_code::IA_NA)?)?;
        Some(association)
    }

    /// Decodes an option value with its complete options. Also returns the bytes of a truncated last
    /// option.
    fn decode_complete(value: &[u8]) -> Option<(Self, &[u8])> {
        let (iaid, rest) = value.split_first_chunk::<4>()?;
        let (renew_after, rest) = rest.split_first_chunk::<4>()?;
        let (rebind_after, rest) = rest.split_first_chunk::<4>()?;
        let (options, truncated) = Dhcp6Options::decode_complete(rest);
        let association = Self {
            iaid: *iaid,
            renew_after: u32::from_be_bytes(*renew_after),
            rebind_after: u32::from_be_bytes(*rebind_after),
            options,
        };
        Some((association, truncated))
    }

    /// Returns the associations of a message. Malformed ones are ignored.
    pub fn all_in(options: &Dhcp6Options) -> impl Iterator<Item = Self> {
        options.all(option_code::IA_NA).filter_map(Self::decode)
    }

    /// Encodes the option value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.iaid.to_vec();
        out.extend(self.renew_after.to_be_bytes());
        out.extend(self.rebind_after.to_be_bytes());
        self.options.encode(&mut out);
        out
    }

    /// Returns the addresses of the association. Malformed ones are ignored.
    pub fn addresses(&self) -> impl Iterator<Item = IaAddress> {
        self.options.all(option_code::IA_ADDRESS).filter_map(IaAddress::decode)
    }

    /// Adds an address.
    pub fn add_address(&mut self, address: IaAddress) {
        self.options.add(option_code::IA_ADDRESS, address.encode());
    }
}

impl IaAddress {
    /// Decodes an option value, `None` if it is too short. Options inside it are ignored.
    #[must_use]
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (address, rest) = value.split_first_chunk::<16>()?;
        let (preferred, rest) = rest.split_first_chunk::<4>()?;
        let valid = rest.first_chunk::<4>()?;
        Some(Self {
            address: Ipv6Addr::from(*address),
            preferred_lifetime: u32::from_be_bytes(*preferred),
            valid_lifetime: u32::from_be_bytes(*valid),
        })
    }

    /// Encodes the option value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.address.octets().to_vec();
        out.extend(self.preferred_lifetime.to_be_bytes());
        out.extend(self.valid_lifetime.to_be_bytes());
        out
    }
}
