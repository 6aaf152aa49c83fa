// SPDX-License-Identifier: Apache-2.0
//! Parsing of request bodies, and creation of resources from them with the field tables.

use node_model::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{WireError, excerpt};
use crate::field::{ResourceField, WireResource, find_field};
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// Maximum nesting depth of a body.
pub const MAX_NESTING: usize = 25;

/// Maximum number of values in a body, of which an object counts as ten. A parsed value needs
/// up to 64 bytes, as text only two; an object with one member needs 640.
pub const MAX_VALUES: usize = 300_000;
const OBJECT_VALUES: usize = 10;

/// Error for a text with NUL, which PostgreSQL rejects.
pub(crate) const NUL_NOT_ALLOWED: &str = "it has a NUL character, which cannot be kept";

/// A resource that can be created or patched.
pub trait WritableResource: WireResource {
    /// A new draft with default values.
    fn blank(now: Timestamp, version: ApiVersion) -> Self::Draft;

    /// The resource inside a draft, from which current field values are read.
    fn resource(draft: &Self::Draft) -> &Self;

    /// The plain value of a field that the resource itself holds masked.
    fn revealed_value(_draft: &Self::Draft, _field: &'static str) -> Option<Value> {
        None
    }
}

/// The result of parsing a create request or applying a patch.
#[derive(Debug)]
pub struct ResourceDraft<R: WireResource> {
    /// The draft.
    pub draft: R::Draft,
    /// The fields that were given or changed.
    pub fields: Vec<&'static str>,
}

impl<R: WireResource> ResourceDraft<R> {
    /// Whether `field` was given or changed.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.fields.contains(&field)
    }
}

/// Creates a draft from the body of a `POST`.
///
/// # Errors
/// 400 for unknown, missing or invalid members, 406 for fields of a later version.
pub fn create<R: WritableResource>(
    body: &[u8],
    version: ApiVersion,
    now: Timestamp,
) -> Result<ResourceDraft<R>, WireError> {
    let members = parse_object(body, R::KIND)?;
    let mut given: Vec<(&'static ResourceField<R>, Value)> = Vec::with_capacity(members.len());
    let mut unknown: Vec<String> = Vec::new();
    let is_known = |field: &ResourceField<R>| {
        field.create.is_some_and(|since| !field.unknown_before || version.has(since))
    };
    for (name, value) in members {
        match find_field::<R>(&name) {
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
    let is_given =
        |field: &ResourceField<R>| given.iter().any(|(other, _)| other.name == field.name);
    if let Some(missing) = R::fields().iter().find(|field| field.required && !is_given(field)) {
        return Err(WireError::missing(missing.name));
    }

    let mut draft = R::blank(now, version);
    let mut fields = Vec::with_capacity(given.len());
    for (field, value) in given {
        set_field::<R>(field, &mut draft, value, version)?;
        fields.push(field.name);
    }
    R::complete(&mut draft, &fields, version)?;
    Ok(ResourceDraft { draft, fields })
}

/// Sets one field of a draft.
pub(crate) fn set_field<R: WireResource>(
    field: &ResourceField<R>,
    draft: &mut R::Draft,
    value: Value,
    version: ApiVersion,
) -> Result<(), WireError> {
    match field.set {
        Some(set) => set(draft, value, version).map_err(|error| error.in_field(field.name)),
        None => Err(WireError::invalid(format!("{} can not be set", field.name))),
    }
}

/// The current value of a field of a draft, with secrets in plain text.
pub(crate) fn current_value<R: WritableResource>(
    field: &'static ResourceField<R>,
    draft: &R::Draft,
    version: ApiVersion,
) -> Value {
    R::revealed_value(draft, field.name).unwrap_or_else(|| {
        let mut writer = JsonWriter::default();
        let context = crate::context::RenderContext::new(version, "");
        (field.write)(&mut writer, R::resource(draft), &context);
        serde_json::from_slice(&writer.into_bytes()).unwrap_or(Value::Null)
    })
}

/// Parses a body as JSON. Like Ironic, treats an empty body as an empty object.
///
/// # Errors
/// 400 if it is not JSON, nested too deeply, or has a NUL character in a text.
pub fn parse_body(body: &[u8]) -> Result<Value, WireError> {
    let ParsedJson { value, may_have_nul } = parse_json(body)?;
    if may_have_nul && let Some(location) = find_nul(&value) {
        let location = if location.is_empty() { "the body" } else { &location };
        return Err(WireError::invalid_field(location, NUL_NOT_ALLOWED));
    }
    Ok(value)
}

/// A parsed body whose texts were not checked for NUL yet.
pub(crate) struct ParsedJson {
    pub(crate) value: Value,
    /// False if there is certainly no NUL, which saves the search in almost all cases.
    pub(crate) may_have_nul: bool,
}

/// Parses a body as JSON, without a check for NUL.
pub(crate) fn parse_json(body: &[u8]) -> Result<ParsedJson, WireError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(ParsedJson { value: Value::Object(Map::new()), may_have_nul: false });
    }
    let may_have_nul = check_nesting(body)?;
    let value = serde_json::from_slice(body).map_err(|error| {
        WireError::invalid(format!(
            "The request body is not valid JSON: {} at line {} column {}",
            category(&error),
            error.line(),
            error.column()
        ))
    })?;
    Ok(ParsedJson { value, may_have_nul })
}

/// The path of the first text with a NUL character, such as `extra.a[0]`. Empty if it is the value
/// itself or a member name.
pub(crate) fn find_nul(value: &Value) -> Option<String> {
    let nested = |segment: String, inner: &Value| {
        let rest = find_nul(inner)?;
        let dot = if rest.is_empty() || rest.starts_with('[') { "" } else { "." };
        Some(format!("{segment}{dot}{rest}"))
    };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| nested(format!("[{index}]"), item))
        }
        Value::Object(members) => members.iter().find_map(|(name, member)| {
            if name.contains('\0') { Some(String::new()) } else { nested(excerpt(name), member) }
        }),
    }
}

