// SPDX-License-Identifier: Apache-2.0
//! Tables of keys whose values identify a machine or its owner, or are secret.

/// The kind of a value that must not be in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SensitiveKind {
    /// A password, token, key or certificate.
    Credential,
    /// A serial number, service tag, asset tag or other unique identifier.
    Serial,
    /// A UUID.
    Uuid,
    /// An Ethernet address.
    Mac,
    /// A world-wide name of a port or a disk, written in pairs.
    Wwn,
    /// An IPv4 address.
    Ip4,
    /// An IPv6 address.
    Ip6,
    /// A host or domain name.
    Host,
    /// A URL of a private server.
    Url,
    /// The name of an account or a person, or a mail address.
    User,
    /// A location, or a name given by the owner.
    Place,
}

/// How a key is compared with a pattern: in lower case, letters and digits only.
#[derive(Clone, Copy)]
enum KeyMatch {
    /// The key equals the pattern.
    Whole,
    /// The key contains the pattern.
    Part,
    /// The key without trailing digits ends with the pattern: `Server1`.
    End,
}

/// Patterns and the kind of their values. The first match counts.
const KEYS: [(KeyMatch, &str, SensitiveKind); 87] = [
    (KeyMatch::Part, "password", SensitiveKind::Credential),
    (KeyMatch::Part, "passphrase", SensitiveKind::Credential),
    (KeyMatch::Part, "passwd", SensitiveKind::Credential),
    (KeyMatch::Part, "token", SensitiveKind::Credential),
    (KeyMatch::Part, "secret", SensitiveKind::Credential),
    (KeyMatch::Part, "privatekey", SensitiveKind::Credential),
    (KeyMatch::Part, "publickey", SensitiveKind::Credential),
    (KeyMatch::Part, "licensestring", SensitiveKind::Credential),
    (KeyMatch::Part, "communitystring", SensitiveKind::Credential),
    (KeyMatch::Part, "community", SensitiveKind::Credential),
    (KeyMatch::Part, "certificatestring", SensitiveKind::Credential),
    (KeyMatch::Whole, "certificate", SensitiveKind::Credential),
    (KeyMatch::Part, "fingerprint", SensitiveKind::Credential),
    (KeyMatch::Part, "signature", SensitiveKind::Credential),
    (KeyMatch::End, "key", SensitiveKind::Credential),
    (KeyMatch::End, "keys", SensitiveKind::Credential),
    (KeyMatch::Whole, "pin", SensitiveKind::Credential),
    (KeyMatch::Part, "serialnumber", SensitiveKind::Serial),
    (KeyMatch::Part, "serialnum", SensitiveKind::Serial),
    (KeyMatch::Whole, "serialno", SensitiveKind::Serial),
    (KeyMatch::Whole, "serial", SensitiveKind::Serial),
    (KeyMatch::Part, "systemserial", SensitiveKind::Serial),
    (KeyMatch::Part, "boardserial", SensitiveKind::Serial),
    (KeyMatch::Part, "chassisserial", SensitiveKind::Serial),
    (KeyMatch::Part, "productserial", SensitiveKind::Serial),
    (KeyMatch::Part, "servicetag", SensitiveKind::Serial),
    (KeyMatch::Part, "servicecode", SensitiveKind::Serial),
    (KeyMatch::Part, "assettag", SensitiveKind::Serial),
    (KeyMatch::Part, "assetname", SensitiveKind::Serial),
    (KeyMatch::Part, "assetowner", SensitiveKind::Place),
    (KeyMatch::Whole, "sku", SensitiveKind::Serial),
    (KeyMatch::Whole, "nodeid", SensitiveKind::Serial),
    (KeyMatch::Whole, "ppid", SensitiveKind::Serial),
    (KeyMatch::Part, "partidentification", SensitiveKind::Serial),
    (KeyMatch::Part, "identificationnumber", SensitiveKind::Serial),
    (KeyMatch::End, "ppin", SensitiveKind::Serial),
    (KeyMatch::Part, "entitlement", SensitiveKind::Serial),
    (KeyMatch::End, "licenseid", SensitiveKind::Serial),
    (KeyMatch::Part, "engineid", SensitiveKind::Serial),
    (KeyMatch::Part, "durablename", SensitiveKind::Serial),
    (KeyMatch::Part, "initiatorname", SensitiveKind::Serial),
    (KeyMatch::Part, "initiatoriqn", SensitiveKind::Serial),
    (KeyMatch::Part, "targetname", SensitiveKind::Serial),
    (KeyMatch::Part, "nqn", SensitiveKind::Serial),
    (KeyMatch::Part, "wwnn", SensitiveKind::Serial),
    (KeyMatch::Part, "wwpn", SensitiveKind::Serial),
    (KeyMatch::Part, "worldwidename", SensitiveKind::Serial),
    (KeyMatch::Whole, "wwn", SensitiveKind::Serial),
    (KeyMatch::Part, "uuid", SensitiveKind::Uuid),
    (KeyMatch::Part, "guid", SensitiveKind::Uuid),
    (KeyMatch::Part, "macaddress", SensitiveKind::Mac),
    (KeyMatch::Part, "macaddr", SensitiveKind::Mac),
    (KeyMatch::Whole, "mac", SensitiveKind::Mac),
    (KeyMatch::Part, "hostname", SensitiveKind::Host),
    (KeyMatch::Part, "fqdn", SensitiveKind::Host),
    (KeyMatch::Part, "domainname", SensitiveKind::Host),
    (KeyMatch::Part, "racname", SensitiveKind::Host),
    (KeyMatch::Part, "serveraddress", SensitiveKind::Host),
    (KeyMatch::Part, "serveripaddress", SensitiveKind::Host),
    (KeyMatch::Part, "serviceaddress", SensitiveKind::Host),
    (KeyMatch::Part, "domaincontroller", SensitiveKind::Host),
    (KeyMatch::Part, "globalcatalog", SensitiveKind::Host),
    (KeyMatch::Part, "userdomain", SensitiveKind::Host),
    (KeyMatch::Whole, "servername", SensitiveKind::Host),
    (KeyMatch::End, "server", SensitiveKind::Host),
    (KeyMatch::End, "servers", SensitiveKind::Host),
    (KeyMatch::End, "ntp", SensitiveKind::Host),
    (KeyMatch::End, "domain", SensitiveKind::Host),
    (KeyMatch::End, "realm", SensitiveKind::Host),
    (KeyMatch::End, "trapdestination", SensitiveKind::Host),
    (KeyMatch::End, "alertdestination", SensitiveKind::Host),
    (KeyMatch::Part, "username", SensitiveKind::User),
    (KeyMatch::Part, "logindomain", SensitiveKind::Host),
    (KeyMatch::Whole, "createdby", SensitiveKind::User),
    (KeyMatch::Part, "distinguishedname", SensitiveKind::User),
    (KeyMatch::End, "dn", SensitiveKind::User),
    (KeyMatch::Part, "searchfilter", SensitiveKind::User),
    (KeyMatch::Part, "adgroup", SensitiveKind::User),
    (KeyMatch::Part, "remotegroup", SensitiveKind::User),
    (KeyMatch::Part, "remoteuser", SensitiveKind::User),
    (KeyMatch::Part, "email", SensitiveKind::User),
    (KeyMatch::Part, "phone", SensitiveKind::User),
    (KeyMatch::Part, "contact", SensitiveKind::User),
    (KeyMatch::Part, "rackname", SensitiveKind::Place),
    (KeyMatch::Part, "roomname", SensitiveKind::Place),
    (KeyMatch::Part, "datacenter", SensitiveKind::Place),
    (KeyMatch::Part, "aislename", SensitiveKind::Place),
];

