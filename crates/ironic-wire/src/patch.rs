// SPDX-License-Identifier: Apache-2.0
//! JSON patches: `[{"op": "replace", "path": "/name", "value": "x"}, …]`.
//!
//! Only `add`, `replace` and `remove` exist here, as in Ironic. A patch is applied to the JSON of
//! the root fields it touches, and the outcome goes through the same setters as a body: either all
//! of it is taken or none.

use serde_json::{Map, Value};

use crate::body::{
    DEEPEST, Drafted, HAS_NUL, Parsed, Writable, current, parse_json, place_of_nul, set,
};
use crate::error::{WireError, excerpt};
use crate::field::{Field, Resource, find};
use crate::version::ApiVersion;

/// The most operations a patch may have.
const MOST_OPERATIONS: usize = 1_000;

/// Since when `~0` and `~1` may stand in a path.
const ESCAPES_SINCE: u16 = 98;

/// A patch that is well-formed in itself.
#[derive(Clone, PartialEq, Debug)]
pub struct Patch {
    operations: Vec<Operation>,
}

#[derive(Clone, PartialEq, Debug)]
struct Operation {
    kind: Kind,
    path: String,
    /// The path in parts, as written.
    parts: Vec<String>,
    value: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Add,
    Replace,
    Remove,
}

