// SPDX-License-Identifier: Apache-2.0
//! Deploy templates: steps that a trait adds to a deployment.

use http::Method;
use ironic_wire::{Patch, ResourceDraft, WireError, params};
use node_model::{DeployTemplate, unmask_object};
use store::{DeployTemplateFilter, StoreWriter};

use super::crud::{self, CrudResource};
use super::resource::{self, ListDetail};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, TooOld};

const SINCE: u16 = 55;
const ONE: &str = "/v1/deploy_templates/{template}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/deploy_templates", "List deploy templates", handler!(list))
        .rule("baremetal:deploy_template:get")
        .since(SINCE)
        .query(&["fields", "detail", "limit", "marker", "sort_key", "sort_dir"]),
    ApiRoute::new(
        Method::POST,
        "/v1/deploy_templates",
        "Create a deploy template",
        handler!(crud::create::<DeployTemplate>),
    )
    .rule("baremetal:deploy_template:create")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
    ApiRoute::get(ONE, "Show a deploy template", handler!(crud::show::<DeployTemplate>))
        .rule("baremetal:deploy_template:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(
        Method::PATCH,
        ONE,
        "Change a deploy template",
        handler!(crud::update::<DeployTemplate>),
    )
    .rule("baremetal:deploy_template:update")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Remove a deploy template",
        handler!(crud::delete::<DeployTemplate>),
    )
    .rule("baremetal:deploy_template:delete")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let path = "deploy_templates".into();
    resource::list::<DeployTemplate>(
        request,
        params::DEPLOY_TEMPLATES,
        ListDetail::OnRequest,
        path,
        |_, _| Ok(DeployTemplateFilter::default()),
    )
    .await
}

impl CrudResource for DeployTemplate {
    const PATH_PARAM: &'static str = "template";

    fn to_insert(
        _writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        _request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        Ok(drafted.draft.clone())
    }

    fn to_draft(&self, _writer: &mut StoreWriter<'_>) -> Result<Self, ApiError> {
        Ok(self.clone())
    }

    fn to_save(
        _writer: &mut StoreWriter<'_>,
        before: Self,
        drafted: ResourceDraft<Self>,
        _patch: &Patch,
        _request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let mut template = drafted.draft;
        // Passwords in URLs are shown masked: restore those that come back masked.
        let stored: Vec<_> = before.steps.iter().map(|step| &step.args).collect();
        template.steps.iter_mut().for_each(|step| unmask_object(&mut step.args, &stored));
        Ok(template)
    }

    fn already_exists(&self, field: &str) -> WireError {
        WireError::conflict(match field {
            "name" => format!("A deploy template with name {} already exists.", self.name),
            _ => format!("A deploy template with UUID {} already exists.", self.id),
        })
    }
}
