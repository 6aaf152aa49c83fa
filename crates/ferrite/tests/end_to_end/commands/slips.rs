// SPDX-License-Identifier: Apache-2.0
//! What people get wrong: nothing is half done, and the words and the exit code say what it was.

use super::{User, done};
use crate::ferrite::{Home, ferrite};

#[test]
fn a_change_is_made_as_a_whole_or_not_at_all() {
    let home = Home::new();
    let server = home.serve();
    let user = User::of(&server.url());
    user.enrol_rack();
    let before = user.json("node show rack1-01");
    for (line, code) in [
        ("node set rack1-01 -f owner=blue --trait no-trait", 4),
        ("node set rack1-01 -f owner=blue --trait CUSTOM_NEW,no-trait", 4),
        ("node set rack1-01 -f driver=unheard-of --trait CUSTOM_NEW,CUSTOM_GPU", 4),
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
    // Members of members, whether their parents are there or not.
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
fn all_of_a_file_is_checked_first_and_each_entry_told_of() {
    let home = Home::new();
    let server = home.serve();
    let user = User::of(&server.url());
    let steps = "steps: [{interface: deploy, step: deploy, priority: 10, args: {}}]";
    user.write("wrong.yaml", &format!("- {{name: CUSTOM_A, {steps}}}\n- {{name: CUSTOM_B}}\n"));
    user.write(
        "refused.yaml",
        &format!("- {{name: not a trait, {steps}}}\n- {{name: CUSTOM_C, {steps}}}\n"),
    );
    user.write("machines.yaml", "- {name: one, driver: fake-hardware}\n- two\n");
    let done = user.run("template create --file wrong.yaml");
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(done.err.contains("entry 2 (CUSTOM_B): a deploy template needs steps"), "{}", done.err);
    assert_eq!(user.run("template list -o name").out, "");
    let done = user.run("template create --file refused.yaml");
    assert_eq!((done.code, done.out.as_str()), (1, "CUSTOM_C\n"), "{}", done.err);
    assert!(done.err.contains("entry 1 (not a trait): "), "{}", done.err);
    let done = user.run("node create --file machines.yaml");
    assert_eq!(done.code, 2, "{}", done.err);
    assert_eq!(user.run("node list -o name").out, "");
}

#[test]
fn what_makes_no_sense_is_told_in_plain_words() {
    let home = Home::new();
    let server = home.serve();
    let user = User::of(&server.url());
    user.enrol_rack();
    user.write("network.yaml", "ethernets: {}\n");
    user.write("key.pub", "hello world\n");
    let deploy = "deploy --dry-run --resource-class big --image";
    let with = |more: &str| format!("{deploy} http://images/a.raw {more}");
    for (line, code, told) in [
        ("node validate ''", 3, "there is no machine \"\""),
        ("node show a/b", 3, "there is no machine \"a/b\""),
        ("node timeline ''", 3, "there is no machine \"\""),
        ("runbook show ''", 3, "there is no runbook \"\""),
        ("runbook delete ''", 3, "there is no runbook \"\""),
        ("node list --state enrol", 2, "did you mean \"enroll\"? there are enroll, verifying"),
        ("node show r[1-99999]", 3, "and 99994 more"),
        ("node wait rack1-01 --for active", 1, "nothing is under way that makes it active"),
        (&format!("{deploy} debian"), 2, "is no address of an image"),
        (&with("--checksum abc"), 2, "is no SHA-256"),
        (&with("--hostname web_1"), 2, "is no hostname"),
        (&with("--trait gpu"), 2, "is no trait"),
        (&with("--network network.yaml"), 2, "is no network_data"),
        (&with("--ssh-key key.pub"), 2, "is no file of public SSH keys"),
        (&with("--candidate rack1-9"), 3, "there is no machine"),
        (&with(""), 4, "0 machines fit, and 1 is wanted"),
        (&with("").replace("big", "huge"), 4, "there are big"),
    ] {
        let words: Vec<&str> =
            line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        let done = user.run_words(&words);
        assert_eq!(done.code, code, "ferrite {line}: {}{}", done.out, done.err);
        assert!(done.err.contains(told), "ferrite {line}: {}", done.err);
        assert!(done.err.len() < 1_000, "ferrite {line}");
    }
    let plan = user.run(&with("--count 2 --candidate rack1-[01-02]"));
    assert!(
        plan.out.contains(
            "machines_that_do_not_fit.rack1-02  is enroll; nobody knows whether it is on"
        ),
        "{}",
        plan.out
    );
}

#[test]
fn results_are_told_once_and_in_order() {
    let home = Home::new();
    let server = home.serve();
    let user = User::of(&server.url());
    for name in ["r-10", "r-2", "r-1"] {
        assert_eq!(user.run(&format!("node create {name} --driver fake-hardware")).code, 0);
    }
    // Whom to ask may be said first.
    let elsewhere = User::of("http://127.0.0.1:1");
    let listed = elsewhere.run(&format!("--url {} node list -o name", server.url()));
    assert_eq!(listed.out, "r-1\nr-2\nr-10\n", "{}", listed.err);
    // Once more, for a program, with a machine that is new.
    let file = user.write(
        "r.yaml",
        "[{name: r-1, driver: fake-hardware}, {name: r-3, driver: fake-hardware}]",
    );
    let rows = user.json(&format!("node create --file {file}"));
    let results: Vec<&str> =
        rows.as_array().unwrap().iter().filter_map(|row| row["result"].as_str()).collect();
    assert_eq!(results, ["is there already", "created"], "{rows}");
    assert_eq!(user.run("node validate r-3 --interface power -o name").out, "power\n");
    let managed = user.run("node manage r-1 --wait");
    let told = format!("{}{}", managed.out, managed.err);
    assert_eq!(told.matches("r-1: manageable").count(), 1, "{told}");
    // A machine that is held goes on when somebody lets it.
    let hold = r#"node clean r-1 --steps [{"interface":"power","step":"hold"}]"#;
    assert_eq!(user.run(hold).code, 0, "{}", user.run(hold).err);
    let waited = user.run("node wait r-1 --for available --timeout 1");
    assert_eq!(waited.code, 7, "{}", waited.err);
    assert!(waited.err.contains("until somebody lets it go on"), "{}", waited.err);
}

#[test]
fn what_a_machine_lacks_is_an_exit_code() {
    let home = Home::new();
    let server = home.serve();
    let user = User::of(&server.url());
    assert_eq!(user.run("node create bare --driver redfish").code, 0);
    for (line, code) in [
        ("node validate bare", 1),
        ("node validate bare --interface power,management", 1),
        ("node validate bare --interface storage", 0),
        ("node validate bare --interface strange", 2),
    ] {
        let done = user.run(line);
        assert_eq!(done.code, code, "ferrite {line}: {}{}", done.out, done.err);
    }
}

#[test]
fn a_fleet_that_may_not_enrol_says_how_it_could() {
    let home = Home::new();
    let server = home.serve_with(&["--auth", "basic"]);
    let url = server.url();
    let inside = url.replace("://", "://admin:hush-hush@");
    for (address, told) in [(&url, "--enrol http://USER:PASSWORD@"), (&inside, "\"admin\"")] {
        let mut command = ferrite();
        command.args(["sim", "--bmcs", "1", "--port", "0", "--enrol", address]);
        let done = done(command);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains(told) && !done.err.contains("hush-hush"), "{}", done.err);
    }
}

#[test]
fn machines_are_not_taken_over_by_halves() {
    let (old_home, new_home) = (Home::new(), Home::new());
    let (old, new) = (old_home.serve(), new_home.serve());
    let (there, here) = (User::of(&old.url()), User::of(&new.url()));
    there.enrol_rack();
    assert_eq!(there.run("node manage rack1-[01-02] -w").code, 0);
    let from = format!("import --from {}", old.url());
    // The same server, under its own name and under another.
    let alias = old.url().replace("127.0.0.1", "localhost");
    for from in [from.clone(), format!("import --from {alias}")] {
        let done = there.run(&from);
        assert_eq!(done.code, 2, "{from}: {}", done.err);
        assert!(done.err.contains("is the server to import into, too"), "{}", done.err);
    }
    here.write("secrets.yaml", "rack1-99: {fake_password: '1234'}\n");
    let done = here.run(&format!("{from} --secrets secrets.yaml"));
    assert_eq!(done.code, 2, "{}", done.err);
    assert_eq!(here.run("node list -o name").out, "");
    // Until the other server lets go, nothing is done to the machines.
    let done = here.run(&from);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    for node in here.json("node list").as_array().unwrap() {
        assert_eq!(node["maintenance"], true, "{node}");
        let reason = node["maintenance_reason"].as_str().unwrap();
        assert!(reason.starts_with(&format!("imported from {}", old.url())), "{reason}");
    }
    assert_eq!(here.run("node list --state manageable -o name").out, "rack1-01\nrack1-02\n");
    // Nor does it let go of a machine that does not work here.
    assert_eq!(there.run("node set rack1-02 -f driver_info.fake_password=1234").code, 0);
    assert_eq!(here.run("node delete rack1-02").code, 0);
    let done = here.run(&format!("{from} rack1-02 --take-over"));
    assert_eq!(done.code, 1, "{}{}", done.out, done.err);
    assert_eq!(there.run("node list --maintenance -o name").out, "");
    assert_eq!(here.run("node show rack1-02 -o json").out.matches("imported from").count(), 1);
    here.write("secrets.yaml", "rack1-02: {fake_password: '1234'}\n");
    // A fan is still broken afterwards.
    assert_eq!(here.run("node maintenance on rack1-03 --reason fan").code, 0);
    for _ in 0..2 {
        let done = here.run(&format!("{from} --take-over --secrets secrets.yaml"));
        assert_eq!(done.code, 0, "{}{}", done.out, done.err);
        assert_eq!(here.run("node list --maintenance -o name").out, "rack1-03\n");
        assert_eq!(there.run("node list --maintenance=false -o name").out, "");
    }
}

/// Takes the machines of any Ironic over: it lets go of them, and they are ours.
pub(super) fn take_over(from: &str) {
    let home = Home::new();
    let server = home.serve();
    let (there, here) = (User::of(from), User::of(&server.url()));
    there.enrol_rack();
    assert_eq!(there.run("node manage rack1-01 -w").code, 0);
    let done = here.run(&format!("import --from {from} --take-over"));
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
    assert_eq!(there.run("node list --maintenance=false -o name").out, "");
    assert_eq!(here.run("node list --maintenance -o name").out, "");
    assert_eq!(here.run("node list --state manageable -o name").out, "rack1-01\n");
}
