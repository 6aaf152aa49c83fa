// SPDX-License-Identifier: Apache-2.0
//! Secrets are masked in records, encrypted in the database, and can be revealed.

use node_model::{
    Actor, DeployTemplate, HistoryEntry, JournalEntry, JournalEvent, JsonObject, MASK, Node,
    Secret, Sensitive, Step, Work,
};
use serde_json::{Map, Value, json};
use store::{JournalQuery, NodeColumn, NodeSecrets, ResourceQuery, StoreError};

use crate::migrations::{drop_key_tables, revert_renames};
use crate::samples::*;
use crate::test_database::{EngineKind, TestDatabase, on_every_engine};

on_every_engine! {
    secrets_round_trip masked_values_keep_the_secret objects_without_secrets_are_not_sealed sealed_values_are_bound_to_their_owner
    volume_target_secrets_round_trip no_plain_text_in_the_database passwords_in_urls_are_sealed
    secrets_in_step_arguments_are_sealed journal_and_history_have_no_passwords unsealed_arguments_with_the_reserved_key_are_readable
    migration_seals_plain_text_secrets secrets_in_extra_and_properties_are_sealed
    migration_seals_secrets_of_more_objects
}

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn secrets() -> NodeSecrets {
    NodeSecrets {
        driver_info: map(json!({
            "redfish_address": "https://bmc", "redfish_password": "open sesame",
            "nested": {"list": [{"snmp/auth~token": "sesame too"}, 1]}, "password_hint": null,
        })),
        instance_info: map(json!({"image_source": "x", "configdrive": "sesame three"})),
        driver_internal_info: map(json!({"agent_secret_token": "sesame four", "n": 1})),
        agent_token: Some(Secret::new("sesame five".to_owned())),
    }
}

fn sealed_node(db: &TestDatabase, name: &'static str) -> Node {
    db.write(move |w| {
        let mut machine = node(name);
        w.seal_node(&mut machine, secrets())?;
        w.insert(&machine)?;
        Ok(machine)
    })
    .unwrap()
}

fn reveal(db: &TestDatabase, node: &Node) -> Result<NodeSecrets, StoreError> {
    let node = node.clone();
    db.read(move |r| r.reveal(&node))
}

fn secrets_round_trip(db: &TestDatabase) {
    let machine = sealed_node(db, "one");
    assert!(machine.agent.has_token);
    assert_eq!(
        machine.driver_info.parse(),
        map(json!({
            "redfish_address": "https://bmc", "redfish_password": MASK,
            "nested": {"list": [{"snmp/auth~token": MASK}, 1]}, "password_hint": null,
        }))
    );
    assert_eq!(machine.instance_info.get_str("configdrive").as_deref(), Some(MASK));
    let id = machine.id;
    let loaded = db.read(move |r| r.get(id)).unwrap().unwrap();
    assert_eq!(loaded, machine);
    assert_eq!(reveal(db, &loaded).unwrap(), secrets());
    assert!(!format!("{:?} {:?}", loaded, secrets()).contains("sesame"));
}

fn masked_values_keep_the_secret(db: &TestDatabase) {
    let mut machine = sealed_node(db, "one");
    let mut back = NodeSecrets {
        driver_info: machine.driver_info.parse(),
        instance_info: machine.instance_info.parse(),
        driver_internal_info: machine.driver_internal_info.parse(),
        agent_token: Some(Secret::new("new".to_owned())),
    };
    back.driver_info.insert("redfish_username".to_owned(), json!("root"));
    back.instance_info.insert("configdrive".to_owned(), json!("changed"));
    back.driver_internal_info.remove("agent_secret_token");
    machine = db
        .write(move |w| {
            let mut machine = machine.clone();
            w.seal_node(&mut machine, back.clone())?;
            w.save(&mut machine)?;
            Ok(machine)
        })
        .unwrap();
    let mut expected = secrets();
    expected.driver_info.insert("redfish_username".to_owned(), json!("root"));
    expected.instance_info.insert("configdrive".to_owned(), json!("changed"));
    expected.driver_internal_info.remove("agent_secret_token");
    expected.agent_token = Some(Secret::new("new".to_owned()));
    assert_eq!(reveal(db, &machine).unwrap(), expected);
}

