// SPDX-License-Identifier: Apache-2.0
//! Refusals as Ironic's clients expect them.
//!
//! Most are a *fault*: a JSON text inside a JSON object, because that is what every client decodes
//! twice. Errors of the router, of body limits and of authentication each have their own form.

use std::fmt;

use crate::version::VersionError;
use crate::writer::JsonWriter;

/// Which of the four forms a refusal takes on the wire.
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

/// A refusal: what the API server answers instead of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WireError {
    status: u16,
    form: ErrorForm,
    message: String,
    retry_after: Option<u32>,
}

impl WireError {
    /// A refusal in the usual form.
    #[must_use]
    pub fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, form: ErrorForm::Fault, message: message.into(), retry_after: None }
    }

    /// A refusal as the router and the version check write it.
    #[must_use]
    pub fn router(status: u16, description: impl Into<String>) -> Self {
        Self { form: ErrorForm::Router, ..Self::new(status, description) }
    }

    /// 400: the request is wrong in itself.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    /// 400: `field` of the body or the query is wrong.
    #[must_use]
    pub fn invalid_field(field: &str, problem: &str) -> Self {
        Self::invalid(format!("Invalid value for {field}: {problem}"))
    }

    /// 400: a mandatory field is not there.
    #[must_use]
    pub fn missing(field: &str) -> Self {
        Self::invalid(format!("Missing mandatory parameter: {field}"))
    }

    /// 400: fields that nobody knows. The phrase is matched by clients.
    #[must_use]
    pub fn unexpected(names: &[&str]) -> Self {
        let shown: Vec<String> = names.iter().map(|name| excerpt(name)).collect();
        Self::invalid(format!("Unexpected arguments: {}", shown.join(", ")))
    }

    /// 400: the verb or power target does not fit the state the node is in.
    #[must_use]
    pub fn invalid_state(action: &str, node: &str, state: &str) -> Self {
        Self::invalid(format!(
            "The requested action \"{}\" can not be performed on node \"{node}\" while it is in \
             state \"{state}\".",
            excerpt(action)
        ))
    }

    /// 400: the node is in maintenance and this may not be done to it now.
    #[must_use]
    pub fn node_in_maintenance(action: &str, node: &str) -> Self {
        Self::invalid(format!(
            "The {action} operation can't be performed on node {node} because it's in maintenance \
             mode; unset maintenance first."
        ))
    }

    /// 400: the node's driver cannot do this.
    #[must_use]
    pub fn unsupported_by_driver(driver: &str, extension: &str) -> Self {
        Self::invalid(format!(
            "Driver {driver} does not support {extension} (disabled or not implemented)."
        ))
    }

    /// 403: not for this user.
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

    /// 404: there is no such thing. `kind` starts a sentence: `Node`, `Port`, `Deploy template`.
    #[must_use]
    pub fn not_found(kind: &str, ident: &str) -> Self {
        Self::new(404, format!("{kind} {} could not be found.", excerpt(ident)))
    }

    /// 404: the endpoint appeared in a later microversion.
    #[must_use]
    pub fn endpoint_too_new() -> Self {
        Self::new(404, "The API is not supported for this version")
    }

    /// 405: the method is not for this resource, or not yet at this version.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(405, "The method is not allowed for this resource at the requested API version")
    }

    /// 406: a field, verb or parameter of a later microversion, which one not being certain.
    #[must_use]
    pub fn not_acceptable() -> Self {
        Self::new(406, "Request not acceptable.")
    }

    /// 406: `what` appeared in `1.<since>`. Clients match the first sentence.
    #[must_use]
    pub fn too_new(what: &str, since: u16) -> Self {
        Self::new(
            406,
            format!(
                "Request not acceptable. The minimal required API version for {what} is 1.{since}"
            ),
        )
    }

    /// 409: something with this name, address or id already exists, or the state does not allow it.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, message)
    }

    /// 409: somebody else is working on the node. Clients retry on this.
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

    /// 413: the body is larger than allowed.
    #[must_use]
    pub fn body_too_large(limit_bytes: usize) -> Self {
        Self {
            form: ErrorForm::Flat,
            ..Self::new(413, format!("Request body is larger than {limit_bytes} bytes."))
        }
    }

    /// 400: the body is nested deeper than allowed.
    #[must_use]
    pub fn body_too_deep(limit: usize) -> Self {
        Self {
            form: ErrorForm::Flat,
            ..Self::new(400, format!("Request body JSON is nested deeper than {limit} levels."))
        }
    }

    /// 401: who is asking?
    #[must_use]
    pub fn unauthorized() -> Self {
        Self { form: ErrorForm::Unauthorized, ..Self::new(401, "Authorization required") }
    }

    /// 500: our own fault. `reference` lets an operator find the details in the log.
    #[must_use]
    pub fn internal(reference: &str) -> Self {
        Self::new(
            500,
            format!("The service failed internally; its log has details under {reference}"),
        )
    }

    /// 503: not now; trying again may help. Clients retry on this.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self { retry_after: Some(1), ..Self::new(503, message) }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// The form on the wire.
    #[must_use]
    pub const fn form(&self) -> ErrorForm {
        self.form
    }

    /// What went wrong, in words.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Seconds for a `Retry-After` header.
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

/// User text for a message: cut, so that a message cannot be made as large as a body.
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
    fn four_forms() {
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
    fn server_faults_say_so_and_quotes_survive_both_encodings() {
        let error = WireError::new(500, "a \"quoted\"\nword");
        let outer: serde_json::Value = serde_json::from_slice(&error.body()).unwrap();
        let inner: serde_json::Value =
            serde_json::from_str(outer["error_message"].as_str().unwrap()).unwrap();
        assert_eq!(inner["faultcode"], "Server");
        assert_eq!(inner["faultstring"], "a \"quoted\"\nword");
    }

    #[test]
    fn long_names_are_cut() {
        let error = WireError::not_found("Node", &"é".repeat(10_000));
        assert!(error.message().len() < 400);
    }
}
