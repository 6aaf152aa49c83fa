// SPDX-License-Identifier: Apache-2.0
//! Hardware managers, which offer and execute steps.
//!
//! The generic manager is always present. Vendors can add others, as code that implements
//! [`HardwareManager`] or as a program in the ramdisk (see `docs/hardware-managers.md`). Managers are
//! queried in the request of their support level.

mod burn_in;
mod disk_selection;
mod disks;
mod external;
mod generic;
pub mod images;
mod raid;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use agent_protocol::{
    AgentCommandError, AgentInventory, AgentStep, AgentStepList, ExecuteStepRequest, InventoryDisk,
    StepFlow,
};
use async_trait::async_trait;
use serde_json::{Map, Value};

pub use disks::root_device;
pub use generic::GenericManager;

use crate::agent::RamdiskAgent;

/// How well a manager supports the machine. Higher levels are queried first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HardwareSupport {
    /// Not supported: the manager is not used.
    None = 0,
    /// Supported like any machine.
    Generic = 1,
    /// Supported by the hardware vendor.
    Mainline = 2,
    /// Supported by the owner of the machines.
    ServiceProvider = 3,
}

/// A step was not executed successfully.
#[derive(Clone, PartialEq, Debug)]
pub enum ManagerStepError {
    /// This manager does not have the step; the next one is tried.
    NotSupported,
    /// The step failed.
    Failed(AgentCommandError),
}

/// Offers and executes steps for this machine.
#[async_trait]
pub trait HardwareManager: Send + Sync {
    /// Returns the name of the manager in lists of steps.
    fn name(&self) -> &str;

    /// Returns version strings by name. A step is rejected if they changed since it was listed.
    fn versions(&self) -> Vec<(String, String)>;

    /// Returns the support level for this machine.
    fn support(&self) -> HardwareSupport;

    /// Returns the available steps.
    async fn steps(
        &self,
        agent: &RamdiskAgent,
        flow: StepFlow,
        node: &Map<String, Value>,
        ports: &[Value],
    ) -> Result<Vec<AgentStep>, ManagerStepError>;

    /// Executes a step. The result is sent to the server.
    async fn execute(
        &self,
        agent: &RamdiskAgent,
        flow: StepFlow,
        request: &ExecuteStepRequest,
    ) -> Result<Value, ManagerStepError>;

    /// Returns the machine's disks, if the manager detects them better than the kernel.
    fn disks(&self) -> Option<Vec<InventoryDisk>> {
        None
    }

    /// Corrects or completes the inventory.
    fn amend_inventory(&self, _inventory: &mut AgentInventory) {}
}

/// All hardware managers.
pub struct HardwareManagers(Vec<Arc<dyn HardwareManager>>);

impl HardwareManagers {
    /// Loads the generic manager, built-in ones, and the programs in a directory.
    pub async fn load(mut managers: Vec<Arc<dyn HardwareManager>>, programs: &Path) -> Self {
        managers.push(Arc::new(GenericManager));
        for manager in external::load(programs).await {
            managers.push(Arc::new(manager));
        }
        Self::new(managers)
    }

    /// Sorts the managers by support level and drops those without support.
    #[must_use]
    pub fn new(mut managers: Vec<Arc<dyn HardwareManager>>) -> Self {
        managers.retain(|manager| manager.support() > HardwareSupport::None);
        managers.sort_by(|one, other| {
            (other.support(), one.name()).cmp(&(one.support(), other.name()))
        });
        Self(managers)
    }

    /// Returns the names and versions of all managers.
    #[must_use]
    pub fn versions(&self) -> Map<String, Value> {
        let pairs = self.0.iter().flat_map(|manager| manager.versions());
        pairs.map(|(name, version)| (name, Value::String(version))).collect()
    }

    /// Lists the steps of all managers. A step that several managers offer is listed for the first
    /// one, which also executes it.
    ///
    /// # Errors
    /// If a manager fails to list its steps.
    pub async fn steps(
        &self,
        agent: &RamdiskAgent,
        flow: StepFlow,
        node: &Map<String, Value>,
        ports: &[Value],
    ) -> Result<AgentStepList, AgentCommandError> {
        let mut list = AgentStepList { steps: BTreeMap::new(), versions: self.versions() };
        let mut known = BTreeSet::new();
        for manager in &self.0 {
            let mut steps = match manager.steps(agent, flow, node, ports).await {
                Ok(steps) => steps,
                Err(ManagerStepError::NotSupported) => Vec::new(),
                Err(ManagerStepError::Failed(error)) => return Err(error),
            };
            steps.retain(|step| known.insert(step.step.clone()));
            steps.sort_by(|one, other| one.step.cmp(&other.step));
            list.steps.insert(manager.name().to_owned(), steps);
        }
        Ok(list)
    }

