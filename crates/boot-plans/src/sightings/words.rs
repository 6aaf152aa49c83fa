// SPDX-License-Identifier: Apache-2.0
//! What was seen, in words for people. Keys of plans are not among them.

use std::fmt::Write as _;

use boot_server::{Architecture, Sighting, What, dhcp4, dhcp6, tftp};
use node_model::{Mac, without_keys};

use super::program;

/// By which service, and what. None for what is not worth telling.
pub(super) fn of(sighting: &Sighting) -> Option<(&'static str, String)> {
    match &sighting.what {
        What::Dhcp4 { asked, verdict, boot_file } => {
            let outcome = dhcp4_words(*verdict)?;
            Some(("dhcp", dhcp(sighting, &format!("{asked:?}"), &outcome, boot_file.as_deref())))
        }
        What::Dhcp6 { asked, verdict, boot_url } => {
            let outcome = dhcp6_words(*verdict)?;
            Some(("dhcpv6", dhcp(sighting, &format!("{asked:?}"), &outcome, boot_url.as_deref())))
        }
        What::Tftp { file, outcome } => {
            Some(("tftp", format!("{}: {}", without_keys(file), tftp_words(*outcome))))
        }
        What::Http { title, status, whole, agent, .. } => {
            let mut text = format!("{title}: {status}");
            if !whole {
                text.push_str(", broken off");
            }
            if !agent.is_empty() {
                let _ = write!(text, " ({agent})");
            }
            Some(("http", text))
        }
    }
}

/// Processor and firmware.
pub(super) fn architecture(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Bios => "x86 BIOS",
        Architecture::UefiX86 => "x86 UEFI",
        Architecture::UefiX64 => "x86-64 UEFI",
        Architecture::UefiArm32 => "ARM UEFI",
        Architecture::UefiArm64 => "ARM64 UEFI",
        Architecture::UefiRiscv64 => "RISC-V UEFI",
        Architecture::Other(_) => "other",
    }
}

/// The card in the name of a boot loader's configuration.
pub(super) fn card_in(file: &str) -> Option<Mac> {
    crate::scripts::card_named(file.rsplit('/').next()?)
}

fn dhcp(sighting: &Sighting, asked: &str, outcome: &str, boot_file: Option<&str>) -> String {
    let mut text = format!("{} by ", asked.to_uppercase());
    text.push_str(sighting.stage.map_or("somebody", program));
    if let Some(known) = sighting.architecture {
        let _ = write!(text, " ({})", architecture(known));
    }
    let _ = write!(text, " on {}: {outcome}", sighting.interface);
    if let Some(file) = boot_file {
        let _ = write!(text, ", to load {}", without_keys(file));
    } else if sighting.nothing_to_load {
        text.push_str(
            ", and there is nothing to load for this firmware by the node's boot interface",
        );
    }
    text
}

fn dhcp4_words(verdict: dhcp4::Verdict) -> Option<String> {
    use dhcp4::Verdict as V;
    Some(match verdict {
        V::Offered(address) => format!("offered {address}"),
        V::Leased(address) => format!("given {address}"),
        V::Refused(address) => format!("told that it cannot have {address}"),
        V::Released(address) => format!("gave {address} back"),
        V::Declined(address) => format!("found {address} used by another machine"),
        V::Informed => "told about the network".to_owned(),
        V::ProxyAnswered => "told what to load, beside the site's own DHCP".to_owned(),
        V::Unknown => {
            "not answered: nobody enrolled it, and only known machines are served".to_owned()
        }
        V::Ignored => "not answered: its card is to be ignored".to_owned(),
        V::BootsFromDisk => "not answered: it should boot its disk".to_owned(),
        V::NoBootFile => "not answered: there is nothing to load for this firmware".to_owned(),
        V::NotBooting => "not answered: it does not boot".to_owned(),
        V::ChoseOther => "chose another DHCP server".to_owned(),
        V::NoSubnet => "not answered: no configured network fits".to_owned(),
        V::NoFreeAddress => "not answered: every address of the ranges is taken".to_owned(),
        V::NotRecorded => "not answered: its lease could not be written down".to_owned(),
        V::Off | V::Meaningless => return None,
    })
}

fn dhcp6_words(verdict: dhcp6::Verdict) -> Option<String> {
    use dhcp6::Verdict as V;
    Some(match verdict {
        V::Advertised(address) => format!("offered {address}"),
        V::Leased(address) => format!("given {address}"),
        V::Informed => "told about the network".to_owned(),
        V::Confirmed => "told that its address is right".to_owned(),
        V::NotOnLink => "told that its address is of another network".to_owned(),
        V::Refused => "told that it cannot have its address".to_owned(),
        V::Released => "gave its address back".to_owned(),
        V::Declined => "found its address used by another machine".to_owned(),
        V::NoFreeAddress => "told that there is no address".to_owned(),
        V::Unknown => {
            "not answered: nobody enrolled it, and only known machines are served".to_owned()
        }
        V::Ignored => "not answered: its card is to be ignored".to_owned(),
        V::BootsFromDisk => "not answered: it should boot its disk".to_owned(),
        V::ChoseOther => "chose another DHCP server".to_owned(),
        V::NoSubnet => "not answered: no configured network fits".to_owned(),
        V::NotRecorded => "not answered: its lease could not be written down".to_owned(),
        V::Off | V::Meaningless => return None,
    })
}

fn tftp_words(outcome: tftp::Outcome) -> String {
    use tftp::Outcome as O;
    match outcome {
        O::Done { bytes } => format!("sent, {bytes} bytes"),
        O::Ended => "the machine ended the transfer".to_owned(),
        O::Silent => "the machine fell silent".to_owned(),
        O::Unreadable => "could not be read".to_owned(),
        O::NotFound => "there is no such file".to_owned(),
        O::Forbidden => "may not be read".to_owned(),
        O::TooMany => "too many transfers at once".to_owned(),
        O::Malformed => "not a request to read a file".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_card_is_found_in_the_names_boot_loaders_use() {
        let card = "52:54:00:aa:bb:01".parse().ok();
        for file in ["pxelinux.cfg/01-52-54-00-aa-bb-01", "/52:54:00:aa:bb:01.conf"] {
            assert_eq!(card_in(file), card, "{file}");
        }
        assert_eq!(card_in("undionly.kpxe"), None);
    }
}
