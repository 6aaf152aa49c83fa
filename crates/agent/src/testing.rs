// SPDX-License-Identifier: Apache-2.0
//! An agent for tests: a host process without a server.

use std::sync::Arc;

use crate::agent::RamdiskAgent;
use crate::http_client::HttpContext;
use crate::init::DeviceMonitor;
use crate::managers::HardwareManagers;
use crate::network::AgentNetwork;
use crate::parameters::{AgentOptions, BootParameters};

pub(crate) fn test_agent(managers: HardwareManagers) -> Arc<RamdiskAgent> {
    let options = AgentOptions::new(&BootParameters::from_command_line("ipa-insecure=1"));
    let network = AgentNetwork::unmanaged();
    let http = HttpContext::new(&options, &network).expect("no CA file is read");
    RamdiskAgent::new(options, network, http, DeviceMonitor::unmanaged(), managers, false)
}
