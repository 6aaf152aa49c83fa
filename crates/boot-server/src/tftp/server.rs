// SPDX-License-Identifier: Apache-2.0
//! The sockets of the TFTP server: one listening task, and one task per transfer.
//!
//! RFC 1350 requires a port per transfer, so each has its own socket and task, which cost a few kilobytes.
//! Their number is limited in total and per client, so that requests with forged senders use a bounded
//! number of sockets.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use boot_media::Content;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::files::{TftpFiles, TftpOpenError, netascii};
use super::packet::{TftpErrorCode, TftpRequest, TftpRequestError, error_message};
use super::transfer::{TftpLimits, TftpOutbox, TftpOutcome, TftpProgress, TftpTransfer};
use crate::sockets::{self, SocketBindError};
use crate::{BootClock, BootEvent, BootEventDetail, BootEventRecorder};

/// The settings of the TFTP server.
#[derive(Debug, Clone)]
pub struct TftpSettings {
    /// The address and port to listen on. Not the unspecified address, because replies have to come from
    /// the address that the client sent its request to.
    pub listen: SocketAddr,
    /// The only interface to listen on; `None` for all.
    pub interface: Option<Arc<str>>,
    /// The limits for options.
    pub limits: TftpLimits,
    /// The number of concurrent transfers.
    pub max_transfers: usize,
    /// The number of concurrent transfers per client address. Firmware uses one; a boot loader a few.
    pub max_transfers_per_client: usize,
    /// How many of them may wait for their first acknowledgement. Further requests get no reply, because
    /// their sender may be forged.
    pub max_unacknowledged_per_client: usize,
}

/// What the TFTP server depends on.
#[derive(Clone)]
pub struct TftpServices {
    /// Supplies the files.
    pub files: Arc<dyn TftpFiles>,
    /// Receives an event per transfer.
    pub events: Arc<dyn BootEventRecorder>,
    /// Returns the current time.
    pub clock: BootClock,
}

/// A TFTP server with a bound socket.
pub struct TftpServer {
    state: Arc<TftpServerState>,
}

/// The state that the listening task and the transfers share.
struct TftpServerState {
    socket: UdpSocket,
    settings: TftpSettings,
    services: TftpServices,
    running: RunningTransfers,
}

/// The TFTP server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("TFTP cannot listen on {listen}")]
pub struct TftpListenError {
    listen: SocketAddr,
    #[source]
    source: SocketBindError,
}

/// The running transfers.
#[derive(Default)]
struct RunningTransfers(Mutex<TransferCounts>);

#[derive(Default)]
struct TransferCounts {
    total: usize,
    clients: HashMap<IpAddr, Vec<RunningTransfer>>,
}

struct RunningTransfer {
    port: u16,
    is_acknowledged: bool,
}

/// The permission for one transfer, returned on drop.
struct TransferSlot {
    state: Arc<TftpServerState>,
    client: SocketAddr,
}

impl TftpSettings {
    /// Returns settings for this address with the default limits.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            interface: None,
            limits: TftpLimits::default(),
            max_transfers: 4096,
            max_transfers_per_client: 16,
            max_unacknowledged_per_client: 4,
        }
    }
}

impl TftpServer {
    /// Binds the socket.
    ///
    /// # Errors
    /// If the address or interface cannot be used.
    pub fn bind(settings: TftpSettings, services: TftpServices) -> Result<Self, TftpListenError> {
        let socket = sockets::udp(settings.listen, settings.interface.as_deref())
            .map_err(|source| TftpListenError { listen: settings.listen, source })?;
        sockets::enlarge_receive_buffer(&socket);
        let running = RunningTransfers::default();
        Ok(Self { state: Arc::new(TftpServerState { socket, settings, services, running }) })
    }

