// SPDX-License-Identifier: Apache-2.0
//! The console interface: serves a machine's serial console on a TCP port.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use drivers::{
    BaseInterface, ConsoleBufferPool, ConsoleFeed, ConsoleInfo, ConsoleInterface, ConsoleRecording,
    ConsoleText, ConsoleTranscript, DriverError, DriverProperty, DriverTarget, NodeChanges,
    TimelineRecording,
};
use node_model::{InterfaceKind, NodeId};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use super::access::{IpmiAccess, PROPERTIES, TERMINAL_PORT, driver_info_key};
use super::connections::IpmiConnections;
use super::console_session::{ConsoleServer, SolSettings};
use super::settings::ConsoleSettings;

/// The IPMI console interface.
pub(super) struct IpmiConsole {
    connections: Arc<IpmiConnections>,
    settings: ConsoleSettings,
    /// Receives console text for the timeline.
    texts: mpsc::Sender<ConsoleText>,
    open_permits: Arc<Semaphore>,
    buffers: ConsoleBufferPool,
    properties: Vec<DriverProperty>,
    /// The consoles that this process serves.
    servers: Mutex<HashMap<NodeId, ConsoleServer>>,
}

/// The `driver_internal_info` key with a node's allocated port, as in Ironic.
const ALLOCATED_PORT: &str = "allocated_ipmi_terminal_port";
const START_ACTION: &str = "start the console";
/// Bytes of recent output kept per machine.
const BUFFER_BYTES: usize = 64 << 10;
/// Bytes of recent output kept for all machines.
const TOTAL_BUFFER_BYTES: usize = 64 << 20;
/// Limit of concurrent session open_permits for consoles without watchers.
const MAX_CONCURRENT_OPENS: usize = 32;

impl IpmiConsole {
    pub(super) fn new(
        connections: Arc<IpmiConnections>,
        settings: ConsoleSettings,
        texts: mpsc::Sender<ConsoleText>,
    ) -> Self {
        let properties = PROPERTIES.iter().copied().chain([TERMINAL_PORT]).collect();
        let (open_permits, servers) =
            (Arc::new(Semaphore::new(MAX_CONCURRENT_OPENS)), Mutex::default());
        let buffers = ConsoleBufferPool::new(TOTAL_BUFFER_BYTES);
        Self { connections, settings, texts, open_permits, buffers, properties, servers }
    }

    /// The recording of a console.
    fn recording(&self, node: NodeId, access: &IpmiAccess) -> ConsoleRecording {
        if !self.settings.record {
            return ConsoleRecording { buffer: self.buffers.buffer(0), timeline: None };
        }
        let per_hour = self.settings.recorded_kib_per_hour.saturating_mul(1024);
        let timeline = (per_hour > 0).then(|| TimelineRecording {
            node,
            address: access.endpoint.address.clone(),
            transcript: ConsoleTranscript::new(usize::try_from(per_hour).unwrap_or(usize::MAX)),
            sender: self.texts.clone(),
        });
        ConsoleRecording { buffer: self.buffers.buffer(BUFFER_BYTES), timeline }
    }

    fn sol_settings(&self, access: &IpmiAccess) -> SolSettings {
        SolSettings {
            endpoint: access.endpoint.clone(),
            timeouts: self.connections.timeouts(),
            semaphore: self.connections.semaphore(&access.endpoint),
            idle_timeout: match self.settings.terminal_timeout {
                0 => None,
                seconds => Some(std::time::Duration::from_secs(seconds)),
            },
            stays_open: self.settings.record,
            open_permits: Arc::clone(&self.open_permits),
        }
    }

