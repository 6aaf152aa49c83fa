// SPDX-License-Identifier: Apache-2.0
//! Query strings of collections, and the envelope of list responses.
//!
//! Each collection has a table of its parameters with their first versions and types. Parsing checks
//! all values, so handlers get them typed.

use std::fmt::Write as _;

use node_model::{Fault, Mac, ProvisionState};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use crate::context::RenderContext;
use crate::error::{WireError, excerpt};
use crate::field::{
    FieldSelection, NEVER_SHOWN, ResourceField, ResourceIdentity, WireResource, find_field,
};
use crate::value::{ValueError, parse_flag, parse_uuid};
use crate::version::ApiVersion;
use crate::writer::JsonWriter;

/// The default sort key: the order of creation.
pub const CREATION_ORDER: &str = "id";

/// Type of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// Any text.
    Text,
    /// A boolean.
    Flag,
    /// A UUID.
    Uuid,
    /// A MAC address.
    Mac,
    /// Comma-separated texts.
    TextList,
    /// The name of a provision state.
    ProvisionState,
    /// The name of a fault.
    Fault,
    /// The page size.
    Limit,
    /// The UUID of the last item of the previous page.
    Marker,
    /// The name of the last item of the previous page.
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
pub struct QueryParam {
    /// The name.
    pub name: &'static str,
    /// First microversion that accepts it.
    pub since: u16,
    /// The status with which older versions reject it.
    pub status_before: u16,
    /// The type of its value.
    pub kind: ParamKind,
}

impl QueryParam {
    /// A parameter that older versions reject with 406.
    #[must_use]
    pub const fn new(name: &'static str, since: u16, kind: ParamKind) -> Self {
        Self { name, since, status_before: 406, kind }
    }

    /// Makes older versions reject it with 400.
    #[must_use]
    pub const fn rejected_with_400(mut self) -> Self {
        self.status_before = 400;
        self
    }
}

/// The parameters of a collection.
pub type QueryParams = &'static [QueryParam];

/// A filter of a list query.
#[derive(Debug)]
struct QueryFilter {
    name: &'static str,
    /// The value as sent, for the link to the next page.
    text: String,
    value: FilterValue,
}

/// The parsed value of a filter.
#[derive(Debug)]
enum FilterValue {
    /// Any text; see [`QueryFilter::text`].
    Text,
    TextList(Vec<String>),
    Flag(bool),
    Uuid(Uuid),
    Mac(Mac),
    ProvisionState(ProvisionState),
    Fault(Fault),
}

/// Characters to percent-encode in a query value.
const NOT_QUERY_SAFE: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b',');

/// A parsed query string of a collection of `R`.
#[derive(Debug)]
pub struct ListQuery<R: WireResource> {
    /// Maximum number of items.
    pub limit: u32,
    /// The last item of the previous page.
    pub marker: Option<String>,
    /// The field to sort by, or [`CREATION_ORDER`].
    pub sort_key: &'static str,
    /// The column to sort by, or [`CREATION_ORDER`].
    pub sort_column: &'static str,
    /// Whether the order is descending.
    pub descending: bool,
    /// The fields to show.
    pub selection: FieldSelection<R>,
    filters: Vec<QueryFilter>,
    fields: Option<String>,
    detail: bool,
}

