// SPDX-License-Identifier: Apache-2.0
//! The common part of conditions and actions: name, arguments and loop.

use serde_json::{Map, Value};

use super::template::TemplateScope;
use crate::attributes::AttributeError;
use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::InspectionLogLevel;

/// Named arguments, after interpolation.
pub(super) type OperationArgs = Map<String, Value>;

/// The name and the arguments of an operator or action.
#[derive(Debug)]
pub(super) struct OperationSignature {
    pub(super) name: &'static str,
    pub(super) required: &'static [&'static str],
    pub(super) optional: &'static [&'static str],
    /// Arguments that are templates outside of loops; in loops all are.
    pub(super) templates: &'static [&'static str],
}

/// The arguments and the loop of one condition or action.
#[derive(Debug)]
pub(super) struct CompiledOperation {
    signature: &'static OperationSignature,
    args: OperationArgs,
    /// Loop items; `None` without a loop.
    items: Option<Vec<Value>>,
}

/// An invalid condition or action.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationDefinitionError {
    /// Not an object.
    #[error("it must be an object")]
    NotAnObject,
    /// `op` or `args` is missing.
    #[error("it has no {0}")]
    Missing(&'static str),
    /// `args` or `loop` has the wrong type.
    #[error("{0} must be an object or a list")]
    NotObjectOrList(&'static str),
    /// Unknown operator or action.
    #[error("there is no {what} {name:?}; the {what}s are {known}")]
    Unknown {
        /// `operator` or `action`.
        what: &'static str,
        /// The given name.
        name: String,
        /// The known names.
        known: String,
    },
    /// More than one exclamation mark.
    #[error("an operator can be inverted once only")]
    InvertedTwice,
    /// Invalid `multiple`.
    #[error("multiple must be any, all, first or last")]
    Multiple,
    /// An argument is missing.
    #[error("the argument {0} is missing")]
    MissingArgument(&'static str),
    /// Unknown argument.
    #[error("there is no argument {0:?}")]
    UnknownArgument(String),
    /// Too many positional arguments.
    #[error("it takes at most {0} arguments")]
    TooManyArguments(usize),
    /// The regular expression is invalid or uses unsupported syntax.
    #[error("the regular expression cannot be used: {0}")]
    Regex(String),
}

/// A condition or action failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The `fail` action, with its message.
    #[error("{0}")]
    FailAction(String),
    /// Invalid argument.
    #[error("the argument {name} must be {expected}")]
    Argument {
        /// The argument.
        name: &'static str,
        /// The expected value.
        expected: &'static str,
    },
    /// The values have no order.
    #[error("{0} and {1} cannot be put in order")]
    Incomparable(&'static str, &'static str),
    /// The regular expression of a loop item is invalid.
    #[error("the regular expression cannot be used: {0}")]
    Regex(String),
    /// The path is malformed, passes through a value that is not an object, or does not exist.
    #[error("the path {path} {what}")]
    Path {
        /// The path.
        path: String,
        /// The cause.
        what: &'static str,
    },
    /// The attribute cannot be written.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// The node has no such port.
    #[error("the node has no port {0}")]
    NoPort(String),
    /// The node's capabilities cannot be parsed.
    #[error(transparent)]
    Capabilities(#[from] crate::capabilities::CapabilitiesError),
    /// Ironic's limit is reached.
    #[error("a node can have at most {0} traits")]
    TooManyTraits(usize),
}

impl CompiledOperation {
    pub(super) fn compile(
        signature: &'static OperationSignature,
        entry: &Map<String, Value>,
    ) -> Result<Self, OperationDefinitionError> {
        let args = match entry.get("args") {
            None => return Err(OperationDefinitionError::Missing("args")),
            Some(Value::Object(args)) => args.clone(),
            Some(Value::Array(args)) => signature.by_position(args)?,
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                return Err(OperationDefinitionError::NotObjectOrList("args"));
            }
        };
        signature.check(&args)?;
        let items = match entry.get("loop") {
            None => None,
            Some(Value::Array(items)) => Some(items.clone()).filter(|items| !items.is_empty()),
            // An object is a single item, not a list of its members.
            Some(Value::Object(item)) => {
                Some(vec![Value::Object(item.clone())]).filter(|_| !item.is_empty())
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                return Err(OperationDefinitionError::NotObjectOrList("loop"));
            }
        };
        Ok(Self { signature, args, items })
    }

    pub(super) fn name(&self) -> &'static str {
        self.signature.name
    }

    pub(super) fn signature(&self) -> &'static OperationSignature {
        self.signature
    }

    /// Returns the arguments before interpolation.
    pub(super) fn raw_args(&self) -> &OperationArgs {
        &self.args
    }

    /// Returns the item of each iteration; a single `None` without a loop.
    pub(super) fn iterations(&self) -> impl Iterator<Item = Option<&Value>> {
        let once = self.items.is_none().then_some(None);
        self.items.iter().flatten().map(Some).chain(once)
    }

    pub(super) fn is_loop(&self) -> bool {
        self.items.is_some()
    }

    /// Returns the arguments of one iteration. Templates that cannot be rendered are left unchanged.
    pub(super) fn args(
        &self,
        draft: &mut InspectionDraft<'_>,
        item: Option<&Value>,
        mask: bool,
    ) -> OperationArgs {
        let mut unrendered = Vec::new();
        let scope = TemplateScope { draft, item, mask };
        let missing_is_null = self.signature.name == "is-empty";
        let rendered = self.args.iter().map(|(name, value)| {
            let is_template = item.is_some() || self.signature.templates.contains(&name.as_str());
            let value = if is_template {
                scope.render_value(value, missing_is_null, &mut unrendered)
            } else {
                value.clone()
            };
            (name.clone(), value)
        });
        let args = rendered.collect();
        for template in unrendered {
            let text = format!("{}: {template:?} left unchanged: no such value", self.name());
            draft.log(InspectionLogLevel::Warning, text);
        }
        args
    }
}

