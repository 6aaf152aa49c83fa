// SPDX-License-Identifier: Apache-2.0
//! Users, projects and API tokens in the store.

use std::sync::Arc;

use authentication::{AuthSettings, Authenticator};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::fixture::{Fixture, NOW, RawResponse};

const FROM_WEB_UI: &str = "X-Ferrite-Page: 1\r\n";
const PASSWORD: &str = "correct horse battery";

/// A server with users in the store, and the credentials of its first user.
struct LocalUsers {
    fixture: Fixture,
    admin: String,
    settings: AuthSettings,
    _dir: TempDir,
}

impl LocalUsers {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("admin-password");
        let settings = AuthSettings::local(file.clone());
        let fixture = Fixture::with(|config| config.auth = settings.clone()).await;
        let password = std::fs::read_to_string(file).unwrap();
        let admin = basic("admin", password.trim());
        Self { fixture, admin, settings, _dir: dir }
    }

    async fn send(&self, auth: &str, method: &str, path: &str, body: Value) -> RawResponse {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = format!("{auth}Content-Type: application/json\r\n");
        self.fixture.send(method, path, &headers, body.as_bytes()).await
    }

    /// Sends a request of the administrator that must have this status.
    async fn admin(&self, method: &str, path: &str, body: Value, status: u16) -> Value {
        let response = self.send(&self.admin, method, path, body).await;
        assert_eq!(response.status, status, "{method} {path}: {}", response.body);
        response.json()
    }

    async fn whoami(&self, auth: &str) -> RawResponse {
        self.send(auth, "GET", "/v1/ferrite/whoami", Value::Null).await
    }

    /// Creates a project and a user with roles.
    async fn user(&self, name: &str, roles: &[&str]) {
        for role in roles {
            let project = role.split_once('@').unwrap().1;
            if project != "system" {
                let body = json!({"name": project});
                self.send(&self.admin, "POST", "/v1/ferrite/projects", body).await;
            }
        }
        let body = json!({"name": name, "password": PASSWORD, "roles": roles});
        self.admin("POST", "/v1/ferrite/users", body, 201).await;
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

#[tokio::test]
async fn first_user_is_an_administrator() {
    let users = LocalUsers::start().await;
    let me = users.whoami(&users.admin).await.json();
    assert_eq!(me["user"], "admin");
    assert_eq!((&me["scope"], &me["method"]), (&json!("system"), &json!("password")));
    assert_eq!(me["roles"], json!(["admin", "manager", "member", "reader"]));
    assert_eq!(me["assignments"], json!(["admin@system"]));
    assert_eq!(me["permissions"], Value::Null);
    let me = users.admin("GET", "/v1/ferrite/whoami?permissions=true", Value::Null, 200).await;
    let permissions = me["permissions"].as_array().unwrap();
    assert!(permissions.contains(&json!("ferrite:user:create")), "{me}");
    assert_eq!(me["owner_permissions"], Value::Null);
    assert_eq!(users.whoami("").await.status, 401);
    assert_eq!(users.whoami(&basic("admin", "wrong password")).await.status, 401);
    // A second start creates no second administrator.
    let store = users.fixture.store.clone();
    let (_, created) = Authenticator::open(&users.settings, store, Arc::new(|| NOW)).await.unwrap();
    assert_eq!(created, None);
}

#[tokio::test]
async fn manages_users_and_projects() {
    let users = LocalUsers::start().await;
    users.user("alice", &["member@a", "reader@b"]).await;
    let shown = users.admin("GET", "/v1/ferrite/users/alice", Value::Null, 200).await;
    assert_eq!(shown["roles"], json!(["member@a", "reader@b"]));
    assert_eq!(shown["has_password"], true);
    assert!(shown.get("password_hash").is_none());
    let list = users.admin("GET", "/v1/ferrite/users", Value::Null, 200).await;
    let names: Vec<_> =
        list["users"].as_array().unwrap().iter().map(|user| &user["name"]).collect();
    assert_eq!(names, ["admin", "alice"]);

    for (body, status) in [
        (json!({"name": "alice"}), 409),
        (json!({"name": "a:b"}), 400),
        (json!({"name": "bob", "password": "short"}), 400),
        (json!({"name": "bob", "roles": ["member"]}), 400),
        (json!({"name": "bob", "roles": ["member@missing"]}), 400),
        (json!({"name": "bob", "default_project": "missing"}), 400),
        (json!({"name": "bob", "kind": "robot"}), 400),
        (json!({"name": "bob", "kind": "service", "password": PASSWORD}), 400),
        (json!({"name": "bob", "surprise": 1}), 400),
        (json!([]), 400),
    ] {
        let response = users.send(&users.admin, "POST", "/v1/ferrite/users", body.clone()).await;
        assert_eq!(response.status, status, "{body}: {}", response.body);
    }
    users.admin("GET", "/v1/ferrite/users/bob", Value::Null, 404).await;

    // With several projects, a request selects one, or the default project applies.
    let alice = basic("alice", PASSWORD);
    assert_eq!(users.whoami(&alice).await.json()["scope"], "none");
    let in_a = format!("{alice}X-Ferrite-Project: a\r\n");
    assert_eq!(users.whoami(&in_a).await.json()["roles"], json!(["member", "reader"]));
    let change = json!({"default_project": "b", "description": "a user"});
    users.admin("PATCH", "/v1/ferrite/users/alice", change, 200).await;
    assert_eq!(users.whoami(&alice).await.json()["project"], "b");

    // Changes apply at once.
    users.admin("PATCH", "/v1/ferrite/projects/b", json!({"enabled": false}), 200).await;
    assert_eq!(users.whoami(&alice).await.json()["project"], "a");
    users.admin("PATCH", "/v1/ferrite/users/alice", json!({"roles": ["reader@a"]}), 200).await;
    assert_eq!(users.whoami(&alice).await.json()["roles"], json!(["reader"]));
    users.admin("PATCH", "/v1/ferrite/users/alice", json!({"enabled": false}), 200).await;
    assert_eq!(users.whoami(&alice).await.status, 401);

    users.fixture.node("n", |node| node.owner = Some("a".to_owned())).await;
    users.admin("DELETE", "/v1/ferrite/projects/a", Value::Null, 409).await;
    users.admin("PUT", "/v1/ferrite/quotas/b", json!({"machines": 1}), 200).await;
    users.admin("DELETE", "/v1/ferrite/projects/b", Value::Null, 204).await;
    let quotas = users.admin("GET", "/v1/ferrite/quotas", Value::Null, 200).await;
    assert_eq!(quotas["quotas"], json!([]));
    // Another project with the same name would see the deployments.
    users.admin("POST", "/v1/ferrite/projects", json!({"name": "c"}), 201).await;
    let body = json!({"project": "c", "resource_class": "x", "image": "http://images/a"});
    users.admin("POST", "/v1/ferrite/deployments", body, 202).await;
    users.admin("DELETE", "/v1/ferrite/projects/c", Value::Null, 409).await;
    users.admin("POST", "/v1/ferrite/projects", json!({"name": "system"}), 400).await;
    users.admin("POST", "/v1/ferrite/projects", json!({"name": "a"}), 409).await;
    users.admin("DELETE", "/v1/ferrite/users/alice", Value::Null, 204).await;
}

#[tokio::test]
async fn last_administrator_cannot_be_removed() {
    let users = LocalUsers::start().await;
    for (method, body) in [
        ("DELETE", Value::Null),
        ("PATCH", json!({"enabled": false})),
        ("PATCH", json!({"roles": ["reader@system"]})),
    ] {
        users.admin(method, "/v1/ferrite/users/admin", body, 409).await;
    }
    users.user("second", &["admin@system"]).await;
    users.admin("PATCH", "/v1/ferrite/users/admin", json!({"roles": ["reader@system"]}), 200).await;
    users.admin("DELETE", "/v1/ferrite/users/second", Value::Null, 403).await;
}

#[tokio::test]
async fn users_manage_only_their_own_account() {
    let users = LocalUsers::start().await;
    users.user("alice", &["admin@a"]).await;
    users.user("bob", &["member@a"]).await;
    let alice = basic("alice", PASSWORD);
    for (method, path, body, status) in [
        ("GET", "/v1/ferrite/users", Value::Null, 403),
        ("POST", "/v1/ferrite/users", json!({"name": "eve"}), 403),
        ("GET", "/v1/ferrite/users/alice", Value::Null, 200),
        ("GET", "/v1/ferrite/users/bob", Value::Null, 404),
        ("PATCH", "/v1/ferrite/users/alice", json!({"roles": ["admin@system"]}), 403),
        ("DELETE", "/v1/ferrite/users/alice", Value::Null, 403),
        ("PUT", "/v1/ferrite/users/bob/password", json!({"password": PASSWORD}), 404),
        ("PUT", "/v1/ferrite/users/alice/password", json!({"password": PASSWORD}), 400),
        ("GET", "/v1/ferrite/projects/a", Value::Null, 200),
        ("GET", "/v1/ferrite/projects/b", Value::Null, 404),
        ("POST", "/v1/ferrite/projects", json!({"name": "b"}), 403),
        ("GET", "/v1/ferrite/sign-in-failures", Value::Null, 403),
        ("POST", "/v1/ferrite/tokens", json!({"user": "bob"}), 403),
        ("POST", "/v1/ferrite/tokens", json!({"user": "unknown"}), 403),
    ] {
        let response = users.send(&alice, method, path, body).await;
        assert_eq!(response.status, status, "{method} {path}: {}", response.body);
    }
    let projects = users.send(&alice, "GET", "/v1/ferrite/projects", Value::Null).await.json();
    assert_eq!(projects["projects"].as_array().unwrap().len(), 1);

    let path = "/v1/ferrite/users/alice/password";
    let change =
        |current: &str| json!({"password": "another password", "current_password": current});
    assert_eq!(users.send(&alice, "PUT", path, change("wrong password")).await.status, 401);
    assert_eq!(users.send(&alice, "PUT", path, change(PASSWORD)).await.status, 204);
    assert_eq!(users.whoami(&alice).await.status, 401, "the old password is not cached");
    assert_eq!(users.whoami(&basic("alice", "another password")).await.status, 200);
}

#[tokio::test]
async fn tokens_are_accepted_in_three_headers_until_revoked() {
    let users = LocalUsers::start().await;
    users
        .admin(
            "POST",
            "/v1/ferrite/users",
            json!({"name": "ci", "kind": "service", "roles": ["member@system"]}),
            201,
        )
        .await;
    let body = json!({"user": "ci", "description": "pipeline", "expires_in": 3600});
    let created = users.admin("POST", "/v1/ferrite/tokens", body, 201).await;
    let (token, id) = (created["token"].as_str().unwrap(), created["id"].as_str().unwrap());
    assert!(token.starts_with("frt_") && token.len() == 54, "{token}");
    for headers in [
        format!("X-Auth-Token: {token}\r\n"),
        format!("Authorization: Bearer {token}\r\n"),
        basic("ci", token),
        basic("anything", token),
    ] {
        let response = users.whoami(&headers).await;
        assert_eq!(response.status, 200, "{headers}: {}", response.body);
        let me = response.json();
        assert_eq!((&me["user"], &me["method"]), (&json!("ci"), &json!("api_token")));
        assert_eq!(me["roles"], json!(["member", "reader"]));
    }
    for headers in [
        format!("X-Auth-Token: {token}x\r\n"),
        format!("X-Auth-Token: {}0\r\n", &token[..53]),
        "X-Auth-Token: gAAAAABkeystone\r\n".to_owned(),
        "Authorization: Bearer abc\r\n".to_owned(),
    ] {
        assert_eq!(users.whoami(&headers).await.status, 401, "{headers}");
    }
    // The secret is neither shown again nor stored.
    let list = users.admin("GET", "/v1/ferrite/tokens?user=ci", Value::Null, 200).await;
    let row = &list["tokens"][0];
    assert_eq!((&row["id"], &row["user"]), (&json!(id), &json!("ci")));
    assert!(!list.to_string().contains(&token[16..]), "{list}");
    let with_token = format!("X-Auth-Token: {token}\r\n");
    let own = users.send(&with_token, "GET", "/v1/ferrite/tokens", Value::Null).await.json();
    assert_eq!(own["tokens"].as_array().unwrap().len(), 1);

    users.admin("DELETE", &format!("/v1/ferrite/tokens/{id}"), Value::Null, 204).await;
    assert_eq!(users.whoami(&with_token).await.status, 401, "a revoked token is not cached");
    users.admin("GET", &format!("/v1/ferrite/tokens/{id}"), Value::Null, 404).await;
    for (body, status) in [
        (json!({"user": "ci", "expires_in": 0}), 400),
        (json!({"user": "ci", "expires_in": 5, "never_expires": true}), 400),
        (json!({"user": "ci", "scope": "missing"}), 400),
        (json!({"user": "ci", "role": "a b"}), 400),
        (json!({"user": "missing"}), 404),
        (json!({"user": "ci", "never_expires": true}), 201),
    ] {
        users.admin("POST", "/v1/ferrite/tokens", body, status).await;
    }
}

/// Otherwise a stolen token could be replaced by one without limits.
#[tokio::test]
async fn limited_tokens_stay_limited() {
    let users = LocalUsers::start().await;
    users.user("alice", &["admin@a", "member@system"]).await;
    let alice = basic("alice", PASSWORD);
    let body = json!({"role": "reader", "scope": "a"});
    let created = users.send(&alice, "POST", "/v1/ferrite/tokens", body).await;
    assert_eq!(created.status, 201, "{}", created.body);
    let token = format!("X-Auth-Token: {}\r\n", created.json()["token"].as_str().unwrap());
    let me = users.whoami(&token).await.json();
    assert_eq!((&me["project"], &me["roles"]), (&json!("a"), &json!(["reader"])));
    let in_system = format!("{token}X-Ferrite-Project: system\r\n");
    assert_eq!(users.whoami(&in_system).await.status, 403);
    let body = json!({"role": "admin"});
    let refused = users.send(&token, "POST", "/v1/ferrite/tokens", body).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    // Also for administrators.
    users.user("ops", &["admin@system"]).await;
    let ops = basic("ops", PASSWORD);
    let created = users.send(&ops, "POST", "/v1/ferrite/tokens", json!({"expires_in": 60})).await;
    let token = format!("X-Auth-Token: {}\r\n", created.json()["token"].as_str().unwrap());
    let body = json!({"user": "ops", "never_expires": true});
    let refused = users.send(&token, "POST", "/v1/ferrite/tokens", body).await;
    assert_eq!(refused.status, 403, "{}", refused.body);
    let body = json!({"password": "correct horse battery"});
    let refused = users.send(&token, "PUT", "/v1/ferrite/users/ops/password", body).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    // A scope in which the user has no role is rejected when the token is created.
    let refused = users.send(&alice, "POST", "/v1/ferrite/tokens", json!({"scope": "b"})).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
}

/// M8: a signed-out cookie was accepted again after a restart, and by other replicas.
#[tokio::test]
async fn sessions_end_on_all_replicas() {
    let users = LocalUsers::start().await;
    users.user("alice", &["member@a"]).await;
    let credentials = json!({"username": "alice", "password": PASSWORD});
    let sign_in = || async {
        let response = users.send(FROM_WEB_UI, "POST", "/ui/session", credentials.clone()).await;
        assert_eq!(response.status, 200, "{}", response.body);
        assert_eq!(response.json()["project"], "a");
        let set = response.header("set-cookie").unwrap();
        set.split(';').next().unwrap().to_owned()
    };
    // A restarted server, or another replica, on the same database.
    let is_valid_elsewhere = |cookie: &str| {
        let store = users.fixture.store.clone();
        let headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_str(cookie).unwrap())]);
        let settings = users.settings.clone();
        async move {
            let (other, _) = Authenticator::open(&settings, store, Arc::new(|| NOW)).await.unwrap();
            other.identify(&headers, [127, 0, 0, 1].into()).await.is_ok()
        }
    };
    let cookie = sign_in().await;
    let header = format!("Cookie: {cookie}\r\n");
    assert_eq!(users.whoami(&header).await.json()["method"], "session");
    assert!(is_valid_elsewhere(&cookie).await, "sessions survive a restart");
    let with_page = format!("{header}{FROM_WEB_UI}");
    assert_eq!(users.send(&with_page, "DELETE", "/ui/session", Value::Null).await.status, 200);
    assert_eq!(users.whoami(&header).await.status, 401);
    assert!(!is_valid_elsewhere(&cookie).await);

    for (method, path, body) in [
        ("DELETE", "/v1/ferrite/users/alice/sessions", Value::Null),
        ("PATCH", "/v1/ferrite/users/alice", json!({"enabled": false})),
    ] {
        let cookie = sign_in().await;
        users.admin(method, path, body, 200).await;
        assert_eq!(users.whoami(&format!("Cookie: {cookie}\r\n")).await.status, 401, "{path}");
        assert!(!is_valid_elsewhere(&cookie).await, "{path}");
    }
}
