// SPDX-License-Identifier: Apache-2.0
//! A client of Ironic's HTTP API: Ferrite's or any other.
//!
//! It selects the server and the credentials ([`ApiTarget`]: flags, a Ferrite profile, `OS_*` or
//! `clouds.yaml`), negotiates a microversion, signs in, reads lists page by page and follows the event
//! stream. Responses are returned as JSON values, not as types, so that fields of newer servers are
//! preserved.

mod api;
mod clouds;
mod enrolment;
mod error;
mod events;
mod keystone;
mod openid_login;
mod openstack;
mod profiles;
mod query;
mod secret;
mod target;
#[cfg(test)]
mod test_server;
mod version;

pub use api::Api;
pub use enrolment::create_node_with_ports;
pub use error::{ErrorClass, IronicClientError, TargetError, error_message};
pub use events::{EventStream, ServerSentEvent};
pub use openid_login::{DevicePrompt, OpenIdLogin};
pub use query::{QueryString, file_url, percent_encode};
pub use reqwest::Method;
pub use secret::HiddenText;
pub use target::{
    ApiLogin, ApiTarget, ClientCertificatePaths, ClientEnvironment, TargetFlags, TlsTrust,
};
pub use version::Microversion;
