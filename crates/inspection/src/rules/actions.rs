// SPDX-License-Identifier: Apache-2.0
//! The sixteen actions.

use std::collections::BTreeMap;

use agent_protocol::flag;
use node_model::Port;
use serde_json::{Map, Value};

use super::operation::{Args, Defect, Operation, Problem, Signature, arg, entry_and_op, text_arg};
use super::values;
use crate::attributes;
use crate::draft::Draft;
use crate::findings::{ApiCall, Level, ObjectField};

/// Deeper paths are mistakes, and would make values nobody can read back.
const MAX_PATH_PARTS: usize = 32;
/// Ironic's limits.
const MAX_TRAITS: usize = 50;
const MAX_TRAIT_CHARS: usize = 255;

#[derive(Debug)]
pub(super) struct Action {
    kind: &'static Kind,
    operation: Operation,
}

type Run = fn(&mut Draft<'_>, &Args) -> Result<(), Problem>;

#[derive(Debug)]
struct Kind {
    signature: Signature,
    run: Run,
}

const fn kind(
    name: &'static str,
    required: &'static [&'static str],
    optional: &'static [&'static str],
    templates: &'static [&'static str],
    run: Run,
) -> Kind {
    Kind { signature: Signature { name, required, optional, templates }, run }
}

static ACTIONS: &[Kind] = &[
    kind("fail", &["msg"], &[], &[], fail),
    kind("log", &["msg"], &["level"], &["msg"], log),
    kind("set-attribute", &["path", "value"], &[], &["value"], set_attribute),
    kind("extend-attribute", &["path", "value"], &["unique"], &["value"], extend_attribute),
    kind("del-attribute", &["path"], &[], &[], del_attribute),
    kind("set-capability", &["name", "value"], &[], &["value"], set_capability),
    kind("unset-capability", &["name"], &[], &[], unset_capability),
    kind("add-trait", &["name"], &[], &[], add_trait),
    kind("remove-trait", &["name"], &[], &[], remove_trait),
    kind("set-plugin-data", &["path", "value"], &[], &["value"], set_plugin_data),
    kind("extend-plugin-data", &["path", "value"], &["unique"], &["value"], extend_plugin_data),
    kind("unset-plugin-data", &["path"], &[], &[], unset_plugin_data),
    kind("set-port-attribute", &["port_id", "path", "value"], &[], &["value"], set_port_attribute),
    kind(
        "extend-port-attribute",
        &["port_id", "path", "value"],
        &["unique"],
        &["value"],
        extend_port_attribute,
    ),
    kind("del-port-attribute", &["port_id", "path"], &[], &[], del_port_attribute),
    kind(
        "api-call",
        &["url"],
        &["headers", "proxies", "timeout", "retries", "backoff_factor"],
        &["url"],
        api_call,
    ),
];

impl Action {
    pub(super) fn compile(entry: &Value) -> Result<Self, Defect> {
        let (entry, op) = entry_and_op(entry)?;
        let kind = ACTIONS.iter().find(|kind| kind.signature.name == op).ok_or_else(|| {
            let known: Vec<&str> = ACTIONS.iter().map(|kind| kind.signature.name).collect();
            Defect::Unknown {
                what: "action",
                name: op.chars().take(80).collect(),
                known: known.join(", "),
            }
        })?;
        Ok(Self { kind, operation: Operation::compile(&kind.signature, entry)? })
    }

    pub(super) fn op(&self) -> &'static str {
        self.operation.name()
    }

    pub(super) fn run(&self, draft: &mut Draft<'_>, mask: bool) -> Result<(), Problem> {
        for item in self.operation.rounds() {
            let args = self.operation.args(draft, item, mask);
            (self.kind.run)(draft, &args)?;
        }
        Ok(())
    }
}

fn fail(_: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    Err(Problem::Refused(values::text(arg(args, "msg"), false)))
}

fn log(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let level =
        match args.get("level").map(|level| values::text(level, false).to_lowercase()).as_deref() {
            Some("debug") => Level::Debug,
            None | Some("info") => Level::Info,
            Some("warning") => Level::Warning,
            Some("error" | "critical") => Level::Error,
            Some(_) => {
                let expected = "debug, info, warning, error or critical";
                return Err(Problem::Argument { name: "level", expected });
            }
        };
    draft.note(level, values::text(arg(args, "msg"), false));
    Ok(())
}

