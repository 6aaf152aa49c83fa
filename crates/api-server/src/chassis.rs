// SPDX-License-Identifier: Apache-2.0
//! Chassis: groups of nodes.

use http::Method;
use ironic_wire::{Patch, WireError, create as draft, params};
use node_model::{Chassis, Node};
use store::{ChassisFilter, NodeFilter};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::Route;

const PAGE: &[&str] = &["limit", "marker", "sort_key", "sort_dir"];
const LIST: &[&str] = &["fields", "detail", "limit", "marker", "sort_key", "sort_dir"];

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/chassis", "List chassis", handler!(list)).query(LIST),
    Route::get("/v1/chassis/detail", "List chassis with all fields", handler!(list_detail))
        .query(PAGE),
    Route::new(Method::POST, "/v1/chassis", "Create a chassis", handler!(create)),
    Route::get("/v1/chassis/{chassis}", "Show a chassis", handler!(show)).query(&["fields"]),
    Route::new(Method::PATCH, "/v1/chassis/{chassis}", "Change a chassis", handler!(patch)),
    Route::new(Method::DELETE, "/v1/chassis/{chassis}", "Remove a chassis", handler!(delete)),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::list::<Chassis>(call, params::CHASSIS, Whole::OnDemand, "chassis".into(), |_, _| {
        Ok(ChassisFilter::default())
    })
    .await
}

async fn list_detail(call: Call) -> Result<Reply, Refusal> {
    let path = "chassis/detail".into();
    kept::list::<Chassis>(call, params::CHASSIS_DETAIL, Whole::Always, path, |_, _| {
        Ok(ChassisFilter::default())
    })
    .await
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<Chassis>(call, "chassis", params::ONE).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let chassis = draft::<Chassis>(&call.body, call.version, call.now())?.draft;
    let stored = chassis.clone();
    call.app
        .store
        .write(move |writer| writer.insert(&stored).on_duplicate(|_| already(&stored)))
        .await?;
    Ok(kept::created(&call, &chassis))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    let ident = Ident::of_path(&call, "chassis");
    let version = call.version;
    let chassis = call
        .app
        .store
        .write(move |writer| {
            let chassis: Chassis = ident.find(writer)?;
            let mut chassis = patch.apply::<Chassis>(chassis, version)?.draft;
            writer.save(&mut chassis)?;
            Ok::<_, Refusal>(chassis)
        })
        .await?;
    Ok(kept::changed(&call, &chassis))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "chassis");
    call.app
        .store
        .write(move |writer| {
            let chassis: Chassis = ident.find(writer)?;
            let nodes = NodeFilter { chassis: Some(chassis.id), ..NodeFilter::default() };
            if writer.count::<Node>(&nodes)? > 0 {
                let problem = format!(
                    "Cannot complete the requested action because chassis {} contains nodes.",
                    chassis.id
                );
                return Err(WireError::invalid(problem).into());
            }
            writer.delete(chassis.id)?;
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

fn already(chassis: &Chassis) -> WireError {
    WireError::conflict(format!("Chassis with UUID {} already exists.", chassis.id))
}
