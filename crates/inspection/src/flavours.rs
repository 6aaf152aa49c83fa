// SPDX-License-Identifier: Apache-2.0
//! Flavours: which kinds of machines a report fits, and what such machines are given.
//!
//! Conditions are those of inspection rules. The first flavour that fits, by priority, gives the
//! resource class; all that fit give traits, properties and capabilities, of which the first to
//! name one wins. A flavour only fills in what is missing or what an earlier inspection gave, unless
//! it says `overwrite`. A flavour that cannot be judged fits nobody, and the timeline says why.

use std::cmp::Reverse;

use node_model::{Flavour, FlavourId};
use serde_json::{Map, Value};

use crate::draft::Draft;
use crate::findings::{Level, Source};
use crate::process::Context;
use crate::rules::conditions::Condition;
use crate::rules::{self, RuleError, is_trait};

/// Ironic's limit.
const MAX_TRAITS: usize = 50;
const MAX_NAME_CHARS: usize = 255;
/// Ironic's limit for a resource class.
const MAX_CLASS_CHARS: usize = 80;

/// Flavours ready to be compared with a report, in the order they are looked at.
#[derive(Default, Debug)]
pub struct FlavourSet(Vec<Ready>);

/// A flavour cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlavourError {
    /// Its name would not fit into a URL or a column.
    #[error("a name has 1 to {MAX_NAME_CHARS} letters, digits and the signs . _ ~ -")]
    Name,
    /// It gives nothing.
    #[error("it gives nothing: name a resource_class, traits, properties or capabilities")]
    Empty,
    /// A bad resource class.
    #[error("resource_class must have 1 to {MAX_CLASS_CHARS} characters")]
    ResourceClass,
    /// A bad trait.
    #[error("{0:?} is no trait: use capital letters, digits and underscores")]
    Trait(String),
    /// Too many traits.
    #[error("a node can have at most {MAX_TRAITS} traits")]
    TooManyTraits,
    /// A capability that would break the list of capabilities.
    #[error("capability {0:?} must have a text as value, and no commas; its name no colons")]
    Capability(String),
    /// A condition is wrong.
    #[error(transparent)]
    Condition(#[from] RuleError),
}

#[derive(Debug)]
struct Ready {
    flavour: Flavour,
    conditions: Vec<Condition>,
    properties: Map<String, Value>,
    capabilities: Vec<(String, String)>,
}

/// Checks a new flavour.
///
/// # Errors
/// If a condition cannot be used, or what it gives cannot be given.
pub fn validate_flavour(flavour: &Flavour) -> Result<(), FlavourError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '~' | '-');
    let name = &flavour.name;
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(plain) {
        return Err(FlavourError::Name);
    }
    if flavour.resource_class.is_none()
        && flavour.traits.is_empty()
        && flavour.properties.is_empty()
        && flavour.capabilities.is_empty()
    {
        return Err(FlavourError::Empty);
    }
    if let Some(class) = &flavour.resource_class
        && (class.is_empty() || class.chars().count() > MAX_CLASS_CHARS)
    {
        return Err(FlavourError::ResourceClass);
    }
    if flavour.traits.len() > MAX_TRAITS {
        return Err(FlavourError::TooManyTraits);
    }
    if let Some(wrong) = flavour.traits.iter().find(|name| !is_trait(name)) {
        return Err(FlavourError::Trait(wrong.chars().take(80).collect()));
    }
    Ready::of(flavour).map(drop)
}

impl FlavourSet {
    /// Makes flavours ready: highest priority first, by name among equals. Those that cannot be
    /// used are left out, and returned with what is wrong with them.
    #[must_use]
    pub fn compile(flavours: &[Flavour]) -> (Self, Vec<(FlavourId, FlavourError)>) {
        let (mut ready, mut broken) = (Vec::new(), Vec::new());
        for flavour in flavours {
            match Ready::of(flavour) {
                Ok(flavour) => ready.push(flavour),
                Err(error) => broken.push((flavour.id, error)),
            }
        }
        ready.sort_by(|a, b| {
            let key = |ready: &Ready| Reverse(ready.flavour.priority);
            key(a).cmp(&key(b)).then_with(|| a.flavour.name.cmp(&b.flavour.name))
        });
        (Self(ready), broken)
    }

    /// The names of the flavours that fit, in order. Hooks and rules are not run: what they changed
    /// is in the node already.
    #[must_use]
    pub fn matching(&self, context: &Context<'_>) -> Vec<&str> {
        let Some(first) = self.0.first() else { return Vec::new() };
        let mut draft = Draft::new(context, Source::Flavour(first.flavour.id));
        let fitting = self.0.iter().filter(|ready| ready.fits(&mut draft));
        fitting.map(|ready| ready.flavour.name.as_str()).collect()
    }

