// SPDX-License-Identifier: Apache-2.0
//! Deployments, quotas and the audit log.

use node_model::{
    Allocation, AllocationId, AllocationState, AuditEntry, AuditEntryId, AuditOutcome, Deployment,
    DeploymentId, DeploymentState, JsonObject, LeaseEndAction, ProjectQuota, QuotaId, QuotaSubject,
    Timestamp,
};
use serde_json::json;
use store::{
    AuditFilter, DeploymentColumn, DeploymentFilter, ResourcePage, ResourceQuery, StoreError,
};

use crate::samples::*;
use crate::test_database::{TestDatabase, on_every_engine};

on_every_engine! {
    stores_deployments_with_sealed_secrets
    counts_quotas
    concurrent_requests_do_not_exceed_a_quota
    searches_and_prunes_the_audit_log
}

pub(crate) fn deployment(name: &str, project: &str) -> Deployment {
    Deployment {
        id: DeploymentId::random(),
        name: Some(name.to_owned()),
        created_at: THEN,
        updated_at: None,
        state: DeploymentState::Allocating,
        project: Some(project.to_owned()),
        user: Some("ann".to_owned()),
        request_id: "req-1".to_owned(),
        flavour: Some("large".to_owned()),
        resource_class: Some("big".to_owned()),
        traits: vec!["CUSTOM_A".to_owned()],
        node_owner: Some("infra".to_owned()),
        candidate_nodes: vec![node_model::NodeId::random()],
        node_id: None,
        instance: JsonObject::empty(),
        sealed: Vec::new(),
        last_error: Some("why".to_owned()),
        expires_at: Some(Timestamp(50)),
        warn_seconds: 60,
        expiry_action: LeaseEndAction::Notify,
        warned_at: Some(Timestamp(1)),
        expired_at: Some(Timestamp(2)),
        due_at: Some(Timestamp(10)),
    }
}

fn allocation(owner: &str, state: AllocationState) -> Allocation {
    Allocation {
        id: AllocationId::random(),
        created_at: THEN,
        updated_at: None,
        name: None,
        state,
        node_id: None,
        resource_class: Some("big".to_owned()),
        traits: Vec::new(),
        candidate_nodes: Vec::new(),
        last_error: None,
        owner: Some(owner.to_owned()),
        extra: JsonObject::empty(),
    }
}

fn quota(project: &str, subject: &str, machines: i64) -> ProjectQuota {
    ProjectQuota {
        id: QuotaId::random(),
        project: project.to_owned(),
        subject: subject.parse().unwrap(),
        machines,
        created_at: THEN,
        updated_at: None,
    }
}

