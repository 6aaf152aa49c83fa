// SPDX-License-Identifier: Apache-2.0
//! Lookup, show and list for all resource types.
//!
//! `ironic-wire` has the table of a resource's fields, `store` the table of its columns; column names
//! connect the two.

use ironic_wire::{
    CREATION_ORDER, FieldSelection, ListQuery, QueryParams, RenderContext, ResourceIdentity,
    WireError, as_uuid, is_logical_name, write_list,
};
use node_model::{
    Allocation, Chassis, DeployTemplate, InspectionRule, Node, Port, Portgroup, Runbook,
    VolumeConnector, VolumeTarget,
};
use store::{Columns, ResourcePage, ResourceQuery, StoreReader};
use uuid::Uuid;

use super::access_subject::{AccessDecision, AccessSubject};
use super::redaction;
use crate::server::access::{CallerAccess, denied};
use crate::server::{ApiError, ApiRequest, ApiResponse};

/// A resource with a wire format and a database table.
pub(crate) trait ApiResource:
    ironic_wire::WireResource + store::StoredResource + Clone + Send + Sync
{
    /// How messages such as "… could not be found" start.
    const TITLE: &'static str;
    /// First version in which it can be looked up by name; `None` if it has no name.
    const NAMED_SINCE: Option<u16>;

    /// The column of the field `name`.
    fn column(name: &str) -> Option<Self::Column>;

    /// The typed id for a UUID.
    fn id(uuid: Uuid) -> Self::Id;

    /// Which projects the resource belongs to.
    fn access_subject(
        &self,
        reader: &mut StoreReader<'_>,
    ) -> Result<AccessSubject, store::StoreError>;

    /// A copy without what the caller may not see; `None` if the caller may see everything.
    fn redacted(&self, access: &CallerAccess) -> Option<Self>;
}

macro_rules! api_resources {
    ($($kind:ident, $columns:ident, $id:ident, $title:literal, $named:expr, $subject:ident, $redaction:ident;)*) => {$(
        impl ApiResource for $kind {
            const TITLE: &'static str = $title;
            const NAMED_SINCE: Option<u16> = $named;

            fn column(name: &str) -> Option<store::$columns> {
                store::$columns::by_name(stored_name(name))
            }

            fn id(uuid: Uuid) -> node_model::$id {
                node_model::$id(uuid)
            }

            fn access_subject(
                &self,
                reader: &mut StoreReader<'_>,
            ) -> Result<AccessSubject, store::StoreError> {
                AccessSubject::$subject(self, reader)
            }

            fn redacted(&self, access: &CallerAccess) -> Option<Self> {
                redaction::$redaction(self, access)
            }
        }
    )*};
}

api_resources! {
    Node, NodeColumn, NodeId, "Node", Some(5), of_node, redacted_node;
    Port, PortColumn, PortId, "Port", Some(1), of_port, not_redacted;
    Portgroup, PortgroupColumn, PortgroupId, "Portgroup", Some(1), of_portgroup, not_redacted;
    Chassis, ChassisColumn, ChassisId, "Chassis", None, of_none, not_redacted;
    Allocation, AllocationColumn, AllocationId, "Allocation", Some(1), of_allocation, not_redacted;
    DeployTemplate, DeployTemplateColumn, DeployTemplateId, "Deploy template", Some(1), of_none, not_redacted;
    Runbook, RunbookColumn, RunbookId, "Runbook", Some(1), of_runbook, not_redacted;
    InspectionRule, InspectionRuleColumn, RuleId, "Inspection rule", None, of_none, not_redacted;
    VolumeConnector, VolumeConnectorColumn, VolumeConnectorId, "Volume connector", None, of_connector, not_redacted;
    VolumeTarget, VolumeTargetColumn, VolumeTargetId, "Volume target", None, of_target, redacted_volume_target;
}

/// The column name of a field that `ironic-wire` needs. Most are the same.
fn stored_name(field: &str) -> &str {
    match field {
        "allocation_id" => "allocation_uuid",
        "chassis_id" => "chassis_uuid",
        "node_id" => "node_uuid",
        "portgroup_id" => "portgroup_uuid",
        "sensitive" => "is_sensitive",
        same => same,
    }
}

/// A UUID or name that identifies a resource in a path, body or query, read by the rules of the
/// request's version.
#[derive(Clone, Debug)]
pub(crate) struct ResourceIdent {
    text: String,
    minor: u16,
    json_suffix_cut: bool,
    access: CallerAccess,
    /// The rule that must match, besides that the caller may see the resource.
    rule: Option<&'static str>,
}

