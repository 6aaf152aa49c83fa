// SPDX-License-Identifier: Apache-2.0
//! A client of Ironic's HTTP API: Ferrite's or any other.
//!
//! It finds out whom to ask and as whom ([`Target`]: flags, a Ferrite profile, `OS_*` or
//! `clouds.yaml`), agrees on a microversion, signs in, turns pages and follows the event stream. What
//! servers say is handed on as the JSON it is: a client that had its own idea of a node would hide
//! the fields of servers newer than itself.

mod api;
mod clouds;
mod error;
mod events;
mod keystone;
mod openstack;
mod profiles;
mod query;
mod secret;
mod target;
mod version;

pub use api::Api;
pub use error::{ApiError, Kind, SettingsError};
pub use events::{Event, Events};
pub use query::{Query, segment};
pub use reqwest::Method;
pub use secret::Secret;
pub use target::{Flags, Login, Surroundings, Target, Trust};
pub use version::Version;
