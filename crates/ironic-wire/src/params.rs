// SPDX-License-Identifier: Apache-2.0
//! The query parameters of each collection, with their first versions.
//!
//! The versions are those that Ironic enforces. Where it documents a version but does not enforce it
//! (`description_contains`, `retired`, `project`), neither do we.

use crate::list::{ParamKind, QueryParam, QueryParams};

const LIMIT: QueryParam = QueryParam::new("limit", 1, ParamKind::Limit);
const MARKER: QueryParam = QueryParam::new("marker", 1, ParamKind::Marker);
const SORT_KEY: QueryParam = QueryParam::new("sort_key", 1, ParamKind::SortKey);
const SORT_DIR: QueryParam = QueryParam::new("sort_dir", 1, ParamKind::SortDirection);
const DETAIL: QueryParam = QueryParam::new("detail", 1, ParamKind::Detail);
/// `detail` of collections older than 1.43.
const DETAIL_43: QueryParam = QueryParam::new("detail", 43, ParamKind::Detail).rejected_with_400();
const FIELDS: QueryParam = QueryParam::new("fields", 1, ParamKind::Fields);
const FIELDS_8: QueryParam = QueryParam::new("fields", 8, ParamKind::Fields);

const fn text(name: &'static str, since: u16) -> QueryParam {
    QueryParam::new(name, since, ParamKind::Text)
}

const fn flag(name: &'static str, since: u16) -> QueryParam {
    QueryParam::new(name, since, ParamKind::Flag)
}

const fn uuid(name: &'static str, since: u16) -> QueryParam {
    QueryParam::new(name, since, ParamKind::Uuid)
}

const fn list(name: &'static str, since: u16) -> QueryParam {
    QueryParam::new(name, since, ParamKind::TextList)
}

macro_rules! node_filters {
    ($($more:expr),*) => {
        &[
            $($more,)*
            LIMIT, MARKER, SORT_KEY, SORT_DIR,
            flag("associated", 1),
            flag("maintenance", 1),
            uuid("chassis_uuid", 1),
            uuid("instance_uuid", 1),
            QueryParam::new("provision_state", 9, ParamKind::ProvisionState),
            text("driver", 16),
            text("resource_class", 21),
            QueryParam::new("fault", 42, ParamKind::Fault),
            text("conductor_group", 46),
            text("conductor", 49),
            text("owner", 50),
            text("description_contains", 1),
            flag("retired", 1),
            text("lessee", 65),
            text("project", 1),
            list("shard", 82),
            flag("sharded", 82),
            flag("include_children", 83),
            text("parent_node", 83),
            text("instance_name", 104),
        ]
    };
}

macro_rules! port_filters {
    ($($more:expr),*) => {
        &[
            $($more,)*
            LIMIT, MARKER, SORT_KEY, SORT_DIR,
            text("node", 1),
            uuid("node_uuid", 1),
            QueryParam::new("address", 1, ParamKind::Mac),
            text("portgroup", 24),
            list("shard", 82),
            text("description_contains", 1),
            list("conductor_groups", 1),
        ]
    };
}

macro_rules! portgroup_filters {
    ($($more:expr),*) => {
        &[
            $($more,)*
            LIMIT, MARKER, SORT_KEY, SORT_DIR,
            text("node", 1),
            QueryParam::new("address", 1, ParamKind::Mac),
            list("shard", 106),
            list("conductor_groups", 1),
        ]
    };
}

/// `GET /v1/nodes`, and `GET /v1/chassis/{chassis}/nodes`.
pub const NODES: QueryParams = node_filters!(FIELDS_8, DETAIL_43);
/// `GET /v1/nodes/detail`.
pub const NODES_DETAIL: QueryParams = node_filters!();
/// `GET /v1/ports`, `GET /v1/nodes/{node}/ports`, `GET /v1/portgroups/{portgroup}/ports`.
pub const PORTS: QueryParams = port_filters!(FIELDS_8, DETAIL_43);
/// `GET /v1/ports/detail` and similar paths.
pub const PORTS_DETAIL: QueryParams = port_filters!();
/// `GET /v1/portgroups`, `GET /v1/nodes/{node}/portgroups`.
pub const PORTGROUPS: QueryParams = portgroup_filters!(FIELDS, DETAIL_43);
/// `GET /v1/portgroups/detail` and similar paths.
pub const PORTGROUPS_DETAIL: QueryParams = portgroup_filters!();
/// `GET /v1/chassis`.
pub const CHASSIS: QueryParams = &[FIELDS_8, DETAIL_43, LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET /v1/chassis/detail`.
pub const CHASSIS_DETAIL: QueryParams = &[LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET /v1/allocations`.
pub const ALLOCATIONS: QueryParams = &[
    FIELDS,
    LIMIT,
    MARKER,
    SORT_KEY,
    SORT_DIR,
    text("node", 1),
    text("resource_class", 1),
    text("state", 1),
    text("owner", 60),
];
/// `GET /v1/deploy_templates`.
pub const DEPLOY_TEMPLATES: QueryParams = &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET /v1/runbooks`.
pub const RUNBOOKS: QueryParams =
    &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR, text("project", 1)];
/// `GET /v1/inspection_rules`.
pub const INSPECTION_RULES: QueryParams =
    &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR, text("phase", 1)];
/// `GET /v1/volume/connectors`.
pub const VOLUME_CONNECTORS: QueryParams =
    &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR, text("node", 1)];
/// `GET /v1/volume/targets`.
pub const VOLUME_TARGETS: QueryParams = VOLUME_CONNECTORS;
/// `GET /v1/conductors`.
pub const CONDUCTORS: QueryParams = &[
    FIELDS,
    DETAIL,
    LIMIT,
    QueryParam::new("marker", 1, ParamKind::NameMarker),
    SORT_KEY,
    SORT_DIR,
];
/// `GET /v1/drivers`.
pub const DRIVERS: QueryParams = &[
    QueryParam::new("fields", 77, ParamKind::Fields),
    QueryParam::new("detail", 30, ParamKind::Detail),
    text("type", 30),
];
/// `GET /v1/nodes/{node}/bios`.
pub const BIOS: QueryParams = &[
    QueryParam::new("fields", 74, ParamKind::Fields).rejected_with_400(),
    QueryParam::new("detail", 74, ParamKind::Detail).rejected_with_400(),
];
/// `GET /v1/nodes/{node}/firmware`.
pub const FIRMWARE: QueryParams = &[FIELDS];
/// `GET /v1/nodes/{node}/history`.
pub const HISTORY: QueryParams = &[DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET` of one node, port or chassis.
pub const ONE: QueryParams = &[FIELDS_8];
/// `GET` of one resource of a type that is newer than `fields`.
pub const ONE_WITH_FIELDS: QueryParams = &[FIELDS];
