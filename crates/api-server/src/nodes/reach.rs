// SPDX-License-Identifier: Apache-2.0
//! From the path to the machine: which node is meant, whether it is free, and calls of its BMC that
//! must not stop half way.

use ironic_wire::WireError;
use node_model::{Node, NodeId};
use tokio::task::JoinHandle;

use crate::call::Call;
use crate::kept::Ident;
use crate::refusal::Refusal;

/// The node the path names.
pub(crate) async fn node(call: &Call) -> Result<Node, Refusal> {
    let ident = Ident::of_path(call, "node");
    call.app.store.read(move |reader| ident.find(reader)).await
}

/// The id of the node the path names.
pub(crate) async fn node_id(call: &Call) -> Result<NodeId, Refusal> {
    node(call).await.map(|node| node.id)
}

/// The node the path names, if nobody is working on it: what is asked of it has to wait until the
/// current job is over. Clients retry on the 409 this answers otherwise.
pub(crate) async fn free_node(call: &Call) -> Result<Node, Refusal> {
    let node = node(call).await?;
    match &node.reservation {
        None => Ok(node),
        Some(holder) => Err(WireError::node_locked(&node.id.to_string(), holder).into()),
    }
}

/// Runs `work` to its end even when the client hangs up meanwhile: what was done to a machine must
/// be written down.
pub(crate) async fn to_the_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, conductor::Error>> + Send + 'static,
) -> Result<T, Refusal> {
    finished(tokio::spawn(async move { work.await.map_err(Refusal::from) })).await
}

/// Waits for a task, and passes on its panic, with which the frame knows what to do.
pub(crate) async fn finished<T>(task: JoinHandle<Result<T, Refusal>>) -> Result<T, Refusal> {
    match task.await {
        Ok(done) => done,
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => {
                Err(WireError::unavailable("The service is stopping; please retry later.").into())
            }
        },
    }
}
