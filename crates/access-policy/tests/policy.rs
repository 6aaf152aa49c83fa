// SPDX-License-Identifier: Apache-2.0
//! Tables and properties of the policy language and of the default rules.

// Helper functions of tests may unwrap as tests do.
#![cfg(test)]

use std::sync::Arc;

use access_policy::{AuthMethod, Caller, CallerScope, Policy, PolicyError, PolicyTarget};
use proptest::prelude::*;

fn caller(scope: CallerScope, roles: &[&str]) -> Caller {
    Caller {
        user_id: Some(Arc::from("u1")),
        user_name: Some(Arc::from("user")),
        scope,
        project_name: Some(Arc::from("service")),
        roles: roles.iter().map(|role| Arc::from(*role)).collect(),
        method: AuthMethod::ApiToken,
    }
}

fn project(id: &str, roles: &[&str]) -> Caller {
    caller(CallerScope::Project(Arc::from(id)), roles)
}

fn system(roles: &[&str]) -> Caller {
    caller(CallerScope::System, roles)
}

/// Evaluates a check string in place of `baremetal:node:get`.
fn matches(check: &str, caller: &Caller, target: &PolicyTarget<'_>) -> bool {
    let yaml = format!("\"baremetal:node:get\": {check:?}\n");
    let policy = Policy::with_overrides(Some(&yaml)).unwrap();
    let policy = policy.with_service_project(Some("service"));
    policy.allows("baremetal:node:get", caller, target)
}

#[test]
fn allowed_rules_are_those_that_match() {
    let policy = Policy::with_overrides(None).unwrap();
    let member = project("p", &["member", "reader"]);
    let own = PolicyTarget::node(Some("p"), None);
    let other = PolicyTarget::node(Some("q"), None);
    let rule = "baremetal:node:set_power_state";
    assert!(policy.allowed_rules(&member, &own).contains(&rule));
    assert!(!policy.allowed_rules(&member, &other).contains(&rule));
    let rules = policy.allowed_rules(&Caller::anonymous(), &PolicyTarget::NONE);
    assert!(rules.len() > 100 && rules.is_sorted(), "{rules:?}");
    assert!(!rules.iter().any(|rule| rule.starts_with("persona:")), "{rules:?}");
    for rule in policy.allowed_rules(&member, &own) {
        assert!(policy.allows(rule, &member, &own), "{rule}");
    }
}

#[test]
fn checks_match_as_in_oslo_policy() {
    let member = project("p1", &["member", "reader"]);
    let owned = PolicyTarget::node(Some("p1"), None);
    let leased = PolicyTarget::node(Some("p2"), Some("p1"));
    for (check, target, expected) in [
        ("", owned, true),
        ("@", owned, true),
        ("!", owned, false),
        ("role:member", owned, true),
        ("role:MEMBER", owned, true),
        ("role:admin", owned, false),
        ("not role:admin", owned, true),
        ("not not role:admin", owned, false),
        ("project_id:%(node.owner)s", owned, true),
        ("project_id:%(node.owner)s", leased, false),
        ("project_id:%(node.lessee)s", leased, true),
        ("project_id:%(node.lessee)s", owned, false),
        ("not project_id:%(node.lessee)s", owned, true),
        ("tenant:p1", owned, true),
        ("project_id:%(project_id)s", owned, true),
        ("'p1':%(node.owner)s", owned, true),
        ("'p3':%(node.owner)s", owned, false),
        ("None:%(node.owner)s", owned, false),
        ("user_id:u1", owned, true),
        ("project_name:%(config.service_project_name)s", owned, true),
        ("project_domain_id:default", owned, false),
        ("system_scope:all", owned, false),
        ("role:admin or role:member and role:reader", owned, true),
        ("role:member or role:admin and role:nothing", owned, true),
        ("(role:member or role:admin) and role:nothing", owned, false),
        ("not role:member or role:reader", owned, true),
        ("not (role:member or role:reader)", owned, false),
        ("((role:member)) AND (role:reader)", owned, true),
        ("rule:is_node_owner", owned, true),
        ("rule:is_node_owner", leased, false),
        ("role:%(node.owner)s", PolicyTarget::node(Some("reader"), None), true),
    ] {
        assert_eq!(matches(check, &member, &target), expected, "{check:?} {target:?}");
    }
}

#[test]
fn missing_owner_belongs_to_no_project() {
    for scope in [CallerScope::System, CallerScope::Unscoped, CallerScope::Project(Arc::from(""))] {
        let caller = caller(scope, &["reader"]);
        for owner in [None, Some("")] {
            let target = PolicyTarget::node(owner, owner);
            assert!(!matches("project_id:%(node.owner)s", &caller, &target), "{caller:?}");
        }
    }
}

#[test]
fn unrestricted_callers_may_do_everything() {
    let policy = Policy::with_overrides(Some("baremetal:node:get: \"!\"")).unwrap();
    assert!(policy.allows("baremetal:node:get", &Caller::anonymous(), &PolicyTarget::NONE));
}

