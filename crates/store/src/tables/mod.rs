// SPDX-License-Identifier: Apache-2.0
//! Column tables and list filters per resource.

pub(crate) mod allocation;
pub(crate) mod audit_log;
pub(crate) mod chassis;
pub(crate) mod deployment;
pub(crate) mod flavour;
pub(crate) mod hardware;
pub(crate) mod identity;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod templates_and_rules;
pub(crate) mod volume;

use crate::query::SqlBuilder;
use crate::value::{ColumnType, SqlParam};

/// The value as a parameter, if set.
fn optional_param<T: ColumnType>(value: &Option<T>) -> Option<SqlParam<'_>> {
    value.as_ref().map(ColumnType::bind)
}

/// Restricts rows to those whose node is in these shards or conductor groups, or is owned or leased
/// by this project.
fn filter_by_node<'a>(
    to: &mut SqlBuilder<'a>,
    shards: &'a Option<Vec<String>>,
    conductor_groups: &'a Option<Vec<String>>,
    project: &'a Option<String>,
) {
    const OF_NODE: &str = "node_uuid IN (SELECT uuid FROM nodes WHERE ";
    for (column, values) in [("shard", shards), ("conductor_group", conductor_groups)] {
        if let Some(values) = values {
            to.and(OF_NODE).sql.push_str(column);
            to.push_in_list(values.iter().map(ColumnType::bind));
            to.sql.push(')');
        }
    }
    if let Some(project) = project {
        to.and(OF_NODE).sql.push_str("owner = ? OR lessee = ?)");
        to.params.extend([project.bind(), project.bind()]);
    }
}
