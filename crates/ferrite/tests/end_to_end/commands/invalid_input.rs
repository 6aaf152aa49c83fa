// SPDX-License-Identifier: Apache-2.0
//! Invalid input: nothing is changed partially, and the error and the exit code name the problem.

use super::{CliUser, run_command};
use crate::test_process::{TestHome, ferrite};

#[test]
fn changes_are_applied_completely_or_not_at_all() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    let before = user.json("node show rack1-01");
    for (line, code) in [
        ("node set rack1-01 -f owner=blue --trait no-trait", 4),
        ("node set rack1-01 -f owner=blue --trait CUSTOM_NEW,no-trait", 4),
        ("node set rack1-01 -f driver=no-such-driver --trait CUSTOM_NEW,CUSTOM_GPU", 4),
        ("node unset rack1-01 -f extra.nothing --trait CUSTOM_GPU", 4),
        ("node set rack1-[01-02] -f name=other", 2),
    ] {
        let done = user.run(line);
        assert_eq!(done.code, code, "ferrite {line}: {}{}", done.out, done.err);
        let node = user.json("node show rack1-01");
        for field in ["owner", "name", "driver", "traits"] {
            assert_eq!(node[field], before[field], "ferrite {line}");
        }
    }
    // Nested members with and without existing parents.
    for line in [
        "node set rack1-01 -f extra.a.b=1 -f extra.a.c:=2 --trait CUSTOM_NEW",
        "node set rack1-01 -f extra.a.d=3",
        "node unset rack1-01 -f extra.a.b",
    ] {
        let done = user.run(line);
        assert_eq!(done.code, 0, "ferrite {line}: {}", done.err);
    }
    let node = user.json("node show rack1-01");
    assert_eq!(node["extra"], serde_json::json!({"a": {"c": 2, "d": "3"}}));
    assert_eq!(node["traits"], serde_json::json!(["CUSTOM_GPU", "CUSTOM_NEW"]));
}

#[test]
fn checks_all_entries_of_a_file_first() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    let steps = "steps: [{interface: deploy, step: deploy, priority: 10, args: {}}]";
    user.write("wrong.yaml", &format!("- {{name: CUSTOM_A, {steps}}}\n- {{name: CUSTOM_B}}\n"));
    user.write(
        "refused.yaml",
        &format!("- {{name: not a trait, {steps}}}\n- {{name: CUSTOM_C, {steps}}}\n"),
    );
    user.write("machines.yaml", "- {name: one, driver: fake-hardware}\n- two\n");
    let done = user.run("template create --file wrong.yaml");
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains("entry 2 (CUSTOM_B): steps is missing"), "{}", done.err);
    assert_eq!(user.run("template list -o name").out, "");
    let done = user.run("template create --file refused.yaml");
    assert_eq!((done.code, done.out.as_str()), (1, "CUSTOM_C\n"), "{}", done.err);
    assert!(done.err.contains("entry 1 (not a trait): "), "{}", done.err);
    let done = user.run("node create --file machines.yaml");
    assert_eq!(done.code, 2, "{}", done.err);
    assert_eq!(user.run("node list -o name").out, "");
}

