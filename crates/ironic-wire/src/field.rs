// SPDX-License-Identifier: Apache-2.0
//! The field tables: each row defines one field of one resource.
//!
//! A row determines which versions show the field, whether `fields=` and `sort_key=` accept it, which
//! keys a body may contain and since when, what a patch may change, which columns a request loads,
//! and the JSON schema.

use serde_json::Value;

use crate::context::RenderContext;
use crate::error::{WireError, excerpt};
use crate::value::ValueError;
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// Version of fields that are never shown and exist only in request bodies.
pub const NEVER_SHOWN: u16 = u16::MAX;

/// A resource of the API.
pub trait WireResource: Sized + 'static {
    /// Name in messages: `node`, `deploy template`.
    const KIND: &'static str;
    /// The member of a list response that contains the items, and the last segment of its path.
    const COLLECTION: &'static str;
    /// The path of the collection below `/v1`.
    const PATH: &'static str;
    /// The type that bodies and patches are applied to; `()` for read-only resources.
    type Draft;

    /// The field table.
    fn fields() -> &'static [ResourceField<Self>];

    /// The last path segment of its links, which is also its page marker.
    fn identity(&self) -> ResourceIdentity<'_>;

    /// Checks rules between fields and completes a draft after `changed` fields were set.
    ///
    /// # Errors
    /// If the fields contradict each other.
    fn complete(
        _draft: &mut Self::Draft,
        _changed: &[&'static str],
        _version: ApiVersion,
    ) -> Result<(), WireError> {
        Ok(())
    }
}

/// The identifier of a resource in paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResourceIdentity<'a> {
    /// A UUID.
    Uuid(uuid::Uuid),
    /// A unique name.
    Name(&'a str),
}

/// JSON type of a field, for the schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldShape {
    /// A UUID.
    Uuid,
    /// A string.
    Text,
    /// `true` or `false`.
    Boolean,
    /// An integer.
    Integer,
    /// A timestamp in ISO 8601.
    Timestamp,
    /// A free-form object.
    Object,
    /// An array of strings.
    TextList,
    /// An array of objects.
    ObjectList,
    /// An array of `{href, rel}`.
    Links,
}

/// Writes the value of a field.
pub type FieldWriter<R> = fn(&mut JsonWriter, &R, &RenderContext<'_>);

/// Sets a field of a draft. `null` and removal set the default.
pub type FieldSetter<R> =
    fn(&mut <R as WireResource>::Draft, Value, ApiVersion) -> Result<(), ValueError>;

/// A row of a field table.
pub struct ResourceField<R: WireResource> {
    /// The name.
    pub name: &'static str,
    /// First microversion that shows it.
    pub since: u16,
    /// JSON type of the value.
    pub shape: FieldShape,
    /// Whether the value may be `null`.
    pub nullable: bool,
    /// Writes the value.
    pub write: FieldWriter<R>,
    /// Sets the value, unless the field is read-only.
    pub set: Option<FieldSetter<R>>,
    /// First microversion that accepts it in `POST`.
    pub create: Option<u16>,
    /// Whether older versions reject it in `POST` as unknown (400) instead of as a field of a later
    /// version (406).
    pub unknown_before: bool,
    /// First microversion that accepts it in `PATCH`.
    pub patch: Option<u16>,
    /// Whether it is mandatory in `POST` and cannot be removed.
    pub required: bool,
    /// Whether lists can be sorted by it.
    pub sortable: bool,
    /// Whether lists show it by default.
    pub in_default_list: bool,
    /// The database columns that the value depends on.
    pub columns: &'static [&'static str],
}

impl<R: WireResource> ResourceField<R> {
    /// A read-only field, not sortable, not in default lists.
    #[must_use]
    pub const fn new(
        name: &'static str,
        since: u16,
        shape: FieldShape,
        write: FieldWriter<R>,
    ) -> Self {
        Self {
            name,
            since,
            shape,
            nullable: false,
            write,
            set: None,
            create: None,
            unknown_before: false,
            patch: None,
            required: false,
            sortable: false,
            in_default_list: false,
            columns: &[],
        }
    }

