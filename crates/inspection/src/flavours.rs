// SPDX-License-Identifier: Apache-2.0
//! Flavours: classes of machines, and the values that their machines receive.
//!
//! Conditions are those of inspection rules. The matching flavour with the highest priority sets the
//! resource class; all matching flavours set traits, properties and capabilities, of which the first
//! definition of each wins. A flavour sets only missing values and values derived by an earlier
//! inspection, unless `overwrite` is set. A flavour whose conditions cannot be evaluated does not
//! match, and the reason is logged.

use std::cmp::Reverse;

use node_model::{Flavour, FlavourId};
use serde_json::{Map, Value};

use crate::inspection_draft::InspectionDraft;
use crate::inspection_result::{InspectionLogLevel, InspectionLogSource};
use crate::process::ReportContext;
use crate::rules::conditions::CompiledCondition;
use crate::rules::{self, RuleError, is_trait};

/// Ironic's limit per node.
const MAX_TRAITS: usize = 50;
const MAX_NAME_CHARS: usize = 255;
/// Ironic's limit for a resource class.
const MAX_CLASS_CHARS: usize = 80;

/// Compiled flavours, in the order of their evaluation.
#[derive(Default, Debug)]
pub struct FlavourSet(Vec<CompiledFlavour>);

/// An invalid flavour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlavourError {
    /// The name is empty, too long or not URL-safe.
    #[error("a name has 1 to {MAX_NAME_CHARS} letters, digits and the signs . _ ~ -")]
    Name,
    /// It sets nothing.
    #[error("it sets nothing: add a resource_class, traits, properties or capabilities")]
    Empty,
    /// Invalid resource class.
    #[error("resource_class must have 1 to {MAX_CLASS_CHARS} characters")]
    ResourceClass,
    /// Invalid trait.
    #[error("{0:?} is not a trait: use capital letters, digits and underscores")]
    Trait(String),
    /// Too many traits.
    #[error("a node can have at most {MAX_TRAITS} traits")]
    TooManyTraits,
    /// A capability that the `capabilities` property cannot represent.
    #[error("capability {0:?} must have a text as value, and no commas; its name no colons")]
    Capability(String),
    /// Invalid condition.
    #[error(transparent)]
    Condition(#[from] RuleError),
}

#[derive(Debug)]
struct CompiledFlavour {
    flavour: Flavour,
    conditions: Vec<CompiledCondition>,
    properties: Map<String, Value>,
    capabilities: Vec<(String, String)>,
}

/// Validates a flavour.
///
/// # Errors
/// If a condition or a value is invalid.
pub fn validate_flavour(flavour: &Flavour) -> Result<(), FlavourError> {
    let is_url_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '~' | '-');
    let name = &flavour.name;
    if name.is_empty() || name.len() > MAX_NAME_CHARS || !name.chars().all(is_url_safe) {
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
    if let Some(invalid) = flavour.traits.iter().find(|name| !is_trait(name)) {
        return Err(FlavourError::Trait(invalid.chars().take(80).collect()));
    }
    CompiledFlavour::compile(flavour).map(drop)
}

impl FlavourSet {
    /// Compiles flavours and sorts them by descending priority, then by name. Invalid flavours are
    /// skipped and returned with their errors.
    #[must_use]
    pub fn compile(flavours: &[Flavour]) -> (Self, Vec<(FlavourId, FlavourError)>) {
        let (mut compiled, mut invalid) = (Vec::new(), Vec::new());
        for flavour in flavours {
            match CompiledFlavour::compile(flavour) {
                Ok(flavour) => compiled.push(flavour),
                Err(error) => invalid.push((flavour.id, error)),
            }
        }
        compiled.sort_by(|a: &CompiledFlavour, b| {
            let key = |compiled: &CompiledFlavour| Reverse(compiled.flavour.priority);
            key(a).cmp(&key(b)).then_with(|| a.flavour.name.cmp(&b.flavour.name))
        });
        (Self(compiled), invalid)
    }

    /// Returns the names of the matching flavours, in order. Does not run hooks and rules: the stored
    /// node contains their changes.
    #[must_use]
    pub fn matching(&self, context: &ReportContext<'_>) -> Vec<&str> {
        let Some(first) = self.0.first() else { return Vec::new() };
        let mut draft =
            InspectionDraft::new(context, InspectionLogSource::Flavour(first.flavour.id));
        let matching = self.0.iter().filter(|compiled| compiled.matches(&mut draft));
        matching.map(|compiled| compiled.flavour.name.as_str()).collect()
    }

