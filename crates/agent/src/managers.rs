// SPDX-License-Identifier: Apache-2.0
//! Hardware managers: who knows how to do things to this machine.
//!
//! There is always the generic one. A vendor can add others, as code that implements
//! [`HardwareManager`] or as a program in the ramdisk (see `docs/hardware-managers.md`). The one
//! that supports the machine best is asked first.

mod burn_in;
mod disks;
mod external;
mod generic;
pub mod images;
mod raid;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use agent_protocol::{CommandError, Disk, Flow, Inventory, StepDescription, StepList, StepOrder};
use async_trait::async_trait;
use serde_json::{Map, Value};

pub use disks::root_device;
pub use generic::GenericManager;

use crate::agent::Agent;

/// How well a manager knows the machine. Higher is asked first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Support {
    /// Not at all: it is not asked.
    None = 0,
    /// As any machine.
    Generic = 1,
    /// As the maker of the hardware does.
    Mainline = 2,
    /// As the owner of this very kind of machine does.
    ServiceProvider = 3,
}

/// Why a step was not carried out.
#[derive(Clone, PartialEq, Debug)]
pub enum StepError {
    /// This manager has no such step; the next is asked.
    NotMine,
    /// It failed.
    Failed(CommandError),
}

/// Somebody who knows how to do things to this machine.
#[async_trait]
pub trait HardwareManager: Send + Sync {
    /// Its name in lists of steps.
    fn name(&self) -> &str;

    /// What it says about its version, by names. A step is refused if these are others than when
    /// it was listed.
    fn versions(&self) -> Vec<(String, String)>;

    /// How well it knows this machine.
    fn support(&self) -> Support;

    /// The steps it offers.
    async fn steps(
        &self,
        agent: &Agent,
        flow: Flow,
        node: &Map<String, Value>,
        ports: &[Value],
    ) -> Result<Vec<StepDescription>, StepError>;

    /// Carries out a step. What it gives is told to the server.
    async fn execute(
        &self,
        agent: &Agent,
        flow: Flow,
        order: &StepOrder,
    ) -> Result<Value, StepError>;

    /// The machine's disks, if it knows better than the kernel.
    fn disks(&self) -> Option<Vec<Disk>> {
        None
    }

    /// Corrects or completes what inspection found.
    fn amend_inventory(&self, _inventory: &mut Inventory) {}
}

/// All of them.
pub struct Managers(Vec<Arc<dyn HardwareManager>>);

impl Managers {
    /// The generic one, those that were built in, and the programs in a folder.
    pub async fn load(mut managers: Vec<Arc<dyn HardwareManager>>, programs: &Path) -> Self {
        managers.push(Arc::new(GenericManager));
        for manager in external::load(programs).await {
            managers.push(Arc::new(manager));
        }
        Self::of(managers)
    }

    /// These, the best first.
    #[must_use]
    pub fn of(mut managers: Vec<Arc<dyn HardwareManager>>) -> Self {
        managers.retain(|manager| manager.support() > Support::None);
        managers.sort_by(|one, other| {
            (other.support(), one.name()).cmp(&(one.support(), other.name()))
        });
        Self(managers)
    }

    /// The names and versions of all.
    #[must_use]
    pub fn versions(&self) -> Map<String, Value> {
        let pairs = self.0.iter().flat_map(|manager| manager.versions());
        pairs.map(|(name, version)| (name, Value::String(version))).collect()
    }

    /// The steps all of them offer. A step that several offer is that of the first, who also carries
    /// it out.
    ///
    /// # Errors
    /// If a manager cannot say.
    pub async fn steps(
        &self,
        agent: &Agent,
        flow: Flow,
        node: &Map<String, Value>,
        ports: &[Value],
    ) -> Result<StepList, CommandError> {
        let mut list = StepList { steps: BTreeMap::new(), versions: self.versions() };
        let mut known = BTreeSet::new();
        for manager in &self.0 {
            let mut steps = match manager.steps(agent, flow, node, ports).await {
                Ok(steps) => steps,
                Err(StepError::NotMine) => Vec::new(),
                Err(StepError::Failed(error)) => return Err(error),
            };
            steps.retain(|step| known.insert(step.step.clone()));
            steps.sort_by(|one, other| one.step.cmp(&other.step));
            list.steps.insert(manager.name().to_owned(), steps);
        }
        Ok(list)
    }

