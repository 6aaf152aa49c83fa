// SPDX-License-Identifier: Apache-2.0
//! Devices that turn up while the machine runs: the kernel tells over a netlink socket, and their
//! modules are loaded.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::sync::watch;

use super::modules::Modules;

/// How long nothing may happen until modules that nobody asked for are let go.
const QUIET_BEFORE_DISCARD: Duration = Duration::from_secs(5);

/// How long no device may turn up until all count as found: disks that spin up one after the other
/// come in steps of about a second.
const QUIET: Duration = Duration::from_secs(2);
/// How long devices are waited for in all. Controllers of many disks take up to a minute.
const LONGEST_SETTLING: Duration = Duration::from_secs(120);

/// Knows when a device last turned up, and loads modules.
#[derive(Clone)]
pub struct Devices {
    last: watch::Receiver<Last>,
    modules: Option<Arc<Mutex<Modules>>>,
}

/// What was last heard of devices.
#[derive(Clone, Copy)]
struct Last {
    /// When one turned up.
    at: Instant,
    /// Whether modules of devices that were there from the start are still being loaded.
    looking: bool,
}

impl Last {
    fn new(looking: bool) -> Self {
        Self { at: Instant::now(), looking }
    }
}

impl Devices {
    /// On a machine whose devices are somebody else's business.
    #[must_use]
    pub fn of_others() -> Self {
        Self { last: watch::channel(Last::new(false)).1, modules: None }
    }

    /// Returns when all devices were looked at and none turned up for a while, or when that takes too
    /// long. On a machine that runs for a while that is at once.
    pub async fn settled(&self) {
        if self.modules.is_some() {
            self.quiet_for(QUIET, LONGEST_SETTLING).await;
        }
    }

    /// Returns when no device turned up for so long, or after the bound.
    pub async fn quiet_for(&self, quiet: Duration, bound: Duration) {
        let _ = tokio::time::timeout(bound, async {
            let mut last = self.last.clone();
            loop {
                let Last { at, looking } = *last.borrow_and_update();
                let since = at.elapsed();
                if since >= quiet && !looking {
                    return;
                }
                let rest = if looking { bound } else { quiet - since };
                let heard = tokio::time::timeout(rest, last.changed()).await;
                if matches!(heard, Ok(Err(_))) {
                    // Nobody tells any more.
                    return tokio::time::sleep(quiet.saturating_sub(since)).await;
                }
            }
        })
        .await;
    }

    /// Returns when the next device turns up.
    pub async fn next(&self) {
        let mut last = self.last.clone();
        last.mark_unchanged();
        if last.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Loads a module by its name, if it is there. What is built into the kernel is not.
    pub fn load_module(&self, name: &str) {
        if let Some(modules) = &self.modules {
            modules.lock().unwrap_or_else(PoisonError::into_inner).load(name);
        }
    }
}

/// Starts listening; nothing if the kernel does not let us.
pub(super) fn listen() -> Option<OwnedFd> {
    let family = AddressFamily::NETLINK;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT)).ok()?;
    // A machine with a thousand disks says a lot at once.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    let pause = Some(Duration::from_secs(1));
    let _ = set_socket_timeout(&socket, Timeout::Recv, pause);
    bind(&socket, &SocketAddrNetlink::new(0, 1)).ok()?;
    Some(socket)
}

/// What devices ask for that turned up since, without waiting for more.
pub(super) fn pending(socket: &OwnedFd) -> Vec<String> {
    let mut message = vec![0; 16 << 10];
    let mut wanted = Vec::new();
    while let Ok((length, _)) = recv(socket, &mut message[..], RecvFlags::DONTWAIT) {
        wanted.extend(added(&message[..length]));
    }
    wanted
}

/// Loads what is wanted still and then follows the kernel's messages, on a thread of its own.
pub(super) fn follow(socket: Option<OwnedFd>, modules: Modules, wanted: Vec<String>) -> Devices {
    let (tell, last) = watch::channel(Last::new(true));
    let modules = Arc::new(Mutex::new(modules));
    let devices = Devices { last, modules: Some(Arc::clone(&modules)) };
    let hear = move || {
        let modules = || modules.lock().unwrap_or_else(PoisonError::into_inner);
        for alias in wanted {
            modules().load_for(&alias);
        }
        modules().load_later();
        tracing::info!(modules = modules().count(), "devices were looked at");
        tell.send_replace(Last::new(false));
        let Some(socket) = socket else { return };
        let mut message = vec![0; 16 << 10];
        let mut discarded = false;
        loop {
            if let Ok((length, _)) = recv(&socket, &mut message[..], RecvFlags::empty()) {
                if let Some(alias) = added(&message[..length]) {
                    modules().load_for(&alias);
                }
                if message.starts_with(b"add@") {
                    tell.send_replace(Last::new(false));
                }
            }
            let quiet = tell.borrow().at.elapsed();
            if !discarded && quiet > QUIET_BEFORE_DISCARD {
                modules().discard_unneeded();
                discarded = true;
                // From now on it can wait for as long as it takes.
                let _ = set_socket_timeout(&socket, Timeout::Recv, None);
            }
        }
    };
    let thread = std::thread::Builder::new().name("devices".into()).stack_size(128 << 10);
    if let Err(error) = thread.spawn(hear) {
        tracing::warn!(%error, "devices that turn up later are not noticed");
    }
    devices
}

/// What a new device asks for, if it asks for anything.
fn added(message: &[u8]) -> Option<String> {
    let mut parts = message.split(|&byte| byte == 0);
    parts.next()?.starts_with(b"add@").then_some(())?;
    let alias = parts.find_map(|part| part.strip_prefix(b"MODALIAS="))?;
    String::from_utf8(alias.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_devices_ask_for_modules() {
        let message =
            b"add@/devices/pci0000:00/0000:00:03.0\0ACTION=add\0MODALIAS=pci:v1\0SEQNUM=1\0";
        assert_eq!(added(message).as_deref(), Some("pci:v1"));
        assert_eq!(added(b"remove@/devices/x\0MODALIAS=pci:v1\0"), None);
        assert_eq!(added(b""), None);
    }
}