    /// Returns the bound address.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.state.socket.local_addr()
    }

    /// Serves until the future is dropped, which also ends running transfers.
    pub async fn run(self) {
        let mut transfers = JoinSet::new();
        let mut buffer = vec![0; 2048];
        loop {
            tokio::select! {
                received = self.state.socket.recv_from(&mut buffer) => match received {
                    Ok((length, client)) => self.handle_request(&buffer[..length], client, &mut transfers).await,
                    // An ICMP error for an earlier reply. The socket is still usable.
                    Err(error) => tracing::debug!(%error, "TFTP receive failed"),
                },
                Some(_) = transfers.join_next() => {}
            }
        }
    }

    async fn handle_request(
        &self,
        message: &[u8],
        client: SocketAddr,
        transfers: &mut JoinSet<()>,
    ) {
        let state = &self.state;
        let request = match TftpRequest::decode(message) {
            Ok(request) => request,
            Err(TftpRequestError::Malformed) => return,
            Err(error @ (TftpRequestError::Write | TftpRequestError::Mode)) => {
                state.refuse(client, TftpErrorCode::IllegalOperation, &error.to_string()).await;
                return state.record_event(String::new(), client, TftpOutcome::Malformed);
            }
        };
        match state.running.acquire(client, &state.settings) {
            SlotRequest::Granted => {
                let slot = TransferSlot { state: state.clone(), client };
                transfers.spawn(slot.transfer(request));
            }
            // The first reply was lost or delayed; the running transfer sends it again.
            SlotRequest::AlreadyRunning => {}
            SlotRequest::Unacknowledged => {
                state.record_event(request.file, client, TftpOutcome::TooManyTransfers);
            }
            SlotRequest::Full => {
                let text = "too many transfers; try again";
                state.refuse(client, TftpErrorCode::Undefined, text).await;
                state.record_event(request.file, client, TftpOutcome::TooManyTransfers);
            }
        }
    }
}

impl TransferSlot {
    async fn transfer(self, request: TftpRequest) {
        let TftpServerState { settings, .. } = &*self.state;
        let client = self.client;
        let outcome = match self.open_file(&request).await {
            Ok(content) => {
                let local = SocketAddr::new(settings.listen.ip(), 0);
                match sockets::udp(local, settings.interface.as_deref()) {
                    Ok(socket) => {
                        let served = serve(&socket, &self, &request, content, &settings.limits);
                        served.await.unwrap_or(TftpOutcome::TimedOut)
                    }
                    Err(error) => {
                        tracing::warn!(%client, %error, "opening a TFTP transfer socket failed");
                        TftpOutcome::TooManyTransfers
                    }
                }
            }
            Err(error) => {
                let (code, outcome) = match error {
                    TftpOpenError::NotFound => (TftpErrorCode::NotFound, TftpOutcome::NotFound),
                    TftpOpenError::Forbidden => {
                        (TftpErrorCode::AccessViolation, TftpOutcome::Forbidden)
                    }
                    TftpOpenError::Unavailable => {
                        (TftpErrorCode::Undefined, TftpOutcome::Unreadable)
                    }
                };
                self.state.refuse(client, code, &error.to_string()).await;
                outcome
            }
        };
        let state = self.state.clone();
        // Return the slot before the event is recorded.
        drop(self);
        state.record_event(request.file, client, outcome);
    }

    fn set_acknowledged(&self) {
        let mut counts = self.state.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        let transfers = counts.clients.get_mut(&self.client.ip());
        for transfer in transfers.into_iter().flatten() {
            transfer.is_acknowledged |= transfer.port == self.client.port();
        }
    }

    async fn open_file(&self, request: &TftpRequest) -> Result<Content, TftpOpenError> {
        let TftpServerState { settings, services, .. } = &*self.state;
        let opening = services.files.open(&request.file, self.client);
        let opened = tokio::time::timeout(settings.limits.idle_timeout, opening).await;
        let content = opened.unwrap_or(Err(TftpOpenError::Unavailable))?;
        if request.netascii {
            netascii(&content).ok_or(TftpOpenError::Forbidden)
        } else {
            Ok(content)
        }
    }
}

impl TftpServerState {
    async fn refuse(&self, client: SocketAddr, code: TftpErrorCode, text: &str) {
        // If the message is lost, the client repeats its request.
        let _ = self.socket.send_to(&error_message(code, text), client).await;
    }

    fn record_event(&self, file: String, client: SocketAddr, outcome: TftpOutcome) {
        self.services.events.record(BootEvent {
            at: (self.services.clock)(),
            interface: self.settings.interface.clone().unwrap_or_default(),
            hardware: None,
            address: Some(client.ip()),
            architecture: None,
            stage: None,
            is_known: false,
            no_loadable_boot_file: false,
            machine: None,
            detail: BootEventDetail::Tftp { file, outcome },
        });
    }
}

