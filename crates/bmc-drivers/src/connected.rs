// SPDX-License-Identifier: Apache-2.0
//! What all interfaces that talk to a BMC have in common: their name, the keys of `driver_info` they
//! read, and how their steps are found.

/// Implements [`Interface`](crate::Interface) for a struct that holds the `Arc<Connections>` of its
/// protocol; the module above has its `NAME` and the `PROPERTIES` of `access`. With a table of steps, its `async fn run(&self, target: &Target<'_>, step: &Step)` carries out those
/// that are in the table.
macro_rules! connected_interface {
    ($name:ident, $kind:ident $(, $steps:ident)?) => {
        #[async_trait::async_trait]
        impl $crate::Interface for $name {
            fn kind(&self) -> node_model::InterfaceKind {
                node_model::InterfaceKind::$kind
            }

            fn name(&self) -> &'static str {
                super::NAME
            }

            fn properties(&self) -> &[$crate::Property] {
                super::access::PROPERTIES
            }

            async fn validate(&self, target: &$crate::Target<'_>) -> Result<(), $crate::Error> {
                self.0.validate(target)
            }

            $(
                fn steps(&self, flow: node_model::StepFlow) -> Vec<node_model::StepOffer> {
                    $crate::step::offers($steps, node_model::InterfaceKind::$kind, flow)
                }

                async fn execute_step(
                    &self,
                    target: &$crate::Target<'_>,
                    flow: node_model::StepFlow,
                    step: &node_model::Step,
                ) -> Result<$crate::Outcome, $crate::Error> {
                    let name = step.step.as_str();
                    if !$steps.iter().any(|row| row.name == name && row.flows.contains(&flow)) {
                        let what = format!("carry out the {flow} step '{name}'");
                        return Err($crate::Interface::cannot(self, &what));
                    }
                    self.run(target, step).await
                }
            )?
        }
    };
}

pub(crate) use connected_interface;
