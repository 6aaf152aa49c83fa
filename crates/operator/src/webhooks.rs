// SPDX-License-Identifier: Apache-2.0
//! Validating admission webhooks, with the paths of Metal3's operators.
//!
//! All replicas serve them, not only the leader. Deletion is never rejected, and neither is an update
//! that leaves spec and annotations as they are: an object that was stored under other rules can still
//! be labelled and deleted.

mod review;
mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use kube_resources::ironic::validation::IronicRules;
use tracing::{debug, info};

use crate::http_server::{
    BufferedRequest, FullResponse, RequestHandler, method_not_allowed, text, with_type,
};
use crate::metrics::OperatorMetrics;
use review::{AdmissionReviewRequest, admission_response};
use rules::{ReviewRule, review_rules};

/// Responds to admission reviews.
pub(crate) struct WebhookHandler {
    ironic_rules: IronicRules,
    metrics: OperatorMetrics,
}

impl WebhookHandler {
    /// `ironic_rules` depend on the settings of the operator.
    pub(crate) fn new(ironic_rules: IronicRules, metrics: OperatorMetrics) -> Self {
        Self { ironic_rules, metrics }
    }

    fn respond(&self, request: &BufferedRequest) -> FullResponse {
        let Some(rule) = review_rules().iter().find(|rule| rule.path == request.path) else {
            return text(StatusCode::NOT_FOUND, "no webhook has this path\n");
        };
        if request.method != Method::POST {
            return method_not_allowed("POST");
        }
        let response = match self.review(rule, &request.body) {
            Ok(response) => with_type(StatusCode::OK, "application/json", response),
            Err(problem) => {
                debug!(path = rule.path, %problem, "malformed admission review");
                text(StatusCode::BAD_REQUEST, format!("{problem}\n"))
            }
        };
        self.metrics.reviewed(rule.path, response.status().as_u16());
        response
    }

    /// Returns the JSON of the response, or why the request is malformed.
    fn review(&self, rule: &ReviewRule, body: &[u8]) -> Result<String, String> {
        let request = AdmissionReviewRequest::parse(body)?;
        if request.kind != rule.kind {
            return Err(format!(
                "{} is for {}, but the review is for {}; correct the path in the \
                 ValidatingWebhookConfiguration",
                rule.path, rule.kind, request.kind
            ));
        }
        let verdict = (rule.check)(&request, &self.ironic_rules)?;
        if !verdict.errors.is_empty() {
            info!(
                kind = rule.kind,
                namespace = %request.namespace,
                name = %request.name,
                errors = verdict.errors.len(),
                "object rejected"
            );
        }
        Ok(admission_response(&request, &verdict))
    }
}

impl RequestHandler for WebhookHandler {
    /// Two objects of the maximum size of the API server, and what surrounds them.
    const MAX_BODY: usize = 7 * 1024 * 1024;

    fn handle(self: Arc<Self>, request: BufferedRequest) -> BoxFuture<'static, FullResponse> {
        Box::pin(async move { self.respond(&request) })
    }
}
