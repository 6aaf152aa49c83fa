// SPDX-License-Identifier: Apache-2.0
//! The service root, and the registries it links to.

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, link};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ROOT, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::Root, "/redfish").get(versions).public(),
    RedfishRoute::at(ResourceKind::Root, "/redfish/v1").get(root).public(),
    RedfishRoute::at(ResourceKind::Root, "/redfish/v1/odata").get(odata).public(),
    RedfishRoute::at(ResourceKind::Registries, "/redfish/v1/Registries").get(registries),
    RedfishRoute::at(ResourceKind::RegistryFile, "/redfish/v1/Registries/{registry}")
        .get(registry_file),
];

/// Resources that the service root links to.
const SERVICES: &[(&str, ResourceKind)] = &[
    ("Systems", ResourceKind::Systems),
    ("Managers", ResourceKind::Managers),
    ("Chassis", ResourceKind::ChassisList),
    ("SessionService", ResourceKind::SessionService),
    ("AccountService", ResourceKind::AccountService),
    ("UpdateService", ResourceKind::UpdateService),
    ("EventService", ResourceKind::EventService),
    ("Registries", ResourceKind::Registries),
];

fn versions(_: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    Ok(json!({"v1": "/redfish/v1/"}))
}

fn root(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ServiceRoot.v1_15_0.ServiceRoot";
    let mut document = ResourceDocument::new("/redfish/v1/", schema, "RootService", "Root Service");
    let personality = context.personality();
    context.link_existing(&mut document, ROOT, SERVICES);
    if context.has_resource(ResourceKind::TaskService) {
        document.link("Tasks", format!("{ROOT}/TaskService"));
    }
    document.extend(json!({
        "RedfishVersion": personality.redfish_version,
        "UUID": context.machine.identity().uuid(),
        "Vendor": personality.manufacturer,
        "Product": personality.manager_model,
        "Links": {"Sessions": link(format!("{ROOT}/SessionService/Sessions"))},
    }));
    Ok(document.into_value())
}

fn odata(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let existing = SERVICES.iter().filter(|(_, kind)| context.has_resource(*kind));
    let services: Vec<Value> = existing
        .map(
            |(name, _)| json!({"name": name, "kind": "Singleton", "url": format!("{ROOT}/{name}")}),
        )
        .collect();
    Ok(json!({"@odata.context": "/redfish/v1/$metadata", "value": services}))
}

fn registries(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#MessageRegistryFileCollection.MessageRegistryFileCollection";
    let members = std::iter::once(registry_path(context));
    Ok(collection(context.path, schema, "Registries", members))
}

fn registry_file(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let registry = &context.personality().bios.registry;
    if context.param("registry") != registry {
        return Err(context.not_found());
    }
    let schema = "#MessageRegistryFile.v1_1_3.MessageRegistryFile";
    let mut document =
        ResourceDocument::new(context.path, schema, registry, "BIOS Attribute Registry File");
    document.extend(json!({
        "Registry": registry,
        "Languages": ["en"],
        "Location": [{"Language": "en", "Uri": format!("{}/{registry}.json", context.path)}],
    }));
    Ok(document.into_value())
}

fn registry_path(context: &RequestContext<'_>) -> String {
    format!("{ROOT}/Registries/{}", context.personality().bios.registry)
}