    /// Applies the matching flavours to the node.
    pub(crate) fn run(&self, draft: &mut InspectionDraft<'_>) {
        let mut has_class = false;
        for compiled in &self.0 {
            draft.source = InspectionLogSource::Flavour(compiled.flavour.id);
            if !compiled.matches(draft) {
                continue;
            }
            draft.log(InspectionLogLevel::Info, format!("{} matches", compiled.flavour.name));
            if let Some(class) = compiled.flavour.resource_class.as_ref().filter(|_| !has_class) {
                has_class = true;
                apply_resource_class(draft, class, compiled.flavour.overwrite);
            }
            compiled.apply(draft);
        }
        remove_stale_traits(draft);
    }
}

impl CompiledFlavour {
    fn compile(flavour: &Flavour) -> Result<Self, FlavourError> {
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

    fn matches(&self, draft: &mut InspectionDraft<'_>) -> bool {
        self.conditions.iter().enumerate().all(|(index, condition)| {
            condition.holds(draft, true).unwrap_or_else(|error| {
                let name = &self.flavour.name;
                let text = format!("{name}: conditions[{index}] cannot be evaluated: {error}");
                draft.log(InspectionLogLevel::Warning, text);
                false
            })
        })
    }

    fn apply(&self, draft: &mut InspectionDraft<'_>) {
        let keep_existing = !self.flavour.overwrite;
        for name in &self.flavour.traits {
            if !draft.derived.traits.contains(name) {
                draft.derived.traits.push(name.clone());
            }
            if let Err(position) = draft.traits.binary_search(name) {
                if draft.traits.len() >= MAX_TRAITS {
                    draft.log(
                        InspectionLogLevel::Warning,
                        format!("trait {name} skipped: the node has {MAX_TRAITS} traits"),
                    );
                    continue;
                }
                draft.traits.insert(position, name.clone());
                draft.log(InspectionLogLevel::Info, format!("added trait {name}"));
            }
        }
        for (key, value) in &self.properties {
            if !draft.derived.properties.contains_key(key) || self.flavour.overwrite {
                draft.set_derived_property(key, value.clone(), keep_existing);
            }
        }
        let new: Vec<(String, String)> = self
            .capabilities
            .iter()
            .filter(|(name, _)| {
                self.flavour.overwrite || !draft.derived.capabilities.contains_key(name)
            })
            .cloned()
            .collect();
        if !new.is_empty()
            && let Err(error) = draft.set_derived_capabilities(&new, keep_existing)
        {
            draft.log(InspectionLogLevel::Warning, error.to_string());
        }
    }
}

/// Sets the resource class if it is missing, was derived by the last inspection, or `overwrite`.
fn apply_resource_class(draft: &mut InspectionDraft<'_>, class: &str, overwrite: bool) {
    draft.derived.resource_class = Some(class.to_owned());
    let old = draft.attribute("resource_class").and_then(|old| old.as_str().map(str::to_owned));
    let old = old.filter(|old| !old.is_empty());
    let is_replaceable = old.is_none() || old == draft.previously_derived.resource_class;
    match old {
        Some(old) if old == class => {}
        Some(old) if !is_replaceable && !overwrite => {
            draft.log(
                InspectionLogLevel::Info,
                format!("kept resource_class = {old}; the flavour has {class}"),
            );
        }
        Some(_) | None => match draft.set_attribute("resource_class", &class.into()) {
            Ok(()) => draft.log(InspectionLogLevel::Info, format!("set resource_class to {class}")),
            Err(error) => draft.log(InspectionLogLevel::Warning, error.to_string()),
        },
    }
}

/// Removes traits that an earlier inspection added and that no flavour sets any more.
fn remove_stale_traits(draft: &mut InspectionDraft<'_>) {
    let stale: Vec<String> = draft
        .previously_derived
        .traits
        .iter()
        .filter(|name| !draft.derived.traits.contains(name) && draft.traits.contains(name))
        .cloned()
        .collect();
    for name in stale {
        draft.traits.retain(|known| *known != name);
        draft.log(
            InspectionLogLevel::Info,
            format!("removed trait {name}: no flavour sets it any more"),
        );
    }
}
