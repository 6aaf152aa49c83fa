// SPDX-License-Identifier: Apache-2.0
//! Which images machines were deployed with, and which are kept here to be given out.

use std::collections::BTreeMap;

use node_model::{Node, Timestamp};
use serde_json::{Value, json};
use store::{Columns, NodeColumn, NodeFilter, Query, Reader};

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, UNVERSIONED};

/// How many images are told of: more is a list nobody reads.
const MOST: usize = 500;
/// How many nodes of an image are named.
const NAMED: usize = 5;

pub(crate) const ROUTES: &[Route] = &[Route::get(
    "/v1/ferrite/images",
    "List the images that nodes have, and those that are kept here",
    handler!(images),
)
.since(UNVERSIONED)];

/// The nodes that have an image.
#[derive(Default)]
struct Users {
    nodes: u64,
    active: u64,
    named: Vec<String>,
    checksum: Option<String>,
    is_shortened: bool,
}

async fn images(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let used = call.app.store.scan(used).await?;
    let count = used.len();
    let mut used: Vec<_> = used.into_iter().collect();
    used.sort_by(|(a, one), (b, other)| other.nodes.cmp(&one.nodes).then_with(|| a.cmp(b)));
    used.truncate(MOST);
    let in_use: Vec<Value> = used
        .into_iter()
        .map(|(source, users)| {
            json!({
                "source": source,
                "is_shortened": users.is_shortened,
                "checksum": users.checksum,
                "nodes": users.nodes,
                "active": users.active,
                "some": users.named,
            })
        })
        .collect();
    let cache = match call.app.boot.clone() {
        None => None,
        // It looks at files.
        Some(boot) => tokio::task::spawn_blocking(move || kept_here(&boot)).await.ok(),
    };
    let body = json!({"in_use": in_use, "count": count, "cache": cache});
    Ok(Reply::ok(body.to_string().into_bytes()))
}

fn kept_here(boot: &boot_plans::BootServices) -> Value {
    let cache = boot.images_kept();
    let images: Vec<Value> = cache
        .images
        .iter()
        .map(|image| {
            json!({
                "sha256": image.sha256,
                "format": image.format.map(|format| format.to_string()),
                "size": image.size,
                "on_disk": image.allocated,
                "last_used_at": image.last_used.map(|at| Timestamp::from_secs(at).to_string()),
                "in_use": image.in_use,
            })
        })
        .collect();
    json!({"used": cache.used, "bound": cache.bound, "images": images})
}

fn used(reader: &mut Reader<'_>) -> Result<BTreeMap<String, Users>, Refusal> {
    let mut used: BTreeMap<String, Users> = BTreeMap::new();
    let select = Columns::of(&[
        NodeColumn::Uuid,
        NodeColumn::Name,
        NodeColumn::ProvisionState,
        NodeColumn::InstanceInfo,
    ]);
    let query: Query<Node> =
        Query { filter: NodeFilter::default(), page: store::Page::default(), select };
    reader.list(&query, |node| {
        // Machines without an instance need no parsing.
        if !node.instance_info.as_str().contains("\"image_source\"") {
            return;
        }
        let info = node.instance_info.parse();
        let text = |name: &str| info.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(source) = text("image_source") else { return };
        let (shown, is_shortened) = without_secrets(&source);
        let users = used.entry(shown).or_default();
        users.nodes += 1;
        users.is_shortened |= is_shortened;
        users.active += u64::from(node.provision_state == node_model::ProvisionState::Active);
        if users.named.len() < NAMED {
            users.named.push(node.name.clone().unwrap_or_else(|| node.id.to_string()));
        }
        users.checksum = users
            .checksum
            .take()
            .or_else(|| text("image_checksum"))
            .or_else(|| text("image_os_hash_value"));
    })?;
    Ok(used)
}

/// A URL without what is between `//` and `@`, and without its query: passwords and signatures are
/// there. Says whether something was left out.
fn without_secrets(source: &str) -> (String, bool) {
    let (start, query) = source.split_once('?').map_or((source, None), |(a, b)| (a, Some(b)));
    let Some((scheme, rest)) = start.split_once("://") else {
        return (start.to_owned(), query.is_some());
    };
    let (place, path) = rest.split_once('/').map_or((rest, None), |(a, b)| (a, Some(b)));
    let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
    let mut shown = format!("{scheme}://{host}");
    if let Some(path) = path {
        shown.push('/');
        shown.push_str(path);
    }
    (shown, query.is_some() || host.len() != place.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_and_signatures_are_left_out() {
        for (source, shown, is_shortened) in [
            ("http://a/b.raw", "http://a/b.raw", false),
            ("https://me:secret@a:8/b@c.raw", "https://a:8/b@c.raw", true),
            ("https://a/b.raw?sig=secret", "https://a/b.raw", true),
            ("https://me@a", "https://a", true),
            ("oci://r.example/os:1", "oci://r.example/os:1", false),
            ("1b2c", "1b2c", false),
        ] {
            assert_eq!(without_secrets(source), (shown.to_owned(), is_shortened), "{source}");
        }
    }
}
