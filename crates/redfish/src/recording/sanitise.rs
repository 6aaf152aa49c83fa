// SPDX-License-Identifier: Apache-2.0
//! Removes everything that identifies the machine from a recording.
//!
//! The first pass collects values under identifying keys and everything that looks like an address or a
//! name. The second pass replaces each of them everywhere, in values, keys and paths. So a service tag
//! under `SerialNumber` is also replaced in the host name and in links, which stay consistent.

use std::collections::BTreeMap;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::{Map, Value};

use super::replacements::{Replacements, spellings};
use super::sensitive_keys::{self, SensitiveKind};
use super::{BmcRecording, RecordedResponse, patterns};

/// Shorter texts are replaced only under their key: an asset tag `7` would replace every 7.
const SHORTEST_SOUGHT: usize = 3;
/// Texts with digits of at least this length are replaced inside words too.
const SHORTEST_INSIDE: usize = 5;

/// Returns the recording without anything that identifies the machine or its owner, and without
/// secrets.
#[must_use]
pub fn sanitise(recording: BmcRecording) -> BmcRecording {
    let mut finder = SensitiveTextFinder::default();
    for (path, recorded) in &recording.resources {
        finder.text("", path);
        finder.value("", &recorded.body);
        recorded.headers.iter().for_each(|(name, value)| finder.text(name, value));
    }
    recording.left_out.keys().for_each(|path| finder.text("", path));
    let mut replacer = finder.into_replacer();
    let BmcRecording { version, resources, left_out, .. } = recording;
    let mut clean = BmcRecording {
        version,
        resources: resources
            .into_iter()
            .map(|(path, recorded)| (replacer.text(&path), replacer.recorded(recorded)))
            .collect(),
        left_out: left_out
            .into_iter()
            .map(|(path, why)| (replacer.text(&path), replacer.text(&why)))
            .collect(),
        ..BmcRecording::default()
    };
    clean.about = clean.describe();
    clean
}

/// Collects the texts to replace.
#[derive(Default)]
struct SensitiveTextFinder {
    /// The texts and their kinds.
    sought: BTreeMap<String, SensitiveKind>,
    stand_ins: Replacements,
}

