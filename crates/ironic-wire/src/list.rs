// SPDX-License-Identifier: Apache-2.0
//! Query strings of collections, and the envelope of lists.
//!
//! Each collection has a table of the parameters it knows, from which version on, and what their
//! values must look like. What comes out is checked; handlers only look up what they need.

use std::fmt::Write as _;

use node_model::{Fault, Mac, ProvisionState};
use uuid::Uuid;

use crate::context::Context;
use crate::error::{WireError, excerpt};
use crate::field::{Field, Identity, NEVER_SHOWN, Resource, Selection, find};
use crate::value::{flag_from_word, uuid_from_text};
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// The key lists are sorted by when nothing is asked for: the order of creation.
pub const BY_CREATION: &str = "id";

/// What the value of a parameter must look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// Anything.
    Text,
    /// A boolean word.
    Flag,
    /// A UUID.
    Uuid,
    /// A hardware address.
    Mac,
    /// Texts separated by commas.
    TextList,
    /// The name of a provision state.
    ProvisionState,
    /// The name of a fault.
    Fault,
    /// The number of items.
    Limit,
    /// The last item of the page before: a UUID.
    Marker,
    /// The last item of the page before: a name.
    NameMarker,
    /// The field to sort by.
    SortKey,
    /// `asc` or `desc`.
    SortDirection,
    /// The fields to show.
    Fields,
    /// Whether to show all fields.
    Detail,
}

/// A parameter of a collection.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// The first microversion that takes it.
    pub since: u16,
    /// The status older versions answer with.
    pub too_old: u16,
    /// What its value must look like.
    pub kind: ParamKind,
}

impl Param {
    /// A parameter that older versions refuse with 406.
    #[must_use]
    pub const fn new(name: &'static str, since: u16, kind: ParamKind) -> Self {
        Self { name, since, too_old: 406, kind }
    }

    /// The same, but older versions refuse it with 400.
    #[must_use]
    pub const fn refused_with_400(mut self) -> Self {
        self.too_old = 400;
        self
    }
}

/// The parameters of a collection.
pub type Params = &'static [Param];

/// A checked query string of a collection of `R`.
#[derive(Debug)]
pub struct ListQuery<R: Resource> {
    /// How many items at most.
    pub limit: u32,
    /// The last item of the page before.
    pub marker: Option<String>,
    /// The field to sort by, or [`BY_CREATION`].
    pub sort_key: &'static str,
    /// The column to sort by, or [`BY_CREATION`].
    pub sort_column: &'static str,
    /// Whether the order is reversed.
    pub descending: bool,
    /// What to show.
    pub selection: Selection<R>,
    filters: Vec<(&'static str, String)>,
    fields: Option<String>,
    detail: bool,
}

impl<R: Resource> ListQuery<R> {
    /// Reads decoded pairs. `whole` is for paths that always show everything (`…/detail`, and
    /// collections without a short form).
    ///
    /// # Errors
    /// 400 for what is unknown or wrong, 406 for what is of a later version.
    pub fn parse(
        params: Params,
        pairs: &[(String, String)],
        version: ApiVersion,
        max_limit: u32,
        whole: bool,
    ) -> Result<Self, WireError> {
        let known = |name: &str| params.iter().find(|param| param.name == name);
        let unknown: Vec<&str> = pairs
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| known(name).is_none())
            .collect();
        if !unknown.is_empty() {
            return Err(WireError::unexpected(&unknown));
        }

        let mut query = Self {
            limit: max_limit,
            marker: None,
            sort_key: BY_CREATION,
            sort_column: BY_CREATION,
            descending: false,
            selection: Selection { fields: Vec::new() },
            filters: Vec::new(),
            fields: None,
            detail: false,
        };
        for (name, value) in pairs {
            let Some(param) = known(name) else { continue };
            if !version.has(param.since) {
                return Err(match param.too_old {
                    400 => WireError::unexpected(&[param.name]),
                    _ => WireError::too_new(param.name, param.since),
                });
            }
            query.take(param, value, version, max_limit)?;
        }
        query.selection = query.select(version, whole)?;
        Ok(query)
    }

