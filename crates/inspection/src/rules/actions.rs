// SPDX-License-Identifier: Apache-2.0
//! The sixteen actions of inspection rules.

use std::collections::BTreeMap;

use agent_protocol::parse_bool;
use node_model::Port;
use serde_json::{Map, Value};

use super::operation::{
    CompiledOperation, OperationArgs, OperationDefinitionError, OperationError, OperationSignature,
    arg, entry_and_op, text_arg,
};
use super::values;
use crate::attributes;
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::{ApiCall, InspectionLogLevel, ObjectField};

/// Deeper paths are rejected: they would create values too deeply nested to parse again.
const MAX_PATH_PARTS: usize = 32;
/// Ironic's limits.
const MAX_TRAITS: usize = 50;
const MAX_TRAIT_CHARS: usize = 255;

#[derive(Debug)]
pub(super) struct CompiledAction {
    definition: &'static ActionDefinition,
    operation: CompiledOperation,
}

type ActionFn = fn(&mut InspectionDraft<'_>, &OperationArgs) -> Result<(), OperationError>;

#[derive(Debug)]
struct ActionDefinition {
    signature: OperationSignature,
    run: ActionFn,
}

const fn definition(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    templates: &'static [&'static str],
    run: ActionFn,
) -> ActionDefinition {
    ActionDefinition { signature: OperationSignature { name, required, optional, templates }, run }
}

static ACTIONS: &[ActionDefinition] = &[
    definition("fail", &["msg"], &[], &[], fail),
    definition("log", &["msg"], &["level"], &["msg"], log),
    definition("set-attribute", &["path", "value"], &[], &["value"], set_attribute),
    definition("extend-attribute", &["path", "value"], &["unique"], &["value"], extend_attribute),
    definition("del-attribute", &["path"], &[], &[], del_attribute),
    definition("set-capability", &["name", "value"], &[], &["value"], set_capability),
    definition("unset-capability", &["name"], &[], &[], unset_capability),
    definition("add-trait", &["name"], &[], &[], add_trait),
    definition("remove-trait", &["name"], &[], &[], remove_trait),
    definition("set-plugin-data", &["path", "value"], &[], &["value"], set_plugin_data),
    definition(
        "extend-plugin-data",
        &["path", "value"],
        &["unique"],
        &["value"],
        extend_plugin_data,
    ),
    definition("unset-plugin-data", &["path"], &[], &[], unset_plugin_data),
    definition(
        "set-port-attribute",
        &["port_id", "path", "value"],
        &[],
        &["value"],
        set_port_attribute,
    ),
    definition(
        "extend-port-attribute",
        &["port_id", "path", "value"],
        &["unique"],
        &["value"],
        extend_port_attribute,
    ),
    definition("del-port-attribute", &["port_id", "path"], &[], &[], del_port_attribute),
    definition(
        "api-call",
        &["url"],
        &["headers", "proxies", "timeout", "retries", "backoff_factor"],
        &["url"],
        api_call,
    ),
];

impl CompiledAction {
    pub(super) fn compile(entry: &Value) -> Result<Self, OperationDefinitionError> {
        let (entry, op) = entry_and_op(entry)?;
        let definition =
            ACTIONS.iter().find(|action| action.signature.name == op).ok_or_else(|| {
                let known: Vec<&str> = ACTIONS.iter().map(|action| action.signature.name).collect();
                OperationDefinitionError::Unknown {
                    what: "action",
                    name: op.chars().take(80).collect(),
                    known: known.join(", "),
                }
            })?;
        Ok(Self {
            definition,
            operation: CompiledOperation::compile(&definition.signature, entry)?,
        })
    }

    pub(super) fn op(&self) -> &'static str {
        self.operation.name()
    }

    pub(super) fn run(
        &self,
        draft: &mut InspectionDraft<'_>,
        mask: bool,
    ) -> Result<(), OperationError> {
        for item in self.operation.iterations() {
            let args = self.operation.args(draft, item, mask);
            (self.definition.run)(draft, &args)?;
        }
        Ok(())
    }
}

fn fail(_: &mut InspectionDraft<'_>, args: &OperationArgs) -> Result<(), OperationError> {
    Err(OperationError::FailAction(values::python_str(arg(args, "msg"), false)))
}

