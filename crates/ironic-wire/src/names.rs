// SPDX-License-Identifier: Apache-2.0
//! Rules for names, traits and host names.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use serde_json::Value;
use uuid::Uuid;

use crate::error::excerpt;
use crate::value::{SHORT_TEXT, ValueError, array, mandatory_text, unexpected_type};
use crate::version::ApiVersion;

/// Maximum number of traits of a node.
pub const MAX_TRAITS: usize = 50;

/// Whether `name` consists of unreserved URL characters and is not too long.
#[must_use]
pub fn is_logical_name(name: &str) -> bool {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (1..=SHORT_TEXT).contains(&name.len()) && name.bytes().all(unreserved)
}

/// Whether `name` is a host name. Before 1.10, node names had to be host names.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b))
    };
    name.len() <= SHORT_TEXT && name.strip_suffix('.').unwrap_or(name).split('.').all(is_label)
}

/// A unique name or null. UUIDs are rejected, because a path segment could mean either.
pub(crate) fn name(value: Value) -> Result<Option<String>, ValueError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => {
            if is_logical_name(&text) && Uuid::try_parse(&text).is_err() {
                Ok(Some(text))
            } else {
                Err(format!(
                    "invalid name '{}'; use letters, digits and -._~, at most {SHORT_TEXT} \
                     characters, and not a UUID",
                    excerpt(&text)
                )
                .into())
            }
        }
        other => Err(unexpected_type("a name (string) or null", &other)),
    }
}

/// A node name or null.
pub(crate) fn node_name(value: Value, version: ApiVersion) -> Result<Option<String>, ValueError> {
    const RESERVED: [&str; 6] =
        ["maintenance", "management", "states", "vendor_passthru", "detail", "validate"];
    let name = name(value)?;
    if let Some(word) = name.as_deref().filter(|name| RESERVED.contains(name)) {
        return Err(format!(
            "\"{word}\" is reserved and can not be used as a node name; reserved words are {}",
            RESERVED.join(", ")
        )
        .into());
    }
    match &name {
        Some(text) if !version.has(10) && !is_host_name(text) => Err(format!(
            "invalid name '{}'; before API version 1.10 it must be a host name",
            excerpt(text)
        )
        .into()),
        Some(_) | None => Ok(name),
    }
}

/// Whether `text` has the syntax of a custom or standard trait. The set of standard traits depends on
/// the release of os-traits, so only the syntax is checked.
#[must_use]
pub fn is_trait(text: &str) -> bool {
    (1..=SHORT_TEXT).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
        && text.split_once('_').is_some_and(|(space, rest)| !space.is_empty() && !rest.is_empty())
}

/// A trait.
pub(crate) fn trait_name(value: Value) -> Result<String, ValueError> {
    let text = mandatory_text(value, SHORT_TEXT)?;
    if is_trait(&text) {
        Ok(text)
    } else {
        Err(format!(
            "'{}' does not match a trait: CUSTOM_ followed by A-Z, 0-9 and _, or a standard trait",
            excerpt(&text)
        )
        .into())
    }
}

/// A list of traits, sorted and without duplicates.
pub(crate) fn traits(value: Value) -> Result<Vec<String>, ValueError> {
    let mut traits = array(value)?.into_iter().map(trait_name).collect::<Result<Vec<_>, _>>()?;
    traits.sort_unstable();
    traits.dedup();
    Ok(traits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_names() {
        for good in ["node-1", "a.b_c~d", "A", &"x".repeat(255)] {
            assert_eq!(name(good.into()), Ok(Some(good.to_owned())));
        }
        for bad in ["", "a b", "a/b", "é", "11111111-1111-1111-1111-111111111111", &"x".repeat(256)]
        {
            assert!(name(bad.into()).is_err(), "{bad}");
        }
        assert!(node_name("detail".into(), ApiVersion::MAX).is_err());
        assert!(node_name("Node_1".into(), ApiVersion(9)).is_err());
        assert!(node_name("node-1.example.org".into(), ApiVersion(9)).is_ok());
        assert!(node_name("Node_1".into(), ApiVersion(10)).is_ok());
    }

    #[test]
    fn checks_trait_syntax() {
        for good in ["CUSTOM_X", "HW_CPU_X86_VMX", "CUSTOM_1_A"] {
            assert!(is_trait(good), "{good}");
        }
        for bad in ["", "x", "CUSTOM_x", "CUSTOM", "CUSTOM_", "_X", "CUSTOM-X", &"A_".repeat(200)] {
            assert!(!is_trait(bad), "{bad}");
        }
    }
}
