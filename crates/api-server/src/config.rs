// SPDX-License-Identifier: Apache-2.0
//! Settings of the API server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How callers authenticate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum AuthStrategy {
    /// No authentication: every caller may do everything. For a closed network, or behind a proxy
    /// that authenticates.
    #[default]
    None,
    /// HTTP basic authentication against an htpasswd file with bcrypt entries.
    Basic {
        /// Path of the file. Created with a random password for `admin` if it does not exist.
        file: PathBuf,
    },
}

/// The settings of the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiConfig {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// How callers authenticate.
    pub auth: AuthStrategy,
    /// Public URL of this API, without a trailing slash. If unset, links are built from the `Host`
    /// header of each request.
    pub public_endpoint: Option<String>,
    /// Whether `X-Forwarded-Proto` is trusted. Only safe behind a proxy that always sets it.
    pub trust_forwarded_headers: bool,
    /// Whether `/metrics` is served without authentication. On by default: it contains no node
    /// names and no secrets, and scrapers seldom have credentials.
    pub public_metrics: bool,
    /// Maximum number of entries in one page of a list.
    pub max_limit: u32,
    /// Maximum body sizes.
    pub body_limits: BodyLimits,
    /// Timeout for the head of the next request; also the lifetime of an idle connection.
    pub idle_timeout: Duration,
    /// Timeout for a request body.
    pub body_timeout: Duration,
    /// Maximum number of concurrent connections; further ones wait in the listen backlog. The
    /// default allows every agent of a large fleet to connect at the same time.
    pub max_connections: usize,
    /// Time without a heartbeat after which a conductor counts as dead.
    pub conductor_timeout: Duration,
    /// Resource class of nodes created without one.
    pub default_resource_class: Option<String>,
    /// Conductor group of nodes created without one.
    pub default_conductor_group: String,
    /// How long to wait for requests in flight when the server stops.
    pub shutdown_timeout: Duration,
}

/// Maximum body sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyLimits {
    /// Most endpoints.
    pub small: usize,
    /// `states/provision`, whose body may contain a config drive.
    pub provision: usize,
    /// `continue_inspection`, whose body contains logs.
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
