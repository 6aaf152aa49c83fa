// SPDX-License-Identifier: Apache-2.0
//! The serial console: a TCP port where users meet the machine's serial line.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use node_model::{InterfaceKind, NodeId};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};

use super::access::{Access, PROPERTIES, TERMINAL_PORT, key};
use super::connections::Connections;
use super::settings::ConsoleSettings;
use super::terminal::{Line, Terminal};
use crate::console_feed::{ConsoleFeed, Keeping, Notes};
use crate::console_memory::ConsoleMemory;
use crate::console_text::{ConsoleText, Transcript};
use crate::{Console, ConsoleInfo, Error, Interface, NodeChanges, Property, Target};

/// The IPMI console interface.
pub(super) struct IpmiConsole {
    connections: Arc<Connections>,
    settings: ConsoleSettings,
    /// Where what machines print goes to be written down.
    texts: mpsc::Sender<ConsoleText>,
    openings: Arc<Semaphore>,
    memory: ConsoleMemory,
    properties: Vec<Property>,
    /// The consoles that are on in this process.
    terminals: Mutex<HashMap<NodeId, Terminal>>,
}

/// Where a port that was found for a node is kept in `driver_internal_info`, as Ironic keeps it.
const ALLOCATED_PORT: &str = "allocated_ipmi_terminal_port";
const START: &str = "start the console";
/// Bytes that are remembered of what a machine said last.
const MEMORY: usize = 64 << 10;
/// Bytes that are remembered of all machines together.
const MEMORY_OF_ALL: usize = 64 << 20;
/// Sessions that are opened at a time while nobody watches.
const OPENINGS: usize = 32;

impl IpmiConsole {
    pub(super) fn new(
        connections: Arc<Connections>,
        settings: ConsoleSettings,
        texts: mpsc::Sender<ConsoleText>,
    ) -> Self {
        let properties = PROPERTIES.iter().copied().chain([TERMINAL_PORT]).collect();
        let (openings, terminals) = (Arc::new(Semaphore::new(OPENINGS)), Mutex::default());
        let memory = ConsoleMemory::new(MEMORY_OF_ALL);
        Self { connections, settings, texts, openings, memory, properties, terminals }
    }

    /// What is kept of a console.
    fn keeping(&self, node: NodeId, access: &Access) -> Keeping {
        if !self.settings.record {
            return Keeping { memory: self.memory.ring(0), notes: None };
        }
        let per_hour = self.settings.recorded_kib_per_hour.saturating_mul(1024);
        let notes = (per_hour > 0).then(|| Notes {
            node,
            address: access.endpoint.address.clone(),
            transcript: Transcript::new(usize::try_from(per_hour).unwrap_or(usize::MAX)),
            to: self.texts.clone(),
        });
        Keeping { memory: self.memory.ring(MEMORY), notes }
    }

    fn line(&self, access: &Access) -> Line {
        Line {
            endpoint: access.endpoint.clone(),
            timeouts: self.connections.timeouts(),
            turns: self.connections.turns(&access.endpoint),
            quiet_after: match self.settings.terminal_timeout {
                0 => None,
                seconds => Some(std::time::Duration::from_secs(seconds)),
            },
            is_held: self.settings.record,
            openings: Arc::clone(&self.openings),
        }
    }

    /// A listener at the node's port, or at the one it had, or at any that is free.
    async fn listen(&self, target: &Target<'_>, access: &Access) -> Result<TcpListener, Error> {
        let host = self.settings.socat_address.as_str();
        if let Some(port) = access.terminal_port {
            return TcpListener::bind((host, port)).await.map_err(|error| Error::Failed {
                what: START.to_owned(),
                why: format!(
                    "cannot listen at {host} port {port}: {error}; choose another \
                     ipmi_terminal_port, or check console.socat_address"
                ),
            });
        }
        let ports = self.settings.ports().ok_or_else(|| self.no_ports())?;
        let before = allocated(target).filter(|port| ports.contains(port));
        let mut last = None;
        for port in before.into_iter().chain(ports) {
            match TcpListener::bind((host, port)).await {
                Ok(listener) => return Ok(listener),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => last = Some(error),
                Err(error) => {
                    last = Some(error);
                    break;
                }
            }
        }
        let said = last.map_or_else(String::new, |error| format!(" ({error})"));
        Err(Error::Failed {
            what: START.to_owned(),
            why: format!(
                "no port of {} can be listened at on {host}{said}; widen console.port_range, or \
                 check console.socat_address",
                self.settings.port_range
            ),
        })
    }

