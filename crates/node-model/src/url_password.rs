// SPDX-License-Identifier: Apache-2.0
//! Passwords within URLs, as in `https://user:password@host/image`: masking them, and putting them
//! back where a masked URL comes back.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};

use crate::{JsonObject, MASK, is_secret_key};

/// `text` with [`MASK`] in the place of the password of every URL in it.
#[must_use]
pub fn mask_urls(text: &str) -> Cow<'_, str> {
    replaced(text, Edge::OfUrl, |_| Some(MASK))
}

/// The same for a text that may quote URLs as JSON does: what is behind the quote is not theirs, and
/// a quote with a backslash before it is.
#[must_use]
pub fn mask_quoted_urls(line: &str) -> Cow<'_, str> {
    replaced(line, Edge::OrQuote, |_| Some(MASK))
}

/// Whether some URL in `text` has a password, masked or not.
#[must_use]
pub fn has_url_password(text: &str) -> bool {
    Login::after(text, 0, Edge::OfUrl).is_some()
}

/// `text` with the passwords in it that came back masked, as far as the texts in `known` have them:
/// for the same scheme, user and host, so that no password goes to another host than it was for.
#[must_use]
pub fn unmask_urls<'a>(text: &'a str, known: &[&'a str]) -> Cow<'a, str> {
    replaced(text, Edge::OfUrl, |login| {
        if login.password() != MASK {
            return None;
        }
        let known = known.iter().flat_map(|text| logins(text, Edge::OfUrl));
        let mut fitting = known.filter(|other| other.is_for_the_same(login));
        fitting.find(|other| other.password() != MASK).map(|other| other.password())
    })
}

/// Whether something in `members` is a secret, at any depth: by its key, or as a password in a URL.
#[must_use]
pub fn holds_secret(members: &Map<String, Value>) -> bool {
    members.iter().any(|(key, value)| is_secret_key(key) || is_secret_within(value))
}

/// `object` with [`MASK`] in the place of the password of every URL in it, and other secrets as they
/// are.
#[must_use]
pub fn mask_object_urls(object: &JsonObject) -> Cow<'_, JsonObject> {
    // Roughly: in JSON text a URL may have escapes in it.
    if !(object.as_str().contains("://") && object.as_str().contains('@')) {
        return Cow::Borrowed(object);
    }
    let mut value = Value::Object(object.parse());
    mask_within(&mut value);
    match value {
        Value::Object(members) => Cow::Owned(JsonObject::from(members)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Cow::Borrowed(object)
        }
    }
}

/// Puts the passwords of URLs back that came back masked in `object`, from the objects in `known`.
pub fn unmask_object(object: &mut JsonObject, known: &[&JsonObject]) {
    if !object.as_str().contains(MASK) {
        return;
    }
    let known: Vec<Value> = known.iter().map(|object| Value::Object(object.parse())).collect();
    let mut texts = Vec::new();
    known.iter().for_each(|value| collect_texts(value, &mut texts));
    let mut value = Value::Object(object.parse());
    unmask_within(&mut value, &texts);
    if let Value::Object(members) = value {
        *object = JsonObject::from(members);
    }
}

