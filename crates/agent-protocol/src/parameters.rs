// SPDX-License-Identifier: Apache-2.0
//! The names by which a server tells an agent things on the kernel's command line, and in
//! `parameters.txt` on virtual media.

/// Where the API is: URLs separated by commas, or `mdns`.
pub const API_URL: &str = "ipa-api-url";
/// Where inspection data go: URLs separated by commas, or `mdns`.
pub const INSPECTION_CALLBACK_URL: &str = "ipa-inspection-callback-url";
/// What to collect.
pub const INSPECTION_COLLECTORS: &str = "ipa-inspection-collectors";
/// The agent's token, where it comes with the boot medium.
pub const AGENT_TOKEN: &str = "ipa-agent-token";
/// The card the machine booted from.
pub const BOOT_INTERFACE: &str = "BOOTIF";
/// `vmedia`, if more is on a CD.
pub const BOOT_METHOD: &str = "boot_method";