#[test]
fn default_rules_for_typical_callers() {
    let policy = Policy::with_overrides(None).unwrap();
    let node = PolicyTarget::node(Some("owner"), Some("lessee"));
    let allowed = |rule: &str, caller: &Caller| policy.allows(rule, caller, &node);
    let admin = &["admin", "manager", "member", "reader"][..];
    let member = &["member", "reader"][..];
    let reader = &["reader"][..];
    for (rule, who, expected) in [
        ("baremetal:node:get", system(reader), true),
        ("baremetal:node:get", project("owner", reader), true),
        ("baremetal:node:get", project("lessee", reader), true),
        ("baremetal:node:get", project("other", admin), false),
        ("baremetal:node:get", caller(CallerScope::Unscoped, admin), false),
        ("baremetal:node:list", project("other", reader), true),
        ("baremetal:node:list_all", project("owner", admin), false),
        ("baremetal:node:update:owner", project("owner", admin), false),
        ("baremetal:node:update:lessee", project("owner", member), true),
        ("baremetal:node:update:lessee", project("lessee", admin), false),
        ("baremetal:node:set_provision_state", project("lessee", member), false),
        ("baremetal:node:set_provision_state", project("lessee", admin), true),
        ("baremetal:node:set_power_state", project("lessee", member), true),
        ("baremetal:node:history:get", project("lessee", admin), false),
        ("baremetal:chassis:get", system(reader), true),
        ("baremetal:chassis:get", project("owner", admin), false),
        ("baremetal:node:delete", system(admin), true),
        ("baremetal:node:delete", system(member), false),
        ("no:such:rule", system(admin), false),
        // Without `service_project` the service role is limited to its project.
        ("baremetal:node:create", project("service-id", &["service"]), false),
    ] {
        assert_eq!(allowed(rule, &who), expected, "{rule} {who:?}");
    }
    let elevated = Policy::with_overrides(None).unwrap().with_service_project(Some("service"));
    let service = project("service-id", &["service"]);
    assert!(elevated.allows("baremetal:node:get", &service, &node));
    assert!(!elevated.allows("baremetal:chassis:get", &service, &node), "wrong scope");
}

#[test]
fn has_all_rules_of_ironic() {
    let page = access_policy::reference_page();
    assert_eq!(page.matches("### `baremetal:").count(), 122);
}

#[test]
fn invalid_files_name_the_rule() {
    for (yaml, expected) in [
        ("- a\n- b\n", "map of rule names"),
        (
            "baremetal:node:get: [[\"role:admin\"]]\n",
            "\"baremetal:node:get\": its value must be a text",
        ),
        ("baremetal:node:got: \"@\"\n", "\"baremetal:node:got\" does not exist"),
        (
            "baremetal:node:set-power-state: \"@\"\n",
            "Did you mean \"baremetal:node:set_power_state\"?",
        ),
        (
            "baremetal:node:get: role:admin and\n",
            "\"baremetal:node:get\": in \"role:admin and\": a check is missing",
        ),
        ("baremetal:node:get: (role:admin\n", "is not closed"),
        ("baremetal:node:get: role:admin)\n", "\")\" is not expected"),
        ("baremetal:node:get: role:admin role:member\n", "\"role:member\" is not expected"),
        ("baremetal:node:get: admin\n", "\"admin\" is not a check"),
        ("baremetal:node:get: 'role:'\n", "is not a check"),
        ("baremetal:node:get: rule:nope\n", "refers to the rule \"nope\""),
        ("baremetal:node:get: colour:red\n", "no attribute \"colour\""),
        ("baremetal:node:get: http://example/\n", "not supported"),
        ("baremetal:node:get: project_id:%(node.tenant)s\n", "\"%(node.tenant)s\" is unknown"),
        ("baremetal:node:get: project_id:100%\n", "contains a %"),
        (
            "baremetal:node:get: rule:baremetal:node:get\n",
            "\"baremetal:node:get\" refers to itself",
        ),
        ("is_admin: rule:is_observer\nis_observer: rule:is_admin\n", "refers to itself through"),
        ("show_password: role:admin\n", "\"show_password\" cannot be changed"),
        ("show_password: '@'\n", "\"show_password\" cannot be changed"),
        ("baremetal:driver:ipa_lookup: '!'\n", "\"baremetal:driver:ipa_lookup\" cannot be changed"),
    ] {
        let error = Policy::with_overrides(Some(yaml)).err().unwrap_or_else(|| panic!("{yaml}"));
        let message = error.to_string();
        assert!(message.contains(expected), "{yaml:?}: {message}");
    }
}

