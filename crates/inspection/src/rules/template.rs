// SPDX-License-Identifier: Apache-2.0
//! Templates in rules: `{node.driver_info[ipmi_address]}`, `{inventory[cpu][count]}`,
//! `{plugin_data[x]}` and, in loops, `{item}`.
//!
//! The grammar is that of Python's `str.format` without format specifications. Text that came from
//! the ramdisk is never itself taken for a template.

use std::borrow::Cow;

use serde_json::Value;

use super::values;
use crate::draft::Draft;

/// What templates can refer to.
#[derive(Clone, Copy)]
pub(super) struct Scope<'a, 'd> {
    pub(super) draft: &'a Draft<'d>,
    pub(super) item: Option<&'a Value>,
    /// Whether secrets of the report are hidden.
    pub(super) mask: bool,
}

/// A template cannot be filled in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unfilled {
    /// It names a member that is not there.
    Missing,
    /// It is malformed, or asks for something that values do not have.
    Malformed,
}

#[derive(Clone, Copy)]
enum Access<'a> {
    Attribute(&'a str),
    Member(&'a str),
}

impl Scope<'_, '_> {
    /// Fills in all templates of a value. Those that cannot be filled in stay, and are listed in
    /// `unfilled`; with `missing_is_null`, a member that is not there makes the text null.
    pub(super) fn fill(
        &self,
        value: &Value,
        missing_is_null: bool,
        unfilled: &mut Vec<String>,
    ) -> Value {
        match value {
            Value::String(template) => match self.render(template) {
                Ok(text) => text.into(),
                Err(Unfilled::Missing) if missing_is_null => Value::Null,
                Err(Unfilled::Missing | Unfilled::Malformed) => {
                    unfilled.push(template.clone());
                    value.clone()
                }
            },
            Value::Array(items) => {
                items.iter().map(|item| self.fill(item, missing_is_null, unfilled)).collect()
            }
            Value::Object(members) => members
                .iter()
                .map(|(key, member)| {
                    let filled = self.fill(member, missing_is_null, unfilled);
                    (self.render(key).unwrap_or_else(|_| key.clone()), filled)
                })
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn render(&self, template: &str) -> Result<String, Unfilled> {
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            out.push_str(before);
            // Doubled braces stand for themselves.
            if let Some(after) = brace.strip_prefix("{{") {
                out.push('{');
                rest = after;
            } else if let Some(after) = brace.strip_prefix("}}") {
                out.push('}');
                rest = after;
            } else {
                let (field, after) = brace
                    .strip_prefix('{')
                    .and_then(|field| field.split_once('}'))
                    .ok_or(Unfilled::Malformed)?;
                out.push_str(&self.field(field)?);
                rest = after;
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// `name`, then accesses, then perhaps `!r` or `!s`.
    fn field(&self, field: &str) -> Result<String, Unfilled> {
        let (path, conversion) = match field.split_once('!') {
            Some((path, conversion)) => (path, conversion),
            None => (field.strip_suffix(':').unwrap_or(field), "s"),
        };
        let value = self.value(path)?;
        match conversion {
            "s" => Ok(values::text(&value, self.mask)),
            "r" | "a" => Ok(values::quoted(&value, self.mask)),
            _ => Err(Unfilled::Malformed),
        }
    }

    fn value(&self, path: &str) -> Result<Cow<'_, Value>, Unfilled> {
        let name_end = path.find(['.', '[']).unwrap_or(path.len());
        let (name, rest) = path.split_at(name_end);
        let accesses = accesses(rest)?;
        match name {
            "node" => {
                let (first, rest) = accesses.split_first().ok_or(Unfilled::Malformed)?;
                let (Access::Attribute(attribute) | Access::Member(attribute)) = first;
                let value = self.draft.attribute(attribute).ok_or(Unfilled::Malformed)?;
                follow(Cow::Owned(value), rest, false)
            }
            "inventory" => self.report_value(self.draft.report.inventory(), &accesses),
            "plugin_data" => self.report_value(&self.draft.plugin_data, &accesses),
            "item" => {
                let item = self.item.ok_or(Unfilled::Missing)?;
                let value = follow(Cow::Borrowed(item), &accesses, false)?;
                Ok(self.item_value(value))
            }
            _ => Err(Unfilled::Missing),
        }
    }

    fn report_value<'s>(
        &self,
        object: &'s serde_json::Map<String, Value>,
        accesses: &[Access<'_>],
    ) -> Result<Cow<'s, Value>, Unfilled> {
        match accesses.split_first() {
            None => Ok(Cow::Owned(object.clone().into())),
            Some((Access::Attribute(_), _)) => Err(Unfilled::Malformed),
            Some((Access::Member(key), rest)) => {
                if let Some(hidden) = values::hidden(key, self.mask) {
                    return Ok(Cow::Owned(hidden));
                }
                follow(Cow::Borrowed(object.get(*key).ok_or(Unfilled::Missing)?), rest, self.mask)
            }
        }
    }

    /// An item of a loop was written by the operator and may be a template itself.
    fn item_value<'s>(&self, value: Cow<'s, Value>) -> Cow<'s, Value> {
        let outside = Scope { item: None, ..*self };
        let filled = value.as_str().and_then(|template| outside.render(template).ok());
        filled.map_or(value, |text| Cow::Owned(text.into()))
    }
}

/// Goes from a value to the one that is meant.
fn follow<'a>(
    mut value: Cow<'a, Value>,
    accesses: &[Access<'_>],
    mask: bool,
) -> Result<Cow<'a, Value>, Unfilled> {
    for access in accesses {
        let Access::Member(key) = access else { return Err(Unfilled::Malformed) };
        if let Some(hidden) = values::hidden(key, mask).filter(|_| value.is_object()) {
            value = Cow::Owned(hidden);
            continue;
        }
        value = match value {
            Cow::Borrowed(value) => Cow::Borrowed(member(value, key)?),
            Cow::Owned(value) => Cow::Owned(member(&value, key)?.clone()),
        };
    }
    Ok(value)
}

fn member<'a>(value: &'a Value, key: &str) -> Result<&'a Value, Unfilled> {
    match value {
        Value::Object(members) => members.get(key).ok_or(Unfilled::Missing),
        Value::Array(items) => {
            key.parse().ok().and_then(|index: usize| items.get(index)).ok_or(Unfilled::Malformed)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(Unfilled::Malformed)
        }
    }
}

/// Splits `.a[b][0]`.
fn accesses(mut rest: &str) -> Result<Vec<Access<'_>>, Unfilled> {
    let mut accesses = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            accesses.push(Access::Attribute(&after[..end]));
            rest = &after[end..];
        } else {
            let (key, after) = rest
                .strip_prefix('[')
                .and_then(|after| after.split_once(']'))
                .ok_or(Unfilled::Malformed)?;
            accesses.push(Access::Member(key));
            rest = after;
        }
        let named = !matches!(accesses.last(), Some(Access::Attribute("") | Access::Member("")));
        if !named {
            return Err(Unfilled::Malformed);
        }
    }
    Ok(accesses)
}
