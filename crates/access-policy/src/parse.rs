// SPDX-License-Identifier: Apache-2.0
//! Parser of check strings, the language of oslo.policy.
//!
//! `and` binds tighter than `or`, `not` applies to the next check or group. As in oslo.policy, words
//! are separated by white space, and parentheses may touch them.

use crate::check::{CallerAttribute, Check, TargetKey, Template, TemplatePiece};

/// Maximum length of a check string in bytes. Ironic's longest has 500.
const MAX_LENGTH: usize = 16 * 1024;
/// Maximum depth of parentheses and `not`, which bounds the recursion.
const MAX_DEPTH: usize = 64;

/// Why a check string is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SyntaxError {
    #[error("it is longer than {MAX_LENGTH} bytes")]
    TooLong,
    #[error("its parentheses are nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    #[error("a check is missing at its end")]
    EndOfText,
    #[error("\"{0}\" is not expected there")]
    Unexpected(String),
    #[error("\"(\" is not closed")]
    Unclosed,
    #[error(
        "\"{0}\" is not a check; checks have the form role:admin, project_id:%(node.owner)s, \
         system_scope:all or rule:name"
    )]
    NotACheck(String),
    #[error("checks of the kind \"{0}:\" are not supported")]
    UnsupportedKind(String),
    #[error("callers have no attribute \"{0}\"")]
    UnknownAttribute(String),
    #[error("\"%({0})s\" is unknown; known are {known}", known = known_keys())]
    UnknownKey(String),
    #[error("\"{0}\" contains a % that does not start %(key)s")]
    BadSubstitution(String),
    #[error("it refers to the rule \"{0}\", which does not exist")]
    UnknownRule(String),
}

fn known_keys() -> String {
    let names: Vec<String> =
        TargetKey::NAMES.iter().map(|(name, _)| format!("%({name})s")).collect();
    names.join(", ")
}

/// Compiles a check string. `rule_index` finds the rules it refers to.
pub(crate) fn parse_check(
    text: &str,
    rule_index: &dyn Fn(&str) -> Option<usize>,
) -> Result<Check, SyntaxError> {
    if text.len() > MAX_LENGTH {
        return Err(SyntaxError::TooLong);
    }
    if text.trim().is_empty() {
        return Ok(Check::Always);
    }
    let mut parser = CheckParser { tokens: tokens(text), position: 0, rule_index };
    let check = parser.any(0)?;
    match parser.next() {
        None => Ok(check),
        Some(token) => Err(SyntaxError::Unexpected(token.text().to_owned())),
    }
}