#[test]
fn explains_invalid_arguments() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    user.enrol_rack();
    user.write("network.yaml", "ethernets: {}\n");
    user.write("key.pub", "hello world\n");
    let deploy = "deploy --dry-run --resource-class big --image";
    let with = |more: &str| format!("{deploy} http://images/a.raw {more}");
    for (line, code, expected) in [
        ("node validate ''", 3, "unknown machine \"\""),
        ("node show a/b", 3, "unknown machine \"a/b\""),
        ("node timeline ''", 3, "unknown machine \"\""),
        ("runbook show ''", 3, "unknown runbook \"\""),
        ("runbook delete ''", 3, "unknown runbook \"\""),
        ("node list --state enrol", 2, "did you mean \"enroll\"? known states: enroll, verifying"),
        ("node show r[1-99999]", 3, "and 99994 more"),
        ("node wait rack1-01 --for active", 1, "no operation is running that would make it active"),
        (&format!("{deploy} debian"), 2, "is not an image URL"),
        (&with("--checksum abc"), 2, "is neither a SHA-256"),
        (&with("--hostname web_1"), 2, "is not a hostname"),
        (&with("--trait gpu"), 2, "is not a trait"),
        (&with("--network network.yaml"), 2, "is not valid network_data"),
        (&with("--ssh-key key.pub"), 2, "is not a file of public SSH keys"),
        (&with("--candidate rack1-9"), 3, "unknown machine"),
        (&with(""), 4, "1 machines requested, but only 0 can be deployed"),
        (&with("").replace("big", "huge"), 4, "existing: big"),
    ] {
        let arguments: Vec<&str> =
            line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        let done = user.run_arguments(&arguments);
        assert_eq!(done.code, code, "ferrite {line}: {}{}", done.out, done.err);
        assert!(done.err.contains(expected), "ferrite {line}: {}", done.err);
        assert!(done.err.len() < 1_000, "ferrite {line}");
    }
    let plan = user.run(&with("--count 2 --candidate rack1-[01-02]"));
    assert!(
        plan.out
            .contains("machines_that_do_not_fit.rack1-02  is enroll; its power state is unknown"),
        "{}",
        plan.out
    );
}

/// The dry run uses the check of the deployment.
#[test]
fn dry_run_rejects_image_files_that_are_not_allowed() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    for line in [
        "node create n --driver fake-hardware --resource-class direct -f deploy_interface=direct \
         -f boot_interface=fake -f automated_clean:=false",
        "node manage n -w",
        "node provide n -w",
        "node power off n -w",
    ] {
        let done = user.run(line);
        assert_eq!(done.code, 0, "ferrite {line}: {}", done.err);
    }
    let deploy = "deploy --dry-run --resource-class direct --image";
    let done = user.run(&format!("{deploy} file:///etc/shadow"));
    assert_eq!(done.code, 4, "{}{}", done.out, done.err);
    assert!(done.out.contains("machines_that_do_not_fit.n  "), "{}", done.out);
    assert!(done.out.contains("/etc/shadow"), "{}", done.out);
    let sum = "0".repeat(64);
    let done = user.run(&format!("{deploy} http://images/a.raw --checksum {sum}"));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}

#[test]
fn prints_results_once_and_in_order() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    for name in ["r-10", "r-2", "r-1"] {
        assert_eq!(user.run(&format!("node create {name} --driver fake-hardware")).code, 0);
    }
    // Connection options are accepted before the subcommand.
    let elsewhere = CliUser::new("http://127.0.0.1:1");
    let listed = elsewhere.run(&format!("--url {} node list -o name", server.url()));
    assert_eq!(listed.out, "r-1\nr-2\nr-10\n", "{}", listed.err);
    // With an existing and a new machine, as JSON.
    let file = user.write(
        "r.yaml",
        "[{name: r-1, driver: fake-hardware}, {name: r-3, driver: fake-hardware}]",
    );
    let rows = user.json(&format!("node create --file {file}"));
    let results: Vec<&str> =
        rows.as_array().unwrap().iter().filter_map(|row| row["result"].as_str()).collect();
    assert_eq!(results, ["already exists", "created"], "{rows}");
    assert_eq!(user.run("node validate r-3 --interface power -o name").out, "power\n");
    let managed = user.run("node manage r-1 --wait");
    let output = format!("{}{}", managed.out, managed.err);
    assert_eq!(output.matches("r-1: manageable").count(), 1, "{output}");
    // A held node waits for `unhold`.
    let hold = r#"node clean r-1 --steps [{"interface":"power","step":"hold"}]"#;
    assert_eq!(user.run(hold).code, 0, "{}", user.run(hold).err);
    let waited = user.run("node wait r-1 --for available --timeout 1");
    assert_eq!(waited.code, 7, "{}", waited.err);
    assert!(waited.err.contains("held; continue with"), "{}", waited.err);
}

