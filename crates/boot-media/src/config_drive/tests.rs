// SPDX-License-Identifier: Apache-2.0
//! The three forms of config drives, rejected values, and decompression bombs.

use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

const OWNER: ConfigDriveOwner<'static> =
    ConfigDriveOwner { uuid: "1be26c0b-03f2-4d2e-ae87-c02d7f33c123", name: Some("rack1-u7") };

fn form(value: Value, expected: Expect) {
    let shown = match ConfigDrive::parse(&value) {
        Ok(None) => "nothing".to_owned(),
        Ok(Some(ConfigDrive::Url(url))) => format!("url {url}"),
        Ok(Some(ConfigDrive::Packed(text))) => format!("packed {text}"),
        Ok(Some(ConfigDrive::Parts(parts))) => {
            let user_data = parts.user_data.as_ref().map(UserData::bytes);
            format!(
                "parts, user data {:?}",
                user_data.map(|bytes| String::from_utf8(bytes).unwrap())
            )
        }
        Err(error) => format!("error: {error}"),
    };
    expected.assert_eq(&shown);
}

#[test]
fn parses_three_forms() {
    form(json!(null), expect!["nothing"]);
    form(json!(""), expect!["nothing"]);
    form(json!({}), expect!["nothing"]);
    form(json!("http://a/b"), expect!["url http://a/b"]);
    form(
        json!("H4sI\nAA=="),
        expect![[r#"
        packed H4sI
        AA=="#]],
    );
    form(
        json!("{'meta_data': {}}"),
        expect![
            "error: the config drive is a string that is neither a URL nor base64; to give contents, send a JSON object"
        ],
    );
    form(
        json!(17),
        expect![
            "error: a config drive must be a string (a URL or a gzipped image in base64) or a JSON object"
        ],
    );
    form(json!({"user_data": "#!/bin/sh"}), expect![[r##"parts, user data Some("#!/bin/sh")"##]]);
    form(json!({"user_data": [1]}), expect![[r#"parts, user data Some("[1]")"#]]);
    form(json!({"user_data": null}), expect!["parts, user data None"]);
    form(
        json!({"user_data": true}),
        expect!["error: user_data of the config drive must be a string, an object, a list or null"],
    );
    form(
        json!({"meta_data": []}),
        expect!["error: meta_data of the config drive must be an object"],
    );
    form(
        json!({"metadata": {}}),
        expect![[
            r#"error: a config drive has no "metadata"; it may have meta_data, network_data, user_data and vendor_data"#
        ]],
    );
}

fn built(value: &Value) -> Content {
    match ConfigDrive::parse(value).unwrap() {
        Some(ConfigDrive::Parts(parts)) => parts.build(OWNER).unwrap(),
        Some(ConfigDrive::Url(_) | ConfigDrive::Packed(_)) | None => panic!("{value} is not parts"),
    }
}

#[test]
fn an_image_holds_its_parts_and_survives_packing() {
    let value = json!({
        "meta_data": {"name": "mine", "public_keys": {"me": "ssh-ed25519 AAAA"}},
        "network_data": {"links": []},
        "vendor_data": {},
        "user_data": {"ignition": {"version": "3.4.0"}},
    });
    let image = built(&value);
    let packed = pack(&image).unwrap();
    let unpacked = unpack(&packed).unwrap();
    assert_eq!(unpacked.len() as u64, image.length());
    assert_eq!(detect_format(&unpacked), DriveFormat::Iso9660);
    assert_eq!(&unpacked[0x8028..0x8030], b"config-2");
    let holds = |text: &str| unpacked.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds(r#"{"name":"mine","public_keys":{"me":"ssh-ed25519 AAAA"},"uuid":"1be26c0b"#));
    assert!(holds(r#"{"ignition":{"version":"3.4.0"}}"#));
    assert!(holds("network_data.json;1") && holds("2012-08-10"));
    assert!(!holds("vendor_data2"), "what is empty gets no file");
}

#[test]
fn bombs_are_refused() {
    let mut zeros = Content::new();
    zeros.push(crate::ContentSegment::Zeros(MAX_IMAGE_BYTES + 1));
    let bomb = pack(&zeros).unwrap();
    assert!(bomb.len() < 1 << 20);
    assert!(matches!(unpack(&bomb), Err(ConfigDriveUnpackError::TooLarge)));
    // Concatenated gzip members are one image with one size limit.
    let half = pack(&zeros.slice(0..3 * 1024 * 1024)).unwrap();
    let member = STANDARD.decode(half).unwrap();
    let members = STANDARD.encode(member.repeat(22));
    assert!(matches!(unpack(&members), Err(ConfigDriveUnpackError::TooLarge)));
    assert!(matches!(unpack("H4sI"), Err(ConfigDriveUnpackError::Gzip(_))));
    assert!(matches!(unpack("A"), Err(ConfigDriveUnpackError::Base64(_))));
    assert!(matches!(
        unpack(&"A".repeat(MAX_PACKED_BYTES + 1)),
        Err(ConfigDriveUnpackError::TooLarge)
    ));
}

#[test]
fn rejects_too_large_user_data() {
    let text = "x".repeat(33 * 1024 * 1024);
    let parts =
        ConfigDriveParts { user_data: Some(UserData::Text(&text)), ..ConfigDriveParts::default() };
    assert!(matches!(parts.build(OWNER), Err(ConfigDriveBuildError::TooLarge)));
}

proptest! {
    #[test]
    fn unpack_never_panics(text in "[A-Za-z0-9+/=\n]{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = unpack(&text);
        // After a valid gzip header, so that the compressed data are damaged.
        let damaged = [&[0x1f, 0x8b, 8, 0][..], &bytes].concat();
        let _ = unpack(&STANDARD.encode(damaged));
        let _ = detect_format(&bytes);
    }
}
