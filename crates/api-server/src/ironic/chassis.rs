// SPDX-License-Identifier: Apache-2.0
//! Chassis: groups of nodes.

use http::Method;
use ironic_wire::{Patch, QueryParams, ResourceDraft, WireError, params};
use node_model::{Chassis, Node};
use store::{ChassisFilter, NodeFilter, StoreWriter};

use super::crud::{self, CrudResource};
use super::resource::{self, ListDetail};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const PAGE: &[&str] = &["limit", "marker", "sort_key", "sort_dir"];
const LIST: &[&str] = &["fields", "detail", "limit", "marker", "sort_key", "sort_dir"];

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/chassis", "List chassis", handler!(list))
        .rule("baremetal:chassis:get")
        .query(LIST),
    ApiRoute::get("/v1/chassis/detail", "List chassis with all fields", handler!(list_detail))
        .rule("baremetal:chassis:get")
        .query(PAGE),
    ApiRoute::new(
        Method::POST,
        "/v1/chassis",
        "Create a chassis",
        handler!(crud::create::<Chassis>),
    )
    .rule("baremetal:chassis:create"),
    ApiRoute::get("/v1/chassis/{chassis}", "Show a chassis", handler!(crud::show::<Chassis>))
        .rule("baremetal:chassis:get")
        .query(&["fields"]),
    ApiRoute::new(
        Method::PATCH,
        "/v1/chassis/{chassis}",
        "Change a chassis",
        handler!(crud::update::<Chassis>),
    )
    .rule("baremetal:chassis:update"),
    ApiRoute::new(
        Method::DELETE,
        "/v1/chassis/{chassis}",
        "Remove a chassis",
        handler!(crud::delete::<Chassis>),
    )
    .rule("baremetal:chassis:delete"),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    resource::list::<Chassis>(
        request,
        params::CHASSIS,
        ListDetail::OnRequest,
        "chassis".into(),
        |_, _| Ok(ChassisFilter::default()),
    )
    .await
}

async fn list_detail(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let path = "chassis/detail".into();
    resource::list::<Chassis>(request, params::CHASSIS_DETAIL, ListDetail::Always, path, |_, _| {
        Ok(ChassisFilter::default())
    })
    .await
}

impl CrudResource for Chassis {
    const PATH_PARAM: &'static str = "chassis";
    const SHOW_PARAMS: QueryParams = params::ONE;

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
        _before: Self,
        drafted: ResourceDraft<Self>,
        _patch: &Patch,
        _request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        Ok(drafted.draft)
    }

    fn check_delete(&self, writer: &mut StoreWriter<'_>) -> Result<(), ApiError> {
        let nodes = NodeFilter { chassis: Some(self.id), ..NodeFilter::default() };
        if writer.count::<Node>(&nodes)? == 0 {
            return Ok(());
        }
        let problem = format!(
            "Cannot complete the requested action because chassis {} contains nodes.",
            self.id
        );
        Err(WireError::invalid(problem).into())
    }

    fn already_exists(&self, _field: &str) -> WireError {
        WireError::conflict(format!("Chassis with UUID {} already exists.", self.id))
    }
}
