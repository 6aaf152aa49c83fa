// SPDX-License-Identifier: Apache-2.0
//! The Unix socket for clients on this host. Only root and the user of this process may use it, with
//! full access.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of connections. They have their own limit, so that a local administrator can
/// connect while remote clients use up theirs.
const MAX_CONNECTIONS: usize = 64;

/// A bound Unix socket. Its file is removed on drop.
#[derive(Debug)]
pub(super) struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    connection_limit: Arc<Semaphore>,
}

impl LocalSocket {
    /// Binds the socket, accessible only by this user. Replaces the socket of a process that was
    /// killed; the data directory is locked, so that no other process listens on it.
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
            Ok(_) => return Err(io::Error::other("the file exists and is not a socket")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let connection_limit = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Ok(Self { listener, path: path.to_owned(), connection_limit })
    }

    /// Waits for a connection of root or of our own user. Rejected connections are logged and closed.
    pub(super) async fn accept(&self) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
        loop {
            let limit = Arc::clone(&self.connection_limit);
            let permit = limit.acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = self.listener.accept().await?;
            match check_peer(&stream) {
                Ok(()) => return Ok((stream, permit)),
                Err(error) => tracing::warn!(%error, "connection to the Unix socket rejected"),
            }
        }
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        // A file that is left behind is replaced at the next start.
        let _ = fs::remove_file(&self.path);
    }
}

/// Rejects processes of other users. The mode of the socket excludes them too, but an operator or a
/// backup may have changed it.
fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid == 0 || uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("user id {uid} may not use the socket")))
}
