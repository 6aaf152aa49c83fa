// SPDX-License-Identifier: Apache-2.0
//! Replays the access cases of the `ironic` package (`ironic/tests/unit/api/test_rbac_*.yaml`).
//!
//! `FERRITE_TEST_STOCK_IRONIC` is the virtual environment in which `cargo xtask test` installs it.
//! `deviations.txt` lists the cases to which we respond differently, with the reason; a listed case
//! that does not deviate fails the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use access_policy::{Caller, CallerScope};
use serde::Deserialize;
use serde_json::Value;

use crate::fixture::{PolicyFixture, PolicyOptions, PolicyResponse, caller};
use crate::rbac_data::{self, Placeholders};

const DEVIATIONS: &str = include_str!("deviations.txt");

/// A case, as in the files.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RbacCase {
    path: String,
    method: Option<String>,
    headers: BTreeMap<String, String>,
    body: Value,
    assert_status: Option<u16>,
    assert_dict_contains: BTreeMap<String, Value>,
    assert_list_length: BTreeMap<String, usize>,
    self_manage_nodes: Option<bool>,
    enable_service_project: bool,
    service_project: Option<String>,
    skip_reason: Option<String>,
    deprecated: bool,
}

/// The database of a file's cases, which is copied for those that change it.
struct CaseFile {
    name: &'static str,
    cases: BTreeMap<String, RbacCase>,
    template: PolicyFixture,
    placeholders: Placeholders,
}

#[tokio::test]
async fn responds_like_ironic() {
    let Some(folder) = case_folder() else {
        println!("skipped: FERRITE_TEST_STOCK_IRONIC is not set");
        return;
    };
    let deviations = deviations();
    let mut problems = String::new();
    let mut count = 0;
    let mut seen = Vec::new();
    for name in [
        "test_acl_basic",
        "test_rbac_legacy",
        "test_rbac_system_scoped",
        "test_rbac_project_scoped",
    ] {
        let file = CaseFile::load(&folder, name).await;
        let mut current: Option<(PolicyFixture, PolicyOptions)> = None;
        for (case_name, case) in &file.cases {
            if case.skip_reason.is_some() {
                continue;
            }
            count += 1;
            let key = format!("{}/{case_name}", file.name);
            let options = case.options();
            if current.as_ref().is_none_or(|(_, with)| *with != options) {
                let fixture = PolicyFixture::copy_of(file.template.data.path(), &options);
                current = Some((fixture, options));
            }
            let Some((fixture, _)) = &current else { unreachable!() };
            let response = case.send(fixture, &file.placeholders).await;
            let outcome = case.compare(&response, &file.placeholders);
            match (outcome, deviations.get(key.as_str())) {
                (Ok(()), None) => {}
                (Err(_), Some(_)) => seen.push(key.clone()),
                (Ok(()), Some(_)) => {
                    seen.push(key.clone());
                    let _ = writeln!(problems, "{key}: does not deviate any more");
                }
                (Err(problem), None) => {
                    let _ = writeln!(problems, "{key}: {problem}");
                }
            }
            if case.method() != "get" && response.status < 300 {
                current = None;
            }
        }
    }
    for key in deviations.keys().filter(|key| !seen.iter().any(|seen| seen == *key)) {
        let _ = writeln!(problems, "{key}: there is no such case");
    }
    assert!(problems.is_empty(), "{count} cases\n{problems}");
    assert!(count > 1_200, "only {count} cases");
}

/// The folder with the files.
fn case_folder() -> Option<PathBuf> {
    let environment = PathBuf::from(std::env::var_os("FERRITE_TEST_STOCK_IRONIC")?);
    let libraries = std::fs::read_dir(environment.join("lib")).ok()?;
    libraries
        .filter_map(|entry| Some(entry.ok()?.path().join("site-packages/ironic/tests/unit/api")))
        .find(|path| path.exists())
}

/// Case to reason. Lines have the form `file/case: reason`; others are empty or start with `#`.
fn deviations() -> BTreeMap<&'static str, &'static str> {
    DEVIATIONS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(": ").unwrap_or_else(|| panic!("no reason: {line}")))
        .collect()
}