fn set_attribute(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::of(args)?;
    let value = arg(args, "value");
    match (ObjectField::named(path.first), path.rest.is_empty()) {
        (Some(field), true) => *draft.object(field) = path.object(value)?,
        (Some(field), false) => path.set(draft.object(field), value.clone())?,
        (None, true) => draft.set_attribute(path.first, value)?,
        (None, false) => return Err(path.problem("leads into something that is not an object")),
    }
    draft.note(Level::Info, format!("set {path}"));
    Ok(())
}

fn extend_attribute(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::of(args)?;
    let field = ObjectField::named(path.first).filter(|_| !path.rest.is_empty());
    let field = field.ok_or_else(|| path.problem("does not lead to a list"))?;
    path.extend(draft.object(field), args)?;
    draft.note(Level::Info, format!("extended {path}"));
    Ok(())
}

fn del_attribute(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::of(args)?;
    match (ObjectField::named(path.first), path.rest.is_empty()) {
        (Some(field), true) => draft.object(field).clear(),
        (Some(field), false) => path.remove(draft.object(field))?,
        (None, true) => draft.set_attribute(path.first, &Value::Null)?,
        (None, false) => return Err(path.problem("leads into something that is not an object")),
    }
    draft.note(Level::Info, format!("deleted {path}"));
    Ok(())
}

fn set_capability(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let name = text_arg(args, "name")?;
    let value = values::text(arg(args, "value"), false);
    if name.is_empty() || name.contains([',', ':']) {
        return Err(Problem::Argument { name: "name", expected: "text without commas and colons" });
    }
    if value.contains(',') {
        return Err(Problem::Argument { name: "value", expected: "text without commas" });
    }
    let mut capabilities = draft.capabilities()?;
    capabilities.set(name, &value);
    draft.write_capabilities(&capabilities);
    draft.note(Level::Info, format!("set capability {name}"));
    Ok(())
}

fn unset_capability(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let name = text_arg(args, "name")?;
    let mut capabilities = draft.capabilities()?;
    if capabilities.remove(name) {
        draft.write_capabilities(&capabilities);
        draft.note(Level::Info, format!("removed capability {name}"));
    }
    Ok(())
}

fn add_trait(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let name = text_arg(args, "name")?;
    if !is_trait(name) {
        let expected = "a trait: capital letters, digits and underscores";
        return Err(Problem::Argument { name: "name", expected });
    }
    if let Err(place) = draft.traits.binary_search_by(|known| known.as_str().cmp(name)) {
        if draft.traits.len() >= MAX_TRAITS {
            return Err(Problem::TooManyTraits(MAX_TRAITS));
        }
        draft.traits.insert(place, name.to_owned());
        draft.note(Level::Info, format!("added trait {name}"));
    }
    Ok(())
}

/// Whether this can be a trait.
pub(crate) fn is_trait(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.len() <= MAX_TRAIT_CHARS && name.bytes().all(plain)
}

fn remove_trait(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let name = text_arg(args, "name")?;
    let before = draft.traits.len();
    draft.traits.retain(|known| known != name);
    let text = if draft.traits.len() < before { "removed trait" } else { "there was no trait" };
    draft.note(Level::Info, format!("{text} {name}"));
    Ok(())
}

fn set_plugin_data(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::in_plugin_data(args)?;
    path.set(&mut draft.plugin_data, arg(args, "value").clone())?;
    draft.note(Level::Info, format!("set plugin data {path}"));
    Ok(())
}

fn extend_plugin_data(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::in_plugin_data(args)?;
    path.extend(&mut draft.plugin_data, args)?;
    draft.note(Level::Info, format!("extended plugin data {path}"));
    Ok(())
}

