// SPDX-License-Identifier: Apache-2.0
//! The response to a caller who is not authenticated.

use authentication::AuthError;
use http::HeaderValue;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use serde_json::json;

use super::response::ApiResponse;

/// The response, in the format of Ironic's basic authentication. `challenge` is the value of
/// `WWW-Authenticate`; it is `None` for the web UI, because a browser would open its own password dialog.
pub(crate) fn auth_error_response(error: &AuthError, challenge: Option<String>) -> ApiResponse {
    let status = error.status();
    let body = json!({"error": {"message": error.to_string(), "code": status.as_u16()}});
    let response = ApiResponse::json(status, body.to_string().into_bytes());
    if let Some(delay) = error.retry_after() {
        return response.with_header(RETRY_AFTER, HeaderValue::from(delay.as_secs()));
    }
    if status == http::StatusCode::UNAUTHORIZED
        && let Some(challenge) = challenge.and_then(|text| HeaderValue::try_from(text).ok())
    {
        return response.with_header(WWW_AUTHENTICATE, challenge);
    }
    response
}