fn log(draft: &mut InspectionDraft<'_>, args: &OperationArgs) -> Result<(), OperationError> {
    let level = match args
        .get("level")
        .map(|level| values::python_str(level, false).to_lowercase())
        .as_deref()
    {
        Some("debug") => InspectionLogLevel::Debug,
        None | Some("info") => InspectionLogLevel::Info,
        Some("warning") => InspectionLogLevel::Warning,
        Some("error" | "critical") => InspectionLogLevel::Error,
        Some(_) => {
            let expected = "debug, info, warning, error or critical";
            return Err(OperationError::Argument { name: "level", expected });
        }
    };
    draft.log(level, values::python_str(arg(args, "msg"), false));
    Ok(())
}

fn set_attribute(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::from_args(args)?;
    let value = arg(args, "value");
    match (ObjectField::from_name(path.first), path.rest.is_empty()) {
        (Some(field), true) => *draft.object(field) = path.object(value)?,
        (Some(field), false) => path.set(draft.object(field), value.clone())?,
        (None, true) => draft.set_attribute(path.first, value)?,
        (None, false) => return Err(path.error("leads into something that is not an object")),
    }
    draft.log(InspectionLogLevel::Info, format!("set {path}"));
    Ok(())
}

fn extend_attribute(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::from_args(args)?;
    let field = ObjectField::from_name(path.first).filter(|_| !path.rest.is_empty());
    let field = field.ok_or_else(|| path.error("does not lead to a list"))?;
    path.extend(draft.object(field), args)?;
    draft.log(InspectionLogLevel::Info, format!("extended {path}"));
    Ok(())
}

fn del_attribute(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::from_args(args)?;
    match (ObjectField::from_name(path.first), path.rest.is_empty()) {
        (Some(field), true) => draft.object(field).clear(),
        (Some(field), false) => path.remove(draft.object(field))?,
        (None, true) => draft.set_attribute(path.first, &Value::Null)?,
        (None, false) => return Err(path.error("leads into something that is not an object")),
    }
    draft.log(InspectionLogLevel::Info, format!("deleted {path}"));
    Ok(())
}

fn set_capability(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let name = text_arg(args, "name")?;
    let value = values::python_str(arg(args, "value"), false);
    if name.is_empty() || name.contains([',', ':']) {
        return Err(OperationError::Argument {
            name: "name",
            expected: "text without commas and colons",
        });
    }
    if value.contains(',') {
        return Err(OperationError::Argument { name: "value", expected: "text without commas" });
    }
    let mut capabilities = draft.capabilities()?;
    capabilities.set(name, &value);
    draft.write_capabilities(&capabilities);
    draft.log(InspectionLogLevel::Info, format!("set capability {name}"));
    Ok(())
}

fn unset_capability(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let name = text_arg(args, "name")?;
    let mut capabilities = draft.capabilities()?;
    if capabilities.remove(name) {
        draft.write_capabilities(&capabilities);
        draft.log(InspectionLogLevel::Info, format!("removed capability {name}"));
    }
    Ok(())
}

fn add_trait(draft: &mut InspectionDraft<'_>, args: &OperationArgs) -> Result<(), OperationError> {
    let name = text_arg(args, "name")?;
    if !is_trait(name) {
        let expected = "a trait: capital letters, digits and underscores";
        return Err(OperationError::Argument { name: "name", expected });
    }
    if let Err(position) = draft.traits.binary_search_by(|known| known.as_str().cmp(name)) {
        if draft.traits.len() >= MAX_TRAITS {
            return Err(OperationError::TooManyTraits(MAX_TRAITS));
        }
        draft.traits.insert(position, name.to_owned());
        draft.log(InspectionLogLevel::Info, format!("added trait {name}"));
    }
    Ok(())
}

/// Returns true if `name` is a valid trait name.
pub(crate) fn is_trait(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.len() <= MAX_TRAIT_CHARS && name.bytes().all(is_valid)
}

fn remove_trait(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let name = text_arg(args, "name")?;
    let before = draft.traits.len();
    draft.traits.retain(|known| known != name);
    let text = if draft.traits.len() < before { "removed trait" } else { "there was no trait" };
    draft.log(InspectionLogLevel::Info, format!("{text} {name}"));
    Ok(())
}

fn set_plugin_data(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::in_plugin_data(args)?;
    path.set(&mut draft.plugin_data, arg(args, "value").clone())?;
    draft.log(InspectionLogLevel::Info, format!("set plugin data {path}"));
    Ok(())
}

fn extend_plugin_data(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::in_plugin_data(args)?;
    path.extend(&mut draft.plugin_data, args)?;
    draft.log(InspectionLogLevel::Info, format!("extended plugin data {path}"));
    Ok(())
}

