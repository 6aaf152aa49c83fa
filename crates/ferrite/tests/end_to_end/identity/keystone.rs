// SPDX-License-Identifier: Apache-2.0
//! Keystone from PyPI: tokens of all personas, revocation, failure of Keystone, tokens of services.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use http_probe::{ProbeResponse, ServerProcess};
use serde_json::{Value, json};

use super::personas::{
    Attempt, LESSEE, OWNER, PERSONAS, POLICY, SERVICES, UNRELATED, check_attempts,
};
use super::{TlsServer, script, wait_until};
use crate::real_clients::{clients, installed, without_user_settings};
use crate::test_process::{TestHome, ferrite, output_of};

const PASSWORD: &str = "correct horse";
const CACHE_TIME: Duration = Duration::from_secs(2);
/// Lifetime of tokens, in seconds.
const LONG: u32 = 3600;
const SHORT: u32 = 4;

/// Keystone and a token of its administrator.
struct KeystoneServer {
    process: ServerProcess,
    token: String,
}

impl KeystoneServer {
    /// Starts it on a port; 0 is a free one.
    fn start(environment: &Path, home: &TestHome, port: u16, lifetime: u32) -> Self {
        let mut command = script(environment, "keystone_server.py");
        command.arg(home.path("keystone")).args([port.to_string(), lifetime.to_string()]);
        let process = ServerProcess::start(&mut command, &home.path("keystone-log"));
        let process = process.unwrap_or_else(|error| panic!("{error}"));
        let mut server = Self { process, token: String::new() };
        server.token = server.sign_in("admin", "admin", &json!({"system": {"all": true}}));
        server
    }

    fn url(&self) -> String {
        format!("{}/v3", self.process.url())
    }

    /// A new token of a user.
    fn sign_in(&self, user: &str, password: &str, scope: &Value) -> String {
        let user = json!({"name": user, "domain": {"id": "default"}, "password": password});
        let body = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}}, "scope": scope,
        }});
        let mut client = self.process.client();
        let response = client.send_json("POST", "/v3/auth/tokens", Some(&body)).unwrap();
        assert_eq!(response.status, 201, "{}", response.text());
        response.header("x-subject-token").unwrap().to_owned()
    }

    fn send(&self, method: &str, path: &str, body: Option<&Value>) -> ProbeResponse {
        let mut client = self.process.client().with_header("X-Auth-Token", &self.token);
        client.send_json(method, path, body).unwrap()
    }

    /// Creates a resource and returns its id.
    fn create(&self, kind: &str, body: Value) -> String {
        let response = self.send("POST", &format!("/v3/{kind}s"), Some(&json!({ kind: body })));
        assert_eq!(response.status, 201, "{kind}: {}", response.text());
        response.json()[kind]["id"].as_str().unwrap().to_owned()
    }

    /// The ids of all roles by name.
    fn roles(&self) -> BTreeMap<String, String> {
        let roles = self.send("GET", "/v3/roles", None).json();
        let text = |role: &Value, key: &str| role[key].as_str().unwrap().to_owned();
        let roles = roles["roles"].as_array().unwrap();
        roles.iter().map(|role| (text(role, "name"), text(role, "id"))).collect()
    }

    /// Creates a user with a role in the system or in a project.
    fn create_user(&self, name: &str, project: Option<&str>, role: &str) {
        let user = self.create("user", json!({"name": name, "password": PASSWORD}));
        let scope = project.map_or("system".to_owned(), |project| format!("projects/{project}"));
        let path = format!("/v3/{scope}/users/{user}/roles/{role}");
        assert_eq!(self.send("PUT", &path, None).status, 204, "{path}");
    }

    /// Revokes a token.
    fn revoke(&self, token: &str) {
        let client = self.process.client().with_header("X-Auth-Token", &self.token);
        let mut client = client.with_header("X-Subject-Token", token);
        assert_eq!(client.send("DELETE", "/v3/auth/tokens", None).unwrap().status, 204);
    }
}