fn objects_without_secrets_are_not_sealed(db: &TestDatabase) {
    let full = NodeSecrets { driver_info: map(json!({"a": {"b": [1]}})), ..NodeSecrets::default() };
    let given = full.clone();
    let machine = db
        .write(move |w| {
            let mut machine = node("one");
            machine.sealed = vec![1, 2, 3];
            w.seal_node(&mut machine, given.clone())?;
            Ok(machine)
        })
        .unwrap();
    assert!(machine.sealed.is_empty() && !machine.agent.has_token);
    assert_eq!(reveal(db, &machine).unwrap(), full);
}

fn sealed_values_are_bound_to_their_owner(db: &TestDatabase) {
    let (one, mut two) = (sealed_node(db, "one"), sealed_node(db, "two"));
    assert_ne!(one.sealed, two.sealed);
    two.sealed = one.sealed.clone();
    assert!(matches!(reveal(db, &two), Err(StoreError::Unseal { .. })));
    let mut damaged = one.clone();
    let last = damaged.sealed.len() - 1;
    damaged.sealed[last] ^= 1;
    assert!(matches!(reveal(db, &damaged), Err(StoreError::Unseal { .. })));
    damaged.sealed = vec![1];
    assert!(matches!(reveal(db, &damaged), Err(StoreError::Unseal { .. })));
}

fn volume_target_secrets_round_trip(db: &TestDatabase) {
    let machine = node("one");
    let full = map(json!({"target_iqn": "iqn", "auth_password": "sesame"}));
    let given = full.clone();
    let target = db
        .write(move |w| {
            w.insert(&machine)?;
            let mut target = volume_target(machine.id, 0);
            w.seal_volume_target(&mut target, given.clone())?;
            w.insert(&target)?;
            Ok(target)
        })
        .unwrap();
    assert_eq!(target.properties.get_str("auth_password").as_deref(), Some(MASK));
    assert_eq!(db.read(move |r| r.reveal_volume_target(&target)).unwrap(), full);
}

fn no_plain_text_in_the_database(db: &TestDatabase) {
    let machine = sealed_node(db, "one");
    let sensitive_rule = rule(Sensitive::Yes);
    let (id, expected) = (sensitive_rule.id, sensitive_rule.clone());
    db.write(move |w| w.insert(&sensitive_rule)).unwrap();
    assert_eq!(db.read(move |r| r.get(id)).unwrap(), Some(expected));
    assert!(db.read(|r| r.find::<Node>(NodeColumn::Name, "one")).unwrap().is_some());
    assert!(!machine.sealed.windows(6).any(|bytes| bytes == b"sesame"));
    assert_no_plain_text(db);
}

fn passwords_in_urls_are_sealed(db: &TestDatabase) {
    let full = NodeSecrets {
        driver_info: map(json!({"deploy_kernel": "http://u:sesame@h/k", "more": ["http://h/r"]})),
        instance_info: map(json!({
            "image_source": "https://me:sesame@h:8/i", "image_checksum": ["https://me:sesame@h:8/c"],
        })),
        ..NodeSecrets::default()
    };
    let given = full.clone();
    let seal = move |secrets: NodeSecrets, before: Option<Node>| {
        db.write(move |w| {
            let mut machine = before.clone().unwrap_or_else(|| node("one"));
            w.seal_node(&mut machine, secrets.clone())?;
            match before {
                None => w.insert(&machine)?,
                Some(_) => w.save(&mut machine)?,
            }
            Ok(machine)
        })
        .unwrap()
    };
    let mut machine = seal(given, None);
    let masked = json!({
        "image_source": "https://me:******@h:8/i", "image_checksum": ["https://me:******@h:8/c"],
    });
    assert_eq!(machine.instance_info.parse(), map(masked.clone()));
    assert_eq!(
        machine.driver_info.get_str("deploy_kernel").as_deref(),
        Some("http://u:******@h/k")
    );
    assert_eq!(reveal(db, &machine).unwrap(), full);
    assert!(!format!("{machine:?}").contains("sesame"));

    // A masked URL sent back keeps its password, but not for another host.
    let mut back = full.clone();
    back.instance_info = map(masked);
    back.instance_info.insert("other".to_owned(), json!("https://me:******@h:8/other"));
    back.instance_info.insert("elsewhere".to_owned(), json!("https://me:******@evil/i"));
    machine = seal(back, Some(machine));
    let mut expected = full.clone();
    expected.instance_info.insert("other".to_owned(), json!("https://me:sesame@h:8/other"));
    expected.instance_info.insert("elsewhere".to_owned(), json!("https://me:******@evil/i"));
    assert_eq!(reveal(db, &machine).unwrap(), expected);

    // A value overwritten since is not replaced by the sealed one.
    machine.instance_info.set("image_source", "https://h/new");
    let revealed = reveal(db, &machine).unwrap().instance_info;
    assert_eq!(revealed["image_source"], "https://h/new");
    assert_no_plain_text(db);
}