#[test]
fn validation_errors_have_an_exit_code() {
    let home = TestHome::new();
    let server = home.serve();
    let user = CliUser::new(&server.url());
    assert_eq!(user.run("node create bare --driver redfish").code, 0);
    for (line, code) in [
        ("node validate bare", 1),
        ("node validate bare --interface power,management", 1),
        ("node validate bare --interface storage", 0),
        ("node validate bare --interface unknown", 2),
    ] {
        let done = user.run(line);
        assert_eq!(done.code, code, "ferrite {line}: {}{}", done.out, done.err);
    }
}

#[test]
fn sim_explains_how_to_give_credentials() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "basic"]);
    let url = server.url();
    let inside = url.replace("://", "://admin:hush-hush@");
    for (address, expected) in [(&url, "--enrol http://USER:PASSWORD@"), (&inside, "\"admin\"")] {
        let mut command = ferrite();
        command.args(["sim", "--bmcs", "1", "--port", "0", "--enrol", address]);
        let done = run_command(command);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains(expected) && !done.err.contains("hush-hush"), "{}", done.err);
    }
}

#[test]
fn imports_completely_or_not_at_all() {
    let (old_home, new_home) = (TestHome::new(), TestHome::new());
    let (old, new) = (old_home.serve(), new_home.serve());
    let (source, destination) = (CliUser::new(&old.url()), CliUser::new(&new.url()));
    source.enrol_rack();
    assert_eq!(source.run("node manage rack1-[01-02] -w").code, 0);
    let from = format!("import --from {}", old.url());
    // The same server by its address and by its host name.
    let alias = old.url().replace("127.0.0.1", "localhost");
    for from in [from.clone(), format!("import --from {alias}")] {
        let done = source.run(&from);
        assert_eq!(done.code, 2, "{from}: {}", done.err);
        assert!(done.err.contains("is also the destination"), "{}", done.err);
    }
    destination.write("secrets.yaml", "rack1-99: {fake_password: '1234'}\n");
    let done = destination.run(&format!("{from} --secrets secrets.yaml"));
    assert_eq!(done.code, 2, "{}", done.err);
    assert_eq!(destination.run("node list -o name").out, "");
    // While the source manages the machines, they are in maintenance here.
    let done = destination.run(&from);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    for node in destination.json("node list").as_array().unwrap() {
        assert_eq!(node["maintenance"], true, "{node}");
        let reason = node["maintenance_reason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("imported from {}", old.url())), "{reason}");
    }
    assert_eq!(destination.run("node list --state manageable -o name").out, "rack1-01\nrack1-02\n");
    // A node with missing secrets is not taken over.
    assert_eq!(source.run("node set rack1-02 -f driver_info.fake_password=1234").code, 0);
    assert_eq!(destination.run("node delete rack1-02").code, 0);
    let done = destination.run(&format!("{from} rack1-02 --take-over"));
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    assert_eq!(source.run("node list --maintenance -o name").out, "");
    assert_eq!(
        destination.run("node show rack1-02 -o json").out.matches("imported from").count(),
        1
    );
    destination.write("secrets.yaml", "rack1-02: {fake_password: '1234'}\n");
    // Maintenance for another reason is kept.
    assert_eq!(destination.run("node maintenance on rack1-03 --reason fan").code, 0);
    for _ in 0..2 {
        let done = destination.run(&format!("{from} --take-over --secrets secrets.yaml"));
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        assert_eq!(destination.run("node list --maintenance -o name").out, "rack1-03\n");
        assert_eq!(source.run("node list --maintenance=false -o name").out, "");
    }
}

/// Imports the machines of an Ironic with `--take-over`.
pub(super) fn take_over(from: &str) {
    let home = TestHome::new();
    let server = home.serve();
    let (source, destination) = (CliUser::new(from), CliUser::new(&server.url()));
    source.enrol_rack();
    assert_eq!(source.run("node manage rack1-01 -w").code, 0);
    let done = destination.run(&format!("import --from {from} --take-over"));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(source.run("node list --maintenance=false -o name").out, "");
    assert_eq!(destination.run("node list --maintenance -o name").out, "");
    assert_eq!(destination.run("node list --state manageable -o name").out, "rack1-01\n");
}
