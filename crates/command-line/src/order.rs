// SPDX-License-Identifier: Apache-2.0
//! The order that people expect of names: `rack1-2` before `rack1-10`.

use std::cmp::Ordering;

use serde_json::Value;

/// Sorts things by their names; those without one come last, as they came.
pub(crate) fn by_name(things: &mut [Value]) {
    let name = |thing: &Value| thing["name"].as_str().filter(|name| !name.is_empty()).map(pieces);
    things.sort_by_cached_key(|thing| match name(thing) {
        Some(pieces) => (false, pieces),
        None => (true, Vec::new()),
    });
}

/// Sorts rows by several of their fields, the first counting most.
pub(crate) fn by_fields(rows: &mut [Value], fields: &[&str]) {
    rows.sort_by_cached_key(|row| {
        let key = |field: &&str| pieces(row[*field].as_str().unwrap_or_default());
        fields.iter().map(key).collect::<Vec<_>>()
    });
}

/// A part of a name: digits are compared as the number they are.
#[derive(PartialEq, Eq)]
enum Piece {
    /// Without its leading zeros, and how many there were.
    Number(String, usize),
    Text(String),
}

impl Ord for Piece {
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

impl PartialOrd for Piece {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

fn pieces(name: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_number = first.is_ascii_digit();
        let end = rest.find(|letter: char| letter.is_ascii_digit() != is_number);
        let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
        pieces.push(if is_number {
            let digits = piece.trim_start_matches('0');
            Piece::Number(digits.to_owned(), piece.len() - digits.len())
        } else {
            Piece::Text(piece.to_owned())
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
    fn numbers_in_names_count_as_numbers() {
        let sorted = ["1", "7-a", "a", "a2", "a02", "a10", "rack1-2", "rack1-10", "rack10-1"];
        let mut things: Vec<Value> =
            sorted.iter().rev().map(|name| json!({"name": name})).collect();
        things.insert(3, json!({"uuid": "z"}));
        things.insert(5, json!({"uuid": "b", "name": null}));
        by_name(&mut things);
        let names: Vec<&str> = things.iter().filter_map(|thing| thing["name"].as_str()).collect();
        assert_eq!(names, sorted);
        let last: Vec<&str> = things[9..].iter().filter_map(|it| it["uuid"].as_str()).collect();
        assert_eq!(last, ["z", "b"]);
    }

    proptest! {
        #[test]
        fn padded_numbers_are_in_their_order(one in 0_u64..2_000, other in 0_u64..2_000) {
            let name = |number: u64| pieces(&format!("r{number}-u1"));
            prop_assert_eq!(name(one).cmp(&name(other)), one.cmp(&other));
        }
    }
}
