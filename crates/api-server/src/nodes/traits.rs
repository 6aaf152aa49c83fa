// SPDX-License-Identifier: Apache-2.0
//! `…/traits`: what a node offers to those who ask for a machine.

use http::Method;
use ironic_wire::{MOST_TRAITS, WireError, parse_object, parse_trait, parse_traits, traits_body};
use node_model::Node;

use super::reach;
use crate::belongings;
use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Route, TooOld};

const SINCE: u16 = 37;
const ALL: &str = "/v1/nodes/{node}/traits";
const ONE: &str = "/v1/nodes/{node}/traits/{trait}";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List the traits of a node", handler!(list))
        .since(SINCE)
        .too_old(TooOld::NotAcceptable),
    Route::new(Method::PUT, ALL, "Replace the traits of a node", handler!(replace))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::PUT, ONE, "Add a trait to a node", handler!(add))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::DELETE, ALL, "Remove all traits of a node", handler!(remove_all))
        .since(SINCE),
    Route::new(Method::DELETE, ONE, "Remove a trait of a node", handler!(remove)).since(SINCE),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let node = reach::node(&call).await?;
    Ok(Reply::ok(traits_body(&node.traits)))
}

async fn replace(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let traits = parse_traits(&call.body)?;
    change(&call, move |node| {
        node.traits.clone_from(&traits);
        Ok(())
    })
    .await?;
    Ok(Reply::no_content())
}

async fn add(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let added = parse_trait(call.param("trait"))?;
    if !parse_object(&call.body, "trait")?.is_empty() {
        let problem = "No body is expected when a trait is added: the path names it.";
        return Err(WireError::invalid(problem).into());
    }
    let location = call.link(&format!("nodes/{}/traits/{added}", call.param("node")));
    change(&call, move |node| {
        let Err(place) = node.traits.binary_search(&added) else { return Ok(()) };
        if node.traits.len() >= MOST_TRAITS {
            return Err(WireError::invalid(format!(
                "Node {} has {MOST_TRAITS} traits already, and that is the most a node can have.",
                node.label()
            )));
        }
        node.traits.insert(place, added.clone());
        Ok(())
    })
    .await?;
    Ok(Reply::no_content().with_location(&location))
}

async fn remove_all(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    change(&call, |node| {
        node.traits.clear();
        Ok(())
    })
    .await?;
    Ok(Reply::no_content())
}

async fn remove(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let removed = call.param("trait").to_owned();
    change(&call, move |node| match node.traits.binary_search(&removed) {
        Ok(place) => {
            node.traits.remove(place);
            Ok(())
        }
        Err(_) => {
            let shown: String = removed.chars().take(255).collect();
            Err(WireError::new(404, format!("Node {} has no trait '{shown}'.", node.id)))
        }
    })
    .await?;
    Ok(Reply::no_content())
}

/// Changes the traits of the node in the path, in one transaction. Nothing is written if nothing
/// changes.
async fn change(
    call: &Call,
    change: impl Fn(&mut Node) -> Result<(), WireError> + Send + 'static,
) -> Result<(), Refusal> {
    let ident = Ident::of_path(call, "node");
    let (now, actor) = (call.now(), call.actor());
    call.app
        .store
        .write(move |writer| {
            let mut node: Node = ident.find(writer)?;
            let before = node.traits.clone();
            change(&mut node)?;
            if node.traits != before {
                writer.save(&mut node)?;
                belongings::note(writer, now, node.id, &actor, "traits");
            }
            Ok::<_, Refusal>(())
        })
        .await
}
