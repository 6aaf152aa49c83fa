// SPDX-License-Identifier: Apache-2.0
//! Arguments of steps that hold secrets, such as the URL of a firmware image with a password in it:
//! encrypted where they are kept, in clear for whoever carries the steps out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use node_model::{DeployTemplate, JsonObject, Node, Runbook, SEALED_ARGUMENTS, masked};
use uuid::Uuid;

use crate::vault::{Vault, VaultError};

/// A record with steps.
pub(crate) trait Steps: Clone {
    /// Its id, to which what is sealed belongs.
    fn owner(&self) -> Uuid;
    /// Gives the arguments of each of its steps to `each`.
    fn each_arguments(&mut self, each: &mut dyn FnMut(&mut JsonObject));
    /// Whether any of them may hold a secret.
    fn any_arguments(&self, test: fn(&JsonObject) -> bool) -> bool;

    /// The record as it is written, if it holds secrets.
    fn with_sealed_steps(&self, vault: &Vault) -> Option<Self> {
        if !self.any_arguments(holds_secret) {
            return None;
        }
        let (mut sealed, owner) = (self.clone(), self.owner());
        sealed.each_arguments(&mut |arguments| {
            if holds_secret(arguments) {
                let text = STANDARD.encode(vault.seal(owner, arguments.as_str().as_bytes()));
                let mut only = JsonObject::empty();
                only.set(SEALED_ARGUMENTS, text);
                *arguments = only;
            }
        });
        Some(sealed)
    }

    /// Turns what was written into what it means.
    fn unseal_steps(&mut self, vault: &Vault) -> Result<(), VaultError> {
        if !self.any_arguments(is_sealed) {
            return Ok(());
        }
        let owner = self.owner();
        let mut outcome = Ok(());
        self.each_arguments(&mut |arguments| {
            if is_sealed(arguments) {
                match opened(arguments, owner, vault) {
                    Ok(Some(plain)) => *arguments = plain,
                    Ok(None) => {}
                    Err(error) => outcome = Err(error),
                }
            }
        });
        outcome
    }
}

impl Steps for Node {
    fn owner(&self) -> Uuid {
        self.id.0
    }

    fn each_arguments(&mut self, each: &mut dyn FnMut(&mut JsonObject)) {
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

impl Steps for DeployTemplate {
    fn owner(&self) -> Uuid {
        self.id.0
    }

    fn each_arguments(&mut self, each: &mut dyn FnMut(&mut JsonObject)) {
        self.steps.iter_mut().for_each(|step| each(&mut step.args));
    }

    fn any_arguments(&self, test: fn(&JsonObject) -> bool) -> bool {
        self.steps.iter().any(|step| test(&step.args))
    }
}

impl Steps for Runbook {
    fn owner(&self) -> Uuid {
        self.id.0
    }

    fn each_arguments(&mut self, each: &mut dyn FnMut(&mut JsonObject)) {
        self.steps.iter_mut().for_each(|step| each(&mut step.args));
    }

    fn any_arguments(&self, test: fn(&JsonObject) -> bool) -> bool {
        self.steps.iter().any(|step| test(&step.args))
    }
}

fn holds_secret(arguments: &JsonObject) -> bool {
    masked(arguments).as_str() != arguments.as_str()
}

fn is_sealed(arguments: &JsonObject) -> bool {
    let name = arguments.as_str().strip_prefix("{\"");
    name.and_then(|name| name.strip_prefix(SEALED_ARGUMENTS))
        .is_some_and(|it| it.starts_with("\":"))
}

/// What is sealed in `arguments`. None if they were only given the name of what is sealed, as the API
/// once took them: one such record must not keep a whole list from being read.
fn opened(
    arguments: &JsonObject,
    owner: Uuid,
    vault: &Vault,
) -> Result<Option<JsonObject>, VaultError> {
    let text = arguments.get_str(SEALED_ARGUMENTS);
    let sealed = text.and_then(|text| STANDARD.decode(text).ok());
    let Some(sealed) = sealed.filter(|bytes| vault.is_ours(bytes)) else { return Ok(None) };
    let plain = vault.open_sealed(owner, &sealed)?;
    let plain = String::from_utf8(plain).map_err(|_| VaultError::Unopenable)?;
    Ok(Some(JsonObject::from_stored(&plain)))
}
