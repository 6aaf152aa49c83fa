// SPDX-License-Identifier: Apache-2.0
//! Volume connectors: the initiators by which nodes access remote volumes.

use http::Method;
use ironic_wire::{Patch, QueryParams, ResourceDraft, WireError, params};
use node_model::{NodeId, VolumeConnector};
use store::StoreWriter;

use super::crud::{self, CrudResource};
use super::node_resources::{check_node_link, parent_of_new_resource, referenced_node};
use super::resource::ResourceIdent;
use super::volume::{self, LIST, SINCE, VolumeResource};
use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiRoute};

const ALL: &str = "/v1/volume/connectors";
const ONE: &str = "/v1/volume/connectors/{connector}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List volume connectors", handler!(volume::list::<VolumeConnector>))
        .list("baremetal:volume:list_all", "baremetal:volume:list")
        .since(SINCE)
        .query(LIST),
    ApiRoute::get(
        "/v1/nodes/{node}/volume/connectors",
        "List the volume connectors of a node",
        handler!(volume::list_of_node::<VolumeConnector>),
    )
    .list("baremetal:volume:list_all", "baremetal:volume:list")
    .since(SINCE)
    .query(LIST),
    ApiRoute::new(
        Method::POST,
        ALL,
        "Create a volume connector",
        handler!(crud::create::<VolumeConnector>),
    )
    .checked_by_handler(&["baremetal:volume:create"])
    .since(SINCE),
    ApiRoute::get(ONE, "Show a volume connector", handler!(crud::show::<VolumeConnector>))
        .resource("baremetal:volume:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(
        Method::PATCH,
        ONE,
        "Change a volume connector",
        handler!(crud::update::<VolumeConnector>),
    )
    .resource("baremetal:volume:update")
    .since(SINCE),
    ApiRoute::new(
        Method::DELETE,
        ONE,
        "Remove a volume connector",
        handler!(crud::delete::<VolumeConnector>),
    )
    .resource("baremetal:volume:delete")
    .since(SINCE),
];

impl VolumeResource for VolumeConnector {
    const LIST_PARAMS: QueryParams = params::VOLUME_CONNECTORS;
}

impl CrudResource for VolumeConnector {
    const PATH_PARAM: &'static str = "connector";

    fn to_insert(
        writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let ident = ResourceIdent::from_text(request, &drafted.draft.node_id.to_string());
        parent_of_new_resource(writer, &ident, request, "baremetal:volume:create")?;
        Ok(drafted.draft.clone())
    }

    fn to_draft(&self, _writer: &mut StoreWriter<'_>) -> Result<Self, ApiError> {
        Ok(self.clone())
    }

    fn to_save(
        writer: &mut StoreWriter<'_>,
        before: Self,
        drafted: ResourceDraft<Self>,
        _patch: &Patch,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let connector = drafted.draft;
        check_node_link(writer, before.node_id, connector.node_id, "node_uuid", request)?;
        let node = referenced_node(writer, connector.node_id)?;
        volume::require_power_off(&node, "volume connector update")?;
        Ok(connector)
    }

    fn check_delete(&self, writer: &mut StoreWriter<'_>) -> Result<(), ApiError> {
        let node = referenced_node(writer, self.node_id)?;
        Ok(volume::require_deletable(&node, "volume connector deletion")?)
    }

    fn already_exists(&self, field: &str) -> WireError {
        WireError::conflict(match field {
            "uuid" => format!("A volume connector with UUID {} already exists.", self.id),
            _ => format!(
                "A volume connector with type {} and connector ID {} already exists.",
                self.kind, self.connector_id
            ),
        })
    }

    fn journal_field(&self) -> Option<(NodeId, &'static str)> {
        Some((self.node_id, "volume_connectors"))
    }
}
