// SPDX-License-Identifier: Apache-2.0
//! Where every client starts: the service root, and the registries it points to.

use serde_json::{Value, json};

use super::document::{Document, collection, link};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{ROOT, Visit};

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::Root, "/redfish").get(versions).public(),
    Route::at(Kind::Root, "/redfish/v1").get(root).public(),
    Route::at(Kind::Root, "/redfish/v1/odata").get(odata).public(),
    Route::at(Kind::Registries, "/redfish/v1/Registries").get(registries),
    Route::at(Kind::RegistryFile, "/redfish/v1/Registries/{registry}").get(registry_file),
];

/// What the service root links to.
const SERVICES: &[(&str, Kind)] = &[
    ("Systems", Kind::Systems),
    ("Managers", Kind::Managers),
    ("Chassis", Kind::ChassisList),
    ("SessionService", Kind::SessionService),
    ("AccountService", Kind::AccountService),
    ("UpdateService", Kind::UpdateService),
    ("EventService", Kind::EventService),
    ("Registries", Kind::Registries),
];

fn versions(_: &Visit<'_>) -> Result<Value, Refusal> {
    Ok(json!({"v1": "/redfish/v1/"}))
}

fn root(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ServiceRoot.v1_15_0.ServiceRoot";
    let mut document = Document::new("/redfish/v1/", schema, "RootService", "Root Service");
    let personality = visit.personality();
    visit.link_those_there(&mut document, ROOT, SERVICES);
    if visit.has(Kind::TaskService) {
        document.link("Tasks", format!("{ROOT}/TaskService"));
    }
    document.extend(json!({
        "RedfishVersion": personality.redfish_version,
        "UUID": visit.machine.identity().uuid(),
        "Vendor": personality.manufacturer,
        "Product": personality.manager_model,
        "Links": {"Sessions": link(format!("{ROOT}/SessionService/Sessions"))},
    }));
    Ok(document.done())
}

fn odata(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let there = SERVICES.iter().filter(|(_, kind)| visit.has(*kind));
    let services: Vec<Value> = there
        .map(
            |(name, _)| json!({"name": name, "kind": "Singleton", "url": format!("{ROOT}/{name}")}),
        )
        .collect();
    Ok(json!({"@odata.context": "/redfish/v1/$metadata", "value": services}))
}

fn registries(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#MessageRegistryFileCollection.MessageRegistryFileCollection";
    let members = std::iter::once(registry_path(visit));
    Ok(collection(visit.path, schema, "Registries", members))
}

fn registry_file(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let registry = &visit.personality().bios.registry;
    if visit.param("registry") != registry {
        return Err(visit.not_found());
    }
    let schema = "#MessageRegistryFile.v1_1_3.MessageRegistryFile";
    let mut document = Document::new(visit.path, schema, registry, "BIOS Attribute Registry File");
    document.extend(json!({
        "Registry": registry,
        "Languages": ["en"],
        "Location": [{"Language": "en", "Uri": format!("{}/{registry}.json", visit.path)}],
    }));
    Ok(document.done())
}

fn registry_path(visit: &Visit<'_>) -> String {
    format!("{ROOT}/Registries/{}", visit.personality().bios.registry)
}
