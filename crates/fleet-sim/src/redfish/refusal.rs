// SPDX-License-Identifier: Apache-2.0
//! Saying no, as Redfish does: a status, and messages of the Base registry with their arguments.

use http::StatusCode;
use serde_json::{Value, json};

use crate::machine::Refused;

/// The registry our message names are from.
const REGISTRY: &str = "Base.1.12";

/// Why a request is not answered as asked.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// The name of the message in the Base registry.
    message_id: &'static str,
    text: String,
    arguments: Vec<String>,
    /// The property that is to blame.
    property: Option<String>,
    /// The methods that would be taken, with a 405.
    pub(crate) allow: Option<String>,
}

impl Refusal {
    fn new(status: StatusCode, message_id: &'static str, text: String) -> Self {
        Self { status, message_id, text, arguments: Vec::new(), property: None, allow: None }
    }

    fn about(mut self, property: &str, arguments: &[&str]) -> Self {
        self.property = Some(property.to_owned());
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self
    }

    pub(crate) fn not_found(path: &str) -> Self {
        let text = format!("There is no resource at {path}.");
        let mut refusal = Self::new(StatusCode::NOT_FOUND, "ResourceMissingAtURI", text);
        refusal.arguments.push(path.to_owned());
        refusal
    }

    pub(crate) fn unauthorized() -> Self {
        let text = "The credentials are missing or not valid.".to_owned();
        Self::new(StatusCode::UNAUTHORIZED, "NoValidSession", text)
    }

    pub(crate) fn method_not_allowed(allow: String) -> Self {
        let text = format!("The resource takes only {allow}.");
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, "OperationNotAllowed", text);
        refusal.allow = Some(allow);
        refusal
    }

    pub(crate) fn malformed() -> Self {
        let text = "The body is not a JSON object.".to_owned();
        Self::new(StatusCode::BAD_REQUEST, "MalformedJSON", text)
    }

    pub(crate) fn too_large() -> Self {
        let text = "The body is larger than the service takes.".to_owned();
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge", text)
    }

    pub(crate) fn etag_differs() -> Self {
        let text = "The resource was changed since it was read.".to_owned();
        Self::new(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", text)
    }

    pub(crate) fn etag_missing() -> Self {
        let text = "The change needs the If-Match header.".to_owned();
        Self::new(StatusCode::PRECONDITION_REQUIRED, "PreconditionRequired", text)
    }

    pub(crate) fn with_status(status: StatusCode) -> Self {
        Self::new(status, "InternalError", format!("The service answers {status}."))
    }

    pub(crate) fn too_many_sessions() -> Self {
        let text = "There are as many sessions as the service keeps.".to_owned();
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "SessionLimitExceeded", text)
    }

    pub(crate) fn limit_exceeded(what: &str) -> Self {
        let text = format!("There are as many {what} as the service keeps.");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "CreateLimitReachedForResource", text)
    }

    /// An action lacks a parameter.
    pub(crate) fn parameter_missing(action: &str, name: &str) -> Self {
        let text = format!("The action {action} requires the parameter {name}.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterMissing", text)
            .about(name, &[action, name])
    }

    /// An action does not know a parameter.
    pub(crate) fn parameter_unknown(action: &str, name: &str) -> Self {
        let text = format!("The action {action} does not take the parameter {name}.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterUnknown", text)
            .about(name, &[action, name])
    }

    /// An action does not take the value of a parameter.
    pub(crate) fn parameter_value(action: &str, name: &str, value: &str) -> Self {
        let text = format!("The parameter {name} of the action {action} cannot be {value}.");
        Self::new(StatusCode::BAD_REQUEST, "ActionParameterValueNotInList", text)
            .about(name, &[value, name, action])
    }

    /// A property must be given.
    pub(crate) fn property_missing(name: &str) -> Self {
        let text = format!("The property {name} is required.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyMissing", text).about(name, &[name])
    }

    /// There is no such property, or it cannot be changed here.
    pub(crate) fn property_unknown(name: &str) -> Self {
        let text = format!("The property {name} is not one that can be changed.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyUnknown", text).about(name, &[name])
    }

    /// The property has another type.
    pub(crate) fn property_type(name: &str, value: &Value) -> Self {
        let value = shortened(&value.to_string());
        let text = format!("The property {name} cannot be of the type of {value}.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyValueTypeError", text)
            .about(name, &[&value, name])
    }

    /// The property takes other values.
    pub(crate) fn property_value(name: &str, value: &str) -> Self {
        let value = shortened(value);
        let text = format!("The property {name} cannot be {value}.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyValueNotInList", text)
            .about(name, &[&value, name])
    }

    fn property_not_writable(name: &str) -> Self {
        let text = format!("The property {name} can only be read.");
        Self::new(StatusCode::BAD_REQUEST, "PropertyNotWritable", text).about(name, &[name])
    }

    /// The body of the answer. BMCs that explain nothing say only that something went wrong.
    pub(crate) fn body(&self, explains: bool) -> Value {
        if !explains {
            return json!({"error": {
                "code": "Base.1.0.GeneralError",
                "message": "Something went wrong.",
            }});
        }
        let message_id = format!("{REGISTRY}.{}", self.message_id);
        let mut message = json!({
            "@odata.type": "#Message.v1_1_1.Message",
            "MessageId": message_id,
            "Message": self.text,
            "MessageArgs": self.arguments,
            "Severity": if self.status.is_server_error() { "Critical" } else { "Warning" },
            "Resolution": "Change the request and send it again.",
        });
        if let (Some(property), Some(fields)) = (&self.property, message.as_object_mut()) {
            fields.insert("RelatedProperties".to_owned(), json!([format!("#/{property}")]));
        }
        json!({"error": {
            "code": message_id,
            "message": self.text,
            "@Message.ExtendedInfo": [message],
        }})
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let said = sentence(&refused);
        match refused {
            Refused::WrongPowerState { .. } => {
                Self::new(StatusCode::CONFLICT, "InvalidOperationForSystemState", said)
            }
            Refused::DuringPost => {
                Self::new(StatusCode::BAD_REQUEST, "UnableToModifyDuringSystemPOST", said)
            }
            Refused::NotInList { property, value } => Self::property_value(property, &value),
            Refused::NotWritable { property } => Self::property_not_writable(property),
            Refused::ReadOnly { property } => Self::property_not_writable(&property),
            Refused::Unknown { property } => Self::property_unknown(&property),
            Refused::WrongType { property, value } => {
                Self::property_type(&property, &Value::String(value))
            }
            Refused::BadValue { property, value } => Self::property_value(&property, &value),
            Refused::BadFormat { property, value } => {
                let value = shortened(&value);
                Self::new(StatusCode::BAD_REQUEST, "PropertyValueFormatError", said)
                    .about(property, &[&value, property])
            }
            Refused::InUse { .. } => Self::new(StatusCode::CONFLICT, "ResourceInUse", said),
            Refused::Empty { .. } => Self::new(StatusCode::BAD_REQUEST, "ResourceNotFound", said),
            Refused::Conflict { .. } => Self::new(StatusCode::BAD_REQUEST, "GeneralError", said),
            Refused::NoSuch { .. } => Self::new(StatusCode::NOT_FOUND, "ResourceNotFound", said),
        }
    }
}

fn sentence(refused: &Refused) -> String {
    let said = shortened(&refused.to_string());
    let mut letters = said.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => said,
    }
}

/// What came from the request goes back in parts only.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 120;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(LONGEST).collect();
    short.push('…');
    short
}
