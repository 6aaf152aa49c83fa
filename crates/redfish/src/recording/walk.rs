// SPDX-License-Identifier: Apache-2.0
//! Reading everything a service shows, link by link.

use std::collections::{BTreeMap, HashSet, VecDeque};

use http::header::{ALLOW, ETAG};
use serde_json::{Value, json};

use super::{Recorded, Recording, VERSION};
use crate::exchange::{Call, Reply};
use crate::{Client, Error, body, path};

/// How many resources are read. The largest services have some thousands.
const MOST: usize = 20_000;
/// How many links away from the root they may be.
const DEEPEST: usize = 16;
/// How large a body is kept. Larger ones are registries of thousands of messages.
const LARGEST_KEPT: usize = 4 * 1024 * 1024;
/// After how many resources in a row that got no answer the BMC is taken to be gone.
const MOST_SILENT: usize = 3;

/// Collections whose members tell about people or the past, or are the same on every BMC. The
/// collection is kept, without members. Ends of paths, in lower case.
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

/// Everything below these is left alone: dumps, files and consoles rather than resources. Parts of
/// paths, in lower case.
const NOT_WALKED: [&str; 6] =
    ["/$metadata", "/odata", "/attachment", "/dumps/", "/jsonschemas/", "/schemastore/"];

/// Reads everything that links lead to, breadth first, each path once. The result still has
/// everything in it.
pub(super) async fn walk(
    client: &Client,
    mut progress: impl FnMut(usize),
) -> Result<Recording, Error> {
    let root = &client.shared.endpoint.root;
    let mut found = Recording { version: VERSION, ..Recording::default() };
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
        let call = Call::get(&path);
        let reply = match client.authorised(&call).await {
            Ok(reply) => reply,
            Err(
                error @ (Error::TooLarge { .. } | Error::Redirected { .. } | Error::Garbled { .. }),
            ) => {
                found.left_out.insert(key(&path), error.to_string());
                continue;
            }
            Err(error @ Error::Unreachable { .. }) if depth > 0 && silent + 1 < MOST_SILENT => {
                silent += 1;
                // The address would identify the BMC; that it was silent is enough.
                tracing::debug!(%path, %error, "no answer while recording");
                found.left_out.insert(key(&path), "the BMC did not answer".to_owned());
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

/// What a resource is known by: its path without the slash at the end.
fn key(path: &str) -> String {
    path.trim_end_matches('/').to_owned()
}

fn recorded(path: &str, reply: &Reply) -> Recorded {
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
    Recorded { status: reply.status.as_u16(), headers, body }
}

/// Takes the members out of a collection.
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

/// The links in a body: every `@odata.id`, the next page, what tells about an action's parameters,
/// and the file of a registry of BIOS settings.
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
                    // Other hosts' resources are none of ours; a fragment points into a resource
                    // that is linked to elsewhere as well.
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