impl ResourceIdent {
    /// From the path parameter `param`, with the rule of the route.
    pub(crate) fn from_path(request: &ApiRequest, param: &str) -> Self {
        Self {
            text: request.param(param).to_owned(),
            minor: request.version.0,
            json_suffix_cut: request.json_suffix_cut,
            access: request.access.clone(),
            rule: request.access.resource_rule(),
        }
    }

    /// From the body or query. The caller must be allowed to see the resource; no other rule is
    /// checked.
    pub(crate) fn from_text(request: &ApiRequest, text: &str) -> Self {
        Self {
            text: text.to_owned(),
            minor: request.version.0,
            json_suffix_cut: false,
            access: request.access.clone(),
            rule: None,
        }
    }

    /// Sets the rule that must match.
    pub(crate) fn with_rule(mut self, rule: &'static str) -> Self {
        self.rule = Some(rule);
        self
    }

    /// The UUID or name as given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Looks up the resource. Fails with 404 if it does not exist or the caller may not see it, with
    /// 403 if the rule does not match, with 400 if the text is neither a UUID nor a valid name.
    pub(crate) fn find<R: ApiResource>(&self, reader: &mut StoreReader<'_>) -> Result<R, ApiError> {
        let found: R = self.find_unchecked(reader)?;
        if self.access.is_restricted() {
            match found.access_subject(reader)?.check(&self.access, self.rule) {
                AccessDecision::Allowed => {}
                AccessDecision::Denied(rule) => return Err(denied(rule).into()),
                AccessDecision::Hidden => {
                    self.access.mark_hidden();
                    return Err(WireError::not_found(R::TITLE, &self.text).into());
                }
            }
        }
        Ok(found)
    }

