// SPDX-License-Identifier: Apache-2.0
//! Volume targets: remote volumes of nodes. The store seals the secrets in their properties; they are
//! never shown.

use http::Method;
use ironic_wire::{Patch, QueryParams, ResourceDraft, VolumeTargetDraft, WireError, params};
use node_model::{NodeId, VolumeTarget};
use store::StoreWriter;

use super::crud::{self, CrudResource};
use super::node_resources::{check_node_link, parent_of_new_resource, referenced_node};
use super::resource::ResourceIdent;
use super::volume::{self, LIST, SINCE, VolumeResource};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiRoute};

const ALL: &str = "/v1/volume/targets";
const ONE: &str = "/v1/volume/targets/{target}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List volume targets", handler!(volume::list::<VolumeTarget>))
        .list("baremetal:volume:list_all", "baremetal:volume:list")
        .since(SINCE)
        .query(LIST),
    ApiRoute::get(
        "/v1/nodes/{node}/volume/targets",
        "List the volume targets of a node",
        handler!(volume::list_of_node::<VolumeTarget>),
    )
    .list("baremetal:volume:list_all", "baremetal:volume:list")
    .since(SINCE)
    .query(LIST),
    ApiRoute::new(
        Method::POST,
        ALL,
        "Create a volume target",
        handler!(crud::create::<VolumeTarget>),
    )
    .checked_by_handler(&["baremetal:volume:create"])
    .since(SINCE),
    ApiRoute::get(ONE, "Show a volume target", handler!(crud::show::<VolumeTarget>))
        .resource("baremetal:volume:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(
        Method::PATCH,
        ONE,
        "Change a volume target",
        handler!(crud::update::<VolumeTarget>),
    )
    .resource("baremetal:volume:update")
    .since(SINCE),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Remove a volume target",
        handler!(crud::delete::<VolumeTarget>),
    )
    .resource("baremetal:volume:delete")
    .since(SINCE),
];

impl VolumeResource for VolumeTarget {
    const LIST_PARAMS: QueryParams = params::VOLUME_TARGETS;
}

impl CrudResource for VolumeTarget {
    const PATH_PARAM: &'static str = "target";

    fn to_insert(
        writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let VolumeTargetDraft { target, properties } = &drafted.draft;
        let ident = ResourceIdent::from_text(request, &target.node_id.to_string());
        parent_of_new_resource(writer, &ident, request, "baremetal:volume:create")?;
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
        before: Self,
        drafted: ResourceDraft<Self>,
        _patch: &Patch,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let VolumeTargetDraft { mut target, properties } = drafted.draft;
        check_node_link(writer, before.node_id, target.node_id, "node_uuid", request)?;
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
                "A volume target with boot index '{}' for the same node already exists.",
                self.boot_index
            ),
        })
    }

    fn journal_field(&self) -> Option<(NodeId, &'static str)> {
        Some((self.node_id, "volume_targets"))
    }
}
