// SPDX-License-Identifier: Apache-2.0
//! DHCP unique identifiers that contain a link-layer address (RFC 8415, section 11).

use crate::HardwareAddress;

/// Link-layer address plus time.
const DUID_LLT: [u8; 2] = [0, 1];
/// Link-layer address.
const DUID_LL: [u8; 2] = [0, 3];

/// Returns a DUID-LL for a hardware address.
#[must_use]
pub fn link_layer_duid(hardware: HardwareAddress) -> Vec<u8> {
    [&DUID_LL[..], &[0, hardware.hardware_type()], hardware.bytes()].concat()
}

/// Returns the hardware address in a DUID-LLT or DUID-LL, `None` for other types.
#[must_use]
pub fn hardware_address_of_duid(duid: &[u8]) -> Option<HardwareAddress> {
    let (duid_type, rest) = duid.split_first_chunk::<2>()?;
    let (hardware_type, rest) = rest.split_first_chunk::<2>()?;
    let address = match *duid_type {
        DUID_LLT => rest.get(4..)?,
        DUID_LL => rest,
        _ => return None,
    };
    Some(HardwareAddress::new(hardware_type[1], address))
}
