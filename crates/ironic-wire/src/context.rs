// SPDX-License-Identifier: Apache-2.0
//! Rendering context: the microversion, the base URL, and the conductor of each node.

use node_model::Node;

use crate::field::ResourceIdentity;
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// Returns the conductor of a node.
pub type ConductorLookup<'a> = dyn Fn(&Node) -> Option<&'a str> + Sync + 'a;

/// Parameters for rendering one response.
pub struct RenderContext<'a> {
    /// The microversion of the response.
    pub version: ApiVersion,
    conductor_of: Option<&'a ConductorLookup<'a>>,
    base: String,
    /// `[{"href":"<base>/v1/`, precomputed.
    before_self: String,
    /// `","rel":"self"},{"href":"<base>/`.
    before_bookmark: String,
}

impl<'a> RenderContext<'a> {
    /// A context for `version` with this base URL, which has no trailing slash.
    #[must_use]
    pub fn new(version: ApiVersion, base_url: &str) -> Self {
        let mut escaped = JsonWriter::default();
        escaped.escaped(base_url);
        let base = escaped.into_string();
        Self {
            version,
            conductor_of: None,
            before_self: format!(r#"[{{"href":"{base}/v1/"#),
            before_bookmark: format!(r#"","rel":"self"}},{{"href":"{base}/"#),
            base,
        }
    }

    /// Adds the lookup of conductors.
    #[must_use]
    pub fn with_conductors<'b>(self, conductor_of: &'b ConductorLookup<'b>) -> RenderContext<'b> {
        RenderContext { conductor_of: Some(conductor_of), ..self }
    }

    /// The conductor of `node`.
    #[must_use]
    pub fn conductor_of(&self, node: &Node) -> Option<&'a str> {
        self.conductor_of.and_then(|conductor_of| conductor_of(node))
    }

    /// The base URL, escaped for a JSON string.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Writes the pair of links to `/{path}/{id}{suffix}`.
    pub fn links(
        &self,
        writer: &mut JsonWriter,
        path: &str,
        id: ResourceIdentity<'_>,
        suffix: &str,
    ) {
        let write_path = |writer: &mut JsonWriter| {
            writer.raw(path);
            writer.raw("/");
            match id {
                ResourceIdentity::Uuid(id) => writer.raw_uuid(id),
                ResourceIdentity::Name(name) => writer.escaped(name),
            }
            writer.raw(suffix);
        };
        writer.raw(&self.before_self);
        write_path(writer);
        writer.raw(&self.before_bookmark);
        write_path(writer);
        writer.raw(r#"","rel":"bookmark"}]"#);
    }

    /// Writes the pair of links to a path without an id, such as `nodes/`.
    pub fn collection_links(&self, writer: &mut JsonWriter, path: &str) {
        writer.raw(&self.before_self);
        writer.escaped(path);
        writer.raw(&self.before_bookmark);
        writer.escaped(path);
        writer.raw(r#"","rel":"bookmark"}]"#);
    }
}
