// SPDX-License-Identifier: Apache-2.0
//! The account of the BMC: there is one, and it may do everything.

use serde_json::{Value, json};

use super::document::{Document, collection, status};
use super::kind::Kind;
use super::refusal::Refusal;
use super::routes::Route;
use super::visit::{ROOT, Visit};
use crate::machine::Health;

pub(super) const ROUTES: &[Route] = &[
    Route::at(Kind::AccountService, "/redfish/v1/AccountService").get(service),
    Route::at(Kind::Accounts, "/redfish/v1/AccountService/Accounts").get(list),
    Route::at(Kind::Account, "/redfish/v1/AccountService/Accounts/{account}").get(show),
];

const ONLY_ACCOUNT: &str = "1";

fn service(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#AccountService.v1_10_0.AccountService";
    let mut document = Document::new(visit.path, schema, "AccountService", "Account Service");
    document
        .put("ServiceEnabled", true)
        .put("Status", status(Health::Ok))
        .link("Accounts", format!("{}/Accounts", visit.path));
    Ok(document.done())
}

fn list(visit: &Visit<'_>) -> Result<Value, Refusal> {
    let schema = "#ManagerAccountCollection.ManagerAccountCollection";
    let members = std::iter::once(format!("{ROOT}/AccountService/Accounts/{ONLY_ACCOUNT}"));
    Ok(collection(visit.path, schema, "Accounts", members))
}

fn show(visit: &Visit<'_>) -> Result<Value, Refusal> {
    if visit.param("account") != ONLY_ACCOUNT {
        return Err(visit.not_found());
    }
    let schema = "#ManagerAccount.v1_8_0.ManagerAccount";
    let mut document = Document::new(visit.path, schema, ONLY_ACCOUNT, "User Account");
    document.extend(json!({
        "UserName": visit.credentials.username,
        "Password": null,
        "RoleId": "Administrator",
        "Enabled": true,
        "Locked": false,
    }));
    Ok(document.done())
}
