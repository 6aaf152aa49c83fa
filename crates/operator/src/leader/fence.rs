// SPDX-License-Identifier: Apache-2.0
//! Rejects requests that change something when this process may no longer be the leader.
//!
//! A process that was suspended, or whose clock ran on while its tasks did not, continues in the
//! middle of a reconciliation. The fence is checked when the request is sent, not when the
//! reconciliation starts.

use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_util::future::{Either, Ready, ready};
use http::{Method, Request};
use ironic_client::Method as IronicMethod;
use kube::client::{Body, ClientBuilder};
use serde_json::Value;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::hosts::provisioner::ironic::{IronicTransport, IronicTransportError};

/// Until when this process may act as the leader. Clones share the time.
#[derive(Clone, Debug)]
pub struct LeadershipFence(Option<Arc<RwLock<Option<Instant>>>>);

/// This process is no longer the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request not sent: this process is no longer the leader")]
pub struct NotLeader;

impl LeadershipFence {
    /// A fence for a process that takes part in no election: it rejects nothing.
    #[must_use]
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// A fence that rejects everything until [`Self::extend`].
    pub(super) fn closed() -> Self {
        Self(Some(Arc::default()))
    }

    /// Allows requests until `deadline`.
    pub(super) fn extend(&self, deadline: Instant) {
        self.set(Some(deadline));
    }

    /// Rejects all requests.
    pub(super) fn close(&self) {
        self.set(None);
    }

    /// Fails if this process may no longer act as the leader.
    pub fn check(&self) -> Result<(), NotLeader> {
        let Some(shared) = &self.0 else { return Ok(()) };
        let deadline = *shared.read().unwrap_or_else(PoisonError::into_inner);
        match deadline {
            Some(deadline) if Instant::now() < deadline => Ok(()),
            Some(_) | None => Err(NotLeader),
        }
    }

    fn set(&self, deadline: Option<Instant>) {
        if let Some(shared) = &self.0 {
            *shared.write().unwrap_or_else(PoisonError::into_inner) = deadline;
        }
    }
}

/// A client of the API server whose writes the fence can reject. It does not repeat requests: kube's
/// own retries, up to 15 with delays of minutes, would come after the check of the fence and hide an
/// outage from the controllers, which have a back-off of their own.
pub fn fenced_client(
    mut config: kube::Config,
    fence: &LeadershipFence,
) -> Result<kube::Client, kube::Error> {
    config.default_retry = false;
    let builder = ClientBuilder::try_from(config)?;
    Ok(builder.with_layer(&FenceLayer(fence.clone())).build())
}

/// A transport to Ironic whose requests, except reads, the fence can reject.
pub struct FencedTransport {
    transport: Arc<dyn IronicTransport>,
    fence: LeadershipFence,
}

impl FencedTransport {
    /// Wraps a transport.
    #[must_use]
    pub fn new(transport: Arc<dyn IronicTransport>, fence: LeadershipFence) -> Self {
        Self { transport, fence }
    }
}

#[async_trait]
impl IronicTransport for FencedTransport {
    async fn request(
        &self,
        method: IronicMethod,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicTransportError> {
        if method != IronicMethod::GET {
            let rejected = |error: NotLeader| IronicTransportError {
                status: None,
                message: error.to_string(),
            };
            self.fence.check().map_err(rejected)?;
        }
        self.transport.request(method, path, body).await
    }

    async fn wait_for_event(&self, after: u64) -> Result<(), IronicTransportError> {
        self.transport.wait_for_event(after).await
    }
}

#[derive(Clone)]
pub(super) struct FenceLayer(pub(super) LeadershipFence);

#[derive(Clone)]
pub(super) struct FencedService<S> {
    service: S,
    fence: LeadershipFence,
}

impl<S> Layer<S> for FenceLayer {
    type Service = FencedService<S>;

    fn layer(&self, service: S) -> Self::Service {
        FencedService { service, fence: self.0.clone() }
    }
}

impl<S> Service<Request<Body>> for FencedService<S>
where
    S: Service<Request<Body>>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<
        Ready<Result<S::Response, BoxError>>,
        futures_util::future::MapErr<S::Future, fn(S::Error) -> BoxError>,
    >;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        use futures_util::TryFutureExt as _;
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        if !is_read && let Err(error) = self.fence.check() {
            return Either::Left(ready(Err(error.into())));
        }
        let into_box: fn(S::Error) -> BoxError = Into::into;
        Either::Right(self.service.call(request).map_err(into_box))
    }
}
