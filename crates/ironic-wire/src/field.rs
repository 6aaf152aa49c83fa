// SPDX-License-Identifier: Apache-2.0
//! The field tables: one row says everything about one field of one resource.
//!
//! A row drives what a version shows, what `fields=` and `sort_key=` accept, which keys a body may
//! hold and from when, what a patch may touch, which columns a request needs, and the JSON schema.
//! There is no second place to forget.

use serde_json::Value;

use crate::context::Context;
use crate::error::{WireError, excerpt};
use crate::value::Problem;
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// The version of fields that are never shown: they only exist in request bodies.
pub const NEVER_SHOWN: u16 = u16::MAX;

/// A kind of thing the API shows.
pub trait Resource: Sized + 'static {
    /// What it is called in messages: `node`, `deploy template`.
    const KIND: &'static str;
    /// The member of a list response that holds the items, and the last part of its path.
    const COLLECTION: &'static str;
    /// The path of the collection below `/v1`.
    const PATH: &'static str;
    /// What is being put together from a body or a patch; `()` where nothing can be written.
    type Draft;

    /// Its field table.
    fn fields() -> &'static [Field<Self>];

    /// What follows the path in its links, and what a marker names it by.
    fn identity(&self) -> Identity<'_>;

    /// Checks and completes a draft after `changed` fields were set. For rules between fields.
    ///
    /// # Errors
    /// When the fields do not go together.
    fn complete(
        _draft: &mut Self::Draft,
        _changed: &[&'static str],
        _version: ApiVersion,
    ) -> Result<(), WireError> {
        Ok(())
    }
}

/// What a resource is found by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity<'a> {
    /// Its UUID.
    Uuid(uuid::Uuid),
    /// Its unique name.
    Name(&'a str),
}

/// What the value of a field looks like, for the JSON schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// A UUID.
    Uuid,
    /// Text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Integer,
    /// A moment, ISO 8601.
    Moment,
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
pub type Write<R> = fn(&mut JsonWriter, &R, &Context<'_>);

/// Puts the value of a field into a draft. `null` and removal mean the default.
pub type Set<R> = fn(&mut <R as Resource>::Draft, Value, ApiVersion) -> Result<(), Problem>;

/// A row of a field table.
pub struct Field<R: Resource> {
    /// Its name.
    pub name: &'static str,
    /// The first microversion that shows it.
    pub since: u16,
    /// What its value looks like.
    pub shape: Shape,
    /// Whether its value may be `null`.
    pub nullable: bool,
    /// Writes its value.
    pub write: Write<R>,
    /// Sets its value, where that is possible.
    pub set: Option<Set<R>>,
    /// The first microversion that takes it in `POST`.
    pub create: Option<u16>,
    /// Whether versions that do not take it in `POST` yet refuse it as they refuse any name they
    /// do not know, rather than as a field of a later version.
    pub unknown_before: bool,
    /// The first microversion that takes it in `PATCH`.
    pub patch: Option<u16>,
    /// Whether it must be given in `POST` and cannot be removed.
    pub required: bool,
    /// Whether lists can be sorted by it.
    pub sortable: bool,
    /// Whether lists show it when nothing is asked for.
    pub in_default_list: bool,
    /// The columns its value is made of.
    pub needs: &'static [&'static str],
}

