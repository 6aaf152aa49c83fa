// SPDX-License-Identifier: Apache-2.0
//! Where a BMC fetches an image from: the URL without a user and password in it, and those two by
//! themselves, because BMCs take them in fields of their own.

use node_model::without_keys;

use crate::Error;

/// The schemes that BMCs fetch images by, and what Redfish calls each.
const PROTOCOLS: &[(&str, &str)] = &[
    ("http", "HTTP"),
    ("https", "HTTPS"),
    ("nfs", "NFS"),
    ("cifs", "CIFS"),
    ("smb", "CIFS"),
    ("ftp", "FTP"),
    ("tftp", "TFTP"),
];

/// What begins the part of a URL that is not shown.
const QUERY: [char; 2] = ['?', '#'];

/// An image a BMC can be told to fetch. Printing it shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ImageUrl {
    /// The URL without user and password.
    pub(super) url: String,
    /// Who may fetch it.
    pub(super) login: Option<Login>,
    /// The way to fetch it, in Redfish's words.
    pub(super) protocol: &'static str,
}

/// Who may fetch an image.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(super) username: String,
    pub(super) password: String,
}

impl ImageUrl {
    /// Reads the URL that the operator gave under `name`.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let wrong = |why: &str| Error::invalid(name, why);
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(wrong("it is not a URL, such as https://images.example/ramdisk.iso"));
        };
        let scheme = scheme.to_ascii_lowercase();
        let Some((_, protocol)) = PROTOCOLS.iter().find(|(known, _)| *known == scheme) else {
            let known: Vec<_> = PROTOCOLS.iter().map(|(known, _)| *known).collect();
            return Err(Error::invalid(
                name,
                format!("a BMC cannot fetch '{scheme}' URLs; use one of {}", known.join(", ")),
            ));
        };
        if text.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
            return Err(wrong("a URL has no blanks in it; write them as %20"));
        }
        let (authority, path) = split_authority(rest);
        let (login, host) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((login, host)) => (Some(Login::parse(login)), host),
        };
        if host.is_empty() || host.starts_with(':') {
            return Err(wrong("it names no host, such as https://images.example/ramdisk.iso"));
        }
        if path.len() < 2 {
            return Err(wrong("it names a host and no file on it"));
        }
        Ok(Self { url: format!("{scheme}://{host}{path}"), login, protocol })
    }

    /// The URL as it may be shown.
    pub(super) fn shown(&self) -> String {
        shown_url(&self.url)
    }

    /// What a BMC says about this image as it may be shown, should the BMC have repeated what is
    /// secret about it.
    pub(super) fn masked(&self, mut said: String) -> String {
        let password = self.login.as_ref().map(|login| login.password.as_str());
        let query = self.url.split_once(QUERY).map(|(_, query)| query);
        for secret in [password, query].into_iter().flatten().filter(|text| !text.is_empty()) {
            said = said.replace(secret, "******");
        }
        without_keys(&said)
    }
}

impl Login {
    fn parse(text: &str) -> Self {
        let (username, password) = text.split_once(':').unwrap_or((text, ""));
        Self { username: decoded(username), password: decoded(password) }
    }
}

impl std::fmt::Debug for ImageUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

/// The URL without a user and password. Anything that is no URL stays as it is.
pub(super) fn without_login(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = split_authority(rest);
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// A URL as it may be shown: without a user and password, without a query, which may be a signature
/// that lets anybody fetch it, and without a key in its path, which does the same.
pub(super) fn shown_url(url: &str) -> String {
    let mut shown = without_login(url);
    shown.truncate(shown.find(QUERY).unwrap_or(shown.len()));
    without_keys(&shown)
}

fn split_authority(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()))
}

/// The text with `%41` and the like replaced by what they stand for. What is not such a code, or
/// would not be text, stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn logins_leave_the_url() {
        for (text, url, login, protocol) in [
            ("http://h/i.iso", "http://h/i.iso", None, "HTTP"),
            ("HTTPS://h:8443/a/i.iso?x=1@2", "https://h:8443/a/i.iso?x=1@2", None, "HTTPS"),
            ("https://u:p@h/i", "https://h/i", Some(("u", "p")), "HTTPS"),
            ("https://u:p%40ss%3a@[::1]:1/i", "https://[::1]:1/i", Some(("u", "p@ss:")), "HTTPS"),
            ("https://u:p@ss@h/i", "https://h/i", Some(("u", "p@ss")), "HTTPS"),
            ("https://only@h/i", "https://h/i", Some(("only", "")), "HTTPS"),
            ("cifs://d;u:100%@h/s/i", "cifs://h/s/i", Some(("d;u", "100%")), "CIFS"),
        ] {
            let image = ImageUrl::parse("image", text).unwrap();
            assert_eq!(image.url, url);
            assert_eq!(image.protocol, protocol);
            let found = image.login.as_ref().map(|l| (l.username.as_str(), l.password.as_str()));
            assert_eq!(found, login, "{text}");
        }
    }

    #[test]
    fn what_is_shown_lets_nobody_fetch_it() {
        let text = "https://u:pass@h/i.iso?sig=abc#part";
        let image = ImageUrl::parse("image", text).unwrap();
        assert_eq!(format!("{image:?}"), "https://h/i.iso");
        assert_eq!(shown_url(text), "https://h/i.iso");
        assert_eq!(shown_url("image.iso"), "image.iso");
        let said = format!("cannot fetch {} as u with pass", image.url);
        assert_eq!(image.masked(said), "cannot fetch https://h/i.iso?****** as u with ******");
        let ours = format!("http://h/{}/boot.iso", "Ab-_".repeat(11));
        let image = ImageUrl::parse("image", &ours).unwrap();
        for shown in [format!("{image:?}"), shown_url(&ours), image.masked(ours)] {
            assert_eq!(shown, "http://h/…/boot.iso");
        }
        let plain = ImageUrl::parse("image", "http://u@h/i").unwrap();
        assert_eq!(plain.masked("no http://h/i".to_owned()), "no http://h/i");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("", "not a URL"),
            ("/srv/i.iso", "not a URL"),
            ("file:///srv/i.iso", "'file'"),
            ("https://h/a b.iso", "%20"),
            ("https:///i.iso", "no host"),
            ("https://u:secret@/i.iso", "no host"),
            ("https://h", "no file"),
            ("https://h/", "no file"),
        ] {
            let error = ImageUrl::parse("driver_info/deploy_iso", text).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("deploy_iso"), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_text_nothing_panics_and_no_password_shows(text in "\\PC{0,40}") {
            let _ = (ImageUrl::parse("x", &text), decoded(&text));
            let url = format!("https://user:{}@host/i", text.replace(['/', '?', '#'], ""));
            prop_assert_eq!(without_login(&url), "https://host/i");
        }
    }
}