    /// The value may be `null`.
    #[must_use]
    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// Sets the database columns that the value depends on.
    #[must_use]
    pub const fn columns(mut self, columns: &'static [&'static str]) -> Self {
        self.columns = columns;
        self
    }

    /// Lists can be sorted by it.
    #[must_use]
    pub const fn sortable(mut self) -> Self {
        self.sortable = true;
        self
    }

    /// Lists show it by default.
    #[must_use]
    pub const fn listed(mut self) -> Self {
        self.in_default_list = true;
        self
    }

    /// `POST` accepts it from the version that shows it.
    #[must_use]
    pub const fn creatable(mut self, set: FieldSetter<R>) -> Self {
        self.create = Some(self.since);
        self.set = Some(set);
        self
    }

    /// `POST` and `PATCH` accept it from the version that shows it.
    #[must_use]
    pub const fn writable(mut self, set: FieldSetter<R>) -> Self {
        self.create = Some(self.since);
        self.patch = Some(self.since);
        self.set = Some(set);
        self
    }

    /// Only `PATCH` accepts it.
    #[must_use]
    pub const fn patchable(mut self, set: FieldSetter<R>) -> Self {
        self.patch = Some(self.since);
        self.set = Some(set);
        self
    }

    /// `POST` accepts it from `since` on; it is never shown.
    #[must_use]
    pub const fn create_only(
        name: &'static str,
        since: u16,
        shape: FieldShape,
        set: FieldSetter<R>,
    ) -> Self {
        let mut field = Self::new(name, NEVER_SHOWN, shape, |writer, _, _| writer.null());
        field.create = Some(since);
        field.set = Some(set);
        field
    }

    /// Versions that do not accept it in `POST` reject it as an unknown name.
    #[must_use]
    pub const fn unknown_before(mut self) -> Self {
        self.unknown_before = true;
        self
    }

    /// `PATCH` accepts it from `since` on, unlike `POST`.
    #[must_use]
    pub const fn patchable_since(mut self, since: u16) -> Self {
        self.patch = Some(since);
        self
    }

    /// It is mandatory in `POST` and cannot be removed.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

/// The fields that a response shows.
#[derive(Debug)]
pub struct FieldSelection<R: WireResource> {
    pub(crate) fields: Vec<&'static ResourceField<R>>,
}

impl<R: WireResource> std::fmt::Debug for ResourceField<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl<R: WireResource> FieldSelection<R> {
    /// All fields of `version`.
    #[must_use]
    pub fn detail(version: ApiVersion) -> Self {
        Self::filtered(|field| version.has(field.since))
    }

    /// The fields that lists show by default.
    #[must_use]
    pub fn default_list(version: ApiVersion) -> Self {
        Self::filtered(|field| field.in_default_list && version.has(field.since))
    }

    /// The fields named in `fields=`, and the links, which are always shown.
    ///
    /// # Errors
    /// 400 for unknown names, 406 for fields of a later version.
    pub fn named<S: AsRef<str>>(names: &[S], version: ApiVersion) -> Result<Self, WireError> {
        let shown = || R::fields().iter().filter(|field| field.since != NEVER_SHOWN);
        let unknown: Vec<String> = names
            .iter()
            .map(AsRef::as_ref)
            .filter(|name| !shown().any(|field| field.name == *name))
            .map(excerpt)
            .collect();
        if !unknown.is_empty() {
            return Err(WireError::invalid(format!(
                "Field(s) \"{}\" are not valid for a {}",
                unknown.join(", "),
                R::KIND
            )));
        }
        let is_named =
            |field: &ResourceField<R>| names.iter().any(|name| name.as_ref() == field.name);
        if let Some(field) = shown().find(|field| is_named(field) && !version.has(field.since)) {
            return Err(WireError::too_new(field.name, field.since));
        }
        Ok(Self::filtered(|field| {
            version.has(field.since) && (is_named(field) || field.name == "links")
        }))
    }

    /// The database columns of the selected fields, without duplicates.
    #[must_use]
    pub fn columns(&self) -> Vec<&'static str> {
        let mut columns: Vec<&'static str> = Vec::with_capacity(self.fields.len());
        for column in self.fields.iter().flat_map(|field| field.columns) {
            if !columns.contains(column) {
                columns.push(column);
            }
        }
        columns
    }

    /// The names of the selected fields.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.fields.iter().map(|field| field.name)
    }

    /// Whether the field `name` is selected. For values that are expensive to compute.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        self.names().any(|field| field == name)
    }

    /// Writes a resource as a JSON object.
    pub fn write(&self, writer: &mut JsonWriter, resource: &R, context: &RenderContext<'_>) {
        writer.begin_object();
        for field in &self.fields {
            writer.key(field.name);
            (field.write)(writer, resource, context);
        }
        writer.end_object();
    }

    /// A resource as a response body.
    #[must_use]
    pub fn body(&self, resource: &R, context: &RenderContext<'_>) -> Vec<u8> {
        let mut writer = JsonWriter::with_capacity(64 * self.fields.len());
        self.write(&mut writer, resource, context);
        writer.into_bytes()
    }

    fn filtered(condition: impl Fn(&ResourceField<R>) -> bool) -> Self {
        let mut fields = Vec::with_capacity(R::fields().len());
        fields.extend(
            R::fields().iter().filter(|field| field.since != NEVER_SHOWN && condition(field)),
        );
        Self { fields }
    }
}

/// The field with this name.
pub(crate) fn find_field<R: WireResource>(name: &str) -> Option<&'static ResourceField<R>> {
    R::fields().iter().find(|field| field.name == name)
}
