// SPDX-License-Identifier: Apache-2.0
//! Work that must not be cancelled when the client disconnects.

use ironic_wire::WireError;
use tokio::task::JoinHandle;

use super::ApiError;

/// Runs `work` in its own task, so that it completes and is recorded even if the client disconnects.
pub(crate) async fn run_to_completion<T: Send + 'static, E: Into<ApiError>>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, ApiError> {
    join_task(tokio::spawn(async move { work.await.map_err(E::into) })).await
}

/// Waits for a task. Its panic continues here, where the dispatcher catches it.
async fn join_task<T>(task: JoinHandle<Result<T, ApiError>>) -> Result<T, ApiError> {
    match task.await {
        Ok(result) => result,
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => {
                Err(WireError::unavailable("The service is stopping; please retry later.").into())
            }
        },
    }
}
