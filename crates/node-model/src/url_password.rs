// SPDX-License-Identifier: Apache-2.0
//! Masks passwords in URLs such as `https://user:password@host/image`, and restores them in URLs that
//! clients send back masked.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};

use crate::{JsonObject, MASK, is_secret_key};

/// `text` with [`MASK`] in the place of the password of every URL.
#[must_use]
pub fn mask_urls(text: &str) -> Cow<'_, str> {
    replace_passwords(text, UrlEnd::Delimiter, |_| Some(MASK))
}

/// Like [`mask_urls`], for text in which URLs may be quoted as in JSON: a quotation mark ends a URL
/// unless a backslash precedes it.
#[must_use]
pub fn mask_quoted_urls(line: &str) -> Cow<'_, str> {
    replace_passwords(line, UrlEnd::DelimiterOrQuote, |_| Some(MASK))
}

/// Whether any URL in `text` has a password, masked or not.
#[must_use]
pub fn has_url_password(text: &str) -> bool {
    UrlCredentials::after(text, 0, UrlEnd::Delimiter).is_some()
}

/// `text` with masked passwords restored from the URLs in `known` that have the same scheme, user and
/// host. No password is sent to another host than it was stored for.
#[must_use]
pub fn unmask_urls<'a>(text: &'a str, known: &[&'a str]) -> Cow<'a, str> {
    replace_passwords(text, UrlEnd::Delimiter, |credentials| {
        if credentials.password() != MASK {
            return None;
        }
        let known = known.iter().flat_map(|text| url_credentials(text, UrlEnd::Delimiter));
        let mut matching = known.filter(|other| other.has_same_target(credentials));
        matching.find(|other| other.password() != MASK).map(|other| other.password())
    })
}

/// Whether `members` contains a secret at any depth: by its key, or as a password in a URL.
#[must_use]
pub fn contains_secret(members: &Map<String, Value>) -> bool {
    members.iter().any(|(key, value)| is_secret_key(key) || value_contains_secret(value))
}

/// `object` with [`MASK`] in the place of the password of every URL. Other secrets are not masked.
#[must_use]
pub fn mask_object_urls(object: &JsonObject) -> Cow<'_, JsonObject> {
    // Approximate, because URLs in JSON text may contain escapes.
    if !(object.as_str().contains("://") && object.as_str().contains('@')) {
        return Cow::Borrowed(object);
    }
    let mut value = Value::Object(object.parse());
    mask_value(&mut value);
    match value {
        Value::Object(members) => Cow::Owned(JsonObject::from(members)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Cow::Borrowed(object)
        }
    }
}

/// Restores masked passwords of URLs in `object` from the objects in `known`.
pub fn unmask_object(object: &mut JsonObject, known: &[&JsonObject]) {
    if !object.as_str().contains(MASK) {
        return;
    }
    let known: Vec<Value> = known.iter().map(|object| Value::Object(object.parse())).collect();
    let mut texts = Vec::new();
    known.iter().for_each(|value| collect_strings(value, &mut texts));
    let mut value = Value::Object(object.parse());
    unmask_value(&mut value, &texts);
    if let Value::Object(members) = value {
        *object = JsonObject::from(members);
    }
}