fn is_secret_within(value: &Value) -> bool {
    match value {
        Value::Object(members) => holds_secret(members),
        Value::Array(items) => items.iter().any(is_secret_within),
        Value::String(text) => has_url_password(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn collect_texts<'a>(value: &'a Value, to: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => members.values().for_each(|value| collect_texts(value, to)),
        Value::Array(items) => items.iter().for_each(|value| collect_texts(value, to)),
        Value::String(text) => to.push(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn mask_within(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(mask_within),
        Value::Array(items) => items.iter_mut().for_each(mask_within),
        Value::String(text) => {
            if let Cow::Owned(shown) = mask_urls(text) {
                *text = shown;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn unmask_within(value: &mut Value, known: &[&str]) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(|value| unmask_within(value, known));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| unmask_within(value, known)),
        Value::String(text) => {
            if let Cow::Owned(full) = unmask_urls(text, known) {
                *text = full;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Where the part of a URL ends that names a user and a host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Where a URL has it end.
    OfUrl,
    /// There, or at a quotation mark without a backslash before it.
    OrQuote,
}

impl Edge {
    /// How much of `text` is before it.
    fn length_before(self, text: &str) -> usize {
        let mut is_escaped = false;
        let found = text.char_indices().find(|(_, letter)| {
            if std::mem::take(&mut is_escaped) {
                return false;
            }
            is_escaped = *letter == '\\' && self == Self::OrQuote;
            match letter {
                '/' | '?' | '#' => true,
                '\\' => self == Self::OfUrl,
                '"' => self == Self::OrQuote,
                _ => letter.is_whitespace() || letter.is_control(),
            }
        });
        found.map_or(text.len(), |(length, _)| length)
    }
}

/// A URL with a password.
struct Login<'a> {
    text: &'a str,
    scheme: &'a str,
    user: &'a str,
    host: &'a str,
    password: Range<usize>,
    /// Where its user and host end.
    end: usize,
}

impl<'a> Login<'a> {
    /// The first that begins at or after byte `from`.
    fn after(text: &'a str, from: usize, edge: Edge) -> Option<Self> {
        const MARK: &str = "://";
        let mut from = from;
        loop {
            let mark = from + text.get(from..)?.find(MARK)?;
            let start = mark + MARK.len();
            let end = start + edge.length_before(&text[start..]);
            let authority = &text[start..end];
            let parts = authority.rsplit_once('@').and_then(|(login, host)| {
                let (user, password) = login.split_once(':')?;
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

    fn is_for_the_same(&self, other: &Login<'_>) -> bool {
        self.scheme.eq_ignore_ascii_case(other.scheme)
            && self.user == other.user
            && self.host.eq_ignore_ascii_case(other.host)
    }
}

fn logins(text: &str, edge: Edge) -> impl Iterator<Item = Login<'_>> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let login = Login::after(text, from, edge)?;
        from = login.end;
        Some(login)
    })
}

/// `text` with other passwords, where `other` has one.
fn replaced<'a>(
    text: &'a str,
    edge: Edge,
    other: impl Fn(&Login<'_>) -> Option<&'a str>,
) -> Cow<'a, str> {
    let mut changed = String::new();
    let mut copied = 0;
    for login in logins(text, edge) {
        if let Some(password) = other(&login).filter(|password| *password != login.password()) {
            changed.push_str(&text[copied..login.password.start]);
            changed.push_str(password);
            copied = login.password.end;
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
    fn passwords_are_masked_and_nothing_else() {
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
    fn a_line_of_json_stays_json() {
        let line = r#"{"url":"https://me:hunt\"er2@h","at":"https://h","mail":"a:b@c"}"#;
        let shown = r#"{"url":"https://me:******@h","at":"https://h","mail":"a:b@c"}"#;
        assert_eq!(mask_quoted_urls(line), shown);
    }

    #[test]
    fn what_comes_back_masked_is_put_back_for_the_same_host_only() {
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
    fn secrets_are_found_at_any_depth() {
        for (value, expected) in [
            (json!({"a": [{"b": "http://a:b@c"}]}), true),
            (json!({"a": {"password": 1}}), true),
            (json!({"a": ["http://b/c", {"d": 1}]}), false),
        ] {
            assert_eq!(holds_secret(value.as_object().unwrap()), expected, "{value}");
        }
    }

    proptest! {
        /// Whatever stands around it, no password is left, and what was masked stays so.
        #[test]
        fn no_password_is_left(
            before in "[a-z :@/]{0,8}", password in "[a-z0-9@:%'\"]{1,12}Z", after in "[ -~]{0,8}",
        ) {
            let text = format!("{before} s3://u:{password}@host/{after}");
            let shown = mask_urls(&text).into_owned();
            prop_assert!(!shown.contains(&format!("{password}@host")), "{shown}");
            prop_assert_eq!(mask_urls(&shown), shown.as_str());
        }
    }
}
