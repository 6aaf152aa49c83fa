// SPDX-License-Identifier: Apache-2.0
//! What all Redfish interfaces have in common: their name, the keys of `driver_info` they read,
//! and how their steps are found.

/// Implements [`Interface`](crate::Interface) for a struct that holds an `Arc<Connections>`. With a
/// table of steps, its `async fn run(&self, target: &Target<'_>, step: &Step)` carries out those
/// that are in the table.
macro_rules! redfish_interface {
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

pub(super) use redfish_interface;