/// Also removes the parent object if it becomes empty.
fn unset_plugin_data(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::in_plugin_data(args)?;
    if path.remove(&mut draft.plugin_data).is_err() {
        draft.log(InspectionLogLevel::Warning, format!("there was no plugin data {path}"));
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        let grandparent = parent.parent_object(&mut draft.plugin_data)?;
        if grandparent
            .get(parent.last())
            .is_some_and(|value| value.as_object().is_some_and(Map::is_empty))
        {
            grandparent.remove(parent.last());
        }
    }
    draft.log(InspectionLogLevel::Info, format!("removed plugin data {path}"));
    Ok(())
}

fn set_port_attribute(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::from_args(args)?;
    let value = arg(args, "value");
    let port = port(draft, args)?;
    match (attributes::port_object(port, path.first), path.rest.is_empty()) {
        (Some(object), true) => *object = path.object(value)?.into(),
        (Some(_), false) => edit_port(port, &path, |object| path.set(object, value.clone()))?,
        (None, true) => attributes::write_port(port, path.first, value)?,
        (None, false) => return Err(path.error("leads into something that is not an object")),
    }
    let text = format!("set {path} of port {}", port.address);
    draft.log(InspectionLogLevel::Info, text);
    Ok(())
}

fn extend_port_attribute(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::from_args(args)?;
    let port = port(draft, args)?;
    if path.rest.is_empty() {
        return Err(path.error("does not lead to a list"));
    }
    edit_port(port, &path, |object| path.extend(object, args))?;
    let text = format!("extended {path} of port {}", port.address);
    draft.log(InspectionLogLevel::Info, text);
    Ok(())
}

fn del_port_attribute(
    draft: &mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<(), OperationError> {
    let path = AttributePath::from_args(args)?;
    let port = port(draft, args)?;
    match (attributes::port_object(port, path.first), path.rest.is_empty()) {
        (Some(object), true) => *object = Map::new().into(),
        (Some(_), false) => edit_port(port, &path, |object| path.remove(object))?,
        (None, true) => attributes::write_port(port, path.first, &Value::Null)?,
        (None, false) => return Err(path.error("leads into something that is not an object")),
    }
    let text = format!("deleted {path} of port {}", port.address);
    draft.log(InspectionLogLevel::Info, text);
    Ok(())
}

/// Adds the request to the result; the caller sends it.
fn api_call(draft: &mut InspectionDraft<'_>, args: &OperationArgs) -> Result<(), OperationError> {
    let invalid = |name, expected| OperationError::Argument { name, expected };
    let number = |name: &'static str, default: f64| match args.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value
            .as_f64()
            .or_else(|| value.as_str()?.trim().parse().ok())
            .filter(|number| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| invalid(name, "a number that is not negative")),
    };
    let texts = |name: &'static str| match args.get(name) {
        None | Some(Value::Null) => Ok::<_, OperationError>(BTreeMap::new()),
        Some(value) => {
            let object = value.as_object().ok_or_else(|| invalid(name, "an object"))?;
            Ok(object
                .iter()
                .map(|(key, value)| (key.clone(), values::python_str(value, false)))
                .collect())
        }
    };
    let url = text_arg(args, "url")?;
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(invalid("url", "an http or https address"));
    }
    let timeout = number("timeout", 5.0)?;
    if timeout <= 0.0 {
        return Err(invalid("timeout", "more than zero"));
    }
    let retries = format!("{:.0}", number("retries", 3.0)?.trunc());
    let call = ApiCall {
        url: url.to_owned(),
        headers: texts("headers")?,
        proxies: texts("proxies")?,
        timeout,
        retries: retries.parse().map_err(|_| invalid("retries", "a small number"))?,
        backoff_factor: number("backoff_factor", 0.3)?,
    };
    draft.log(InspectionLogLevel::Info, format!("requests {call:?}"));
    draft.api_calls.push(call);
    Ok(())
}

/// Returns the port whose id or MAC address is in `port_id`.
fn port<'a>(
    draft: &'a mut InspectionDraft<'_>,
    args: &OperationArgs,
) -> Result<&'a mut Port, OperationError> {
    let requested = text_arg(args, "port_id")?;
    let port = draft.ports.iter_mut().filter(|port| !port.deleted).find(|port| {
        let by_id = !port.is_new() && port.port.id.to_string() == requested;
        by_id || port.port.address.as_str().eq_ignore_ascii_case(requested)
    });
    port.map(|port| &mut port.port)
        .ok_or_else(|| OperationError::NoPort(requested.chars().take(80).collect()))
}

