// SPDX-License-Identifier: Apache-2.0
//! Deploy templates: steps added to a deployment by a trait.

use http::Method;
use ironic_wire::{Patch, WireError, create as draft, params};
use node_model::{DeployTemplate, unmask_object};
use store::DeployTemplateFilter;

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::{Route, TooOld};

const SINCE: u16 = 55;
const ONE: &str = "/v1/deploy_templates/{template}";

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/deploy_templates", "List deploy templates", handler!(list))
        .since(SINCE)
        .query(&["fields", "detail", "limit", "marker", "sort_key", "sort_dir"]),
    Route::new(Method::POST, "/v1/deploy_templates", "Create a deploy template", handler!(create))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::get(ONE, "Show a deploy template", handler!(show)).since(SINCE).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change a deploy template", handler!(patch))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::DELETE, ONE, "Remove a deploy template", handler!(delete))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let path = "deploy_templates".into();
    kept::list::<DeployTemplate>(call, params::DEPLOY_TEMPLATES, Whole::OnDemand, path, |_, _| {
        Ok(DeployTemplateFilter::default())
    })
    .await
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<DeployTemplate>(call, "template", params::ONE_WITH_FIELDS).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let template = draft::<DeployTemplate>(&call.body, call.version, call.now())?.draft;
    let stored = template.clone();
    call.app
        .store
        .write(move |writer| writer.insert(&stored).on_duplicate(|field| already(&stored, field)))
        .await?;
    Ok(kept::created(&call, &template))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    let ident = Ident::of_path(&call, "template");
    let version = call.version;
    let template = call
        .app
        .store
        .write(move |writer| {
            let before: DeployTemplate = ident.find(writer)?;
            let mut template = patch.apply::<DeployTemplate>(before.clone(), version)?.draft;
            // Passwords of URLs are shown masked, and may come back so.
            let known: Vec<_> = before.steps.iter().map(|step| &step.args).collect();
            template.steps.iter_mut().for_each(|step| unmask_object(&mut step.args, &known));
            writer.save(&mut template).on_duplicate(|field| already(&template, field))?;
            Ok::<_, Refusal>(template)
        })
        .await?;
    Ok(kept::changed(&call, &template))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "template");
    call.app
        .store
        .write(move |writer| {
            let template: DeployTemplate = ident.find(writer)?;
            writer.delete(template.id)?;
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

fn already(template: &DeployTemplate, field: &str) -> WireError {
    WireError::conflict(match field {
        "name" => format!("A deploy template with name {} already exists.", template.name),
        _ => format!("A deploy template with UUID {} already exists.", template.id),
    })
}
