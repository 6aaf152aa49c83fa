// SPDX-License-Identifier: Apache-2.0
//! An API without a network, and callers with roles.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use access_policy::{AuthMethod, Caller, CallerScope, Policy};
use api_server::{ApiConfig, App, AppParts, Metrics, ResponseBody, WEB_UI_ROUTES};
use authentication::Authenticator;
use bytes::Bytes;
use conductor::Conductor;
use driver_set::{DriverSettings, build_registry};
use node_model::{ConductorInfo, Timestamp};
use serde_json::Value;
use store::{SqliteSynchronous, Store, StoreClock, StoreSettings};
use tempfile::TempDir;

/// The constant time of the tests' clock.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_795_000_000);

/// Long enough for a loaded machine, short enough to detect a hang.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Settings that the cases of Ironic vary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PolicyOptions {
    pub(crate) project_admin_can_manage_own_nodes: bool,
    pub(crate) service_project: Option<String>,
    /// The content of policy.yaml.
    pub(crate) overrides: Option<&'static str>,
    pub(crate) max_lease: Option<Duration>,
}

impl Default for PolicyOptions {
    fn default() -> Self {
        Self {
            project_admin_can_manage_own_nodes: true,
            service_project: None,
            overrides: None,
            max_lease: None,
        }
    }
}

/// An API and its database.
pub(crate) struct PolicyFixture {
    pub(crate) app: Arc<App>,
    pub(crate) store: Store,
    pub(crate) data: TempDir,
}

impl PolicyFixture {
    /// An API with an empty database.
    pub(crate) async fn empty() -> Self {
        Self::with(&PolicyOptions::default()).await
    }

    /// An API with an empty database and these settings.
    pub(crate) async fn with(options: &PolicyOptions) -> Self {
        let fixture = Self::open(tempfile::tempdir().unwrap(), options);
        let info = ConductorInfo {
            hostname: "test-conductor-node".to_owned(),
            run: None,
            version: None,
            conductor_group: String::new(),
            drivers: vec!["fake-hardware".to_owned()],
            created_at: NOW,
            updated_at: NOW,
            online: true,
        };
        fixture.store.write(move |writer| writer.record_conductor_heartbeat(&info)).await.unwrap();
        fixture
    }

    /// An API with a copy of the database in `template`.
    pub(crate) fn copy_of(template: &Path, options: &PolicyOptions) -> Self {
        let data = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(template).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), data.path().join(entry.file_name())).unwrap();
            }
        }
        Self::open(data, options)
    }

    fn open(data: TempDir, options: &PolicyOptions) -> Self {
        let clock: StoreClock = Arc::new(|| NOW);
        let settings = StoreSettings {
            synchronous: SqliteSynchronous::Normal,
            ..StoreSettings::in_dir(data.path())
        };
        let store = Store::open_with_clock(&settings, Arc::clone(&clock)).unwrap();
        let conductor = Conductor::new(conductor::ConductorParts {
            store: store.clone(),
            registry: build_registry(
                &DriverSettings::default(),
                Arc::new(drivers::ExternalBootService),
            )
            .unwrap(),
            hostname: "test-conductor-node".to_owned(),
            settings: conductor::ConductorSettings {
                node_locked_timeout: 0,
                ..conductor::ConductorSettings::default()
            },
            rules: lifecycle::LifecycleSettings::default(),
            inspection: inspection::InspectionSettings::default(),
            clock: Arc::clone(&clock),
        });
        let config = ApiConfig {
            project_admin_can_manage_own_nodes: options.project_admin_can_manage_own_nodes,
            max_lease: options.max_lease,
            ..ApiConfig::default()
        };
        let authenticator = Authenticator::disabled(store.clone(), Arc::clone(&clock));
        let policy = Policy::with_overrides(options.overrides).unwrap();
        let app = App::new(AppParts {
            config,
            store: store.clone(),
            storage: store::StorageMonitor::new(store.clone(), data.path().to_owned()),
            conductor,
            clock,
            authenticator,
            policy: policy.with_service_project(options.service_project.as_deref()),
            metrics: Metrics::new(),
            boot: None,
            more_routes: WEB_UI_ROUTES.to_vec(),
        })
        .unwrap();
        Self { app, store, data }
    }

    /// Sends a request at the newest version.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        method: &str,
        path: &str,
        body: &Value,
    ) -> PolicyResponse {
        let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Host", "api.example:6385")
            .header("X-OpenStack-Ironic-API-Version", "latest")
            .header("Content-Type", "application/json")
            .body(bytes)
            .unwrap();
        let response = self.app.serve(caller.clone(), request).await;
        let status = response.status().as_u16();
        let text = match response.into_body() {
            ResponseBody::Complete(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            ResponseBody::Events(_) => String::new(),
        };
        PolicyResponse { status, text }
    }

    /// Follows an event stream until an event contains `last`.
    pub(crate) async fn events_until(&self, caller: &Caller, path: &str, last: &str) -> String {
        let request = http::Request::get(path).body(Bytes::new()).unwrap();
        let response = self.app.serve(caller.clone(), request).await;
        let status = response.status();
        let ResponseBody::Events(mut events) = response.into_body() else {
            panic!("{path} is no stream: {status}")
        };
        let mut text = String::new();
        while !text.contains(last) {
            let next = tokio::time::timeout(TIMEOUT, events.recv()).await;
            let event = next.unwrap_or_else(|_| panic!("no event {last:?} after {text}"));
            text.push_str(&String::from_utf8_lossy(&event.expect("the stream is open")));
        }
        text
    }

    /// Sends a request that must succeed, as a caller without restriction.
    pub(crate) async fn create(&self, path: &str, body: Value) {
        let response = self.call(&Caller::anonymous(), "POST", path, &body).await;
        assert_eq!(response.status, 201, "{path} {body}: {}", response.text);
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct PolicyResponse {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl PolicyResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// A caller with these roles.
pub(crate) fn caller(scope: CallerScope, project_name: Option<&str>, roles: &[&str]) -> Caller {
    Caller {
        user_id: Some("user-id".into()),
        user_name: Some("user".into()),
        scope,
        project_name: project_name.map(Into::into),
        roles: roles.iter().map(|role| Arc::from(*role)).collect(),
        method: AuthMethod::ApiToken,
    }
}

/// A caller of a project.
pub(crate) fn project_caller(project: &str, roles: &[&str]) -> Caller {
    caller(CallerScope::Project(project.into()), None, roles)
}
