// SPDX-License-Identifier: Apache-2.0
//! The npm package oidc-provider: sign-in of browsers and of the command line, tokens of programs, rotated
//! keys.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_probe::ServerProcess;
use serde_json::{Value, json};

use super::personas::{admin_token, http_basic};
use super::{SCRIPTS, TlsServer, script, wait_until};
use crate::real_clients::{clients, installed, without_user_settings};
use crate::test_process::{TestHome, ferrite, output_of};

/// The audience of tokens for the API.
const AUDIENCE: &str = "urn:ferrite";

/// A running provider.
struct OpenIdServer(ServerProcess);

impl OpenIdServer {
    fn start(packages: &Path, home: &TestHome) -> Self {
        let mut command = without_user_settings(Command::new("node"));
        command.arg(format!("{SCRIPTS}/oidc_provider.mjs")).arg(packages);
        command.current_dir(env!("CARGO_MANIFEST_DIR"));
        let process = ServerProcess::start(&mut command, &home.path("provider-log"));
        Self(process.unwrap_or_else(|error| panic!("{error}")))
    }

    /// Changes settings of the provider.
    fn set(&self, settings: &Value) {
        let response = self.0.client().send_json("POST", "/test-settings", Some(settings)).unwrap();
        assert_eq!(response.status, 200, "{}", response.text());
    }

    /// An access token of the client `ci`.
    fn access_token(&self, audience: &str) -> String {
        let output = output_of(
            without_user_settings(Command::new("curl"))
                .args(["--silent", "--show-error", "--user", "ci:ci-secret"])
                .args(["--data", "grant_type=client_credentials"])
                .args(["--data-urlencode", &format!("resource={audience}")])
                .arg(format!("{}/token", self.0.url())),
        );
        let response: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        response["access_token"].as_str().unwrap_or_else(|| panic!("{output:?}")).to_owned()
    }
}

/// Ferrite, its provider, and the Python environment of the clients.
struct SignInTest {
    clients: PathBuf,
    provider: OpenIdServer,
    server: TlsServer,
}

impl SignInTest {
    fn start(clients: PathBuf, packages: &Path) -> Self {
        let home = TestHome::new();
        let provider = OpenIdServer::start(packages, &home);
        let configuration = format!(
            "[auth.oidc]\nissuer = {:?}\nclient_id = \"ferrite-ui\"\ndevice_client_id = \"ferrite-cli\"\n\
             audiences = [{AUDIENCE:?}]\nroles_claim = \"groups\"\nleeway = 0\n\
             role_map = {{ lab-admins = \"admin@system\", storage-team = \"member@storage\" }}\n",
            provider.0.url()
        );
        let server = TlsServer::start(home, "oidc", &configuration);
        provider.set(&json!({"redirect_uris": [format!("{}/ui/oidc/callback", server.url())]}));
        server.create_node("owned", Some("storage"), None);
        server.create_node("other", None, None);
        Self { clients, provider, server }
    }

