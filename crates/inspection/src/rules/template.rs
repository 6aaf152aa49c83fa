// SPDX-License-Identifier: Apache-2.0
//! Templates in rules: `{node.driver_info[ipmi_address]}`, `{inventory[cpu][count]}`,
//! `{plugin_data[x]}` and, in loops, `{item}`.
//!
//! The syntax is that of Python's `str.format` without format specifications. Text from the ramdisk
//! is never interpreted as a template.

use std::borrow::Cow;

use serde_json::Value;

use super::values;
use crate::inspection_draft::InspectionDraft;

/// The values that templates can refer to.
#[derive(Clone, Copy)]
pub(super) struct TemplateScope<'a, 'd> {
    pub(super) draft: &'a InspectionDraft<'d>,
    pub(super) item: Option<&'a Value>,
    /// Whether secrets of the report are masked.
    pub(super) mask: bool,
}

/// A template cannot be rendered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TemplateError {
    /// It refers to a missing member.
    Missing,
    /// It is malformed, or refers to something that values do not have.
    Malformed,
}

#[derive(Clone, Copy)]
enum PathElement<'a> {
    Attribute(&'a str),
    Member(&'a str),
}

impl TemplateScope<'_, '_> {
    /// Renders all templates of a value. Those that cannot be rendered are left unchanged and added
    /// to `unrendered`; with `missing_is_null`, a missing member makes the text null.
    pub(super) fn render_value(
        &self,
        value: &Value,
        missing_is_null: bool,
        unrendered: &mut Vec<String>,
    ) -> Value {
        match value {
            Value::String(template) => match self.render(template) {
                Ok(text) => text.into(),
                Err(TemplateError::Missing) if missing_is_null => Value::Null,
                Err(TemplateError::Missing | TemplateError::Malformed) => {
                    unrendered.push(template.clone());
                    value.clone()
                }
            },
            Value::Array(items) => items
                .iter()
                .map(|item| self.render_value(item, missing_is_null, unrendered))
                .collect(),
            Value::Object(members) => members
                .iter()
                .map(|(key, member)| {
                    let rendered = self.render_value(member, missing_is_null, unrendered);
                    (self.render(key).unwrap_or_else(|_| key.clone()), rendered)
                })
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn render(&self, template: &str) -> Result<String, TemplateError> {
        let mut out = String::with_capacity(template.len());
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            out.push_str(before);
            // Doubled braces are escapes.
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
                    .ok_or(TemplateError::Malformed)?;
                out.push_str(&self.field(field)?);
                rest = after;
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Renders `name`, a path, and an optional `!r`, `!a` or `!s`.
    fn field(&self, field: &str) -> Result<String, TemplateError> {
        let (path, conversion) = match field.split_once('!') {
            Some((path, conversion)) => (path, conversion),
            None => (field.strip_suffix(':').unwrap_or(field), "s"),
        };
        let value = self.value(path)?;
        match conversion {
            "s" => Ok(values::python_str(&value, self.mask)),
            "r" | "a" => Ok(values::python_repr(&value, self.mask)),
            _ => Err(TemplateError::Malformed),
        }
    }

    fn value(&self, path: &str) -> Result<Cow<'_, Value>, TemplateError> {
        let name_end = path.find(['.', '[']).unwrap_or(path.len());
        let (name, rest) = path.split_at(name_end);
        let elements = parse_path(rest)?;
        match name {
            "node" => {
                let (first, rest) = elements.split_first().ok_or(TemplateError::Malformed)?;
                let (PathElement::Attribute(attribute) | PathElement::Member(attribute)) = first;
                let value = self.draft.attribute(attribute).ok_or(TemplateError::Malformed)?;
                resolve_path(Cow::Owned(value), rest, false)
            }
            "inventory" => self.report_value(self.draft.report.inventory(), &elements),
            "plugin_data" => self.report_value(&self.draft.plugin_data, &elements),
            "item" => {
                let item = self.item.ok_or(TemplateError::Missing)?;
                let value = resolve_path(Cow::Borrowed(item), &elements, false)?;
                Ok(self.item_value(value))
            }
            _ => Err(TemplateError::Missing),
        }
    }

    fn report_value<'s>(
        &self,
        object: &'s serde_json::Map<String, Value>,
        elements: &[PathElement<'_>],
    ) -> Result<Cow<'s, Value>, TemplateError> {
        match elements.split_first() {
            None => Ok(Cow::Owned(object.clone().into())),
            Some((PathElement::Attribute(_), _)) => Err(TemplateError::Malformed),
            Some((PathElement::Member(key), rest)) => {
                if let Some(masked) = values::masked(key, self.mask) {
                    return Ok(Cow::Owned(masked));
                }
                resolve_path(
                    Cow::Borrowed(object.get(*key).ok_or(TemplateError::Missing)?),
                    rest,
                    self.mask,
                )
            }
        }
    }

    /// Renders a loop item: the operator wrote it, so it may be a template.
    fn item_value<'s>(&self, value: Cow<'s, Value>) -> Cow<'s, Value> {
        let outside = TemplateScope { item: None, ..*self };
        let rendered = value.as_str().and_then(|template| outside.render(template).ok());
        rendered.map_or(value, |text| Cow::Owned(text.into()))
    }
}

/// Returns the value at a path below `value`.
fn resolve_path<'a>(
    mut value: Cow<'a, Value>,
    elements: &[PathElement<'_>],
    mask: bool,
) -> Result<Cow<'a, Value>, TemplateError> {
    for element in elements {
        let PathElement::Member(key) = element else { return Err(TemplateError::Malformed) };
        if let Some(masked) = values::masked(key, mask).filter(|_| value.is_object()) {
            value = Cow::Owned(masked);
            continue;
        }
        value = match value {
            Cow::Borrowed(value) => Cow::Borrowed(member(value, key)?),
            Cow::Owned(value) => Cow::Owned(member(&value, key)?.clone()),
        };
    }
    Ok(value)
}

fn member<'a>(value: &'a Value, key: &str) -> Result<&'a Value, TemplateError> {
    match value {
        Value::Object(members) => members.get(key).ok_or(TemplateError::Missing),
        Value::Array(items) => key
            .parse()
            .ok()
            .and_then(|index: usize| items.get(index))
            .ok_or(TemplateError::Malformed),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(TemplateError::Malformed)
        }
    }
}

/// Parses `.a[b][0]`.
fn parse_path(mut rest: &str) -> Result<Vec<PathElement<'_>>, TemplateError> {
    let mut elements = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            elements.push(PathElement::Attribute(&after[..end]));
            rest = &after[end..];
        } else {
            let (key, after) = rest
                .strip_prefix('[')
                .and_then(|after| after.split_once(']'))
                .ok_or(TemplateError::Malformed)?;
            elements.push(PathElement::Member(key));
            rest = after;
        }
        let named =
            !matches!(elements.last(), Some(PathElement::Attribute("") | PathElement::Member("")));
        if !named {
            return Err(TemplateError::Malformed);
        }
    }
    Ok(elements)
}
