// SPDX-License-Identifier: Apache-2.0
//! Which fields identify a machine, its owner or its secrets: the tables, and looking things up in
//! them.

/// What kind of thing a text is that must not be in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A password, token, key or certificate.
    Credential,
    /// A serial number, service tag, asset tag or anything else unique to a thing.
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
    /// A URL that leads to somebody's server.
    Url,
    /// The name of an account or of a person, or a mail address.
    User,
    /// Where it stands and what its owner calls it.
    Place,
}

/// How a key is compared with a mark: in lower case, letters and digits only.
#[derive(Clone, Copy)]
enum Is {
    /// The key is the mark.
    Whole,
    /// The mark is in the key.
    Part,
    /// The key ends with the mark, numbers at its end not counted: `Server1`.
    End,
}

/// Keys and what is under them. The first that fits counts.
const KEYS: [(Is, &str, Kind); 87] = [
    (Is::Part, "password", Kind::Credential),
    (Is::Part, "passphrase", Kind::Credential),
    (Is::Part, "passwd", Kind::Credential),
    (Is::Part, "token", Kind::Credential),
    (Is::Part, "secret", Kind::Credential),
    (Is::Part, "privatekey", Kind::Credential),
    (Is::Part, "publickey", Kind::Credential),
    (Is::Part, "licensestring", Kind::Credential),
    (Is::Part, "communitystring", Kind::Credential),
    (Is::Part, "community", Kind::Credential),
    (Is::Part, "certificatestring", Kind::Credential),
    (Is::Whole, "certificate", Kind::Credential),
    (Is::Part, "fingerprint", Kind::Credential),
    (Is::Part, "signature", Kind::Credential),
    (Is::End, "key", Kind::Credential),
    (Is::End, "keys", Kind::Credential),
    (Is::Whole, "pin", Kind::Credential),
    (Is::Part, "serialnumber", Kind::Serial),
    (Is::Part, "serialnum", Kind::Serial),
    (Is::Whole, "serialno", Kind::Serial),
    (Is::Whole, "serial", Kind::Serial),
    (Is::Part, "systemserial", Kind::Serial),
    (Is::Part, "boardserial", Kind::Serial),
    (Is::Part, "chassisserial", Kind::Serial),
    (Is::Part, "productserial", Kind::Serial),
    (Is::Part, "servicetag", Kind::Serial),
    (Is::Part, "servicecode", Kind::Serial),
    (Is::Part, "assettag", Kind::Serial),
    (Is::Part, "assetname", Kind::Serial),
    (Is::Part, "assetowner", Kind::Place),
    (Is::Whole, "sku", Kind::Serial),
    (Is::Whole, "nodeid", Kind::Serial),
    (Is::Whole, "ppid", Kind::Serial),
    (Is::Part, "partidentification", Kind::Serial),
    (Is::Part, "identificationnumber", Kind::Serial),
    (Is::End, "ppin", Kind::Serial),
    (Is::Part, "entitlement", Kind::Serial),
    (Is::End, "licenseid", Kind::Serial),
    (Is::Part, "engineid", Kind::Serial),
    (Is::Part, "durablename", Kind::Serial),
    (Is::Part, "initiatorname", Kind::Serial),
    (Is::Part, "initiatoriqn", Kind::Serial),
    (Is::Part, "targetname", Kind::Serial),
    (Is::Part, "nqn", Kind::Serial),
    (Is::Part, "wwnn", Kind::Serial),
    (Is::Part, "wwpn", Kind::Serial),
    (Is::Part, "worldwidename", Kind::Serial),
    (Is::Whole, "wwn", Kind::Serial),
    (Is::Part, "uuid", Kind::Uuid),
    (Is::Part, "guid", Kind::Uuid),
    (Is::Part, "macaddress", Kind::Mac),
    (Is::Part, "macaddr", Kind::Mac),
    (Is::Whole, "mac", Kind::Mac),
    (Is::Part, "hostname", Kind::Host),
    (Is::Part, "fqdn", Kind::Host),
    (Is::Part, "domainname", Kind::Host),
    (Is::Part, "racname", Kind::Host),
    (Is::Part, "serveraddress", Kind::Host),
    (Is::Part, "serveripaddress", Kind::Host),
    (Is::Part, "serviceaddress", Kind::Host),
    (Is::Part, "domaincontroller", Kind::Host),
    (Is::Part, "globalcatalog", Kind::Host),
    (Is::Part, "userdomain", Kind::Host),
    (Is::Whole, "servername", Kind::Host),
    (Is::End, "server", Kind::Host),
    (Is::End, "servers", Kind::Host),
    (Is::End, "ntp", Kind::Host),
    (Is::End, "domain", Kind::Host),
    (Is::End, "realm", Kind::Host),
    (Is::End, "trapdestination", Kind::Host),
    (Is::End, "alertdestination", Kind::Host),
    (Is::Part, "username", Kind::User),
    (Is::Part, "logindomain", Kind::Host),
    (Is::Whole, "createdby", Kind::User),
    (Is::Part, "distinguishedname", Kind::User),
    (Is::End, "dn", Kind::User),
    (Is::Part, "searchfilter", Kind::User),
    (Is::Part, "adgroup", Kind::User),
    (Is::Part, "remotegroup", Kind::User),
    (Is::Part, "remoteuser", Kind::User),
    (Is::Part, "email", Kind::User),
    (Is::Part, "phone", Kind::User),
    (Is::Part, "contact", Kind::User),
    (Is::Part, "rackname", Kind::Place),
    (Is::Part, "roomname", Kind::Place),
    (Is::Part, "datacenter", Kind::Place),
    (Is::Part, "aislename", Kind::Place),
];

