// SPDX-License-Identifier: Apache-2.0
//! An agent for tests: on nobody's machine, with nobody to call.

use std::sync::Arc;

use crate::agent::Agent;
use crate::http_client::Reach;
use crate::init::Devices;
use crate::managers::Managers;
use crate::network::Network;
use crate::parameters::{Parameters, Settings};

pub(crate) fn agent(managers: Managers) -> Arc<Agent> {
    let settings = Settings::new(&Parameters::from_command_line("ipa-insecure=1"));
    let network = Network::of_others();
    let reach = Reach::new(&settings, &network).expect("nothing is read");
    Agent::new(settings, network, reach, Devices::of_others(), managers, false)
}
