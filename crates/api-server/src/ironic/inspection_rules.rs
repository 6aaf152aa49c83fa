// SPDX-License-Identifier: Apache-2.0
//! Inspection rules.

use http::Method;
use ironic_wire::{Patch, ResourceDraft, WireError, params};
use node_model::{InspectionRule, Sensitive};
use store::{InspectionRuleFilter, ResourceQuery, StoreWriter};

use super::crud::{self, CrudResource};
use super::resource::{self, ListDetail};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, TooOld};

const SINCE: u16 = 96;
const ALL: &str = "/v1/inspection_rules";
const ONE: &str = "/v1/inspection_rules/{rule}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List inspection rules", handler!(list))
        .rule("baremetal:inspection_rule:get")
        .since(SINCE)
        .query(&["phase", "fields", "detail", "limit", "marker", "sort_key", "sort_dir"]),
    ApiRoute::new(
        Method::POST,
        ALL,
        "Create an inspection rule",
        handler!(crud::create::<InspectionRule>),
    )
    .rule("baremetal:inspection_rule:create")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(Method::DELETE, ALL, "Remove all inspection rules", handler!(delete_all))
        .rule("baremetal:inspection_rule:delete")
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    ApiRoute::get(ONE, "Show an inspection rule", handler!(crud::show::<InspectionRule>))
        .rule("baremetal:inspection_rule:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(
        Method::PATCH,
        ONE,
        "Change an inspection rule",
        handler!(crud::update::<InspectionRule>),
    )
    .rule("baremetal:inspection_rule:update")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Remove an inspection rule",
        handler!(crud::delete::<InspectionRule>),
    )
    .rule("baremetal:inspection_rule:delete")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let path = "inspection_rules".into();
    resource::list::<InspectionRule>(
        request,
        params::INSPECTION_RULES,
        ListDetail::OnRequest,
        path,
        |_, query| {
            let phase = query.text("phase").map(str::to_owned);
            Ok(InspectionRuleFilter { phase })
        },
    )
    .await
}

impl CrudResource for InspectionRule {
    const PATH_PARAM: &'static str = "rule";

    fn to_insert(
        _writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let rule = &drafted.draft;
        check_content(request.app.conductor.allowed_rule_urls(), rule)?;
        Ok(rule.clone())
    }

    fn to_draft(&self, _writer: &mut StoreWriter<'_>) -> Result<Self, ApiError> {
        Ok(self.clone())
    }

    fn to_save(
        _writer: &mut StoreWriter<'_>,
        before: Self,
        drafted: ResourceDraft<Self>,
        _patch: &Patch,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let rule = drafted.draft;
        // Unsetting the flag would reveal the hidden content.
        if before.sensitive == Sensitive::Yes && rule.sensitive == Sensitive::No {
            let problem = "Inspection rules cannot have the sensitive flag unset";
            return Err(WireError::invalid(problem).into());
        }
        check_content(request.app.conductor.allowed_rule_urls(), &rule)?;
        Ok(rule)
    }

    fn already_exists(&self, _field: &str) -> WireError {
        WireError::conflict(format!("An inspection rule with UUID {} already exists.", self.id))
    }
}

async fn delete_all(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    request
        .app
        .store
        .write(|writer| {
            for rule in writer.collect(&ResourceQuery::<InspectionRule>::default())? {
                writer.delete(rule.id)?;
            }
            Ok::<_, ApiError>(())
        })
        .await?;
    Ok(ApiResponse::no_content())
}

/// Checks conditions and actions, so that a bad expression fails now and not during an inspection.
fn check_content(allowed_urls: &[String], rule: &InspectionRule) -> Result<(), WireError> {
    let actions = rule.actions.parse();
    inspection::validate_rule(&rule.conditions.parse(), &actions)
        .map_err(|error| WireError::invalid(error.to_string()))?;
    if allowed_urls.is_empty() && actions.iter().any(|action| action["op"] == "api-call") {
        let problem = "the action api-call is disabled; list the allowed URLs in \
                       inspection.api_call_allowed of the configuration";
        return Err(WireError::invalid_field("actions", problem));
    }
    Ok(())
}