/// What becomes empty by it goes too.
fn unset_plugin_data(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::in_plugin_data(args)?;
    if path.remove(&mut draft.plugin_data).is_err() {
        draft.note(Level::Warning, format!("there was no plugin data {path}"));
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        let holder = parent.holder(&mut draft.plugin_data)?;
        if holder
            .get(parent.last())
            .is_some_and(|value| value.as_object().is_some_and(Map::is_empty))
        {
            holder.remove(parent.last());
        }
    }
    draft.note(Level::Info, format!("removed plugin data {path}"));
    Ok(())
}

fn set_port_attribute(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::of(args)?;
    let value = arg(args, "value");
    let port = port(draft, args)?;
    match (attributes::port_object(port, path.first), path.rest.is_empty()) {
        (Some(object), true) => *object = path.object(value)?.into(),
        (Some(_), false) => edit_port(port, &path, |object| path.set(object, value.clone()))?,
        (None, true) => attributes::write_port(port, path.first, value)?,
        (None, false) => return Err(path.problem("leads into something that is not an object")),
    }
    let text = format!("set {path} of port {}", port.address);
    draft.note(Level::Info, text);
    Ok(())
}

fn extend_port_attribute(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::of(args)?;
    let port = port(draft, args)?;
    if path.rest.is_empty() {
        return Err(path.problem("does not lead to a list"));
    }
    edit_port(port, &path, |object| path.extend(object, args))?;
    let text = format!("extended {path} of port {}", port.address);
    draft.note(Level::Info, text);
    Ok(())
}

fn del_port_attribute(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let path = Path::of(args)?;
    let port = port(draft, args)?;
    match (attributes::port_object(port, path.first), path.rest.is_empty()) {
        (Some(object), true) => *object = Map::new().into(),
        (Some(_), false) => edit_port(port, &path, |object| path.remove(object))?,
        (None, true) => attributes::write_port(port, path.first, &Value::Null)?,
        (None, false) => return Err(path.problem("leads into something that is not an object")),
    }
    let text = format!("deleted {path} of port {}", port.address);
    draft.note(Level::Info, text);
    Ok(())
}

/// Only says what to ask for: asking is the caller's.
fn api_call(draft: &mut Draft<'_>, args: &Args) -> Result<(), Problem> {
    let wrong = |name, expected| Problem::Argument { name, expected };
    let number = |name: &'static str, default: f64| match args.get(name) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => value
            .as_f64()
            .or_else(|| value.as_str()?.trim().parse().ok())
            .filter(|number| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| wrong(name, "a number that is not negative")),
    };
    let texts = |name: &'static str| match args.get(name) {
        None | Some(Value::Null) => Ok::<_, Problem>(BTreeMap::new()),
        Some(value) => {
            let object = value.as_object().ok_or_else(|| wrong(name, "an object"))?;
            Ok(object
                .iter()
                .map(|(key, value)| (key.clone(), values::text(value, false)))
                .collect())
        }
    };
    let url = text_arg(args, "url")?;
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(wrong("url", "an http or https address"));
    }
    let timeout = number("timeout", 5.0)?;
    if timeout <= 0.0 {
        return Err(wrong("timeout", "more than zero"));
    }
    let retries = format!("{:.0}", number("retries", 3.0)?.trunc());
    let call = ApiCall {
        url: url.to_owned(),
        headers: texts("headers")?,
        proxies: texts("proxies")?,
        timeout,
        retries: retries.parse().map_err(|_| wrong("retries", "a small number"))?,
        backoff_factor: number("backoff_factor", 0.3)?,
    };
    draft.note(Level::Info, format!("asks for {call:?}"));
    draft.calls.push(call);
    Ok(())
}

/// The port with the id, or the MAC address, in `port_id`.
fn port<'a>(draft: &'a mut Draft<'_>, args: &Args) -> Result<&'a mut Port, Problem> {
    let wanted = text_arg(args, "port_id")?;
    let found = draft.ports.iter_mut().filter(|port| !port.deleted).find(|port| {
        let by_id = !port.is_new() && port.port.id.to_string() == wanted;
        by_id || port.port.address.as_str().eq_ignore_ascii_case(wanted)
    });
    found
        .map(|port| &mut port.port)
        .ok_or_else(|| Problem::NoPort(wanted.chars().take(80).collect()))
}

