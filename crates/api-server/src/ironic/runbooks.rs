// SPDX-License-Identifier: Apache-2.0
//! Runbooks: approved lists of steps, and the traits of the nodes they may run on.

use access_policy::PolicyTarget;
use http::Method;
use ironic_wire::{
    MAX_TRAITS, Patch, ResourceDraft, WireError, is_trait, params, parse_object, traits_body,
};
use node_model::{Runbook, unmask_object};
use serde_json::Value;
use store::{RunbookFilter, StoreWriter};

use super::crud::{self, CrudResource};
use super::resource::{self, ListDetail, ResourceIdent};
use crate::handler;
use crate::server::access::{CallerAccess, denied};
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, TooOld};

const SINCE: u16 = 92;
const TRAITS_SINCE: u16 = 112;
const ONE: &str = "/v1/runbooks/{runbook}";
const TRAITS: &str = "/v1/runbooks/{runbook}/traits";
const TRAIT: &str = "/v1/runbooks/{runbook}/traits/{trait}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get("/v1/runbooks", "List runbooks", handler!(list))
        .list("baremetal:runbook:list_all", "baremetal:runbook:list")
        .since(SINCE)
        .query(&["fields", "detail", "project", "limit", "marker", "sort_key", "sort_dir"]),
    ApiRoute::new(
        Method::POST,
        "/v1/runbooks",
        "Create a runbook",
        handler!(crud::create::<Runbook>),
    )
    .rule("baremetal:runbook:create")
    .since(SINCE)
    .too_old(TooOld::MethodNotAllowed),
    ApiRoute::get(ONE, "Show a runbook", handler!(crud::show::<Runbook>))
        .resource("baremetal:runbook:get")
        .since(SINCE)
        .query(&["fields"]),
    ApiRoute::new(Method::PATCH, ONE, "Change a runbook", handler!(crud::update::<Runbook>))
        .checked_by_handler(&["baremetal:runbook:update"])
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(Method::DELETE, ONE, "Remove a runbook", handler!(crud::delete::<Runbook>))
        .resource("baremetal:runbook:delete")
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    ApiRoute::get(TRAITS, "List the traits of a runbook", handler!(traits))
        .resource("baremetal:runbook:get")
        .since(TRAITS_SINCE),
    ApiRoute::new(Method::PUT, TRAITS, "Replace the traits of a runbook", handler!(replace_traits))
        .resource("baremetal:runbook:update")
        .since(TRAITS_SINCE),
    ApiRoute::new(
        Method::DELETE,
        TRAITS,
        "Remove the traits of a runbook",
        handler!(remove_traits),
    )
    .resource("baremetal:runbook:update")
    .since(TRAITS_SINCE),
    ApiRoute::new(Method::PUT, TRAIT, "Add a trait to a runbook", handler!(add_trait))
        .resource("baremetal:runbook:update")
        .since(TRAITS_SINCE),
    ApiRoute::new(Method::DELETE, TRAIT, "Remove a trait from a runbook", handler!(remove_trait))
        .resource("baremetal:runbook:update")
        .since(TRAITS_SINCE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let path = "runbooks".into();
    let visible_to = request.access.list_project(request.query_value("project"))?;
    resource::list::<Runbook>(request, params::RUNBOOKS, ListDetail::OnRequest, path, |_, _| {
        Ok(RunbookFilter { visible_to, ..RunbookFilter::default() })
    })
    .await
}

impl CrudResource for Runbook {
    const PATH_PARAM: &'static str = "runbook";

    fn to_insert(
        _writer: &mut StoreWriter<'_>,
        drafted: &ResourceDraft<Self>,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let mut runbook = drafted.draft.clone();
        check_steps(&request.access, &runbook)?;
        set_owner(&request.access, &mut runbook)?;
        Ok(runbook)
    }

    fn check_patch(&self, patch: &Patch, access: &CallerAccess) -> Result<(), WireError> {
        let target = PolicyTarget::runbook(self.owner.as_deref());
        if patch.is_empty() {
            access.require("baremetal:runbook:update", &target)?;
        }
        for field in patch.fields() {
            let rule = match field {
                "owner" => "baremetal:runbook:update:owner",
                "public" => "baremetal:runbook:update:public",
                _ => "baremetal:runbook:update",
            };
            access.require(rule, &target)?;
        }
        Ok(())
    }

    fn to_draft(&self, _writer: &mut StoreWriter<'_>) -> Result<Self, ApiError> {
        Ok(self.clone())
    }

    fn to_save(
        _writer: &mut StoreWriter<'_>,
        before: Self,
        drafted: ResourceDraft<Self>,
        patch: &Patch,
        request: &ApiRequest,
    ) -> Result<Self, ApiError> {
        let sets_owner = drafted.has("owner") && drafted.draft.owner.is_some();
        let mut runbook = drafted.draft;
        // Responses mask passwords in URLs: restore those that come back masked.
        let stored: Vec<_> = before.steps.iter().map(|step| &step.args).collect();
        runbook.steps.iter_mut().for_each(|step| unmask_object(&mut step.args, &stored));
        if runbook.public && sets_owner {
            let problem = "There cannot be an owner for a public runbook";
            return Err(WireError::invalid(problem).into());
        }
        if patch.touches("public") && runbook.public {
            runbook.owner = None;
        }
        if patch.touches("steps") {
            check_steps(&request.access, &runbook)?;
        }
        Ok(runbook)
    }

