// SPDX-License-Identifier: Apache-2.0
//! Which field of the model is which column, and what lists can be narrowed by.

pub(crate) mod allocation;
pub(crate) mod chassis;
pub(crate) mod flavour;
pub(crate) mod hardware;
pub(crate) mod network;
pub(crate) mod node;
pub(crate) mod recipes;
pub(crate) mod volume;

use crate::query::Where;
use crate::value::{Field, Param};

/// `Some` value as a parameter; none for none.
fn given<T: Field>(value: &Option<T>) -> Option<Param<'_>> {
    value.as_ref().map(Field::bind)
}

/// Narrows rows that belong to a node by what that node is.
fn of_nodes<'a>(
    to: &mut Where<'a>,
    shards: &'a Option<Vec<String>>,
    conductor_groups: &'a Option<Vec<String>>,
    project: &'a Option<String>,
) {
    const OF_NODE: &str = "node_uuid IN (SELECT uuid FROM nodes WHERE ";
    for (column, values) in [("shard", shards), ("conductor_group", conductor_groups)] {
        if let Some(values) = values {
            to.and(OF_NODE).sql.push_str(column);
            to.one_of(values.iter().map(Field::bind));
            to.sql.push(')');
        }
    }
    if let Some(project) = project {
        to.and(OF_NODE).sql.push_str("owner = ? OR lessee = ?)");
        to.params.extend([project.bind(), project.bind()]);
    }
}
