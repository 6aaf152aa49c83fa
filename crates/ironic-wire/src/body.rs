// SPDX-License-Identifier: Apache-2.0
//! Reading request bodies, and creating resources from them by the field table.

use node_model::Timestamp;
use serde_json::{Map, Value};

use crate::error::{WireError, excerpt};
use crate::field::{Field, Resource, find};
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// How deep a body may be nested.
pub const DEEPEST: usize = 25;

/// What is wrong with a text that PostgreSQL cannot keep.
pub(crate) const HAS_NUL: &str = "it has a NUL character, which cannot be kept";

/// A resource that can be created or patched.
pub trait Writable: Resource {
    /// A new one with every default in place, to be filled from a body.
    fn blank(now: Timestamp, version: ApiVersion) -> Self::Draft;

    /// The resource inside a draft, to read the current values of its fields from.
    fn of(draft: &Self::Draft) -> &Self;

    /// The value of a field that the resource itself only holds masked.
    fn revealed(_draft: &Self::Draft, _field: &'static str) -> Option<Value> {
        None
    }
}

/// A resource put together from a request.
#[derive(Debug)]
pub struct Drafted<R: Resource> {
    /// The resource, and what goes with it.
    pub draft: R::Draft,
    /// The fields that were given, or changed.
    pub fields: Vec<&'static str>,
}

impl<R: Resource> Drafted<R> {
    /// Whether `field` was given, or changed.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains(&field)
    }
}

/// A new resource from the body of a `POST`.
///
/// # Errors
/// 400 for what is unknown, missing or wrong, 406 for fields of a later version.
pub fn create<R: Writable>(
    body: &[u8],
    version: ApiVersion,
    now: Timestamp,
) -> Result<Drafted<R>, WireError> {
    let members = parse_object(body, R::KIND)?;
    let mut given: Vec<(&'static Field<R>, Value)> = Vec::with_capacity(members.len());
    let mut unknown: Vec<String> = Vec::new();
    let is_known = |field: &Field<R>| {
        field.create.is_some_and(|since| !field.unknown_before || version.has(since))
    };
    for (name, value) in members {
        match find::<R>(&name) {
            Some(field) if is_known(field) => given.push((field, value)),
            Some(_) | None => unknown.push(name),
        }
    }
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(String::as_str).collect();
        return Err(WireError::unexpected(&names));
    }
    for (field, _) in &given {
        if let Some(since) = field.create
            && !version.has(since)
        {
            return Err(WireError::too_new(field.name, since));
        }
    }
    let is_given = |field: &Field<R>| given.iter().any(|(other, _)| other.name == field.name);
    if let Some(missing) = R::fields().iter().find(|field| field.required && !is_given(field)) {
        return Err(WireError::missing(missing.name));
    }

    let mut draft = R::blank(now, version);
    let mut fields = Vec::with_capacity(given.len());
    for (field, value) in given {
        set::<R>(field, &mut draft, value, version)?;
        fields.push(field.name);
    }
    R::complete(&mut draft, &fields, version)?;
    Ok(Drafted { draft, fields })
}

/// Sets one field of a draft.
pub(crate) fn set<R: Resource>(
    field: &Field<R>,
    draft: &mut R::Draft,
    value: Value,
    version: ApiVersion,
) -> Result<(), WireError> {
    match field.set {
        Some(set) => set(draft, value, version).map_err(|problem| problem.in_field(field.name)),
        None => Err(WireError::invalid(format!("{} can not be set", field.name))),
    }
}

/// The current value of a field of a draft, secrets in clear.
pub(crate) fn current<R: Writable>(
    field: &'static Field<R>,
    draft: &R::Draft,
    version: ApiVersion,
) -> Value {
    R::revealed(draft, field.name).unwrap_or_else(|| {
        let mut writer = JsonWriter::default();
        let context = crate::context::Context::new(version, "");
        (field.write)(&mut writer, R::of(draft), &context);
        serde_json::from_slice(&writer.into_bytes()).unwrap_or(Value::Null)
    })
}

/// A body as a JSON value; an empty body is an empty object, as it is to Ironic.
///
/// # Errors
/// 400 when it is not JSON, nested too deeply, or has a NUL character in a text.
pub fn parse_body(body: &[u8]) -> Result<Value, WireError> {
    let Parsed { value, may_have_nul } = parse_json(body)?;
    if may_have_nul && let Some(place) = place_of_nul(&value) {
        let place = if place.is_empty() { "the body" } else { &place };
        return Err(WireError::invalid_field(place, HAS_NUL));
    }
    Ok(value)
}