/// The variables of a user of Keystone. The address of Ferrite is in Keystone's catalog.
fn variables(keystone: &KeystoneServer, user: &str, scope: &str) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("OS_AUTH_TYPE", "password".to_owned()),
        ("OS_AUTH_URL", keystone.url()),
        ("OS_USERNAME", user.to_owned()),
        ("OS_PASSWORD", PASSWORD.to_owned()),
        ("OS_USER_DOMAIN_NAME", "Default".to_owned()),
    ];
    if scope == "system" {
        variables.push(("OS_SYSTEM_SCOPE", "all".to_owned()));
    } else {
        variables.push(("OS_PROJECT_NAME", scope.to_owned()));
        variables.push(("OS_PROJECT_DOMAIN_NAME", "Default".to_owned()));
    }
    variables
}

#[test]
fn keystone_authenticates_all_personas() {
    let (Some(clients), Some(environment)) = (clients(), installed("FERRITE_TEST_KEYSTONE")) else {
        return;
    };
    let home = TestHome::new();
    let keystone = KeystoneServer::start(&environment, &home, 0, LONG);
    let roles = keystone.roles();
    let projects: BTreeMap<&str, String> = [OWNER, LESSEE, UNRELATED, SERVICES]
        .into_iter()
        .map(|name| (name, keystone.create("project", json!({ "name": name }))))
        .collect();
    for persona in PERSONAS {
        let project = projects.get(persona.scope).map(String::as_str);
        keystone.create_user(persona.name, project, &roles[persona.role]);
    }
    keystone.create_user("ferrite", Some(&projects[SERVICES]), &roles["service"]);

    let secret_file = home.path("keystone-password");
    std::fs::write(&secret_file, PASSWORD).unwrap();
    let configuration = format!(
        "{POLICY}[auth.keystone]\nurl = {:?}\nproject = {SERVICES:?}\nsecret_file = {secret_file:?}\n\
         cache_time = {}\n",
        keystone.url(),
        CACHE_TIME.as_secs()
    );
    let server = TlsServer::start(home, "keystone,local", &configuration);
    let service = keystone.create("service", json!({"type": "baremetal", "name": "ferrite"}));
    let endpoint = json!({
        "service_id": service, "interface": "public", "region_id": "RegionOne", "url": server.url(),
    });
    keystone.create("endpoint", endpoint);
    let (owner, lessee) = (projects[OWNER].as_str(), projects[LESSEE].as_str());
    server.create_node("owned", Some(owner), None);
    server.create_node("leased", Some(owner), Some(lessee));
    server.create_node("other", None, None);

    let attempts: Vec<Attempt> = PERSONAS
        .iter()
        .flat_map(|persona| {
            let variables = variables(&keystone, persona.name, persona.scope);
            Attempt::with_both_clients(*persona, &variables)
        })
        .collect();
    check_attempts(&clients, &server, &attempts);
    assert!(server.sign_ins("keystone", "accepted") > 0);
    own_command_line_signs_in(&keystone, &server);

    let scope = json!({"project": {"id": owner}});
    revoked_tokens_are_rejected_after_the_cache_time(&keystone, &server, &scope);
    unscoped_tokens_give_no_access(&keystone, &server);
    disabled_project_gives_no_roles(&keystone, &server, &scope);
    let (port, token) =
        (keystone.process.address().port(), keystone.sign_in("owner-member", PASSWORD, &scope));
    drop(keystone);
    failed_keystone_is_503(&server, &token);
    let keystone = KeystoneServer::start(&environment, &server.home, port, SHORT);
    wait_until("a token is accepted after Keystone is back", || {
        let token = keystone.sign_in("owner-member", PASSWORD, &scope);
        server.get("/v1/nodes", &[&format!("X-Auth-Token: {token}")]).status == 200
    });
    services_may_send_expired_tokens(&keystone, &server, &scope, &projects[SERVICES]);
}

/// With the variables of OpenStack's clients.
fn own_command_line_signs_in(keystone: &KeystoneServer, server: &TlsServer) {
    let mut command = without_user_settings(ferrite());
    command.args(["node", "list", "-o", "json"]).env("OS_CACERT", server.ca());
    command.envs(variables(keystone, "lessee-reader", LESSEE));
    let output = output_of(command.env("HOME", server.home.path("user")));
    let nodes: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let names: Vec<&Value> = nodes.iter().map(|node| &node["name"]).collect();
    assert_eq!(names, ["leased"]);
}

