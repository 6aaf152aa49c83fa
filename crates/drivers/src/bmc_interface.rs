// SPDX-License-Identifier: Apache-2.0
//! A macro for the methods that all BMC interfaces share: name, `driver_info` keys and step dispatch.

/// Implements [`BaseInterface`](crate::BaseInterface) for a tuple struct that holds the `Arc` of its
/// protocol's connections. The parent module has its `NAME`, and `access::PROPERTIES`. With a table of
/// steps, the struct's `async fn run(&self, target: &DriverTarget<'_>, step: &Step)` executes the
/// steps of the table.
#[macro_export]
macro_rules! bmc_interface {
    ($name:ident, $kind:ident $(, $steps:ident)?) => {
        #[async_trait::async_trait]
        impl $crate::BaseInterface for $name {
            fn kind(&self) -> node_model::InterfaceKind {
                node_model::InterfaceKind::$kind
            }

            fn name(&self) -> &'static str {
                super::NAME
            }

            fn properties(&self) -> &[$crate::DriverProperty] {
                super::access::PROPERTIES
            }

            async fn validate(&self, target: &$crate::DriverTarget<'_>) -> Result<(), $crate::DriverError> {
                self.0.validate(target)
            }

            $(
                fn steps(&self, flow: node_model::StepFlow) -> Vec<node_model::AvailableStep> {
                    $crate::steps_of_flow($steps, node_model::InterfaceKind::$kind, flow)
                }

                async fn execute_step(
                    &self,
                    target: &$crate::DriverTarget<'_>,
                    flow: node_model::StepFlow,
                    step: &node_model::Step,
                ) -> Result<$crate::StepOutcome, $crate::DriverError> {
                    let name = step.step.as_str();
                    if !$steps.iter().any(|row| row.name == name && row.flows.contains(&flow)) {
                        let what = format!("carry out the {flow} step '{name}'");
                        return Err($crate::BaseInterface::unsupported(self, &what));
                    }
                    self.run(target, step).await
                }
            )?
        }
    };
}