/// A body before anybody has looked for NUL characters in its texts.
pub(crate) struct Parsed {
    pub(crate) value: Value,
    /// False if there certainly is none, which is almost always and saves the search.
    pub(crate) may_have_nul: bool,
}

/// A body as a JSON value, whatever its texts are.
pub(crate) fn parse_json(body: &[u8]) -> Result<Parsed, WireError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Parsed { value: Value::Object(Map::new()), may_have_nul: false });
    }
    let may_have_nul = scan(body)?;
    let value = serde_json::from_slice(body).map_err(|error| {
        WireError::invalid(format!(
            "The request body is not valid JSON: {} at line {} column {}",
            category(&error),
            error.line(),
            error.column()
        ))
    })?;
    Ok(Parsed { value, may_have_nul })
}

/// Where the first text with a NUL character is, as `extra.a[0]`; empty if it is the whole value or
/// the name of one of its members.
pub(crate) fn place_of_nul(value: &Value) -> Option<String> {
    let below = |step: String, inner: &Value| {
        let rest = place_of_nul(inner)?;
        let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
        Some(format!("{step}{dot}{rest}"))
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| below(format!("[{index}]"), item))
        }
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            if name.contains('\0') { Some(String::new()) } else { below(excerpt(name), member) }
        }),
    }
}

/// The value without the NUL characters in its texts.
pub(crate) fn without_nul(value: Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
        Value::String(text) => Value::String(text.replace('\0', "")),
        Value::Array(items) => items.into_iter().map(without_nul).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (name.replace('\0', ""), without_nul(member)))
            .collect(),
    }
}

/// A body that must be an object. `what` names it in messages.
///
/// # Errors
/// 400 when it is not an object.
pub fn parse_object(body: &[u8], what: &str) -> Result<Map<String, Value>, WireError> {
    object_of(parse_body(body)?, what)
}

/// The members of a value that must be an object.
pub(crate) fn object_of(value: Value, what: &str) -> Result<Map<String, Value>, WireError> {
    match value {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(WireError::invalid(format!("The body of a {what} request must be a JSON object")))
        }
    }
}

/// Refuses bodies nested deeper than [`DEEPEST`] before anything recursive looks at them. Brackets
/// inside strings do not count. Tells whether some string has an escaped NUL character; a bare one
/// is no JSON.
fn scan(body: &[u8]) -> Result<bool, WireError> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    let mut may_have_nul = false;
    for (index, byte) in body.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => {
                    escaped = false;
                    may_have_nul |= body[index..].starts_with(b"u0000");
                }
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                if depth > DEEPEST {
                    return Err(WireError::body_too_deep(DEEPEST));
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(may_have_nul)
}

fn category(error: &serde_json::Error) -> &'static str {
    match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Syntax => "unexpected character",
        serde_json::error::Category::Data => "unexpected value",
        serde_json::error::Category::Io => "it could not be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nul_characters_are_found_where_they_are() {
        for (body, place) in [
            (r#"{"a":"x\u0000"}"#, Some("a")),
            (r#"{"a":{"b":[1,{"c":"\u0000"}]}}"#, Some("a.b[1].c")),
            (r#"{"a":[["\u0000"]]}"#, Some("a[0][0]")),
            (r#"{"a":{"\u0000":1}}"#, Some("a")),
            (r#"{"\u0000":1}"#, Some("the body")),
            (r#""\u0000""#, Some("the body")),
            // A backslash and the letters that follow it.
            (r#"{"a":"\\u0000"}"#, None),
            (r#"{"a":"\u00000"}"#, Some("a")),
            (r#"{"a":"\u0001\n"}"#, None),
        ] {
            match (parse_body(body.as_bytes()), place) {
                (Ok(_), None) => {}
                (Err(error), Some(place)) => {
                    assert_eq!(error.status(), 400, "{body}");
                    assert_eq!(error.message(), format!("Invalid value for {place}: {HAS_NUL}"));
                }
                (outcome, _) => panic!("{body}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn nul_characters_can_be_left_out() {
        let value = serde_json::json!({"a\0b": ["\0", {"c": "d\0e"}], "f": 1});
        let clean = serde_json::json!({"ab": ["", {"c": "de"}], "f": 1});
        assert_eq!(without_nul(value), clean);
    }
}
