// SPDX-License-Identifier: Apache-2.0
//! The documents at `/` and `/v1`.

use crate::context::RenderContext;
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// Documentation of the API.
const DOCUMENTATION: &str = "https://docs.openstack.org/ironic/latest/contributor/webapi.html";

/// The collections in `GET /v1` and their first versions.
pub const V1_COLLECTIONS: &[(&str, u16)] = &[
    ("chassis", 1),
    ("nodes", 1),
    ("ports", 1),
    ("drivers", 1),
    ("lookup", 22),
    ("heartbeat", 22),
    ("portgroups", 23),
    ("volume", 32),
    ("conductors", 49),
    ("allocations", 52),
    ("events", 54),
    ("deploy_templates", 55),
    ("shards", 82),
    ("continue_inspection", 84),
    ("runbooks", 92),
    ("inspection_rules", 96),
];

/// The body of `GET /`.
///
/// `name` is Ironic's, because clients identify the service by it.
#[must_use]
pub fn root_body(context: &RenderContext<'_>) -> Vec<u8> {
    let mut w = JsonWriter::with_capacity(512);
    w.begin_object();
    w.key("name");
    w.string("OpenStack Ironic API");
    w.key("description");
    w.string("Ferrite: bare metal provisioning with the OpenStack Ironic API.");
    w.key("default_version");
    write_version(&mut w, context);
    w.key("versions");
    w.begin_array();
    write_version(&mut w, context);
    w.end_array();
    w.end_object();
    w.into_bytes()
}

/// The body of `GET /v1`.
#[must_use]
pub fn v1_body(context: &RenderContext<'_>) -> Vec<u8> {
    let mut w = JsonWriter::with_capacity(4096);
    w.begin_object();
    w.key("id");
    w.string("v1");
    w.key("links");
    w.begin_array();
    write_self_link(&mut w, context);
    w.element();
    w.begin_object();
    w.key("href");
    w.string(DOCUMENTATION);
    w.key("rel");
    w.string("describedby");
    w.key("type");
    w.string("text/html");
    w.end_object();
    w.end_array();
    w.key("media_types");
    w.begin_object();
    w.key("base");
    w.string("application/json");
    w.key("type");
    w.string("application/vnd.openstack.ironic.v1+json");
    w.end_object();
    w.key("version");
    write_version(&mut w, context);
    for (collection, _) in V1_COLLECTIONS.iter().filter(|(_, since)| context.version.has(*since)) {
        w.key(collection);
        context.collection_links(&mut w, &format!("{collection}/"));
    }
    w.end_object();
    w.into_bytes()
}

/// The body of `GET /v1/volume`, or of `GET /v1/nodes/{node}/volume` when `node` is given.
#[must_use]
pub fn volume_body(context: &RenderContext<'_>, node: Option<&str>) -> Vec<u8> {
    let path = node.map_or_else(|| "volume".to_owned(), |node| format!("nodes/{node}/volume"));
    let mut w = JsonWriter::with_capacity(1024);
    w.begin_object();
    for (key, suffix) in [("links", "/"), ("connectors", "/connectors"), ("targets", "/targets")] {
        w.key(key);
        context.collection_links(&mut w, &format!("{path}{suffix}"));
    }
    w.end_object();
    w.into_bytes()
}

/// The body of `GET /v1/shards`. Nodes without a shard are counted under the name `None`.
#[must_use]
pub fn shards_body(shards: &[(Option<String>, u64)]) -> Vec<u8> {
    let mut w = JsonWriter::with_capacity(64 * shards.len());
    w.begin_object();
    w.key("shards");
    w.begin_array();
    for (name, count) in shards {
        w.element();
        w.begin_object();
        w.key("name");
        w.string(name.as_deref().unwrap_or("None"));
        w.key("count");
        w.integer(i64::try_from(*count).unwrap_or(i64::MAX));
        w.end_object();
    }
    w.end_array();
    w.end_object();
    w.into_bytes()
}

fn write_version(w: &mut JsonWriter, context: &RenderContext<'_>) {
    w.begin_object();
    w.key("id");
    w.string("v1");
    w.key("links");
    w.begin_array();
    write_self_link(w, context);
    w.end_array();
    w.key("status");
    w.string("CURRENT");
    w.key("min_version");
    w.string(&ApiVersion::MIN.to_string());
    w.key("version");
    w.string(&ApiVersion::MAX.to_string());
    w.end_object();
}

fn write_self_link(w: &mut JsonWriter, context: &RenderContext<'_>) {
    w.element();
    w.begin_object();
    w.key("href");
    w.raw("\"");
    w.raw(context.base());
    w.raw("/v1/\"");
    w.key("rel");
    w.string("self");
    w.end_object();
}