    /// Gives the node what the flavours that fit say.
    pub(crate) fn run(&self, draft: &mut Draft<'_>) {
        let mut has_class = false;
        for ready in &self.0 {
            draft.source = Source::Flavour(ready.flavour.id);
            if !ready.fits(draft) {
                continue;
            }
            draft.note(Level::Info, format!("fits {}", ready.flavour.name));
            if let Some(class) = ready.flavour.resource_class.as_ref().filter(|_| !has_class) {
                has_class = true;
                give_class(draft, class, ready.flavour.overwrite);
            }
            ready.give(draft);
        }
        take_back_traits(draft);
    }
}

impl Ready {
    fn of(flavour: &Flavour) -> Result<Self, FlavourError> {
        let mut capabilities = Vec::new();
        for (name, value) in flavour.capabilities.parse() {
            let text = match value {
                Value::String(text) => Some(text),
                Value::Number(number) => Some(number.to_string()),
                Value::Bool(truth) => Some(truth.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            };
            let text = text.filter(|text| !text.contains(',') && !text.is_empty());
            match text {
                Some(text) if !name.is_empty() && !name.contains([',', ':']) => {
                    capabilities.push((name, text));
                }
                Some(_) | None => {
                    return Err(FlavourError::Capability(name.chars().take(80).collect()));
                }
            }
        }
        Ok(Self {
            conditions: rules::compile_conditions(&flavour.conditions.parse())?,
            properties: flavour.properties.parse(),
            capabilities,
            flavour: flavour.clone(),
        })
    }

    fn fits(&self, draft: &mut Draft<'_>) -> bool {
        self.conditions.iter().enumerate().all(|(index, condition)| {
            condition.holds(draft, true).unwrap_or_else(|problem| {
                let name = &self.flavour.name;
                let text = format!("{name}: conditions[{index}] cannot be judged: {problem}");
                draft.note(Level::Warning, text);
                false
            })
        })
    }

    fn give(&self, draft: &mut Draft<'_>) {
        let keep = !self.flavour.overwrite;
        for name in &self.flavour.traits {
            if !draft.found.traits.contains(name) {
                draft.found.traits.push(name.clone());
            }
            if let Err(place) = draft.traits.binary_search(name) {
                if draft.traits.len() >= MAX_TRAITS {
                    draft.note(Level::Warning, format!("no place for trait {name}"));
                    continue;
                }
                draft.traits.insert(place, name.clone());
                draft.note(Level::Info, format!("added trait {name}"));
            }
        }
        for (key, value) in &self.properties {
            if !draft.found.properties.contains_key(key) || self.flavour.overwrite {
                draft.put_property(key, value.clone(), keep);
            }
        }
        let new: Vec<(String, String)> = self
            .capabilities
            .iter()
            .filter(|(name, _)| {
                self.flavour.overwrite || !draft.found.capabilities.contains_key(name)
            })
            .cloned()
            .collect();
        if !new.is_empty()
            && let Err(error) = draft.put_capabilities(&new, keep)
        {
            draft.note(Level::Warning, error.to_string());
        }
    }
}

/// Sets the resource class, if there is none, the last inspection gave it, or it shall be replaced.
fn give_class(draft: &mut Draft<'_>, class: &str, overwrite: bool) {
    draft.found.resource_class = Some(class.to_owned());
    let old = draft.attribute("resource_class").and_then(|old| old.as_str().map(str::to_owned));
    let old = old.filter(|old| !old.is_empty());
    let ours = old.is_none() || old == draft.found_before.resource_class;
    match old {
        Some(old) if old == class => {}
        Some(old) if !ours && !overwrite => {
            draft
                .note(Level::Info, format!("resource_class stays {old}; the flavour says {class}"));
        }
        Some(_) | None => match draft.set_attribute("resource_class", &class.into()) {
            Ok(()) => draft.note(Level::Info, format!("set resource_class to {class}")),
            Err(error) => draft.note(Level::Warning, error.to_string()),
        },
    }
}

/// Traits that flavours gave earlier and none gives now: the machine is of another kind today.
fn take_back_traits(draft: &mut Draft<'_>) {
    let gone: Vec<String> = draft
        .found_before
        .traits
        .iter()
        .filter(|name| !draft.found.traits.contains(name) && draft.traits.contains(name))
        .cloned()
        .collect();
    for name in gone {
        draft.traits.retain(|known| *known != name);
        draft.note(Level::Info, format!("took back trait {name}: no flavour gives it any more"));
    }
}
