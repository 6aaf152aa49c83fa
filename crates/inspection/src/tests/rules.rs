// SPDX-License-Identifier: Apache-2.0
//! Tests of inspection rules: operators, actions, templates, loops, order and secrets.

use error_chain::error_chain;
use expect_test::{Expect, expect};
use node_model::{JsonObject, MASK, Sensitive};
use serde_json::{Value, json};

use super::{InspectionCase, SERVER, changes_text, object};
use crate::MaskSecrets;

fn server() -> InspectionCase {
    InspectionCase::new(SERVER, "").with(|case| {
        case.report["secret"] = json!({"password": "hunter2", "ok": [1, 2]});
        case.node.driver_info = object(json!({"ipmi_address": "10.0.0.5", "ipmi_password": MASK}));
        case.node.name = Some("rack1-u7".to_owned());
    })
}

/// Returns whether the condition holds, that is, whether the rule's action ran.
fn holds(condition: &Value) -> Result<bool, String> {
    let case = server()
        .rule(json!([condition]), json!([{"op": "add-trait", "args": {"name": "CUSTOM_HELD"}}]));
    case.process().map(|result| result.node.traits.is_some()).map_err(|error| error_chain(&error))
}

fn check_action(actions: Value, expect: &Expect) {
    let case = server().port(11, "52:54:00:aa:bb:01").rule(json!([]), actions).with(|case| {
        case.node.properties = object(json!({"capabilities": "boot_mode:bios,a:b"}));
        case.node.extra = object(json!({"list": ["x"], "deep": {"er": 1}}));
        case.node.traits = vec!["CUSTOM_B".to_owned(), "CUSTOM_C".to_owned()];
    });
    let text = match case.process() {
        Ok(result) => changes_text(&result),
        Err(error) => format!("failed: {}\n", error_chain(&error)),
    };
    expect.assert_eq(&text);
}

#[test]
fn evaluates_operators() {
    for (op, args, expected) in [
        ("eq", json!({"values": [1, 1.0, "1"]}), true),
        ("eq", json!({"values": ["{inventory[cpu][count]}", 64]}), true),
        ("eq", json!({"values": ["{inventory[cpu][count]}", "65"]}), false),
        ("eq", json!({"values": [1]}), true),
        ("eq", json!([["a", "a"]]), true),
        ("eq", json!({"values": [true, "True"], "force_strings": true}), true),
        ("eq", json!({"values": ["{node.name}", "rack1-u7"]}), true),
        ("ne", json!({"values": ["a", "b", "a"]}), true),
        ("ne", json!({"values": ["a", "a"]}), false),
        ("lt", json!({"values": [1, 2, 3]}), true),
        ("lt", json!({"values": [1, 3, 2]}), false),
        ("gt", json!({"values": ["{inventory[memory][physical_mb]}", 65536]}), true),
        ("gt", json!({"values": ["b", "a"]}), true),
        ("le", json!({"values": [1, 1, 2]}), true),
        ("ge", json!({"values": [2, 2, 3]}), false),
        ("is-empty", json!({"value": "{inventory[nothing]}"}), true),
        ("is-empty", json!({"value": "{plugin_data[error]}"}), true),
        ("is-empty", json!({"value": []}), true),
        ("is-empty", json!({"value": {}}), true),
        ("is-empty", json!({"value": "{inventory[hostname]}"}), false),
        ("is-empty", json!({"value": "{inventory.hostname}"}), false),
        ("in-net", json!({"address": "{inventory[bmc_address]}", "subnet": "10.0.0.0/24"}), true),
        ("in-net", json!({"address": "10.0.1.5", "subnet": "10.0.0.0/24"}), false),
        (
            "matches",
            json!({"value": "{inventory[system_vendor][product_name]}", "regex": "PowerEdge R\\d+"}),
            true,
        ),
        ("matches", json!({"value": "PowerEdge R640 old", "regex": "PowerEdge R\\d+"}), false),
        ("matches", json!({"value": "my PowerEdge", "regex": "PowerEdge$"}), false),
        ("matches", json!({"value": "ab", "regex": "a|b"}), true), // the end belongs to the last branch
        (
            "contains",
            json!({"value": "{inventory[system_vendor]}", "regex": "'manufacturer': 'Dell"}),
            true,
        ),
        ("contains", json!({"value": 12345, "regex": "^1.*5$"}), true),
        ("contains", json!({"value": "abc", "regex": "^b"}), false),
        (
            "one-of",
            json!({"value": "{inventory[cpu][architecture]}", "values": ["aarch64", "x86_64"]}),
            true,
        ),
        ("one-of", json!({"value": "x", "values": ["{node.name}"]}), false),
        ("one-of", json!({"value": "x"}), false),
        ("is-none", json!({"value": null}), true),
        ("is-none", json!({"value": "{plugin_data[error]}"}), true),
        ("is-none", json!({"value": "{inventory[nothing]}"}), false),
        ("is-true", json!({"value": "{inventory[interfaces][1][has_carrier]}"}), true),
        ("is-true", json!({"value": "YES"}), true),
        ("is-true", json!({"value": 2}), true),
        ("is-true", json!({"value": "1"}), false),
        ("is-true", json!({"value": []}), false),
        ("is-false", json!({"value": "{inventory[disks][0][rotational]}"}), true),
        ("is-false", json!({"value": 0}), true),
        ("is-false", json!({"value": null}), true),
        ("is-false", json!({"value": "maybe"}), false),
    ] {
        let condition = json!({"op": op, "args": args});
        assert_eq!(holds(&condition), Ok(expected), "{condition}");
        for inverted in [format!("!{op}"), format!(" ! {op} ")] {
            let condition = json!({"op": inverted, "args": args});
            assert_eq!(holds(&condition), Ok(!expected), "{condition}");
        }
    }
}

