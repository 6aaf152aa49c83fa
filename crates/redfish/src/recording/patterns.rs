// SPDX-License-Identifier: Apache-2.0
//! Patterns of identifying values in any text.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::sensitive_keys::SensitiveKind;

/// Hosts of Redfish and of public vendor documentation, whose URLs are kept.
const PUBLIC_HOSTS: [&str; 12] = [
    "dmtf.org",
    "odata.org",
    "oasis-open.org",
    "w3.org",
    "openssl.org",
    "snia.org",
    "dell.com",
    "hpe.com",
    "lenovo.com",
    "supermicro.com",
    "intel.com",
    "opencompute.org",
];

/// Attribute names in distinguished names, in lower case.
const DIRECTORY_KINDS: [&str; 9] = ["cn", "ou", "o", "dc", "uid", "c", "l", "st", "email"];

/// Calls `found` for everything in `text` that looks identifying. Numbers with dots are ignored in a
/// version.
pub(super) fn find(text: &str, is_version: bool, mut found: impl FnMut(SensitiveKind, &str)) {
    urls(text, &mut found);
    if is_distinguished_name(text) {
        found(SensitiveKind::User, text);
    }
    for word in text.split(|char: char| !is_address_char(char)) {
        let word = word.trim_matches(['.', ':', '-', '_', '@', '%']);
        if let Some(kind) = of_word(word, is_version) {
            found(kind, word);
        } else if word.contains(['-', '_', '.', '@', '%']) {
            // Names are composed: `NIC.Slot.1_00:11:22:33:44:55`.
            for part in word.split(['_', '.', '@', '%']) {
                if let Some(kind) = of_word(part, true) {
                    found(kind, part);
                }
            }
        }
    }
}

/// The kind of a whole word, if it matches one.
pub(super) fn of_word(word: &str, is_version: bool) -> Option<SensitiveKind> {
    if is_uuid(word) {
        Some(SensitiveKind::Uuid)
    } else if is_pairs(word, ':', 6) || is_pairs(word, '-', 6) {
        Some(SensitiveKind::Mac)
    } else if is_pairs(word, ':', 8) || is_pairs(word, ':', 16) {
        Some(SensitiveKind::Wwn)
    } else if is_mail(word) {
        Some(SensitiveKind::User)
    } else if !is_version && word.parse().is_ok_and(identifies4) {
        Some(SensitiveKind::Ip4)
    } else if word.contains(':') && word.parse().is_ok_and(identifies6) {
        Some(SensitiveKind::Ip6)
    } else {
        None
    }
}

/// Returns whether the text consists of exactly this many hexadecimal digits.
pub(super) fn is_bare(text: &str, digits: usize) -> bool {
    text.len() == digits && is_hex(text)
}

fn urls(text: &str, found: &mut impl FnMut(SensitiveKind, &str)) {
    let mut rest = text;
    while let Some(middle) = rest.find("://") {
        let scheme = rest[..middle]
            .rfind(|char: char| !char.is_ascii_alphanumeric())
            .map_or(0, |before| before + 1);
        let ends =
            |char: char| char.is_whitespace() || matches!(char, '"' | '\'' | '<' | '>' | ')');
        let end = rest[middle + 3..].find(ends).map_or(rest.len(), |end| middle + 3 + end);
        let authority = rest[middle + 3..end].split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let is_public = PUBLIC_HOSTS.iter().any(|public| {
            host.strip_suffix(public).is_some_and(|front| front.is_empty() || front.ends_with('.'))
        });
        if scheme < middle && !authority.is_empty() && (!is_public || authority.contains('@')) {
            found(SensitiveKind::Url, &rest[scheme..end]);
        }
        rest = &rest[end..];
    }
}

/// The characters of addresses and of names that contain them.
fn is_address_char(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '.' | ':' | '-' | '_' | '@' | '%')
}

