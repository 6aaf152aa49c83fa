// SPDX-License-Identifier: Apache-2.0
//! JSON patches: `[{"op": "replace", "path": "/name", "value": "x"}, …]`.
//!
//! As in Ironic, only `add`, `replace` and `remove` are supported. A patch is applied to the JSON of
//! the root fields it touches, and the result goes through the same setters as a body. It is applied
//! completely or not at all.

use serde_json::{Map, Value};

use crate::body::{
    MAX_NESTING, NUL_NOT_ALLOWED, ParsedJson, ResourceDraft, WritableResource, current_value,
    find_nul, parse_json, set_field,
};
use crate::error::{WireError, excerpt};
use crate::field::{ResourceField, WireResource, find_field};
use crate::version::ApiVersion;

/// Maximum number of operations in a patch.
const MAX_OPERATIONS: usize = 1_000;

/// First microversion that accepts `~0` and `~1` in a path.
const ESCAPES_SINCE: u16 = 98;

/// A syntactically valid patch.
#[derive(Clone, PartialEq, Debug)]
pub struct Patch {
    operations: Vec<PatchOperation>,
}

#[derive(Clone, PartialEq, Debug)]
struct PatchOperation {
    op: PatchOp,
    path: String,
    /// The unescaped segments of the path.
    parts: Vec<String>,
    value: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PatchOp {
    Add,
    Replace,
    Remove,
}

impl Patch {
    /// Parses the body of a `PATCH`.
    ///
    /// # Errors
    /// 400 if it is not a valid patch.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let ParsedJson { value, may_have_nul } = parse_json(body)?;
        let Value::Array(items) = value else {
            return Err(WireError::invalid("A patch must be a JSON array of operations"));
        };
        if items.len() > MAX_OPERATIONS {
            return Err(WireError::invalid(format!(
                "A patch can have at most {MAX_OPERATIONS} operations"
            )));
        }
        let operations = items
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                PatchOperation::parse(item).map_err(|error| {
                    WireError::invalid(format!("Patch operation {index}: {error}"))
                })
            })
            .collect::<Result<Vec<PatchOperation>, _>>()?;
        let has_nul = |operation: &&PatchOperation| {
            operation.value.as_ref().is_some_and(|value| find_nul(value).is_some())
        };
        if may_have_nul && let Some(operation) = operations.iter().find(has_nul) {
            return Err(WireError::invalid_field(&excerpt(&operation.path), NUL_NOT_ALLOWED));
        }
        Ok(Self { operations })
    }

    /// Whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// The root fields that the operations touch, in their order and with repetitions.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().map(|operation| operation.parts[0].as_str())
    }

    /// Whether an operation touches the root field `name`.
    #[must_use]
    pub fn touches(&self, name: &str) -> bool {
        self.operations.iter().any(|operation| operation.parts[0] == name)
    }

    /// Whether the patch removes the root field `name` and nothing else.
    #[must_use]
    pub fn only_removes(&self, name: &str) -> bool {
        self.removes(name) && self.operations.iter().all(|operation| operation.parts[0] == name)
    }

    /// Whether the last operation on the root field `name` removes it completely.
    #[must_use]
    pub fn removes(&self, name: &str) -> bool {
        self.operations
            .iter()
            .rev()
            .find(|operation| operation.parts[0] == name)
            .is_some_and(|operation| operation.op == PatchOp::Remove && operation.parts.len() == 1)
    }

    /// The last value assigned to the whole root field `name`.
    #[must_use]
    pub fn value_of(&self, name: &str) -> Option<&Value> {
        self.operations
            .iter()
            .rev()
            .find(|operation| operation.parts[0] == name && operation.parts.len() == 1)?
            .value
            .as_ref()
    }

    /// Checks that the touched fields can be patched.
    ///
    /// # Errors
    /// 400 for fields that cannot be patched, 406 for fields of a later version.
    pub fn check<R: WireResource>(&self, version: ApiVersion) -> Result<(), WireError> {
        for operation in &self.operations {
            if operation.path.contains('~') && !version.has(ESCAPES_SINCE) {
                return Err(WireError::too_new("~ in the path of a patch", ESCAPES_SINCE));
            }
            let field = operation.field::<R>()?;
            if let Some(since) = field.patch
                && !version.has(since)
            {
                return Err(WireError::too_new(field.name, since));
            }
        }
        Ok(())
    }

    /// Applies the patch to a draft of the existing resource.
    ///
    /// # Errors
    /// 400 if it cannot be applied or the result is invalid, 406 for fields of a later version.
    pub fn apply<R: WritableResource>(
        &self,
        mut draft: R::Draft,
        version: ApiVersion,
    ) -> Result<ResourceDraft<R>, WireError> {
        self.check::<R>(version)?;
        let mut document = Map::new();
        let mut before: Vec<(&'static ResourceField<R>, Value)> = Vec::new();
        for operation in &self.operations {
            let field = operation.field::<R>()?;
            if !before.iter().any(|(seen, _)| seen.name == field.name) {
                let value = current_value::<R>(field, &draft, version);
                document.insert(field.name.to_owned(), value.clone());
                before.push((field, value));
            }
            operation.apply(&mut document).map_err(|reason| {
                WireError::invalid(format!(
                    "Couldn't apply patch operation on '{}'. Reason: {reason}",
                    excerpt(&operation.path)
                ))
            })?;
        }
        let mut fields = Vec::with_capacity(before.len());
        for (field, old) in before {
            let value = document.remove(field.name).unwrap_or(Value::Null);
            if value.is_null() && field.required {
                return Err(WireError::invalid(format!(
                    "'{}' is mandatory and can not be removed",
                    field.name
                )));
            }
            if depth(&value) >= MAX_NESTING {
                // Several patches could build a field that is deeper than a body may be.
                return Err(WireError::invalid_field(
                    field.name,
                    &format!("it would be nested deeper than {MAX_NESTING} levels"),
                ));
            }
            let changed = value != old;
            set_field::<R>(field, &mut draft, value, version)?;
            if changed {
                fields.push(field.name);
            }
        }
        R::complete(&mut draft, &fields, version)?;
        Ok(ResourceDraft { draft, fields })
    }
}

