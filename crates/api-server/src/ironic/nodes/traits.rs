// SPDX-License-Identifier: Apache-2.0
//! `…/traits`: the traits of a node.

use http::Method;
use ironic_wire::{MAX_TRAITS, WireError, parse_object, parse_trait, parse_traits, traits_body};
use node_model::Node;

use super::path_node::find_node;
use crate::handler;
use crate::ironic::node_resources::record_change;
use crate::ironic::resource::ResourceIdent;
use crate::server::{ApiError, ApiRequest, ApiResponse, ApiRoute, TooOld};

const SINCE: u16 = 37;
const ALL: &str = "/v1/nodes/{node}/traits";
const ONE: &str = "/v1/nodes/{node}/traits/{trait}";

pub(crate) const ROUTES: &[ApiRoute] = &[
    ApiRoute::get(ALL, "List the traits of a node", handler!(list))
        .resource("baremetal:node:traits:list")
        .since(SINCE)
        .too_old(TooOld::NotAcceptable),
    ApiRoute::new(Method::PUT, ALL, "Replace the traits of a node", handler!(replace))
        .resource("baremetal:node:traits:set")
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(Method::PUT, ONE, "Add a trait to a node", handler!(add))
        .resource("baremetal:node:traits:set")
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    ApiRoute::new(Method::DELETE, ALL, "Remove all traits of a node", handler!(remove_all))
        .resource("baremetal:node:traits:delete")
        .since(SINCE),
    ApiRoute::new(Method::DELETE, ONE, "Remove a trait of a node", handler!(remove))
        .resource("baremetal:node:traits:delete")
        .since(SINCE),
];

async fn list(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let node = find_node(&request).await?;
    Ok(ApiResponse::ok(traits_body(&node.traits)))
}

async fn replace(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let traits = parse_traits(&request.body)?;
    change_traits(request, move |node| {
        node.traits.clone_from(&traits);
        Ok(())
    })
    .await?;
    Ok(ApiResponse::no_content())
}

async fn add(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let added = parse_trait(request.param("trait"))?;
    if !parse_object(&request.body, "trait")?.is_empty() {
        let problem = "No body is expected when a trait is added: its name is in the path.";
        return Err(WireError::invalid(problem).into());
    }
    let location = request.link(&format!("nodes/{}/traits/{added}", request.param("node")));
    change_traits(request, move |node| {
        let Err(position) = node.traits.binary_search(&added) else { return Ok(()) };
        if node.traits.len() >= MAX_TRAITS {
            return Err(WireError::invalid(format!(
                "Node {} already has {MAX_TRAITS} traits, which is the maximum.",
                node.label()
            )));
        }
        node.traits.insert(position, added.clone());
        Ok(())
    })
    .await?;
    Ok(ApiResponse::no_content().with_location(&location))
}

async fn remove_all(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    change_traits(request, |node| {
        node.traits.clear();
        Ok(())
    })
    .await?;
    Ok(ApiResponse::no_content())
}

async fn remove(request: ApiRequest) -> Result<ApiResponse, ApiError> {
    request.check_query(&[])?;
    let removed = request.param("trait").to_owned();
    change_traits(request, move |node| match node.traits.binary_search(&removed) {
        Ok(position) => {
            node.traits.remove(position);
            Ok(())
        }
        Err(_) => {
            let excerpt: String = removed.chars().take(255).collect();
            Err(WireError::new(404, format!("Node {} has no trait '{excerpt}'.", node.id)))
        }
    })
    .await?;
    Ok(ApiResponse::no_content())
}

/// Changes the traits of the node in the path, in one transaction. Writes nothing if they stay the
/// same.
async fn change_traits(
    request: ApiRequest,
    change: impl Fn(&mut Node) -> Result<(), WireError> + Send + 'static,
) -> Result<(), ApiError> {
    let ident = ResourceIdent::from_path(&request, "node");
    let store = request.app.store.clone();
    store
        .write(move |writer| {
            let mut node: Node = ident.find(writer)?;
            let before = node.traits.clone();
            change(&mut node)?;
            if node.traits != before {
                writer.save(&mut node)?;
                record_change(writer, node.id, "traits", &request);
            }
            Ok::<_, ApiError>(())
        })
        .await
}