impl<R: Resource> Field<R> {
    /// A read-only field, not sortable, not in default lists.
    #[must_use]
    pub const fn new(name: &'static str, since: u16, shape: Shape, write: Write<R>) -> Self {
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
            needs: &[],
        }
    }

    /// Its value may be `null`.
    #[must_use]
    pub const fn nullable(mut self) -> Self {
        self.nullable = true;
        self
    }

    /// The columns its value is made of.
    #[must_use]
    pub const fn needs(mut self, columns: &'static [&'static str]) -> Self {
        self.needs = columns;
        self
    }

    /// Lists can be sorted by it.
    #[must_use]
    pub const fn sortable(mut self) -> Self {
        self.sortable = true;
        self
    }

    /// Lists show it when nothing is asked for.
    #[must_use]
    pub const fn listed(mut self) -> Self {
        self.in_default_list = true;
        self
    }

    /// It can be given in `POST` from the version on that shows it.
    #[must_use]
    pub const fn created(mut self, set: Set<R>) -> Self {
        self.create = Some(self.since);
        self.set = Some(set);
        self
    }

    /// It can be given in `POST` and changed by `PATCH` from the version on that shows it.
    #[must_use]
    pub const fn written(mut self, set: Set<R>) -> Self {
        self.create = Some(self.since);
        self.patch = Some(self.since);
        self.set = Some(set);
        self
    }

    /// It can be changed by `PATCH` only.
    #[must_use]
    pub const fn patched(mut self, set: Set<R>) -> Self {
        self.patch = Some(self.since);
        self.set = Some(set);
        self
    }

    /// It can be given in `POST` from `since` on, and is never shown.
    #[must_use]
    pub const fn only_created(name: &'static str, since: u16, shape: Shape, set: Set<R>) -> Self {
        let mut field = Self::new(name, NEVER_SHOWN, shape, |writer, _, _| writer.null());
        field.create = Some(since);
        field.set = Some(set);
        field
    }

    /// Versions that do not take it in `POST` yet do not know its name.
    #[must_use]
    pub const fn unknown_before(mut self) -> Self {
        self.unknown_before = true;
        self
    }

    /// It can be changed by `PATCH` from `since` on, which is not when it can be given in `POST`.
    #[must_use]
    pub const fn patched_since(mut self, since: u16) -> Self {
        self.patch = Some(since);
        self
    }

    /// It must be given in `POST` and cannot be removed.
    #[must_use]
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }
}

/// The fields one request shows, worked out once.
#[derive(Debug)]
pub struct Selection<R: Resource> {
    pub(crate) fields: Vec<&'static Field<R>>,
}

impl<R: Resource> std::fmt::Debug for Field<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl<R: Resource> Selection<R> {
    /// Everything `version` shows.
    #[must_use]
    pub fn detail(version: ApiVersion) -> Self {
        Self::of(|field| version.has(field.since))
    }

    /// What a list shows when nothing is asked for.
    #[must_use]
    pub fn default_list(version: ApiVersion) -> Self {
        Self::of(|field| field.in_default_list && version.has(field.since))
    }

    /// The fields named in `fields=`, and the links, which are always shown.
    ///
    /// # Errors
    /// 400 for names that do not exist, 406 for those of a later version.
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
        let asked = |field: &Field<R>| names.iter().any(|name| name.as_ref() == field.name);
        if let Some(field) = shown().find(|field| asked(field) && !version.has(field.since)) {
            return Err(WireError::too_new(field.name, field.since));
        }
        Ok(Self::of(|field| version.has(field.since) && (asked(field) || field.name == "links")))
    }

    /// The columns needed to show this selection, each once.
    #[must_use]
    pub fn needs(&self) -> Vec<&'static str> {
        let mut columns: Vec<&'static str> = Vec::with_capacity(self.fields.len());
        for column in self.fields.iter().flat_map(|field| field.needs) {
            if !columns.contains(column) {
                columns.push(column);
            }
        }
        columns
    }

    /// The names of the fields shown.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.fields.iter().map(|field| field.name)
    }

    /// Whether `name` is shown: for values that cost something to come by.
    #[must_use]
    pub fn shows(&self, name: &str) -> bool {
        self.names().any(|field| field == name)
    }

    /// Writes one resource.
    pub fn write(&self, writer: &mut JsonWriter, resource: &R, context: &Context<'_>) {
        writer.begin_object();
        for field in &self.fields {
            writer.key(field.name);
            (field.write)(writer, resource, context);
        }
        writer.end_object();
    }

    /// One resource as a response body.
    #[must_use]
    pub fn body(&self, resource: &R, context: &Context<'_>) -> Vec<u8> {
        let mut writer = JsonWriter::with_capacity(64 * self.fields.len());
        self.write(&mut writer, resource, context);
        writer.into_bytes()
    }

    fn of(wanted: impl Fn(&Field<R>) -> bool) -> Self {
        let mut fields = Vec::with_capacity(R::fields().len());
        fields
            .extend(R::fields().iter().filter(|field| field.since != NEVER_SHOWN && wanted(field)));
        Self { fields }
    }
}

/// The field of that name.
pub(crate) fn find<R: Resource>(name: &str) -> Option<&'static Field<R>> {
    R::fields().iter().find(|field| field.name == name)
}
