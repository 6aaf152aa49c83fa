// SPDX-License-Identifier: Apache-2.0
//! What the ramdisk says about itself, and the raw output of its tools.

use serde_json::{Map, Value};

use super::HookFailure;
use crate::draft::Draft;
use crate::findings::Level;

/// Longer than any message worth reading.
const MAX_ERROR_CHARS: usize = 2000;

/// Fails if the ramdisk reported an error.
pub(super) fn error(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let text = match draft.plugin_data.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => return Ok(()),
        Some(Value::String(text)) if text.is_empty() => return Ok(()),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    Err(HookFailure::Ramdisk(text.chars().take(MAX_ERROR_CHARS).collect()))
}

/// Turns the records `[a, b, c, value]` of `data` into `extra`: `{a: {b: {c: value}}}`.
pub(super) fn extra_hardware(draft: &mut Draft<'_>) -> Result<(), HookFailure> {
    let strict = draft.settings.extra_hardware_strict;
    let Some(data) = draft.plugin_data.remove("data") else {
        draft.note(Level::Warning, "the ramdisk sent no extra hardware data".to_owned());
        return Ok(());
    };
    let records: Option<Vec<&Vec<Value>>> = data.as_array().and_then(|records| {
        let good = |record: &Vec<Value>| !strict || record.len() == 4;
        records.iter().map(|record| record.as_array().filter(|record| good(record))).collect()
    });
    let Some(records) = records else {
        let text = "the extra hardware data is not a list of records; it was left out of `extra`";
        draft.note(Level::Warning, text.to_owned());
        if !strict {
            draft.plugin_data.insert("data".to_owned(), data);
        }
        return Ok(());
    };
    let mut extra = Map::new();
    let mut ignored = 0;
    for record in records.iter().filter(|record| !record.is_empty()) {
        if file(&mut extra, record).is_none() {
            ignored += 1;
        }
    }
    let text = format!("extra hardware data: {} records, {ignored} of them ignored", records.len());
    draft.plugin_data.insert("extra".to_owned(), extra.into());
    draft.note(if ignored == 0 { Level::Info } else { Level::Warning }, text);
    Ok(())
}

/// Puts one record in its place; none if it is not a record.
fn file(extra: &mut Map<String, Value>, record: &[Value]) -> Option<()> {
    let [class, subject, key, value, ..] = record else { return None };
    let inner = object_at(object_at(extra, &name(class)?)?, &name(subject)?)?;
    inner.insert(name(key)?, as_integer(value));
    Some(())
}

fn object_at<'a>(
    object: &'a mut Map<String, Value>,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    object.entry(key).or_insert_with(|| Map::new().into()).as_object_mut()
}

fn name(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whole numbers written as text or as fractions become numbers; all else stays.
fn as_integer(value: &Value) -> Value {
    let integer = match value {
        Value::String(text) => text.trim().parse::<i64>().ok(),
        Value::Number(number) if number.is_f64() => number
            .as_f64()
            .filter(|number| number.abs() < 9e15)
            .and_then(|number| format!("{:.0}", number.trunc()).parse().ok()),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    };
    integer.map_or_else(|| value.clone(), Value::from)
}
