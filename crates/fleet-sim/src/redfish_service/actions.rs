// SPDX-License-Identifier: Apache-2.0
//! Parameters of actions.

use super::error_response::RedfishErrorResponse;
use super::request_context::RequestContext;

/// Returns a required parameter, parsed by `parse`.
pub(super) fn parameter<T>(
    context: &RequestContext<'_>,
    action: &'static str,
    name: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, RedfishErrorResponse> {
    let text = context
        .string_property(name)?
        .ok_or_else(|| RedfishErrorResponse::parameter_missing(action, name))?;
    parse(text).ok_or_else(|| RedfishErrorResponse::parameter_value(action, name, text))
}