fn stores_deployments_with_sealed_secrets(db: &TestDatabase) {
    let first = deployment("web", "shop");
    let id = first.id;
    let instance = json!({"instance_info": {"image_source": "http://i"}, "user_data": "hidden"});
    let instance = instance.as_object().unwrap().clone();
    let (expected, unsaved) = (instance.clone(), first.clone());
    db.write(move |w| {
        let mut first = unsaved.clone();
        w.seal_deployment(&mut first, instance.clone())?;
        w.insert(&first)
    })
    .unwrap();
    let stored = db.read(move |r| r.get(id)).unwrap().unwrap();
    assert!(!stored.instance.as_str().contains("hidden"), "{:?}", stored.instance);
    let sealed = stored.clone();
    assert_eq!(db.read(move |r| r.reveal_deployment(&sealed)).unwrap(), expected);
    let unsealed = Deployment { instance: first.instance.clone(), sealed: Vec::new(), ..stored };
    assert_eq!(unsealed, first);

    let duplicate = db.write(|w| w.insert(&deployment("web", "other"))).unwrap_err();
    assert!(matches!(duplicate, StoreError::Duplicate { what: "name" }), "{duplicate:?}");
    let found = db.read(|r| r.find::<Deployment>(DeploymentColumn::Name, "web")).unwrap();
    assert_eq!(found.unwrap().id, id);

    // A project sees its deployments and those with an instance on machines that it owns.
    let mut machine = node("n1");
    machine.owner = Some("infra".to_owned());
    let machine_id = machine.id;
    db.write(move |w| {
        let mut machine = machine.clone();
        let mut held = deployment("db", "other");
        machine.instance_uuid = Some(held.id.0);
        w.insert(&machine)?;
        held.node_id = Some(machine_id);
        held.due_at = Some(Timestamp(30));
        w.insert(&held)
    })
    .unwrap();
    let names = |filter: DeploymentFilter| {
        let query = ResourceQuery::<Deployment>::filtered(filter);
        let found = db.read(move |r| r.collect(&query)).unwrap();
        found.into_iter().filter_map(|row| row.name).collect::<Vec<_>>()
    };
    let filter = DeploymentFilter::default();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(names(DeploymentFilter { visible_to: text("shop"), ..filter.clone() }), ["web"]);
    assert_eq!(names(DeploymentFilter { visible_to: text("infra"), ..filter.clone() }), ["db"]);
    assert_eq!(names(DeploymentFilter { due_at: Some(Timestamp(10)), ..filter }), ["web"]);
    let next = db.read(|r| r.next_deployment_after(Timestamp(10))).unwrap();
    assert_eq!(next, Some(Timestamp(30)));
    // Another instance is on the machine.
    db.write(move |w| {
        let mut machine = w.get(machine_id)?.unwrap();
        machine.instance_uuid = None;
        w.save(&mut machine)
    })
    .unwrap();
    let visible = DeploymentFilter { visible_to: text("infra"), ..DeploymentFilter::default() };
    assert_eq!(names(visible), [""; 0]);
    // Deleting the machine keeps the deployment.
    db.write(move |w| w.delete(machine_id)).unwrap();
    let held = db.read(|r| r.find::<Deployment>(DeploymentColumn::Name, "db")).unwrap().unwrap();
    assert_eq!(held.node_id, None);
}

fn counts_quotas(db: &TestDatabase) {
    db.write(|w| {
        w.insert(&quota("shop", "machines", 3))?;
        w.insert(&quota("shop", "resource_class:big", 2))?;
        w.insert(&quota("shop", "flavour:large", 1))?;
        w.insert(&quota("other", "machines", 0))?;
        w.insert(&allocation("shop", AllocationState::Active))?;
        w.insert(&allocation("shop", AllocationState::Error))
    })
    .unwrap();
    let exceeded = |class: Option<&'static str>, flavour: Option<&'static str>| {
        let found = db.read(move |r| r.exceeded_quota("shop", class, flavour)).unwrap();
        found.map(|quota| quota.subject.to_string())
    };
    assert_eq!(exceeded(Some("big"), Some("large")), None);
    db.write(|w| w.insert(&allocation("shop", AllocationState::Allocating))).unwrap();
    assert_eq!(exceeded(Some("big"), None).as_deref(), Some("resource_class:big"));
    assert_eq!(exceeded(Some("small"), None), None);
    db.write(|w| w.insert(&deployment("web", "shop"))).unwrap();
    assert_eq!(exceeded(None, Some("large")).as_deref(), Some("flavour:large"));
    let used = db.read(|r| r.quota_usage("shop", &QuotaSubject::Machines)).unwrap();
    assert_eq!(used, 2);
    let none = db.read(|r| r.exceeded_quota("unlimited", Some("big"), None)).unwrap();
    assert_eq!(none, None);
    let duplicate = db.write(|w| w.insert(&quota("shop", "machines", 9))).unwrap_err();
    assert!(matches!(duplicate, StoreError::Duplicate { .. }), "{duplicate:?}");
}

