// SPDX-License-Identifier: Apache-2.0
//! Kubernetes' syntax of label keys and values.

const LONGEST_NAME: usize = 63;
const LONGEST_PREFIX: usize = 253;

/// Returns what is wrong with the key of a label.
pub(super) fn key_problem(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Some("has an invalid prefix; use a lower-case DNS name before the slash");
    }
    if name.is_empty() || !is_label_text(name) {
        return Some(
            "is not a label key; use at most 63 letters, digits, '-', '_' or '.', \
             and a letter or digit at both ends",
        );
    }
    None
}

/// Returns what is wrong with the value of a label. An empty one is valid.
pub(super) fn value_problem(value: &str) -> Option<&'static str> {
    let is_valid = value.is_empty() || is_label_text(value);
    (!is_valid).then_some(
        "is not a label value; use at most 63 letters, digits, '-', '_' or '.', \
         and a letter or digit at both ends",
    )
}

fn is_label_text(text: &str) -> bool {
    text.len() <= LONGEST_NAME
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.ends_with(|last: char| last.is_ascii_alphanumeric())
}

fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_PREFIX
        && text.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        })
}
