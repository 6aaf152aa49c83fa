// SPDX-License-Identifier: Apache-2.0
//! Lets the task that logs in send a request only while the caller that needs the session is polled.
//!
//! A caller may stop polling, or drop, the future of a call at any time, and then nothing may be sent. The
//! login is a task of its own, so it needs the permission of the caller for each request.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::sync::{mpsc, oneshot};

/// The side of the task that logs in.
#[derive(Clone)]
pub(crate) struct LoginPermission(mpsc::UnboundedSender<oneshot::Sender<()>>);

/// The side of the caller.
pub(crate) struct PermissionRequests(mpsc::UnboundedReceiver<oneshot::Sender<()>>);

impl LoginPermission {
    pub(crate) fn new() -> (Self, PermissionRequests) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), PermissionRequests(receiver))
    }

    /// Waits until the caller is polled. Returns false if it was cancelled.
    pub(crate) async fn obtain(&self) -> bool {
        let (granted, wait) = oneshot::channel();
        self.0.send(granted).is_ok() && wait.await.is_ok()
    }
}

impl PermissionRequests {
    /// Awaits `work`, and grants the requests whenever this is polled.
    pub(crate) async fn grant_until<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            while let Poll::Ready(Some(granted)) = self.0.poll_recv(context) {
                // Fails only if the task has ended.
                let _ = granted.send(());
            }
            work.as_mut().poll(context)
        })
        .await
    }
}
