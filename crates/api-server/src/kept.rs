// SPDX-License-Identifier: Apache-2.0
//! What every kind of resource has in common: being found, shown and listed.
//!
//! The wire crate's field table knows how a resource looks, the store's column table how it is
//! kept; the names of columns join the two. What differs from kind to kind is in its own file.

use ironic_wire::{
    BY_CREATION, Context, Identity, ListQuery, Params, Selection, WireError, as_uuid,
    is_logical_name, write_list,
};
use node_model::{
    Allocation, Chassis, DeployTemplate, InspectionRule, Node, Port, Portgroup, Runbook,
    VolumeConnector, VolumeTarget,
};
use store::{Columns, Page, Query, Reader};
use uuid::Uuid;

use crate::call::Call;
use crate::refusal::Refusal;
use crate::reply::Reply;

/// A resource that is shown by the wire crate and kept by the store.
pub(crate) trait Kept:
    ironic_wire::Resource + store::Resource + Clone + Send + Sync
{
    /// What "could not be found" starts with.
    const TITLE: &'static str;
    /// The version since which it can be found by its name; none if it has none.
    const NAMED_SINCE: Option<u16>;

    /// The column of that name.
    fn column(name: &str) -> Option<Self::Column>;

    /// Its id from a plain one.
    fn id(uuid: Uuid) -> Self::Id;
}

macro_rules! kept {
    ($($kind:ident, $columns:ident, $id:ident, $title:literal, $named:expr;)*) => {$(
        impl Kept for $kind {
            const TITLE: &'static str = $title;
            const NAMED_SINCE: Option<u16> = $named;

            fn column(name: &str) -> Option<store::$columns> {
                store::$columns::by_name(stored_name(name))
            }

            fn id(uuid: Uuid) -> node_model::$id {
                node_model::$id(uuid)
            }
        }
    )*};
}

kept! {
    Node, NodeColumn, NodeId, "Node", Some(5);
    Port, PortColumn, PortId, "Port", Some(1);
    Portgroup, PortgroupColumn, PortgroupId, "Portgroup", Some(1);
    Chassis, ChassisColumn, ChassisId, "Chassis", None;
    Allocation, AllocationColumn, AllocationId, "Allocation", Some(1);
    DeployTemplate, DeployTemplateColumn, DeployTemplateId, "Deploy template", Some(1);
    Runbook, RunbookColumn, RunbookId, "Runbook", Some(1);
    InspectionRule, InspectionRuleColumn, RuleId, "Inspection rule", None;
    VolumeConnector, VolumeConnectorColumn, VolumeConnectorId, "Volume connector", None;
    VolumeTarget, VolumeTargetColumn, VolumeTargetId, "Volume target", None;
}

/// The field tables name what they need as the model does; where the database has another name for
/// it, this is the one place that knows.
fn stored_name(needed: &str) -> &str {
    match needed {
        "allocation_id" => "allocation_uuid",
        "chassis_id" => "chassis_uuid",
        "node_id" => "node_uuid",
        "portgroup_id" => "portgroup_uuid",
        "sensitive" => "is_sensitive",
        same => same,
    }
}

/// What a path or body says to name a resource by, and how the request's version reads it.
#[derive(Clone, Debug)]
pub(crate) struct Ident {
    text: String,
    minor: u16,
    json_suffix_cut: bool,
}

impl Ident {
    /// The path segment the route calls `param`.
    pub(crate) fn of_path(call: &Call, param: &str) -> Self {
        let text = call.param(param).to_owned();
        Self { text, minor: call.version.0, json_suffix_cut: call.json_suffix_cut }
    }

    /// A text from elsewhere in the request.
    pub(crate) fn of_text(call: &Call, text: &str) -> Self {
        Self { text: text.to_owned(), minor: call.version.0, json_suffix_cut: false }
    }