impl std::fmt::Debug for TftpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("settings", &self.state.settings).finish_non_exhaustive()
    }
}

enum SlotRequest {
    Granted,
    AlreadyRunning,
    Full,
    /// Too many transfers of this client wait for their first acknowledgement.
    Unacknowledged,
}

impl RunningTransfers {
    fn acquire(&self, client: SocketAddr, settings: &TftpSettings) -> SlotRequest {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut *guard;
        let transfers = counts.clients.get(&client.ip()).map_or(&[][..], Vec::as_slice);
        if transfers.iter().any(|transfer| transfer.port == client.port()) {
            return SlotRequest::AlreadyRunning;
        }
        let unacknowledged = transfers.iter().filter(|transfer| !transfer.is_acknowledged).count();
        if unacknowledged >= settings.max_unacknowledged_per_client {
            return SlotRequest::Unacknowledged;
        }
        if transfers.len() >= settings.max_transfers_per_client
            || counts.total >= settings.max_transfers
        {
            return SlotRequest::Full;
        }
        let transfer = RunningTransfer { port: client.port(), is_acknowledged: false };
        counts.clients.entry(client.ip()).or_default().push(transfer);
        counts.total += 1;
        SlotRequest::Granted
    }
}

impl Drop for TransferSlot {
    fn drop(&mut self) {
        let mut counts = self.state.running.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(transfers) = counts.clients.get_mut(&self.client.ip()) {
            transfers.retain(|transfer| transfer.port != self.client.port());
            if transfers.is_empty() {
                counts.clients.remove(&self.client.ip());
            }
        }
    }
}

async fn serve(
    socket: &UdpSocket,
    slot: &TransferSlot,
    request: &TftpRequest,
    content: Content,
    limits: &TftpLimits,
) -> io::Result<TftpOutcome> {
    let client = slot.client;
    socket.connect(client).await?;
    let mut is_acknowledged = false;
    let mut out = TftpOutbox::default();
    let mut buffer = [0; 1024];
    let now = Instant::now().into_std();
    let (mut transfer, mut progress) = TftpTransfer::start(request, content, limits, now, &mut out);
    let mut timer = pin!(tokio::time::sleep(limits.idle_timeout));
    loop {
        if !out.is_empty() {
            skip_next_read_attempt(socket);
        }
        for message in out.iter() {
            match socket.send(message).await {
                Ok(_) => {}
                // The client closed its port: it is done, or it is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Ok(TftpOutcome::AbortedByClient);
                }
                // A full queue or a missing route is treated like packet loss.
                Err(error) => tracing::debug!(%client, %error, "TFTP send failed"),
            }
        }
        out.clear();
        let deadline = match progress {
            TftpProgress::WaitUntil(deadline) => deadline,
            TftpProgress::Finished(outcome) => return Ok(outcome),
        };
        // Reset only if it must be earlier or has passed, not for every block.
        if timer.is_elapsed() || Instant::from(deadline) < timer.deadline() {
            timer.as_mut().reset(deadline.into());
        }
        let received = tokio::select! {
            biased;
            received = socket.recv(&mut buffer) => Some(received),
            () = &mut timer => None,
        };
        let now = Instant::now().into_std();
        progress = match received {
            Some(Ok(length)) => transfer.on_message(&buffer[..length], now, &mut out),
            Some(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return Ok(TftpOutcome::AbortedByClient);
            }
            Some(Err(error)) => return Err(error),
            None => transfer.on_timeout(now, &mut out),
        };
        if !is_acknowledged && transfer.is_acknowledged() {
            is_acknowledged = true;
            slot.set_acknowledged();
        }
    }
}

/// Clears tokio's readiness, so that the next receive waits at once instead of making a system call that
/// returns `WouldBlock`. The client is silent until it gets the next message, so this saves one system call
/// in four. A datagram that is already queued is read together with the next one.
fn skip_next_read_attempt(socket: &UdpSocket) {
    let would_block = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
    let _readiness_cleared = socket.try_io(Interest::READABLE, would_block);
}
