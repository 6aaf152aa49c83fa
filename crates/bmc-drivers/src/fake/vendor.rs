// SPDX-License-Identifier: Apache-2.0
//! Vendor methods of a simulated machine, the same as Ironic's fake vendor has: they compare the
//! argument `bar` with a word each.

use std::sync::Arc;

use async_trait::async_trait;
use node_model::{InterfaceKind, Step, StepFlow};
use serde_json::{Map, Value};

use super::FakeBehaviour;
use super::behaviour::fake_interface;
use crate::step::StepRow;
use crate::{
    Error, HttpMethod, Interface, NodeChanges, Outcome, Property, Target, Vendor, VendorAnswer,
    VendorMethod,
};

/// The fake vendor interface.
pub(crate) struct FakeVendor(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeVendor, Vendor, VENDOR, STEPS);

/// A property that clients of Ironic's fake vendor expect to be listed; nothing reads it.
pub(super) const B1: Property = ("B1", "Not read; listed because Ironic's fake vendor lists it.");
/// Another.
pub(super) const B2: Property = ("B2", "Not read; listed because Ironic's fake vendor lists it.");

const LOG: &str = "log_passthrough";
const WAIT: &str = "trigger_servicewait";

const STEPS: &[StepRow] = &[
    StepRow {
        name: LOG,
        flows: &[StepFlow::Clean],
        priority: 1,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepRow {
        name: LOG,
        flows: &[StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepRow {
        name: WAIT,
        flows: &[StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
];

const METHODS: &[VendorMethod] = &[
    VendorMethod {
        name: "second_method",
        http_methods: &[HttpMethod::Post],
        is_async: true,
        description: "Tells whether bar is 'kazoo'.",
        attach: false,
        require_exclusive_lock: true,
    },
    VendorMethod {
        name: "third_method_sync",
        http_methods: &[HttpMethod::Post],
        is_async: false,
        description: "Tells whether bar is 'meow', and waits for the answer.",
        attach: false,
        require_exclusive_lock: true,
    },
    VendorMethod {
        name: "fourth_method_shared_lock",
        http_methods: &[HttpMethod::Post],
        is_async: true,
        description: "Tells whether bar is 'woof', while other work may go on.",
        attach: false,
        require_exclusive_lock: false,
    },
    VendorMethod {
        name: LOG,
        http_methods: &[HttpMethod::Post],
        is_async: true,
        description: "Writes the names of its arguments to the log.",
        attach: false,
        require_exclusive_lock: true,
    },
];

/// The word each method compares `bar` with.
const WORDS: &[(&str, &str)] = &[
    ("second_method", "kazoo"),
    ("third_method_sync", "meow"),
    ("fourth_method_shared_lock", "woof"),
];

impl FakeVendor {
    fn run(&self, target: &Target<'_>, step: &Step) -> Result<Outcome, Error> {
        if step.step == WAIT && !target.agent_was_awaited() {
            return Ok(target.wait_for_agent(NodeChanges::none()));
        }
        Ok(Outcome::Done(NodeChanges::none()))
    }
}

#[async_trait]
impl Vendor for FakeVendor {
    fn methods(&self) -> &'static [VendorMethod] {
        METHODS
    }

    async fn validate_call(
        &self,
        _target: &Target<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), Error> {
        if !METHODS.iter().any(|known| known.name == method) {
            return Err(self.cannot(&format!("call the vendor method '{method}'")));
        }
        let given = arguments.get("bar").is_some_and(|bar| !bar.is_null() && bar != "");
        if WORDS.iter().any(|(name, _)| *name == method) && !given {
            return Err(Error::missing("bar", format!("the method '{method}' needs it")));
        }
        Ok(())
    }

    async fn call(
        &self,
        target: &Target<'_>,
        method: &str,
        _http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorAnswer, Error> {
        self.validate_call(target, method, arguments).await?;
        self.0.act(InterfaceKind::Vendor, target, method).await?;
        let Some((_, word)) = WORDS.iter().find(|(name, _)| *name == method) else {
            let arguments: Vec<_> = arguments.keys().collect();
            tracing::debug!(node = %target.node.id, method, ?arguments, "fake vendor method called");
            return Ok(VendorAnswer::default());
        };
        let value = Value::Bool(arguments.get("bar").is_some_and(|bar| bar == word));
        Ok(VendorAnswer { value, changes: NodeChanges::none() })
    }
}
