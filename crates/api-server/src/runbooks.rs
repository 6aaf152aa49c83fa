// SPDX-License-Identifier: Apache-2.0
//! Runbooks: approved lists of steps, and the traits that say on which nodes they may run.

use http::Method;
use ironic_wire::{
    MOST_TRAITS, Patch, WireError, create as draft, is_trait, params, parse_object, traits_body,
};
use node_model::{Runbook, unmask_object};
use serde_json::Value;
use store::{RunbookFilter, Writer};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::{Route, TooOld};

const SINCE: u16 = 92;
const TRAITS_SINCE: u16 = 112;
const ONE: &str = "/v1/runbooks/{runbook}";
const TRAITS: &str = "/v1/runbooks/{runbook}/traits";
const TRAIT: &str = "/v1/runbooks/{runbook}/traits/{trait}";

pub(crate) const ROUTES: &[Route] = &[
    Route::get("/v1/runbooks", "List runbooks", handler!(list))
        .since(SINCE)
        .query(&["fields", "detail", "project", "limit", "marker", "sort_key", "sort_dir"]),
    Route::new(Method::POST, "/v1/runbooks", "Create a runbook", handler!(create))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::get(ONE, "Show a runbook", handler!(show)).since(SINCE).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change a runbook", handler!(patch))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::DELETE, ONE, "Remove a runbook", handler!(delete))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::get(TRAITS, "List the traits of a runbook", handler!(traits)).since(TRAITS_SINCE),
    Route::new(Method::PUT, TRAITS, "Replace the traits of a runbook", handler!(replace_traits))
        .since(TRAITS_SINCE),
    Route::new(Method::DELETE, TRAITS, "Remove the traits of a runbook", handler!(remove_traits))
        .since(TRAITS_SINCE),
    Route::new(Method::PUT, TRAIT, "Add a trait to a runbook", handler!(add_trait))
        .since(TRAITS_SINCE),
    Route::new(Method::DELETE, TRAIT, "Remove a trait from a runbook", handler!(remove_trait))
        .since(TRAITS_SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let path = "runbooks".into();
    // `project` narrows the list to the caller's project; without projects it changes nothing.
    kept::list::<Runbook>(call, params::RUNBOOKS, Whole::OnDemand, path, |_, _| {
        Ok(RunbookFilter::default())
    })
    .await
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<Runbook>(call, "runbook", params::ONE_WITH_FIELDS).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let runbook = draft::<Runbook>(&call.body, call.version, call.now())?.draft;
    let stored = runbook.clone();
    call.app
        .store
        .write(move |writer| writer.insert(&stored).on_duplicate(|field| already(&stored, field)))
        .await?;
    Ok(kept::created(&call, &runbook))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    let ident = Ident::of_path(&call, "runbook");
    let version = call.version;
    let runbook = call
        .app
        .store
        .write(move |writer| {
            let before: Runbook = ident.find(writer)?;
            let drafted = patch.apply::<Runbook>(before.clone(), version)?;
            let owner_given = drafted.has("owner") && drafted.draft.owner.is_some();
            let mut runbook = drafted.draft;
            // Passwords of URLs are shown masked, and may come back so.
            let known: Vec<_> = before.steps.iter().map(|step| &step.args).collect();
            runbook.steps.iter_mut().for_each(|step| unmask_object(&mut step.args, &known));
            if runbook.public && owner_given {
                let problem = "There cannot be an owner for a public runbook";
                return Err(WireError::invalid(problem).into());
            }
            if patch.touches("public") && runbook.public {
                runbook.owner = None;
            }
            writer.save(&mut runbook).on_duplicate(|field| already(&runbook, field))?;
            Ok::<_, Refusal>(runbook)
        })
        .await?;
    Ok(kept::changed(&call, &runbook))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "runbook");
    call.app
        .store
        .write(move |writer| {
            let runbook: Runbook = ident.find(writer)?;
            writer.delete(runbook.id)?;
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

async fn traits(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "runbook");
    let runbook: Runbook = call.app.store.read(move |reader| ident.find(reader)).await?;
    Ok(Reply::ok(traits_body(&runbook.traits)))
}

async fn replace_traits(call: Call) -> Result<Reply, Refusal> {
    let wanted = trait_list(&call.body)?;
    change_traits(call, move |traits| {
        traits.clone_from(&wanted);
        Ok(())
    })
    .await?;
    Ok(Reply::no_content())
}

async fn remove_traits(call: Call) -> Result<Reply, Refusal> {
    change_traits(call, |traits| {
        traits.clear();
        Ok(())
    })
    .await?;
    Ok(Reply::no_content())
}

async fn add_trait(call: Call) -> Result<Reply, Refusal> {
    if !call.body.is_empty() {
        return Err(WireError::invalid("No body should be provided when adding a trait").into());
    }
    let added = call.param("trait").to_owned();
    check_trait(&added)?;
    let location = call.link(&format!("runbooks/{}/traits/{added}", call.param("runbook")));
    change_traits(call, move |traits| {
        if !traits.contains(&added) {
            traits.push(added.clone());
        }
        if traits.len() > MOST_TRAITS { Err(too_many()) } else { Ok(()) }
    })
    .await?;
    Ok(Reply::no_content().with_location(&location))
}

async fn remove_trait(call: Call) -> Result<Reply, Refusal> {
    let removed = call.param("trait").to_owned();
    change_traits(call, move |traits| {
        // A trait that is not there is as good as removed: Ironic does not complain either.
        traits.retain(|kept| *kept != removed);
        Ok(())
    })
    .await?;
    Ok(Reply::no_content())
}

async fn change_traits(
    call: Call,
    change: impl Fn(&mut Vec<String>) -> Result<(), WireError> + Send + 'static,
) -> Result<(), Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "runbook");
    call.app
        .store
        .write(move |writer: &mut Writer<'_>| {
            let mut runbook: Runbook = ident.find(writer)?;
            change(&mut runbook.traits)?;
            runbook.traits.sort_unstable();
            runbook.traits.dedup();
            writer.save(&mut runbook)?;
            Ok::<_, Refusal>(())
        })
        .await
}

fn trait_list(body: &[u8]) -> Result<Vec<String>, WireError> {
    let mut members = parse_object(body, "traits")?;
    let Some(Value::Array(items)) = members.remove("traits") else {
        return Err(WireError::invalid("traits must be given as a list of names"));
    };
    if let Some(name) = members.keys().next() {
        return Err(WireError::unexpected(&[name]));
    }
    if items.len() > MOST_TRAITS {
        return Err(too_many());
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
    let shown: String = name.chars().take(120).collect();
    let problem = format!(
        "'{shown}' is not a trait: use CUSTOM_ and capital letters, digits or underscores, or a standard trait"
    );
    Err(WireError::invalid(problem))
}

fn too_many() -> WireError {
    WireError::invalid(format!("There can be at most {MOST_TRAITS} traits"))
}

fn already(runbook: &Runbook, field: &str) -> WireError {
    WireError::conflict(match field {
        "name" => format!("A runbook with name {} already exists.", runbook.name),
        _ => format!("A runbook with UUID {} already exists.", runbook.id),
    })
}
