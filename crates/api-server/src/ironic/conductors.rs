// SPDX-License-Identifier: Apache-2.0
//! Conductors and shards.

use std::time::Duration;

use ironic_wire::{
    ConductorView, ListQuery, RenderContext, ResourceIdentity, WireError, params, shards_body,
    write_list,
};
use node_model::{ConductorInfo, Timestamp};

use crate::handler;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute};

const SINCE: u16 = 49;

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/conductors", "List conductors", handler!(list))
        .rule("baremetal:conductor:get")
        .since(SINCE)
        .query(&["fields", "detail", "limit", "marker", "sort_key", "sort_dir"]),
    ApiRoute::get("/v1/conductors/{conductor}", "Show a conductor", handler!(show))
        .rule("baremetal:conductor:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::get("/v1/shards", "Count the nodes of each shard", handler!(shards))
        .rule("baremetal:shards:get")
        .since(82),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let max_limit = request.app.config.max_limit;
    let query = ListQuery::<ConductorView>::parse(
        params::CONDUCTORS,
        &request.query,
        request.version,
        max_limit,
        false,
    )?;
    // Conductors are few: sorting and paging need no database.
    let mut conductors = views(&request).await?;
    let sort_key = |view: &ConductorView| match query.sort_column {
        "conductor_group" => (view.info.conductor_group.clone(), view.info.hostname.clone()),
        "created_at" => (view.info.created_at.to_string(), view.info.hostname.clone()),
        "updated_at" => (view.info.updated_at.to_string(), view.info.hostname.clone()),
        "hostname" => (view.info.hostname.clone(), String::new()),
        _ => (String::new(), String::new()),
    };
    conductors.sort_by_cached_key(sort_key);
    if query.descending {
        conductors.reverse();
    }
    if let Some(marker) = &query.marker {
        let position = conductors.iter().position(|view| view.info.hostname == *marker);
        let position = position.ok_or_else(|| WireError::not_found("Conductor", marker))?;
        conductors.drain(..=position);
    }
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    conductors.truncate(limit);
    let context = RenderContext::new(request.version, &request.base_url);
    let next = conductors.last().filter(|_| conductors.len() == limit).map(|last| {
        query.next_link(&context, "conductors", ResourceIdentity::Name(&last.info.hostname))
    });
    let body = write_list::<ConductorView, ApiError>(
        &query.selection,
        &context,
        |each| {
            conductors.iter().for_each(each);
            Ok(())
        },
        || next,
    )?;
    Ok(ApiResponse::ok(body))
}

async fn show(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let query = ListQuery::<ConductorView>::parse(
        params::ONE_WITH_FIELDS,
        &request.query,
        request.version,
        1,
        true,
    )?;
    let hostname = request.param("conductor");
    let found = views(&request).await?.into_iter().find(|view| view.info.hostname == hostname);
    let view = found.ok_or_else(|| WireError::not_found("Conductor", hostname))?;
    let context = RenderContext::new(request.version, &request.base_url);
    Ok(ApiResponse::ok(query.selection.body(&view, &context)))
}

async fn shards(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let shards = request.app.store.scan(|reader| Ok::<_, ApiError>(reader.shards()?)).await?;
    Ok(ApiResponse::ok(shards_body(&shards)))
}

async fn views(request: &ApiRequest) -> Result<Vec<ConductorView>, ApiError> {
    let conductors =
        request.app.store.read(|reader| Ok::<_, ApiError>(reader.conductors()?)).await?;
    let (now, timeout) = (request.now(), request.app.config.conductor_timeout);
    let view = |info| ConductorView { alive: is_alive(&info, now, timeout), info };
    Ok(conductors.into_iter().map(view).collect())
}

/// Whether a conductor is online and sent a heartbeat within `timeout`.
pub(crate) fn is_alive(info: &ConductorInfo, now: Timestamp, timeout: Duration) -> bool {
    info.online && now.since(info.updated_at) <= timeout
}