/// Keys that would fit above and only say how something is, not what it is. Ends of keys.
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

/// Keys of a postal address or a place in a rack. Only whole keys: they are everyday words.
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

/// Keys whose texts are never changed: they are Redfish's own words.
const UNTOUCHED: [&str; 6] = [
    "@odata.type",
    "@odata.context",
    "RedfishVersion",
    "MessageId",
    "@Redfish.Copyright",
    "ferrite_left_out",
];

/// Keys under which four numbers with dots are a version and no address. Parts of keys.
const VERSION_KEYS: [&str; 5] = ["version", "revision", "firmware", "release", "softwareid"];

/// What BMCs say where they know no serial number, host name and so on: no secrets, and worth
/// seeing in a recording. In lower case.
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

/// Words that stand all over Redfish or are every BMC's first account. Under an identifying key
/// they are replaced; elsewhere they mean something else.
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

/// What is under this key, if it must not be in a recording.
pub(super) fn of_key(key: &str) -> Option<Kind> {
    let key = plain(key);
    if PLACE_KEYS.contains(&key.as_str()) {
        return Some(Kind::Place);
    }
    if HARMLESS_ENDS.iter().any(|end| key.ends_with(end)) {
        return None;
    }
    let fits = |(is, mark, _): &&(Is, &str, Kind)| match is {
        Is::Whole => key == *mark,
        Is::Part => key.contains(mark),
        Is::End => key.trim_end_matches(|char: char| char.is_ascii_digit()).ends_with(mark),
    };
    KEYS.iter().find(fits).map(|(_, _, kind)| *kind)
}

/// Whether the texts under this key are never changed.
pub(super) fn is_untouched(key: &str) -> bool {
    UNTOUCHED.contains(&key)
}

/// Whether four numbers under this key are a version.
pub(super) fn is_version(key: &str) -> bool {
    let key = plain(key);
    VERSION_KEYS.iter().any(|part| key.contains(part))
}

/// Whether the text says that there is nothing to say.
pub(super) fn is_placeholder(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    PLACEHOLDERS.contains(&text.as_str())
        || text.chars().all(|char| matches!(char, '0' | ' ' | '.' | '-' | ':' | '*' | 'x' | '?'))
}

/// Whether the text is too common a word to be looked for everywhere.
pub(super) fn is_everyday(text: &str) -> bool {
    EVERYDAY.contains(&text.to_ascii_lowercase().as_str())
}

fn plain(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).map(|char| char.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_what_is_under_them() {
        for (key, kind) in [
            ("Password", Some(Kind::Credential)),
            ("OldSetupPassword", Some(Kind::Credential)),
            ("Users.2.IPMIKey", Some(Kind::Credential)),
            ("SNMP.1.AgentCommunity", Some(Kind::Credential)),
            ("LicenseKey", Some(Kind::Credential)),
            ("SecurityCertificate.1.EncryptKey2", Some(Kind::Credential)),
            ("KeyboardLayout", None),
            ("SerialNumber", Some(Kind::Serial)),
            ("ProtectedIdentificationNumber", Some(Kind::Serial)),
            ("EntitlementId", Some(Kind::Serial)),
            ("ChassisServiceTag", Some(Kind::Serial)),
            ("SKU", Some(Kind::Serial)),
            ("ServiceEntryPointUUID", Some(Kind::Uuid)),
            ("PermanentMACAddress", Some(Kind::Mac)),
            ("HostName", Some(Kind::Host)),
            ("NIC.1.DNSRacName", Some(Kind::Host)),
            ("NTPConfigGroup.1.NTP2", Some(Kind::Host)),
            ("NTPConfigGroup.1.NTPEnable", None),
            ("SysLog.1.Server1", Some(Kind::Host)),
            ("ServerBoot.1.FirstBootDevice", None),
            ("ActiveDirectory.1.DomainController3", Some(Kind::Host)),
            ("Users.2.UserName", Some(Kind::User)),
            ("LDAP.1.BaseDN", Some(Kind::User)),
            ("BaseDistinguishedNames", Some(Kind::User)),
            ("Room", Some(Kind::Place)),
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