impl SensitiveTextFinder {
    fn value(&mut self, key: &str, value: &Value) {
        match value {
            Value::String(text) => self.text(key, text),
            Value::Array(items) => items.iter().for_each(|item| self.value(key, item)),
            Value::Object(members) => {
                for (name, value) in members {
                    // Some keys are names, which may be identifying.
                    patterns::find(name, true, |kind, word| self.seek(kind, word));
                    self.value(name, value);
                }
            }
            Value::Number(number) => {
                if sensitive_keys::of_key(key).is_some() {
                    self.seek(SensitiveKind::Serial, &number.to_string());
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    fn text(&mut self, key: &str, text: &str) {
        if sensitive_keys::is_untouched(key) {
            return;
        }
        if let Some(kind) = sensitive_keys::of_key(key) {
            let kind = actual(kind, text);
            self.seek(kind, text);
            // The short host name is replaced too, and so is the domain.
            if let (SensitiveKind::Host, Some((name, domain))) = (kind, text.split_once('.')) {
                self.seek(SensitiveKind::Host, name);
                self.seek(SensitiveKind::Host, domain);
            }
        }
        patterns::find(text, sensitive_keys::is_version(key), |kind, word| self.seek(kind, word));
    }

    fn seek(&mut self, kind: SensitiveKind, text: &str) {
        let text = text.trim();
        if text.len() < SHORTEST_SOUGHT
            || sensitive_keys::is_placeholder(text)
            || sensitive_keys::is_common_word(text)
        {
            return;
        }
        // Numbered in order of discovery, so that the result is reproducible.
        self.stand_ins.of(kind, text);
        self.sought.entry(text.to_owned()).or_insert(kind);
    }

    fn into_replacer(self) -> SensitiveTextReplacer {
        let Self { sought, mut stand_ins } = self;
        let (mut inside, mut alone) = (BTreeMap::new(), BTreeMap::new());
        for (text, kind) in sought {
            for spelling in spellings(kind, &text) {
                let stand_in = stand_ins.of(kind, &spelling);
                let has_digit = spelling.bytes().any(|byte| byte.is_ascii_digit());
                let is_ip = matches!(kind, SensitiveKind::Ip4 | SensitiveKind::Ip6);
                if has_digit && spelling.len() >= SHORTEST_INSIDE && !is_ip {
                    inside.insert(spelling.to_ascii_lowercase(), stand_in);
                } else {
                    alone.insert(spelling.to_ascii_lowercase(), stand_in);
                }
            }
        }
        SensitiveTextReplacer {
            inside: TextReplacements::new(inside),
            alone: TextReplacements::new(alone),
            stand_ins,
        }
    }
}

/// Replaces the collected texts.
struct SensitiveTextReplacer {
    /// Replaced everywhere.
    inside: TextReplacements,
    /// Replaced as whole words.
    alone: TextReplacements,
    stand_ins: Replacements,
}

impl SensitiveTextReplacer {
    fn recorded(&mut self, recorded: RecordedResponse) -> RecordedResponse {
        let headers =
            recorded.headers.into_iter().map(|(name, value)| (name, self.text(&value))).collect();
        RecordedResponse { headers, body: self.value("", recorded.body), ..recorded }
    }

    fn value(&mut self, key: &str, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.under(key, &text)),
            Value::Array(items) => {
                Value::Array(items.into_iter().map(|item| self.value(key, item)).collect())
            }
            Value::Object(members) => Value::Object(self.members(members)),
            Value::Number(_) if sensitive_keys::of_key(key).is_some() => Value::from(0),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    fn members(&mut self, members: Map<String, Value>) -> Map<String, Value> {
        members
            .into_iter()
            .map(|(name, value)| {
                let value = self.value(&name, value);
                (self.text(&name), value)
            })
            .collect()
    }

    fn under(&mut self, key: &str, text: &str) -> String {
        if sensitive_keys::is_untouched(key) {
            return text.to_owned();
        }
        match sensitive_keys::of_key(key) {
            Some(kind) if !sensitive_keys::is_placeholder(text) => {
                self.stand_ins.of(actual(kind, text), text)
            }
            Some(_) | None => self.text(text),
        }
    }

    fn text(&self, text: &str) -> String {
        let text = self.inside.replaced(text, |_, _, _| true);
        self.alone.replaced(&text, |text, start, end| {
            let joins = |byte: &u8| byte.is_ascii_alphanumeric();
            let bytes = text.as_bytes();
            !bytes[..start].last().is_some_and(joins) && !bytes[end..].first().is_some_and(joins)
        })
    }
}

/// A set of texts to search at once, ignoring case.
struct TextReplacements {
    finder: Option<AhoCorasick>,
    stand_ins: Vec<String>,
}

impl TextReplacements {
    fn new(words: BTreeMap<String, String>) -> Self {
        let (sought, stand_ins): (Vec<_>, Vec<_>) = words.into_iter().unzip();
        let finder = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .match_kind(MatchKind::LeftmostLongest)
            .build(&sought)
            .expect("a recording holds fewer than two thousand million texts");
        Self { finder: (!sought.is_empty()).then_some(finder), stand_ins }
    }

    fn replaced(&self, text: &str, fits: impl Fn(&str, usize, usize) -> bool) -> String {
        let Some(finder) = &self.finder else { return text.to_owned() };
        let mut clean = String::with_capacity(text.len());
        let mut done = 0;
        for found in finder.find_iter(text) {
            if fits(text, found.start(), found.end()) {
                clean.push_str(&text[done..found.start()]);
                clean.push_str(&self.stand_ins[found.pattern().as_usize()]);
                done = found.end();
            }
        }
        clean.push_str(&text[done..]);
        clean
    }
}

/// The kind of the text regardless of its key: `HostName` often contains an address.
fn actual(kind: SensitiveKind, text: &str) -> SensitiveKind {
    match kind {
        SensitiveKind::Credential => SensitiveKind::Credential,
        SensitiveKind::Mac if patterns::is_bare(text, 12) => SensitiveKind::Mac,
        SensitiveKind::Uuid if patterns::is_bare(text, 32) => SensitiveKind::Uuid,
        // Not an address, so some kind of name.
        SensitiveKind::Uuid | SensitiveKind::Mac => {
            patterns::of_word(text.trim(), false).unwrap_or(SensitiveKind::Serial)
        }
        SensitiveKind::Serial
        | SensitiveKind::Wwn
        | SensitiveKind::Ip4
        | SensitiveKind::Ip6
        | SensitiveKind::Host
        | SensitiveKind::Url
        | SensitiveKind::User
        | SensitiveKind::Place => patterns::of_word(text.trim(), false).unwrap_or(kind),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn recording(body: Value) -> BmcRecording {
        let recorded = RecordedResponse { status: 200, headers: BTreeMap::new(), body };
        let resources = BTreeMap::from([("/redfish/v1/Systems/1".to_owned(), recorded)]);
        BmcRecording { version: 1, resources, ..BmcRecording::default() }
    }

    fn clean(body: Value) -> Value {
        sanitise(recording(body)).resources.remove("/redfish/v1/Systems/1").unwrap().body
    }

    #[test]
    fn replaces_all_spellings_of_a_value_consistently() {
        let cleaned = clean(json!({
            "MACAddress": "14:02:EC:3F:00:1A",
            "Id": "NIC-1402ec3f001a",
            "Path": "/x/14%3A02%3AEC%3A3F%3A00%3A1A",
            "PermanentMACAddress": "1402EC3F001B",
            "FQDN": "bmc7.corp.example", "HostName": "BMC7", "Note": "on bmc7 of corp.example",
            "UUID": "4C4C4544-0051-3510-8052-B4C04F4A3632",
            "Other": "4c4c4544005135108052b4c04f4a3632",
        }));
        assert_eq!(
            cleaned,
            json!({
                "MACAddress": "02:00:00:00:00:01",
                "Id": "NIC-020000000001",
                "Path": "/x/02%3A00%3A00%3A00%3A00%3A01",
                "PermanentMACAddress": "020000000002",
                "FQDN": "host-1.example", "HostName": "host-2.example",
                "Note": "on host-2.example of host-3.example",
                "UUID": "00000000-0000-4000-8000-000000000001",
                "Other": "00000000000040008000000000000001",
            })
        );
    }

    #[test]
    fn keeps_values_that_identify_nothing() {
        let body = json!({
            "@odata.type": "#ComputerSystem.v1_10_0.ComputerSystem",
            "SerialNumber": "To Be Filled By O.E.M.", "AssetTag": "", "HostName": null,
            "Manufacturer": "Dell Inc.", "PartNumber": "0H3K7PX04", "BiosVersion": "2.5.13.3",
            "SubnetMask": "255.255.255.0", "PasswordStatus": "Unlocked", "Speed": 25000,
            "Schema": "http://redfish.dmtf.org/schemas/v1/x", "LastReset": "2026-11-15T12:30:45Z",
        });
        assert_eq!(clean(body.clone()), body);
    }

    #[test]
    fn replaces_common_words_only_under_identifying_keys() {
        let cleaned = clean(json!({
            "UserName": "root", "HostName": "system", "AssetTag": "7", "SerialNumber": 12345,
            "Kind": "System 7 root", "Oem": {"LicenseKey": "abc", "Word": "abc abcd"},
        }));
        assert_eq!(
            cleaned,
            json!({
                "UserName": "user-1", "HostName": "host-1.example", "AssetTag": "SERIAL0002",
                "SerialNumber": 0, "Kind": "System 7 root",
                "Oem": {"LicenseKey": "removed", "Word": "removed abcd"},
            })
        );
    }

    #[test]
    fn removes_owner_data_from_dell_attributes() {
        let cleaned = clean(json!({
            "ProcessorId": {"ProtectedIdentificationNumber": "0xB0E1C8D5A2F43710"},
            "EntitlementId": "FD00000021345678",
            "Attributes": {
                "ActiveDirectory.1.DomainController1": "dc-emea",
                "ActiveDirectory.1.Enable": "Enabled",
                "ADGroup.1.Name": "bmc-admins",
                "EmailAlert.1.Address": "oncall@corp.example",
                "LDAP.1.BaseDN": "dc=corp,dc=example",
                "LDAP.1.BindDN": "cn=reader,dc=corp,dc=example",
                "LDAP.1.Port": 636,
                "LDAP.1.SearchFilter": "(memberOf=bmc-admins)",
                "LDAP.1.Server": "directory",
                "LDAPRoleGroup.1.DN": "cn=ops,dc=corp,dc=example",
                "NTPConfigGroup.1.NTP1": "clock-one",
                "NTPConfigGroup.1.NTPEnable": "Enabled",
                "RemoteHosts.1.SMTPServerIPAddress": "mailhub",
                "ServerBoot.1.FirstBootDevice": "Normal",
                "SysLog.1.Server1": "loghub",
                "SysLog.1.Port": 514,
                "UserDomain.1.Name": "corp.example",
                "SecureDefaultPassword.1.IPMIKey": "00c0ffee",
            },
            "Description": "mails by mailhub, logs to loghub; cn=ops,dc=corp,dc=example",
            "Owner": "OU=Machines,DC=corp,DC=example",
        }));
        assert_eq!(
            cleaned,
            json!({
                "ProcessorId": {"ProtectedIdentificationNumber": "SERIAL0002"},
                "EntitlementId": "SERIAL0001",
                "Attributes": {
                    "ActiveDirectory.1.DomainController1": "host-1.example",
                    "ActiveDirectory.1.Enable": "Enabled",
                    "ADGroup.1.Name": "user-1",
                    "EmailAlert.1.Address": "user-2",
                    "LDAP.1.BaseDN": "user-3",
                    "LDAP.1.BindDN": "user-4",
                    "LDAP.1.Port": 636,
                    "LDAP.1.SearchFilter": "user-5",
                    "LDAP.1.Server": "host-2.example",
                    "LDAPRoleGroup.1.DN": "user-6",
                    "NTPConfigGroup.1.NTP1": "host-3.example",
                    "NTPConfigGroup.1.NTPEnable": "Enabled",
                    "RemoteHosts.1.SMTPServerIPAddress": "host-4.example",
                    "ServerBoot.1.FirstBootDevice": "Normal",
                    "SysLog.1.Server1": "host-5.example",
                    "SysLog.1.Port": 514,
                    "UserDomain.1.Name": "host-6.example",
                    "SecureDefaultPassword.1.IPMIKey": "removed",
                },
                "Description": "mails by host-4.example, logs to host-5.example; user-6",
                "Owner": "user-7",
            })
        );
    }

    /// A secret and its key.
    fn secret() -> impl Strategy<Value = (&'static str, String)> {
        let keys = |keys: &'static [&'static str]| proptest::sample::select(keys);
        prop_oneof![
            (
                keys(&["SerialNumber", "AssetTag", "SKU", "ChassisServiceTag"]),
                "[A-Z]{3}[0-9]{4}[A-Z]{0,3}"
            ),
            (
                keys(&["Password", "X-Auth-Token", "SecretKey"]),
                "[a-z]{4}[0-9]{2}[A-Za-z!#$*+=?^~-]{4,9}"
            ),
            (keys(&["UserName", "Users.2.UserName", "Contact"]), "[a-z]{9,12}"),
            (
                keys(&["HostName", "FQDN", "NTPServers"]),
                "[a-z]{4,8}-[0-9]{2}(\\.[a-z]{9}\\.[a-z]{9})?"
            ),
            (keys(&["MACAddress", "Id", "Text"]), "([13579BDE][0-9A-F]:){5}[0-9A-F]{2}"),
            (
                keys(&["UUID", "Id", "Text"]),
                "[1-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
            ),
            (keys(&["Address", "Id", "Text"]), "10\\.2[0-4][0-9]\\.1[0-9]{2}\\.[1-9][0-9]"),
            (keys(&["Address", "Id", "Text"]), "fd00:[1-9a-f]{4}:[1-9a-f]{4}::[1-9a-f]{4}"),
            (
                keys(&["Image", "Id", "Text"]),
                "https?://[a-z]{8}:[a-z0-9]{8}@[a-z]{8}/[a-z]{5}[.]iso"
            ),
        ]
    }

    /// Ways in which a secret occurs elsewhere.
    fn elsewhere(secret: &str, way: u8) -> Value {
        match way % 5 {
            0 => json!({"@odata.id": format!("/redfish/v1/Things/{secret}/More")}),
            1 => json!([{"Deep": [format!("made for {secret}.")]}]),
            2 => json!({"Message": secret.to_ascii_lowercase()}),
            3 => json!({ secret: {"Named": true} }),
            _ => json!({"Description": format!("({secret}) and {secret}")}),
        }
    }

    proptest! {
        #[test]
        fn no_secret_survives(
            secrets in proptest::collection::vec((secret(), any::<u8>()), 1..12),
        ) {
            let resources = secrets.iter().enumerate().map(|(number, ((key, secret), way))| {
                let body = json!({ *key: secret, "Other": elsewhere(secret, *way) });
                let path = format!("/redfish/v1/Systems/{}-{number}", secret.replace('/', "-"));
                let path = if way % 2 == 0 { path } else { format!("/redfish/v1/{number}") };
                let headers = BTreeMap::from([("etag".to_owned(), format!("\"{secret}\""))]);
                (path, RecordedResponse { status: 200, headers, body })
            });
            let recording =
                BmcRecording { version: 1, resources: resources.collect(), ..BmcRecording::default() };
            let text = sanitise(recording).to_text().to_ascii_lowercase();
            for ((key, secret), _) in &secrets {
                let secret = secret.to_ascii_lowercase();
                prop_assert!(!text.contains(&secret), "{key} {secret} in {text}");
            }
        }
    }
}