#[test]
fn accepts_what_policy_files_of_ironic_contain() {
    for yaml in [
        "",
        "# only a comment\n\n",
        "{}",
        "{\"baremetal:node:get\": \"role:admin\"}",
        "\"our_admins\": \"role:dc_admin\"\n\"baremetal:node:get\": \"rule:our_admins\"\n",
        "\"baremetal:step:execute:bios.apply_configuration\": \"role:admin\"\n",
        "show_password: \"!\"\n\"baremetal:driver:ipa_lookup\": \"\"\n",
    ] {
        assert_eq!(Policy::with_overrides(Some(yaml)).err(), None, "{yaml:?}");
    }
}

/// The example of the guide is a valid file.
#[test]
fn example_of_the_guide_is_valid() {
    let guide = include_str!("../../../docs/guide/tenancy.md");
    let (_, rest) = guide.split_once("```yaml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    assert_eq!(Policy::with_overrides(Some(example)).err(), None);
}

#[test]
fn steps_without_a_rule_are_allowed() {
    let yaml = "\"baremetal:step:execute:bios.factory_reset\": \"role:admin\"\n";
    let policy = Policy::with_overrides(Some(yaml)).unwrap();
    let member = project("p1", &["member"]);
    let target = PolicyTarget::node(Some("p1"), None);
    assert!(!policy.allows_step("bios", "factory_reset", &member, &target));
    assert!(policy.allows_step("bios", "other", &member, &target));
    assert!(policy.allows_step("bios", "factory_reset", &project("p1", &["admin"]), &target));
}

#[test]
fn deep_nesting_and_long_chains_are_rejected() {
    let deep = format!("{}role:a{}", "(".repeat(5000), ")".repeat(5000));
    let nots = "not ".repeat(3000) + "role:a";
    for check in [deep, nots] {
        let yaml = format!("baremetal:node:get: {check:?}\n");
        assert!(Policy::with_overrides(Some(&yaml)).is_err());
    }
    let mut chain = String::from("baremetal:node:get: rule:r0\n");
    for number in 0..2000 {
        chain.push_str(&format!("r{number}: rule:r{}\n", number + 1));
    }
    chain.push_str("r2000: role:a\n");
    let error = Policy::with_overrides(Some(&chain)).unwrap_err();
    assert!(matches!(error, PolicyError::Syntax { .. }), "{error}");
}

fn check_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("role:member".to_owned()),
        Just("role:admin".to_owned()),
        Just("project_id:%(node.owner)s".to_owned()),
        Just("project_id:%(node.lessee)s".to_owned()),
        Just("system_scope:all".to_owned()),
        Just("@".to_owned()),
        Just("!".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} and {b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a} or {b})")),
            inner.prop_map(|a| format!("not ({a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn parser_never_panics(text in "[ ()a-z:%@!'\"._]{0,60}") {
        let yaml = format!("baremetal:node:get: {text:?}\n");
        let _ = Policy::with_overrides(Some(&yaml));
    }

    #[test]
    fn file_parser_never_panics(text in "\\PC{0,80}") {
        let _ = Policy::with_overrides(Some(&text));
    }

    #[test]
    fn negation_and_conjunction_are_consistent(a in check_text(), b in check_text()) {
        let callers = [project("p1", &["member"]), project("p2", &["admin"]), system(&["admin"])];
        let target = PolicyTarget::node(Some("p1"), Some("p2"));
        for caller in &callers {
            let (first, second) = (matches(&a, caller, &target), matches(&b, caller, &target));
            prop_assert_eq!(matches(&format!("not ({a})"), caller, &target), !first);
            prop_assert_eq!(matches(&format!("{a} and {b}"), caller, &target), first && second);
            prop_assert_eq!(matches(&format!("{a} or {b}"), caller, &target), first || second);
        }
    }

    /// Random references between rules: rejected exactly if they contain a cycle.
    #[test]
    fn cycles_are_rejected(edges in proptest::collection::vec((0_usize..8, 0_usize..8), 0..14)) {
        let mut yaml = String::from("baremetal:node:get: ");
        let all: Vec<String> = (0..8).map(|rule| format!("rule:r{rule}")).collect();
        yaml.push_str(&all.join(" and "));
        yaml.push('\n');
        for rule in 0..8 {
            let parts: Vec<String> = edges
                .iter()
                .filter(|(from, _)| *from == rule)
                .map(|(_, to)| format!("rule:r{to}"))
                .chain(["role:a".to_owned()])
                .collect();
            yaml.push_str(&format!("r{rule}: {}\n", parts.join(" or ")));
        }
        // Rules without references to rules that are left can be removed again and again.
        let mut left: Vec<usize> = (0..8).collect();
        loop {
            let before = left.len();
            let keep = left.clone();
            left.retain(|rule| {
                edges.iter().any(|(from, to)| from == rule && keep.contains(to))
            });
            if left.len() == before { break }
        }
        let result = Policy::with_overrides(Some(&yaml));
        prop_assert_eq!(matches!(result, Err(PolicyError::Cycle(..))), !left.is_empty(), "{}", yaml);
        prop_assert_eq!(result.is_ok(), left.is_empty());
    }
}
