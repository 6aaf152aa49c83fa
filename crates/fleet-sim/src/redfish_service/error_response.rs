// SPDX-License-Identifier: Apache-2.0
//! Redfish error responses: a status, and messages of the Base registry with their arguments.

use http::StatusCode;
use serde_json::{Value, json};

use crate::machine::MachineError;

/// The message registry of all message ids here.
const REGISTRY: &str = "Base.1.12";

/// An error response.
#[derive(Clone, Debug)]
pub(crate) struct RedfishErrorResponse {
    pub(crate) status: StatusCode,
    /// The message id, with the registry unless it is the Base registry.
    message_id: &'static str,
    message: String,
    arguments: Vec<String>,
    /// The invalid property.
    property: Option<String>,
    /// The supported methods, for a 405.
    pub(crate) allow: Option<String>,
}

impl RedfishErrorResponse {
    fn new(status: StatusCode, message_id: &'static str, message: String) -> Self {
        Self { status, message_id, message, arguments: Vec::new(), property: None, allow: None }
    }

    fn with_property(mut self, property: &str, arguments: &[&str]) -> Self {
        self.property = Some(property.to_owned());
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self
    }

    pub(crate) fn not_found(path: &str) -> Self {
        let text = format!("There is no resource at {path}.");
        let mut error = Self::new(StatusCode::NOT_FOUND, "ResourceMissingAtURI", text);
        error.arguments.push(path.to_owned());
        error
    }

    pub(crate) fn unauthorized() -> Self {
        let text = "The credentials are missing or not valid.".to_owned();
        Self::new(StatusCode::UNAUTHORIZED, "NoValidSession", text)
    }

    pub(crate) fn method_not_allowed(allow: String) -> Self {
        let text = format!("The resource supports only {allow}.");
        let mut error = Self::new(StatusCode::METHOD_NOT_ALLOWED, "OperationNotAllowed", text);
        error.allow = Some(allow);
        error
    }

    pub(crate) fn malformed() -> Self {
        let text = "The body is not a JSON object.".to_owned();
        Self::new(StatusCode::BAD_REQUEST, "MalformedJSON", text)
    }

    pub(crate) fn too_large() -> Self {
        let text = "The body exceeds the size limit.".to_owned();
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge", text)
    }

    pub(crate) fn etag_differs() -> Self {
        let text = "The resource has changed since it was read.".to_owned();
        Self::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", text)
    }

    pub(crate) fn etag_missing() -> Self {
        let text = "The change requires the If-Match header.".to_owned();
        Self::new(StatusCode::PRECONDITION_REQUIRED, "PreconditionRequired", text)
    }

    pub(crate) fn with_status(status: StatusCode) -> Self {
        Self::new(status, "InternalError", format!("The service returns {status}."))
    }