    /// Carries out a step by the first manager that has it.
    ///
    /// # Errors
    /// If it fails, or nobody has it.
    pub async fn execute(
        &self,
        agent: &Agent,
        flow: Flow,
        order: &StepOrder,
    ) -> Result<Value, StepError> {
        for manager in &self.0 {
            match manager.execute(agent, flow, order).await {
                Err(StepError::NotMine) => {}
                done => return done,
            }
        }
        Err(StepError::NotMine)
    }

    /// The machine's disks, as the first manager that knows them says.
    #[must_use]
    pub fn disks(&self) -> Vec<Disk> {
        self.0.iter().find_map(|manager| manager.disks()).unwrap_or_default()
    }

    /// Lets all of them correct what inspection found, the best last.
    pub fn amend_inventory(&self, inventory: &mut Inventory) {
        self.0.iter().rev().for_each(|manager| manager.amend_inventory(inventory));
    }
}

impl StepError {
    /// A failure by the name of an error of ironic-python-agent, in short and at length.
    #[must_use]
    pub fn failed(kind: &str, message: &str, details: &str) -> Self {
        Self::Failed(CommandError {
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

    struct Fake(&'static str, Support, &'static [(&'static str, i64)]);

    #[async_trait]
    impl HardwareManager for Fake {
        fn name(&self) -> &str {
            self.0
        }

        fn versions(&self) -> Vec<(String, String)> {
            vec![(self.0.to_lowercase(), "1".to_owned())]
        }

        fn support(&self) -> Support {
            self.1
        }

        async fn steps(
            &self,
            _: &Agent,
            _: Flow,
            _: &Map<String, Value>,
            _: &[Value],
        ) -> Result<Vec<StepDescription>, StepError> {
            let step = |(name, priority): &(&str, i64)| StepDescription {
                step: (*name).to_owned(),
                priority: *priority,
                interface: "deploy".to_owned(),
                reboot_requested: false,
                abortable: true,
                argsinfo: None,
            };
            Ok(self.2.iter().map(step).collect())
        }

        async fn execute(&self, _: &Agent, _: Flow, order: &StepOrder) -> Result<Value, StepError> {
            let name = order.name().unwrap_or_default();
            let has = self.2.iter().any(|(step, _)| *step == name);
            if has { Ok(Value::String(self.0.to_owned())) } else { Err(StepError::NotMine) }
        }
    }

    #[tokio::test]
    async fn the_best_manager_comes_first() {
        let agent = crate::testing::agent(Managers::of(vec![
            Arc::new(Fake("Generic", Support::Generic, &[("a", 99), ("b", 5)])),
            Arc::new(Fake("Vendor", Support::Mainline, &[("a", 1), ("d", 9)])),
            Arc::new(Fake("Another", Support::Mainline, &[("d", 1)])),
            Arc::new(Fake("Absent", Support::None, &[("a", 1000)])),
        ]));
        let list = agent.managers.steps(&agent, Flow::Clean, &Map::new(), &[]).await.unwrap();
        let names = |manager: &str| {
            list.steps[manager].iter().map(|step| step.step.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((names("Vendor"), names("Generic")), (vec!["a"], vec!["b"]));
        assert_eq!(names("Another"), ["d"]);
        assert_eq!(list.versions.len(), 3);
        let order = |name: &str| StepOrder {
            step: Map::from_iter([("step".to_owned(), Value::String(name.to_owned()))]),
            node: Map::new(),
            ports: Vec::new(),
            versions: None,
        };
        let by = |name: &'static str| {
            let agent = &agent;
            async move { agent.managers.execute(agent, Flow::Clean, &order(name)).await }
        };
        assert_eq!(by("a").await, Ok(Value::String("Vendor".to_owned())));
        assert_eq!(by("b").await, Ok(Value::String("Generic".to_owned())));
        assert_eq!(by("d").await, Ok(Value::String("Another".to_owned())), "who listed it");
        assert_eq!(by("c").await, Err(StepError::NotMine));
    }
}