/// Suffixes of keys that match above but contain a state, not an identifier.
const HARMLESS_ENDS: [&str; 16] = [
    "status",
    "state",
    "enabled",
    "enable",
    "length",
    "policy",
    "expiration",
    "control",
    "type",
    "supported",
    "required",
    "algorithm",
    "count",
    "mode",
    "source",
    "permissions",
];

/// Keys of a postal address or a location. Only whole keys match, because they are common words.
const PLACE_KEYS: [&str; 16] = [
    "city",
    "street",
    "building",
    "room",
    "row",
    "rack",
    "floor",
    "postalcode",
    "territory",
    "district",
    "neighborhood",
    "community",
    "landmark",
    "latitude",
    "longitude",
    "houseno",
];

/// Keys whose values are never changed, because Redfish defines them.
const UNTOUCHED: [&str; 6] = [
    "@odata.type",
    "@odata.context",
    "RedfishVersion",
    "MessageId",
    "@Redfish.Copyright",
    "ferrite_left_out",
];

/// Parts of keys under which four numbers with dots are a version.
const VERSION_KEYS: [&str; 5] = ["version", "revision", "firmware", "release", "softwareid"];

/// Placeholders of BMCs for unknown serial numbers, host names and so on, in lower case. They are not
/// secret and useful in a recording.
const PLACEHOLDERS: [&str; 28] = [
    "",
    "-",
    "n/a",
    "na",
    "nil",
    "none",
    "null",
    "unknown",
    "empty",
    "default",
    "default string",
    "not available",
    "not specified",
    "not applicable",
    "not present",
    "no asset tag",
    "tbd",
    "unspecified",
    "undefined",
    "invalid",
    "oem",
    "to be filled by o.e.m.",
    "to be filled by oem",
    "system serial number",
    "chassis serial number",
    "base board serial number",
    "0123456789",
    "localhost",
];