impl<R: WireResource> ListQuery<R> {
    /// Parses decoded query pairs. `always_detail` is for paths that show all fields (`…/detail`, and
    /// collections without a short form).
    ///
    /// # Errors
    /// 400 for unknown or invalid parameters, 406 for parameters of a later version.
    pub fn parse(
        params: QueryParams,
        pairs: &[(String, String)],
        version: ApiVersion,
        max_limit: u32,
        always_detail: bool,
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
            sort_key: CREATION_ORDER,
            sort_column: CREATION_ORDER,
            descending: false,
            selection: FieldSelection { fields: Vec::new() },
            filters: Vec::new(),
            fields: None,
            detail: false,
        };
        for (name, value) in pairs {
            let Some(param) = known(name) else { continue };
            if !version.has(param.since) {
                return Err(match param.status_before {
                    400 => WireError::unexpected(&[param.name]),
                    _ => WireError::too_new(param.name, param.since),
                });
            }
            query.apply_param(param, value, version, max_limit)?;
        }
        query.selection = query.select(version, always_detail)?;
        Ok(query)
    }

    /// The value of a filter as it was sent.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.filter(name).map(|filter| filter.text.as_str())
    }

    /// The value of a boolean filter.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        let FilterValue::Flag(flag) = self.filter(name)?.value else { return None };
        Some(flag)
    }

    /// The value of a UUID filter.
    #[must_use]
    pub fn uuid(&self, name: &str) -> Option<Uuid> {
        let FilterValue::Uuid(id) = self.filter(name)?.value else { return None };
        Some(id)
    }

    /// The value of a MAC address filter.
    #[must_use]
    pub fn mac(&self, name: &str) -> Option<&Mac> {
        let FilterValue::Mac(address) = &self.filter(name)?.value else { return None };
        Some(address)
    }

    /// The values of a comma-separated filter.
    #[must_use]
    pub fn texts(&self, name: &str) -> Option<Vec<&str>> {
        let FilterValue::TextList(texts) = &self.filter(name)?.value else { return None };
        Some(texts.iter().map(String::as_str).collect())
    }

    /// The value of a provision state filter.
    #[must_use]
    pub fn provision_state(&self, name: &str) -> Option<ProvisionState> {
        let FilterValue::ProvisionState(state) = self.filter(name)?.value else { return None };
        Some(state)
    }

    /// The value of a fault filter.
    #[must_use]
    pub fn fault(&self, name: &str) -> Option<Fault> {
        let FilterValue::Fault(fault) = self.filter(name)?.value else { return None };
        Some(fault)
    }

    fn filter(&self, name: &str) -> Option<&QueryFilter> {
        self.filters.iter().find(|filter| filter.name == name)
    }

    /// Whether `detail` was requested.
    #[must_use]
    pub fn is_detail(&self) -> bool {
        self.detail
    }

    /// The URL of the next page, which starts after `last`. `path` is relative to `/v1`, such as
    /// `nodes/detail`.
    #[must_use]
    pub fn next_link(
        &self,
        context: &RenderContext<'_>,
        path: &str,
        last: ResourceIdentity<'_>,
    ) -> String {
        let direction = if self.descending { "desc" } else { "asc" };
        let mut url =
            format!("{}/v1/{path}?sort_key={}&sort_dir={direction}", context.base(), self.sort_key);
        let add = |url: &mut String, name: &str, value: &str| {
            let _ = write!(url, "&{name}={}", utf8_percent_encode(value, NOT_QUERY_SAFE));
        };
        for filter in &self.filters {
            add(&mut url, filter.name, &filter.text);
        }
        if let Some(fields) = &self.fields {
            add(&mut url, "fields", fields);
        }
        if self.detail {
            add(&mut url, "detail", "True");
        }
        let _ = write!(url, "&limit={}&marker=", self.limit);
        match last {
            ResourceIdentity::Uuid(id) => {
                let _ = write!(url, "{id}");
            }
            ResourceIdentity::Name(name) => {
                let _ = write!(url, "{}", utf8_percent_encode(name, NOT_QUERY_SAFE));
            }
        }
        url
    }

    fn apply_param(
        &mut self,
        param: &QueryParam,
        value: &str,
        version: ApiVersion,
        max_limit: u32,
    ) -> Result<(), WireError> {
        let invalid = |error: ValueError| error.in_field(param.name);
        let filter = match param.kind {
            ParamKind::Text => FilterValue::Text,
            ParamKind::TextList => {
                FilterValue::TextList(value.split(',').map(|text| text.trim().to_owned()).collect())
            }
            ParamKind::Flag => FilterValue::Flag(parse_flag(value).map_err(invalid)?),
            ParamKind::Uuid => FilterValue::Uuid(parse_uuid(value).map_err(invalid)?),
            ParamKind::Mac => FilterValue::Mac(
                value.parse::<Mac>().map_err(|error| invalid(error.to_string().into()))?,
            ),
            ParamKind::ProvisionState => FilterValue::ProvisionState(provision_state(value)?),
            ParamKind::Fault => FilterValue::Fault(fault(value).map_err(invalid)?),
            ParamKind::Limit => {
                self.limit = limit(value, max_limit)?;
                return Ok(());
            }
            ParamKind::Marker | ParamKind::NameMarker => {
                if param.kind == ParamKind::Marker {
                    parse_uuid(value).map_err(invalid)?;
                }
                self.marker = Some(value.to_owned());
                return Ok(());
            }
            ParamKind::SortKey => {
                if value != CREATION_ORDER {
                    let field = sort_field::<R>(value, version)?;
                    self.sort_key = field.name;
                    self.sort_column = field.columns.first().copied().unwrap_or(field.name);
                }
                return Ok(());
            }
            ParamKind::SortDirection => {
                self.descending = is_descending(value)?;
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
                self.detail = parse_flag(value).map_err(invalid)?;
                return Ok(());
            }
        };
        self.filters.push(QueryFilter { name: param.name, text: value.to_owned(), value: filter });
        Ok(())
    }

    fn select(
        &self,
        version: ApiVersion,
        always_detail: bool,
    ) -> Result<FieldSelection<R>, WireError> {
        match &self.fields {
            Some(_) if self.detail => Err(WireError::invalid(
                "Can not specify ?detail=True and fields in the same request.",
            )),
            Some(fields) => named_selection(fields, version),
            None if self.detail || always_detail => Ok(FieldSelection::detail(version)),
            None => Ok(FieldSelection::default_list(version)),
        }
    }
}

