// SPDX-License-Identifier: Apache-2.0
//! The only account of the BMC, an administrator.

use serde_json::{Value, json};

use super::document::{ResourceDocument, collection, status};
use super::error_response::RedfishErrorResponse;
use super::request_context::{ROOT, RequestContext};
use super::resource_kind::ResourceKind;
use super::routes::RedfishRoute;
use crate::machine::Health;

pub(super) const ROUTES: &[RedfishRoute] = &[
    RedfishRoute::at(ResourceKind::AccountService, "/redfish/v1/AccountService").get(service),
    RedfishRoute::at(ResourceKind::Accounts, "/redfish/v1/AccountService/Accounts").get(list),
    RedfishRoute::at(ResourceKind::Account, "/redfish/v1/AccountService/Accounts/{account}")
        .get(show),
];

const ONLY_ACCOUNT: &str = "1";

fn service(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#AccountService.v1_10_0.AccountService";
    let mut document =
        ResourceDocument::new(context.path, schema, "AccountService", "Account Service");
    document
        .set("ServiceEnabled", true)
        .set("Status", status(Health::Ok))
        .link("Accounts", format!("{}/Accounts", context.path));
    Ok(document.into_value())
}

fn list(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    let schema = "#ManagerAccountCollection.ManagerAccountCollection";
    let members = std::iter::once(format!("{ROOT}/AccountService/Accounts/{ONLY_ACCOUNT}"));
    Ok(collection(context.path, schema, "Accounts", members))
}

fn show(context: &RequestContext<'_>) -> Result<Value, RedfishErrorResponse> {
    if context.param("account") != ONLY_ACCOUNT {
        return Err(context.not_found());
    }
    let schema = "#ManagerAccount.v1_8_0.ManagerAccount";
    let mut document = ResourceDocument::new(context.path, schema, ONLY_ACCOUNT, "User Account");
    document.extend(json!({
        "UserName": context.credentials.username,
        "Password": null,
        "RoleId": "Administrator",
        "Enabled": true,
        "Locked": false,
    }));
    Ok(document.into_value())
}