    fn no_ports(&self) -> Error {
        Error::missing(
            key(TERMINAL_PORT.0),
            format!(
                "and console.port_range is '{}', which is not first:last; set one of them",
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

    fn with_terminals<T>(&self, look: impl FnOnce(&mut HashMap<NodeId, Terminal>) -> T) -> T {
        look(&mut self.terminals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Interface for IpmiConsole {
    fn kind(&self) -> InterfaceKind {
        InterfaceKind::Console
    }

    fn name(&self) -> &'static str {
        super::CONSOLE_NAME
    }

    fn properties(&self) -> &[Property] {
        &self.properties
    }

    async fn validate(&self, target: &Target<'_>) -> Result<(), Error> {
        let access = self.connections.access(target)?;
        if access.terminal_port.is_none() && self.settings.ports().is_none() {
            return Err(self.no_ports());
        }
        Ok(())
    }
}

#[async_trait]
impl Console for IpmiConsole {
    async fn start(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        let access = self.connections.access(target)?;
        let line = self.line(&access);
        let running = self.with_terminals(|terminals| {
            let terminal = terminals.get(&target.node.id)?;
            let wanted = access.terminal_port.unwrap_or(terminal.port());
            (terminal.serves(&line) && terminal.port() == wanted).then_some(wanted)
        });
        let port = match running {
            Some(port) => port,
            None => {
                // The old one must be gone before its port can be listened at again.
                let old = self.with_terminals(|terminals| terminals.remove(&target.node.id));
                if let Some(old) = old {
                    old.stop().await;
                }
                let listener = self.listen(target, &access).await?;
                let keeping = self.keeping(target.node.id, &access);
                let serving = Terminal::serve(listener, line, keeping);
                let terminal = serving.map_err(|error| Error::Failed {
                    what: START.to_owned(),
                    why: format!("the port that was opened has no number: {error}; try again"),
                })?;
                let port = terminal.port();
                self.with_terminals(|terminals| terminals.insert(target.node.id, terminal));
                port
            }
        };
        let found = access.terminal_port.is_none().then_some(port);
        Ok(NodeChanges::remember(ALLOCATED_PORT, found.map_or(Value::Null, Value::from)))
    }

    async fn stop(&self, target: &Target<'_>) -> Result<NodeChanges, Error> {
        self.leave(target.node.id).await;
        Ok(NodeChanges::remember(ALLOCATED_PORT, Value::Null))
    }

    async fn info(&self, target: &Target<'_>) -> Result<ConsoleInfo, Error> {
        let here =
            self.with_terminals(|terminals| terminals.get(&target.node.id).map(Terminal::port));
        // Another process may serve it.
        let access = self.connections.access(target)?;
        let port = here.or(access.terminal_port).or_else(|| allocated(target));
        match port {
            Some(port) => Ok(ConsoleInfo { kind: "socat", url: self.url(port) }),
            None => Err(Error::Failed {
                what: "tell where the console is".to_owned(),
                why: "it was never started; switch it off and on again".to_owned(),
            }),
        }
    }

    fn feed(&self, node: NodeId) -> Option<ConsoleFeed> {
        self.with_terminals(|terminals| terminals.get(&node).map(Terminal::feed))
    }

    fn served(&self) -> Vec<NodeId> {
        self.with_terminals(|terminals| terminals.keys().copied().collect())
    }

    async fn leave(&self, node: NodeId) {
        let terminal = self.with_terminals(|terminals| terminals.remove(&node));
        if let Some(terminal) = terminal {
            terminal.stop().await;
        }
    }
}

fn allocated(target: &Target<'_>) -> Option<u16> {
    let port = target.node.driver_internal_info.get(ALLOCATED_PORT)?.as_u64()?;
    u16::try_from(port).ok()
}
