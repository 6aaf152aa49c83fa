// SPDX-License-Identifier: Apache-2.0
//! What system administrators, owners, lessees and others may do, with the `baremetal` command line and
//! openstacksdk.

use std::path::Path;

use serde_json::{Value, json};

use super::{TlsServer, script};
use crate::real_clients::clients;
use crate::test_process::{TestHome, output_of};

/// The nodes: of the owner, of the owner and leased to another project, and without an owner.
pub(super) const NODES: [&str; 3] = ["owned", "leased", "other"];
pub(super) const OWNER: &str = "storage";
pub(super) const LESSEE: &str = "tenant";
pub(super) const UNRELATED: &str = "elsewhere";
/// The project whose services may do everything.
pub(super) const SERVICES: &str = "services";
pub(super) const POLICY: &str = "[policy]\nservice_project = \"services\"\n";

/// A user and what it may do.
#[derive(Clone, Copy)]
pub(super) struct Persona {
    pub(super) name: &'static str,
    pub(super) role: &'static str,
    /// A project, or `system`.
    pub(super) scope: &'static str,
    lists: &'static [&'static str],
    /// The results of changing each of [`NODES`].
    set: [&'static str; 3],
    /// The results of deploying each of them.
    deploy: [&'static str; 3],
}

const OK: &str = "ok";
const FORBIDDEN: &str = "403";
const HIDDEN: &str = "404";

pub(super) const PERSONAS: &[Persona] = &[
    Persona {
        name: "system-admin",
        role: "admin",
        scope: "system",
        lists: &["leased", "other", "owned"],
        set: [OK; 3],
        deploy: [OK; 3],
    },
    Persona {
        name: "system-reader",
        role: "reader",
        scope: "system",
        lists: &["leased", "other", "owned"],
        set: [FORBIDDEN; 3],
        deploy: [FORBIDDEN; 3],
    },
    Persona {
        name: "owner-admin",
        role: "admin",
        scope: OWNER,
        lists: &["leased", "owned"],
        set: [OK, OK, HIDDEN],
        deploy: [OK, OK, HIDDEN],
    },
    Persona {
        name: "owner-member",
        role: "member",
        scope: OWNER,
        lists: &["leased", "owned"],
        set: [OK, OK, HIDDEN],
        deploy: [OK, OK, HIDDEN],
    },
    Persona {
        name: "lessee-admin",
        role: "admin",
        scope: LESSEE,
        lists: &["leased"],
        set: [HIDDEN, OK, HIDDEN],
        deploy: [HIDDEN, OK, HIDDEN],
    },
    // As in Ironic, a member of the lessee may change some fields and not deploy.
    Persona {
        name: "lessee-member",
        role: "member",
        scope: LESSEE,
        lists: &["leased"],
        set: [HIDDEN, OK, HIDDEN],
        deploy: [HIDDEN, FORBIDDEN, HIDDEN],
    },
    Persona {
        name: "lessee-reader",
        role: "reader",
        scope: LESSEE,
        lists: &["leased"],
        set: [HIDDEN, FORBIDDEN, HIDDEN],
        deploy: [HIDDEN, FORBIDDEN, HIDDEN],
    },
    Persona {
        name: "service",
        role: "service",
        scope: SERVICES,
        lists: &["leased", "other", "owned"],
        set: [OK; 3],
        deploy: [OK; 3],
    },
    Persona {
        name: "unrelated-member",
        role: "member",
        scope: UNRELATED,
        lists: &[],
        set: [HIDDEN; 3],
        deploy: [HIDDEN; 3],
    },
];

/// A client with the credentials of a persona.
pub(super) struct Attempt {
    pub(super) persona: Persona,
    pub(super) client: &'static str,
    /// The `OS_*` variables.
    pub(super) variables: Vec<(&'static str, String)>,
    /// The nodes to change and to deploy.
    pub(super) set: &'static [&'static str],
    pub(super) deploy: &'static [&'static str],
}

