// SPDX-License-Identifier: Apache-2.0
//! Masks secrets in console output. A kernel prints its command line, and with it the agent's token.
//!
//! Masked are values after a secret's name (`ipa-agent-token=…`, `"password": "…"`), passwords in
//! URLs, and any run of characters long enough for a token. A line may arrive in parts; a secret that
//! started in one part is masked in the next.

use node_model::{MASK, is_secret_key, mask_quoted_urls};

/// State between two parts of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum MaskState {
    /// At the start of a line, or between two words.
    #[default]
    Outside,
    /// The part ended with this number of token characters, which may be the start of a token.
    TokenPrefix(usize),
    /// The part ended inside a secret, which continues up to this quote, or to white space.
    InSecret(Option<char>),
}

/// Characters of a token: more than a UUID has.
const MIN_TOKEN_CHARS: usize = 40;
/// Token characters at the end of a part that are displayed; a longer run may become a token and is
/// masked.
const MAX_TOKEN_PREFIX: usize = 16;

/// Masks the secrets of a part of a line. Returns the state for the next part; `is_end` if this is the
/// last one.
pub(crate) fn mask_line_part(part: &str, before: MaskState, is_end: bool) -> (String, MaskState) {
    let (named_masked, secret) = mask_named_values(part, before);
    let prefix = match before {
        MaskState::TokenPrefix(count) => count,
        MaskState::Outside | MaskState::InSecret(_) => 0,
    };
    let (masked, letters) = mask_tokens(&mask_quoted_urls(&named_masked), prefix, is_end);
    let after = match (is_end, secret, letters) {
        (true, ..) | (false, None, 0) => MaskState::Outside,
        (false, Some(quote), _) => MaskState::InSecret(quote),
        (false, None, letters) => MaskState::TokenPrefix(letters),
    };
    (masked, after)
}

/// Masks values after secret names. If the last value has not ended, also returns its closing quote.
fn mask_named_values(text: &str, before: MaskState) -> (String, Option<Option<char>>) {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    if let MaskState::InSecret(quote) = before {
        let Some(end) = end_of_value(rest.trim_start(), quote) else {
            return (MASK.to_owned(), Some(quote));
        };
        let blanks = rest.len() - rest.trim_start().len();
        masked.push_str(MASK);
        rest = &rest[blanks + end..];
    }
    while let Some(at) = rest.find(['=', ':']) {
        let (name, value) = (&rest[..at], &rest[at + 1..]);
        let Some(blanks) = blanks_before_secret(name, &rest[at..=at], value) else {
            masked.push_str(&rest[..=at]);
            rest = value;
            continue;
        };
        masked.push_str(&rest[..=at + blanks]);
        rest = &value[blanks..];
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let opened = usize::from(quote.is_some());
        let end = end_of_value(&rest[opened..], quote);
        masked.push_str(&rest[..opened]);
        // An empty value is not masked.
        if end != Some(0) {
            masked.push_str(MASK);
        }
        let Some(end) = end else { return (masked, Some(quote)) };
        rest = &rest[opened + end..];
    }
    masked.push_str(rest);
    (masked, None)
}

/// Number of blanks between the sign and the value; `None` if `before` does not end with a secret's
/// name.
fn blanks_before_secret(before: &str, sign: &str, value: &str) -> Option<usize> {
    let quoted = before.trim_end_matches(' ');
    let name = quoted.trim_end_matches(['"', '\'', '\\']);
    // Text before a colon is a name only if it is quoted, as in JSON.
    let is_quoted = name.len() < quoted.len();
    if sign == ":" && !is_quoted {
        return None;
    }
    let is_name_char = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let name = &name[name.trim_end_matches(is_name_char).len()..];
    let blanks = value.len() - value.trim_start_matches(' ').len();
    let is_spaced = is_quoted || quoted.len() < before.len();
    is_secret_key(name).then_some(if is_spaced { blanks } else { 0 })
}

/// End of a value; `None` if it continues in the next part.
fn end_of_value(text: &str, quote: Option<char>) -> Option<usize> {
    match quote {
        Some(quote) => text.find(quote),
        None => text.find(char::is_whitespace),
    }
}

/// Masks runs of token characters. `before` is the length of the run at the end of the previous part.
/// Returns the length of the run at the end.
fn mask_tokens(text: &str, before: usize, is_end: bool) -> (String, usize) {
    let is_token_char =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let mut masked = String::with_capacity(text.len());
    let (mut before, mut rest) = (before, text);
    loop {
        let end = rest.find(|letter| !is_token_char(letter));
        let run = &rest[..end.unwrap_or(rest.len())];
        let count = before + run.len();
        let may_continue = end.is_none() && !is_end;
        let is_token = count >= MIN_TOKEN_CHARS
            || before > MAX_TOKEN_PREFIX
            || may_continue && count > MAX_TOKEN_PREFIX;
        // A line of dashes is not a token.
        let is_ruler = run.bytes().all(|byte| byte == run.as_bytes()[0]);
        masked.push_str(if is_token && !is_ruler { MASK } else { run });
        let Some(end) = end else { return (masked, count) };
        let sign = rest[end..].chars().next().map_or(0, char::len_utf8);
        masked.push_str(&rest[end..end + sign]);
        rest = &rest[end + sign..];
        before = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "uF7t-TxLcXmoCe4OZl_BlZEnk36cYLXzttrRVVRM9xU";

    #[test]
    fn masks_secrets_only() {
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
            assert_eq!(
                mask_line_part(&line, MaskState::Outside, true),
                (expected, MaskState::Outside)
            );
        }
    }

    #[test]
    fn masks_secrets_split_across_parts() {
        let line = format!("a ipa-agent-token={TOKEN} b {TOKEN} c='password=x y' d");
        for cut in 1..line.len() {
            let (one, two) = line.split_at(cut);
            let (first, before) = mask_line_part(one, MaskState::Outside, false);
            let (second, _) = mask_line_part(two, before, true);
            for shown in [&first, &second] {
                let has = |length: usize| {
                    let mut parts = TOKEN.as_bytes().windows(length);
                    parts.any(|part| shown.contains(std::str::from_utf8(part).unwrap()))
                };
                assert!(!has(MAX_TOKEN_PREFIX + 1), "{first} | {second}");
            }
            assert!(first.len() > 1 || cut == 1, "{first}");
            assert!(second.ends_with('d'), "{second}");
        }
        assert_eq!(
            mask_line_part("hunter2 and more", MaskState::InSecret(None), true).0,
            "****** and more"
        );
        assert_eq!(
            mask_line_part("word one\" x", MaskState::InSecret(Some('"')), true).0,
            "******\" x"
        );
        assert_eq!(
            mask_line_part("middle", MaskState::InSecret(None), false),
            (MASK.to_owned(), MaskState::InSecret(None))
        );
    }
}
