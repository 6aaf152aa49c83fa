// SPDX-License-Identifier: Apache-2.0
//! Noderanges: many machines in few words.
//!
//! `rack1-[01-12]` are twelve names, `rack[1-3]-u[01,07-09]` are twelve others; commas join several, and
//! the width of the first number is the width of all. Everything else stands for itself, so names and
//! UUIDs are noderanges too.

/// More than any fleet has; a slip of the finger is told apart from a wish by it.
const MOST: usize = 100_000;

/// Why a text is no noderange.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RangeError {
    #[error("{range:?} has a [ without its ]")]
    Unclosed { range: String },
    #[error("{range:?} has a ] without its [")]
    Unopened { range: String },
    #[error("{range:?} has brackets with nothing in them")]
    Empty { range: String },
    #[error("{part:?} in {range:?} is no number, and no numbers with a - between them")]
    NotNumbers { range: String, part: String },
    #[error("{part:?} in {range:?} runs backwards")]
    Backwards { range: String, part: String },
    #[error("{range:?} means more than {MOST} machines")]
    TooMany { range: String },
}

/// All names that a text means, in order, each once.
pub(crate) fn expand(text: &str) -> Result<Vec<String>, RangeError> {
    let mut names = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for range in split(text) {
        for name in expand_one(range)? {
            if seen.insert(name.clone()) {
                names.push(name);
            }
        }
        if names.len() > MOST {
            return Err(RangeError::TooMany { range: text.to_owned() });
        }
    }
    Ok(names)
}

/// The parts between commas that are not in brackets, and between blanks.
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

fn expand_one(range: &str) -> Result<Vec<String>, RangeError> {
    let mut names = vec![String::new()];
    let mut rest = range;
    while let Some(open) = rest.find(['[', ']']) {
        if rest[open..].starts_with(']') {
            return Err(RangeError::Unopened { range: range.to_owned() });
        }
        let (before, inside) = (&rest[..open], &rest[open + 1..]);
        let close =
            inside.find(']').ok_or_else(|| RangeError::Unclosed { range: range.to_owned() })?;
        let numbers = numbers(&inside[..close], range)?;
        if names.len().saturating_mul(numbers.len()) > MOST {
            return Err(RangeError::TooMany { range: range.to_owned() });
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

/// The numbers in one pair of brackets, as they are written.
fn numbers(inside: &str, range: &str) -> Result<Vec<String>, RangeError> {
    let mut numbers = Vec::new();
    for part in inside.split(',').map(str::trim) {
        if part.is_empty() {
            return Err(RangeError::Empty { range: range.to_owned() });
        }
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| text.parse::<u32>().ok()).flatten()
        };
        let (Some(from), Some(to)) = (number(first), number(last)) else {
            let (range, part) = (range.to_owned(), part.to_owned());
            return Err(RangeError::NotNumbers { range, part });
        };
        if from > to {
            return Err(RangeError::Backwards { range: range.to_owned(), part: part.to_owned() });
        }
        if numbers.len() + ((to - from) as usize) >= MOST {
            return Err(RangeError::TooMany { range: range.to_owned() });
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
    fn ranges_mean_names() {
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
    fn what_is_no_range_is_told() {
        for (range, problem) in [
            ("r[1-3", "\"r[1-3\" has a [ without its ]"),
            ("r1-3]", "\"r1-3]\" has a ] without its ["),
            ("r[]", "\"r[]\" has brackets with nothing in them"),
            ("r[1,]", "\"r[1,]\" has brackets with nothing in them"),
            ("r[a-c]", "\"a-c\" in \"r[a-c]\" is no number, and no numbers with a - between them"),
            ("r[1-]", "\"1-\" in \"r[1-]\" is no number, and no numbers with a - between them"),
            ("r[9-1]", "\"9-1\" in \"r[9-1]\" runs backwards"),
            ("r[0-4294967295]", "\"r[0-4294967295]\" means more than 100000 machines"),
            ("r[1-999][1-999]", "\"r[1-999][1-999]\" means more than 100000 machines"),
        ] {
            assert_eq!(expand(range).unwrap_err().to_string(), problem);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[a-z0-9,\\[\\]\\- ü]{0,40}") {
            let _ = expand(&text);
        }

        #[test]
        fn plain_names_stand_for_themselves(names in proptest::collection::hash_set("[a-z][a-z0-9.-]{0,10}", 1..6)) {
            let names: Vec<String> = names.into_iter().collect();
            prop_assert_eq!(expand(&names.join(",")).unwrap(), names);
        }

        #[test]
        fn a_range_has_as_many_names_as_numbers(from in 0_u32..500, more in 0_u32..200, width in 1_usize..6) {
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