fn secrets_in_step_arguments_are_sealed(db: &TestDatabase) {
    let secret = JsonObject::from_stored(r#"{"settings":[{"url":"http://u:sesame@h/f"}],"n":1}"#);
    let plain = JsonObject::from_stored(r#"{"n":1}"#);
    let step =
        |args: &JsonObject| Step { args: args.clone(), ..Step::new("firmware", "update", 0) };
    let mut machine = node("one");
    let work = full_node(node_model::ChassisId::random()).work.unwrap();
    machine.work = Some(Work { steps: vec![step(&secret), step(&plain)], ..work });
    let mut template = template("CUSTOM_ONE");
    template.steps[0].args = secret.clone();
    let mut runbook = runbook("CUSTOM_TWO");
    runbook.steps[0].args = secret;
    let (expected, ids) = (
        (machine.work.clone(), template.steps.clone(), runbook.steps.clone()),
        (machine.id, template.id, runbook.id),
    );
    let owner = store::LeaseOwner { hostname: "here".to_owned(), run: uuid::Uuid::new_v4() };
    db.write(move |w| {
        w.insert(&machine)?;
        w.insert(&template)?;
        w.insert(&runbook)?;
        let mut again = w.get(machine.id)?.unwrap();
        let lease = w.claim(machine.id, &owner, std::time::Duration::from_secs(9))?.unwrap();
        w.save_fenced(&mut again, &lease)
    })
    .unwrap();
    let found = db
        .read(move |r| {
            let work = r.get(ids.0)?.unwrap().work;
            Ok((work, r.get(ids.1)?.unwrap().steps, r.get(ids.2)?.unwrap().steps))
        })
        .unwrap();
    assert_eq!(found, expected);
    assert_no_plain_text(db);
}

/// Older versions of the API accepted the reserved key as an argument name.
fn unsealed_arguments_with_the_reserved_key_are_readable(db: &TestDatabase) {
    let args =
        [r#"{"ferrite:sealed":1}"#, r#"{"ferrite:sealed":"AAAA"}"#, r#"{"ferrite:sealed":"x"}"#];
    for (number, args) in args.into_iter().enumerate() {
        let mut deploy_template = template(&format!("CUSTOM_{number}"));
        deploy_template.steps[0].args = JsonObject::from_stored(args);
        db.write(move |w| w.insert(&deploy_template)).unwrap();
    }
    let found: Vec<DeployTemplate> = db.read(|r| r.collect(&ResourceQuery::default())).unwrap();
    let found_args: Vec<_> = found.iter().map(|it| it.steps[0].args.as_str()).collect();
    assert_eq!(found_args, args);
    let id = found[0].id;
    assert!(
        db.write(move |w| {
            w.get(id)?;
            w.delete(id)
        })
        .unwrap()
    );
}

/// Older versions stored passwords in URLs and step arguments in plain text.
fn migration_seals_plain_text_secrets(db: &TestDatabase) {
    let machine = sealed_node(db, "one");
    let mut working = node("two");
    let work = full_node(node_model::ChassisId::random()).work.unwrap();
    let args = JsonObject::from_stored(r#"{"password":"PLAIN"}"#);
    working.work = Some(Work { steps: vec![Step { args, ..Step::new("raid", "x", 0) }], ..work });
    let mut target = volume_target(machine.id, 0);
    target.sealed.clear();
    let (deploy_template, book) = (template("CUSTOM_ONE"), runbook("CUSTOM_TWO"));
    let ids = (machine.id, working.id, target.id, deploy_template.id, book.id);
    let node_work = serde_json::to_string(&working.work).unwrap();
    db.write(move |w| {
        w.insert(&working)?;
        w.insert(&target)?;
        w.insert(&deploy_template)?;
        w.insert(&book)
    })
    .unwrap();
    let url = r#"{"a":["https://me:sesame@h/i"],"b":1}"#;
    let steps = |key: &str| {
        format!(r#"[{{"interface":"raid","step":"x","args":{{"password":"sesame"}},"{key}":1}}]"#)
    };
    let mut info = machine.driver_info.parse();
    info.insert("deploy_kernel".to_owned(), json!("http://u:sesame@h/k"));
    let set = |table: &str, column: &str, value: &str, id: uuid::Uuid| {
        db.sql(&format!("UPDATE {table} SET {column} = '{value}' WHERE uuid = '{id}'"));
    };
    set("nodes", "driver_info", JsonObject::from(info).as_str(), ids.0.0);
    set("nodes", "work", &node_work.replace("PLAIN", "sesame"), ids.1.0);
    set("volume_targets", "properties", url, ids.2.0);
    set("deploy_templates", "steps", &steps("priority"), ids.3.0);
    set("runbooks", "steps", &steps("order"), ids.4.0);
    let before = db.read(move |r| r.get(ids.0)).unwrap().unwrap();

    revert_renames(db);
    db.sql("DELETE FROM schema_migrations WHERE number >= 6");
    db.open_again().unwrap().close();
    let after = db.read(move |r| r.get(ids.0)).unwrap().unwrap();
    let kernel = after.driver_info.get_str("deploy_kernel");
    assert_eq!(kernel.as_deref(), Some("http://u:******@h/k"));
    assert_eq!(after.updated_at, before.updated_at);
    let mut expected = secrets();
    expected.driver_info.insert("deploy_kernel".to_owned(), json!("http://u:sesame@h/k"));
    assert_eq!(reveal(db, &after).unwrap(), expected);
    let (work, target, full, deploy_template, book) = db
        .read(move |r| {
            let work = r.get(ids.1)?.unwrap().work.unwrap();
            let target = r.get(ids.2)?.unwrap();
            let full = r.reveal_volume_target(&target)?;
            Ok((work, target, full, r.get(ids.3)?.unwrap(), r.get(ids.4)?.unwrap()))
        })
        .unwrap();
    assert_eq!(target.properties.as_str(), url.replace("sesame", MASK));
    assert_eq!(Value::Object(full).to_string(), url);
    for args in [&work.steps[0].args, &deploy_template.steps[0].args, &book.steps[0].args] {
        assert_eq!(args.as_str(), r#"{"password":"sesame"}"#);
    }
    if db.kind == EngineKind::Sqlite {
        db.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    assert_no_plain_text(db);
}

fn journal_and_history_have_no_passwords(db: &TestDatabase) {
    let machine = node("one");
    let id = machine.id;
    db.write(move |w| {
        w.insert(&machine)?;
        let error = "cannot fetch 'http://u:ses\"ame@h/i': 404".to_owned();
        w.add_history(&history(id, &error))?;
        let what = JournalEvent::ActionFailed { action: "boot".to_owned(), took_ms: 1, error };
        let actor = Actor::Conductor { hostname: "here".to_owned() };
        w.append(JournalEntry { at: w.now(), node_id: id, actor, event: what });
        Ok(())
    })
    .unwrap();
    let query = JournalQuery { node: Some(id), after: 0, limit: 9 };
    let entries = db.read(move |r| r.journal(&query)).unwrap();
    let JournalEvent::ActionFailed { error, .. } = &entries[0].entry.event else {
        panic!("{entries:?}")
    };
    assert_eq!(error, "cannot fetch 'http://u:******@h/i': 404");
    let history: Vec<HistoryEntry> = db.read(|r| r.collect(&ResourceQuery::default())).unwrap();
    assert_eq!(history[0].event, *error);
}

/// The decrypted secrets of a node, by JSON pointer.
fn unsealed(db: &TestDatabase, node: &Node) -> Value {
    let node = node.clone();
    let plain = db.read(move |r| r.unseal(node.id.0, &node.sealed)).unwrap();
    serde_json::from_slice(&plain).unwrap()
}

fn secrets_in_extra_and_properties_are_sealed(db: &TestDatabase) {
    let mut machine = node("one");
    machine.extra = JsonObject::from_stored(r#"{"a":[{"password":"sesame"}],"n":1}"#);
    machine.properties = JsonObject::from_stored(r#"{"url":"https://h/i?sig=sesame"}"#);
    let id = machine.id;
    db.write(move |w| w.insert(&machine)).unwrap();
    let load = || db.read(move |r| r.get(id)).unwrap().unwrap();
    let mut loaded = load();
    assert_eq!(loaded.extra.as_str(), r#"{"a":[{"password":"******"}],"n":1}"#);
    assert_eq!(loaded.properties.as_str(), r#"{"url":"https://h/i?sig=******"}"#);
    let expected =
        json!({"/extra/a/0/password": "sesame", "/properties/url": "https://h/i?sig=sesame"});
    assert_eq!(unsealed(db, &loaded), expected);

    // Writers that change other fields, other secrets, or send the mask back.
    loaded.extra.set("token", "sesame too");
    db.write(move |w| {
        w.save(&mut loaded.clone())?;
        let mut again = w.get(id)?.unwrap();
        w.seal_node(&mut again, secrets())?;
        w.save(&mut again)
    })
    .unwrap();
    let loaded = load();
    let found = unsealed(db, &loaded);
    assert_eq!(found["/extra/a/0/password"], "sesame");
    assert_eq!(found["/extra/token"], "sesame too");
    assert_eq!(found["/properties/url"], "https://h/i?sig=sesame");
    assert_eq!(reveal(db, &loaded).unwrap(), secrets());
    assert_no_plain_text(db);
}

fn migration_seals_secrets_of_more_objects(db: &TestDatabase) {
    let machine = sealed_node(db, "one");
    let id = machine.id;
    for (column, value) in [
        ("extra", r#"{"password":"sesame"}"#),
        ("properties", r#"{"api_key":"sesame"}"#),
        ("instance_info", r#"{"user_data":"sesame","image_source":"https://h/i?sig=sesame"}"#),
    ] {
        db.sql(&format!("UPDATE nodes SET {column} = '{value}' WHERE uuid = '{}'", id.0));
    }
    drop_key_tables(db);
    db.sql("DELETE FROM schema_migrations WHERE number >= 12");
    db.open_again().unwrap().close();
    let after = db.read(move |r| r.get(id)).unwrap().unwrap();
    assert_eq!(after.extra.as_str(), r#"{"password":"******"}"#);
    assert_eq!(after.properties.as_str(), r#"{"api_key":"******"}"#);
    assert_eq!(after.instance_info.get_str("user_data").as_deref(), Some(MASK));
    let full = reveal(db, &after).unwrap();
    assert_eq!(full.instance_info["image_source"], "https://h/i?sig=sesame");
    assert_eq!(full.driver_info, secrets().driver_info);
    if db.kind == EngineKind::Sqlite {
        db.sql("PRAGMA wal_checkpoint(TRUNCATE)");
    }
    assert_no_plain_text(db);
}

fn assert_no_plain_text(db: &TestDatabase) {
    if db.kind == EngineKind::Sqlite {
        for file in ["ferrite.sqlite", "ferrite.sqlite-wal"] {
            let bytes = std::fs::read(db.settings.data_dir.join(file)).unwrap();
            assert!(!bytes.windows(6).any(|bytes| bytes == b"sesame"), "{file}");
        }
    }
}
