// SPDX-License-Identifier: Apache-2.0
//! Noderanges: short notations for many machine names.
//!
//! `rack1-[01-12]` expands to twelve names, `rack[1-3]-u[01,07-09]` to twelve others; commas join several,
//! and all numbers have the width of the first. Plain names and UUIDs are noderanges too.

/// Limit that catches typing errors; larger than any fleet.
const MAX_NODES: usize = 100_000;

/// A malformed noderange.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoderangeError {
    #[error("{range:?} has a [ without a ]")]
    Unclosed { range: String },
    #[error("{range:?} has a ] without a [")]
    Unopened { range: String },
    #[error("{range:?} has an empty item in brackets")]
    Empty { range: String },
    #[error("{part:?} in {range:?} is neither a number nor a range of numbers such as 1-3")]
    NotNumbers { range: String, part: String },
    #[error("{part:?} in {range:?} ends before it starts")]
    Backwards { range: String, part: String },
    #[error("{range:?} has more than {MAX_NODES} names")]
    TooMany { range: String },
}

/// Expands a noderange. The names are in order; duplicates are ignored.
pub(crate) fn expand(text: &str) -> Result<Vec<String>, NoderangeError> {
    let mut names = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for range in split(text) {
        for name in expand_one(range)? {
            if seen.insert(name.clone()) {
                names.push(name);
            }
        }
        if names.len() > MAX_NODES {
            return Err(NoderangeError::TooMany { range: text.to_owned() });
        }
    }
    Ok(names)
}

/// Splits at commas outside brackets and at whitespace.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    let parts = text.split(move |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && (letter == ',' || letter.is_whitespace())
    });
    parts.filter(|part| !part.is_empty())
}

fn expand_one(range: &str) -> Result<Vec<String>, NoderangeError> {
    let mut names = vec![String::new()];
    let mut rest = range;
    while let Some(open) = rest.find(['[', ']']) {
        if rest[open..].starts_with(']') {
            return Err(NoderangeError::Unopened { range: range.to_owned() });
        }
        let (before, inside) = (&rest[..open], &rest[open + 1..]);
        let close =
            inside.find(']').ok_or_else(|| NoderangeError::Unclosed { range: range.to_owned() })?;
        let numbers = numbers(&inside[..close], range)?;
        if names.len().saturating_mul(numbers.len()) > MAX_NODES {
            return Err(NoderangeError::TooMany { range: range.to_owned() });
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
            .collect();
        rest = &inside[close + 1..];
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

/// Expands the content of one pair of brackets.
fn numbers(inside: &str, range: &str) -> Result<Vec<String>, NoderangeError> {
    let mut numbers = Vec::new();
    for part in inside.split(',').map(str::trim) {
        if part.is_empty() {
            return Err(NoderangeError::Empty { range: range.to_owned() });
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u32>().ok()).flatten()
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            let (range, part) = (range.to_owned(), part.to_owned());
            return Err(NoderangeError::NotNumbers { range, part });
        };
        if from > to {
            return Err(NoderangeError::Backwards {
                range: range.to_owned(),
                part: part.to_owned(),
            });
        }
        if numbers.len() + ((to - from) as usize) >= MAX_NODES {
            return Err(NoderangeError::TooMany { range: range.to_owned() });
        }
        let width = first.len();
        numbers.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn expands_ranges() {
        for (range, names) in [
            ("rack1", &["rack1"][..]),
            ("a,b c", &["a", "b", "c"]),
            ("rack1-[01-03]", &["rack1-01", "rack1-02", "rack1-03"]),
            ("r[8-10]", &["r8", "r9", "r10"]),
            ("r[08-10]", &["r08", "r09", "r10"]),
            ("r[1-2]-u[1,3]", &["r1-u1", "r1-u3", "r2-u1", "r2-u3"]),
            ("r[1,5-6]x,y", &["r1x", "r5x", "r6x", "y"]),
            ("a,a,a[1]", &["a", "a1"]),
            ("", &[]),
            ("1be26c0b-03f2-4d2e-ae87-c02d7f33c123", &["1be26c0b-03f2-4d2e-ae87-c02d7f33c123"]),
        ] {
            assert_eq!(expand(range).unwrap(), names, "{range}");
        }
    }

    #[test]
    fn rejects_malformed_ranges() {
        for (range, problem) in [
            ("r[1-3", "\"r[1-3\" has a [ without a ]"),
            ("r1-3]", "\"r1-3]\" has a ] without a ["),
            ("r[]", "\"r[]\" has an empty item in brackets"),
            ("r[1,]", "\"r[1,]\" has an empty item in brackets"),
            (
                "r[a-c]",
                "\"a-c\" in \"r[a-c]\" is neither a number nor a range of numbers such as 1-3",
            ),
            ("r[1-]", "\"1-\" in \"r[1-]\" is neither a number nor a range of numbers such as 1-3"),
            ("r[9-1]", "\"9-1\" in \"r[9-1]\" ends before it starts"),
            ("r[0-4294967295]", "\"r[0-4294967295]\" has more than 100000 names"),
            ("r[1-999][1-999]", "\"r[1-999][1-999]\" has more than 100000 names"),
        ] {
            assert_eq!(expand(range).unwrap_err().to_string(), problem);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[a-z0-9,\\[\\]\\- ü]{0,40}") {
            let _ = expand(&text);
        }

        #[test]
        fn plain_names_are_kept(names in proptest::collection::hash_set("[a-z][a-z0-9.-]{0,10}", 1..6)) {
            let names: Vec<String> = names.into_iter().collect();
            prop_assert_eq!(expand(&names.join(",")).unwrap(), names);
        }

        #[test]
        fn ranges_have_one_name_per_number(from in 0_u32..500, more in 0_u32..200, width in 1_usize..6) {
            let to = from + more;
            let range = format!("m[{from:0width$}-{to}]");
            let names = expand(&range).unwrap();
            prop_assert_eq!(names.len(), more as usize + 1);
            for (name, number) in names.iter().zip(from..) {
                prop_assert_eq!(name, &format!("m{number:0width$}"));
            }
        }
    }
}
