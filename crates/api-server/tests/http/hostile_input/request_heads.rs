// SPDX-License-Identifier: Apache-2.0
//! Methods, paths, queries, version headers, other headers.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::bodies::runner;
use super::target::{Failures, HostileRequest, HostileTarget};

/// Percent-encodes everything that is not a letter or digit.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// `count` elements of `all`, different for each `turn`, so that all routes together use all elements.
fn sample<'a>(all: &'a [&'a str], turn: usize, count: usize) -> impl Iterator<Item = &'a str> {
    all.iter().copied().cycle().skip(turn * count % all.len()).take(count)
}

#[test]
fn rejects_unknown_methods() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let all = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW", "get", "QUERY"];
    for route in &target.routes {
        let known: Vec<&str> = target
            .routes
            .iter()
            .filter(|other| other.template == route.template)
            .map(|other| other.method.as_str())
            .collect();
        for method in all.iter().filter(|method| !known.contains(method)) {
            let request = HostileRequest::new(method, &route.path(), "{}");
            if let Some(response) = failures.record(target.check(&request)) {
                let handled_like_get = *method == "HEAD" && known.contains(&"GET");
                // A fixed segment such as `detail` is also a value of a path parameter.
                if response.status != 405 && response.status != 404 && !handled_like_get {
                    let what = format!("{} {method} {}", response.status, route.path());
                    failures.record::<()>(Err(what));
                }
            }
        }
    }
    failures.assert_none();
}

#[test]
fn rejects_invalid_path_segments() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let long = "x".repeat(256);
    let longer = "x".repeat(5000);
    let bad = [
        "%00",
        "a%00b",
        "%2e%2e",
        "..",
        ".",
        "%2F",
        "a%2fb",
        "%5c",
        "%",
        "%zz",
        "%ff",
        "%c0%af",
        "%ed%a0%80",
        "é",
        "%C3%A9",
        "%F0%9F%98%80",
        "%0a",
        "%7f",
        "a%20b",
        "+",
        "'",
        "%22",
        "%3Cx%3E",
        "11111111-1111-4111-8111-11111111111",
        "11111111111141118111111111111111",
        "-",
        "0",
        "nope",
        "%7B%7D",
        "{node}",
        "*",
        "~",
        ";",
        "detail",
        "None",
        "%25",
        "%2500",
        &long,
        &longer,
    ];
    for (turn, route) in target.routes.iter().enumerate() {
        for invalid in route.segments() {
            for bad in sample(&bad, turn, 13) {
                let path = route.path_with(|name| {
                    if name == invalid { bad } else { super::examples::path_param(name) }.to_owned()
                });
                let body = route.example().map_or(String::new(), |body| body.to_string());
                let mut request = HostileRequest::new(&route.method, &path, body);
                request.headers = b"X-OpenStack-Ironic-API-Version: 1.115\r\n".into();
                failures.record(target.check(&request));
            }
        }
    }
    failures.assert_none();
}

#[test]
fn rejects_invalid_queries() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let long = "x".repeat(300);
    let bad = [
        "",
        "-1",
        "0",
        "1",
        "99999999999999999999",
        "1e3",
        "%00",
        "a%00b",
        "%0a",
        "%ff",
        "%",
        "é",
        "%F0%9F%98%80",
        "x",
        "uuid",
        "True",
        "maybe",
        "none",
        "null",
        "'%20OR%201=1",
        "%25",
        "_",
        "%5C",
        ",",
        ",,,",
        "asc",
        "11111111-1111-4111-8111-111111111111",
        "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbc",
        &long,
    ];
    let must_reject = |name: &str| match name {
        "limit" => vec!["-1", "0", "x", "1e3", "%00"],
        "sort_key" => vec!["x", "-1", "%25", "%00"],
        "sort_dir" => vec!["x", "-1", "ASC", "%00"],
        "fields" => vec!["x", "maybe", "%00"],
        "marker" => vec!["bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbc", "%00"],
        _ => vec!["%00"],
    };
    let mut turn = 0;
    for route in &target.routes {
        let path = route.path();
        for name in &route.query {
            turn += 1;
            let rejected = must_reject(name);
            for value in sample(&bad, turn, 7).chain(rejected.iter().copied()) {
                let query = format!("{path}?{name}={value}");
                let outcome = target.check(&HostileRequest::new(&route.method, &query, ""));
                let Some(response) = failures.record(outcome) else { continue };
                if rejected.contains(&value) && response.status < 400 {
                    failures.record::<()>(Err(format!("accepted: {} {query}", route.method)));
                }
            }
        }
        for query in ["nonsense=1", "%00=1", "limit", "&&&", "=%zz"] {
            let query = format!("{path}?{query}");
            failures.record(target.check(&HostileRequest::new(&route.method, &query, "")));
        }
    }
    failures.assert_none();
}