    fn find_unchecked<R: ApiResource>(&self, reader: &mut StoreReader<'_>) -> Result<R, ApiError> {
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

    /// The first 120 characters, for error messages.
    pub(crate) fn excerpt(&self) -> String {
        self.text.chars().take(120).collect()
    }
}

/// `GET` of one resource, with the query parameter `fields`.
pub(crate) async fn show<R: ApiResource>(
    request: ApiRequest,
    param: &'static str,
    params: QueryParams,
) -> Result<ApiResponse, ApiError> {
    let query = ListQuery::<R>::parse(params, &request.query, request.version, 1, true)?;
    let ident = ResourceIdent::from_path(&request, param);
    let store = request.app.store.clone();
    let body = store
        .read(move |reader| {
            let context = RenderContext::new(request.version, &request.base_url);
            let found: R = ident.find(reader)?;
            let shown = found.redacted(&request.access).unwrap_or(found);
            Ok::<_, ApiError>(query.selection.body(&shown, &context))
        })
        .await?;
    Ok(ApiResponse::ok(body))
}

/// `GET` of a collection. `path` is the path of the next page below `/v1`; `filter` builds the store's
/// filter from the query.
pub(crate) async fn list<R: ApiResource>(
    request: ApiRequest,
    params: QueryParams,
    detail: ListDetail,
    path: String,
    filter: impl FnOnce(&mut StoreReader<'_>, &ListQuery<R>) -> Result<R::Filter, ApiError>
    + Send
    + 'static,
) -> Result<ApiResponse, ApiError> {
    let max_limit = request.app.config.max_limit;
    let all_fields = detail == ListDetail::Always;
    let query =
        ListQuery::<R>::parse(params, &request.query, request.version, max_limit, all_fields)?;
    let store = request.app.store.clone();
    let body = store
        .scan(move |reader| {
            let context = RenderContext::new(request.version, &request.base_url);
            check_marker::<R>(reader, &request, query.marker.as_deref())?;
            let filter = filter(reader, &query)?;
            let rows =
                ResourceQuery { filter, page: page(&query), select: columns(&query.selection) };
            write_page(reader, &query, &rows, &context, &path, &request.access)
        })
        .await?;
    Ok(ApiResponse::ok(body))
}

/// Whether a list has all fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ListDetail {
    /// The `…/detail` endpoints.
    Always,
    /// Only if the query has `detail` or `fields`.
    OnRequest,
}

/// Reads one page from the store and writes it as JSON.
pub(crate) fn write_page<R: ApiResource>(
    reader: &mut StoreReader<'_>,
    query: &ListQuery<R>,
    rows: &ResourceQuery<R>,
    context: &RenderContext<'_>,
    path: &str,
    access: &CallerAccess,
) -> Result<Vec<u8>, ApiError> {
    let mut count = 0;
    let mut last = Uuid::nil();
    let page_end = std::cell::Cell::new((count, last));
    write_list(
        &query.selection,
        context,
        |each| {
            reader
                .list(rows, |row| {
                    match row.redacted(access) {
                        None => each(row),
                        Some(redacted) => each(&redacted),
                    }
                    count += 1;
                    last = store::StoredResource::uuid(row);
                })
                .map_err(|error| marker_not_found::<R>(error, query.marker.as_deref()))?;
            page_end.set((count, last));
            Ok(())
        },
        || {
            let (count, last) = page_end.get();
            (count == query.limit)
                .then(|| query.next_link(context, path, ResourceIdentity::Uuid(last)))
        },
    )
}

/// Fails with 404 if the marker is a resource that the caller may not see: its position in the list
/// would reveal it.
pub(crate) fn check_marker<R: ApiResource>(
    reader: &mut StoreReader<'_>,
    request: &ApiRequest,
    marker: Option<&str>,
) -> Result<(), ApiError> {
    match marker.filter(|marker| request.access.is_restricted() && as_uuid(marker).is_some()) {
        None => Ok(()),
        Some(marker) => ResourceIdent::from_text(request, marker).find::<R>(reader).map(drop),
    }
}

/// The page that a query requests.
pub(crate) fn page<R: ApiResource>(query: &ListQuery<R>) -> ResourcePage<R> {
    let sort = match query.sort_column {
        CREATION_ORDER => None,
        column => R::column(column),
    };
    ResourcePage {
        limit: Some(query.limit),
        marker: query.marker.as_deref().and_then(as_uuid),
        sort,
        descending: query.descending,
    }
}

/// The columns that a selection needs, and the UUID for the link to the next page.
pub(crate) fn columns<R: ApiResource>(selection: &FieldSelection<R>) -> Columns<R> {
    let uuid = R::column("uuid");
    selection
        .columns()
        .into_iter()
        .filter_map(R::column)
        .chain(uuid)
        .fold(Columns::only(&[]), Columns::with)
}

/// 201 with the new resource.
pub(crate) fn created<R: ApiResource>(request: &ApiRequest, resource: &R) -> ApiResponse {
    let context = RenderContext::new(request.version, &request.base_url);
    let redacted = resource.redacted(&request.access);
    let shown = redacted.as_ref().unwrap_or(resource);
    let body = FieldSelection::<R>::detail(request.version).body(shown, &context);
    let location = request.link(&format!("{}/{}", R::PATH, store::StoredResource::uuid(resource)));
    ApiResponse::created(body, &location)
}

/// 200 with the changed resource.
pub(crate) fn changed<R: ApiResource>(request: &ApiRequest, resource: &R) -> ApiResponse {
    let context = RenderContext::new(request.version, &request.base_url);
    let redacted = resource.redacted(&request.access);
    let shown = redacted.as_ref().unwrap_or(resource);
    ApiResponse::ok(FieldSelection::<R>::detail(request.version).body(shown, &context))
}

/// Replaces the store's "marker not found" by an error that contains the marker.
pub(crate) fn marker_not_found<R: ApiResource>(
    error: store::StoreError,
    marker: Option<&str>,
) -> ApiError {
    if matches!(error, store::StoreError::MarkerNotFound) {
        return WireError::not_found(R::TITLE, marker.unwrap_or_default()).into();
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect_missing<R: ApiResource>(missing: &mut Vec<String>) {
        let fields = R::fields().iter().flat_map(|field| field.columns);
        let unknown = fields.filter(|column| R::column(column).is_none());
        missing.extend(unknown.map(|column| format!("{} {column}", R::KIND)));
    }

    /// A field whose column does not exist would be empty in lists.
    #[test]
    fn all_fields_have_their_columns() {
        let mut missing = Vec::new();
        collect_missing::<Node>(&mut missing);
        collect_missing::<Port>(&mut missing);
        collect_missing::<Portgroup>(&mut missing);
        collect_missing::<Chassis>(&mut missing);
        collect_missing::<Allocation>(&mut missing);
        collect_missing::<DeployTemplate>(&mut missing);
        collect_missing::<Runbook>(&mut missing);
        collect_missing::<InspectionRule>(&mut missing);
        collect_missing::<VolumeConnector>(&mut missing);
        collect_missing::<VolumeTarget>(&mut missing);
        assert_eq!(missing, Vec::<String>::new());
    }
}