    pub(crate) fn too_many_sessions() -> Self {
        let text = "The session limit is reached.".to_owned();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "SessionLimitExceeded", text)
    }

    pub(crate) fn limit_exceeded(what: &str) -> Self {
        let text = format!("The limit of {what} is reached.");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "CreateLimitReachedForResource", text)
    }

    /// A required action parameter is missing.
    pub(crate) fn parameter_missing(action: &str, name: &str) -> Self {
        let text = format!("The action {action} requires the parameter {name}.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterMissing", text)
            .with_property(name, &[action, name])
    }

    /// The action does not have this parameter.
    pub(crate) fn parameter_unknown(action: &str, name: &str) -> Self {
        let text = format!("The action {action} does not accept the parameter {name}.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterUnknown", text)
            .with_property(name, &[action, name])
    }

    /// The action does not accept this value of a parameter.
    pub(crate) fn parameter_value(action: &str, name: &str, value: &str) -> Self {
        let text = format!("The parameter {name} of the action {action} cannot be {value}.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterValueNotInList", text)
            .with_property(name, &[value, name, action])
    }

    /// A required property is missing.
    pub(crate) fn property_missing(name: &str) -> Self {
        let text = format!("The property {name} is required.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyMissing", text).with_property(name, &[name])
    }

    /// The property does not exist, or cannot be changed here.
    pub(crate) fn property_unknown(name: &str) -> Self {
        let text = format!("The property {name} is unknown or cannot be changed.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyUnknown", text).with_property(name, &[name])
    }

    /// The value has the wrong type.
    pub(crate) fn property_type(name: &str, value: &Value) -> Self {
        let value = truncated(&value.to_string());
        let text = format!("The property {name} does not accept the type of {value}.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyValueTypeError", text)
            .with_property(name, &[&value, name])
    }

    /// The property does not accept this value.
    pub(crate) fn property_value(name: &str, value: &str) -> Self {
        let value = truncated(value);
        let text = format!("The property {name} cannot be {value}.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyValueNotInList", text)
            .with_property(name, &[&value, name])
    }

    fn property_not_writable(name: &str) -> Self {
        let text = format!("The property {name} is read-only.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyNotWritable", text).with_property(name, &[name])
    }

    /// Returns the response body. Without `explains` it contains only a general error.
    pub(crate) fn body(&self, explains: bool) -> Value {
        if !explains {
            return json!({"error": {
                "code": "Base.1.0.GeneralError",
                "message": "A general error has occurred.",
            }});
        }
        // An id of another registry contains its name.
        let message_id = match self.message_id.contains('.') {
            true => self.message_id.to_owned(),
            false => format!("{REGISTRY}.{}", self.message_id),
        };
        let mut message = json!({
            "@odata.type": "#Message.v1_1_1.Message",
            "MessageId": message_id,
            "Message": self.message,
            "MessageArgs": self.arguments,
            "Severity": if self.status.is_server_error() { "Critical" } else { "Warning" },
            "Resolution": "Change the request and send it again.",
        });
        if let (Some(property), Some(fields)) = (&self.property, message.as_object_mut()) {
            fields.insert("RelatedProperties".to_owned(), json!([format!("#/{property}")]));
        }
        json!({"error": {
            "code": message_id,
            "message": self.message,
            "@Message.ExtendedInfo": [message],
        }})
    }
}

impl From<MachineError> for RedfishErrorResponse {
    fn from(error: MachineError) -> Self {
        let text = to_sentence(&error);
        match error {
            MachineError::WrongPowerState { .. } => {
                Self::new(StatusCode::CONFLICT, "InvalidOperationForSystemState", text)
            }
            MachineError::DuringPost => {
                Self::new(StatusCode::BAD_REQUEST, "UnableToModifyDuringSystemPOST", text)
            }
            MachineError::NotInList { property, value } => Self::property_value(property, &value),
            MachineError::NotWritable { property } => Self::property_not_writable(property),
            MachineError::ReadOnly { property } => Self::property_not_writable(&property),
            MachineError::UnknownProperty { property } => Self::property_unknown(&property),
            MachineError::WrongType { property, value } => {
                Self::property_type(&property, &Value::String(value))
            }
            MachineError::BadValue { property, value } => Self::property_value(&property, &value),
            MachineError::BadFormat { property, value } => {
                let value = truncated(&value);
                Self::new(StatusCode::BAD_REQUEST, "PropertyValueFormatError", text)
                    .with_property(property, &[&value, property])
            }
            MachineError::InUse { .. } => Self::new(StatusCode::CONFLICT, "ResourceInUse", text),
            MachineError::Empty { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "ResourceNotFound", text)
            }
            MachineError::Conflict { .. } => {
                Self::new(StatusCode::BAD_REQUEST, "GeneralError", text)
            }
            MachineError::JobRunning => {
                Self::new(StatusCode::BAD_REQUEST, "IDRAC.2.8.RAC0679", text)
            }
            MachineError::ConfigurationPending => {
                Self::new(StatusCode::BAD_REQUEST, "IDRAC.2.8.LC068", text)
            }
            MachineError::NotFound { .. } => {
                Self::new(StatusCode::NOT_FOUND, "ResourceNotFound", text)
            }
        }
    }
}

fn to_sentence(error: &MachineError) -> String {
    let text = truncated(&error.to_string());
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => text,
    }
}

/// Limits the length of text from the request that is repeated in the response.
fn truncated(text: &str) -> String {
    const MAX_CHARS: usize = 120;
    if text.chars().count() <= MAX_CHARS {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(MAX_CHARS).collect();
    short.push('…');
    short
}