fn edit_port(
    port: &mut Port,
    path: &Path<'_>,
    edit: impl FnOnce(&mut Map<String, Value>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let object = attributes::port_object(port, path.first)
        .ok_or_else(|| path.problem("leads into something that is not an object"))?;
    let mut parsed = object.parse();
    edit(&mut parsed)?;
    *object = parsed.into();
    Ok(())
}

/// A path: an attribute, then members of members. In plugin data all parts are members.
struct Path<'a> {
    text: &'a str,
    first: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Path<'a> {
    /// `driver_info/ipmi_address` or `driver_info.ipmi_address`.
    fn of(args: &'a Args) -> Result<Self, Problem> {
        let text = text_arg(args, "path")?;
        let mut parts = if text.contains('/') {
            Self::split(text, text.trim_matches('/').split('/'))?
        } else {
            Self::split(text, text.split('.'))?
        };
        Ok(Self { text, first: parts.remove(0), rest: parts })
    }

    fn in_plugin_data(args: &'a Args) -> Result<Self, Problem> {
        let text = text_arg(args, "path")?;
        Ok(Self { text, first: "", rest: Self::split(text, text.split('.'))? })
    }

    fn split(text: &str, parts: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>, Problem> {
        let parts: Vec<&str> = parts.take(MAX_PATH_PARTS + 1).collect();
        let path = || text.chars().take(80).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(Problem::Path { path: path(), what: "has an empty part" });
        }
        if parts.len() > MAX_PATH_PARTS {
            return Err(Problem::Path { path: path(), what: "is too deep" });
        }
        Ok(parts)
    }

    fn problem(&self, what: &'static str) -> Problem {
        Problem::Path { path: self.text.chars().take(80).collect(), what }
    }

    fn object(&self, value: &Value) -> Result<Map<String, Value>, Problem> {
        value
            .as_object()
            .cloned()
            .ok_or_else(|| self.problem("leads to an object, and can be set to one only"))
    }

    fn last(&self) -> &'a str {
        self.rest.last().copied().unwrap_or(self.first)
    }

    fn parent(&self) -> Option<Self> {
        let (_, rest) = self.rest.split_last()?;
        (!rest.is_empty()).then(|| Self { text: self.text, first: self.first, rest: rest.to_vec() })
    }

    /// The object that holds the last part; objects on the way are made.
    fn holder<'o>(
        &self,
        mut object: &'o mut Map<String, Value>,
    ) -> Result<&'o mut Map<String, Value>, Problem> {
        let way = self.rest.split_last().map_or(&[][..], |(_, way)| way);
        for part in way {
            object = object
                .entry(*part)
                .or_insert_with(|| Map::new().into())
                .as_object_mut()
                .ok_or_else(|| self.problem("leads through something that is not an object"))?;
        }
        Ok(object)
    }

    fn set(&self, object: &mut Map<String, Value>, value: Value) -> Result<(), Problem> {
        self.holder(object)?.insert(self.last().to_owned(), value);
        Ok(())
    }

    fn extend(&self, object: &mut Map<String, Value>, args: &Args) -> Result<(), Problem> {
        let value = arg(args, "value");
        let unique = flag(arg(args, "unique")).unwrap_or(false);
        let list =
            self.holder(object)?.entry(self.last()).or_insert_with(|| Value::Array(Vec::new()));
        if list.is_null() {
            *list = Value::Array(Vec::new());
        }
        let list = list.as_array_mut().ok_or_else(|| self.problem("does not lead to a list"))?;
        if !unique || !list.iter().any(|known| values::equal(known, value)) {
            list.push(value.clone());
        }
        Ok(())
    }

    fn remove(&self, mut object: &mut Map<String, Value>) -> Result<(), Problem> {
        let nothing = || self.problem("leads to nothing");
        let way = self.rest.split_last().map_or(&[][..], |(_, way)| way);
        for part in way {
            object = object.get_mut(*part).and_then(Value::as_object_mut).ok_or_else(nothing)?;
        }
        object.remove(self.last()).map(|_| ()).ok_or_else(nothing)
    }
}

impl std::fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text)
    }
}
