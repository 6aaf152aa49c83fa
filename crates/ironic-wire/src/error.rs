// SPDX-License-Identifier: Apache-2.0
//! Errors in the formats that Ironic clients expect.
//!
//! Most are a *fault*: a JSON text inside a JSON object, which clients decode twice. Errors of the
//! router, of body limits and of authentication have their own formats.

use std::fmt;

use crate::version::VersionError;
use crate::writer::JsonWriter;

/// Wire format of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorForm {
    /// `{"error_message": "{\"faultcode\": …, \"faultstring\": …, \"debuginfo\": null}"}`.
    Fault,
    /// `{"error_message": "{\"code\": …, \"title\": …, \"description\": …}"}`.
    Router,
    /// `{"faultcode": …, "faultstring": …}`: bodies that are too large or too deep.
    Flat,
    /// `{"error": {"message": …, "code": 401}}`: authentication.
    Unauthorized,
}

/// An error response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WireError {
    status: u16,
    form: ErrorForm,
    message: String,
    retry_after: Option<u32>,
}

impl WireError {
    /// An error in the fault format.
    #[must_use]
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, form: ErrorForm::Fault, message: message.into(), retry_after: None }
    }

    /// An error in the format of the router and the version check.
    #[must_use]
    pub fn router(status: u16, description: impl Into<String>) -> Self {
        Self { form: ErrorForm::Router, ..Self::new(status, description) }
    }

    /// 400: the request is invalid.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// 400: `field` of the body or the query is invalid.
    #[must_use]
    pub fn invalid_field(field: &str, reason: &str) -> Self {
        Self::invalid(format!("Invalid value for {field}: {reason}"))
    }

    /// 400: a mandatory field is missing.
    #[must_use]
    pub fn missing(field: &str) -> Self {
        Self::invalid(format!("Missing mandatory parameter: {field}"))
    }

    /// 400: unknown fields. Clients match the phrase.
    #[must_use]
    pub fn unexpected(names: &[&str]) -> Self {
        let shown: Vec<String> = names.iter().map(|name| excerpt(name)).collect();
        Self::invalid(format!("Unexpected arguments: {}", shown.join(", ")))
    }

    /// 400: the verb or power target is not allowed in the node's state.
    #[must_use]
    pub fn invalid_state(action: &str, node: &str, state: &str) -> Self {
        Self::invalid(format!(
            "The requested action \"{}\" can not be performed on node \"{node}\" while it is in \
             state \"{state}\".",
            excerpt(action)
        ))
    }

    /// 403: the user lacks permission.
    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(403, message)
    }

    /// 403: the node is protected.
    #[must_use]
    pub fn node_protected(node: &str) -> Self {
        Self::forbidden(format!(
            "Node {node} is protected and can not be undeployed, rebuilt or deleted."
        ))
    }

    /// 404: the resource does not exist. `kind` starts the sentence: `Node`, `Port`, `Deploy template`.
    #[must_use]
    pub fn not_found(kind: &str, ident: &str) -> Self {
        Self::new(404, format!("{kind} {} could not be found.", excerpt(ident)))
    }

    /// 404: the endpoint appeared in a later microversion.
    #[must_use]
    pub fn endpoint_too_new() -> Self {
        Self::new(404, "The API is not supported for this version")
    }

    /// 405: the method does not exist for this resource or microversion.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(405, "The method is not allowed for this resource at the requested API version")
    }

    /// 406: `what` requires microversion `1.<since>`. Clients match the first sentence.
    #[must_use]
    pub fn too_new(what: &str, since: u16) -> Self {
        Self::new(
            406,
            format!(
                "Request not acceptable. The minimal required API version for {what} is 1.{since}"
            ),
        )
    }

    /// 409: a duplicate name, address or id, or a conflicting state.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, message)
    }

    /// 409: the node is locked. Clients retry on this.
    #[must_use]
    pub fn node_locked(node: &str, holder: &str) -> Self {
        Self::conflict(format!(
            "Node {node} is locked by host {holder}, please retry after the current operation is \
             completed."
        ))
    }

    /// 409: the node has an instance.
    #[must_use]
    pub fn node_associated(node: &str, instance: &str) -> Self {
        Self::conflict(format!("Node {node} is associated with instance {instance}."))
    }

    /// 413: the body exceeds the size limit.
    #[must_use]
    pub fn body_too_large(limit_bytes: usize) -> Self {
        Self {
            form: ErrorForm::Flat,
            ..Self::new(413, format!("Request body is larger than {limit_bytes} bytes."))
        }
    }

    /// 400: the body exceeds the nesting limit.
    #[must_use]
    pub fn body_too_deep(limit: usize) -> Self {
        Self {
            form: ErrorForm::Flat,
            ..Self::new(400, format!("Request body JSON is nested deeper than {limit} levels."))
        }
    }

    /// 401: authentication is missing or invalid.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self { form: ErrorForm::Unauthorized, ..Self::new(401, "Authorization required") }
    }

    /// 500: an internal error. `reference` identifies the log entry with the details.
    #[must_use]
    pub fn internal(reference: &str) -> Self {
        Self::new(
            500,
            format!("The service failed internally; its log has details under {reference}"),
        )
    }

    /// 503: temporarily unavailable. Clients retry on this.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(503, message) }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The wire format.
    #[must_use]
    pub const fn form(&self) -> ErrorForm {
        self.form
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Value of the `Retry-After` header, in seconds.
    #[must_use]
    pub const fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    /// The body, `application/json`.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        let mut outer = JsonWriter::with_capacity(self.message.len() + 128);
        outer.begin_object();
        match self.form {
            ErrorForm::Fault => {
                let mut inner = JsonWriter::with_capacity(self.message.len() + 64);
                inner.begin_object();
                self.write_fault(&mut inner);
                inner.key("debuginfo");
                inner.null();
                inner.end_object();
                outer.key("error_message");
                outer.string(&inner.into_string());
            }
            ErrorForm::Router => {
                let mut inner = JsonWriter::with_capacity(self.message.len() + 64);
                inner.begin_object();
                inner.key("code");
                inner.integer(i64::from(self.status));
                inner.key("title");
                inner.string(title(self.status));
                inner.key("description");
                inner.string(&self.message);
                inner.end_object();
                outer.key("error_message");
                outer.string(&inner.into_string());
            }
            ErrorForm::Flat => self.write_fault(&mut outer),
            ErrorForm::Unauthorized => {
                outer.key("error");
                outer.begin_object();
                outer.key("message");
                outer.string(&self.message);
                outer.key("code");
                outer.integer(i64::from(self.status));
                outer.end_object();
            }
        }
        outer.end_object();
        outer.into_bytes()
    }

    fn write_fault(&self, writer: &mut JsonWriter) {
        writer.key("faultcode");
        writer.string(if self.status < 500 { "Client" } else { "Server" });
        writer.key("faultstring");
        writer.string(&self.message);
    }
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.status, self.message)
    }
}

