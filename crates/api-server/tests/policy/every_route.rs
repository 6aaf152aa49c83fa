// SPDX-License-Identifier: Apache-2.0
//! Rules over the whole route table.

use access_policy::{CallerScope, Policy, PolicyTarget};
use api_server::{RouteAccess, WEB_UI_ROUTES, openapi};
use serde_json::Value;

use crate::fixture::{PolicyFixture, caller};

/// A route of the API, from the OpenAPI document.
pub(crate) struct PolicyRoute {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Callers without credentials may use it.
    pub(crate) is_public: bool,
    pub(crate) rules: Vec<String>,
}

pub(crate) fn documented_routes() -> Vec<PolicyRoute> {
    let document = openapi();
    let mut routes = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("a map of paths") {
        for (method, operation) in methods.as_object().expect("a map of methods") {
            let rules = operation["x-policy-rules"].as_array().cloned().unwrap_or_default();
            routes.push(PolicyRoute {
                method: method.to_uppercase(),
                path: path.clone(),
                is_public: operation["security"] == serde_json::json!([])
                    || operation["security"][0] == serde_json::json!({}),
                rules: rules.iter().filter_map(|rule| rule.as_str().map(str::to_owned)).collect(),
            });
        }
    }
    routes
}

/// Routes that every authenticated caller may use, because they contain only the caller itself or no
/// resources.
const WITHOUT_RULE: &[&str] = &["/v1/ferrite/openapi", "/v1/ferrite/whoami"];

#[test]
fn every_route_is_public_or_has_rules() {
    let without: Vec<String> = documented_routes()
        .into_iter()
        .filter(|route| !route.is_public && route.rules.is_empty())
        .map(|route| route.path)
        .filter(|path| !WITHOUT_RULE.contains(&path.as_str()))
        .collect();
    assert_eq!(without, Vec::<String>::new());
    // The files of the web UI and its sign-in contain no resources.
    for route in WEB_UI_ROUTES.iter().copied().flatten() {
        assert_eq!(route.access, RouteAccess::Public, "{}", route.path);
    }
}

/// A caller without roles gets nothing, whatever it sends, except what a rule allows every caller.
#[tokio::test]
async fn callers_without_roles_are_rejected() {
    let fixture = PolicyFixture::empty().await;
    fixture.create("/v1/nodes", serde_json::json!({"driver": "fake-hardware", "name": "n1"})).await;
    let scopes = [CallerScope::Unscoped, CallerScope::System, CallerScope::Project("p1".into())];
    let policy = Policy::with_overrides(None).unwrap();
    for route in documented_routes() {
        if route.is_public || WITHOUT_RULE.contains(&route.path.as_str()) {
            continue;
        }
        let without_roles = caller(CallerScope::Unscoped, None, &[]);
        if route.rules.iter().any(|rule| policy.allows(rule, &without_roles, &PolicyTarget::NONE)) {
            continue;
        }
        let path = fill_path(&route.path);
        for scope in &scopes {
            let caller = caller(scope.clone(), None, &[]);
            for body in [Value::Null, serde_json::json!({}), serde_json::json!([])] {
                let response = fixture.call(&caller, &route.method, &path, &body).await;
                let (method, status) = (&route.method, response.status);
                assert!(
                    matches!(status, 400 | 403 | 404 | 405),
                    "{method} {path} as {scope:?}: {status} {}",
                    response.text
                );
            }
        }
    }
}

fn fill_path(path: &str) -> String {
    path.split('/')
        .map(|segment| match segment {
            "{node}" => "n1",
            "{mac}" => "00:00:00:00:00:01",
            segment if segment.starts_with('{') => "3f0d4a0c-6f1c-4a34-9f02-5d3f0f1b0001",
            segment => segment,
        })
        .collect::<Vec<_>>()
        .join("/")
}