#[test]
fn failing_conditions_fail_the_inspection() {
    for (op, args, message) in [
        (
            "gt",
            json!({"values": ["{inventory[hostname]}", 5]}),
            "text and a number cannot be put in order",
        ),
        ("lt", json!({"values": [null, 5]}), "null and a number cannot be put in order"),
        ("lt", json!({"values": "5"}), "the argument values must be a list"),
        (
            "in-net",
            json!({"address": "{inventory[hostname]}", "subnet": "::/0"}),
            "the argument address must be an IP address",
        ),
        (
            "in-net",
            json!({"address": "::1", "subnet": "x"}),
            "the argument subnet must be a network such as 10.0.0.0/8",
        ),
    ] {
        let error = holds(&json!({"op": op, "args": args})).unwrap_err();
        let expected = format!(
            "an inspection rule failed for node 00000000-0000-0000-0000-000000000001: \
             rule 00000000-0000-0000-0000-000000000064, conditions[0] ({op}): {message}"
        );
        assert_eq!(error, expected);
    }
}

#[test]
fn evaluates_loops_in_conditions() {
    for (multiple, items, expected) in [
        (json!("any"), json!(["x", "64"]), true),
        (json!("any"), json!(["x", "y"]), false),
        (json!("all"), json!([64, "64"]), true),
        (json!("all"), json!([64, "y"]), false),
        (json!("first"), json!(["x", 64, "y"]), true),
        (json!("last"), json!(["x", 64]), true),
        (json!("last"), json!([64, "x"]), false),
        (json!("all"), json!(["{inventory[cpu][count]}"]), true),
    ] {
        let condition = json!({
            "op": "eq", "args": {"values": ["{inventory[cpu][count]}", "{item}"]}, "loop": items, "multiple": multiple,
        });
        assert_eq!(holds(&condition), Ok(expected), "{condition}");
    }
    let one = json!({"op": "matches", "args": {"value": "{item[v]}", "regex": "{item[r]}"}, "loop": {"v": "abc", "r": "a.c"}});
    assert_eq!(holds(&one), Ok(true));
    let none = json!({"op": "eq", "args": {"values": ["{item}", "{{item}}"]}, "loop": []});
    assert_eq!(
        holds(&none),
        Ok(true),
        "without items there is no loop, and {{item}} is left unchanged"
    );
}