#[test]
fn random_queries() {
    let target = HostileTarget::start();
    let routes: Vec<_> = target.routes.iter().filter(|route| !route.query.is_empty()).collect();
    let value = prop_oneof![
        "\\PC{0,12}",
        "[\\x00-\\x7f]{0,6}",
        any::<i64>().prop_map(|number| number.to_string()),
        prop::sample::select(vec![
            "asc", "desc", "true", "no", "uuid", "name", "links", "id", "10"
        ])
        .prop_map(str::to_owned),
        prop::sample::select(vec![
            "created_at",
            "provision_state",
            "extra",
            "node_uuid",
            "address"
        ])
        .prop_map(str::to_owned),
    ];
    let pairs = proptest::collection::vec((any::<prop::sample::Index>(), value), 1..5);
    runner(600)
        .run(&(any::<prop::sample::Index>(), pairs), |(which, pairs)| {
            let route = which.get(&routes);
            let pairs = pairs
                .into_iter()
                .map(|(name, value)| format!("{}={}", name.get(&route.query), encode(&value)));
            let path = format!("{}?{}", route.path(), pairs.collect::<Vec<_>>().join("&"));
            let request = HostileRequest::new(&route.method, &path, "");
            target.check(&request).map_err(TestCaseError::fail)?;
            Ok(())
        })
        .unwrap();
}

#[test]
fn rejects_invalid_versions() {
    let target = HostileTarget::start();
    let mut failures = Failures::default();
    let long = "1".repeat(400);
    let values = [
        "",
        "1",
        "1.",
        ".1",
        "1.0",
        "1.116",
        "1.99999",
        "1.99999999999999999999",
        "2.1",
        "0.1",
        "-1.1",
        "1.-1",
        "1.1.1",
        "one.two",
        "1,1",
        "LATEST",
        "1.+5",
        "1. 5",
        "baremetal 1.1",
        "1.0x10",
        "\u{e9}",
        &long,
    ];
    for (turn, route) in target.routes.iter().enumerate() {
        let body = route.example().map_or(String::new(), |body| body.to_string());
        for value in sample(&values, turn, 3) {
            for header in ["X-OpenStack-Ironic-API-Version: ", "OpenStack-API-Version: baremetal "]
            {
                let mut request = HostileRequest::new(&route.method, &route.path(), body.clone());
                request.headers = format!("{header}{value}\r\n").into_bytes();
                failures.record(target.check(&request));
            }
        }
        for minor in sample(&["1", "5", "40", "60", "80", "100"], turn, 3) {
            let mut request = HostileRequest::new(&route.method, &route.path(), body.clone());
            request.headers = format!("X-OpenStack-Ironic-API-Version: 1.{minor}\r\n").into_bytes();
            failures.record(target.check(&request));
        }
    }
    failures.assert_none();
}

#[test]
fn random_headers() {
    let target = HostileTarget::start();
    let name = prop_oneof![
        prop::sample::select(vec![
            "X-OpenStack-Ironic-API-Version",
            "OpenStack-API-Version",
            "Authorization",
            "Content-Type",
            "Accept",
            "Accept-Encoding",
            "Last-Event-ID",
            "X-OpenStack-HostileRequest-ID",
            "X-Forwarded-Proto",
            "If-None-Match",
            "Range",
            "Cookie",
        ])
        .prop_map(str::to_owned),
        "[A-Za-z0-9-]{1,30}",
    ];
    // Bytes allowed in header values: no control characters except tab.
    let byte = prop_oneof![Just(b'\t'), 0x20_u8..0x7f, 0x80_u8..=0xff];
    let headers = proptest::collection::vec((name, proptest::collection::vec(byte, 0..60)), 1..6);
    runner(600)
        .run(&(any::<prop::sample::Index>(), headers), |(which, headers)| {
            let route = which.get(&target.routes);
            let mut request = route.request("");
            request.headers.clear();
            for (name, value) in headers {
                let framing = ["content-length", "transfer-encoding", "connection", "expect"];
                if framing.contains(&name.to_ascii_lowercase().as_str()) {
                    continue;
                }
                request.headers.extend_from_slice(name.as_bytes());
                request.headers.extend_from_slice(b": ");
                request.headers.extend_from_slice(&value);
                request.headers.extend_from_slice(b"\r\n");
            }
            target.check(&request).map_err(TestCaseError::fail)?;
            Ok(())
        })
        .unwrap();
}
