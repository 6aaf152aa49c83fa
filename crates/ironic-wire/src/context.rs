// SPDX-License-Identifier: Apache-2.0
//! What rendering needs to know besides the resource: the version, where we are reached, and who
//! looks after a node.

use node_model::Node;

use crate::field::Identity;
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// Tells which conductor looks after a node.
pub type ConductorOf<'a> = dyn Fn(&Node) -> Option<&'a str> + Sync + 'a;

/// The surroundings of one response.
pub struct Context<'a> {
    /// The version to render at.
    pub version: ApiVersion,
    conductor_of: Option<&'a ConductorOf<'a>>,
    base: String,
    /// `[{"href":"<base>/v1/`, so that a link is a few copies.
    before_self: String,
    /// `","rel":"self"},{"href":"<base>/`.
    before_bookmark: String,
}

impl<'a> Context<'a> {
    /// Rendering at `version` for clients that reach us at `base_url` (no slash at its end).
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

    /// The same, knowing who looks after each node.
    #[must_use]
    pub fn with_conductors<'b>(self, conductor_of: &'b ConductorOf<'b>) -> Context<'b> {
        Context { conductor_of: Some(conductor_of), ..self }
    }

    /// The conductor that looks after `node`.
    #[must_use]
    pub fn conductor_of(&self, node: &Node) -> Option<&'a str> {
        self.conductor_of.and_then(|conductor_of| conductor_of(node))
    }

    /// Where clients reach us, as it stands inside a JSON string.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Writes the pair of links to `/{path}/{id}{suffix}`.
    pub fn links(&self, writer: &mut JsonWriter, path: &str, id: Identity<'_>, suffix: &str) {
        let place = |writer: &mut JsonWriter| {
            writer.bare(path);
            writer.bare("/");
            match id {
                Identity::Uuid(id) => writer.bare_uuid(id),
                Identity::Name(name) => writer.escaped(name),
            }
            writer.bare(suffix);
        };
        writer.bare(&self.before_self);
        place(writer);
        writer.bare(&self.before_bookmark);
        place(writer);
        writer.bare(r#"","rel":"bookmark"}]"#);
    }

    /// Writes the pair of links to a place without an id, such as `nodes/`.
    pub fn place_links(&self, writer: &mut JsonWriter, path: &str) {
        writer.bare(&self.before_self);
        writer.escaped(path);
        writer.bare(&self.before_bookmark);
        writer.escaped(path);
        writer.bare(r#"","rel":"bookmark"}]"#);
    }
}