fn concurrent_requests_do_not_exceed_a_quota(db: &TestDatabase) {
    db.write(|w| w.insert(&quota("shop", "machines", 3))).unwrap();
    let accepted = db.runtime.block_on(async {
        let tasks: Vec<_> = (0..12)
            .map(|_| {
                let store = db.store.clone();
                tokio::spawn(async move {
                    let request = move |w: &mut store::StoreWriter<'_>| {
                        if w.exceeded_quota("shop", None, None)?.is_some() {
                            return Ok(false);
                        }
                        w.insert(&allocation("shop", AllocationState::Allocating))?;
                        Ok::<_, StoreError>(true)
                    };
                    store.write(request).await.unwrap()
                })
            })
            .collect();
        let mut accepted = 0;
        for task in tasks {
            accepted += usize::from(task.await.unwrap());
        }
        accepted
    });
    assert_eq!(accepted, 3);
}

fn audit_entry(at: i64, user: &str, outcome: AuditOutcome) -> AuditEntry {
    AuditEntry {
        id: AuditEntryId::random(),
        at: Timestamp(at),
        outcome,
        status: 403,
        user_id: Some("u1".to_owned()),
        user: Some(user.to_owned()),
        project: Some("shop".to_owned()),
        roles: Some("member,reader".to_owned()),
        auth_method: Some("password".to_owned()),
        method: "PUT".to_owned(),
        path: "/v1/nodes/n1/states/power".to_owned(),
        request_id: format!("req-{at}"),
        address: Some("192.0.2.1".to_owned()),
        resource_type: Some("node".to_owned()),
        resource_id: Some("n1".to_owned()),
        message: Some("no".to_owned()),
        suppressed: 2,
    }
}

fn searches_and_prunes_the_audit_log(db: &TestDatabase) {
    let entries: Vec<AuditEntry> = (0..6)
        .map(|number| {
            let refused = number % 2 == 0;
            let outcome = if refused { AuditOutcome::Refused } else { AuditOutcome::Accepted };
            audit_entry(number * 10, if number < 3 { "ann" } else { "bob" }, outcome)
        })
        .collect();
    let stored = entries.clone();
    db.write(move |w| stored.iter().try_for_each(|entry| w.insert(entry))).unwrap();
    let search = |filter: AuditFilter, page: ResourcePage<AuditEntry>| {
        let query = ResourceQuery { filter, page, ..ResourceQuery::default() };
        db.read(move |r| r.collect(&query)).unwrap()
    };
    let all = search(AuditFilter::default(), ResourcePage::default());
    assert_eq!(all, entries);
    let times = |filter: AuditFilter| {
        let found = search(filter, ResourcePage::default());
        found.iter().map(|entry| entry.at.0).collect::<Vec<_>>()
    };
    let filter = AuditFilter::default();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(times(AuditFilter { user: text("ann"), ..filter.clone() }), [0, 10, 20]);
    assert_eq!(times(AuditFilter { request_id: text("req-30"), ..filter.clone() }), [30]);
    let refused = Some(AuditOutcome::Refused);
    assert_eq!(times(AuditFilter { outcome: refused, ..filter.clone() }), [0, 20, 40]);
    let resources = Some(vec!["n1".to_owned(), "n2".to_owned()]);
    assert_eq!(times(AuditFilter { resources, ..filter.clone() }).len(), 6);
    let (from, to) = (Some(Timestamp(10)), Some(Timestamp(40)));
    assert_eq!(times(AuditFilter { from, to, ..filter.clone() }), [10, 20, 30]);
    let page = ResourcePage { limit: Some(2), descending: true, ..ResourcePage::default() };
    let latest = search(filter.clone(), page);
    assert_eq!(latest.iter().map(|entry| entry.at.0).collect::<Vec<_>>(), [50, 40]);
    let marker = Some(latest[1].id.0);
    let page = ResourcePage { limit: Some(2), marker, descending: true, ..ResourcePage::default() };
    assert_eq!(search(filter.clone(), page)[0].at, Timestamp(30));
    assert_eq!(db.write(|w| w.prune_audit_log(Timestamp(30))).unwrap(), 3);
    assert_eq!(times(filter), [30, 40, 50]);
}
