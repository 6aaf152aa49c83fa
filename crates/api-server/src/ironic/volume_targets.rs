// SPDX-License-Identifier: Apache-2.0
//! Volume targets: remote volumes of nodes. The store seals the secrets in their properties; they are
//! never shown.

use http::Method;
use ironic_wire::{Patch, ResourceDraft, VolumeTargetDraft, WireError, params};
use node_model::{NodeId, VolumeTarget};
use store::StoreWriter;

use super::crud::{self, CrudResource};
use super::node_resources::referenced_node;
use super::resource::{self, ListDetail, ResourceIdent};
use super::volume::{self, LIST, SINCE};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const ALL: &str = "/v1/volume/targets";
const ONE: &str = "/v1/volume/targets/{target}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List volume targets", handler!(list)).since(SINCE).query(LIST),
    ApiRoute::get(
        "/v1/nodes/{node}/volume/targets",
        "List the volume targets of a node",
        handler!(list_of_node),
    )
    .since(SINCE)
    .query(LIST),
    ApiRoute::new(
        Method::POST,
        ALL,
        "Create a volume target",
        handler!(crud::create::<VolumeTarget>),
    )
    .since(SINCE),
    ApiRoute::get(ONE, "Show a volume target", handler!(show)).since(SINCE).query(&["fields"]),
    ApiRoute::new(
        Method::PATCH,
        ONE,
        "Change a volume target",
        handler!(crud::update::<VolumeTarget>),
    )
    .since(SINCE),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Remove a volume target",
        handler!(crud::delete::<VolumeTarget>),
    )
    .since(SINCE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = request.query_value("node").map(|node| ResourceIdent::from_text(&request, node));
    list_targets(request, node, "volume/targets".into()).await
}

async fn list_of_node(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let node = ResourceIdent::from_path(&request, "node");
    let path = format!("nodes/{}/volume/targets", node.text());
    list_targets(request, Some(node), path).await
}

async fn list_targets(
    request: ApiRequest,
    node: Option<ResourceIdent>,
    path: String,
) -> Result<ApiResponse, ApiError> {
    let params = params::VOLUME_TARGETS;
    resource::list::<VolumeTarget>(
        request,
        params,
        ListDetail::OnRequest,
        path,
        move |reader, _| volume::filter(reader, node),
    )
    .await
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    resource::show::<VolumeTarget>(request, "target", params::ONE_WITH_FIELDS).await
}

impl CrudResource for VolumeTarget {
    const PATH_PARAM: &'static str = "target";

    fn to_insert(
        writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        _request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let VolumeTargetDraft { target, properties } = &drafted.draft;
        referenced_node(writer, target.node_id)?;
        let mut target = target.clone();
        writer.seal_volume_target(&mut target, properties.clone())?;
        Ok(target)
    }

    fn to_draft(&self, writer: &mut StoreWriter<'_>) -> Result<VolumeTargetDraft, ApiError> {
        let properties = writer.reveal_volume_target(self)?;
        Ok(VolumeTargetDraft { target: self.clone(), properties })
    }

    fn to_save(
        writer: &mut StoreWriter<'_>,
        _before: Self,
        drafted: ResourceDraft<Self>,
        _patch: &Patch,
        _request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let VolumeTargetDraft { mut target, properties } = drafted.draft;
        let node = referenced_node(writer, target.node_id)?;
        volume::require_power_off(&node, "volume target update")?;
        writer.seal_volume_target(&mut target, properties)?;
        Ok(target)
    }

    fn check_delete(&self, writer: &mut StoreWriter<'_>) -> Result<(), ApiError> {
        let node = referenced_node(writer, self.node_id)?;
        Ok(volume::require_deletable(&node, "volume target deletion")?)
    }

    fn already_exists(&self, field: &str) -> WireError {
        WireError::conflict(match field {
            "uuid" => format!("A volume target with UUID {} already exists.", self.id),
            _ => format!(
                "Node {} already has a volume target with boot index {}.",
                self.node_id, self.boot_index
            ),
        })
    }

    fn journal_field(&self) -> Option<(NodeId, &'static str)> {
        Some((self.node_id, "volume_targets"))
    }
}
