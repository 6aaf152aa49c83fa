// SPDX-License-Identifier: Apache-2.0
//! What is secret about a line that a machine prints, masked: a kernel prints its command line, and
//! with it the agent's token.
//!
//! Masked are what follows the name of a secret (`ipa-agent-token=…`, `"password": "…"`), passwords
//! in addresses, and whatever is long enough for a token. A line may come in parts, with the rest
//! after a while; what began in one part is masked in the next.

use node_model::{MASK, is_secret_key, mask_quoted_urls};

/// What is known of a line when the next part of it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Before {
    /// Nothing: a line begins, or goes on between two words.
    #[default]
    Nothing,
    /// It ended with so many letters, which may be the beginning of a token.
    Letters(usize),
    /// It ended in a secret, which goes on up to this quote, or else to a blank.
    Secret(Option<char>),
}

/// Letters of a token: more than a UUID has.
const TOKEN: usize = 40;
/// Letters at the end of a part that may become a token with those to come: more are not shown.
const HALF_TOKEN: usize = 16;

/// The part of a line without its secrets, and what to know when the next part comes. `is_end` if
/// there is none.
pub(crate) fn without_secrets(part: &str, before: Before, is_end: bool) -> (String, Before) {
    let (named, secret) = without_named(part, before);
    let letters = match before {
        Before::Letters(count) => count,
        Before::Nothing | Before::Secret(_) => 0,
    };
    let (shown, letters) = without_tokens(&mask_quoted_urls(&named), letters, is_end);
    let after = match (is_end, secret, letters) {
        (true, ..) | (false, None, 0) => Before::Nothing,
        (false, Some(quote), _) => Before::Secret(quote),
        (false, None, letters) => Before::Letters(letters),
    };
    (shown, after)
}

/// The text without the values of what has a secret's name; and, if the last of them has not ended,
/// with what it will.
fn without_named(text: &str, before: Before) -> (String, Option<Option<char>>) {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    if let Before::Secret(quote) = before {
        let Some(end) = end_of_value(rest.trim_start(), quote) else {
            return (MASK.to_owned(), Some(quote));
        };
        let blanks = rest.len() - rest.trim_start().len();
        shown.push_str(MASK);
        rest = &rest[blanks + end..];
    }
    while let Some(at) = rest.find(['=', ':']) {
        let (name, value) = (&rest[..at], &rest[at + 1..]);
        let Some(blanks) = blanks_before_secret(name, &rest[at..=at], value) else {
            shown.push_str(&rest[..=at]);
            rest = value;
            continue;
        };
        shown.push_str(&rest[..=at + blanks]);
        rest = &value[blanks..];
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let opened = usize::from(quote.is_some());
        let end = end_of_value(&rest[opened..], quote);
        shown.push_str(&rest[..opened]);
        // What is not there is no secret.
        if end != Some(0) {
            shown.push_str(MASK);
        }
        let Some(end) = end else { return (shown, Some(quote)) };
        rest = &rest[opened + end..];
    }
    shown.push_str(rest);
    (shown, None)
}

/// How many blanks are between the sign and the value, if a secret's name is before the sign.
fn blanks_before_secret(before: &str, sign: &str, value: &str) -> Option<usize> {
    let quoted = before.trim_end_matches(' ');
    let name = quoted.trim_end_matches(['"', '\'', '\\']);
    // Words with a colon behind them are only a name where they are quoted, as in JSON.
    let is_quoted = name.len() < quoted.len();
    if sign == ":" && !is_quoted {
        return None;
    }
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name = &name[name.trim_end_matches(is_of_name).len()..];
    let blanks = value.len() - value.trim_start_matches(' ').len();
    let is_spaced = is_quoted || quoted.len() < before.len();
    is_secret_key(name).then_some(if is_spaced { blanks } else { 0 })
}

/// Where a value ends; none if it goes on.
fn end_of_value(text: &str, quote: Option<char>) -> Option<usize> {
    match quote {
        Some(quote) => text.find(quote),
        None => text.find(char::is_whitespace),
    }
}

