// SPDX-License-Identifier: Apache-2.0
//! Names of the parameters a server passes to an agent, on the kernel command line or in
//! `parameters.txt` on virtual media.

/// The API URLs, separated by commas, or `mdns`.
pub const API_URL: &str = "ipa-api-url";
/// The URLs for inspection data, separated by commas, or `mdns`.
pub const INSPECTION_CALLBACK_URL: &str = "ipa-inspection-callback-url";
/// The inspection collectors to run.
pub const INSPECTION_COLLECTORS: &str = "ipa-inspection-collectors";
/// The agent token, the secret of the boot.
pub const AGENT_TOKEN: &str = "ipa-agent-token";
/// The MAC address of the boot NIC.
pub const BOOT_INTERFACE: &str = "BOOTIF";
/// `vmedia` if more parameters are on virtual media.
pub const BOOT_METHOD: &str = "boot_method";
