// SPDX-License-Identifier: Apache-2.0
//! What an operator can set about the API.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How callers prove who they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum AuthStrategy {
    /// They do not: everybody may do everything. For a closed network or behind a proxy that
    /// checks.
    #[default]
    None,
    /// HTTP basic authentication against an htpasswd file with bcrypt entries.
    Basic {
        /// The file. Created with a random password for `admin` when it does not exist.
        file: PathBuf,
    },
}

/// The settings of the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiConfig {
    /// Where to listen.
    pub listen: SocketAddr,
    /// How callers prove who they are.
    pub auth: AuthStrategy,
    /// The address clients know this API by, without a trailing slash. Without it, links are made
    /// from the `Host` header of each request.
    pub public_endpoint: Option<String>,
    /// Whether `X-Forwarded-Proto` is believed. Only safe behind a proxy that always sets it.
    pub trust_forwarded_headers: bool,
    /// Whether `/metrics` is open to callers who have not signed in. On by default: it names no
    /// machine and holds no secret, and scrapers seldom have credentials.
    pub public_metrics: bool,
    /// The most entries in one page of a list.
    pub max_limit: u32,
    /// How large bodies may be.
    pub body_limits: BodyLimits,
    /// How long a client may take to send the head of its next request, which is also how long an
    /// idle connection is kept.
    pub idle_timeout: Duration,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// How many connections are served at once; more wait in the kernel's queue. The default
    /// leaves room for every agent of a large fleet to call at the same moment.
    pub max_connections: usize,
    /// How long a conductor may be silent before it counts as dead.
    pub conductor_timeout: Duration,
    /// The resource class of nodes that are enrolled without one.
    pub default_resource_class: Option<String>,
    /// The conductor group of nodes that are enrolled without one.
    pub default_conductor_group: String,
    /// How long requests in flight are waited for when the server stops.
    pub shutdown_timeout: Duration,
}

/// How large bodies may be, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// Most requests.
    pub small: usize,
    /// `states/provision`, which may carry a config drive.
    pub provision: usize,
    /// `continue_inspection`, which carries logs.
    pub inspection: usize,
}

impl Default for BodyLimits {
    fn default() -> Self {
        const MIB: usize = 1024 * 1024;
        Self { small: MIB, provision: 64 * MIB, inspection: 16 * MIB }
    }
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6385)),
            auth: AuthStrategy::None,
            public_endpoint: None,
            trust_forwarded_headers: false,
            public_metrics: true,
            max_limit: 1000,
            body_limits: BodyLimits::default(),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(120),
            max_connections: 8192,
            conductor_timeout: Duration::from_secs(60),
            default_resource_class: None,
            default_conductor_group: String::new(),
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}
