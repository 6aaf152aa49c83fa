// SPDX-License-Identifier: Apache-2.0
//! A host, its companions and a provisioner, with injected time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube_resources::hosts::bare_metal_host::BareMetalHost;
use kube_resources::hosts::host_status::BareMetalHostStatus;
use kube_resources::hosts::names::HOST_FINALIZER;
use serde_json::{Value, json};

use crate::hosts::decide::{
    HostAction, HostCompanions, HostLimits, HostMemory, HostUpdate, HostView, NextPass, apply,
    decide,
};
use crate::hosts::execute::{
    HostContents, SecretContent, bmc_access, execute, registration_digest,
};
use crate::hosts::provisioner::HostProvisioner;

/// Actions in one pass; more is an endless loop.
const MAX_ACTIONS: usize = 40;
/// Passes until a goal; more is an endless loop.
const MAX_PASSES: usize = 400;

pub(crate) struct HostLab {
    pub(crate) host: BareMetalHost,
    pub(crate) companions: HostCompanions,
    pub(crate) memory: HostMemory,
    pub(crate) policy: HostLimits,
    pub(crate) contents: HostContents,
    pub(crate) secret: Option<BTreeMap<String, ByteString>>,
    pub(crate) secret_version: String,
    pub(crate) provisioner: Arc<dyn HostProvisioner>,
    pub(crate) now: Timestamp,
    pub(crate) events: Vec<&'static str>,
    /// The texts of the events.
    pub(crate) event_texts: Vec<String>,
    /// States in the order in which they were entered.
    pub(crate) states: Vec<String>,
    /// Generations of BIOS settings in the order in which they were applied.
    pub(crate) applied_settings: Vec<i64>,
    pub(crate) is_gone: bool,
}

impl HostLab {
    pub(crate) fn new(provisioner: Arc<dyn HostProvisioner>, spec: Value) -> Self {
        let mut host: BareMetalHost = serde_json::from_value(json!({
            "metadata": {"name": "host-1", "namespace": "lab", "generation": 1,
                "uid": "6a6a6a6a-0000-4000-8000-000000000001"},
            "spec": {"online": true, "bootMACAddress": "52:54:00:00:00:01",
                "bmc": {"address": "redfish-virtualmedia://192.0.2.1/redfish/v1/Systems/1",
                    "credentialsName": "bmc"}},
        }))
        .unwrap();
        host.spec = merged(&host.spec, spec);
        let text = |text: &str| ByteString(text.as_bytes().to_vec());
        let secret = BTreeMap::from([
            ("username".to_owned(), text("admin")),
            ("password".to_owned(), text("secret")),
        ]);
        Self {
            host,
            companions: HostCompanions::default(),
            memory: HostMemory::default(),
            policy: HostLimits::default(),
            contents: HostContents::default(),
            secret: Some(secret),
            secret_version: "1".to_owned(),
            provisioner,
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            events: Vec::new(),
            event_texts: Vec::new(),
            states: Vec::new(),
            applied_settings: Vec::new(),
            is_gone: false,
        }
    }

    pub(crate) fn status(&self) -> BareMetalHostStatus {
        self.host.status.clone().unwrap_or_default()
    }

    pub(crate) fn state(&self) -> String {
        self.status().provisioning.state.as_str().to_owned()
    }

    pub(crate) fn edit(&mut self, spec: Value) {
        self.host.spec = merged(&self.host.spec, spec);
        *self.host.metadata.generation.get_or_insert(1) += 1;
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        let annotations = self.host.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
    }

    pub(crate) fn remove_annotation(&mut self, key: &str) {
        self.host.metadata.annotations.get_or_insert_default().remove(key);
    }

    pub(crate) fn has_annotation(&self, key: &str) -> bool {
        self.host.annotation(key).is_some()
    }

    pub(crate) fn delete(&mut self) {
        self.host.metadata.deletion_timestamp = Some(Time(self.now));
    }

    /// The operator restarts.
    pub(crate) fn restart(&mut self) {
        self.memory = HostMemory::default();
    }

    pub(crate) fn condition(&self, name: &str) -> (String, String, String) {
        let conditions = self.status().conditions;
        let found = conditions.iter().find(|condition| condition.type_ == name).unwrap();
        (found.status.clone(), found.reason.clone(), found.message.clone())
    }

