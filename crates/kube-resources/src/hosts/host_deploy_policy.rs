// SPDX-License-Identifier: Apache-2.0
//! `HostDeployPolicy`: namespaces whose claims may use the hosts of a namespace.

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};

use crate::kind::namespaced_kind;
use crate::optional::{non_empty, null_is_default};

namespaced_kind! {
    /// Namespaces whose claims may use the hosts of this namespace.
    pub struct HostDeployPolicy in "metal3.io" / "v1alpha1", plural "hostdeploypolicies" {
        spec: HostDeployPolicySpec,
    }
}

/// The constraints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HostDeployPolicySpec {
    /// Constraints on the namespace of a claim. A policy without them allows nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_claim_namespaces: Option<ClaimNamespaces>,
}

/// Constraints on a namespace. All that are given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimNamespaces {
    /// Allowed names. An empty list allows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// Regular expression for the name; see [`NamespacePattern`].
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub name_matches: Option<String>,
    /// Labels of the namespace.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub has_labels: Vec<NamespaceLabel>,
}

/// A label that a namespace must have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NamespaceLabel {
    /// Key.
    pub name: String,
    /// Value; any if missing.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "non_empty")]
    pub value: Option<String>,
}

/// Size of a compiled pattern in bytes, so that a user cannot take much memory with a short text.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// A compiled [`ClaimNamespaces::name_matches`]. It matches any part of a name, as in Metal3: use `^` and
/// `$` for the whole name.
///
/// Metal3 uses Go's RE2 syntax. For names of namespaces, which are lower-case letters, digits and
/// hyphens, the same patterns mean the same, with these exceptions: `\Q…\E`, `\C`, octal escapes and
/// Unicode classes such as `\p{Greek}` are rejected, and in a class `[`, `&&`, `--` and `~~` are operators.
#[derive(Clone, Debug)]
pub struct NamespacePattern(Regex);

impl NamespacePattern {
    /// Compiles a pattern. The error is one line.
    pub fn compile(pattern: &str) -> Result<Self, String> {
        let compiled = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
        compiled.map(Self).map_err(|error| {
            // A syntax error has the pattern with a marker in its first lines.
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            last.trim().trim_start_matches("error: ").to_owned()
        })
    }

    /// Whether a part of the name matches.
    #[must_use]
    pub fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_a_part_of_the_name() {
        for (pattern, name, expected) in [
            ("^tenant-[a-z]+$", "tenant-a", true),
            ("^tenant-[a-z]+$", "tenant-1", false),
            ("tenant", "my-tenant-1", true),
            ("^(?:a|b)$", "b", true),
            ("^(?:a|b)$", "ab", false),
            ("^(?i)TEAM-\\d{2}\\z", "team-07", true),
            ("^[[:alpha:]]+$", "team", true),
            ("", "any", true),
        ] {
            let compiled = NamespacePattern::compile(pattern).unwrap();
            assert_eq!(compiled.is_match(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn errors_are_one_line() {
        for (pattern, expected) in [
            ("(a", "unclosed group"),
            ("a**b[", "unclosed character class"),
            ("(?=a)", "look-around, including look-ahead and look-behind, is not supported"),
            ("(a)\\1", "backreferences are not supported"),
            ("((a{1000}){1000}){1000}", "Compiled regex exceeds size limit of 1048576 bytes."),
        ] {
            assert_eq!(NamespacePattern::compile(pattern).unwrap_err(), expected, "{pattern}");
        }
    }

    #[test]
    fn an_empty_list_of_names_differs_from_none() {
        let read = |text: &str| serde_json::from_str::<ClaimNamespaces>(text).unwrap();
        assert_eq!(read(r#"{"names": []}"#).names, Some(Vec::new()));
        assert_eq!(read(r#"{"names": null}"#).names, None);
        assert_eq!(read("{}").names, None);
    }
}