    fn already_exists(&self, field: &str) -> WireError {
        WireError::conflict(match field {
            "name" => format!("A runbook with name {} already exists.", self.name),
            _ => format!("A runbook with UUID {} already exists.", self.id),
        })
    }
}

/// Fails with 403 if the caller may not request one of the steps.
fn check_steps(access: &CallerAccess, runbook: &Runbook) -> Result<(), WireError> {
    runbook
        .steps
        .iter()
        .try_for_each(|step| access.require_step(&step.interface, &step.step, &PolicyTarget::NONE))
}

/// A runbook of a caller of a project belongs to that project and is not public.
fn set_owner(access: &CallerAccess, runbook: &mut Runbook) -> Result<(), WireError> {
    if access.is_system() {
        return Ok(());
    }
    let project = access.project();
    if runbook.owner.as_deref().is_some_and(|owner| !owner.is_empty() && Some(owner) != project) {
        let problem = "callers of a project can only create runbooks that their project owns";
        return Err(WireError::invalid_field("owner", problem));
    }
    if runbook.public {
        let problem = "callers of a project cannot create public runbooks";
        return Err(WireError::invalid_field("public", problem));
    }
    let Some(project) = project else { return Err(denied("baremetal:runbook:create")) };
    runbook.owner = Some(project.to_owned());
    Ok(())
}

async fn traits(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "runbook");
    let runbook: Runbook = request.app.store.read(move |reader| ident.find(reader)).await?;
    Ok(ApiResponse::ok(traits_body(&runbook.traits)))
}

async fn replace_traits(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let replacement = parse_traits(&request.body)?;
    change_traits(request, move |traits| {
        traits.clone_from(&replacement);
        Ok(())
    })
    .await?;
    Ok(ApiResponse::no_content())
}

async fn remove_traits(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    change_traits(request, |traits| {
        traits.clear();
        Ok(())
    })
    .await?;
    Ok(ApiResponse::no_content())
}

async fn add_trait(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    if !request.body.is_empty() {
        return Err(WireError::invalid("No body should be provided when adding a trait").into());
    }
    let added = request.param("trait").to_owned();
    check_trait(&added)?;
    let location = request.link(&format!("runbooks/{}/traits/{added}", request.param("runbook")));
    change_traits(request, move |traits| {
        if !traits.contains(&added) {
            traits.push(added.clone());
        }
        if traits.len() > MAX_TRAITS { Err(too_many_traits()) } else { Ok(()) }
    })
    .await?;
    Ok(ApiResponse::no_content().with_location(&location))
}

async fn remove_trait(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let removed = request.param("trait").to_owned();
    change_traits(request, move |traits| {
        // As in Ironic, a missing trait is not an error.
        traits.retain(|name| *name != removed);
        Ok(())
    })
    .await?;
    Ok(ApiResponse::no_content())
}

async fn change_traits(
    request: ApiRequest,
    change: impl Fn(&mut Vec<String>) -> Result<(), WireError> + Send + 'static,
) -> Result<(), ApiError> {
    request.check_query(&[])?;
    let ident = ResourceIdent::from_path(&request, "runbook");
    request
        .app
        .store
        .write(move |writer: &mut StoreWriter<'_>| {
            let mut runbook: Runbook = ident.find(writer)?;
            change(&mut runbook.traits)?;
            runbook.traits.sort_unstable();
            runbook.traits.dedup();
            writer.save(&mut runbook)?;
            Ok::<_, ApiError>(())
        })
        .await
}

fn parse_traits(body: &[u8]) -> Result<Vec<String>, WireError> {
    let mut members = parse_object(body, "traits")?;
    let Some(Value::Array(items)) = members.remove("traits") else {
        return Err(WireError::invalid("traits must be given as a list of names"));
    };
    if let Some(name) = members.keys().next() {
        return Err(WireError::unexpected(&[name]));
    }
    if items.len() > MAX_TRAITS {
        return Err(too_many_traits());
    }
    items
        .into_iter()
        .map(|item| match item {
            Value::String(name) => check_trait(&name).map(|()| name),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Err(WireError::invalid("a trait must be a string")),
        })
        .collect()
}

fn check_trait(name: &str) -> Result<(), WireError> {
    if is_trait(name) {
        return Ok(());
    }
    let excerpt: String = name.chars().take(120).collect();
    let problem = format!(
        "'{excerpt}' is not a trait: use CUSTOM_ and capital letters, digits or underscores, or a standard trait"
    );
    Err(WireError::invalid(problem))
}

fn too_many_traits() -> WireError {
    WireError::invalid(format!("There can be at most {MAX_TRAITS} traits"))
}