/// The selection for a comma-separated `fields=` value.
///
/// # Errors
/// 400 for unknown names, 406 for fields of a later version.
pub fn named_selection<R: WireResource>(
    fields: &str,
    version: ApiVersion,
) -> Result<FieldSelection<R>, WireError> {
    let names: Vec<&str> =
        fields.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    FieldSelection::named(&names, version)
}

/// Writes a list response. `each` is called with a function that writes one item; `next` returns the
/// URL of the next page and is called after the items.
pub fn write_list<R: WireResource, E>(
    selection: &FieldSelection<R>,
    context: &RenderContext<'_>,
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
        // Needs no escaping: the base URL is escaped and the rest percent-encoded.
        writer.raw("\"");
        writer.raw(&next);
        writer.raw("\"");
    }
    writer.end_object();
    Ok(writer.into_bytes())
}

fn provision_state(value: &str) -> Result<ProvisionState, WireError> {
    value.parse().map_err(|()| {
        WireError::invalid(format!("Provision state \"{}\" is not valid", excerpt(value)))
    })
}

fn fault(value: &str) -> Result<Fault, ValueError> {
    value.parse().map_err(|()| {
        let known: Vec<&str> = Fault::ALL.iter().map(|fault| fault.as_str()).collect();
        format!("'{}' is not one of {}", excerpt(value), known.join(", ")).into()
    })
}

fn is_descending(value: &str) -> Result<bool, WireError> {
    match value {
        "asc" => Ok(false),
        "desc" => Ok(true),
        other => Err(WireError::invalid(format!(
            "Invalid sort direction: {}. Acceptable values are 'asc' or 'desc'",
            excerpt(other)
        ))),
    }
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

fn sort_field<R: WireResource>(
    name: &str,
    version: ApiVersion,
) -> Result<&'static ResourceField<R>, WireError> {
    let field = find_field::<R>(name)
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