    fn refresh(&mut self) {
        let version = self.secret_version.clone();
        let secret = self.secret.as_ref().map(|data| SecretContent { data, version: &version });
        let (state, access) = bmc_access(&self.host, secret);
        self.contents.bmc = access;
        self.companions.registration_digest =
            registration_digest(&self.host, &state, &self.contents);
        self.companions.bmc_access = state;
    }

    /// One pass; returns when to look again.
    pub(crate) async fn pass(&mut self) -> Option<Duration> {
        self.memory.begin_pass();
        for _ in 0..MAX_ACTIONS {
            if self.is_gone {
                return None;
            }
            self.refresh();
            let view = HostView::new(&self.host, &self.companions, &self.memory, &self.policy);
            let update = match decide(&view, self.now) {
                HostAction::Wait { after } => return after,
                HostAction::Update(update) => *update,
                HostAction::Call(verb) => {
                    let outcome = execute(&*self.provisioner, &view, &self.contents, &verb).await;
                    apply(&view, &verb, outcome, self.now)
                }
            };
            match self.write(update) {
                NextPass::Now => {}
                NextPass::After(after) => return after,
            }
        }
        panic!("endless pass in state {:?}: {:?}", self.state(), self.host.status);
    }

    fn write(&mut self, update: HostUpdate) -> NextPass {
        if let Some(hardware) = update.hardware {
            self.companions.hardware_data = Some(*hardware);
        }
        if let (Some(status), Some(image)) = (update.data_image, &mut self.companions.data_image) {
            image.status = Some(status);
        }
        if let Some(components) = self
            .companions
            .firmware_components
            .as_mut()
            .filter(|_| update.records_component_updates)
        {
            let status = components.status.get_or_insert_default();
            status.updates.clone_from(&components.spec.updates);
        }
        self.applied_settings.extend(update.applied_settings.map(|version| version.generation));
        let state = update.status.provisioning.state.as_str().to_owned();
        if self.states.last() != Some(&state) {
            self.states.push(state);
        }
        self.host.status = Some(*update.status);
        let metadata = &mut self.host.metadata;
        if update.patch.adds_finalizer {
            metadata.finalizers.get_or_insert_default().push(HOST_FINALIZER.to_owned());
        }
        for key in &update.patch.removed_annotations {
            metadata.annotations.get_or_insert_default().remove(key);
        }
        if let Some(architecture) = update.patch.architecture {
            self.host.spec.architecture = Some(architecture);
            *metadata.generation.get_or_insert(1) += 1;
        }
        if update.patch.removes_finalizer {
            assert!(metadata.deletion_timestamp.is_some(), "only deleted objects are released");
            self.is_gone = true;
        }
        self.events.extend(update.events.iter().map(|event| event.reason));
        self.event_texts.extend(update.events.into_iter().map(|event| event.message));
        self.memory = update.memory;
        update.next
    }

    /// Runs passes, with time in between, until the goal is reached.
    pub(crate) async fn run_until(&mut self, goal: impl Fn(&Self) -> bool) {
        for _ in 0..MAX_PASSES {
            let after = self.pass().await;
            if goal(self) {
                return;
            }
            let Some(after) = after else {
                panic!("nothing to wait for in state {:?}: {:#?}", self.state(), self.host)
            };
            self.now += after.max(Duration::from_millis(1));
        }
        panic!("the goal is not reached in state {:?}: {:#?}", self.state(), self.host.status);
    }

    pub(crate) async fn run_until_state(&mut self, state: &str) {
        self.run_until(|lab| lab.state() == state).await;
    }

    /// Runs until the host is only looked at from time to time.
    pub(crate) async fn settle(&mut self) {
        for _ in 0..MAX_PASSES {
            match self.pass().await {
                None => return,
                Some(after) if after >= Duration::from_secs(60) => return,
                Some(after) => self.now += after,
            }
        }
        panic!("the host does not settle in state {:?}", self.state());
    }

    pub(crate) async fn run_until_gone(&mut self) {
        self.run_until(|lab| lab.is_gone).await;
    }
}

fn merged<T: serde::Serialize + serde::de::DeserializeOwned>(current: &T, changes: Value) -> T {
    let mut value = serde_json::to_value(current).unwrap();
    for (key, change) in changes.as_object().unwrap() {
        value[key] = change.clone();
    }
    serde_json::from_value(value).unwrap()
}