impl PatchOperation {
    fn parse(item: Value) -> Result<Self, String> {
        let Value::Object(mut members) = item else {
            return Err("it must be an object".to_owned());
        };
        let kind = match members.remove("op") {
            Some(Value::String(op)) => match op.as_str() {
                "add" => PatchOp::Add,
                "replace" => PatchOp::Replace,
                "remove" => PatchOp::Remove,
                other => {
                    return Err(format!(
                        "op '{}' is not one of add, replace, remove",
                        excerpt(other)
                    ));
                }
            },
            Some(_) => return Err("op must be a string".to_owned()),
            None => return Err("op is missing".to_owned()),
        };
        let path = match members.remove("path") {
            Some(Value::String(path)) => path,
            Some(_) => return Err("path must be a string".to_owned()),
            None => return Err("path is missing".to_owned()),
        };
        let value = members.remove("value");
        if let Some(name) = members.keys().next() {
            return Err(format!("'{}' was not expected", excerpt(name)));
        }
        if value.is_none() && kind != PatchOp::Remove {
            return Err(format!("a value for path '{}' is missing", excerpt(&path)));
        }
        let parts = split_path(&path).ok_or_else(|| {
            format!(
                "path '{}' must be one or more /name, made of letters, digits, _ and -",
                excerpt(&path)
            )
        })?;
        Ok(Self { op: kind, path, parts, value })
    }