    /// Opens a page in a browser, signs in as `user`, and returns this page and further ones.
    fn browse(&self, user: &str, pages: &[&str]) -> Vec<Value> {
        let [first, more @ ..] = pages else { panic!("no page") };
        let mut browser = script(&self.clients, "browser.py");
        let output = output_of(browser.args([first, user]).arg(self.server.ca()).args(more));
        let (text, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{text}{error}");
        let pages: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(pages.len(), 1 + more.len(), "{text}");
        pages
    }

    /// A command of our own command line, with its own folder for settings.
    fn command_line(&self, arguments: &[&str]) -> Command {
        let mut command = without_user_settings(ferrite());
        command.args(arguments).args(["--url", &self.server.url()]).arg("--cacert");
        command.arg(self.server.ca()).env("HOME", self.server.home.path("user"));
        command.env_remove("XDG_CONFIG_HOME");
        command
    }

    fn listed_by_command_line(&self) -> Vec<String> {
        let output = output_of(&mut self.command_line(&["node", "list", "-o", "json"]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let nodes: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        let mut names: Vec<String> =
            nodes.iter().map(|node| node["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// The entries of the audit log with the type `session`.
    fn audited_sign_ins(&self) -> Vec<Value> {
        let path = "/v1/ferrite/audit-log?resource_type=session";
        let found = self.server.local_client().send("GET", path, None).unwrap();
        assert_eq!(found.status, 200, "{}", found.text());
        found.json()["entries"].as_array().unwrap().clone()
    }
}

fn prepare() -> Option<SignInTest> {
    let (clients, packages) = (clients()?, installed("FERRITE_TEST_OIDC_PROVIDER")?);
    Some(SignInTest::start(clients, &packages))
}

/// Authorisation code with PKCE, which the provider requires.
#[test]
fn browsers_sign_in_with_the_provider() {
    let Some(test) = prepare() else { return };
    let url = test.server.url();
    let login = format!("{url}/ui/oidc/login");
    let (session, nodes) = (format!("{url}/ui/session"), format!("{url}/v1/nodes"));
    for (user, project, names) in [
        ("alice", Value::Null, json!(["other", "owned"])),
        ("bob", json!("storage"), json!(["owned"])),
    ] {
        let pages = test.browse(user, &[&login, &session, &nodes]);
        assert_eq!(pages[0]["status"], 200, "{pages:?}");
        assert_eq!(pages[0]["url"], format!("{url}/ui"), "{pages:?}");
        let json = |page: &Value| -> Value {
            serde_json::from_str(page["text"].as_str().unwrap()).unwrap_or_default()
        };
        let session = json(&pages[1]);
        assert_eq!((&session["user"], &session["project"]), (&json!(user), &project), "{session}");
        let listed = json(&pages[2]);
        let mut listed: Vec<&Value> =
            listed["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
        listed.sort_by_key(|name| name.to_string());
        assert_eq!(json!(listed), names, "{user}");
        // The cookie of the sign-in is removed at its end.
        assert!(pages[0]["cookies"]["ferrite_oidc_login"].is_null(), "{pages:?}");
        let signed_in = test.audited_sign_ins();
        let is_sign_in = |entry: &Value| entry["user"] == user && entry["outcome"] == "accepted";
        assert!(signed_in.iter().any(is_sign_in), "{user}: {signed_in:?}");
    }
    assert_eq!(test.server.sign_ins("oidc", "accepted"), 2);
    // A user without a role has a session and no access.
    let pages = test.browse("guest", &[&login, &nodes]);
    assert_eq!(pages[1]["status"], 403, "{pages:?}");

    let refused = test.server.get("/ui/oidc/callback?code=c&state=s", &[]);
    assert_eq!(refused.status, 401, "{refused:?}");
    assert!(refused.message().contains("not started by this browser"), "{refused:?}");
    let entries = test.audited_sign_ins();
    let is_refusal = |entry: &Value| entry["outcome"] == "refused" && entry["status"] == 401;
    assert!(entries.iter().any(is_refusal), "{entries:?}");
    test.server.wait_for_sign_in_failure("oidc", "");
}

/// The device authorization grant, and the renewal of the saved token.
#[test]
fn command_line_signs_in_with_a_code() {
    let Some(test) = prepare() else { return };
    // Shorter than the remaining lifetime with which a token is renewed.
    test.provider.set(&json!({"token_lifetime": 20}));
    let mut login = test.command_line(&["login"]);
    let mut login = login.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let page = page_with_code(&mut login);
    let pages = test.browse("alice", &[&page]);
    assert!(pages[0]["text"].as_str().unwrap().contains("Sign-in Success"), "{pages:?}");
    assert!(login.wait().unwrap().success());
    let file = test.server.home.path("user/.config/ferrite/logins.json");
    let saved = || -> Value {
        let logins: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        logins[test.server.url()].clone()
    };
    let first = saved();
    assert_eq!(test.listed_by_command_line(), ["other", "owned"]);
    let renewed = saved();
    assert!(first["refresh_token"].is_string() && renewed["refresh_token"].is_string());
    assert_ne!(first["refresh_token"], renewed["refresh_token"], "not renewed");
    // A refresh token can be used once: commands that run at the same time must not use the same one.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(test.listed_by_command_line(), ["other", "owned"]));
        }
    });
    assert!(test.server.sign_ins("oidc", "accepted") > 0);

    // A user with a role in one project.
    let mut login = test.command_line(&["login"]);
    let mut login = login.stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    test.browse("bob", &[&page_with_code(&mut login)]);
    assert!(login.wait().unwrap().success());
    assert_eq!(test.listed_by_command_line(), ["owned"]);
}

/// The page that `ferrite login` displays for the user to open.
fn page_with_code(login: &mut Child) -> String {
    let mut lines = BufReader::new(login.stderr.take().unwrap()).lines();
    let mut seen = Vec::new();
    let page = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let page = line.split_once("or open ").map(|(_, page)| page.trim().to_owned());
        seen.push(line);
        page
    });
    // Later lines are read, so that the program is not stopped by a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
    page.unwrap_or_else(|| panic!("{seen:?}"))
}

/// Tokens of programs, in all headers, and with the clients of OpenStack.
#[test]
fn tokens_of_the_provider_are_accepted() {
    let Some(test) = prepare() else { return };
    let (server, provider) = (&test.server, &test.provider);
    let first = provider.access_token(AUDIENCE);
    let basic = STANDARD.encode(format!("anything:{first}"));
    for header in [
        format!("Authorization: Bearer {first}"),
        format!("X-Auth-Token: {first}"),
        format!("Authorization: Basic {basic}"),
    ] {
        assert_eq!(server.listed(&header), ["owned"], "{header}");
    }
    let url = server.url();
    for (variables, command) in [
        (admin_token(&url, &first), &["node", "list", "-f", "json"][..]),
        (http_basic(&url, "anything", &first), &["node", "show", "owned", "-f", "json"]),
    ] {
        let mut baremetal = without_user_settings(Command::new(test.clients.join("bin/baremetal")));
        baremetal.args(command).env("OS_CACERT", server.ca()).envs(variables);
        let output = output_of(&mut baremetal);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("\"owned\""), "{text}{}", String::from_utf8_lossy(&output.stderr));
    }

    // The provider has a new key: new and old tokens are accepted.
    provider.set(&json!({"keys": ["second", "first"]}));
    let second = provider.access_token(AUDIENCE);
    wait_until("the new key is fetched", || {
        server.get("/v1/nodes", &[&format!("X-Auth-Token: {second}")]).status == 200
    });
    assert_eq!(server.listed(&format!("X-Auth-Token: {first}")), ["owned"]);

    // Tokens that are not accepted.
    let packages = installed("FERRITE_TEST_OIDC_PROVIDER").unwrap();
    let other = OpenIdServer::start(&packages, &server.home);
    for (token, expected) in [
        (provider.access_token("urn:other"), "it is for another audience"),
        (other.access_token(AUDIENCE), "it is from another issuer"),
    ] {
        let response = server.get("/v1/nodes", &[&format!("Authorization: Bearer {token}")]);
        let message = format!("The token is not accepted: {expected}");
        assert_eq!((response.status, response.message()), (401, message.as_str()));
    }
    server.wait_for_sign_in_failure("oidc", "ci");
    provider.set(&json!({"token_lifetime": 1}));
    let header = format!("X-Auth-Token: {}", provider.access_token(AUDIENCE));
    wait_until("the token has expired", || {
        let response = server.get("/v1/nodes", &[&header]);
        let is_expired = response.message() == "The token is not accepted: it has expired";
        assert!(response.status == 200 || (response.status == 401 && is_expired), "{response:?}");
        is_expired
    });

    // Roles in a disabled project are ignored.
    let project = json!({"name": "storage", "enabled": false});
    let created =
        server.local_client().send_json("POST", "/v1/ferrite/projects", Some(&project)).unwrap();
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(server.get("/v1/nodes", &[&format!("X-Auth-Token: {first}")]).status, 403);
}
