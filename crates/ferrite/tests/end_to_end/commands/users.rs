// SPDX-License-Identifier: Apache-2.0
//! `ferrite user`, `project` and `token` with users in the database.

use std::time::{Duration, Instant};

use expect_test::expect;
use serde_json::Value;

use super::{CliUser, CommandOutput, run_command};
use crate::test_process::TestHome;

impl CliUser {
    /// Runs a command with an API token.
    fn run_with_token(&self, line: &str, token: &str) -> CommandOutput {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        let mut command = self.command(&arguments);
        command.env_remove("OS_AUTH_TYPE").env_remove("OS_ENDPOINT");
        command.env("FERRITE_URL", &self.url).env("FERRITE_TOKEN", token);
        run_command(command)
    }
}

#[test]
fn manages_users_projects_and_tokens() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "local"]);
    let password_file = home.path("data/admin-password");
    let admin = CliUser::new(&server.url());
    let login = format!("--url {} --password-file {}", server.url(), password_file.display());
    let as_admin = |line: &str| admin.run(&format!("{line} {login}"));
    std::fs::write(admin.path("password"), "correct horse battery\n").unwrap();

    let anonymous = admin.run("user list");
    assert_eq!(anonymous.code, 5, "{}", anonymous.err);
    let mut shown = String::new();
    for line in [
        "project create storage --description disks",
        "project create compute",
        "project list",
        "user create alice --role member@storage,reader@compute --new-password-file password",
        "user create ci --service --role member@system",
        "user set alice --add-role manager@compute --remove-role reader@compute",
        "user set alice --default-project storage",
        "user list",
        "user set alice --remove-role admin@system",
        "user set alice",
        "user create alice --no-password",
        "user create bob --role member@unknown --no-password",
        "user show alic",
        "user delete admin",
        "whoami",
    ] {
        let done = as_admin(line);
        shown.push_str(&format!("$ ferrite {line}\n{}", done.out));
        for last in done.err.lines().filter(|line| line.starts_with("ferrite:")) {
            shown.push_str(&format!("{}\n", last.replace(&server.url(), "URL")));
        }
        if done.code != 0 {
            shown.push_str(&format!("exit code {}\n", done.code));
        }
    }
    let shown = mask_ids(&shown);
    expect![[r#"
        $ ferrite project create storage --description disks
        storage
        $ ferrite project create compute
        compute
        $ ferrite project list
        NAME     ENABLED  DESCRIPTION
        compute  true
        storage  true     disks
        $ ferrite user create alice --role member@storage,reader@compute --new-password-file password
        alice
        $ ferrite user create ci --service --role member@system
        ci
        $ ferrite user set alice --add-role manager@compute --remove-role reader@compute
        alice: changed
        $ ferrite user set alice --default-project storage
        alice: changed
        $ ferrite user list
        NAME   KIND     ENABLED  ROLES                           DESCRIPTION
        admin  human    true     admin@system                    Created on first start
        alice  human    true     manager@compute,member@storage
        ci     service  true     member@system
        $ ferrite user set alice --remove-role admin@system
        ferrite: the user does not have the role admin@system; assigned: manager@compute, member@storage
        exit code 2
        $ ferrite user set alice
        ferrite: give at least one change
        exit code 2
        $ ferrite user create alice --no-password
        ferrite: A user named alice already exists.
        exit code 4
        $ ferrite user create bob --role member@unknown --no-password
        ferrite: The project unknown does not exist; create it first.
        exit code 4
        $ ferrite user show alic
        ferrite: unknown user "alic"; did you mean "alice"?
        exit code 3
        $ ferrite user delete admin
        ferrite: This is the last enabled user with the role admin@system; give the role to another user first.
        exit code 4
        $ ferrite whoami
        assignments  admin@system
        method       password
        roles        admin,manager,member,reader
        scope        system
        user         admin
        user_id      UUID
    "#]].assert_eq(&shown);

    let created = as_admin("token create --for ci --role reader --expires 1h");
    assert_eq!(created.code, 0, "{}", created.err);
    let token = created.out.trim().to_owned();
    assert!(token.starts_with("frt_") && token.len() == 54, "{token}");
    assert!(created.err.contains("cannot be shown again"), "{}", created.err);

    let me = admin.run_with_token("whoami -o json", &token);
    let me: Value = serde_json::from_str(&me.out).unwrap();
    assert_eq!((me["user"].as_str(), me["scope"].as_str()), (Some("ci"), Some("system")));
    assert_eq!(me["roles"], serde_json::json!(["reader"]));
    assert_eq!(admin.run_with_token("node list", &token).code, 0);
    let refused = admin.run_with_token("user create eve --no-password", &token);
    assert_eq!(refused.code, 5, "{}", refused.err);

    // The use is recorded in the background.
    let deadline = Instant::now() + Duration::from_secs(30);
    let list: Value = loop {
        let list: Value = serde_json::from_str(&as_admin("token list -o json").out).unwrap();
        if list[0]["last_used_at"].is_string() {
            break list;
        }
        assert!(Instant::now() < deadline, "the use of the token is recorded: {list}");
    };
    let id = list[0]["id"].as_str().unwrap();
    assert_eq!(as_admin(&format!("token revoke {id}")).code, 0);
    let revoked = admin.run_with_token("node list", &token);
    assert_eq!(revoked.code, 5);
    assert!(revoked.err.contains("rejected the token from FERRITE_URL"), "{}", revoked.err);
    assert!(!home.log().contains(&token), "the log contains no token");

    // Over the Unix socket, root manages users without a password.
    let socket = format!("unix:{}", home.path("data/ferrite.sock").display());
    let local = admin.run(&format!("user list -o name --url {socket}"));
    assert_eq!((local.code, local.out.as_str()), (0, "admin\nalice\nci\n"), "{}", local.err);
}

/// Replaces UUIDs.
fn mask_ids(text: &str) -> String {
    text.split_inclusive(char::is_whitespace)
        .map(|word| {
            let trimmed = word.trim_end();
            let is_id = trimmed.len() == 36 && trimmed.matches('-').count() == 4;
            if is_id { word.replace(trimmed, "UUID") } else { word.to_owned() }
        })
        .collect()
}
