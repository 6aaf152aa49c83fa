// SPDX-License-Identifier: Apache-2.0
//! Inspection rules.

use http::Method;
use ironic_wire::{Patch, WireError, create as draft, params};
use node_model::{InspectionRule, Sensitive};
use store::{InspectionRuleFilter, Query};

use crate::call::Call;
use crate::handler;
use crate::kept::{self, Ident, Whole};
use crate::refusal::{Refusal, Reword};
use crate::reply::Reply;
use crate::routes::{Route, TooOld};

const SINCE: u16 = 96;
const ALL: &str = "/v1/inspection_rules";
const ONE: &str = "/v1/inspection_rules/{rule}";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(ALL, "List inspection rules", handler!(list))
        .since(SINCE)
        .query(&["phase", "fields", "detail", "limit", "marker", "sort_key", "sort_dir"]),
    Route::new(Method::POST, ALL, "Create an inspection rule", handler!(create))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::DELETE, ALL, "Remove all inspection rules", handler!(delete_all))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::get(ONE, "Show an inspection rule", handler!(show)).since(SINCE).query(&["fields"]),
    Route::new(Method::PATCH, ONE, "Change an inspection rule", handler!(patch))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
    Route::new(Method::DELETE, ONE, "Remove an inspection rule", handler!(delete))
        .since(SINCE)
        .too_old(TooOld::MethodNotAllowed),
];

async fn list(call: Call) -> Result<Reply, Refusal> {
    let path = "inspection_rules".into();
    kept::list::<InspectionRule>(
        call,
        params::INSPECTION_RULES,
        Whole::OnDemand,
        path,
        |_, query| {
            let phase = query.text("phase").map(str::to_owned);
            Ok(InspectionRuleFilter { phase })
        },
    )
    .await
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::show::<InspectionRule>(call, "rule", params::ONE_WITH_FIELDS).await
}

async fn create(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let rule = draft::<InspectionRule>(&call.body, call.version, call.now())?.draft;
    check_content(call.app.conductor.api_call_allowed(), &rule)?;
    let stored = rule.clone();
    call.app
        .store
        .write(move |writer| writer.insert(&stored).on_duplicate(|_| already(&stored)))
        .await?;
    Ok(kept::created(&call, &rule))
}

async fn patch(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let patch = Patch::parse(&call.body)?;
    let ident = Ident::of_path(&call, "rule");
    let version = call.version;
    let allowed = call.app.conductor.api_call_allowed().to_vec();
    let rule = call
        .app
        .store
        .write(move |writer| {
            let rule: InspectionRule = ident.find(writer)?;
            let was = rule.sensitive;
            let mut rule = patch.apply::<InspectionRule>(rule, version)?.draft;
            // Otherwise anybody could read what was hidden by asking for it to be shown.
            if was == Sensitive::Yes && rule.sensitive == Sensitive::No {
                let problem = "Inspection rules cannot have the sensitive flag unset";
                return Err(WireError::invalid(problem).into());
            }
            check_content(&allowed, &rule)?;
            writer.save(&mut rule)?;
            Ok::<_, Refusal>(rule)
        })
        .await?;
    Ok(kept::changed(&call, &rule))
}

async fn delete(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let ident = Ident::of_path(&call, "rule");
    call.app
        .store
        .write(move |writer| {
            let rule: InspectionRule = ident.find(writer)?;
            writer.delete(rule.id)?;
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

async fn delete_all(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    call.app
        .store
        .write(|writer| {
            for rule in writer.collect(&Query::<InspectionRule>::default())? {
                writer.delete(rule.id)?;
            }
            Ok::<_, Refusal>(())
        })
        .await?;
    Ok(Reply::no_content())
}

/// Checks that the rule can be carried out: a bad expression is refused now rather than when a
/// machine is inspected.
fn check_content(allowed: &[String], rule: &InspectionRule) -> Result<(), WireError> {
    let actions = rule.actions.parse();
    inspection::validate_rule(&rule.conditions.parse(), &actions)
        .map_err(|error| WireError::invalid(error.to_string()))?;
    if allowed.is_empty() && actions.iter().any(|action| action["op"] == "api-call") {
        let problem = "the action api-call is off: name the addresses that rules may ask in \
                       inspection.api_call_allowed of the configuration";
        return Err(WireError::invalid_field("actions", problem));
    }
    Ok(())
}

fn already(rule: &InspectionRule) -> WireError {
    WireError::conflict(format!("An inspection rule with UUID {} already exists.", rule.id))
}