/// The text without what is long enough for a token, of which `before` letters have been; and how
/// many letters it ends with.
fn without_tokens(text: &str, before: usize, is_end: bool) -> (String, usize) {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut shown = String::with_capacity(text.len());
    let (mut before, mut rest) = (before, text);
    loop {
        let end = rest.find(|letter| !is_letter(letter));
        let run = &rest[..end.unwrap_or(rest.len())];
        let count = before + run.len();
        let may_go_on = end.is_none() && !is_end;
        let is_token = count >= TOKEN || before > HALF_TOKEN || may_go_on && count > HALF_TOKEN;
        // A line of dashes is none.
        let is_drawn = run.bytes().all(|byte| byte == run.as_bytes()[0]);
        shown.push_str(if is_token && !is_drawn { MASK } else { run });
        let Some(end) = end else { return (shown, count) };
        let sign = rest[end..].chars().next().map_or(0, char::len_utf8);
        shown.push_str(&rest[end..end + sign]);
        rest = &rest[end + sign..];
        before = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "uF7t-TxLcXmoCe4OZl_BlZEnk36cYLXzttrRVVRM9xU";

    #[test]
    fn secrets_are_masked_and_the_rest_is_not() {
        let uuid = "21e6ab80-49d3-4986-8484-f34e0217abff";
        let dashes = "-".repeat(78);
        for (line, expected) in [
            (
                format!("http://10.0.2.2:6180/{TOKEN}/kernel... ok"),
                "http://10.0.2.2:6180/******/kernel... ok".to_owned(),
            ),
            (
                format!("url=\"http://a/image/{uuid}/{TOKEN}\" size=1"),
                format!("url=\"http://a/image/{uuid}/******\" size=1"),
            ),
            (
                format!("[0.0] Command line: ipa-agent-token={TOKEN} console=ttyS0 quiet"),
                "[0.0] Command line: ipa-agent-token=****** console=ttyS0 quiet".to_owned(),
            ),
            ("ipa-agent-token=short/+& a=b".to_owned(), "ipa-agent-token=****** a=b".to_owned()),
            (
                "sshkey=\"a b\" rootpassword=\"a b\" x".to_owned(),
                "sshkey=\"a b\" rootpassword=\"******\" x".to_owned(),
            ),
            ("password='unclosed till the".to_owned(), "password='******".to_owned()),
            ("password = hunter2 # of all".to_owned(), "password = ****** # of all".to_owned()),
            (
                "{\"agent_token\": \"abc\", \"n\": 1, 'token':'x'}".to_owned(),
                "{\"agent_token\": \"******\", \"n\": 1, 'token':'******'}".to_owned(),
            ),
            ("password= next=1".to_owned(), "password= next=1".to_owned()),
            ("Password: please".to_owned(), "Password: please".to_owned()),
            ("curl ftp://root:pass@host/x".to_owned(), "curl ftp://root:******@host/x".to_owned()),
            (format!("key {TOKEN}=="), "key ******==".to_owned()),
            (dashes.clone(), dashes),
            (format!("UUID={uuid} grün"), format!("UUID={uuid} grün")),
        ] {
            assert_eq!(without_secrets(&line, Before::Nothing, true), (expected, Before::Nothing));
        }
    }

    #[test]
    fn a_secret_in_two_parts_is_masked_in_both() {
        let line = format!("a ipa-agent-token={TOKEN} b {TOKEN} c='password=x y' d");
        for cut in 1..line.len() {
            let (one, two) = line.split_at(cut);
            let (first, before) = without_secrets(one, Before::Nothing, false);
            let (second, _) = without_secrets(two, before, true);
            for shown in [&first, &second] {
                let has = |length: usize| {
                    let mut parts = TOKEN.as_bytes().windows(length);
                    parts.any(|part| shown.contains(std::str::from_utf8(part).unwrap()))
                };
                assert!(!has(HALF_TOKEN + 1), "{first} | {second}");
            }
            assert!(first.len() > 1 || cut == 1, "{first}");
            assert!(second.ends_with('d'), "{second}");
        }
        assert_eq!(
            without_secrets("hunter2 and more", Before::Secret(None), true).0,
            "****** and more"
        );
        assert_eq!(
            without_secrets("word one\" x", Before::Secret(Some('"')), true).0,
            "******\" x"
        );
        assert_eq!(
            without_secrets("middle", Before::Secret(None), false),
            (MASK.to_owned(), Before::Secret(None))
        );
    }
}
