// SPDX-License-Identifier: Apache-2.0
//! What conditions and actions have in common: a name, arguments, and a loop.

use serde_json::{Map, Value};

use super::template::Scope;
use crate::attributes::AttributeError;
use crate::draft::Draft;
use crate::findings::Level;

/// Named arguments after interpolation.
pub(super) type Args = Map<String, Value>;

/// What an operator or action is called and which arguments it takes.
#[derive(Debug)]
pub(super) struct Signature {
    pub(super) name: &'static str,
    pub(super) required: &'static [&'static str],
    pub(super) optional: &'static [&'static str],
    /// Those that are templates also outside of loops; in loops all are.
    pub(super) templates: &'static [&'static str],
}

/// Arguments and loop of one condition or action.
#[derive(Debug)]
pub(super) struct Operation {
    signature: &'static Signature,
    args: Args,
    /// One round for each item; one round without an item if there is no loop.
    items: Option<Vec<Value>>,
}

/// What is wrong with a condition or action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Not an object.
    #[error("it must be an object")]
    NotAnObject,
    /// `op` or `args` is not there.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// `args` or `loop` is neither of the two things it can be.
    #[error("{0} must be an object or a list")]
    NotObjectOrList(&'static str),
    /// There is no such operator or action.
    #[error("there is no {what} {name:?}; the {what}s are {known}")]
    Unknown {
        /// `operator` or `action`.
        what: &'static str,
        /// What was written.
        name: String,
        /// What could have been.
        known: String,
    },
    /// More than one exclamation mark.
    #[error("an operator can be inverted once only")]
    InvertedTwice,
    /// A bad `multiple`.
    #[error("multiple must be any, all, first or last")]
    Multiple,
    /// An argument is missing.
    #[error("the argument {0} is missing")]
    MissingArgument(&'static str),
    /// An argument is not known.
    #[error("there is no argument {0:?}")]
    UnknownArgument(String),
    /// The list of arguments is too long.
    #[error("it takes at most {0} arguments")]
    TooManyArguments(usize),
    /// The regular expression is wrong, or uses what is not supported.
    #[error("the regular expression cannot be used: {0}")]
    Regex(String),
}

/// Why a condition or action could not be carried out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The `fail` action, with the operator's words.
    #[error("{0}")]
    Refused(String),
    /// An argument makes no sense.
    #[error("the argument {name} must be {expected}")]
    Argument {
        /// Which.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// These cannot be compared.
    #[error("{0} and {1} cannot be put in order")]
    Incomparable(&'static str, &'static str),
    /// The regular expression made by a loop is wrong.
    #[error("the regular expression cannot be used: {0}")]
    Regex(String),
    /// A path leads through something that is not an object, or to nothing.
    #[error("the path {path} {what}")]
    Path {
        /// Which.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An attribute cannot be written.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// The node has no such port.
    #[error("the node has no port {0}")]
    NoPort(String),
    /// The capabilities of the node cannot be read.
    #[error(transparent)]
    Capabilities(#[from] crate::capabilities::MalformedCapabilities),
    /// Ironic's limit.
    #[error("a node can have at most {0} traits")]
    TooManyTraits(usize),
}

impl Operation {
    pub(super) fn compile(
        signature: &'static Signature,
        entry: &Map<String, Value>,
    ) -> Result<Self, Defect> {
        let args = match entry.get("args") {
            None => return Err(Defect::Missing("args")),
            Some(Value::Object(args)) => args.clone(),
            Some(Value::Array(args)) => signature.by_position(args)?,
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                return Err(Defect::NotObjectOrList("args"));
            }
        };
        signature.check(&args)?;
        let items = match entry.get("loop") {
            None => None,
            Some(Value::Array(items)) => Some(items.clone()).filter(|items| !items.is_empty()),
            // A lone object is one item, not a list of its members.
            Some(Value::Object(item)) => {
                Some(vec![Value::Object(item.clone())]).filter(|_| !item.is_empty())
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                return Err(Defect::NotObjectOrList("loop"));
            }
        };
        Ok(Self { signature, args, items })
    }

    pub(super) fn name(&self) -> &'static str {
        self.signature.name
    }

    pub(super) fn signature(&self) -> &'static Signature {
        self.signature
    }

    /// The arguments as written.
    pub(super) fn written(&self) -> &Args {
        &self.args
    }

    /// One item for each round; a single none if there is no loop.
    pub(super) fn rounds(&self) -> impl Iterator<Item = Option<&Value>> {
        let once = self.items.is_none().then_some(None);
        self.items.iter().flatten().map(Some).chain(once)
    }

    pub(super) fn is_loop(&self) -> bool {
        self.items.is_some()
    }

    /// The arguments for one round. Templates that cannot be filled in stay as they are.
    pub(super) fn args(&self, draft: &mut Draft<'_>, item: Option<&Value>, mask: bool) -> Args {
        let mut unfilled = Vec::new();
        let scope = Scope { draft, item, mask };
        let missing_is_null = self.signature.name == "is-empty";
        let filled = self.args.iter().map(|(name, value)| {
            let is_template = item.is_some() || self.signature.templates.contains(&name.as_str());
            let value = if is_template {
                scope.fill(value, missing_is_null, &mut unfilled)
            } else {
                value.clone()
            };
            (name.clone(), value)
        });
        let args = filled.collect();
        for template in unfilled {
            let text = format!("{}: {template:?} was left as it is: no such value", self.name());
            draft.note(Level::Warning, text);
        }
        args
    }
}

impl Signature {
    /// Names arguments given as a list: the required ones first, then the optional ones.
    fn by_position(&self, args: &[Value]) -> Result<Args, Defect> {
        let takes = self.required.len() + self.optional.len();
        if args.len() > takes {
            return Err(Defect::TooManyArguments(takes));
        }
        let names = self.required.iter().chain(self.optional);
        Ok(names.map(|name| (*name).to_owned()).zip(args.iter().cloned()).collect())
    }

    fn check(&self, args: &Args) -> Result<(), Defect> {
        if let Some(missing) = self.required.iter().find(|name| !args.contains_key(**name)) {
            return Err(Defect::MissingArgument(missing));
        }
        let known = |name: &str| self.required.contains(&name) || self.optional.contains(&name);
        match args.keys().find(|name| !known(name)) {
            Some(unknown) => Err(Defect::UnknownArgument(unknown.chars().take(80).collect())),
            None => Ok(()),
        }
    }
}

/// The object and `op` of an entry.
pub(super) fn entry_and_op(entry: &Value) -> Result<(&Map<String, Value>, &str), Defect> {
    let entry = entry.as_object().ok_or(Defect::NotAnObject)?;
    let op = entry.get("op").and_then(Value::as_str).ok_or(Defect::Missing("op"))?;
    Ok((entry, op))
}

/// An argument. The signature was checked, so a required one is there.
pub(super) fn arg<'a>(args: &'a Args, name: &str) -> &'a Value {
    args.get(name).unwrap_or(&Value::Null)
}

/// An argument that must be text.
pub(super) fn text_arg<'a>(args: &'a Args, name: &'static str) -> Result<&'a str, Problem> {
    arg(args, name).as_str().ok_or(Problem::Argument { name, expected: "text" })
}
