// SPDX-License-Identifier: Apache-2.0
//! Detects devices by the kernel's uevents and loads their modules.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::sync::watch;

use super::modules::ModuleLoader;

/// Time without new devices after which unneeded module files are deleted.
const DISCARD_DELAY: Duration = Duration::from_secs(5);

/// Time without new devices after which detection counts as complete: disks that spin up one after the
/// other appear about one second apart.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// The maximum time to wait for devices. Controllers with many disks take up to a minute.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(120);

/// Reports new devices and loads modules.
#[derive(Clone)]
pub struct DeviceMonitor {
    activity: watch::Receiver<DeviceActivity>,
    modules: Option<Arc<Mutex<ModuleLoader>>>,
}

/// The most recent device activity.
#[derive(Clone, Copy)]
struct DeviceActivity {
    /// When the last device appeared.
    at: Instant,
    /// Whether the modules of initially present devices are still being loaded.
    probing: bool,
}

impl DeviceActivity {
    fn new(probing: bool) -> Self {
        Self { at: Instant::now(), probing }
    }
}

impl DeviceMonitor {
    /// For a host process: the system manages its devices.
    #[must_use]
    pub fn unmanaged() -> Self {
        Self { activity: watch::channel(DeviceActivity::new(false)).1, modules: None }
    }

    /// Waits until device detection is complete, at most 120 s. Returns immediately if no device
    /// appeared recently.
    pub async fn wait_settled(&self) {
        if self.modules.is_some() {
            self.wait_quiet(SETTLE_TIME, MAX_SETTLE_TIME).await;
        }
    }

    /// Waits until no device appeared for `quiet`, or until the timeout.
    pub async fn wait_quiet(&self, quiet: Duration, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, async {
            let mut last = self.activity.clone();
            loop {
                let DeviceActivity { at, probing } = *last.borrow_and_update();
                let since = at.elapsed();
                if since >= quiet && !probing {
                    return;
                }
                let rest = if probing { timeout } else { quiet - since };
                let changed = tokio::time::timeout(rest, last.changed()).await;
                if matches!(changed, Ok(Err(_))) {
                    // The monitor has stopped.
                    return tokio::time::sleep(quiet.saturating_sub(since)).await;
                }
            }
        })
        .await;
    }

    /// Waits for the next device.
    pub async fn next_device(&self) {
        let mut last = self.activity.clone();
        last.mark_unchanged();
        if last.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Loads a module by name, if it exists as a file.
    pub fn load_module(&self, name: &str) {
        if let Some(modules) = &self.modules {
            modules.lock().unwrap_or_else(PoisonError::into_inner).load(name);
        }
    }
}

/// Opens the uevent socket; `None` if the kernel rejects it.
pub(super) fn open_socket() -> Option<OwnedFd> {
    let family = AddressFamily::NETLINK;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT)).ok()?;
    // A machine with a thousand disks sends many events at once.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4 << 20);
    let pause = Some(Duration::from_secs(1));
    let _ = set_socket_timeout(&socket, Timeout::Recv, pause);
    bind(&socket, &SocketAddrNetlink::new(0, 1)).ok()?;
    Some(socket)
}

/// Returns the aliases of devices that appeared since the last call, without waiting.
pub(super) fn pending_aliases(socket: &OwnedFd) -> Vec<String> {
    let mut message = vec![0; 16 << 10];
    let mut aliases = Vec::new();
    while let Ok((length, _)) = recv(socket, &mut message[..], RecvFlags::DONTWAIT) {
        aliases.extend(added_modalias(&message[..length]));
    }
    aliases
}

/// Starts a thread that loads the modules for `aliases` and then processes uevents.
pub(super) fn start_monitor(
    socket: Option<OwnedFd>,
    modules: ModuleLoader,
    aliases: Vec<String>,
) -> DeviceMonitor {
    let (sender, activity) = watch::channel(DeviceActivity::new(true));
    let modules = Arc::new(Mutex::new(modules));
    let devices = DeviceMonitor { activity, modules: Some(Arc::clone(&modules)) };
    let monitor = move || {
        let modules = || modules.lock().unwrap_or_else(PoisonError::into_inner);
        for alias in aliases {
            modules().load_for_alias(&alias);
        }
        modules().load_later();
        tracing::info!(modules = modules().count(), "modules of all devices loaded");
        sender.send_replace(DeviceActivity::new(false));
        let Some(socket) = socket else { return };
        let mut message = vec![0; 16 << 10];
        let mut discarded = false;
        loop {
            if let Ok((length, _)) = recv(&socket, &mut message[..], RecvFlags::empty()) {
                if let Some(alias) = added_modalias(&message[..length]) {
                    modules().load_for_alias(&alias);
                }
                if message.starts_with(b"add@") {
                    sender.send_replace(DeviceActivity::new(false));
                }
            }
            let quiet = sender.borrow().at.elapsed();
            if !discarded && quiet > DISCARD_DELAY {
                modules().discard_unneeded();
                discarded = true;
                // From now on the thread may block without a timeout.
                let _ = set_socket_timeout(&socket, Timeout::Recv, None);
            }
        }
    };
    let thread = std::thread::Builder::new().name("devices".into()).stack_size(128 << 10);
    if let Err(error) = thread.spawn(monitor) {
        tracing::warn!(%error, "failed to spawn device thread, new devices are not detected");
    }
    devices
}

/// Returns the alias of an added device, if it has one.
fn added_modalias(message: &[u8]) -> Option<String> {
    let mut parts = message.split(|&byte| byte == 0);
    parts.next()?.starts_with(b"add@").then_some(())?;
    let alias = parts.find_map(|part| part.strip_prefix(b"MODALIAS="))?;
    String::from_utf8(alias.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_modalias_of_added_devices() {
        let message =
            b"add@/devices/pci0000:00/0000:00:03.0\0ACTION=add\0MODALIAS=pci:v1\0SEQNUM=1\0";
        assert_eq!(added_modalias(message).as_deref(), Some("pci:v1"));
        assert_eq!(added_modalias(b"remove@/devices/x\0MODALIAS=pci:v1\0"), None);
        assert_eq!(added_modalias(b""), None);
    }
}
