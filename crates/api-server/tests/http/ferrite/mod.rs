// SPDX-License-Identifier: Apache-2.0
//! Ferrite's own API and the web UI.

mod boot;
mod cluster;
mod console;
mod discovery;
mod events;
mod fleet;
mod identity;
mod reports;
mod tenancy;
mod web_ui;
