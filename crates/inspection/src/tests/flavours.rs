// SPDX-License-Identifier: Apache-2.0
//! Flavours: which fit, what they give, and what they leave alone.

use expect_test::{Expect, expect};
use node_model::{Flavour, FlavourId, Timestamp};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{BENCH, Case, NOW, array, object};
use crate::{Context, FlavourSet, Report, RuleSet, validate_flavour};

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

fn any() -> Value {
    json!([])
}

fn never() -> Value {
    json!([{"op": "eq", "args": {"values": ["{inventory[cpu][architecture]}", "vax"]}}])
}

fn case(flavours: Vec<Flavour>) -> Case {
    Case::new(BENCH, "architecture").with(|case| case.flavours = flavours)
}

fn check(case: &Case, expect: &Expect) {
    expect.assert_eq(&case.story());
}

#[test]
fn the_first_gives_the_class_and_all_give_traits() {
    check(
        &case(vec![flavour("b", 1, any()), flavour("a", 9, any()), flavour("c", 50, never())]),
        &expect![[r#"
            properties/capabilities = "kind:a"
            properties/cpu_arch = "x86_64"
            properties/size = "a"
            resource_class = "class.a"
            traits = ["CUSTOM_A", "CUSTOM_B"]
            Info: set properties/cpu_arch to "x86_64"
            Info: fits a
            Info: set resource_class to class.a
            Info: added trait CUSTOM_A
            Info: set properties/size to "a"
            Info: set capabilities kind:a
            Info: fits b
            Info: added trait CUSTOM_B
        "#]],
    );
}

#[test]
fn what_is_there_stays_unless_the_flavour_says_otherwise() {
    let known = |overwrite: bool| {
        let mut flavour = flavour("a", 0, any());
        flavour.overwrite = overwrite;
        case(vec![flavour]).properties(json!({"size": "mine", "capabilities": "kind:mine"})).with(
            |case| {
                case.node.resource_class = Some("mine".to_owned());
                case.node.traits = vec!["CUSTOM_MINE".to_owned()];
            },
        )
    };
    check(
        &known(false),
        &expect![[r#"
            properties/cpu_arch = "x86_64"
            traits = ["CUSTOM_A", "CUSTOM_MINE"]
            Info: set properties/cpu_arch to "x86_64"
            Info: fits a
            Info: resource_class stays mine; the flavour says class.a
            Info: added trait CUSTOM_A
            Warning: properties/size stays "mine"; the flavour says "a"
            Warning: capability kind stays mine; the flavour says a
        "#]],
    );
    check(
        &known(true),
        &expect![[r#"
            properties/capabilities = "kind:a"
            properties/cpu_arch = "x86_64"
            properties/size = "a"
            resource_class = "class.a"
            traits = ["CUSTOM_A", "CUSTOM_MINE"]
            Info: set properties/cpu_arch to "x86_64"
            Info: fits a
            Info: set resource_class to class.a
            Info: added trait CUSTOM_A
            Info: set properties/size to "a"
            Info: set capabilities kind:a
        "#]],
    );
}

/// A machine that was rebuilt is of another kind, and what the old kind gave goes.
#[test]
fn what_a_flavour_gave_follows_the_machine() {
    let mut before = case(vec![flavour("a", 0, any())]);
    let findings = before.process().unwrap();
    findings.node.apply_to(&mut before.node);
    before.node.traits.insert(0, "CUSTOM_0_MINE".to_owned());
    before.previous = Some(node_model::Inventory {
        node_id: before.node.id,
        created_at: NOW,
        inventory: findings.inventory,
        plugin_data: findings.plugin_data,
        found: findings.found,
    });
    before.flavours = vec![flavour("b", 0, any())];
    check(
        &before,
        &expect![[r#"
            properties/capabilities = "kind:b"
            properties/size = "b"
            resource_class = "class.b"
            traits = ["CUSTOM_0_MINE", "CUSTOM_B"]
            Debug: properties/cpu_arch is still "x86_64"
            Info: fits b
            Info: set resource_class to class.b
            Info: added trait CUSTOM_B
            Info: set properties/size to "b"
            Info: set capabilities kind:b
            Info: took back trait CUSTOM_A: no flavour gives it any more
        "#]],
    );
}

#[test]
fn one_that_cannot_be_judged_fits_nobody() {
    let odd = json!([{"op": "lt", "args": {"values": [[1], 2]}}]);
    check(
        &case(vec![flavour("a", 0, odd)]),
        &expect![[r#"
            properties/cpu_arch = "x86_64"
            Info: set properties/cpu_arch to "x86_64"
            Warning: a: conditions[0] cannot be judged: a list and a number cannot be put in order
        "#]],
    );
}

#[test]
fn matching_without_changing() {
    let case = case(Vec::new());
    let flavours = [flavour("b", 1, any()), flavour("a", 9, any()), flavour("c", 50, never())];
    let (set, broken) = FlavourSet::compile(&flavours);
    assert!(broken.is_empty());
    let report = Report::from_value(case.report.clone()).unwrap();
    let names = set.matching(&Context {
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
fn mistakes_are_named() {
    type Mistake = fn(&mut Flavour);
    let table: &[(Mistake, &str)] = &[
        (
            |f| f.name = "a/b".to_owned(),
            "a name has 1 to 255 letters, digits and the signs . _ ~ -",
        ),
        (|f| f.resource_class = Some(String::new()), "resource_class must have 1 to 80 characters"),
        (
            |f| f.traits = vec!["small".to_owned()],
            "\"small\" is no trait: use capital letters, digits and underscores",
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
            "it gives nothing: name a resource_class, traits, properties or capabilities",
        ),
    ];
    for (change, message) in table {
        let mut wrong = flavour("a", 0, any());
        assert_eq!(validate_flavour(&wrong), Ok(()));
        change(&mut wrong);
        assert_eq!(validate_flavour(&wrong).unwrap_err().to_string(), *message);
    }
}