/// The names of the rules that a check string refers to, whether they exist or not.
pub(crate) fn referenced_rules(text: &str) -> Vec<&str> {
    tokens(text)
        .into_iter()
        .filter_map(|token| match token {
            CheckToken::Word(word) => word.strip_prefix("rule:"),
            CheckToken::Open | CheckToken::Close | CheckToken::And | CheckToken::Or => None,
            CheckToken::Not => None,
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CheckToken<'t> {
    Open,
    Close,
    And,
    Or,
    Not,
    Word(&'t str),
}

impl<'t> CheckToken<'t> {
    const fn text(self) -> &'t str {
        match self {
            Self::Open => "(",
            Self::Close => ")",
            Self::And => "and",
            Self::Or => "or",
            Self::Not => "not",
            Self::Word(word) => word,
        }
    }
}

fn tokens(text: &str) -> Vec<CheckToken<'_>> {
    let mut tokens = Vec::new();
    for chunk in text.split_whitespace() {
        let word = chunk.trim_start_matches('(');
        tokens.extend(std::iter::repeat_n(CheckToken::Open, chunk.len() - word.len()));
        let core = word.trim_end_matches(')');
        if !core.is_empty() {
            tokens.push(if core.eq_ignore_ascii_case("and") {
                CheckToken::And
            } else if core.eq_ignore_ascii_case("or") {
                CheckToken::Or
            } else if core.eq_ignore_ascii_case("not") {
                CheckToken::Not
            } else {
                CheckToken::Word(core)
            });
        }
        tokens.extend(std::iter::repeat_n(CheckToken::Close, word.len() - core.len()));
    }
    tokens
}

struct CheckParser<'t, 'r> {
    tokens: Vec<CheckToken<'t>>,
    position: usize,
    rule_index: &'r dyn Fn(&str) -> Option<usize>,
}

impl<'t> CheckParser<'t, '_> {
    fn next(&mut self) -> Option<CheckToken<'t>> {
        let token = self.tokens.get(self.position).copied();
        self.position += usize::from(token.is_some());
        token
    }

    fn skip(&mut self, expected: CheckToken<'_>) -> bool {
        let is_next = self.tokens.get(self.position).is_some_and(|token| *token == expected);
        self.position += usize::from(is_next);
        is_next
    }

    /// Checks joined by `or`.
    fn any(&mut self, depth: usize) -> Result<Check, SyntaxError> {
        let mut parts = vec![self.all(depth)?];
        while self.skip(CheckToken::Or) {
            parts.push(self.all(depth)?);
        }
        Ok(join(parts, Check::Any))
    }

    /// Checks joined by `and`.
    fn all(&mut self, depth: usize) -> Result<Check, SyntaxError> {
        let mut parts = vec![self.one(depth)?];
        while self.skip(CheckToken::And) {
            parts.push(self.one(depth)?);
        }
        Ok(join(parts, Check::All))
    }

    fn one(&mut self, depth: usize) -> Result<Check, SyntaxError> {
        if depth > MAX_DEPTH {
            return Err(SyntaxError::TooDeep);
        }
        match self.next() {
            None => Err(SyntaxError::EndOfText),
            Some(CheckToken::Open) => {
                let inner = self.any(depth + 1)?;
                match self.next() {
                    Some(CheckToken::Close) => Ok(inner),
                    Some(other) => Err(SyntaxError::Unexpected(other.text().to_owned())),
                    None => Err(SyntaxError::Unclosed),
                }
            }
            Some(CheckToken::Not) => Ok(Check::Not(Box::new(self.one(depth + 1)?))),
            Some(CheckToken::Word(word)) => self.check(word),
            Some(token @ (CheckToken::Close | CheckToken::And | CheckToken::Or)) => {
                Err(SyntaxError::Unexpected(token.text().to_owned()))
            }
        }
    }

    fn check(&self, word: &str) -> Result<Check, SyntaxError> {
        match word {
            "@" => return Ok(Check::Always),
            "!" => return Ok(Check::Never),
            _ => {}
        }
        let Some((kind, value)) = word.split_once(':') else {
            return Err(SyntaxError::NotACheck(word.to_owned()));
        };
        if kind.is_empty() || value.is_empty() {
            return Err(SyntaxError::NotACheck(word.to_owned()));
        }
        match kind {
            "rule" => (self.rule_index)(value)
                .map(Check::Rule)
                .ok_or_else(|| SyntaxError::UnknownRule(value.to_owned())),
            "role" => Ok(Check::Role(template(value)?)),
            "http" | "https" | "field" => Err(SyntaxError::UnsupportedKind(kind.to_owned())),
            _ => {
                if let Some(literal) = literal(kind) {
                    return Ok(Check::Literal(literal.into(), template(value)?));
                }
                let attribute = CallerAttribute::by_name(kind)
                    .ok_or_else(|| SyntaxError::UnknownAttribute(kind.to_owned()))?;
                Ok(Check::Attribute(attribute, template(value)?))
            }
        }
    }
}

fn join(mut parts: Vec<Check>, joined: impl FnOnce(Box<[Check]>) -> Check) -> Check {
    match parts.len() {
        1 => parts.remove(0),
        _ => joined(parts.into_boxed_slice()),
    }
}

/// The text of a Python literal: a quoted text, a number, `True`, `False` or `None`.
fn literal(kind: &str) -> Option<&str> {
    for quote in ['\'', '"'] {
        if let Some(inner) = kind.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return Some(inner);
        }
    }
    let is_number = kind.bytes().all(|byte| byte.is_ascii_digit());
    (is_number || matches!(kind, "True" | "False" | "None")).then_some(kind)
}

fn template(text: &str) -> Result<Template, SyntaxError> {
    let bad = || SyntaxError::BadSubstitution(text.to_owned());
    let mut pieces: Vec<TemplatePiece> = Vec::new();
    let mut plain = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('%') {
        plain.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            plain.push('%');
            rest = after;
            continue;
        }
        let (name, after) =
            rest.strip_prefix('(').and_then(|inner| inner.split_once(")s")).ok_or_else(bad)?;
        let known = TargetKey::NAMES.iter().find(|(known, _)| *known == name);
        let (_, key) = known.ok_or_else(|| SyntaxError::UnknownKey(name.to_owned()))?;
        if !plain.is_empty() {
            pieces.push(TemplatePiece::Text(std::mem::take(&mut plain).into()));
        }
        pieces.push(TemplatePiece::Key(*key));
        rest = after;
    }
    plain.push_str(rest);
    match (pieces.as_slice(), plain.is_empty()) {
        ([], _) => Ok(Template::Constant(plain.into())),
        ([TemplatePiece::Key(key)], true) => Ok(Template::Key(*key)),
        _ => {
            if !plain.is_empty() {
                pieces.push(TemplatePiece::Text(plain.into()));
            }
            Ok(Template::Pieces(pieces.into_boxed_slice()))
        }
    }
}