fn is_uuid(word: &str) -> bool {
    let mut lengths = [8, 4, 4, 4, 12].into_iter();
    let parts = word.split('-').all(|part| lengths.next() == Some(part.len()) && is_hex(part));
    // BMCs show a UUID of zeros or of Fs if there is none.
    let first = word.chars().next().unwrap_or_default();
    parts
        && lengths.next().is_none()
        && word.chars().any(|char| char != '-' && !char.eq_ignore_ascii_case(&first))
}

fn is_pairs(word: &str, separator: char, count: usize) -> bool {
    word.len() == count * 3 - 1
        && word.split(separator).all(|pair| pair.len() == 2 && is_hex(pair))
        && word.chars().any(|char| char != separator && !matches!(char, '0' | 'f' | 'F'))
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_mail(word: &str) -> bool {
    word.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty() && host.contains('.') && !host.contains(['@', ':']) && !word.starts_with("@")
            // `Members@odata.count` and similar are Redfish keys.
            && !["odata.", "Redfish.", "Message."].iter().any(|start| host.starts_with(start))
    })
}

/// Returns whether the text is a distinguished name: `CN=Admins,OU=IT,DC=corp,DC=example`.
fn is_distinguished_name(text: &str) -> bool {
    let mut parts = text.split(',').peekable();
    let is_part = |part: &str| {
        part.split_once('=').is_some_and(|(kind, name)| {
            let kind = kind.trim().to_ascii_lowercase();
            DIRECTORY_KINDS.contains(&kind.as_str()) && !name.trim().is_empty()
        })
    };
    parts.next().is_some_and(is_part) && parts.peek().is_some() && parts.all(is_part)
}

/// Returns whether the address identifies a host: not a netmask, unspecified or loopback.
fn identifies4(ip: Ipv4Addr) -> bool {
    !ip.is_unspecified() && !ip.is_loopback() && ip.octets()[0] != 255 && ip.octets()[0] != 0
}

fn identifies6(ip: Ipv6Addr) -> bool {
    !ip.is_unspecified() && !ip.is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> String {
        let mut all = Vec::new();
        find(text, false, |kind, word| all.push(format!("{kind:?} {word}")));
        all.join(", ")
    }

    #[test]
    fn finds_identifying_values() {
        for (text, expected) in [
            ("Embedded NIC 1", ""),
            ("14:02:EC:3F:00:1a", "Mac 14:02:EC:3F:00:1a"),
            ("NIC.Slot.1_14-02-ec-3f-00-1a", "Mac 14-02-ec-3f-00-1a"),
            ("00:00:00:00:00:00", ""),
            (
                "/Systems/4c4c4544-0051-3510-8052-b4c04f4a3632/Bios",
                "Uuid 4c4c4544-0051-3510-8052-b4c04f4a3632",
            ),
            ("00000000-0000-0000-0000-000000000000", ""),
            ("at 10.20.30.40.", "Ip4 10.20.30.40"),
            ("10.20.30.40/24", "Ip4 10.20.30.40"),
            ("255.255.255.0", ""),
            ("6.10.30.00", ""),
            ("BIOS-1.2.3.4__x", ""),
            ("fe80::1602:ecff:fe3f:1a%eth0", "Ip6 fe80::1602:ecff:fe3f:1a"),
            ("::1", ""),
            ("2026-11-15T12:30:45Z", ""),
            ("50:01:43:80:12:34:56:78", "Wwn 50:01:43:80:12:34:56:78"),
            ("mail jane@corp.example now", "User jane@corp.example"),
            ("CN=Admins, OU=IT,DC=corp", "User CN=Admins, OU=IT,DC=corp"),
            ("Boot=UEFI,Mode=Fast", ""),
            ("cn=one", ""),
            ("Members@odata.count", ""),
            ("http://redfish.dmtf.org/schemas/v1/x", ""),
            (
                "see https://images.corp.example/a.iso?t=1, then",
                "Url https://images.corp.example/a.iso?t=1,",
            ),
            ("http://u:p@dell.com/x", "Url http://u:p@dell.com/x, User u:p@dell.com"),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }
}
