// SPDX-License-Identifier: Apache-2.0
//! Filters, sorting and paging give the same results on every engine.

use std::collections::BTreeSet;

use node_model::{
    AllocationState, ChassisId, Fault, Mac, Node, NodeId, Port, PowerState, ProvisionState,
    Timestamp,
};
use store::{
    AllocationFilter, ChildNodes, Columns, DeployTemplateFilter, DueFilter, NodeColumn, NodeFilter,
    PortColumn, PortFilter, ResourcePage, ResourceQuery, RunbookFilter, StoreError, VolumeFilter,
};
use uuid::Uuid;

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    filters_nodes filters_other_resources sorts_and_limits pages_cover_the_list_for_every_sort_column unknown_marker_is_an_error
    loads_only_selected_columns counts_and_iterates_nodes
}

fn names(db: &TestDatabase, query: ResourceQuery<Node>) -> Vec<String> {
    db.read(move |r| {
        let mut names = Vec::new();
        r.list(&query, |node| names.push(node.name.clone().unwrap_or_default()))?;
        Ok(names)
    })
    .unwrap()
}

/// Eight nodes `a` to `h` that each differ in one property.
fn fleet(db: &TestDatabase) -> (Vec<Node>, ChassisId) {
    let rack = chassis();
    let rack_id = rack.id;
    let mut nodes: Vec<_> = ["a", "b", "c", "d", "e", "f", "g", "h"].map(node).into();
    nodes[0].maintenance = true;
    nodes[0].fault = Some(Fault::ALL[0]);
    nodes[1].instance_uuid = Some(Uuid::new_v4());
    nodes[1].instance_name = Some("vm".to_owned());
    nodes[1].chassis_id = Some(rack_id);
    nodes[2].provision_state = ProvisionState::Active;
    nodes[2].driver = "redfish".to_owned();
    nodes[2].resource_class = Some("large".to_owned());
    nodes[3].provision_state = ProvisionState::Available;
    nodes[3].conductor_group = "east".to_owned();
    nodes[3].owner = Some("p1".to_owned());
    nodes[4].lessee = Some("p1".to_owned());
    nodes[4].description = Some("The LEFT one, 100% _fine_".to_owned());
    nodes[5].retired = true;
    nodes[5].shard = Some("s1".to_owned());
    nodes[6].parent_node = Some(nodes[0].id);
    nodes[6].shard = Some("s2".to_owned());
    nodes[7].traits = vec!["CUSTOM_A".to_owned(), "CUSTOM_AB".to_owned()];
    nodes[7].power_state = Some(PowerState::ALL[0]);
    let written = nodes.clone();
    db.write(move |w| {
        w.insert(&rack)?;
        written.iter().try_for_each(|node| w.insert(node))
    })
    .unwrap();
    (nodes, rack_id)
}