#[test]
fn renders_templates() {
    let render = |template: &str| {
        let case = server().rule(
            json!([]),
            json!([{"op": "set-attribute", "args": {"path": "extra/out", "value": template}}]),
        );
        let result = case.process().unwrap();
        result.node.objects[&crate::ObjectField::Extra]["out"]
            .clone()
            .unwrap()
            .as_str()
            .unwrap()
            .to_owned()
    };
    for (template, expected) in [
        ("plain", "plain"),
        (
            "{inventory[cpu][count]} CPUs, {{not}} {inventory[disks][1][name]}",
            "64 CPUs, {not} /dev/sdb",
        ),
        ("{node.driver_info[ipmi_address]}", "10.0.0.5"),
        ("{node[name]!r}", "'rack1-u7'"),
        ("{node.uuid}", "00000000-0000-0000-0000-000000000001"),
        ("{node.owner}", "None"),
        ("{node.deploy_interface}", "None"),
        ("{inventory[cpu][flags]}", "['vmx', 'aes']"),
        // Secrets of the node and of the report are masked.
        ("{node.driver_info[ipmi_password]}", "******"),
        ("{plugin_data[secret][password]}", "***"),
        ("{plugin_data[secret]}", "{'ok': [1, 2], 'password': '***'}"),
        // Templates that cannot be rendered are left unchanged.
        ("{inventory[nothing]}", "{inventory[nothing]}"),
        ("{inventory[disks][9]}", "{inventory[disks][9]}"),
        ("{inventory[disks][a]}", "{inventory[disks][a]}"),
        ("{inventory[cpu][count][x]}", "{inventory[cpu][count][x]}"),
        ("{node}", "{node}"),
        ("{node.nothing}", "{node.nothing}"),
        ("{open", "{open"),
        ("close}", "close}"),
        ("{inventory[cpu}", "{inventory[cpu}"),
        ("{inventory[]}", "{inventory[]}"),
        ("{item}", "{item}"),
        ("{}", "{}"),
    ] {
        assert_eq!(render(template), expected);
    }
}

#[test]
fn does_not_render_templates_from_the_ramdisk() {
    let case = server()
        .with(|case| case.report["inventory"]["hostname"] = json!("{node.driver_info}"))
        .rule(
            json!([]),
            json!([{"op": "set-attribute", "args": {"path": "extra/{item[key]}", "value": "{item[value]}"},
                    "loop": [{"key": "host", "value": "{inventory[hostname]}"}]}]),
        );
    assert_eq!(changes_text(&case.process().unwrap()), "extra/host = \"{node.driver_info}\"\n");
}

