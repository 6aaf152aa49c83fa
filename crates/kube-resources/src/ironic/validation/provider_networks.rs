// SPDX-License-Identifier: Apache-2.0
//! Rules for the networks of the networking service.

use super::super::service::{
    NetworkingServiceSettings, ProviderNetwork, ProviderNetworkType, SwitchportMode,
};
use super::required;
use crate::field_error::FieldError;

pub(super) fn check(service: &NetworkingServiceSettings) -> Vec<FieldError> {
    if !service.enabled {
        return Vec::new();
    }
    let networks = &service.provider_networks;
    let mut errors = Vec::new();
    for (index, network) in networks.iter().enumerate() {
        let base = format!("spec.networkingService.providerNetworks[{index}]");
        let is_unique =
            networks[..index].iter().all(|other| other.network_type != network.network_type);
        if let ProviderNetworkType::Other(other) = &network.network_type {
            let values = ProviderNetworkType::VALUES.join(", ");
            let problem = format!("{other:?} is not supported; use one of {values}");
            errors.push(FieldError::new(format!("{base}.type"), problem));
        } else {
            errors.extend(required(
                is_unique,
                &format!("{base}.type"),
                format!("{} occurs twice; remove one network", network.network_type),
            ));
        }
        errors.extend(required(
            is_vlan(network.native_vlan),
            &format!("{base}.nativeVLAN"),
            format!("{} is not a VLAN; use a number from 1 to 4094", network.native_vlan),
        ));
        if let Some(mtu) = network.mtu {
            errors.extend(required(
                (1280..=9216).contains(&mtu),
                &format!("{base}.mtu"),
                format!("{mtu} is not an MTU; use a number from 1280 to 9216"),
            ));
        }
        errors.extend(vlans(&base, network));
    }
    errors
}

fn vlans(base: &str, network: &ProviderNetwork) -> Vec<FieldError> {
    let path = format!("{base}.allowedVLANs");
    let mut errors = Vec::new();
    let has_vlans = !network.allowed_vlans.is_empty();
    errors.extend(match &network.mode {
        SwitchportMode::Access => {
            required(!has_vlans, &path, "cannot be used in access mode; remove it, or use trunk")
        }
        SwitchportMode::Trunk | SwitchportMode::Hybrid => {
            required(has_vlans, &path, format!("is empty; {} mode needs VLANs", network.mode))
        }
        SwitchportMode::Other(mode) => Some(FieldError::new(
            format!("{base}.mode"),
            format!("{mode:?} is not supported; use one of {}", SwitchportMode::VALUES.join(", ")),
        )),
    });
    for (index, entry) in network.allowed_vlans.iter().enumerate() {
        errors.extend(required(
            is_vlan_range(entry),
            &format!("{path}[{index}]"),
            format!("{entry:?} is not a VLAN or a range; use 1 to 4094, or first-last"),
        ));
    }
    errors
}

fn is_vlan(number: i32) -> bool {
    (1..=4094).contains(&number)
}

fn is_vlan_range(text: &str) -> bool {
    let vlan = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i32>().ok().filter(|number| is_number && is_vlan(*number))
    };
    match text.split_once('-') {
        None => vlan(text).is_some(),
        Some((first, last)) => {
            vlan(first).zip(vlan(last)).is_some_and(|(first, last)| first <= last)
        }
    }
}
