// SPDX-License-Identifier: Apache-2.0
//! The URL of an image that a BMC downloads, with credentials split off, because BMCs take user name
//! and password in separate fields.

use node_model::redact_boot_keys;
use percent_encoding::percent_decode_str;

use crate::DriverError;

/// The URL schemes that BMCs support, with Redfish's `TransferProtocolType` of each.
const PROTOCOLS: &[(&str, &str)] = &[
    ("http", "HTTP"),
    ("https", "HTTPS"),
    ("nfs", "NFS"),
    ("cifs", "CIFS"),
    ("smb", "CIFS"),
    ("ftp", "FTP"),
    ("tftp", "TFTP"),
];

/// Characters that start the part of a URL that is not displayed.
const QUERY_START: [char; 2] = ['?', '#'];

/// An image URL for a BMC. Its `Debug` output contains no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BmcImageUrl {
    /// The URL without user and password.
    pub url: String,
    /// Credentials of the image server.
    pub login: Option<ImageLogin>,
    /// Redfish's `TransferProtocolType`.
    pub protocol: &'static str,
}

/// Credentials of an image server.
#[derive(Clone, PartialEq, Eq)]
pub struct ImageLogin {
    /// The user name.
    pub username: String,
    /// The password.
    pub password: String,
}

impl BmcImageUrl {
    /// Parses `text`; errors name the key `name`, such as `driver_info/deploy_iso`.
    pub fn parse(name: &str, text: &str) -> Result<Self, DriverError> {
        let text = text.trim();
        let invalid = |why: &str| DriverError::invalid(name, why);
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(invalid("it is not a URL, such as https://images.example/ramdisk.iso"));
        };
        let scheme = scheme.to_ascii_lowercase();
        let Some((_, protocol)) = PROTOCOLS.iter().find(|(known, _)| *known == scheme) else {
            let known: Vec<_> = PROTOCOLS.iter().map(|(known, _)| *known).collect();
            return Err(DriverError::invalid(
                name,
                format!("a BMC cannot fetch '{scheme}' URLs; use one of {}", known.join(", ")),
            ));
        };
        if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(invalid("a URL has no blanks in it; write them as %20"));
        }
        let (authority, path) = split_authority(rest);
        let (login, host) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((login, host)) => (Some(ImageLogin::parse(login)), host),
        };
        if host.is_empty() || host.starts_with(':') {
            return Err(invalid("it names no host, such as https://images.example/ramdisk.iso"));
        }
        if path.len() < 2 {
            return Err(invalid("it names a host and no file on it"));
        }
        Ok(Self { url: format!("{scheme}://{host}{path}"), login, protocol })
    }

    /// The URL without secrets.
    pub fn displayed(&self) -> String {
        displayed_url(&self.url)
    }

    /// Masks this image's secrets in `text`, which is a BMC's message and may repeat them.
    pub fn mask_secrets(&self, mut text: String) -> String {
        let password = self.login.as_ref().map(|login| login.password.as_str());
        let query = self.url.split_once(QUERY_START).map(|(_, query)| query);
        for secret in [password, query].into_iter().flatten().filter(|text| !text.is_empty()) {
            text = text.replace(secret, "******");
        }
        redact_boot_keys(&text)
    }
}

impl ImageLogin {
    fn parse(text: &str) -> Self {
        let (username, password) = text.split_once(':').unwrap_or((text, ""));
        Self { username: percent_decode(username), password: percent_decode(password) }
    }
}

impl std::fmt::Debug for BmcImageUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.displayed())
    }
}

/// Removes user and password from a URL. Returns other text unchanged.
pub fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = split_authority(rest);
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// A URL without user and password, without its query, which may be a signature that permits the
/// download, and without a boot key in its path, which does the same.
pub fn displayed_url(url: &str) -> String {
    let mut shown = without_login(url);
    shown.truncate(shown.find(QUERY_START).unwrap_or(shown.len()));
    redact_boot_keys(&shown)
}

fn split_authority(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// Decodes `%41` and the like. Invalid codes stay as they are; if the result is not UTF-8, returns
/// `text`.
fn percent_decode(text: &str) -> String {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => decoded.into_owned(),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parse_separates_credentials_from_url() {
        for (text, url, login, protocol) in [
            ("http://h/i.iso", "http://h/i.iso", None, "HTTP"),
            ("HTTPS://h:8443/a/i.iso?x=1@2", "https://h:8443/a/i.iso?x=1@2", None, "HTTPS"),
            ("https://u:p@h/i", "https://h/i", Some(("u", "p")), "HTTPS"),
            ("https://u:p%40ss%3a@[::1]:1/i", "https://[::1]:1/i", Some(("u", "p@ss:")), "HTTPS"),
            ("https://u:p@ss@h/i", "https://h/i", Some(("u", "p@ss")), "HTTPS"),
            ("https://only@h/i", "https://h/i", Some(("only", "")), "HTTPS"),
            ("cifs://d;u:100%@h/s/i", "cifs://h/s/i", Some(("d;u", "100%")), "CIFS"),
        ] {
            let image = BmcImageUrl::parse("image", text).unwrap();
            assert_eq!(image.url, url);
            assert_eq!(image.protocol, protocol);
            let credentials =
                image.login.as_ref().map(|l| (l.username.as_str(), l.password.as_str()));
            assert_eq!(credentials, login, "{text}");
        }
    }

    #[test]
    fn displayed_urls_and_masked_texts_have_no_secrets() {
        let text = "https://u:pass@h/i.iso?sig=abc#part";
        let image = BmcImageUrl::parse("image", text).unwrap();
        assert_eq!(format!("{image:?}"), "https://h/i.iso");
        assert_eq!(displayed_url(text), "https://h/i.iso");
        assert_eq!(displayed_url("image.iso"), "image.iso");
        let message = format!("cannot fetch {} as u with pass", image.url);
        assert_eq!(
            image.mask_secrets(message),
            "cannot fetch https://h/i.iso?****** as u with ******"
        );
        let ours = format!("http://h/{}/boot.iso", "Ab-_".repeat(11));
        let image = BmcImageUrl::parse("image", &ours).unwrap();
        for shown in [format!("{image:?}"), displayed_url(&ours), image.mask_secrets(ours)] {
            assert_eq!(shown, "http://h/…/boot.iso");
        }
        let plain = BmcImageUrl::parse("image", "http://u@h/i").unwrap();
        assert_eq!(plain.mask_secrets("no http://h/i".to_owned()), "no http://h/i");
    }

    #[test]
    fn parse_errors_name_key_and_defect() {
        for (text, fragment) in [
            ("", "not a URL"),
            ("/srv/i.iso", "not a URL"),
            ("file:///srv/i.iso", "'file'"),
            ("https://h/a b.iso", "%20"),
            ("https:///i.iso", "no host"),
            ("https://u:secret@/i.iso", "no host"),
            ("https://h", "no file"),
            ("https://h/", "no file"),
        ] {
            let error = BmcImageUrl::parse("driver_info/deploy_iso", text).unwrap_err().to_string();
            assert!(error.contains(fragment) && error.contains("deploy_iso"), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_without_login_removes_password(text in "\\PC{0,40}") {
            let _ = (BmcImageUrl::parse("x", &text), percent_decode(&text));
            let url = format!("https://user:{}@host/i", text.replace(['/', '?', '#'], ""));
            prop_assert_eq!(without_login(&url), "https://host/i");
        }
    }
}