    /// Listens on the node's port, or its previous one, or any free one.
    async fn listen(
        &self,
        target: &DriverTarget<'_>,
        access: &IpmiAccess,
    ) -> Result<TcpListener, DriverError> {
        let host = self.settings.socat_address.as_str();
        if let Some(port) = access.terminal_port {
            return TcpListener::bind((host, port)).await.map_err(|error| DriverError::Failed {
                what: START_ACTION.to_owned(),
                why: format!(
                    "cannot listen on {host} port {port}: {error}; choose another \
                     ipmi_terminal_port, or check console.socat_address"
                ),
            });
        }
        let ports = self.settings.ports().ok_or_else(|| self.no_ports())?;
        let previous = stored_port(target).filter(|port| ports.contains(port));
        let mut last_error = None;
        for port in previous.into_iter().chain(ports) {
            match TcpListener::bind((host, port)).await {
                Ok(listener) => return Ok(listener),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    last_error = Some(error)
                }
                Err(error) => {
                    last_error = Some(error);
                    break;
                }
            }
        }
        let detail = last_error.map_or_else(String::new, |error| format!(" ({error})"));
        Err(DriverError::Failed {
            what: START_ACTION.to_owned(),
            why: format!(
                "cannot listen on any port of {} on {host}{detail}; widen console.port_range, or \
                 check console.socat_address",
                self.settings.port_range
            ),
        })
    }

    fn no_ports(&self) -> DriverError {
        DriverError::missing(
            driver_info_key(TERMINAL_PORT.0),
            format!(
                "and console.port_range is '{}', which is not first:last_error; set one of them",
                self.settings.port_range
            ),
        )
    }

    fn url(&self, port: u16) -> String {
        let host = &self.settings.socat_address;
        if host.contains(':') {
            format!("tcp://[{host}]:{port}")
        } else {
            format!("tcp://{host}:{port}")
        }
    }

    fn with_servers<T>(
        &self,
        access_servers: impl FnOnce(&mut HashMap<NodeId, ConsoleServer>) -> T,
    ) -> T {
        access_servers(&mut self.servers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl BaseInterface for IpmiConsole {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Console
    }

    fn name(&self) -> &'static str {
        super::CONSOLE_NAME
    }

    fn properties(&self) -> &[DriverProperty] {
        &self.properties
    }

    async fn validate(&self, target: &DriverTarget<'_>) -> Result<(), DriverError> {
        let access = self.connections.access(target)?;
        if access.terminal_port.is_none() && self.settings.ports().is_none() {
            return Err(self.no_ports());
        }
        Ok(())
    }
}

#[async_trait]
impl ConsoleInterface for IpmiConsole {
    async fn start(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        let access = self.connections.access(target)?;
        let sol = self.sol_settings(&access);
        let running = self.with_servers(|servers| {
            let server = servers.get(&target.node.id)?;
            let expected = access.terminal_port.unwrap_or(server.port());
            (server.serves(&sol) && server.port() == expected).then_some(expected)
        });
        let port = match running {
            Some(port) => port,
            None => {
                // The old server must have released its port.
                let old = self.with_servers(|servers| servers.remove(&target.node.id));
                if let Some(old) = old {
                    old.stop().await;
                }
                let listener = self.listen(target, &access).await?;
                let recording = self.recording(target.node.id, &access);
                let started = ConsoleServer::serve(listener, sol, recording);
                let server = started.map_err(|error| DriverError::Failed {
                    what: START_ACTION.to_owned(),
                    why: format!("cannot read the port of the listener: {error}; retry"),
                })?;
                let port = server.port();
                self.with_servers(|servers| servers.insert(target.node.id, server));
                port
            }
        };
        let allocated_port = access.terminal_port.is_none().then_some(port);
        Ok(NodeChanges::internal_info(
            ALLOCATED_PORT,
            allocated_port.map_or(Value::Null, Value::from),
        ))
    }

    async fn stop(&self, target: &DriverTarget<'_>) -> Result<NodeChanges, DriverError> {
        self.release(target.node.id).await;
        Ok(NodeChanges::internal_info(ALLOCATED_PORT, Value::Null))
    }

    async fn info(&self, target: &DriverTarget<'_>) -> Result<Option<ConsoleInfo>, DriverError> {
        let local =
            self.with_servers(|servers| servers.get(&target.node.id).map(ConsoleServer::port));
        // Another process may serve the console.
        let access = self.connections.access(target)?;
        let port = local.or(access.terminal_port).or_else(|| stored_port(target));
        Ok(port.map(|port| ConsoleInfo { kind: "socat", url: self.url(port) }))
    }

    fn feed(&self, node: NodeId) -> Option<ConsoleFeed> {
        self.with_servers(|servers| servers.get(&node).map(ConsoleServer::feed))
    }

    fn served_nodes(&self) -> Vec<NodeId> {
        self.with_servers(|servers| servers.keys().copied().collect())
    }

    async fn release(&self, node: NodeId) {
        let server = self.with_servers(|servers| servers.remove(&node));
        if let Some(server) = server {
            server.stop().await;
        }
    }
}

fn stored_port(target: &DriverTarget<'_>) -> Option<u16> {
    let port = target.node.driver_internal_info.get(ALLOCATED_PORT)?.as_u64()?;
    u16::try_from(port).ok()
}
