// SPDX-License-Identifier: Apache-2.0
//! The classless static routes option (121, RFC 3442).

use std::net::Ipv4Addr;

/// One route of the option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClasslessRoute {
    /// The destination network.
    pub destination: Ipv4Addr,
    /// The prefix length of the destination, at most 32.
    pub prefix_length: u8,
    /// The gateway; `None` if the destination is on the link.
    pub gateway: Option<Ipv4Addr>,
}

/// Decodes the value of the option. Stops at the first malformed route and returns those before it.
#[must_use]
pub fn classless_routes(mut bytes: &[u8]) -> Vec<ClasslessRoute> {
    let mut routes = Vec::new();
    while let Some((&prefix_length, rest)) = bytes.split_first() {
        if prefix_length > 32 {
            break;
        }
        let significant = usize::from(prefix_length).div_ceil(8);
        let Some((network, rest)) = rest.split_at_checked(significant) else { break };
        let Some((gateway, rest)) = rest.split_first_chunk::<4>() else { break };
        bytes = rest;
        let mut destination = [0; 4];
        destination[..significant].copy_from_slice(network);
        let gateway = Ipv4Addr::from(*gateway);
        routes.push(ClasslessRoute {
            destination: destination.into(),
            prefix_length,
            gateway: (!gateway.is_unspecified()).then_some(gateway),
        });
    }
    routes
}
