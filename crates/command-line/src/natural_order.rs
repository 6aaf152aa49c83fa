// SPDX-License-Identifier: Apache-2.0
//! Natural sort order: `rack1-2` before `rack1-10`.

use std::cmp::Ordering;

use serde_json::Value;

/// Sorts resources by name; unnamed resources come last in their original order.
pub(crate) fn sort_by_name(resources: &mut [Value]) {
    let name = |resource: &Value| {
        resource["name"].as_str().filter(|name| !name.is_empty()).map(name_parts)
    };
    resources.sort_by_cached_key(|resource| match name(resource) {
        Some(pieces) => (false, pieces),
        None => (true, Vec::new()),
    });
}

/// Sorts rows by several fields, in order of priority.
pub(crate) fn sort_by_fields(rows: &mut [Value], fields: &[&str]) {
    rows.sort_by_cached_key(|row| {
        let key = |field: &&str| name_parts(row[*field].as_str().unwrap_or_default());
        fields.iter().map(key).collect::<Vec<_>>()
    });
}

/// A part of a name: digits compare as numbers.
#[derive(PartialEq, Eq)]
enum NamePart {
    /// The digits without leading zeros, and the number of leading zeros.
    Number(String, usize),
    Text(String),
}

impl Ord for NamePart {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one, zeros), Self::Number(two, others)) => {
                one.len().cmp(&two.len()).then_with(|| one.cmp(two)).then(zeros.cmp(others))
            }
            (Self::Text(one), Self::Text(two)) => one.cmp(two),
            (Self::Number(..), Self::Text(_)) => Ordering::Less,
            (Self::Text(_), Self::Number(..)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for NamePart {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn name_parts(name: &str) -> Vec<NamePart> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit();
        let end = rest.find(|letter: char| letter.is_ascii_digit() != is_number);
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        pieces.push(if is_number {
            let digits = piece.trim_start_matches('0');
            NamePart::Number(digits.to_owned(), piece.len() - digits.len())
        } else {
            NamePart::Text(piece.to_owned())
        });
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn compares_digits_as_numbers() {
        let sorted = ["1", "7-a", "a", "a2", "a02", "a10", "rack1-2", "rack1-10", "rack10-1"];
        let mut resources: Vec<Value> =
            sorted.iter().rev().map(|name| json!({"name": name})).collect();
        resources.insert(3, json!({"uuid": "z"}));
        resources.insert(5, json!({"uuid": "b", "name": null}));
        sort_by_name(&mut resources);
        let names: Vec<&str> =
            resources.iter().filter_map(|resource| resource["name"].as_str()).collect();
        assert_eq!(names, sorted);
        let last: Vec<&str> = resources[9..].iter().filter_map(|it| it["uuid"].as_str()).collect();
        assert_eq!(last, ["z", "b"]);
    }

    proptest! {
        #[test]
        fn sorts_unpadded_numbers_numerically(one in 0_u64..2_000, other in 0_u64..2_000) {
            let name = |number: u64| name_parts(&format!("r{number}-u1"));
            prop_assert_eq!(name(one).cmp(&name(other)), one.cmp(&other));
        }
    }
}
