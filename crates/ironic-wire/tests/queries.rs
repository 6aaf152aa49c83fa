// SPDX-License-Identifier: Apache-2.0
//! Query strings, with the status of Ironic's responses to the same requests.

use ironic_wire::{
    ApiVersion, ConductorView, ListQuery, QueryParams, RenderContext, ResourceIdentity,
    WireResource, params, write_list,
};
use node_model::{Chassis, Node, NodeId, Port, Portgroup, Timestamp};

fn pairs(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

fn status<R: WireResource>(params: QueryParams, query: &str, version: u16) -> (u16, String) {
    match ListQuery::<R>::parse(params, &pairs(query), ApiVersion(version), 1000, false) {
        Ok(_) => (200, String::new()),
        Err(error) => (error.status(), error.message().to_owned()),
    }
}

#[test]
fn checks_node_queries() {
    for (query, version, expected) in [
        ("", 1, 200),
        ("limit=0", 115, 400),
        ("limit=-1", 115, 400),
        ("limit=x", 115, 400),
        ("limit=5000", 115, 200),
        ("sort_key=id", 115, 200),
        ("sort_key=bogus", 115, 400),
        ("sort_key=extra", 115, 400),
        ("sort_key=links", 115, 400),
        ("sort_key=chassis_uuid", 115, 400),
        ("sort_key=conductor", 115, 400),
        ("sort_key=health", 115, 200),
        ("sort_key=health", 50, 406),
        ("sort_dir=x", 115, 400),
        ("sort_dir=desc", 115, 200),
        ("marker=x", 115, 400),
        ("marker=11111111-1111-1111-1111-111111111111", 115, 200),
        ("fields=bogus", 115, 400),
        ("fields=health", 50, 406),
        ("fields=health", 115, 200),
        ("fields=uuid", 7, 406),
        ("fields=", 115, 200),
        ("fields=uuid&fields=name", 115, 200),
        ("detail=true&fields=uuid", 115, 400),
        ("detail=false&fields=uuid", 115, 200),
        ("detail=x", 115, 400),
        ("detail=true", 42, 400),
        ("detail=true", 43, 200),
        ("maintenance=x", 115, 400),
        ("maintenance=yes", 115, 200),
        ("associated=x", 115, 400),
        ("provision_state=x", 115, 400),
        ("provision_state=enroll", 8, 406),
        ("provision_state=wait call-back", 9, 200),
        ("fault=x", 115, 400),
        ("fault=power failure", 42, 200),
        ("instance_uuid=x", 115, 400),
        ("chassis_uuid=x", 115, 400),
        ("driver=x", 15, 406),
        ("resource_class=x", 20, 406),
        ("conductor_group=x", 45, 406),
        ("conductor=x", 48, 406),
        ("owner=x", 49, 406),
        ("lessee=x", 64, 406),
        ("shard=a,b", 81, 406),
        ("shard=a,b", 82, 200),
        ("sharded=x", 115, 400),
        ("include_children=true", 82, 406),
        ("parent_node=x", 83, 200),
        ("instance_name=x", 103, 406),
        ("description_contains=x", 1, 200),
        ("retired=true", 1, 200),
        ("project=x", 1, 200),
        ("bogus=1", 115, 400),
    ] {
        let (got, message) = status::<Node>(params::NODES, query, version);
        assert_eq!(got, expected, "{query} at 1.{version}: {message}");
    }
    let (_, message) = status::<Node>(params::NODES, "bogus=1&x=2", 115);
    assert_eq!(message, "Unexpected arguments: bogus, x");
    assert_eq!(status::<Node>(params::NODES_DETAIL, "detail=true", 115).0, 400);
    assert_eq!(status::<Node>(params::NODES_DETAIL, "fields=uuid", 115).0, 400);
}

#[test]
fn checks_other_queries() {
    assert_eq!(status::<Port>(params::PORTS, "portgroup=x", 23).0, 406);
    assert_eq!(status::<Port>(params::PORTS, "shard=x", 81).0, 406);
    assert_eq!(status::<Port>(params::PORTS, "address=x", 115).0, 400);
    assert_eq!(status::<Port>(params::PORTS, "address=52-54-00-AA-bb-01", 115).0, 200);
    assert_eq!(status::<Portgroup>(params::PORTGROUPS, "shard=x", 105).0, 406);
    assert_eq!(status::<Portgroup>(params::PORTGROUPS, "detail=true", 42).0, 400);
    assert_eq!(status::<Chassis>(params::CHASSIS, "fields=uuid", 7).0, 406);
    assert_eq!(status::<ConductorView>(params::CONDUCTORS, "marker=host-1", 49).0, 200);
}

#[test]
fn filters_are_typed() {
    let query = ListQuery::<Node>::parse(
        params::NODES,
        &pairs("maintenance=Yes&shard=a,b&provision_state=active&limit=7&sort_key=parent_node"),
        ApiVersion::MAX,
        1000,
        false,
    )
    .unwrap();
    assert_eq!(query.flag("maintenance"), Some(true));
    assert_eq!(query.texts("shard"), Some(vec!["a", "b"]));
    assert_eq!(query.provision_state("provision_state"), Some(node_model::ProvisionState::Active));
    assert_eq!((query.limit, query.sort_column), (7, "parent_node"));
    assert_eq!(query.text("owner"), None);
}

#[test]
fn default_list_loads_only_its_columns() {
    let query = ListQuery::<Node>::parse(params::NODES, &[], ApiVersion::MAX, 1000, false).unwrap();
    assert_eq!(
        query.selection.columns(),
        ["uuid", "name", "instance_uuid", "maintenance", "power_state", "provision_state"]
    );
}

#[test]
fn list_has_items_and_next_link() {
    let query = ListQuery::<Node>::parse(
        params::NODES,
        &pairs("limit=1&fields=uuid,name&owner=a b&sort_dir=desc"),
        ApiVersion::MAX,
        1000,
        false,
    )
    .unwrap();
    let context = RenderContext::new(ApiVersion::MAX, "http://h");
    let node = Node::new(NodeId(uuid::Uuid::from_u128(1)), "x", Timestamp(0));
    let next = query.next_link(&context, "nodes", node.identity());
    let body = write_list::<Node, ()>(
        &query.selection,
        &context,
        |each| {
            each(&node);
            Ok(())
        },
        || Some(next),
    )
    .unwrap();
    assert_eq!(
        String::from_utf8(body).unwrap(),
        r#"{"nodes":[{"uuid":"00000000-0000-0000-0000-000000000001","name":null,"links":[{"href":"http://h/v1/nodes/00000000-0000-0000-0000-000000000001","rel":"self"},{"href":"http://h/nodes/00000000-0000-0000-0000-000000000001","rel":"bookmark"}]}],"next":"http://h/v1/nodes?sort_key=id&sort_dir=desc&owner=a%20b&fields=uuid,name&limit=1&marker=00000000-0000-0000-0000-000000000001"}"#
    );
    let empty = write_list::<Node, ()>(&query.selection, &context, |_| Ok(()), || None).unwrap();
    assert_eq!(empty, br#"{"nodes":[]}"#);
    let name = query.next_link(&context, "conductors", ResourceIdentity::Name("h\"/1"));
    assert!(name.ends_with("marker=h%22%2F1"), "{name}");
}
