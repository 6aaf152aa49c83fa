// SPDX-License-Identifier: Apache-2.0
//! Masks secrets in URLs, and restores them in URLs that clients send back masked: passwords such as
//! `https://user:password@host/image`, and signatures and tokens in queries such as
//! `https://host/image?X-Amz-Signature=…`.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::{JsonObject, MASK, is_secret_key};

/// `text` with [`MASK`] in the place of the secrets of every URL.
#[must_use]
pub fn mask_urls(text: &str) -> Cow<'_, str> {
    replace_secrets(text, UrlEnd::Delimiter, |_| Some(MASK))
}

/// Like [`mask_urls`], for text in which URLs may be quoted as in JSON: a quotation mark ends a URL
/// unless a backslash precedes it.
#[must_use]
pub fn mask_quoted_urls(line: &str) -> Cow<'_, str> {
    replace_secrets(line, UrlEnd::DelimiterOrQuote, |_| Some(MASK))
}

/// Whether any URL in `text` has a secret, masked or not.
#[must_use]
pub fn has_url_secret(text: &str) -> bool {
    !url_secrets(text, UrlEnd::Delimiter).is_empty()
}

/// `text` with masked secrets restored from the URLs in `known`: a password from one with the same
/// scheme, user and host, a query parameter from one with the same scheme, host and path. No secret is
/// sent to another host than it was stored for.
#[must_use]
pub fn unmask_urls<'a>(text: &'a str, known: &[&'a str]) -> Cow<'a, str> {
    replace_secrets(text, UrlEnd::Delimiter, |secret| {
        if secret.value != MASK {
            return None;
        }
        let known = known.iter().flat_map(|text| url_secrets(text, UrlEnd::Delimiter));
        let mut matching = known.filter(|other| other.place.is_same(&secret.place));
        matching.find(|other| other.value != MASK).map(|other| other.value)
    })
}

/// Whether `members` contains a secret at any depth: by its key, or in a URL.
#[must_use]
pub fn contains_secret(members: &Map<String, Value>) -> bool {
    members.iter().any(|(key, value)| is_secret_key(key) || value_contains_secret(value))
}

/// Whether `text`, which may be JSON with escapes, may have a URL with a secret.
pub(crate) fn may_have_url_secret(text: &str) -> bool {
    text.contains("://") && text.contains(['@', '?'])
}

/// `object` with [`MASK`] in the place of the secrets of every URL. Other secrets are not masked.
#[must_use]
pub fn mask_object_urls(object: &JsonObject) -> Cow<'_, JsonObject> {
    if !may_have_url_secret(object.as_str()) {
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

/// Restores masked secrets of URLs in `object` from the objects in `known`.
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
        Value::String(text) => has_url_secret(text),
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

/// What ends a URL in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlEnd {
    /// White space, and for the authority part the delimiters of URLs.
    Delimiter,
    /// The same, or a quotation mark without a backslash before it.
    DelimiterOrQuote,
}

impl UrlEnd {
    /// The length of the authority part at the start of `text`.
    fn authority_length(self, text: &str) -> usize {
        self.length_before(text, |letter| {
            matches!(letter, '/' | '?' | '#') || (letter == '\\' && self == Self::Delimiter)
        })
    }

    /// The length of path, query and fragment at the start of `text`.
    fn rest_length(self, text: &str) -> usize {
        self.length_before(text, |letter| matches!(letter, '<' | '>'))
    }

    fn length_before(self, text: &str, is_delimiter: impl Fn(char) -> bool) -> usize {
        let mut is_escaped = false;
        let found = text.char_indices().find(|(_, letter)| {
            if std::mem::take(&mut is_escaped) {
                return false;
            }
            is_escaped = *letter == '\\' && self == Self::DelimiterOrQuote;
            let is_quote = *letter == '"' && self == Self::DelimiterOrQuote;
            is_quote || is_delimiter(*letter) || letter.is_whitespace() || letter.is_control()
        });
        found.map_or(text.len(), |(length, _)| length)
    }
}

/// A secret in a URL.
struct UrlSecret<'a> {
    /// The byte offset of the value.
    start: usize,
    value: &'a str,
    place: SecretPlace<'a>,
}

/// What a secret belongs to.
enum SecretPlace<'a> {
    /// The password of a user.
    Password { scheme: &'a str, user: &'a str, host: &'a str },
    /// A query parameter. `url` is everything between scheme and query.
    Parameter { scheme: &'a str, url: &'a str, name: &'a str },
}

impl SecretPlace<'_> {
    fn is_same(&self, other: &SecretPlace<'_>) -> bool {
        match (self, other) {
            (
                Self::Password { scheme, user, host },
                SecretPlace::Password { scheme: scheme2, user: user2, host: host2 },
            ) => {
                scheme.eq_ignore_ascii_case(scheme2)
                    && user == user2
                    && host.eq_ignore_ascii_case(host2)
            }
            (
                Self::Parameter { scheme, url, name },
                SecretPlace::Parameter { scheme: scheme2, url: url2, name: name2 },
            ) => scheme.eq_ignore_ascii_case(scheme2) && url == url2 && name == name2,
            (Self::Password { .. }, _) | (Self::Parameter { .. }, _) => false,
        }
    }
}