impl CaseFile {
    async fn load(folder: &Path, name: &'static str) -> Self {
        let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        // A hardware type that only exists in Ironic's tests.
        let text = text.replace("fake-driverz", "fake-hardware");
        // The files use few anchors very often.
        let options = serde_saphyr::options! { budget: None };
        let mut cases: BTreeMap<String, RbacCase> =
            serde_saphyr::from_str_with_options(&text, options).unwrap();
        cases.remove("values");
        let template = PolicyFixture::empty().await;
        let placeholders = match name {
            "test_acl_basic" => rbac_data::basic_resources(&template).await,
            "test_rbac_project_scoped" => rbac_data::project_resources(&template).await,
            _ => rbac_data::system_resources(&template).await,
        };
        Self { name: name.trim_start_matches("test_"), cases, template, placeholders }
    }
}

impl RbacCase {
    fn method(&self) -> &str {
        self.method.as_deref().unwrap_or("get")
    }

    fn options(&self) -> PolicyOptions {
        let service_project = self.service_project.clone().unwrap_or_else(|| "service".to_owned());
        PolicyOptions {
            project_admin_can_manage_own_nodes: self.self_manage_nodes.unwrap_or(true),
            service_project: self.enable_service_project.then_some(service_project),
            overrides: None,
            max_lease: None,
        }
    }

    fn caller(&self, placeholders: &Placeholders) -> Caller {
        let header = |name: &str| {
            let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| fill(value, placeholders))
        };
        let scope = match (header("OpenStack-System-Scope"), header("X-Project-Id")) {
            (Some(_), _) => CallerScope::System,
            (None, Some(project)) => CallerScope::Project(project.into()),
            (None, None) => CallerScope::Unscoped,
        };
        let roles = header("X-Roles").unwrap_or_default();
        let roles: Vec<&str> = roles.split(',').map(str::trim).filter(|r| !r.is_empty()).collect();
        caller(scope, header("X-Project-Name").as_deref(), &roles)
    }

    async fn send(&self, fixture: &PolicyFixture, placeholders: &Placeholders) -> PolicyResponse {
        let path = fill(&self.path, placeholders);
        let method = self.method().to_uppercase();
        fixture.call(&self.caller(placeholders), &method, &path, &self.body).await
    }

    fn compare(
        &self,
        response: &PolicyResponse,
        placeholders: &Placeholders,
    ) -> Result<(), String> {
        let status = response.status;
        let describe = |what: String| {
            let text: String = response.text.chars().take(160).collect();
            format!("{} {}: {what}; {text}", self.method(), self.path)
        };
        // Cases of the rules before scopes: the new rules may reject what the old ones allowed.
        if self.deprecated && matches!(status, 403 | 404 | 500) {
            return Ok(());
        }
        let expected = self.assert_status.unwrap_or(0);
        let is_expected = match expected {
            // In Ironic's tests there is no conductor: 503 means that the request was allowed.
            503 => !matches!(status, 401 | 403 | 404 | 500..),
            _ => status == expected,
        };
        if !is_expected {
            return Err(describe(format!("{status} instead of {expected}")));
        }
        let body = response.json();
        for (key, value) in &self.assert_dict_contains {
            let expected = match value.as_str() {
                Some("None") => Value::Null,
                Some("{}") => serde_json::json!({}),
                Some(text) => Value::String(fill(text, placeholders)),
                None => value.clone(),
            };
            if body[key] != expected {
                return Err(describe(format!("{key} is {} instead of {expected}", body[key])));
            }
        }
        for (key, length) in &self.assert_list_length {
            let expected = if self.deprecated { 0 } else { *length };
            let found = body[key].as_array().map(Vec::len);
            if found != Some(expected) {
                return Err(describe(format!("{key} has {found:?} entries instead of {expected}")));
            }
        }
        Ok(())
    }
}

/// Replaces `{name}` by its value.
fn fill(text: &str, placeholders: &Placeholders) -> String {
    placeholders
        .iter()
        .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}
