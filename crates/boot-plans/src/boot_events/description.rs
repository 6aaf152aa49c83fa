// SPDX-License-Identifier: Apache-2.0
//! Texts for boot events, as shown in timelines. Boot plan keys are redacted.

use std::fmt::Write as _;

use boot_server::{BootEvent, BootEventDetail, FirmwareArchitecture, dhcp4, dhcp6, tftp};
use node_model::{Mac, redact_boot_keys};

use super::stage_name;

/// Returns the service and the text of an event; `None` for events that are not recorded.
pub(super) fn describe_event(event: &BootEvent) -> Option<(&'static str, String)> {
    match &event.detail {
        BootEventDetail::Dhcp4 { message_type, outcome, boot_file } => {
            let outcome = dhcp4_outcome(*outcome)?;
            let message = format!("{message_type:?}");
            Some(("dhcp", describe_dhcp(event, &message, &outcome, boot_file.as_deref())))
        }
        BootEventDetail::Dhcp6 { message_type, outcome, boot_url } => {
            let outcome = dhcp6_outcome(*outcome)?;
            let message = format!("{message_type:?}");
            Some(("dhcpv6", describe_dhcp(event, &message, &outcome, boot_url.as_deref())))
        }
        BootEventDetail::Tftp { file, outcome } => {
            Some(("tftp", format!("{}: {}", redact_boot_keys(file), tftp_outcome(*outcome))))
        }
        BootEventDetail::Http { title, status, is_complete, user_agent, .. } => {
            let mut text = format!("{title}: {status}");
            if !is_complete {
                text.push_str(", aborted");
            }
            if !user_agent.is_empty() {
                let _ = write!(text, " ({user_agent})");
            }
            Some(("http", text))
        }
    }
}

/// Returns the processor and firmware type as shown in timelines.
pub(super) fn architecture_name(architecture: FirmwareArchitecture) -> &'static str {
    match architecture {
        FirmwareArchitecture::Bios => "x86 BIOS",
        FirmwareArchitecture::UefiX86 => "x86 UEFI",
        FirmwareArchitecture::UefiX64 => "x86-64 UEFI",
        FirmwareArchitecture::UefiArm32 => "ARM UEFI",
        FirmwareArchitecture::UefiArm64 => "ARM64 UEFI",
        FirmwareArchitecture::UefiRiscv64 => "RISC-V UEFI",
        FirmwareArchitecture::Other(_) => "other",
    }
}

/// Returns the MAC address in the file name of a boot loader configuration.
pub(super) fn mac_in_file_name(file: &str) -> Option<Mac> {
    crate::scripts::mac_from_file_name(file.rsplit('/').next()?)
}

fn describe_dhcp(
    event: &BootEvent,
    message: &str,
    outcome: &str,
    boot_file: Option<&str>,
) -> String {
    let mut text = format!("{} from ", message.to_uppercase());
    text.push_str(event.stage.map_or("an unknown client", stage_name));
    if let Some(architecture) = event.architecture {
        let _ = write!(text, " ({})", architecture_name(architecture));
    }
    let _ = write!(text, " on {}: {outcome}", event.interface);
    if let Some(file) = boot_file {
        let _ = write!(text, ", boot file {}", redact_boot_keys(file));
    } else if event.no_loadable_boot_file {
        text.push_str(", no boot file: the node's boot interface has none for this firmware");
    }
    text
}

fn dhcp4_outcome(outcome: dhcp4::Dhcp4Outcome) -> Option<String> {
    use dhcp4::Dhcp4Outcome as O;
    Some(match outcome {
        O::Offered(address) => format!("offered {address}"),
        O::Leased(address) => format!("leased {address}"),
        O::Refused(address) => format!("refused {address}"),
        O::Released(address) => format!("released {address}"),
        O::Declined(address) => format!("declined {address}: used by another machine"),
        O::Informed => "sent network settings".to_owned(),
        O::ProxyReplied => "sent boot file beside the site's DHCP server".to_owned(),
        O::UnknownMachine => {
            "no reply: not enrolled, and only known machines are served".to_owned()
        }
        O::Ignored => "no reply: MAC address is on the ignore list".to_owned(),
        O::BootsFromDisk => "no reply: boots from disk".to_owned(),
        O::NoBootFile => "no reply: no boot file for this firmware".to_owned(),
        O::NotNetboot => "no reply: not a network boot request".to_owned(),
        O::OtherServerChosen => "chose another DHCP server".to_owned(),
        O::NoSubnet => "no reply: no configured network matches".to_owned(),
        O::NoFreeAddress => "no reply: no free address".to_owned(),
        O::UnknownShareUsed => {
            "no reply: unknown machines hold all addresses that they may".to_owned()
        }
        O::LeaseNotStored => "no reply: DHCP lease could not be stored".to_owned(),
        O::Disabled | O::Invalid => return None,
    })
}

fn dhcp6_outcome(outcome: dhcp6::Dhcp6Outcome) -> Option<String> {
    use dhcp6::Dhcp6Outcome as O;
    Some(match outcome {
        O::Advertised(address) => format!("offered {address}"),
        O::Leased(address) => format!("leased {address}"),
        O::Informed => "sent network settings".to_owned(),
        O::Confirmed => "confirmed address".to_owned(),
        O::NotOnLink => "rejected address of another network".to_owned(),
        O::Refused => "refused address".to_owned(),
        O::Released => "released address".to_owned(),
        O::Declined => "declined address: used by another machine".to_owned(),
        O::NoFreeAddress => "no free address".to_owned(),
        O::UnknownMachine => {
            "no reply: not enrolled, and only known machines are served".to_owned()
        }
        O::Ignored => "no reply: MAC address is on the ignore list".to_owned(),
        O::BootsFromDisk => "no reply: boots from disk".to_owned(),
        O::OtherServerChosen => "chose another DHCP server".to_owned(),
        O::NoSubnet => "no reply: no configured network matches".to_owned(),
        O::LeaseNotStored => "no reply: DHCP lease could not be stored".to_owned(),
        O::Disabled | O::Invalid => return None,
    })
}

fn tftp_outcome(outcome: tftp::TftpOutcome) -> String {
    use tftp::TftpOutcome as O;
    match outcome {
        O::Completed { bytes } => format!("sent, {bytes} bytes"),
        O::AbortedByClient => "aborted by the machine".to_owned(),
        O::TimedOut => "timed out".to_owned(),
        O::Unreadable => "could not be read".to_owned(),
        O::NotFound => "not found".to_owned(),
        O::Forbidden => "forbidden".to_owned(),
        O::TooManyTransfers => "rejected, too many transfers".to_owned(),
        O::Malformed => "not a read request".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_mac_address_in_loader_config_names() {
        let mac = "52:54:00:aa:bb:01".parse().ok();
        for file in ["pxelinux.cfg/01-52-54-00-aa-bb-01", "/52:54:00:aa:bb:01.conf"] {
            assert_eq!(mac_in_file_name(file), mac, "{file}");
        }
        assert_eq!(mac_in_file_name("undionly.kpxe"), None);
    }
}