fn value_contains_secret(value: &Value) -> bool {
    match value {
        Value::Object(members) => contains_secret(members),
        Value::Array(items) => items.iter().any(value_contains_secret),
        Value::String(text) => has_url_password(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn collect_strings<'a>(value: &'a Value, to: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => members.values().for_each(|value| collect_strings(value, to)),
        Value::Array(items) => items.iter().for_each(|value| collect_strings(value, to)),
        Value::String(text) => to.push(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_value(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(mask_value),
        Value::Array(items) => items.iter_mut().for_each(mask_value),
        Value::String(text) => {
            if let Cow::Owned(shown) = mask_urls(text) {
                *text = shown;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn unmask_value(value: &mut Value, known: &[&str]) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(|value| unmask_value(value, known));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| unmask_value(value, known)),
        Value::String(text) => {
            if let Cow::Owned(full) = unmask_urls(text, known) {
                *text = full;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What ends the authority part of a URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlEnd {
    /// The delimiters of URLs.
    Delimiter,
    /// The delimiters of URLs, or a quotation mark without a backslash before it.
    DelimiterOrQuote,
}

impl UrlEnd {
    /// The length of the authority part at the start of `text`.
    fn length_before(self, text: &str) -> usize {
        let mut is_escaped = false;
        let found = text.char_indices().find(|(_, letter)| {
            if std::mem::take(&mut is_escaped) {
                return false;
            }
            is_escaped = *letter == '\\' && self == Self::DelimiterOrQuote;
            match letter {
                '/' | '?' | '#' => true,
                '\\' => self == Self::Delimiter,
                '"' => self == Self::DelimiterOrQuote,
                _ => letter.is_whitespace() || letter.is_control(),
            }
        });
        found.map_or(text.len(), |(length, _)| length)
    }
}

/// The authority part of a URL with a password.
struct UrlCredentials<'a> {
    text: &'a str,
    scheme: &'a str,
    user: &'a str,
    host: &'a str,
    password: Range<usize>,
    /// The byte offset at which the authority part ends.
    end: usize,
}

impl<'a> UrlCredentials<'a> {
    /// The first URL with a password at or after byte `from`.
    fn after(text: &'a str, from: usize, end_rule: UrlEnd) -> Option<Self> {
        const MARK: &str = "://";
        let mut from = from;
        loop {
            let mark = from + text.get(from..)?.find(MARK)?;
            let start = mark + MARK.len();
            let end = start + end_rule.length_before(&text[start..]);
            let authority = &text[start..end];
            let parts = authority.rsplit_once('@').and_then(|(credentials, host)| {
                let (user, password) = credentials.split_once(':')?;
                (!password.is_empty()).then_some((user, password, host))
            });
            if let Some((user, password, host)) = parts {
                let first = start + user.len() + 1;
                let is_scheme =
                    |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
                let before = text[..mark].trim_end_matches(is_scheme).len();
                let scheme = &text[before..mark];
                let password = first..first + password.len();
                return Some(Self { text, scheme, user, host, password, end });
            }
            from = end;
        }
    }

    fn password(&self) -> &'a str {
        &self.text[self.password.clone()]
    }

    fn has_same_target(&self, other: &UrlCredentials<'_>) -> bool {
        self.scheme.eq_ignore_ascii_case(other.scheme)
            && self.user == other.user
            && self.host.eq_ignore_ascii_case(other.host)
    }
}

fn url_credentials(text: &str, end_rule: UrlEnd) -> impl Iterator<Item = UrlCredentials<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let credentials = UrlCredentials::after(text, from, end_rule)?;
        from = credentials.end;
        Some(credentials)
    })
}

/// `text` with the passwords replaced for which `replacement` returns one.
fn replace_passwords<'a>(
    text: &'a str,
    end_rule: UrlEnd,
    replacement: impl Fn(&UrlCredentials<'_>) -> Option<&'a str>,
) -> Cow<'a, str> {
    let mut changed = String::new();
    let mut copied = 0;
    for credentials in url_credentials(text, end_rule) {
        if let Some(password) =
            replacement(&credentials).filter(|password| *password != credentials.password())
        {
            changed.push_str(&text[copied..credentials.password.start]);
            changed.push_str(password);
            copied = credentials.password.end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    changed.push_str(&text[copied..]);
    Cow::Owned(changed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn masks_passwords_only() {
        for (text, shown) in [
            ("https://me:hunter2@h:8/i?a=b@c", "https://me:******@h:8/i?a=b@c"),
            ("https://:hunter2@h", "https://:******@h"),
            ("http://me:hun:ter@2@h/i", "http://me:******@h/i"),
            ("no a://u:p@h, no b://u:q@h/x: 404", "no a://u:******@h, no b://u:******@h/x: 404"),
            ("https://me:hun\"ter2@h/i", "https://me:******@h/i"),
            ("https://me@h/i", "https://me@h/i"),
            ("https://h:80/a:b@c", "https://h:80/a:b@c"),
            ("https://[::1]:80/", "https://[::1]:80/"),
            ("me:hunter2@h", "me:hunter2@h"),
            ("https://me:******@h/i", "https://me:******@h/i"),
            ("https://me:@h/i", "https://me:@h/i"),
            ("://", "://"),
            ("", ""),
        ] {
            assert_eq!(mask_urls(text), shown);
            assert_eq!(has_url_password(text), shown.contains(MASK), "{text}");
        }
    }

    #[test]
    fn masked_json_stays_valid() {
        let line = r#"{"url":"https://me:hunt\"er2@h","at":"https://h","mail":"a:b@c"}"#;
        let shown = r#"{"url":"https://me:******@h","at":"https://h","mail":"a:b@c"}"#;
        assert_eq!(mask_quoted_urls(line), shown);
    }

    #[test]
    fn restores_masked_passwords_for_the_same_host_only() {
        let known = ["no url", "https://me:hunter2@h:8/i and ftp://x:swordfish@y"];
        for (masked, full) in [
            ("https://me:******@h:8/i", "https://me:hunter2@h:8/i"),
            ("HTTPS://me:******@H:8/other", "HTTPS://me:hunter2@H:8/other"),
            ("ftp://x:******@y/z", "ftp://x:swordfish@y/z"),
            ("https://me:******@evil/i", "https://me:******@evil/i"),
            ("https://me:******@h/i", "https://me:******@h/i"),
            ("http://me:******@h:8/i", "http://me:******@h:8/i"),
            ("https://you:******@h:8/i", "https://you:******@h:8/i"),
            ("https://me:new@h:8/i", "https://me:new@h:8/i"),
        ] {
            assert_eq!(unmask_urls(masked, &known), full);
        }
        let stored = JsonObject::from_stored(r#"{"settings":[{"url":"http://a:b@c/d"}]}"#);
        let shown = mask_object_urls(&stored);
        assert_eq!(shown.as_str(), r#"{"settings":[{"url":"http://a:******@c/d"}]}"#);
        let mut object = JsonObject::from_stored(r#"{"x":[["http://a:******@c/e"]],"y":1}"#);
        unmask_object(&mut object, &[&stored]);
        assert_eq!(object.as_str(), r#"{"x":[["http://a:b@c/e"]],"y":1}"#);
    }

    #[test]
    fn finds_secrets_at_any_depth() {
        for (value, expected) in [
            (json!({"a": [{"b": "http://a:b@c"}]}), true),
            (json!({"a": {"password": 1}}), true),
            (json!({"a": ["http://b/c", {"d": 1}]}), false),
        ] {
            assert_eq!(contains_secret(value.as_object().unwrap()), expected, "{value}");
        }
    }

    proptest! {
        /// No password remains, whatever text surrounds the URL; masking twice changes nothing.
        #[test]
        fn leaves_no_password_in_text(
            before in "[a-z :@/]{0,8}", password in "[a-z0-9@:%'\"]{1,12}Z", after in "[ -~]{0,8}",
        ) {
            let text = format!("{before} s3://u:{password}@host/{after}");
            let shown = mask_urls(&text).into_owned();
            prop_assert!(!shown.contains(&format!("{password}@host")), "{shown}");
            prop_assert_eq!(mask_urls(&shown), shown.as_str());
        }
    }
}
