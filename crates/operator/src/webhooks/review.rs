// SPDX-License-Identifier: Apache-2.0
//! Requests and responses of `admission.k8s.io/v1`.

use kube_resources::field_error::FieldError;
use serde::Deserialize;
use serde_json::{Value, json};

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Errors that a response lists, so that it stays readable and small.
const MAX_ERRORS: usize = 32;
/// Length of a warning that the API server passes on, in characters.
const MAX_WARNING: usize = 256;

/// The operation that is reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum ReviewedOperation {
    Create,
    Update,
    Delete,
    Connect,
}

/// The request of a review.
#[derive(Debug)]
pub(super) struct AdmissionReviewRequest {
    pub(super) uid: String,
    /// The kind of the object, without group.
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) operation: ReviewedOperation,
    /// The new object; null on deletion.
    pub(super) object: Value,
    /// The stored object; null on creation.
    pub(super) old_object: Value,
}

/// Errors and warnings of the rules for an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ReviewVerdict {
    /// The object is rejected if there is one.
    pub(super) errors: Vec<FieldError>,
    /// Shown to the user.
    pub(super) warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewDocument {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<RequestDocument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestDocument {
    uid: String,
    kind: KindDocument,
    operation: ReviewedOperation,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

#[derive(Deserialize)]
struct KindDocument {
    kind: String,
}

impl AdmissionReviewRequest {
    /// Parses a review. The error states what is wrong with it.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let mut deserializer = serde_json::Deserializer::from_slice(body);
        let review: ReviewDocument = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| format!("the body is no {KIND}: {error}"))?;
        if review.kind != KIND || review.api_version != API_VERSION {
            return Err(format!(
                "the body is a {:?} of {:?}; send {KIND} of {API_VERSION}",
                review.kind, review.api_version
            ));
        }
        let request = review.request.ok_or("the review has no request")?;
        if request.uid.is_empty() {
            return Err("request.uid is empty".to_owned());
        }
        let is_missing = match request.operation {
            ReviewedOperation::Create => request.object.is_null().then_some("object"),
            ReviewedOperation::Update => match (&request.object, &request.old_object) {
                (Value::Null, _) => Some("object"),
                (_, Value::Null) => Some("oldObject"),
                _ => None,
            },
            ReviewedOperation::Delete | ReviewedOperation::Connect => None,
        };
        if let Some(field) = is_missing {
            return Err(format!("request.{field} is missing"));
        }
        Ok(Self {
            uid: request.uid,
            kind: request.kind.kind,
            namespace: request.namespace,
            name: request.name,
            operation: request.operation,
            object: request.object,
            old_object: request.old_object,
        })
    }
}

/// The JSON of the response.
pub(super) fn admission_response(
    request: &AdmissionReviewRequest,
    verdict: &ReviewVerdict,
) -> String {
    let ReviewVerdict { errors, warnings } = verdict;
    let mut response = json!({"uid": request.uid, "allowed": errors.is_empty()});
    if !errors.is_empty() {
        let listed = &errors[..errors.len().min(MAX_ERRORS)];
        let mut message = listed.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        if errors.len() > MAX_ERRORS {
            message.push_str(&format!("; and {} more", errors.len() - MAX_ERRORS));
        }
        let causes: Vec<Value> = listed
            .iter()
            .map(|error| {
                json!({
                    "reason": "FieldValueInvalid",
                    "field": error.path,
                    "message": error.problem,
                })
            })
            .collect();
        response["status"] = json!({
            "code": 422,
            "reason": "Invalid",
            "message": message,
            "details": {"name": request.name, "kind": request.kind, "causes": causes},
        });
    }
    if !warnings.is_empty() {
        let warnings: Vec<String> = warnings
            .iter()
            .take(MAX_ERRORS)
            .map(|warning| warning.chars().take(MAX_WARNING).collect())
            .collect();
        response["warnings"] = json!(warnings);
    }
    json!({"apiVersion": API_VERSION, "kind": KIND, "response": response}).to_string()
}
