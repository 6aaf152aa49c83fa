// SPDX-License-Identifier: Apache-2.0
//! Conductors, and the shards nodes are divided into.

use ironic_wire::{
    ConductorView, Context, Identity, ListQuery, WireError, params, shards_body, write_list,
};
use node_model::{ConductorInfo, Timestamp};
use std::time::Duration;

use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::Route;

const SINCE: u16 = 49;

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/conductors", "List conductors", handler!(list))
        .since(SINCE)
        .query(&["fields", "detail", "limit", "marker", "sort_key", "sort_dir"]),
    Route::get("/v1/conductors/{conductor}", "Show a conductor", handler!(show))
        .since(SINCE)
        .query(&["fields"]),
    Route::get("/v1/shards", "Count the nodes of each shard", handler!(shards)).since(82),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let max_limit = call.app.config.max_limit;
    let query = ListQuery::<ConductorView>::parse(
        params::CONDUCTORS,
        &call.query,
        call.version,
        max_limit,
        false,
    )?;
    // Conductors are few: they are sorted and cut here.
    let mut conductors = views(&call).await?;
    let by = |view: &ConductorView| match query.sort_column {
        "conductor_group" => (view.info.conductor_group.clone(), view.info.hostname.clone()),
        "created_at" => (view.info.created_at.to_string(), view.info.hostname.clone()),
        "updated_at" => (view.info.updated_at.to_string(), view.info.hostname.clone()),
        "hostname" => (view.info.hostname.clone(), String::new()),
        _ => (String::new(), String::new()),
    };
    conductors.sort_by_cached_key(by);
    if query.descending {
        conductors.reverse();
    }
    if let Some(marker) = &query.marker {
        let place = conductors.iter().position(|view| view.info.hostname == *marker);
        let place = place.ok_or_else(|| WireError::not_found("Conductor", marker))?;
        conductors.drain(..=place);
    }
    let limit = usize::try_from(query.limit).unwrap_or(usize::MAX);
    conductors.truncate(limit);
    let context = Context::new(call.version, &call.base_url);
    let next = conductors
        .last()
        .filter(|_| conductors.len() == limit)
        .map(|last| query.next_link(&context, "conductors", Identity::Name(&last.info.hostname)));
    let body = write_list::<ConductorView, Refusal>(
        &query.selection,
        &context,
        |each| {
            conductors.iter().for_each(each);
            Ok(())
        },
        || next,
    )?;
    Ok(Reply::ok(body))
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    let query = ListQuery::<ConductorView>::parse(
        params::ONE_WITH_FIELDS,
        &call.query,
        call.version,
        1,
        true,
    )?;
    let hostname = call.param("conductor");
    let found = views(&call).await?.into_iter().find(|view| view.info.hostname == hostname);
    let view = found.ok_or_else(|| WireError::not_found("Conductor", hostname))?;
    let context = Context::new(call.version, &call.base_url);
    Ok(Reply::ok(query.selection.body(&view, &context)))
}

async fn shards(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let shards = call.app.store.scan(|reader| Ok::<_, Refusal>(reader.shards()?)).await?;
    Ok(Reply::ok(shards_body(&shards)))
}

async fn views(call: &Call) -> Result<Vec<ConductorView>, Refusal> {
    let conductors = call.app.store.read(|reader| Ok::<_, Refusal>(reader.conductors()?)).await?;
    let (now, patience) = (call.now(), call.app.config.conductor_timeout);
    let view = |info| ConductorView { alive: is_alive(&info, now, patience), info };
    Ok(conductors.into_iter().map(view).collect())
}

/// Whether a conductor has said that it lives within `patience`.
pub(crate) fn is_alive(info: &ConductorInfo, now: Timestamp, patience: Duration) -> bool {
    info.online && now.since(info.updated_at) <= patience
}