    /// Executes a step with the first manager that has it.
    ///
    /// # Errors
    /// If the step fails, or no manager has it.
    pub async fn execute(
        &self,
        agent: &RamdiskAgent,
        flow: StepFlow,
        request: &ExecuteStepRequest,
    ) -> Result<Value, ManagerStepError> {
        for manager in &self.0 {
            match manager.execute(agent, flow, request).await {
                Err(ManagerStepError::NotSupported) => {}
                done => return done,
            }
        }
        Err(ManagerStepError::NotSupported)
    }

    /// Returns the machine's disks from the first manager that detects them.
    #[must_use]
    pub fn disks(&self) -> Vec<InventoryDisk> {
        self.0.iter().find_map(|manager| manager.disks()).unwrap_or_default()
    }

    /// Lets all managers amend the inventory, the best one last.
    pub fn amend_inventory(&self, inventory: &mut AgentInventory) {
        self.0.iter().rev().for_each(|manager| manager.amend_inventory(inventory));
    }
}

impl ManagerStepError {
    /// Returns a failure with an error type of ironic-python-agent.
    #[must_use]
    pub fn failed(kind: &str, message: &str, details: &str) -> Self {
        Self::Failed(AgentCommandError {
            kind: kind.to_owned(),
            code: Some(500),
            message: Some(message.to_owned()),
            details: Some(format!("{message}: {details}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FakeManager(&'static str, HardwareSupport, &'static [(&'static str, i64)]);

    #[async_trait]
    impl HardwareManager for FakeManager {
        fn name(&self) -> &str {
            self.0
        }

        fn versions(&self) -> Vec<(String, String)> {
            vec![(self.0.to_lowercase(), "1".to_owned())]
        }

        fn support(&self) -> HardwareSupport {
            self.1
        }

        async fn steps(
            &self,
            _: &RamdiskAgent,
            _: StepFlow,
            _: &Map<String, Value>,
            _: &[Value],
        ) -> Result<Vec<AgentStep>, ManagerStepError> {
            let step = |(name, priority): &(&str, i64)| AgentStep {
                step: (*name).to_owned(),
                priority: *priority,
                interface: "deploy".to_owned(),
                reboot_requested: false,
                abortable: true,
                argsinfo: None,
            };
            Ok(self.2.iter().map(step).collect())
        }

        async fn execute(
            &self,
            _: &RamdiskAgent,
            _: StepFlow,
            request: &ExecuteStepRequest,
        ) -> Result<Value, ManagerStepError> {
            let name = request.name().unwrap_or_default();
            let has = self.2.iter().any(|(step, _)| *step == name);
            if has {
                Ok(Value::String(self.0.to_owned()))
            } else {
                Err(ManagerStepError::NotSupported)
            }
        }
    }

    #[tokio::test]
    async fn prefers_manager_with_best_support() {
        let agent = crate::testing::test_agent(HardwareManagers::new(vec![
            Arc::new(FakeManager("Generic", HardwareSupport::Generic, &[("a", 99), ("b", 5)])),
            Arc::new(FakeManager("Vendor", HardwareSupport::Mainline, &[("a", 1), ("d", 9)])),
            Arc::new(FakeManager("Another", HardwareSupport::Mainline, &[("d", 1)])),
            Arc::new(FakeManager("Absent", HardwareSupport::None, &[("a", 1000)])),
        ]));
        let list = agent.managers.steps(&agent, StepFlow::Clean, &Map::new(), &[]).await.unwrap();
        let names = |manager: &str| {
            list.steps[manager].iter().map(|step| step.step.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((names("Vendor"), names("Generic")), (vec!["a"], vec!["b"]));
        assert_eq!(names("Another"), ["d"]);
        assert_eq!(list.versions.len(), 3);
        let request = |name: &str| ExecuteStepRequest {
            step: Map::from_iter([("step".to_owned(), Value::String(name.to_owned()))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        };
        let by = |name: &'static str| {
            let agent = &agent;
            async move { agent.managers.execute(agent, StepFlow::Clean, &request(name)).await }
        };
        assert_eq!(by("a").await, Ok(Value::String("Vendor".to_owned())));
        assert_eq!(by("b").await, Ok(Value::String("Generic".to_owned())));
        assert_eq!(by("d").await, Ok(Value::String("Another".to_owned())), "the listing manager");
        assert_eq!(by("c").await, Err(ManagerStepError::NotSupported));
    }
}