#[test]
fn runs_attribute_actions() {
    check_action(
        json!([
            {"op": "set-attribute", "args": {"path": "driver_info/ipmi_address", "value": "{inventory[bmc_address]}9"}},
            {"op": "set-attribute", "args": {"path": "/extra/a/b", "value": {"deep": "{node.name}"}}},
            {"op": "set-attribute", "args": {"path": "resource_class", "value": "gold-{inventory[cpu][count]}"}},
            {"op": "set-attribute", "args": ["automated_clean", "no"]},
            {"op": "set-attribute", "args": {"path": "instance_info", "value": {"a": 1}}},
            {"op": "extend-attribute", "args": {"path": "extra.list", "value": "x", "unique": true}},
            {"op": "extend-attribute", "args": {"path": "extra.list", "value": "y"}},
            {"op": "extend-attribute", "args": {"path": "extra/new/list", "value": 1}},
            {"op": "del-attribute", "args": {"path": "extra/deep/er"}},
            {"op": "del-attribute", "args": {"path": "name"}},
        ]),
        &expect![[r#"
            driver_info/ipmi_address = "10.0.0.59"
            extra/a = {"b":{"deep":"rack1-u7"}}
            extra/deep = {}
            extra/list = ["x","y"]
            extra/new = {"list":[1]}
            instance_info/a = 1
            automated_clean = false
            name = null
            resource_class = "gold-64"
        "#]],
    );
}

#[test]
fn runs_capability_trait_and_port_actions() {
    check_action(
        json!([
            {"op": "set-capability", "args": {"name": "boot_mode", "value": "{inventory[boot][current_boot_mode]}"}},
            {"op": "unset-capability", "args": {"name": "a"}},
            {"op": "add-trait", "args": {"name": "CUSTOM_A"}},
            {"op": "add-trait", "args": {"name": "CUSTOM_B"}},
            {"op": "remove-trait", "args": {"name": "CUSTOM_C"}},
            {"op": "remove-trait", "args": {"name": "CUSTOM_Z"}},
            {"op": "set-port-attribute", "args": {"port_id": "00000000-0000-0000-0000-00000000000b", "path": "name", "value": "{node.name}-a"}},
            {"op": "set-port-attribute", "args": {"port_id": "52:54:00:AA:BB:01", "path": "extra/k", "value": [1]}},
            {"op": "extend-port-attribute", "args": {"port_id": "52:54:00:AA:BB:01", "path": "extra/k", "value": 2}},
            {"op": "set-port-attribute", "args": {"port_id": "52:54:00:AA:BB:01", "path": "pxe_enabled", "value": "false"}},
            {"op": "set-port-attribute", "args": {"port_id": "52:54:00:AA:BB:01", "path": "local_link_connection/port_id", "value": "1"}},
            {"op": "del-port-attribute", "args": {"port_id": "52:54:00:AA:BB:01", "path": "local_link_connection/port_id"}},
        ]),
        &expect![[r#"
            properties/capabilities = "boot_mode:uefi"
            traits = ["CUSTOM_A", "CUSTOM_B"]
            update port 52:54:00:aa:bb:01 pxe=false link={} physical=None extra={"k":[1,2]} name=Some("rack1-u7-a")
        "#]],
    );
}

#[test]
fn runs_actions_in_loops() {
    check_action(
        json!([
            {"op": "set-attribute", "args": {"path": "{item[path]}", "value": "{item[value]}"},
             "loop": [{"path": "extra/one", "value": 1}, {"path": "extra/two", "value": "{inventory[bmc_address]}"}]},
            {"op": "add-trait", "args": {"name": "CUSTOM_{item}"}, "loop": ["X", "Y"]},
        ]),
        &expect![[r#"
            extra/one = "1"
            extra/two = "10.0.0.5"
            traits = ["CUSTOM_B", "CUSTOM_C", "CUSTOM_X", "CUSTOM_Y"]
        "#]],
    );
}

#[test]
fn runs_plugin_data_actions() {
    let case = server().rule(
        json!([]),
        json!([
            {"op": "set-plugin-data", "args": {"path": "a.b", "value": "{inventory[cpu][count]}"}},
            {"op": "extend-plugin-data", "args": {"path": "a.list", "value": 1}},
            {"op": "extend-plugin-data", "args": {"path": "a.list", "value": 1, "unique": true}},
            {"op": "extend-plugin-data", "args": {"path": "error", "value": "x"}},
            {"op": "set-plugin-data", "args": ["gone.soon", 1]},
            {"op": "unset-plugin-data", "args": {"path": "gone.soon"}},
            {"op": "unset-plugin-data", "args": {"path": "never.there"}},
            {"op": "unset-plugin-data", "args": {"path": "data"}},
        ]),
    );
    let plugin_data = case.process().unwrap().plugin_data.parse();
    assert_eq!(plugin_data["a"], json!({"b": "64", "list": [1]}));
    assert_eq!(plugin_data["error"], json!(["x"]));
    assert!(!plugin_data.contains_key("gone") && !plugin_data.contains_key("data"));
}

#[test]
fn runs_log_and_api_call_actions() {
    let case = server().rule(
        json!([]),
        json!([
            {"op": "log", "args": {"msg": "{node.name} has {inventory[cpu][count]}", "level": "WARNING"}},
            {"op": "api-call", "args": {"url": "https://hooks/{node.name}?token=s", "headers": {"X-Token": "s"}, "timeout": "2.5", "retries": 1}},
        ]),
    );
    let result = case.process().unwrap();
    let log: Vec<String> =
        result.log.iter().map(|entry| format!("{:?} {}", entry.level, entry.text)).collect();
    assert_eq!(
        log,
        [
            "Warning rack1-u7 has 64",
            "Info requests ApiCall { url: \"https://hooks/rack1-u7\", headers: \"******\", .. }",
        ]
    );
    let call = &result.api_calls[0];
    assert_eq!((call.timeout, call.retries, call.backoff_factor), (2.5, 1, 0.3));
    assert_eq!(call.url, "https://hooks/rack1-u7?token=s");
    assert_eq!(call.headers["X-Token"], "s");
}

#[test]
fn failing_actions_fail_the_inspection() {
    for (action, message) in [
        (
            json!({"op": "fail", "args": {"msg": "wrong rack"}}),
            "rule 00000000-0000-0000-0000-000000000064 refuses the machine: wrong rack",
        ),
        (
            json!({"op": "log", "args": {"msg": "x", "level": "loud"}}),
            "the argument level must be debug, info, warning, error or critical",
        ),
        (
            json!({"op": "set-attribute", "args": {"path": "provision_state", "value": "active"}}),
            "provision_state cannot be changed by a rule",
        ),
        (
            json!({"op": "set-attribute", "args": {"path": "name/x", "value": 1}}),
            "the path name/x leads into something that is not an object",
        ),
        (
            json!({"op": "set-attribute", "args": {"path": "extra/list/x", "value": 1}}),
            "the path extra/list/x leads through something that is not an object",
        ),
        (
            json!({"op": "set-attribute", "args": {"path": "extra//x", "value": 1}}),
            "the path extra//x has an empty part",
        ),
        (
            json!({"op": "extend-attribute", "args": {"path": "extra/deep", "value": 1}}),
            "the path extra/deep does not lead to a list",
        ),
        (
            json!({"op": "del-attribute", "args": {"path": "extra/none"}}),
            "the path extra/none leads to nothing",
        ),
        (
            json!({"op": "add-trait", "args": {"name": "lower"}}),
            "the argument name must be a trait: capital letters, digits and underscores",
        ),
        (
            json!({"op": "set-capability", "args": {"name": "a", "value": "b,c"}}),
            "the argument value must be text without commas",
        ),
        (
            json!({"op": "set-port-attribute", "args": {"port_id": "x", "path": "name", "value": 1}}),
            "the node has no port x",
        ),
        (
            json!({"op": "set-port-attribute", "args": {"port_id": "52:54:00:aa:bb:01", "path": "address", "value": 1}}),
            "address cannot be changed by a rule",
        ),
        (
            json!({"op": "api-call", "args": {"url": "ftp://x"}}),
            "the argument url must be an http or https address",
        ),
        (
            json!({"op": "api-call", "args": {"url": "http://x", "timeout": 0}}),
            "the argument timeout must be more than zero",
        ),
    ] {
        let case =
            server().port(11, "52:54:00:aa:bb:01").rule(json!([]), json!([action])).with(|case| {
                case.node.extra = object(json!({"list": [], "deep": {}}));
            });
        let failure = error_chain(&case.process().unwrap_err());
        assert!(failure.ends_with(message), "{failure}\nexpected: {message}");
    }
}

#[test]
fn runs_rules_by_priority_and_sees_changes_of_earlier_rules() {
    let set = |value: &str| json!([{"op": "set-attribute", "args": {"path": "resource_class", "value": value}}]);
    let case = server()
        .rule(
            json!([{"op": "eq", "args": {"values": ["{node.resource_class}", "high"]}}]),
            set("low, after {node.resource_class}"),
        )
        .rule(json!([]), set("high"))
        .rule(
            json!([{"op": "eq", "args": {"values": [1, 2]}}]),
            json!([{"op": "fail", "args": {"msg": "never"}}]),
        )
        .rule(json!([]), json!([{"op": "fail", "args": {"msg": "another phase"}}]))
        .with(|case| {
            case.rules[1].priority = 9;
            case.rules[3].phase = Some("early".to_owned());
        });
    assert_eq!(changes_text(&case.process().unwrap()), "resource_class = \"low, after high\"\n");
}

#[test]
fn masks_secrets_according_to_the_settings() {
    for (mask, sensitive, expected) in [
        (MaskSecrets::Always, Sensitive::Yes, "***"),
        (MaskSecrets::Sensitive, Sensitive::Yes, "hunter2"),
        (MaskSecrets::Sensitive, Sensitive::No, "***"),
        (MaskSecrets::Never, Sensitive::No, "hunter2"),
    ] {
        let actions = json!([{"op": "set-attribute", "args": {"path": "driver_info/ipmi_password", "value": "{plugin_data[secret][password]}"}}]);
        let case = server().rule(json!([]), actions).with(|case| {
            case.settings.mask_secrets = mask;
            case.rules[0].sensitive = sensitive;
        });
        let result = case.process().unwrap();
        let mut node = case.node.clone();
        result.node.apply_to(&mut node);
        assert_eq!(node.driver_info.get_str("ipmi_password").as_deref(), Some(expected));
        assert!(!format!("{:?}{:?}", result.node, result.log).contains("hunter2"));
    }
}

#[test]
fn does_not_write_masked_secrets_back() {
    let actions =
        json!([{"op": "set-attribute", "args": {"path": "driver_info/ipmi_port", "value": 623}}]);
    let result = server().rule(json!([]), actions).process().unwrap();
    assert_eq!(changes_text(&result), "driver_info/ipmi_port = 623\n");
    let mut node = server().node;
    node.driver_info = JsonObject::from_stored(r#"{"ipmi_password":"******"}"#);
    result.node.apply_to(&mut node);
    assert_eq!(node.driver_info.as_str(), r#"{"ipmi_password":"******","ipmi_port":623}"#);
}
