// SPDX-License-Identifier: Apache-2.0
//! Runs the controllers of one Lease.

use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{info, warn};

use super::{ControllerGroup, ElectionSettings, ManagedController, ManagerError};
use crate::context::{ControllerContext, WatchScope};
use crate::health::OperatorReadiness;
use crate::leader::{LeaderElection, LeadershipFence, fenced_client};
use crate::metrics::OperatorMetrics;

/// Time for running reconciliations to end. Below the 30 seconds after which Kubernetes kills a pod.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(15);

/// What all groups have in common.
#[derive(Clone)]
pub(super) struct GroupEnvironment {
    pub(super) kube: kube::Config,
    pub(super) scope: WatchScope,
    pub(super) election: Option<ElectionSettings>,
    pub(super) shutdown: watch::Receiver<bool>,
    pub(super) metrics: OperatorMetrics,
    pub(super) readiness: OperatorReadiness,
}

/// Waits for the Lease and runs the controllers until the process ends.
pub(super) async fn run_group(
    group: ControllerGroup,
    environment: GroupEnvironment,
) -> Result<(), ManagerError> {
    let ControllerGroup { lease, controllers } = group;
    let Some(settings) = environment.election.clone() else {
        let fence = LeadershipFence::unlimited();
        return run_controllers(controllers, &environment, fence).await;
    };
    let client = fenced_client(environment.kube.clone(), &LeadershipFence::unlimited())
        .map_err(|error| ManagerError::Client(Box::new(error)))?;
    let namespace = settings
        .lease_namespaces
        .iter()
        .find(|(name, _)| name == lease)
        .map_or(&settings.namespace, |(_, namespace)| namespace);
    let metrics = environment.metrics.clone();
    let mut election =
        LeaderElection::new(client, namespace, lease, &settings.identity, settings.timing, metrics);
    let mut shutdown = environment.shutdown.clone();
    let was_stopped = tokio::select! {
        () = election.acquire() => false,
        _ = shutdown.wait_for(|is_stopping| *is_stopping) => true,
    };
    if was_stopped {
        // The last request may have acquired it.
        election.release().await;
        return Ok(());
    }
    let fence = election.fence();
    let outcome = {
        let running = std::pin::pin!(run_controllers(controllers, &environment, fence));
        let held = std::pin::pin!(election.hold());
        match select(running, held).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((loss, _)) => return Err(ManagerError::LeadershipLost { lease, loss }),
        }
    };
    match &outcome {
        Err(ManagerError::StillRunning { .. }) => {
            warn!(lease, "lease is not released, because a controller is still running");
        }
        Ok(()) | Err(_) => election.release().await,
    }
    outcome
}

/// Runs controllers until the process ends. If one fails, the others are aborted.
async fn run_controllers(
    controllers: Vec<ManagedController>,
    environment: &GroupEnvironment,
    fence: LeadershipFence,
) -> Result<(), ManagerError> {
    let client = fenced_client(environment.kube.clone(), &fence)
        .map_err(|error| ManagerError::Client(Box::new(error)))?;
    let mut running = JoinSet::new();
    for ManagedController { name, start } in controllers {
        let context = ControllerContext {
            client: client.clone(),
            scope: environment.scope.clone(),
            shutdown: environment.shutdown.clone(),
            metrics: environment.metrics.clone(),
            readiness: environment.readiness.clone(),
        };
        info!(controller = name, "starting controller");
        let controller = start(context, fence.clone());
        running.spawn(async move { (name, controller.await) });
    }
    let mut shutdown = environment.shutdown.clone();
    let deadline = async {
        // An error means that the manager is gone.
        let _ = shutdown.wait_for(|is_stopping| *is_stopping).await;
        sleep(SHUTDOWN_TIMEOUT).await;
    };
    let mut deadline = std::pin::pin!(deadline);
    loop {
        let ended = tokio::select! {
            ended = running.join_next() => ended,
            () = &mut deadline => return Err(ManagerError::StillRunning { limit: SHUTDOWN_TIMEOUT }),
        };
        match ended {
            None => return Ok(()),
            Some(Err(error)) => return Err(ManagerError::Task(error)),
            Some(Ok((controller, Err(source)))) => {
                return Err(ManagerError::Controller { controller, source });
            }
            Some(Ok((controller, Ok(())))) if !*environment.shutdown.borrow() => {
                return Err(ManagerError::ControllerEnded { controller });
            }
            Some(Ok((_, Ok(())))) => {}
        }
    }
}