/// Removes NUL characters from all texts.
pub(crate) fn strip_nul(value: Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
        Value::String(text) => Value::String(text.replace('\0', "")),
        Value::Array(items) => items.into_iter().map(strip_nul).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, member)| (name.replace('\0', ""), strip_nul(member)))
            .collect(),
    }
}

/// Parses a body that must be an object. `what` names it in messages.
///
/// # Errors
/// 400 if it is not an object.
pub fn parse_object(body: &[u8], what: &str) -> Result<Map<String, Value>, WireError> {
    expect_object(parse_body(body)?, what)
}

/// Converts a body into a type. The error names the field.
pub fn parse_fields<T: DeserializeOwned>(body: Value) -> Result<T, WireError> {
    /// Texts of the client are part of the message.
    const MAX_MESSAGE: usize = 200;
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let message: String = error.inner().to_string().chars().take(MAX_MESSAGE).collect();
        if path == "." {
            WireError::invalid(message)
        } else {
            WireError::invalid_field(&path, &message)
        }
    })
}

/// The members of a value that must be an object.
pub(crate) fn expect_object(value: Value, what: &str) -> Result<Map<String, Value>, WireError> {
    match value {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(WireError::invalid(format!("The body of a {what} request must be a JSON object")))
        }
    }
}

/// Rejects bodies nested deeper than [`MAX_NESTING`] before any recursive code handles them, and bodies with
/// more than [`MAX_VALUES`] before they are parsed. Brackets and commas inside strings do not count.
/// Returns whether a string contains an escaped NUL character; an unescaped one is invalid JSON.
fn check_nesting(body: &[u8]) -> Result<bool, WireError> {
    let mut depth = 0_usize;
    let mut values = 1_usize;
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
                values += if *byte == b'{' { OBJECT_VALUES } else { 1 };
                if depth > MAX_NESTING {
                    return Err(WireError::body_too_deep(MAX_NESTING));
                }
            }
            b',' => values += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if values > MAX_VALUES {
            let problem = format!("The request body has more than {MAX_VALUES} values.");
            return Err(WireError::invalid(problem));
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
    fn limits_the_number_of_values() {
        let list = |length: usize| format!("[{}]", vec!["0"; length].join(","));
        assert!(parse_body(list(MAX_VALUES - 2).as_bytes()).is_ok());
        let objects = format!("[{}0]", "{},".repeat(MAX_VALUES / OBJECT_VALUES));
        for body in [list(MAX_VALUES), objects] {
            assert_eq!(parse_body(body.as_bytes()).unwrap_err().status(), 400);
        }
        let text = format!("\"{}\"", ",[{".repeat(MAX_VALUES));
        assert!(parse_body(text.as_bytes()).is_ok(), "a long text is one value");
    }

    #[test]
    fn locates_nul_characters() {
        for (body, place) in [
            (r#"{"a":"x\u0000"}"#, Some("a")),
            (r#"{"a":{"b":[1,{"c":"\u0000"}]}}"#, Some("a.b[1].c")),
            (r#"{"a":[["\u0000"]]}"#, Some("a[0][0]")),
            (r#"{"a":{"\u0000":1}}"#, Some("a")),
            (r#"{"\u0000":1}"#, Some("the body")),
            (r#""\u0000""#, Some("the body")),
            // An escaped backslash followed by letters.
            (r#"{"a":"\\u0000"}"#, None),
            (r#"{"a":"\u00000"}"#, Some("a")),
            (r#"{"a":"\u0001\n"}"#, None),
        ] {
            match (parse_body(body.as_bytes()), place) {
                (Ok(_), None) => {}
                (Err(error), Some(place)) => {
                    assert_eq!(error.status(), 400, "{body}");
                    assert_eq!(
                        error.message(),
                        format!("Invalid value for {place}: {NUL_NOT_ALLOWED}")
                    );
                }
                (outcome, _) => panic!("{body}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn strips_nul_characters() {
        let value = serde_json::json!({"a\0b": ["\0", {"c": "d\0e"}], "f": 1});
        let clean = serde_json::json!({"ab": ["", {"c": "de"}], "f": 1});
        assert_eq!(strip_nul(value), clean);
    }
}