    /// The text itself.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The resource; 404 if there is none, 400 if there cannot be one of that name.
    pub(crate) fn find<R: Kept>(&self, reader: &mut Reader<'_>) -> Result<R, Refusal>
    where
        R::Id: store::Identifies<Of = R>,
    {
        if let Some(uuid) = as_uuid(&self.text) {
            return reader
                .get(R::id(uuid))?
                .ok_or_else(|| WireError::not_found(R::TITLE, &self.text).into());
        }
        let Some(named_since) = R::NAMED_SINCE else {
            let problem = format!("Expected UUID for {}: {}", R::KIND, self.excerpt());
            return Err(WireError::invalid(problem).into());
        };
        if !is_logical_name(&self.text) {
            let problem = format!("Expected UUID or name for {}: {}", R::KIND, self.excerpt());
            return Err(WireError::invalid(problem).into());
        }
        if let (true, Some(column)) = (self.minor >= named_since, R::column("name")) {
            if let Some(found) = reader.find(column, &self.text)? {
                return Ok(found);
            }
            if self.json_suffix_cut
                && let Some(found) = reader.find(column, &format!("{}.json", self.text))?
            {
                return Ok(found);
            }
        }
        Err(WireError::not_found(R::TITLE, &self.text).into())
    }

    /// Enough of the text to be recognised in a message.
    pub(crate) fn excerpt(&self) -> String {
        self.text.chars().take(120).collect()
    }
}

/// `GET` of one resource, with `fields`.
pub(crate) async fn show<R: Kept>(
    call: Call,
    param: &'static str,
    params: Params,
) -> Result<Reply, Refusal>
where
    R::Id: store::Identifies<Of = R>,
{
    let query = ListQuery::<R>::parse(params, &call.query, call.version, 1, true)?;
    let ident = Ident::of_path(&call, param);
    let context = Context::new(call.version, &call.base_url);
    let store = call.app.store.clone();
    let body = store
        .read(move |reader| {
            let found: R = ident.find(reader)?;
            Ok::<_, Refusal>(query.selection.body(&found, &context))
        })
        .await?;
    Ok(Reply::ok(body))
}

/// `GET` of a collection. `path` is where the next page is, below `/v1`; `filter` narrows the list
/// by what the query says.
pub(crate) async fn list<R: Kept>(
    call: Call,
    params: Params,
    whole: Whole,
    path: String,
    filter: impl FnOnce(&mut Reader<'_>, &ListQuery<R>) -> Result<R::Filter, Refusal> + Send + 'static,
) -> Result<Reply, Refusal> {
    let max_limit = call.app.config.max_limit;
    let everything = whole == Whole::Always;
    let query = ListQuery::<R>::parse(params, &call.query, call.version, max_limit, everything)?;
    let context = Context::new(call.version, &call.base_url);
    let store = call.app.store.clone();
    let body = store
        .scan(move |reader| {
            let filter = filter(reader, &query)?;
            let rows = Query { filter, page: page(&query), select: columns(&query.selection) };
            write_page(reader, &query, &rows, &context, &path)
        })
        .await?;
    Ok(Reply::ok(body))
}

/// Whether a list shows every field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whole {
    /// It does.
    Always,
    /// If it is asked to.
    OnDemand,
}

/// Reads and writes one page.
pub(crate) fn write_page<R: Kept>(
    reader: &mut Reader<'_>,
    query: &ListQuery<R>,
    rows: &Query<R>,
    context: &Context<'_>,
    path: &str,
) -> Result<Vec<u8>, Refusal> {
    let mut count = 0;
    let mut last = Uuid::nil();
    let last_seen = std::cell::Cell::new((count, last));
    write_list(
        &query.selection,
        context,
        |each| {
            reader
                .list(rows, |row| {
                    each(row);
                    count += 1;
                    last = store::Resource::uuid(row);
                })
                .map_err(|error| marker_missing::<R>(error, query.marker.as_deref()))?;
            last_seen.set((count, last));
            Ok(())
        },
        || {
            let (count, last) = last_seen.get();
            (count == query.limit).then(|| query.next_link(context, path, Identity::Uuid(last)))
        },
    )
}

/// The page a query asks for.
pub(crate) fn page<R: Kept>(query: &ListQuery<R>) -> Page<R> {
    let sort = match query.sort_column {
        BY_CREATION => None,
        column => R::column(column),
    };
    Page {
        limit: Some(query.limit),
        marker: query.marker.as_deref().and_then(as_uuid),
        sort,
        descending: query.descending,
    }
}

/// The columns a selection needs, and the one every list needs to tell where it ended.
pub(crate) fn columns<R: Kept>(selection: &Selection<R>) -> Columns<R> {
    let uuid = R::column("uuid");
    selection
        .needs()
        .into_iter()
        .filter_map(R::column)
        .chain(uuid)
        .fold(Columns::of(&[]), Columns::with)
}

/// 201 with the new resource.
pub(crate) fn created<R: Kept>(call: &Call, resource: &R) -> Reply {
    let context = Context::new(call.version, &call.base_url);
    let body = Selection::<R>::detail(call.version).body(resource, &context);
    let location = call.link(&format!("{}/{}", R::PATH, store::Resource::uuid(resource)));
    Reply::created(body, &location)
}

/// 200 with the changed resource.
pub(crate) fn changed<R: Kept>(call: &Call, resource: &R) -> Reply {
    let context = Context::new(call.version, &call.base_url);
    Reply::ok(Selection::<R>::detail(call.version).body(resource, &context))
}

/// Refuses query parameters on a path that takes none but `allowed`.
pub(crate) fn only_query(call: &Call, allowed: &[&str]) -> Result<(), WireError> {
    let unknown: Vec<&str> = call
        .query
        .iter()
        .map(|(name, _)| name.as_str())
        .filter(|name| !allowed.contains(name))
        .collect();
    if unknown.is_empty() { Ok(()) } else { Err(WireError::unexpected(&unknown)) }
}

/// The store's "no such marker" as the refusal that names it.
pub(crate) fn marker_missing<R: Kept>(error: store::Error, marker: Option<&str>) -> Refusal {
    if matches!(error, store::Error::NoSuchMarker) {
        return WireError::not_found(R::TITLE, marker.unwrap_or_default()).into();
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<R: Kept>(missing: &mut Vec<String>) {
        let fields = R::fields().iter().flat_map(|field| field.needs);
        let unknown = fields.filter(|column| R::column(column).is_none());
        missing.extend(unknown.map(|column| format!("{} {column}", R::KIND)));
    }

    /// A field that needs a column nobody has would silently be shown empty in lists.
    #[test]
    fn every_field_finds_its_columns() {
        let mut missing = Vec::new();
        check::<Node>(&mut missing);
        check::<Port>(&mut missing);
        check::<Portgroup>(&mut missing);
        check::<Chassis>(&mut missing);
        check::<Allocation>(&mut missing);
        check::<DeployTemplate>(&mut missing);
        check::<Runbook>(&mut missing);
        check::<InspectionRule>(&mut missing);
        check::<VolumeConnector>(&mut missing);
        check::<VolumeTarget>(&mut missing);
        assert_eq!(missing, Vec::<String>::new());
    }
}