impl OperationSignature {
    /// Names positional arguments: the required ones first, then the optional ones.
    fn by_position(&self, args: &[Value]) -> Result<OperationArgs, OperationDefinitionError> {
        let limit = self.required.len() + self.optional.len();
        if args.len() > limit {
            return Err(OperationDefinitionError::TooManyArguments(limit));
        }
        let names = self.required.iter().chain(self.optional);
        Ok(names.map(|name| (*name).to_owned()).zip(args.iter().cloned()).collect())
    }

    fn check(&self, args: &OperationArgs) -> Result<(), OperationDefinitionError> {
        if let Some(missing) = self.required.iter().find(|name| !args.contains_key(**name)) {
            return Err(OperationDefinitionError::MissingArgument(missing));
        }
        let known = |name: &str| self.required.contains(&name) || self.optional.contains(&name);
        match args.keys().find(|name| !known(name)) {
            Some(unknown) => {
                Err(OperationDefinitionError::UnknownArgument(unknown.chars().take(80).collect()))
            }
            None => Ok(()),
        }
    }
}

/// Returns the object and the `op` of an entry.
pub(super) fn entry_and_op(
    entry: &Value,
) -> Result<(&Map<String, Value>, &str), OperationDefinitionError> {
    let entry = entry.as_object().ok_or(OperationDefinitionError::NotAnObject)?;
    let op =
        entry.get("op").and_then(Value::as_str).ok_or(OperationDefinitionError::Missing("op"))?;
    Ok((entry, op))
}

/// Returns an argument; null if it is missing, which only optional ones can be.
pub(super) fn arg<'a>(args: &'a OperationArgs, name: &str) -> &'a Value {
    args.get(name).unwrap_or(&Value::Null)
}

/// Returns an argument that must be text.
pub(super) fn text_arg<'a>(
    args: &'a OperationArgs,
    name: &'static str,
) -> Result<&'a str, OperationError> {
    arg(args, name).as_str().ok_or(OperationError::Argument { name, expected: "text" })
}
