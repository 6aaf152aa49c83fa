// SPDX-License-Identifier: Apache-2.0
//! A macro for the methods that all BMC interfaces share: name, `driver_info` keys and step dispatch.

/// Implements [`BaseInterface`](crate::BaseInterface) for a tuple struct that holds the `Arc` of its
/// protocol's connections. The parent module has its `NAME`, and `access::PROPERTIES`. With a table of
/// steps, the struct's `async fn run(&self, target: &DriverTarget<'_>, step: &Step)` executes the
/// steps of the table.
///
/// With `variants`, the struct's second field selects the variant: its method `name` returns the name
/// of the implementation, and the given function of it the tables of steps.
#[macro_export]
macro_rules! bmc_interface {
    (@implement $name:ident, $kind:ident, $interface:ident, $implementation:expr $(, $tables:expr)?) => {
        #[async_trait::async_trait]
        impl $crate::BaseInterface for $name {
            fn kind(&self) -> node_model::InterfaceKind {
                node_model::InterfaceKind::$kind
            }

            fn name(&self) -> &'static str {
                let $interface = self;
                $implementation
            }

            fn properties(&self) -> &[$crate::DriverProperty] {
                super::access::PROPERTIES
            }

            async fn validate(&self, target: &$crate::DriverTarget<'_>) -> Result<(), $crate::DriverError> {
                self.0.validate(target)
            }

            $(
                fn steps(&self, flow: node_model::StepFlow) -> Vec<node_model::AvailableStep> {
                    let $interface = self;
                    let tables: &[&[$crate::StepDefinition]] = $tables;
                    let kind = node_model::InterfaceKind::$kind;
                    tables.iter().flat_map(|table| $crate::steps_of_flow(table, kind, flow)).collect()
                }

                async fn execute_step(
                    &self,
                    target: &$crate::DriverTarget<'_>,
                    flow: node_model::StepFlow,
                    step: &node_model::Step,
                ) -> Result<$crate::StepOutcome, $crate::DriverError> {
                    let $interface = self;
                    let name = step.step.as_str();
                    if !$crate::has_step($tables, name, flow) {
                        let what = format!("carry out the {flow} step '{name}'");
                        return Err($crate::BaseInterface::unsupported(self, &what));
                    }
                    self.run(target, step).await
                }
            )?
        }
    };
    (variants $name:ident, $kind:ident $(, $tables:ident)?) => {
        $crate::bmc_interface!(@implement $name, $kind, interface, interface.1.name() $(, $tables(interface.1))?);
    };
    ($name:ident, $kind:ident $(, $steps:ident)?) => {
        $crate::bmc_interface!(@implement $name, $kind, _interface, super::NAME $(, &[$steps])?);
    };
}