impl Attempt {
    /// With the same variables, once for each client. The command line signs in to Keystone for each command,
    /// so it tries less than the SDK.
    pub(super) fn with_both_clients(
        persona: Persona,
        variables: &[(&'static str, String)],
    ) -> [Self; 2] {
        let is_lessee = persona.scope == LESSEE && persona.role != "reader";
        let attempt = |client, set, deploy| Self {
            persona,
            client,
            variables: variables.to_vec(),
            set,
            deploy,
        };
        let deployed: &[&str] = if is_lessee { &["leased"] } else { &[] };
        [attempt("baremetal", &["leased"], deployed), attempt("openstacksdk", &NODES, &NODES)]
    }

    fn expected(&self) -> Value {
        let of = |nodes: &[&str], results: &[&str; 3]| -> Vec<String> {
            let result = |name: &&str| {
                let (_, result) =
                    NODES.iter().zip(results).find(|(node, _)| *node == name).unwrap();
                (*result).to_owned()
            };
            nodes.iter().map(result).collect()
        };
        json!({
            "list": self.persona.lists,
            "set": of(self.set, &self.persona.set),
            "deploy": of(self.deploy, &self.persona.deploy),
        })
    }
}

/// Runs the attempts and compares their results.
pub(super) fn check_attempts(clients: &Path, server: &TlsServer, attempts: &[Attempt]) {
    let given: Vec<Value> = attempts
        .iter()
        .map(|attempt| {
            let mut variables = serde_json::Map::new();
            variables.insert("OS_CACERT".to_owned(), json!(server.ca()));
            for (name, value) in &attempt.variables {
                variables.insert((*name).to_owned(), json!(value));
            }
            json!({
                "client": attempt.client,
                "variables": variables,
                "set": attempt.set,
                "deploy": attempt.deploy,
            })
        })
        .collect();
    let file = server.home.path("attempts.json");
    std::fs::write(&file, Value::from(given).to_string()).unwrap();
    let output = output_of(script(clients, "persona_clients.py").arg(&file));
    let error = String::from_utf8_lossy(&output.stderr);
    println!("{error}");
    assert!(output.status.success(), "{error}\nthe server's log:\n{}", server.home.log());
    let results: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(results.len(), attempts.len());
    for (attempt, result) in attempts.iter().zip(&results) {
        let what = format!("{} {} {:?}", attempt.persona.name, attempt.client, attempt.variables);
        assert_eq!(*result, attempt.expected(), "{what}");
    }
}

/// The variables of a user with a password.
pub(super) fn http_basic(url: &str, user: &str, password: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OS_AUTH_TYPE", "http_basic".to_owned()),
        ("OS_ENDPOINT", url.to_owned()),
        ("OS_USERNAME", user.to_owned()),
        ("OS_PASSWORD", password.to_owned()),
    ]
}

/// The variables for a token in `X-Auth-Token`.
pub(super) fn admin_token(url: &str, token: &str) -> Vec<(&'static str, String)> {
    vec![
        ("OS_AUTH_TYPE", "admin_token".to_owned()),
        ("OS_ENDPOINT", url.to_owned()),
        ("OS_TOKEN", token.to_owned()),
    ]
}

/// Passwords and API tokens of users in the database.
#[test]
fn personas_sign_in_with_passwords_and_api_tokens() {
    let Some(clients) = clients() else { return };
    let server = TlsServer::start(TestHome::new(), "local", POLICY);
    let mut admin = server.local_client();
    let mut create = |path: &str, body: Value| {
        let response = admin.send_json("POST", path, Some(&body)).unwrap();
        assert_eq!(response.status, 201, "{path}: {}", response.text());
        response.json()
    };
    for project in [OWNER, LESSEE, UNRELATED, SERVICES] {
        create("/v1/ferrite/projects", json!({ "name": project }));
    }
    server.create_node("owned", Some(OWNER), None);
    server.create_node("leased", Some(OWNER), Some(LESSEE));
    server.create_node("other", None, None);
    let url = server.url();
    let mut attempts = Vec::new();
    for persona in PERSONAS {
        let (password, role) = ("correct horse", format!("{}@{}", persona.role, persona.scope));
        let user = json!({"name": persona.name, "password": password, "roles": [role]});
        create("/v1/ferrite/users", user);
        let account = format!("{}-account", persona.name);
        let user = json!({"name": account, "kind": "service", "roles": [role]});
        create("/v1/ferrite/users", user);
        let token = create("/v1/ferrite/tokens", json!({ "user": account }));
        let token = token["token"].as_str().unwrap();
        let variables = http_basic(&url, persona.name, password);
        let [mut command_line, sdk] = Attempt::with_both_clients(*persona, &variables);
        // Without requests to Keystone, the command line is fast.
        (command_line.set, command_line.deploy) = (&NODES, &["leased"]);
        attempts.extend([command_line, sdk]);
        let attempt = |client, variables, set| Attempt {
            persona: *persona,
            client,
            variables,
            set,
            deploy: &[],
        };
        attempts.push(attempt("baremetal", admin_token(&url, token), &[]));
        attempts.push(attempt("openstacksdk", admin_token(&url, token), &NODES));
        attempts.push(attempt("openstacksdk", http_basic(&url, "anything", token), &NODES));
        let listed = server.listed(&format!("Authorization: Bearer {token}"));
        assert_eq!(listed, persona.lists, "{}", persona.name);
    }
    check_attempts(&clients, &server, &attempts);
}
