// SPDX-License-Identifier: Apache-2.0
//! Reads all resources of a service by following links.

use std::collections::{BTreeMap, HashSet, VecDeque};

use http::header::{ALLOW, ETAG};
use serde_json::{Value, json};

use super::{BmcRecording, RecordedResponse, VERSION};
use crate::exchange::{BmcHttpResponse, OutgoingRequest};
use crate::{RedfishClient, RedfishError, body, path};

/// The limit of resources. The largest services have some thousands.
const MOST: usize = 20_000;
/// The limit of links from the root.
const DEEPEST: usize = 16;
/// The size limit of a body. Larger ones are message registries.
const LARGEST_KEPT: usize = 4 * 1024 * 1024;
/// After this many consecutive failures the BMC is considered unreachable.
const MOST_SILENT: usize = 3;

/// Suffixes of paths, in lower case, of collections about people or past events, or with the same
/// content on every BMC. They are recorded without members.
const WITHOUT_MEMBERS: [&str; 13] = [
    "/sessions",
    "/accounts",
    "/entries",
    "/subscriptions",
    "/tasks",
    "/jobs",
    "/jsonschemas",
    "/certificates",
    "/keys",
    "/metricreports",
    "/logs/sel",
    "/logs/lclog",
    "/logs/faultlist",
];

/// Parts of paths, in lower case, of dumps, files and consoles, which are not recorded.
const NOT_WALKED: [&str; 6] =
    ["/$metadata", "/odata", "/attachment", "/dumps/", "/jsonschemas/", "/schemastore/"];

/// Reads all linked resources, breadth first, each path once. The result is not sanitised.
pub(super) async fn walk(
    client: &RedfishClient,
    mut progress: impl FnMut(usize),
) -> Result<BmcRecording, RedfishError> {
    let root = &client.shared.endpoint.root;
    let mut found = BmcRecording { version: VERSION, ..BmcRecording::default() };
    let mut known: HashSet<String> = HashSet::new();
    let mut queue: VecDeque<(String, usize)> = VecDeque::new();
    queue.push_back((root.clone(), 0));
    known.insert(key(root));
    let mut silent = 0;
    while let Some((path, depth)) = queue.pop_front() {
        if found.resources.len() >= MOST {
            found.left_out.insert(key(&path), format!("more than {MOST} resources"));
            continue;
        }
        let call = OutgoingRequest::get(&path);
        let reply = match client.authorised(&call).await {
            Ok(reply) => reply,
            Err(
                error @ (RedfishError::TooLarge { .. }
                | RedfishError::Redirected { .. }
                | RedfishError::Garbled { .. }),
            ) => {
                found.left_out.insert(key(&path), error.to_string());
                continue;
            }
            Err(error @ RedfishError::Unreachable { .. })
                if depth > 0 && silent + 1 < MOST_SILENT =>
            {
                silent += 1;
                // Without the address, which would identify the BMC.
                tracing::debug!(%path, %error, "no response while recording");
                found.left_out.insert(key(&path), "the BMC did not respond".to_owned());
                continue;
            }
            Err(error) => return Err(error),
        };
        silent = 0;
        if depth == 0 && !reply.status.is_success() {
            reply.accepted(&call)?;
            continue;
        }
        let recorded = recorded(&path, &reply);
        if depth < DEEPEST {
            for link in links_in(&path, &recorded.body) {
                let link = path::local(root, link);
                if is_walked(&link) && known.insert(key(&link)) {
                    queue.push_back((link, depth + 1));
                }
            }
        }
        found.resources.insert(key(&path), recorded);
        progress(found.resources.len());
    }
    Ok(found)
}

/// The path without a trailing slash.
fn key(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

fn recorded(path: &str, reply: &BmcHttpResponse) -> RecordedResponse {
    let mut headers = BTreeMap::new();
    for name in [&ETAG, &ALLOW] {
        if let Some(value) = reply.header(name) {
            headers.insert(name.as_str().to_owned(), value.to_owned());
        }
    }
    let mut body = if reply.body.len() > LARGEST_KEPT {
        json!({"@odata.id": path, "ferrite_left_out": "the body was too large to keep"})
    } else {
        body::parse(&reply.body).unwrap_or(Value::Null)
    };
    let lower = path.trim_end_matches('/').to_ascii_lowercase();
    if WITHOUT_MEMBERS.iter().any(|end| lower.ends_with(end)) {
        empty(&mut body);
    }
    RecordedResponse { status: reply.status.as_u16(), headers, body }
}

/// Removes the members of a collection.
fn empty(body: &mut Value) {
    let Some(members) = body.as_object_mut() else { return };
    members.remove("Members@odata.nextLink");
    for (key, value) in members {
        match (key.as_str(), &value) {
            ("Members@odata.count", _) => *value = json!(0),
            (_, Value::Array(_)) => *value = json!([]),
            (_, _) => {}
        }
    }
}

fn is_walked(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    !NOT_WALKED.iter().any(|part| lower.contains(part))
        && !WITHOUT_MEMBERS.iter().any(|end| lower.contains(&format!("{end}/")))
}

/// The links of a body: every `@odata.id`, the next page, ActionInfo resources, and the file of a BIOS
/// attribute registry.
fn links_in<'a>(path: &str, body: &'a Value) -> Vec<&'a str> {
    let mut links = Vec::new();
    collect_links(body, &mut links);
    if path.contains("/Registries/") && path.contains("Attribute") {
        let files = body.get("Location").and_then(Value::as_array).into_iter().flatten();
        let english = files.filter(|file| {
            file.get("Language")
                .and_then(Value::as_str)
                .is_none_or(|language| language.starts_with("en"))
        });
        links.extend(english.filter_map(|file| file.get("Uri")?.as_str()));
    }
    links
}

fn collect_links<'a>(value: &'a Value, links: &mut Vec<&'a str>) {
    const LINKS: [&str; 4] =
        ["@odata.id", "Members@odata.nextLink", "@odata.nextLink", "@Redfish.ActionInfo"];
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str() {
                    // Resources of other hosts are ignored; a fragment points into a resource that is
                    // also linked elsewhere.
                    Some(link) if LINKS.contains(&key.as_str()) && link.starts_with('/') => {
                        links.push(link);
                    }
                    Some(_) => {}
                    None => collect_links(value, links),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_links(item, links)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
