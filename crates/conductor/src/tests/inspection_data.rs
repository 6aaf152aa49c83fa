// SPDX-License-Identifier: Apache-2.0
//! Inspection data that no node waits for: log levels, and data that arrive too early.

use std::sync::{Arc, Mutex};

use inspection::HardwareReport;
use node_model::{NodeId, ProvisionState};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::{AGENT_ADDRESS, TestConductor, agent_at};
use crate::ConductorError;

/// Records level and message of all events of this thread.
#[derive(Clone, Default)]
struct EventRecorder(Arc<Mutex<Vec<(Level, String)>>>);

impl Subscriber for EventRecorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = EventMessage::default();
        event.record(&mut message);
        self.0.lock().unwrap().push((*event.metadata().level(), message.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct EventMessage(String);

impl Visit for EventMessage {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

fn report() -> HardwareReport {
    let interfaces = json!([{"name": "eno1", "mac_address": "52:54:00:aa:00:01"}]);
    HardwareReport::from_value(json!({"inventory": {"interfaces": interfaces}})).unwrap()
}

/// A machine can be quicker than the BMC call that starts it.
#[tokio::test]
async fn data_that_arrive_while_the_inspection_starts_are_sent_again() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::Inspecting, json!({})).await;
    assert!(test.conductor.expects_inspection_data(Some(id)).await.unwrap());
    assert!(test.conductor.expects_inspection_data(None).await.unwrap());
    let caller = agent_at(AGENT_ADDRESS);
    let reply = test.conductor.continue_inspection(report(), Some(id), caller).await;
    assert!(matches!(reply, Err(ConductorError::NotYet(_))), "{reply:?}");
}

/// ironic-python-agent and simulated agents send inspection data at each boot.
#[tokio::test]
async fn data_of_an_agent_that_booted_for_another_reason_are_no_warning() {
    let test = TestConductor::new();
    let id = test.insert_node(ProvisionState::CleanWait, json!({})).await;
    let recorder = EventRecorder::default();
    let _guard = tracing::subscriber::set_default(recorder.clone());
    for (node, level) in [(id, Level::DEBUG), (NodeId::random(), Level::WARN)] {
        recorder.0.lock().unwrap().clear();
        let caller = agent_at(AGENT_ADDRESS);
        let reply = test.conductor.continue_inspection(report(), Some(node), caller).await.unwrap();
        assert!(reply.is_none());
        let events = recorder.0.lock().unwrap().clone();
        let message = "unexpected inspection data ignored".to_owned();
        assert!(events.contains(&(level, message)), "{level}: {events:?}");
    }
}