fn edit_port(
    port: &mut Port,
    path: &AttributePath<'_>,
    edit: impl FnOnce(&mut Map<String, Value>) -> Result<(), OperationError>,
) -> Result<(), OperationError> {
    let object = attributes::port_object(port, path.first)
        .ok_or_else(|| path.error("leads into something that is not an object"))?;
    let mut parsed = object.parse();
    edit(&mut parsed)?;
    *object = parsed.into();
    Ok(())
}

/// A path to a value: an attribute and nested members. In plugin data, all parts are members.
struct AttributePath<'a> {
    text: &'a str,
    first: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> AttributePath<'a> {
    /// Parses `driver_info/ipmi_address` or `driver_info.ipmi_address`.
    fn from_args(args: &'a OperationArgs) -> Result<Self, OperationError> {
        let text = text_arg(args, "path")?;
        let mut parts = if text.contains('/') {
            Self::split(text, text.trim_matches('/').split('/'))?
        } else {
            Self::split(text, text.split('.'))?
        };
        Ok(Self { text, first: parts.remove(0), rest: parts })
    }

    fn in_plugin_data(args: &'a OperationArgs) -> Result<Self, OperationError> {
        let text = text_arg(args, "path")?;
        Ok(Self { text, first: "", rest: Self::split(text, text.split('.'))? })
    }

    fn split(
        text: &str,
        parts: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, OperationError> {
        let parts: Vec<&str> = parts.take(MAX_PATH_PARTS + 1).collect();
        let path = || text.chars().take(80).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(OperationError::Path { path: path(), what: "has an empty part" });
        }
        if parts.len() > MAX_PATH_PARTS {
            return Err(OperationError::Path { path: path(), what: "is too deep" });
        }
        Ok(parts)
    }

    fn error(&self, what: &'static str) -> OperationError {
        OperationError::Path { path: self.text.chars().take(80).collect(), what }
    }

    fn object(&self, value: &Value) -> Result<Map<String, Value>, OperationError> {
        value
            .as_object()
            .cloned()
            .ok_or_else(|| self.error("leads to an object, and can be set to one only"))
    }

    fn last(&self) -> &'a str {
        self.rest.last().copied().unwrap_or(self.first)
    }

    fn parent(&self) -> Option<Self> {
        let (_, rest) = self.rest.split_last()?;
        (!rest.is_empty()).then(|| Self { text: self.text, first: self.first, rest: rest.to_vec() })
    }

    /// Returns the object that contains the last part; creates missing objects.
    fn parent_object<'o>(
        &self,
        mut object: &'o mut Map<String, Value>,
    ) -> Result<&'o mut Map<String, Value>, OperationError> {
        let parents = self.rest.split_last().map_or(&[][..], |(_, parents)| parents);
        for part in parents {
            object = object
                .entry(*part)
                .or_insert_with(|| Map::new().into())
                .as_object_mut()
                .ok_or_else(|| self.error("leads through something that is not an object"))?;
        }
        Ok(object)
    }

    fn set(&self, object: &mut Map<String, Value>, value: Value) -> Result<(), OperationError> {
        self.parent_object(object)?.insert(self.last().to_owned(), value);
        Ok(())
    }

    fn extend(
        &self,
        object: &mut Map<String, Value>,
        args: &OperationArgs,
    ) -> Result<(), OperationError> {
        let value = arg(args, "value");
        let unique = parse_bool(arg(args, "unique")).unwrap_or(false);
        let list = self
            .parent_object(object)?
            .entry(self.last())
            .or_insert_with(|| Value::Array(Vec::new()));
        if list.is_null() {
            *list = Value::Array(Vec::new());
        }
        let list = list.as_array_mut().ok_or_else(|| self.error("does not lead to a list"))?;
        if !unique || !list.iter().any(|known| values::equal(known, value)) {
            list.push(value.clone());
        }
        Ok(())
    }

    fn remove(&self, mut object: &mut Map<String, Value>) -> Result<(), OperationError> {
        let missing = || self.error("leads to nothing");
        let parents = self.rest.split_last().map_or(&[][..], |(_, parents)| parents);
        for part in parents {
            object = object.get_mut(*part).and_then(Value::as_object_mut).ok_or_else(missing)?;
        }
        object.remove(self.last()).map(|_| ()).ok_or_else(missing)
    }
}

impl std::fmt::Display for AttributePath<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text)
    }
}
