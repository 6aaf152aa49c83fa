// SPDX-License-Identifier: Apache-2.0
//! Tests of flavours: matching, the values they set, and the values they keep.

use expect_test::{Expect, expect};
use node_model::{Flavour, FlavourId, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BENCH, InspectionCase, NOW, array, object};
use crate::{FlavourSet, HardwareReport, ReportContext, RuleSet, validate_flavour};

fn flavour(name: &str, priority: i64, conditions: Value) -> Flavour {
    Flavour {
        id: FlavourId(Uuid::from_u128(u128::from(name.bytes().next().unwrap()))),
        name: name.to_owned(),
        created_at: Timestamp(0),
        updated_at: None,
        description: None,
        priority,
        conditions: array(conditions),
        resource_class: Some(format!("class.{name}")),
        traits: vec![format!("CUSTOM_{}", name.to_uppercase())],
        properties: object(json!({"size": name})),
        capabilities: object(json!({"kind": name})),
        overwrite: false,
    }
}

fn always() -> Value {
    json!([])
}

fn never() -> Value {
    json!([{"op": "eq", "args": {"values": ["{inventory[cpu][architecture]}", "vax"]}}])
}

fn case(flavours: Vec<Flavour>) -> InspectionCase {
    InspectionCase::new(BENCH, "architecture").with(|case| case.flavours = flavours)
}

fn check(case: &InspectionCase, expect: &Expect) {
    expect.assert_eq(&case.outcome_text());
}

#[test]
fn first_match_sets_resource_class_and_all_matches_add_traits() {
    check(
        &case(vec![
            flavour("b", 1, always()),
            flavour("a", 9, always()),
            flavour("c", 50, never()),
        ]),
        &expect![[r#"
            properties/capabilities = "kind:a"
            properties/cpu_arch = "x86_64"
            properties/size = "a"
            resource_class = "class.a"
            traits = ["CUSTOM_A", "CUSTOM_B"]
            Info: set properties/cpu_arch to "x86_64"
            Info: a matches
            Info: set resource_class to class.a
            Info: added trait CUSTOM_A
            Info: set properties/size to "a"
            Info: set capabilities kind:a
            Info: b matches
            Info: added trait CUSTOM_B
        "#]],
    );
}

#[test]
fn keeps_existing_values_unless_overwrite_is_set() {
    let with_existing_values = |overwrite: bool| {
        let mut flavour = flavour("a", 0, always());
        flavour.overwrite = overwrite;
        case(vec![flavour]).properties(json!({"size": "mine", "capabilities": "kind:mine"})).with(
            |case| {
                case.node.resource_class = Some("mine".to_owned());
                case.node.traits = vec!["CUSTOM_MINE".to_owned()];
            },
        )
    };
    check(
        &with_existing_values(false),
        &expect![[r#"
            properties/cpu_arch = "x86_64"
            traits = ["CUSTOM_A", "CUSTOM_MINE"]
            Info: set properties/cpu_arch to "x86_64"
            Info: a matches
            Info: kept resource_class = mine; the flavour has class.a
            Info: added trait CUSTOM_A
            Warning: kept properties/size = "mine"; the flavour has "a"
            Warning: kept capability kind:mine; the flavour has a
        "#]],
    );
    check(
        &with_existing_values(true),
        &expect![[r#"
            properties/capabilities = "kind:a"
            properties/cpu_arch = "x86_64"
            properties/size = "a"
            resource_class = "class.a"
            traits = ["CUSTOM_A", "CUSTOM_MINE"]
            Info: set properties/cpu_arch to "x86_64"
            Info: a matches
            Info: set resource_class to class.a
            Info: added trait CUSTOM_A
            Info: set properties/size to "a"
            Info: set capabilities kind:a
        "#]],
    );
}

#[test]
fn replaces_values_set_by_a_flavour_that_matches_no_more() {
    let mut case = case(vec![flavour("a", 0, always())]);
    let result = case.process().unwrap();
    result.node.apply_to(&mut case.node);
    case.node.traits.insert(0, "CUSTOM_0_MINE".to_owned());
    case.previous = Some(node_model::Inventory {
        node_id: case.node.id,
        created_at: NOW,
        inventory: result.inventory,
        plugin_data: result.plugin_data,
        derived: result.derived,
    });
    case.flavours = vec![flavour("b", 0, always())];
    check(
        &case,
        &expect![[r#"
            properties/capabilities = "kind:b"
            properties/size = "b"
            resource_class = "class.b"
            traits = ["CUSTOM_0_MINE", "CUSTOM_B"]
            Debug: properties/cpu_arch is still "x86_64"
            Info: b matches
            Info: set resource_class to class.b
            Info: added trait CUSTOM_B
            Info: set properties/size to "b"
            Info: set capabilities kind:b
            Info: removed trait CUSTOM_A: no flavour sets it any more
        "#]],
    );
}

#[test]
fn flavour_with_failing_condition_does_not_match() {
    let incomparable = json!([{"op": "lt", "args": {"values": [[1], 2]}}]);
    check(
        &case(vec![flavour("a", 0, incomparable)]),
        &expect![[r#"
            properties/cpu_arch = "x86_64"
            Info: set properties/cpu_arch to "x86_64"
            Warning: a: conditions[0] cannot be evaluated: a list and a number cannot be put in order
        "#]],
    );
}

#[test]
fn lists_matching_flavours_in_order() {
    let case = case(Vec::new());
    let flavours =
        [flavour("b", 1, always()), flavour("a", 9, always()), flavour("c", 50, never())];
    let (set, invalid) = FlavourSet::compile(&flavours);
    assert!(invalid.is_empty());
    let report = HardwareReport::from_value(case.report.clone()).unwrap();
    let names = set.matching(&ReportContext {
        node: &case.node,
        ports: &[],
        report: &report,
        previous: None,
        settings: &case.settings,
        rules: &RuleSet::default(),
        flavours: &FlavourSet::default(),
        now: NOW,
    });
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn rejects_invalid_flavours() {
    type BreakFlavour = fn(&mut Flavour);
    let table: &[(BreakFlavour, &str)] = &[
        (
            |f| f.name = "a/b".to_owned(),
            "a name has 1 to 255 letters, digits and the signs . _ ~ -",
        ),
        (|f| f.resource_class = Some(String::new()), "resource_class must have 1 to 80 characters"),
        (
            |f| f.traits = vec!["small".to_owned()],
            "\"small\" is not a trait: use capital letters, digits and underscores",
        ),
        (
            |f| f.capabilities = object(json!({"a": "b,c"})),
            "capability \"a\" must have a text as value, and no commas; its name no colons",
        ),
        (|f| f.conditions = array(json!([{"op": "eq"}])), "conditions[0] (eq): it has no args"),
        (
            |f| {
                f.resource_class = None;
                f.traits.clear();
                f.properties = object(json!({}));
                f.capabilities = object(json!({}));
            },
            "it sets nothing: add a resource_class, traits, properties or capabilities",
        ),
    ];
    for (change, message) in table {
        let mut invalid = flavour("a", 0, always());
        assert_eq!(validate_flavour(&invalid), Ok(()));
        change(&mut invalid);
        assert_eq!(validate_flavour(&invalid).unwrap_err().to_string(), *message);
    }
}