    /// The value of a text filter.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.filters.iter().find(|(filter, _)| *filter == name).map(|(_, value)| value.as_str())
    }

    /// The value of a boolean filter.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).and_then(|word| flag_from_word(word).ok())
    }

    /// The value of a UUID filter.
    #[must_use]
    pub fn uuid(&self, name: &str) -> Option<Uuid> {
        self.text(name).and_then(|text| Uuid::try_parse(text).ok())
    }

    /// The value of a hardware address filter, in its normal form.
    #[must_use]
    pub fn mac(&self, name: &str) -> Option<Mac> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    /// The values of a filter that takes several.
    #[must_use]
    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        self.text(name).map(|list| list.split(',').map(str::trim).collect())
    }

    /// The value of a provision state filter.
    #[must_use]
    pub fn provision_state(&self, name: &str) -> Option<ProvisionState> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    /// The value of a fault filter.
    #[must_use]
    pub fn fault(&self, name: &str) -> Option<Fault> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    /// Whether everything was asked for.
    #[must_use]
    pub fn is_detail(&self) -> bool {
        self.detail
    }

    /// Where the next page is: after `last`, below `path` (such as `nodes/detail`).
    #[must_use]
    pub fn next_link(&self, context: &Context<'_>, path: &str, last: Identity<'_>) -> String {
        let direction = if self.descending { "desc" } else { "asc" };
        let mut url =
            format!("{}/v1/{path}?sort_key={}&sort_dir={direction}", context.base(), self.sort_key);
        let add = |url: &mut String, name: &str, value: &str| {
            let _ = write!(url, "&{name}=");
            percent_encode(url, value);
        };
        for (name, value) in &self.filters {
            add(&mut url, name, value);
        }
        if let Some(fields) = &self.fields {
            add(&mut url, "fields", fields);
        }
        if self.detail {
            add(&mut url, "detail", "True");
        }
        let _ = write!(url, "&limit={}&marker=", self.limit);
        match last {
            Identity::Uuid(id) => {
                let _ = write!(url, "{id}");
            }
            Identity::Name(name) => percent_encode(&mut url, name),
        }
        url
    }

    fn take(
        &mut self,
        param: &Param,
        value: &str,
        version: ApiVersion,
        max_limit: u32,
    ) -> Result<(), WireError> {
        let wrong = |problem: crate::value::Problem| problem.in_field(param.name);
        match param.kind {
            ParamKind::Text | ParamKind::TextList => {}
            ParamKind::Flag => {
                flag_from_word(value).map_err(wrong)?;
            }
            ParamKind::Uuid => {
                uuid_from_text(value).map_err(wrong)?;
            }
            ParamKind::Mac => {
                value.parse::<Mac>().map_err(|error| wrong(error.to_string().into()))?;
            }
            ParamKind::ProvisionState => {
                value.parse::<ProvisionState>().map_err(|()| {
                    WireError::invalid(format!(
                        "Provision state \"{}\" is not valid",
                        excerpt(value)
                    ))
                })?;
            }
            ParamKind::Fault => {
                value.parse::<Fault>().map_err(|()| {
                    let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
                    wrong(format!("'{}' is not one of {}", excerpt(value), known.join(", ")).into())
                })?;
            }
            ParamKind::Limit => {
                self.limit = limit(value, max_limit)?;
                return Ok(());
            }
            ParamKind::Marker | ParamKind::NameMarker => {
                if param.kind == ParamKind::Marker {
                    uuid_from_text(value).map_err(wrong)?;
                }
                self.marker = Some(value.to_owned());
                return Ok(());
            }
            ParamKind::SortKey => {
                if value != BY_CREATION {
                    let field = sort_field::<R>(value, version)?;
                    self.sort_key = field.name;
                    self.sort_column = field.needs.first().copied().unwrap_or(field.name);
                }
                return Ok(());
            }
            ParamKind::SortDirection => {
                self.descending = match value {
                    "asc" => false,
                    "desc" => true,
                    other => {
                        return Err(WireError::invalid(format!(
                            "Invalid sort direction: {}. Acceptable values are 'asc' or 'desc'",
                            excerpt(other)
                        )));
                    }
                };
                return Ok(());
            }
            ParamKind::Fields => {
                match &mut self.fields {
                    Some(fields) => {
                        fields.push(',');
                        fields.push_str(value);
                    }
                    None => self.fields = Some(value.to_owned()),
                }
                return Ok(());
            }
            ParamKind::Detail => {
                self.detail = flag_from_word(value).map_err(wrong)?;
                return Ok(());
            }
        }
        self.filters.push((param.name, value.to_owned()));
        Ok(())
    }

    fn select(&self, version: ApiVersion, whole: bool) -> Result<Selection<R>, WireError> {
        match &self.fields {
            Some(_) if self.detail => Err(WireError::invalid(
                "Can not specify ?detail=True and fields in the same request.",
            )),
            Some(fields) => named_selection(fields, version),
            None if self.detail || whole => Ok(Selection::detail(version)),
            None => Ok(Selection::default_list(version)),
        }
    }
}

