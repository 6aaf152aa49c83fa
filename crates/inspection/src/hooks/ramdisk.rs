// SPDX-License-Identifier: Apache-2.0
//! Hooks for the ramdisk's error message and the output of `hardware-detect`.

use serde_json::{Map, Value};

use super::HookError;
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::InspectionLogLevel;

/// Longer error messages are truncated.
const MAX_ERROR_CHARS: usize = 2000;

/// Fails if the ramdisk reported an error.
pub(super) fn error(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let text = match draft.plugin_data.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => return Ok(()),
        Some(Value::String(text)) if text.is_empty() => return Ok(()),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    Err(HookError::Ramdisk(text.chars().take(MAX_ERROR_CHARS).collect()))
}

/// Converts the records `[a, b, c, value]` of `data` to `extra`: `{a: {b: {c: value}}}`.
pub(super) fn extra_hardware(draft: &mut InspectionDraft<'_>) -> Result<(), HookError> {
    let strict = draft.settings.extra_hardware_strict;
    let Some(data) = draft.plugin_data.remove("data") else {
        draft
            .log(InspectionLogLevel::Warning, "the ramdisk sent no extra hardware data".to_owned());
        return Ok(());
    };
    let records: Option<Vec<&Vec<Value>>> = data.as_array().and_then(|records| {
        let good = |record: &Vec<Value>| !strict || record.len() == 4;
        records.iter().map(|record| record.as_array().filter(|record| good(record))).collect()
    });
    let Some(records) = records else {
        let text = "the extra hardware data is not a list of records; it was left out of `extra`";
        draft.log(InspectionLogLevel::Warning, text.to_owned());
        if !strict {
            draft.plugin_data.insert("data".to_owned(), data);
        }
        return Ok(());
    };
    let mut extra = Map::new();
    let mut ignored = 0;
    for record in records.iter().filter(|record| !record.is_empty()) {
        if insert_record(&mut extra, record).is_none() {
            ignored += 1;
        }
    }
    let text = format!("extra hardware data: {} records, {ignored} of them ignored", records.len());
    draft.plugin_data.insert("extra".to_owned(), extra.into());
    draft.log(
        if ignored == 0 { InspectionLogLevel::Info } else { InspectionLogLevel::Warning },
        text,
    );
    Ok(())
}

/// Inserts a record. Returns `None` if it is malformed.
fn insert_record(extra: &mut Map<String, Value>, record: &[Value]) -> Option<()> {
    let [class, subject, key, value, ..] = record else { return None };
    let inner = object_at(object_at(extra, &key_text(class)?)?, &key_text(subject)?)?;
    inner.insert(key_text(key)?, as_integer(value));
    Some(())
}

fn object_at<'a>(
    object: &'a mut Map<String, Value>,
    key: &str,
) -> Option<&'a mut Map<String, Value>> {
    object.entry(key).or_insert_with(|| Map::new().into()).as_object_mut()
}

fn key_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

/// Converts integers written as text, and truncates fractions; other values are unchanged.
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