fn filters_nodes(db: &TestDatabase) {
    let (nodes, rack) = fleet(db);
    let none = NodeFilter::default;
    let text = |text: &str| Some(text.to_owned());
    let list = |list: &[&str]| Some(list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
    for (expected, filter) in [
        ("abcdefgh", none()),
        ("bg", NodeFilter { ids: Some(vec![nodes[6].id, nodes[1].id]), ..none() }),
        ("", NodeFilter { ids: Some(vec![]), ..none() }),
        ("b", NodeFilter { associated: Some(true), ..none() }),
        ("acdefgh", NodeFilter { associated: Some(false), ..none() }),
        ("a", NodeFilter { maintenance: Some(true), ..none() }),
        ("bcdefgh", NodeFilter { maintenance: Some(false), ..none() }),
        ("b", NodeFilter { chassis: Some(rack), ..none() }),
        ("b", NodeFilter { instance_uuid: nodes[1].instance_uuid, ..none() }),
        ("", NodeFilter { instance_uuid: Some(Uuid::nil()), ..none() }),
        (
            "cd",
            NodeFilter {
                provision_states: Some(vec![ProvisionState::Active, ProvisionState::Available]),
                ..none()
            },
        ),
        ("c", NodeFilter { driver: text("redfish"), ..none() }),
        ("c", NodeFilter { resource_class: text("large"), ..none() }),
        ("", NodeFilter { resource_class: text("LARGE"), ..none() }),
        ("a", NodeFilter { fault: Some(Fault::ALL[0]), ..none() }),
        ("d", NodeFilter { conductor_groups: list(&["east", "west"]), ..none() }),
        ("abcefgh", NodeFilter { conductor_groups: list(&[""]), ..none() }),
        ("d", NodeFilter { owner: text("p1"), ..none() }),
        ("e", NodeFilter { lessee: text("p1"), ..none() }),
        ("de", NodeFilter { project: text("p1"), ..none() }),
        ("de", NodeFilter { project: text("p1"), project_owns_most: true, ..none() }),
        ("", NodeFilter { project: text("p9"), project_owns_most: true, ..none() }),
        ("e", NodeFilter { project: text("p1"), description_contains: text("left"), ..none() }),
        ("e", NodeFilter { description_contains: text("left ONE"), ..none() }),
        ("e", NodeFilter { description_contains: text("0% _f"), ..none() }),
        ("", NodeFilter { description_contains: text("l%t"), ..none() }),
        ("f", NodeFilter { retired: Some(true), ..none() }),
        ("fg", NodeFilter { shards: list(&["s1", "s2"]), ..none() }),
        ("fg", NodeFilter { sharded: Some(true), ..none() }),
        ("abcdeh", NodeFilter { sharded: Some(false), ..none() }),
        ("abcdefh", NodeFilter { children: ChildNodes::Excluded, ..none() }),
        ("g", NodeFilter { parent_node: Some(nodes[0].id), ..none() }),
        ("b", NodeFilter { instance_name: text("vm"), ..none() }),
        ("", NodeFilter { reserved: Some(true), ..none() }),
        ("h", NodeFilter { power_known: Some(true), ..none() }),
        ("h", NodeFilter { traits: list(&["CUSTOM_A"]), ..none() }),
        ("h", NodeFilter { traits: list(&["CUSTOM_AB", "CUSTOM_A"]), ..none() }),
        ("", NodeFilter { traits: list(&["CUSTOM_A", "CUSTOM_B"]), ..none() }),
        ("", NodeFilter { traits: list(&["CUSTOM"]), ..none() }),
    ] {
        let case = format!("{filter:?}");
        let counted = filter.clone();
        assert_eq!(names(db, ResourceQuery::filtered(filter)).concat(), expected, "{case}");
        let count = db.read(move |r| r.count::<Node>(&counted)).unwrap();
        assert_eq!(count, expected.len() as u64, "{case}");
    }
}

fn filters_other_resources(db: &TestDatabase) {
    let (nodes, _) = fleet(db);
    let (d, e, f) = (nodes[3].id, nodes[4].id, nodes[5].id);
    let bond = portgroup(d, 99);
    let bond_id = bond.id;
    db.write(move |w| {
        w.insert(&bond)?;
        let mut bonded = port(d, 1);
        bonded.portgroup_id = Some(bond_id);
        w.insert(&bonded)?;
        w.insert(&port(e, 2))?;
        w.insert(&port(f, 3))?;
        w.insert(&volume_target(d, 0))?;
        w.insert(&allocation(Some(d), "a"))?;
        w.insert(&template("t1"))?;
        w.insert(&template("t2"))?;
        let mut private = runbook("private");
        (private.public, private.owner) = (false, Some("p9".to_owned()));
        w.insert(&private)?;
        w.insert(&runbook("public"))
    })
    .unwrap();
    let none = PortFilter::default;
    let one = |text: &str| Some(vec![text.to_owned()]);
    for (expected, filter) in [
        (vec![1, 2, 3], none()),
        (vec![1], PortFilter { node: Some(d), ..none() }),
        (vec![1], PortFilter { nodes: Some(vec![d, NodeId::random()]), ..none() }),
        (vec![], PortFilter { nodes: Some(vec![]), ..none() }),
        (vec![2], PortFilter { address: Some(mac(2)), ..none() }),
        (vec![1], PortFilter { portgroup: Some(bond_id), ..none() }),
        (vec![3], PortFilter { shards: one("s1"), ..none() }),
        (vec![1], PortFilter { conductor_groups: one("east"), ..none() }),
        (vec![1, 2], PortFilter { project: Some("p1".to_owned()), ..none() }),
        (vec![2], PortFilter { project: Some("p1".to_owned()), node: Some(e), ..none() }),
        (vec![1, 2, 3], PortFilter { description_contains: Some("EF".to_owned()), ..none() }),
    ] {
        let case = format!("{filter:?}");
        let ports = db.read(move |r| r.collect(&ResourceQuery::<Port>::filtered(filter))).unwrap();
        let found: Vec<Mac> = ports.into_iter().map(|port| port.address).collect();
        assert_eq!(found, expected.into_iter().map(mac).collect::<Vec<_>>(), "{case}");
    }
    db.read(move |r| {
        let volume = |node, project: Option<&str>| VolumeFilter {
            node,
            project: project.map(str::to_owned),
            ..VolumeFilter::default()
        };
        assert_eq!(r.count::<node_model::VolumeTarget>(&volume(Some(d), None))?, 1);
        assert_eq!(r.count::<node_model::VolumeTarget>(&volume(Some(e), None))?, 0);
        assert_eq!(r.count::<node_model::VolumeTarget>(&volume(None, Some("p1")))?, 1);
        assert_eq!(r.count::<node_model::VolumeTarget>(&volume(None, Some("p2")))?, 0);
        let active = Some(vec![AllocationState::Active]);
        let filter = AllocationFilter { node: Some(d), states: active, ..Default::default() };
        assert_eq!(r.count::<node_model::Allocation>(&filter)?, 1);
        let named = DeployTemplateFilter { names: Some(vec!["t2".to_owned(), "t9".to_owned()]) };
        assert_eq!(r.count::<node_model::DeployTemplate>(&named)?, 1);
        let seen = |project: &str| RunbookFilter {
            visible_to: Some(project.to_owned()),
            ..Default::default()
        };
        assert_eq!(r.count::<node_model::Runbook>(&seen("p9"))?, 2);
        assert_eq!(r.count::<node_model::Runbook>(&seen("p1"))?, 1);
        let mut found = r.nodes_by_macs(&[mac(1), mac(3), mac(77)])?;
        found.sort();
        let mut expected = vec![d, f];
        expected.sort();
        assert_eq!(found, expected);
        assert!(r.nodes_by_macs(&[])?.is_empty());
        assert_eq!(
            r.find::<Port>(PortColumn::Address, mac(2).as_str())?.map(|port| port.node_id),
            Some(e)
        );
        Ok(())
    })
    .unwrap();
}

fn sorts_and_limits(db: &TestDatabase) {
    // Sorted by owner: NULL first, upper case before lower case, ties by row id.
    let owners = [("a", Some("x")), ("b", None), ("c", Some("X")), ("d", Some("x")), ("e", None)];
    db.write(move |w| {
        owners.iter().try_for_each(|(name, owner)| {
            let mut node = node(name);
            node.owner = owner.map(str::to_owned);
            w.insert(&node)
        })
    })
    .unwrap();
    for (expected, sort, descending) in [
        ("abcde", None, false),
        ("edcba", None, true),
        ("becad", Some(NodeColumn::Owner), false),
        ("daceb", Some(NodeColumn::Owner), true),
        ("abcde", Some(NodeColumn::Maintenance), false),
    ] {
        let page = ResourcePage { sort, descending, ..ResourcePage::default() };
        assert_eq!(
            names(db, ResourceQuery { page, ..ResourceQuery::default() }).concat(),
            expected
        );
        let page = ResourcePage { sort, descending, limit: Some(2), ..ResourcePage::default() };
        assert_eq!(
            names(db, ResourceQuery { page, ..ResourceQuery::default() }).concat(),
            expected[..2]
        );
    }
}

/// Concatenated pages equal the whole list, for every sort column and direction.
fn pages_cover_the_list_for_every_sort_column(db: &TestDatabase) {
    fleet(db);
    for column in NodeColumn::ALL {
        if *column == NodeColumn::Sealed {
            continue;
        }
        for descending in [false, true] {
            let mut page =
                ResourcePage { sort: Some(*column), descending, ..ResourcePage::default() };
            let whole = names(db, ResourceQuery { page: page.clone(), ..ResourceQuery::default() });
            page.limit = Some(3);
            let mut parts: Vec<String> = Vec::new();
            loop {
                let query =
                    ResourceQuery::<Node> { page: page.clone(), ..ResourceQuery::default() };
                let part = db.read(move |r| r.collect(&query)).unwrap();
                let Some(last) = part.last() else { break };
                page.marker = Some(last.id.0);
                parts.extend(part.into_iter().filter_map(|node| node.name));
            }
            assert_eq!(parts, whole, "{column:?} {descending}");
            assert_eq!(whole.iter().collect::<BTreeSet<_>>().len(), 8);
        }
    }
}

fn unknown_marker_is_an_error(db: &TestDatabase) {
    let page = ResourcePage { marker: Some(Uuid::new_v4()), ..ResourcePage::default() };
    let query = ResourceQuery::<Node> { page, ..ResourceQuery::default() };
    assert!(matches!(db.read(move |r| r.collect(&query)), Err(StoreError::MarkerNotFound)));
}

fn loads_only_selected_columns(db: &TestDatabase) {
    let rack = chassis();
    let full = full_node(rack.id);
    let (id, written) = (full.id, full.clone());
    db.write(move |w| {
        w.insert(&rack)?;
        w.insert(&written)
    })
    .unwrap();
    let select = Columns::<Node>::only(&[NodeColumn::Uuid, NodeColumn::Traits])
        .with(NodeColumn::BootInterface);
    assert!(select.contains(NodeColumn::Traits) && !select.contains(NodeColumn::Name));
    let found =
        db.read(move |r| r.collect(&ResourceQuery { select, ..ResourceQuery::default() })).unwrap();
    let mut expected = Node::new(id, "", Timestamp(0));
    expected.traits = full.traits;
    let boot = node_model::InterfaceKind::Boot;
    expected.interfaces.set(boot, full.interfaces.get(boot));
    assert_eq!(found, [expected]);
}

fn counts_and_iterates_nodes(db: &TestDatabase) {
    let (nodes, _) = fleet(db);
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    db.write(move |w| {
        for (index, due) in [(0, 30), (1, 10), (2, 20), (3, 99)] {
            let mut node = w.get(ids[index])?.ok_or(StoreError::Missing)?;
            node.due_at = Some(Timestamp(due));
            w.save(&mut node)?;
        }
        Ok(())
    })
    .unwrap();
    db.read(move |r| {
        let due: Vec<_> = [1, 2, 0].map(|index: usize| nodes[index].id).into();
        let filter = |group: &str, drivers: &[&str]| DueFilter {
            conductor_group: group.to_owned(),
            drivers: drivers.iter().map(|&driver| driver.to_owned()).collect(),
        };
        let all = filter("", &["fake-hardware", "redfish"]);
        assert_eq!(r.node_ids_due(Timestamp(30), &all, 9)?, due);
        assert_eq!(r.node_ids_due(Timestamp(30), &all, 2)?, due[..2]);
        let fake = filter("", &["fake-hardware"]);
        assert_eq!(r.node_ids_due(Timestamp(30), &fake, 9)?, [due[0], due[2]]);
        assert_eq!(r.node_ids_due(Timestamp(30), &filter("", &[]), 9)?, []);
        let east = filter("EAST", &["fake-hardware"]);
        assert_eq!(r.node_ids_due(Timestamp(99), &east, 9)?, [nodes[3].id]);
        assert_eq!(r.next_due_after(Timestamp(30), &east)?, Some(Timestamp(99)));
        assert_eq!(r.next_due_after(Timestamp(30), &all)?, None);
        assert_eq!(r.next_due_after(Timestamp(10), &all)?, Some(Timestamp(20)));
        assert_eq!(r.next_due_after(Timestamp(99), &east)?, None);
        let shard = |name: &str| Some(name.to_owned());
        assert_eq!(r.shards()?, [(None, 6), (shard("s1"), 1), (shard("s2"), 1)]);
        let select = Columns::only(&[NodeColumn::Name]);
        let (mut row, mut walked) = (0, String::new());
        while let Some(last) = r.nodes_after(row, 3, select, |node| {
            walked.push_str(node.name.as_deref().unwrap_or("?"))
        })? {
            row = last;
        }
        assert_eq!(walked, "abcdefgh");
        Ok(())
    })
    .unwrap();
}
