// SPDX-License-Identifier: Apache-2.0
//! In-band inspection with the agent.

use drivers::InspectionOutcome;
use node_model::{InterfaceKind, PowerState};
use serde_json::json;

use crate::machine;

#[tokio::test]
async fn inspection_boots_agent_and_powers_off_afterwards() {
    let mut machine = machine::with_interfaces(json!({}), &[(InterfaceKind::Inspect, "agent")]);
    let driver = machine.driver.clone();
    let waits = driver.inspect().inspect(&machine.target()).await.unwrap();
    let InspectionOutcome::WaitForAgent(changes) = waits else { panic!("the data comes later") };
    assert_eq!(changes.power_state, Some(PowerState::On));
    machine.record(&changes);
    let changes = driver.inspect().clean_up(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::Off));
    let changes = driver.inspect().abort(&machine.target()).await.unwrap();
    assert_eq!(changes.power_state, Some(PowerState::Off));
}
