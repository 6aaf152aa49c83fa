// SPDX-License-Identifier: Apache-2.0
//! Settings of the API server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use authentication::AuthSettings;

/// The settings of the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiConfig {
    /// Address and port to listen on.
    pub listen: SocketAddr,
    /// How callers authenticate.
    pub auth: AuthSettings,
    /// Public URL of this API, without a trailing slash. If unset, links are built from the `Host`
    /// header of each request.
    pub public_endpoint: Option<String>,
    /// The CA certificates (PEM) that verify the certificate of this server, for download by clients.
    pub ca_certificates: Option<Arc<str>>,
    /// Whether clients need a TLS certificate, except on public endpoints and over the Unix socket.
    pub requires_client_certificate: bool,
    /// Whether `X-Forwarded-Proto` and `X-Forwarded-For` are trusted. The latter becomes the address of the
    /// client, for its limits and the boot proof of agents. Only safe behind a proxy that always sets both.
    pub trust_forwarded_headers: bool,
    /// Whether `/metrics` is served without authentication. On by default: it contains no node
    /// names and no secrets, and scrapers seldom have credentials.
    pub public_metrics: bool,
    /// Maximum number of entries in one page of a list.
    pub max_limit: u32,
    /// Maximum body sizes.
    pub body_limits: BodyLimits,
    /// Host names by which clients reach this server, besides `localhost`, IP addresses and the public
    /// endpoint. A name that starts with a dot stands for all its subdomains, `*` for every name.
    pub allowed_hosts: Vec<String>,
    /// Timeout for the head of the first request of a connection, including the TLS handshake.
    pub head_timeout: Duration,
    /// Timeout for the head of the next request; also the lifetime of an idle connection.
    pub idle_timeout: Duration,
    /// Timeout for a request body.
    pub body_timeout: Duration,
    /// Maximum number of concurrent connections. The default allows every agent of a large fleet to
    /// connect at the same time. A further connection replaces one that waits for a request.
    pub max_connections: usize,
    /// Maximum number of concurrent connections of one address (IPv6: of one /64 network) that has not
    /// authenticated lately.
    pub max_connections_per_address: usize,
    /// Memory for the bodies of all unauthenticated requests, in bytes. One address uses at most half.
    pub unauthenticated_body_budget: usize,
    /// Unauthenticated requests per second and address; agents and clients that have authenticated lately
    /// may send ten times as many. 0 disables the limit.
    pub unauthenticated_requests_per_second: u32,
    /// Time without a heartbeat after which a conductor counts as dead.
    pub conductor_timeout: Duration,
    /// Resource class of nodes created without one.
    pub default_resource_class: Option<String>,
    /// Conductor group of nodes created without one.
    pub default_conductor_group: String,
    /// Whether administrators of a project may create and delete nodes that their project owns.
    pub project_admin_can_manage_own_nodes: bool,
    /// The longest lease of a deployment that a project requests; `None` does not limit them.
    pub max_lease: Option<Duration>,
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
            auth: AuthSettings::default(),
            public_endpoint: None,
            ca_certificates: None,
            requires_client_certificate: false,
            trust_forwarded_headers: false,
            public_metrics: true,
            max_limit: 1000,
            body_limits: BodyLimits::default(),
            allowed_hosts: Vec::new(),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(120),
            max_connections: 8192,
            max_connections_per_address: 256,
            unauthenticated_body_budget: 64 * 1024 * 1024,
            unauthenticated_requests_per_second: 20,
            conductor_timeout: Duration::from_secs(60),
            default_resource_class: None,
            default_conductor_group: String::new(),
            project_admin_can_manage_own_nodes: true,
            max_lease: None,
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}