impl std::error::Error for WireError {}

impl From<VersionError> for WireError {
    fn from(error: VersionError) -> Self {
        Self::router(406, error.to_string())
    }
}

/// User input for a message, truncated to bound the size of the response.
#[must_use]
pub(crate) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn title(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        413 => "Payload Too Large",
        415 => "Unsupported Media Type",
        503 => "Service Unavailable",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(error: &WireError) -> String {
        String::from_utf8(error.body()).unwrap()
    }

    #[test]
    fn writes_the_four_error_forms() {
        assert_eq!(
            body(&WireError::not_found("Node", "nope")),
            r#"{"error_message":"{\"faultcode\":\"Client\",\"faultstring\":\"Node nope could not be found.\",\"debuginfo\":null}"}"#
        );
        assert_eq!(
            body(&WireError::router(404, "")),
            r#"{"error_message":"{\"code\":404,\"title\":\"Not Found\",\"description\":\"\"}"}"#
        );
        assert_eq!(
            body(&WireError::body_too_large(1024)),
            r#"{"faultcode":"Client","faultstring":"Request body is larger than 1024 bytes."}"#
        );
        assert_eq!(
            body(&WireError::unauthorized()),
            r#"{"error":{"message":"Authorization required","code":401}}"#
        );
    }

    #[test]
    fn server_fault_code_and_nested_quoting() {
        let error = WireError::new(500, "a \"quoted\"\nword");
        let outer: serde_json::Value = serde_json::from_slice(&error.body()).unwrap();
        let inner: serde_json::Value =
            serde_json::from_str(outer["error_message"].as_str().unwrap()).unwrap();
        assert_eq!(inner["faultcode"], "Server");
        assert_eq!(inner["faultstring"], "a \"quoted\"\nword");
    }

    #[test]
    fn long_names_are_truncated() {
        let error = WireError::not_found("Node", &"é".repeat(10_000));
        assert!(error.message().len() < 400);
    }
}