/// The selection for a `fields=` value of names separated by commas.
///
/// # Errors
/// 400 for names that do not exist, 406 for those of a later version.
pub fn named_selection<R: Resource>(
    fields: &str,
    version: ApiVersion,
) -> Result<Selection<R>, WireError> {
    let names: Vec<&str> =
        fields.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    Selection::named(&names, version)
}

/// Writes a list: `each` is called with a function that writes one item. `next` is where the page
/// after this one is, worked out after the items are known.
pub fn write_list<R: Resource, E>(
    selection: &Selection<R>,
    context: &Context<'_>,
    each: impl FnOnce(&mut dyn FnMut(&R)) -> Result<(), E>,
    next: impl FnOnce() -> Option<String>,
) -> Result<Vec<u8>, E> {
    let mut writer = JsonWriter::with_capacity(4096);
    writer.begin_object();
    writer.key(R::COLLECTION);
    writer.begin_array();
    each(&mut |item| {
        writer.element();
        selection.write(&mut writer, item, context);
    })?;
    writer.end_array();
    if let Some(next) = next() {
        writer.key("next");
        // The base is escaped already and the rest is percent-encoded.
        writer.bare("\"");
        writer.bare(&next);
        writer.bare("\"");
    }
    writer.end_object();
    Ok(writer.into_bytes())
}

fn limit(value: &str, max_limit: u32) -> Result<u32, WireError> {
    let number: i64 = value.trim().parse().map_err(|_| {
        WireError::invalid(format!("Expected an integer for limit: {}", excerpt(value)))
    })?;
    if number <= 0 {
        return Err(WireError::invalid("Limit must be positive"));
    }
    Ok(u32::try_from(number).unwrap_or(max_limit).min(max_limit))
}

fn sort_field<R: Resource>(
    name: &str,
    version: ApiVersion,
) -> Result<&'static Field<R>, WireError> {
    let field = find::<R>(name)
        .filter(|field| field.sortable && field.since != NEVER_SHOWN)
        .ok_or_else(|| {
            WireError::invalid(format!(
                "The sort_key value \"{}\" is an invalid field for sorting",
                excerpt(name)
            ))
        })?;
    if version.has(field.since) {
        Ok(field)
    } else {
        Err(WireError::too_new(field.name, field.since))
    }
}

fn percent_encode(url: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~,".contains(&byte) {
            url.push(char::from(byte));
        } else {
            let _ = write!(url, "%{byte:02X}");
        }
    }
}
