// SPDX-License-Identifier: Apache-2.0
//! Tests of the provisioner: requests to recorded responses, and whole life cycles with the real
//! service and with Ironic.

mod boot_nics;
mod machine_checks;
mod machines;
mod payloads;
mod real_service;
mod recorded;
mod recording;
mod stock_ironic;
