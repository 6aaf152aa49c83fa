// SPDX-License-Identifier: Apache-2.0
//! Images of nodes, and the content of the image cache.

use std::collections::BTreeMap;

use node_model::{Node, Timestamp};
use serde_json::{Value, json};
use store::{Columns, NodeColumn, NodeFilter, ResourceQuery, StoreReader};

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, UNVERSIONED};

/// Maximum number of images in a response.
const MAX_IMAGES: usize = 500;
/// Maximum number of node names per image.
const MAX_NAMES: usize = 5;

pub(crate) const ROUTES: &[ApiRoute] = &[ApiRoute::get(
    "/v1/ferrite/images",
    "List the images of nodes and the images in the cache",
    handler!(images),
)
.rule("ferrite:image:get")
.since(UNVERSIONED)];

/// The nodes with an image.
#[derive(Default)]
struct ImageUsers {
    nodes: u64,
    active: u64,
    names: Vec<String>,
    checksum: Option<String>,
    is_shortened: bool,
}

async fn images(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let used = request.app.store.scan(images_in_use).await?;
    let count = used.len();
    let mut used: Vec<_> = used.into_iter().collect();
    used.sort_by(|(a, one), (b, other)| other.nodes.cmp(&one.nodes).then_with(|| a.cmp(b)));
    used.truncate(MAX_IMAGES);
    let in_use: Vec<Value> = used
        .into_iter()
        .map(|(source, users)| {
            json!({
                "source": source,
                "is_shortened": users.is_shortened,
                "checksum": users.checksum,
                "nodes": users.nodes,
                "active": users.active,
                "node_names": users.names,
            })
        })
        .collect();
    let cache = match request.app.boot.clone() {
        None => None,
        // Reads the file system.
        Some(boot) => tokio::task::spawn_blocking(move || cache_json(&boot)).await.ok(),
    };
    let body = json!({"in_use": in_use, "count": count, "cache": cache});
    Ok(ApiResponse::ok_value(&body))
}

fn cache_json(boot: &boot_plans::BootServices) -> Value {
    let cache = boot.cached_images();
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
    json!({"used": cache.used, "limit": cache.max_bytes, "images": images})
}

fn images_in_use(reader: &mut StoreReader<'_>) -> Result<BTreeMap<String, ImageUsers>, ApiError> {
    let mut used: BTreeMap<String, ImageUsers> = BTreeMap::new();
    let select = Columns::only(&[
        NodeColumn::Uuid,
        NodeColumn::Name,
        NodeColumn::ProvisionState,
        NodeColumn::InstanceInfo,
    ]);
    let query: ResourceQuery<Node> = ResourceQuery {
        filter: NodeFilter::default(),
        page: store::ResourcePage::default(),
        select,
    };
    reader.list(&query, |node| {
        // Parsing is expensive: skip nodes without an image.
        if !node.instance_info.as_str().contains("\"image_source\"") {
            return;
        }
        let info = node.instance_info.parse();
        let text = |name: &str| info.get(name).and_then(Value::as_str).map(str::to_owned);
        let Some(source) = text("image_source") else { return };
        let (visible, is_shortened) = without_secrets(&source);
        let users = used.entry(visible).or_default();
        users.nodes += 1;
        users.is_shortened |= is_shortened;
        users.active += u64::from(node.provision_state == node_model::ProvisionState::Active);
        if users.names.len() < MAX_NAMES {
            users.names.push(node.name.clone().unwrap_or_else(|| node.id.to_string()));
        }
        users.checksum = users
            .checksum
            .take()
            .or_else(|| text("image_checksum"))
            .or_else(|| text("image_os_hash_value"));
    })?;
    Ok(used)
}

/// Removes credentials and query from a URL, which contain passwords and signatures. The second result
/// is true if something was removed.
pub(super) fn without_secrets(source: &str) -> (String, bool) {
    let (start, query) = source.split_once('?').map_or((source, None), |(a, b)| (a, Some(b)));
    let Some((scheme, rest)) = start.split_once("://") else {
        return (start.to_owned(), query.is_some());
    };
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(a, b)| (a, Some(b)));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let mut visible = format!("{scheme}://{host}");
    if let Some(path) = path {
        visible.push('/');
        visible.push_str(path);
    }
    (visible, query.is_some() || host.len() != authority.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_passwords_and_signatures() {
        for (source, visible, is_shortened) in [
            ("http://a/b.raw", "http://a/b.raw", false),
            ("https://me:secret@a:8/b@c.raw", "https://a:8/b@c.raw", true),
            ("https://a/b.raw?sig=secret", "https://a/b.raw", true),
            ("https://me@a", "https://a", true),
            ("oci://r.example/os:1", "oci://r.example/os:1", false),
            ("1b2c", "1b2c", false),
        ] {
            assert_eq!(without_secrets(source), (visible.to_owned(), is_shortened), "{source}");
        }
    }
}