/// Words that are common in Redfish, and default accounts. They are replaced only under an identifying
/// key.
const EVERYDAY: [&str; 77] = [
    "redfish",
    "v1",
    "systems",
    "system",
    "managers",
    "manager",
    "chassis",
    "members",
    "bios",
    "storage",
    "drives",
    "volumes",
    "processors",
    "memory",
    "ethernetinterfaces",
    "networkports",
    "networkadapters",
    "networkinterfaces",
    "power",
    "thermal",
    "sensors",
    "fans",
    "virtualmedia",
    "accountservice",
    "sessionservice",
    "updateservice",
    "eventservice",
    "taskservice",
    "tasks",
    "firmwareinventory",
    "registries",
    "secureboot",
    "oem",
    "links",
    "actions",
    "settings",
    "self",
    "bmc",
    "server",
    "node",
    "enabled",
    "disabled",
    "true",
    "false",
    "other",
    "ok",
    "default",
    "root",
    "admin",
    "administrator",
    "operator",
    "user",
    "userid",
    "readonly",
    "guest",
    "test",
    "anonymous",
    "localhost",
    "host",
    "embedded",
    "odata",
    "message",
    "dell",
    "hpe",
    "hp",
    "lenovo",
    "supermicro",
    "intel",
    "amd",
    "asus",
    "fujitsu",
    "gigabyte",
    "huawei",
    "inspur",
    "nvidia",
    "ami",
    "openbmc",
];

/// The kind of the values under this key, if they must not be in a recording.
pub(super) fn of_key(key: &str) -> Option<SensitiveKind> {
    let key = plain(key);
    if PLACE_KEYS.contains(&key.as_str()) {
        return Some(SensitiveKind::Place);
    }
    if HARMLESS_ENDS.iter().any(|end| key.ends_with(end)) {
        return None;
    }
    let fits = |(is, mark, _): &&(KeyMatch, &str, SensitiveKind)| match is {
        KeyMatch::Whole => key == *mark,
        KeyMatch::Part => key.contains(mark),
        KeyMatch::End => key.trim_end_matches(|char: char| char.is_ascii_digit()).ends_with(mark),
    };
    KEYS.iter().find(fits).map(|(_, _, kind)| *kind)
}

/// Returns whether the values under this key are never changed.
pub(super) fn is_untouched(key: &str) -> bool {
    UNTOUCHED.contains(&key)
}

/// Returns whether four numbers under this key are a version.
pub(super) fn is_version(key: &str) -> bool {
    let key = plain(key);
    VERSION_KEYS.iter().any(|part| key.contains(part))
}

/// Returns whether the text is a placeholder.
pub(super) fn is_placeholder(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    PLACEHOLDERS.contains(&text.as_str())
        || text.chars().all(|char| matches!(char, '0' | ' ' | '.' | '-' | ':' | '*' | 'x' | '?'))
}

/// Returns whether the text is too common to be searched everywhere.
pub(super) fn is_common_word(text: &str) -> bool {
    EVERYDAY.contains(&text.to_ascii_lowercase().as_str())
}

fn plain(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classifies_keys() {
        for (key, kind) in [
            ("Password", Some(SensitiveKind::Credential)),
            ("OldSetupPassword", Some(SensitiveKind::Credential)),
            ("Users.2.IPMIKey", Some(SensitiveKind::Credential)),
            ("SNMP.1.AgentCommunity", Some(SensitiveKind::Credential)),
            ("LicenseKey", Some(SensitiveKind::Credential)),
            ("SecurityCertificate.1.EncryptKey2", Some(SensitiveKind::Credential)),
            ("KeyboardLayout", None),
            ("SerialNumber", Some(SensitiveKind::Serial)),
            ("ProtectedIdentificationNumber", Some(SensitiveKind::Serial)),
            ("EntitlementId", Some(SensitiveKind::Serial)),
            ("ChassisServiceTag", Some(SensitiveKind::Serial)),
            ("SKU", Some(SensitiveKind::Serial)),
            ("ServiceEntryPointUUID", Some(SensitiveKind::Uuid)),
            ("PermanentMACAddress", Some(SensitiveKind::Mac)),
            ("HostName", Some(SensitiveKind::Host)),
            ("NIC.1.DNSRacName", Some(SensitiveKind::Host)),
            ("NTPConfigGroup.1.NTP2", Some(SensitiveKind::Host)),
            ("NTPConfigGroup.1.NTPEnable", None),
            ("SysLog.1.Server1", Some(SensitiveKind::Host)),
            ("ServerBoot.1.FirstBootDevice", None),
            ("ActiveDirectory.1.DomainController3", Some(SensitiveKind::Host)),
            ("Users.2.UserName", Some(SensitiveKind::User)),
            ("LDAP.1.BaseDN", Some(SensitiveKind::User)),
            ("BaseDistinguishedNames", Some(SensitiveKind::User)),
            ("Room", Some(SensitiveKind::Place)),
            ("PasswordStatus", None),
            ("SerialConsole", None),
            ("Model", None),
            ("PartNumber", None),
            ("Manufacturer", None),
            ("PowerState", None),
            ("BootSourceOverrideTarget", None),
        ] {
            assert_eq!(of_key(key), kind, "{key}");
        }
    }
}