impl Patch {
    /// Reads the body of a `PATCH`.
    ///
    /// # Errors
    /// 400 when it is not a patch.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let Parsed { value, may_have_nul } = parse_json(body)?;
        let Value::Array(items) = value else {
            return Err(WireError::invalid("A patch must be a JSON array of operations"));
        };
        if items.len() > MOST_OPERATIONS {
            return Err(WireError::invalid(format!(
                "A patch can have at most {MOST_OPERATIONS} operations"
            )));
        }
        let operations = items
            .into_iter()
            .enumerate()
            .map(|(index, item)| {
                Operation::parse(item).map_err(|problem| {
                    WireError::invalid(format!("Patch operation {index}: {problem}"))
                })
            })
            .collect::<Result<Vec<Operation>, _>>()?;
        let cannot_be_kept = |operation: &&Operation| {
            operation.value.as_ref().is_some_and(|value| place_of_nul(value).is_some())
        };
        if may_have_nul && let Some(operation) = operations.iter().find(cannot_be_kept) {
            return Err(WireError::invalid_field(&excerpt(&operation.path), HAS_NUL));
        }
        Ok(Self { operations })
    }

    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Whether the root field `name` is touched.
    #[must_use]
    pub fn touches(&self, name: &str) -> bool {
        self.operations.iter().any(|operation| operation.parts[0] == name)
    }

    /// Whether removing the root field `name` is all that is asked for.
    #[must_use]
    pub fn only_removes(&self, name: &str) -> bool {
        self.removes(name) && self.operations.iter().all(|operation| operation.parts[0] == name)
    }

    /// Whether the root field `name` as a whole is removed and not set again afterwards.
    #[must_use]
    pub fn removes(&self, name: &str) -> bool {
        self.operations
            .iter()
            .rev()
            .find(|operation| operation.parts[0] == name)
            .is_some_and(|operation| operation.kind == Kind::Remove && operation.parts.len() == 1)
    }

    /// The value the root field `name` as a whole is last set to.
    #[must_use]
    pub fn value_of(&self, name: &str) -> Option<&Value> {
        self.operations
            .iter()
            .rev()
            .find(|operation| operation.parts[0] == name && operation.parts.len() == 1)?
            .value
            .as_ref()
    }

    /// Checks what is touched: 400 for what cannot be patched, 406 for what is of a later version.
    ///
    /// # Errors
    /// As said.
    pub fn check<R: Resource>(&self, version: ApiVersion) -> Result<(), WireError> {
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

    /// Applies the patch to a draft of the resource as it is now.
    ///
    /// # Errors
    /// 400 when it cannot be applied or what comes out is wrong, 406 for fields of a later version.
    pub fn apply<R: Writable>(
        &self,
        mut draft: R::Draft,
        version: ApiVersion,
    ) -> Result<Drafted<R>, WireError> {
        self.check::<R>(version)?;
        let mut document = Map::new();
        let mut before: Vec<(&'static Field<R>, Value)> = Vec::new();
        for operation in &self.operations {
            let field = operation.field::<R>()?;
            if !before.iter().any(|(seen, _)| seen.name == field.name) {
                let value = current::<R>(field, &draft, version);
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
            if depth(&value) >= DEEPEST {
                // Patch by patch, a field could become deeper than anybody can read.
                return Err(WireError::invalid_field(
                    field.name,
                    &format!("it would be nested deeper than {DEEPEST} levels"),
                ));
            }
            let changes = value != old;
            set::<R>(field, &mut draft, value, version)?;
            if changes {
                fields.push(field.name);
            }
        }
        R::complete(&mut draft, &fields, version)?;
        Ok(Drafted { draft, fields })
    }
}

impl Operation {
    fn parse(item: Value) -> Result<Self, String> {
        let Value::Object(mut members) = item else {
            return Err("it must be an object".to_owned());
        };
        let kind = match members.remove("op") {
            Some(Value::String(op)) => match op.as_str() {
                "add" => Kind::Add,
                "replace" => Kind::Replace,
                "remove" => Kind::Remove,
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
        if value.is_none() && kind != Kind::Remove {
            return Err(format!("a value for path '{}' is missing", excerpt(&path)));
        }
        let parts = split(&path).ok_or_else(|| {
            format!(
                "path '{}' must be one or more /name, made of letters, digits, _ and -",
                excerpt(&path)
            )
        })?;
        Ok(Self { kind, path, parts, value })
    }

    fn field<R: Resource>(&self) -> Result<&'static Field<R>, WireError> {
        find::<R>(&self.parts[0]).filter(|field| field.patch.is_some()).ok_or_else(|| {
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
        let Some((last, way)) = inner.split_last() else {
            match (self.kind, &self.value) {
                (Kind::Add | Kind::Replace, Some(value)) => {
                    document.insert(root.clone(), value.clone());
                }
                (Kind::Remove, _) | (_, None) => {
                    document.remove(root);
                }
            }
            return Ok(());
        };
        let mut place =
            document.get_mut(root).ok_or_else(|| format!("'{root}' has been removed"))?;
        // A null object counts as the empty one, as it is shown.
        if place.is_null() {
            *place = Value::Object(Map::new());
        }
        for part in way {
            place = step_into(place, part)
                .ok_or_else(|| format!("member '{}' not found", excerpt(part)))?;
        }
        match place {
            Value::Object(map) => self.apply_to_object(map, last),
            Value::Array(items) => self.apply_to_array(items, last),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Err(format!("there is nothing inside which '{}' could be", excerpt(last)))
            }
        }
    }

    fn apply_to_object(&self, map: &mut Map<String, Value>, key: &str) -> Result<(), String> {
        let exists = map.contains_key(key);
        match (self.kind, &self.value) {
            (Kind::Add, Some(value)) => {
                map.insert(key.to_owned(), value.clone());
                Ok(())
            }
            (Kind::Replace, Some(value)) if exists => {
                map.insert(key.to_owned(), value.clone());
                Ok(())
            }
            (Kind::Remove, _) if exists => {
                map.remove(key);
                Ok(())
            }
            (Kind::Replace, _) => {
                Err(format!("can't replace a non-existent object '{}'", excerpt(key)))
            }
            (Kind::Remove, _) => {
                Err(format!("can't remove a non-existent object '{}'", excerpt(key)))
            }
            (Kind::Add, None) => Err("a value is missing".to_owned()),
        }
    }

    fn apply_to_array(&self, items: &mut Vec<Value>, key: &str) -> Result<(), String> {
        if let (Kind::Add, Some(value), "-") = (self.kind, &self.value, key) {
            items.push(value.clone());
            return Ok(());
        }
        let index = array_index(key)
            .ok_or_else(|| format!("'{}' is not an index of an array", excerpt(key)))?;
        let outside = || format!("index {index} is outside of the array");
        match (self.kind, &self.value) {
            (Kind::Add, Some(value)) if index <= items.len() => {
                items.insert(index, value.clone());
                Ok(())
            }
            (Kind::Replace, Some(value)) => {
                *items.get_mut(index).ok_or_else(outside)? = value.clone();
                Ok(())
            }
            (Kind::Remove, _) if index < items.len() => {
                items.remove(index);
                Ok(())
            }
            (Kind::Add | Kind::Replace | Kind::Remove, _) => Err(outside()),
        }
    }
}

/// The parts of a path, or none if it breaks the rules. `~0` and `~1` stand for `~` and `/`.
fn split(path: &str) -> Option<Vec<String>> {
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

fn step_into<'a>(place: &'a mut Value, part: &str) -> Option<&'a mut Value> {
    match place {
        Value::Object(map) => map.get_mut(part),
        Value::Array(items) => items.get_mut(array_index(part)?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// How many arrays and objects are inside each other.
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