/// Whether the value of a query parameter is a secret: signatures of presigned URLs, and names of other
/// secrets.
fn is_secret_parameter(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    name.contains("signature") || name == "sig" || name.ends_with("_sig") || is_secret_key(&name)
}

/// The secrets of all URLs in `text`, in order.
fn url_secrets(text: &str, end_rule: UrlEnd) -> Vec<UrlSecret<'_>> {
    const MARK: &str = "://";
    let mut secrets = Vec::new();
    let mut from = 0;
    while let Some(mark) = text.get(from..).and_then(|rest| rest.find(MARK)).map(|at| from + at) {
        let is_scheme = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
        let scheme = &text[text[..mark].trim_end_matches(is_scheme).len()..mark];
        let start = mark + MARK.len();
        let end = start + end_rule.authority_length(&text[start..]);
        let parts = text[start..end].rsplit_once('@').and_then(|(credentials, host)| {
            let (user, password) = credentials.split_once(':')?;
            (!password.is_empty()).then_some((user, password, host))
        });
        if let Some((user, value, host)) = parts {
            let place = SecretPlace::Password { scheme, user, host };
            secrets.push(UrlSecret { start: start + user.len() + 1, value, place });
        }
        let rest = &text[end..end + end_rule.rest_length(&text[end..])];
        // The next URL may be part of the query of this one.
        from = end;
        let Some((path, query)) = rest.split_once('?') else { continue };
        let authority = parts.map_or(&text[start..end], |(_, _, host)| host);
        // With a password in between, the host alone identifies the URL.
        let url = if parts.is_none() { &text[start..end + path.len()] } else { authority };
        let mut offset = end + path.len() + 1;
        for parameter in query.split('#').next().unwrap_or_default().split(['&', ';']) {
            if let Some((name, value)) = parameter.split_once('=')
                && !value.is_empty()
                && is_secret_parameter(name)
            {
                let place = SecretPlace::Parameter { scheme, url, name };
                secrets.push(UrlSecret { start: offset + name.len() + 1, value, place });
            }
            offset += parameter.len() + 1;
        }
    }
    secrets.sort_by_key(|secret| secret.start);
    secrets
}

/// `text` with the secrets replaced for which `replacement` returns a value.
fn replace_secrets<'a>(
    text: &'a str,
    end_rule: UrlEnd,
    replacement: impl Fn(&UrlSecret<'_>) -> Option<&'a str>,
) -> Cow<'a, str> {
    let mut changed = String::new();
    let mut copied = 0;
    for secret in url_secrets(text, end_rule) {
        // The secret of a URL in the query of another one may be inside that one's secret.
        if secret.start < copied {
            continue;
        }
        if let Some(value) = replacement(&secret).filter(|value| *value != secret.value) {
            changed.push_str(&text[copied..secret.start]);
            changed.push_str(value);
            copied = secret.start + secret.value.len();
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
    fn masks_secrets_only() {
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
            (
                "https://h/i?X-Amz-Date=1&X-Amz-Signature=hunter2&a=b#c",
                "https://h/i?X-Amz-Date=1&X-Amz-Signature=******&a=b#c",
            ),
            ("https://h/i?sv=1&sig=hunter%3D", "https://h/i?sv=1&sig=******"),
            (
                "https://h/i?temp_url_sig=a1&temp_url_expires=9",
                "https://h/i?temp_url_sig=******&temp_url_expires=9",
            ),
            (
                "https://me:hunter2@h/i?Access_Token=x y",
                "https://me:******@h/i?Access_Token=****** y",
            ),
            ("https://h/i?signed=1&design=2&sig=", "https://h/i?signed=1&design=2&sig="),
            (
                "http://h/?next=http://u:p@k/?token=t&token=s",
                "http://h/?next=http://u:******@k/?token=******&token=******",
            ),
        ] {
            assert_eq!(mask_urls(text), shown);
            assert_eq!(has_url_secret(text), shown.contains(MASK), "{text}");
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
        let known = [
            "no url",
            "https://me:hunter2@h:8/i and ftp://x:swordfish@y",
            "https://h/i?sig=swordfish&b=2",
        ];
        for (masked, full) in [
            ("https://me:******@h:8/i", "https://me:hunter2@h:8/i"),
            ("HTTPS://me:******@H:8/other", "HTTPS://me:hunter2@H:8/other"),
            ("ftp://x:******@y/z", "ftp://x:swordfish@y/z"),
            ("https://me:******@evil/i", "https://me:******@evil/i"),
            ("https://me:******@h/i", "https://me:******@h/i"),
            ("http://me:******@h:8/i", "http://me:******@h:8/i"),
            ("https://you:******@h:8/i", "https://you:******@h:8/i"),
            ("https://me:new@h:8/i", "https://me:new@h:8/i"),
            ("https://h/i?a=1&sig=******", "https://h/i?a=1&sig=swordfish"),
            ("https://h/other?sig=******", "https://h/other?sig=******"),
            ("https://evil/i?sig=******", "https://evil/i?sig=******"),
            ("https://h/i?token=******", "https://h/i?token=******"),
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