fn revoked_tokens_are_rejected_after_the_cache_time(
    keystone: &KeystoneServer,
    server: &TlsServer,
    scope: &Value,
) {
    let token = keystone.sign_in("owner-member", PASSWORD, scope);
    let header = format!("X-Auth-Token: {token}");
    assert_eq!(server.listed(&header), ["leased", "owned"]);
    keystone.revoke(&token);
    let revoked_at = Instant::now();
    loop {
        let started_at = Instant::now();
        let response = server.get("/v1/nodes", &[&header]);
        if response.status == 401 {
            assert_eq!(response.message(), "The token is unknown, expired or revoked");
            break;
        }
        assert_eq!(response.status, 200, "{response:?}");
        assert!(started_at.duration_since(revoked_at) < CACHE_TIME, "accepted for too long");
        std::thread::sleep(Duration::from_millis(20));
    }
    server.wait_for_sign_in_failure("keystone", "");
}

fn unscoped_tokens_give_no_access(keystone: &KeystoneServer, server: &TlsServer) {
    let token = keystone.sign_in("owner-member", PASSWORD, &json!("unscoped"));
    let response = server.get("/v1/nodes", &[&format!("X-Auth-Token: {token}")]);
    assert_eq!(response.status, 403, "{response:?}");
}

/// A project in the database with the id of Keystone's project.
fn disabled_project_gives_no_roles(keystone: &KeystoneServer, server: &TlsServer, scope: &Value) {
    let token = keystone.sign_in("owner-member", PASSWORD, scope);
    let header = format!("X-Auth-Token: {token}");
    let id = scope["project"]["id"].as_str().unwrap();
    let mut admin = server.local_client();
    let project = json!({"name": id, "enabled": false});
    let created = admin.send_json("POST", "/v1/ferrite/projects", Some(&project)).unwrap();
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(server.get("/v1/nodes", &[&header]).status, 403);
    let path = format!("/v1/ferrite/projects/{id}");
    let enabled = admin.send_json("PATCH", &path, Some(&json!({"enabled": true}))).unwrap();
    assert_eq!(enabled.status, 200, "{}", enabled.text());
    assert_eq!(server.listed(&header), ["leased", "owned"]);
}

/// Keystone is stopped. The token was not used before, so it is not cached.
fn failed_keystone_is_503(server: &TlsServer, token: &str) {
    let response = server.get("/v1/nodes", &[&format!("X-Auth-Token: {token}")]);
    assert_eq!(response.status, 503, "{response:?}");
    assert!(response.head.contains("\r\nretry-after: 5"), "{response:?}");
    assert!(response.message().contains("Keystone service does not respond"), "{response:?}");
    assert!(server.home.log().contains("validating a Keystone token failed"));
    // API tokens do not depend on Keystone.
    let mut admin = server.local_client();
    let user = json!({"name": "ci", "kind": "service", "roles": ["reader@system"]});
    assert_eq!(admin.send_json("POST", "/v1/ferrite/users", Some(&user)).unwrap().status, 201);
    let created =
        admin.send_json("POST", "/v1/ferrite/tokens", Some(&json!({"user": "ci"}))).unwrap();
    let token = created.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(server.listed(&format!("X-Auth-Token: {token}")).len(), 3);
}

/// As with keystonemiddleware: a token with the role `service` in `X-Service-Token` makes Keystone accept
/// the expired token of the user.
fn services_may_send_expired_tokens(
    keystone: &KeystoneServer,
    server: &TlsServer,
    scope: &Value,
    services: &str,
) {
    let token = keystone.sign_in("owner-member", PASSWORD, scope);
    let user = format!("X-Auth-Token: {token}");
    wait_until("the token has expired", || server.get("/v1/nodes", &[&user]).status == 401);
    let services = json!({"project": {"id": services}});
    let with =
        |service: &str| server.get("/v1/nodes", &[&user, &format!("X-Service-Token: {service}")]);
    // Tokens of services are short-lived here, too.
    wait_until("the expired token is accepted with the token of a service", || {
        let response = with(&keystone.sign_in("service", PASSWORD, &services));
        assert!(matches!(response.status, 200 | 401), "{response:?}");
        // The rights are those of the user, not of the service.
        response.status == 200 && response.names() == ["leased", "owned"]
    });
    let response = with(&keystone.sign_in("owner-admin", PASSWORD, scope));
    assert_eq!(response.status, 401, "{response:?}");
    assert!(response.message().contains("X-Service-Token"), "{response:?}");
}
