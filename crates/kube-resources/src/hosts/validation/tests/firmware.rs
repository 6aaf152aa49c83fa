// SPDX-License-Identifier: Apache-2.0
//! Rules for BIOS settings.

use expect_test::{Expect, expect};
use serde_json::json;

use super::super::validate_firmware_settings;
use super::*;

#[test]
fn settings_match_their_schema() {
    let schema = json!({"schema": {
        "Mode": {"attribute_type": "Enumeration", "allowable_values": ["On", "Off"]},
        "Cores": {"attribute_type": "Integer", "lower_bound": 1, "upper_bound": 64},
        "Tag": {"attribute_type": "String", "min_length": 2, "max_length": 4},
        "Boot": {"attribute_type": "Boolean"},
        "Serial": {"attribute_type": "String", "read_only": true},
        "Secret": {"attribute_type": "Password"},
        "AdminPassword": {},
        "Untyped": {},
        "Odd": {"attribute_type": "Float"},
    }});
    let schema = serde_json::from_value(schema).unwrap();
    let check = |settings: Value, expected: Expect| {
        let requested = serde_json::from_value(json!({"settings": settings})).unwrap();
        expected.assert_eq(&messages(&validate_firmware_settings(&requested, &schema)));
    };
    check(
        json!({"Mode": "On", "Cores": 64, "Tag": "ab", "Boot": "true", "Untyped": 7}),
        expect![[r#""#]],
    );
    check(json!({"Cores": "1", "Tag": 1234, "Boot": "false"}), expect![[r#""#]]);
    check(
        json!({"Mode": "Auto", "Cores": 0, "Tag": "a", "Boot": "yes"}),
        expect![[r#"
            spec.settings[Boot]: "yes" is not a boolean; use true or false
            spec.settings[Cores]: 0 is less than 1
            spec.settings[Mode]: "Auto" is not supported; use one of On, Off
            spec.settings[Tag]: "a" is shorter than 2 bytes
        "#]],
    );
    check(
        json!({"Cores": 65, "Tag": "abcde"}),
        expect![[r#"
            spec.settings[Cores]: 65 is greater than 64
            spec.settings[Tag]: "abcde" is longer than 4 bytes
        "#]],
    );
    check(
        json!({"Cores": "many"}),
        expect![[r#"
            spec.settings[Cores]: "many" is not an integer
        "#]],
    );
    check(
        json!({"Serial": "x", "Secret": "x", "AdminPassword": "x", "Odd": "1.5", "Absent": 1}),
        expect![[r#"
            spec.settings[Absent]: is not a setting of this hardware; remove it
            spec.settings[AdminPassword]: is a password, which cannot be set; remove it
            spec.settings[Odd]: has the type "Float", which is not supported; remove it
            spec.settings[Secret]: is a password, which cannot be set; remove it
            spec.settings[Serial]: is read-only; remove it
        "#]],
    );
}
