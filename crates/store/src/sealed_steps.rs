// SPDX-License-Identifier: Apache-2.0
//! Sealed step arguments: encrypted in the database, plain text for the conductor. Step arguments
//! may contain secrets, such as the URL of a firmware image with a password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::{DeployTemplate, JsonObject, Node, Runbook, SEALED_ARGUMENTS, mask_secrets};
use uuid::Uuid;

use crate::key_ring::KeyRing;
use crate::sealing_key::SealError;

/// A record with steps.
pub(crate) trait HasStepArguments: Clone {
    /// UUID of the record, to which sealed arguments are bound.
    fn owner(&self) -> Uuid;
    /// Calls `each` with the arguments of each step.
    fn for_each_arguments(&mut self, each: &mut dyn FnMut(&mut JsonObject));
    /// Whether the arguments of any step satisfy `test`.
    fn any_arguments(&self, test: fn(&JsonObject) -> bool) -> bool;

    /// A copy with sealed arguments, or `None` if no step has secrets.
    fn with_sealed_steps(&self, keys: &KeyRing) -> Option<Self> {
        if !self.any_arguments(has_secret) {
            return None;
        }
        let (mut sealed, owner) = (self.clone(), self.owner());
        sealed.for_each_arguments(&mut |arguments| {
            if has_secret(arguments) {
                let text = STANDARD.encode(keys.seal(owner, arguments.as_str().as_bytes()));
                let mut only = JsonObject::empty();
                only.set(SEALED_ARGUMENTS, text);
                *arguments = only;
            }
        });
        Some(sealed)
    }

    /// Replaces sealed arguments by their plain values.
    fn unseal_steps(&mut self, keys: &KeyRing) -> Result<(), SealError> {
        if !self.any_arguments(is_sealed) {
            return Ok(());
        }
        let owner = self.owner();
        let mut outcome = Ok(());
        self.for_each_arguments(&mut |arguments| {
            if is_sealed(arguments) {
                match unseal_arguments(arguments, owner, keys) {
                    Ok(Some(plain)) => *arguments = plain,
                    Ok(None) => {}
                    Err(error) => outcome = Err(error),
                }
            }
        });
        outcome
    }
}

impl HasStepArguments for Node {
    fn owner(&self) -> Uuid {
        self.id.0
    }

    fn for_each_arguments(&mut self, each: &mut dyn FnMut(&mut JsonObject)) {
        if let Some(work) = &mut self.work {
            let steps = work.steps.iter_mut().chain(&mut work.requested_steps);
            steps.for_each(|step| each(&mut step.args));
        }
    }

    fn any_arguments(&self, test: fn(&JsonObject) -> bool) -> bool {
        self.work.as_ref().is_some_and(|work| {
            work.steps.iter().chain(&work.requested_steps).any(|step| test(&step.args))
        })
    }
}

/// Implements the trait for records whose `steps` have `args`.
macro_rules! has_steps {
    ($($record:ident)*) => {$(
        impl HasStepArguments for $record {
            fn owner(&self) -> Uuid {
                self.id.0
            }

            fn for_each_arguments(&mut self, each: &mut dyn FnMut(&mut JsonObject)) {
                self.steps.iter_mut().for_each(|step| each(&mut step.args));
            }

            fn any_arguments(&self, test: fn(&JsonObject) -> bool) -> bool {
                self.steps.iter().any(|step| test(&step.args))
            }
        }
    )*};
}
has_steps! { DeployTemplate Runbook }

fn has_secret(arguments: &JsonObject) -> bool {
    mask_secrets(arguments).as_str() != arguments.as_str()
}

fn is_sealed(arguments: &JsonObject) -> bool {
    let name = arguments.as_str().strip_prefix("{\"");
    name.and_then(|name| name.strip_prefix(SEALED_ARGUMENTS))
        .is_some_and(|it| it.starts_with("\":"))
}

/// The plain arguments. Returns `None` if they only look sealed: older versions of the API accepted
/// the reserved key, and such a record must not make a whole list fail.
fn unseal_arguments(
    arguments: &JsonObject,
    owner: Uuid,
    keys: &KeyRing,
) -> Result<Option<JsonObject>, SealError> {
    let text = arguments.get_str(SEALED_ARGUMENTS);
    let sealed = text.and_then(|text| STANDARD.decode(text).ok());
    let Some(sealed) = sealed.filter(|bytes| keys.has_own_header(bytes)) else {
        return Ok(None);
    };
    let plain = keys.unseal(owner, &sealed)?;
    let plain = String::from_utf8(plain).map_err(|_| SealError::CannotUnseal)?;
    Ok(Some(JsonObject::from_stored(&plain)))
}
