// SPDX-License-Identifier: Apache-2.0
//! The fake vendor interface, with the methods of Ironic's: each compares the argument `bar` with a
//! fixed text.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, DriverError, DriverProperty, DriverTarget, HttpMethod, NodeChanges,
    StepDefinition, StepOutcome, VendorInterface, VendorMethod, VendorResponse,
};
use node_model::{InterfaceKind, Step, StepFlow};
use serde_json::{Map, Value};

use super::FakeBehaviour;
use super::behaviour::fake_interface;

/// The fake vendor interface.
pub(crate) struct FakeVendor(pub(super) Arc<FakeBehaviour>);

fake_interface!(FakeVendor, Vendor, VENDOR, STEPS);

/// A property of Ironic's fake vendor interface. It has no effect.
pub(super) const B1: DriverProperty =
    ("B1", "Not read; listed because Ironic's fake vendor lists it.");
/// Another one.
pub(super) const B2: DriverProperty =
    ("B2", "Not read; listed because Ironic's fake vendor lists it.");

const LOG_METHOD: &str = "log_passthrough";
const WAIT_STEP: &str = "trigger_servicewait";

const STEPS: &[StepDefinition] = &[
    StepDefinition {
        name: LOG_METHOD,
        flows: &[StepFlow::Clean],
        priority: 1,
        abortable: false,
        requires_ramdisk: true,
        arguments: &[],
    },
    StepDefinition {
        name: LOG_METHOD,
        flows: &[StepFlow::Service],
        priority: 0,
        abortable: false,
        requires_ramdisk: false,
        arguments: &[],
    },
    StepDefinition {
        name: WAIT_STEP,
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
        description: "Checks whether bar is 'kazoo'.",
        attach: false,
        require_exclusive_lock: true,
    },
    VendorMethod {
        name: "third_method_sync",
        http_methods: &[HttpMethod::Post],
        is_async: false,
        description: "Checks whether bar is 'meow', and returns the result synchronously.",
        attach: false,
        require_exclusive_lock: true,
    },
    VendorMethod {
        name: "fourth_method_shared_lock",
        http_methods: &[HttpMethod::Post],
        is_async: true,
        description: "Checks whether bar is 'woof', with a shared lock.",
        attach: false,
        require_exclusive_lock: false,
    },
    VendorMethod {
        name: LOG_METHOD,
        http_methods: &[HttpMethod::Post],
        is_async: true,
        description: "Writes the names of its arguments to the log.",
        attach: false,
        require_exclusive_lock: true,
    },
];

/// The text that each method compares `bar` with.
const EXPECTED_TEXTS: &[(&str, &str)] = &[
    ("second_method", "kazoo"),
    ("third_method_sync", "meow"),
    ("fourth_method_shared_lock", "woof"),
];

impl FakeVendor {
    fn run(&self, target: &DriverTarget<'_>, step: &Step) -> Result<StepOutcome, DriverError> {
        if step.step == WAIT_STEP && !target.agent_was_awaited() {
            return Ok(target.wait_for_agent(NodeChanges::none()));
        }
        Ok(StepOutcome::done(NodeChanges::none()))
    }
}

#[async_trait]
impl VendorInterface for FakeVendor {
    fn methods(&self) -> &'static [VendorMethod] {
        METHODS
    }

    async fn validate_call(
        &self,
        _target: &DriverTarget<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        if !METHODS.iter().any(|known| known.name == method) {
            return Err(self.unsupported(&format!("call the vendor method '{method}'")));
        }
        let has_bar = arguments.get("bar").is_some_and(|bar| !bar.is_null() && bar != "");
        if EXPECTED_TEXTS.iter().any(|(name, _)| *name == method) && !has_bar {
            return Err(DriverError::missing("bar", format!("the method '{method}' needs it")));
        }
        Ok(())
    }

    async fn call(
        &self,
        target: &DriverTarget<'_>,
        method: &str,
        _http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorResponse, DriverError> {
        self.validate_call(target, method, arguments).await?;
        self.0.begin_call(InterfaceKind::Vendor, target, method).await?;
        let Some((_, expected)) = EXPECTED_TEXTS.iter().find(|(name, _)| *name == method) else {
            let arguments: Vec<_> = arguments.keys().collect();
            tracing::debug!(node = %target.node.id, method, ?arguments, "fake vendor method called");
            return Ok(VendorResponse::default());
        };
        let value = Value::Bool(arguments.get("bar").is_some_and(|bar| bar == expected));
        Ok(VendorResponse { value, changes: NodeChanges::none() })
    }
}
