// SPDX-License-Identifier: Apache-2.0
//! Which query parameters each collection knows, and since when.
//!
//! The versions are those at which Ironic really starts to refuse; where it documents a version
//! and does not enforce it (`description_contains`, `retired`, `project`), neither do we.

use crate::list::{Param, ParamKind, Params};

const LIMIT: Param = Param::new("limit", 1, ParamKind::Limit);
const MARKER: Param = Param::new("marker", 1, ParamKind::Marker);
const SORT_KEY: Param = Param::new("sort_key", 1, ParamKind::SortKey);
const SORT_DIR: Param = Param::new("sort_dir", 1, ParamKind::SortDirection);
const DETAIL: Param = Param::new("detail", 1, ParamKind::Detail);
/// Collections older than 1.43 got `detail` then.
const DETAIL_43: Param = Param::new("detail", 43, ParamKind::Detail).refused_with_400();
const FIELDS: Param = Param::new("fields", 1, ParamKind::Fields);
const FIELDS_8: Param = Param::new("fields", 8, ParamKind::Fields);

const fn text(name: &'static str, since: u16) -> Param {
    Param::new(name, since, ParamKind::Text)
}

const fn flag(name: &'static str, since: u16) -> Param {
    Param::new(name, since, ParamKind::Flag)
}

const fn uuid(name: &'static str, since: u16) -> Param {
    Param::new(name, since, ParamKind::Uuid)
}

const fn list(name: &'static str, since: u16) -> Param {
    Param::new(name, since, ParamKind::TextList)
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
            Param::new("provision_state", 9, ParamKind::ProvisionState),
            text("driver", 16),
            text("resource_class", 21),
            Param::new("fault", 42, ParamKind::Fault),
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
            Param::new("address", 1, ParamKind::Mac),
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
            Param::new("address", 1, ParamKind::Mac),
            list("shard", 106),
            list("conductor_groups", 1),
        ]
    };
}

/// `GET /v1/nodes`, and `GET /v1/chassis/{chassis}/nodes`.
pub const NODES: Params = node_filters!(FIELDS_8, DETAIL_43);
/// `GET /v1/nodes/detail`.
pub const NODES_DETAIL: Params = node_filters!();
/// `GET /v1/ports`, `GET /v1/nodes/{node}/ports`, `GET /v1/portgroups/{portgroup}/ports`.
pub const PORTS: Params = port_filters!(FIELDS_8, DETAIL_43);
/// `GET /v1/ports/detail` and its like.
pub const PORTS_DETAIL: Params = port_filters!();
/// `GET /v1/portgroups`, `GET /v1/nodes/{node}/portgroups`.
pub const PORTGROUPS: Params = portgroup_filters!(FIELDS, DETAIL_43);
/// `GET /v1/portgroups/detail` and its like.
pub const PORTGROUPS_DETAIL: Params = portgroup_filters!();
/// `GET /v1/chassis`.
pub const CHASSIS: Params = &[FIELDS_8, DETAIL_43, LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET /v1/chassis/detail`.
pub const CHASSIS_DETAIL: Params = &[LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET /v1/allocations`.
pub const ALLOCATIONS: Params = &[
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
pub const DEPLOY_TEMPLATES: Params = &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET /v1/runbooks`.
pub const RUNBOOKS: Params =
    &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR, text("project", 1)];
/// `GET /v1/inspection_rules`.
pub const INSPECTION_RULES: Params =
    &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR, text("phase", 1)];
/// `GET /v1/volume/connectors`.
pub const VOLUME_CONNECTORS: Params =
    &[FIELDS, DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR, text("node", 1)];
/// `GET /v1/volume/targets`.
pub const VOLUME_TARGETS: Params = VOLUME_CONNECTORS;
/// `GET /v1/conductors`.
pub const CONDUCTORS: Params =
    &[FIELDS, DETAIL, LIMIT, Param::new("marker", 1, ParamKind::NameMarker), SORT_KEY, SORT_DIR];
/// `GET /v1/drivers`.
pub const DRIVERS: Params = &[
    Param::new("fields", 77, ParamKind::Fields),
    Param::new("detail", 30, ParamKind::Detail),
    text("type", 30),
];
/// `GET /v1/nodes/{node}/bios`.
pub const BIOS: Params = &[
    Param::new("fields", 74, ParamKind::Fields).refused_with_400(),
    Param::new("detail", 74, ParamKind::Detail).refused_with_400(),
];
/// `GET /v1/nodes/{node}/firmware`.
pub const FIRMWARE: Params = &[FIELDS];
/// `GET /v1/nodes/{node}/history`.
pub const HISTORY: Params = &[DETAIL, LIMIT, MARKER, SORT_KEY, SORT_DIR];
/// `GET` of one node, port or chassis.
pub const ONE: Params = &[FIELDS_8];
/// `GET` of one resource of a kind that came after `fields`.
pub const ONE_WITH_FIELDS: Params = &[FIELDS];