    fn field<R: WireResource>(&self) -> Result<&'static ResourceField<R>, WireError> {
        find_field::<R>(&self.parts[0]).filter(|field| field.patch.is_some()).ok_or_else(|| {
            let allowed: Vec<&str> = R::fields()
                .iter()
                .filter(|field| field.patch.is_some())
                .map(|field| field.name)
                .collect();
            WireError::invalid(format!(
                "Cannot patch {}. Only the following can be updated: {}",
                excerpt(&self.path),
                allowed.join(", ")
            ))
        })
    }

    fn apply(&self, document: &mut Map<String, Value>) -> Result<(), String> {
        let (root, inner) = (&self.parts[0], &self.parts[1..]);
        let Some((last, parents)) = inner.split_last() else {
            match (self.op, &self.value) {
                (PatchOp::Add | PatchOp::Replace, Some(value)) => {
                    document.insert(root.clone(), value.clone());
                }
                (PatchOp::Remove, _) | (_, None) => {
                    document.remove(root);
                }
            }
            return Ok(());
        };
        let mut target =
            document.get_mut(root).ok_or_else(|| format!("'{root}' has been removed"))?;
        // A null object is shown as empty, so it can be patched like one.
        if target.is_null() {
            *target = Value::Object(Map::new());
        }
        for part in parents {
            target = descend(target, part)
                .ok_or_else(|| format!("member '{}' not found", excerpt(part)))?;
        }
        match target {
            Value::Object(map) => self.apply_to_object(map, last),
            Value::Array(items) => self.apply_to_array(items, last),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Err(format!("there is nothing inside which '{}' could be", excerpt(last)))
            }
        }
    }

    fn apply_to_object(&self, map: &mut Map<String, Value>, key: &str) -> Result<(), String> {
        let exists = map.contains_key(key);
        match (self.op, &self.value) {
            (PatchOp::Add, Some(value)) => {
                map.insert(key.to_owned(), value.clone());
                Ok(())
            }
            (PatchOp::Replace, Some(value)) if exists => {
                map.insert(key.to_owned(), value.clone());
                Ok(())
            }
            (PatchOp::Remove, _) if exists => {
                map.remove(key);
                Ok(())
            }
            (PatchOp::Replace, _) => {
                Err(format!("can't replace a non-existent object '{}'", excerpt(key)))
            }
            (PatchOp::Remove, _) => {
                Err(format!("can't remove a non-existent object '{}'", excerpt(key)))
            }
            (PatchOp::Add, None) => Err("a value is missing".to_owned()),
        }
    }

    fn apply_to_array(&self, items: &mut Vec<Value>, key: &str) -> Result<(), String> {
        if let (PatchOp::Add, Some(value), "-") = (self.op, &self.value, key) {
            items.push(value.clone());
            return Ok(());
        }
        let index = array_index(key)
            .ok_or_else(|| format!("'{}' is not an index of an array", excerpt(key)))?;
        let outside = || format!("index {index} is outside of the array");
        match (self.op, &self.value) {
            (PatchOp::Add, Some(value)) if index <= items.len() => {
                items.insert(index, value.clone());
                Ok(())
            }
            (PatchOp::Replace, Some(value)) => {
                *items.get_mut(index).ok_or_else(outside)? = value.clone();
                Ok(())
            }
            (PatchOp::Remove, _) if index < items.len() => {
                items.remove(index);
                Ok(())
            }
            (PatchOp::Add | PatchOp::Replace | PatchOp::Remove, _) => Err(outside()),
        }
    }
}

/// The unescaped segments of a path (`~0` is `~`, `~1` is `/`); `None` if it is invalid.
fn split_path(path: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    let allowed = |part: &&str| {
        let plain = part.replace("~0", "").replace("~1", "");
        !part.is_empty() && plain.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    };
    if !parts.iter().all(allowed) {
        return None;
    }
    Some(parts.into_iter().map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
}

fn descend<'a>(target: &'a mut Value, part: &str) -> Option<&'a mut Value> {
    match target {
        Value::Object(map) => map.get_mut(part),
        Value::Array(items) => items.get_mut(array_index(part)?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Nesting depth of arrays and objects.
fn depth(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
    }
}

fn array_index(part: &str) -> Option<usize> {
    part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok()).flatten()
}
