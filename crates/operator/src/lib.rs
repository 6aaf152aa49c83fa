// SPDX-License-Identifier: Apache-2.0
//! Kubernetes controllers. Modules below `desired` are pure: they compute the objects that
//! controllers apply.

pub mod certificates;
pub mod context;
pub mod events;
pub mod health;
pub mod hosts;
mod http_server;
pub mod ironic;
pub mod ironic_connection;
pub mod ironic_database;
pub mod leader;
mod linked_objects;
mod log_limit;
pub mod metrics;
pub mod namespaces;
pub mod object_key;
mod object_loop;
mod object_patches;
pub mod owned_objects;
pub mod process;
mod reconcile_loop;
mod webhooks;
