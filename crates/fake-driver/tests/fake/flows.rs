// SPDX-License-Identifier: Apache-2.0
//! Deployment, cleaning, service, rescue, inspection, consoles, vendor methods and networks of fake
//! hardware.

use drivers::{HttpMethod, InspectionOutcome, NodeChanges, StepOutcome, VifInfo};
use fake_driver::FakeMachine;
use node_model::{ActionProgress, InterfaceKind, StepFlow};
use serde_json::{Value, json};

use crate::machine::{self, object};

/// Interface, step, priority, abortable, ramdisk.
type ExpectedStep = (&'static str, &'static str, i64, bool, bool);

fn available_steps(
    machine: &FakeMachine,
    flow: StepFlow,
) -> Vec<(String, String, i64, bool, bool)> {
    let kinds = InterfaceKind::ALL.iter();
    let steps = kinds.flat_map(|kind| machine.driver.interface(*kind).steps(flow));
    let row = |available: node_model::AvailableStep| {
        let step = available.step;
        (step.interface, step.step, step.priority, step.abortable, step.requires_ramdisk)
    };
    steps.map(row).collect()
}

#[test]
fn steps_of_each_flow() {
    let machine = machine::fake(json!({}));
    let expected: &[(StepFlow, &[ExpectedStep])] = &[
        (
            StepFlow::Clean,
            &[
                ("bios", "apply_configuration", 0, false, false),
                ("bios", "factory_reset", 0, false, false),
                ("bios", "cache_bios_settings", 0, false, false),
                ("deploy", "erase_devices", 0, true, true),
                ("deploy", "erase_devices_metadata", 0, true, true),
                ("firmware", "update", 0, false, false),
                ("raid", "create_configuration", 0, false, false),
                ("raid", "delete_configuration", 0, false, false),
                ("vendor", "log_passthrough", 1, false, true),
            ],
        ),
        (
            StepFlow::Deploy,
            &[
                ("bios", "apply_configuration", 0, false, false),
                ("bios", "factory_reset", 0, false, false),
                ("deploy", "deploy", 100, false, true),
                ("firmware", "update", 0, false, false),
                ("raid", "delete_configuration", 0, false, false),
                ("raid", "apply_configuration", 0, false, false),
            ],
        ),
        (
            StepFlow::Service,
            &[
                ("bios", "apply_configuration", 0, false, false),
                ("bios", "factory_reset", 0, false, false),
                ("firmware", "update", 0, false, false),
                ("raid", "delete_configuration", 0, false, false),
                ("raid", "apply_configuration", 0, false, false),
                ("vendor", "log_passthrough", 0, false, false),
                ("vendor", "trigger_servicewait", 0, false, true),
            ],
        ),
        (StepFlow::Verify, &[]),
    ];
    for (flow, rows) in expected {
        let rows: Vec<_> = rows
            .iter()
            .map(|(interface, step, priority, abortable, ramdisk)| {
                ((*interface).to_owned(), (*step).to_owned(), *priority, *abortable, *ramdisk)
            })
            .collect();
        assert_eq!(available_steps(&machine, *flow), rows, "{flow}");
    }
}

#[tokio::test]
async fn steps_without_required_arguments_succeed() {
    for flow in StepFlow::ALL {
        for kind in InterfaceKind::ALL {
            let mut machine = machine::fake(json!({}));
            machine.node.target_raid_config =
                object(json!({"logical_disks": [{"raid_level": "1", "size_gb": 1}]})).into();
            for available in machine.driver.interface(*kind).steps(*flow) {
                if available.arguments.iter().any(|argument| argument.required) {
                    continue;
                }
                let outcome = machine.step(*kind, *flow, &available.step.step, json!({})).await;
                assert!(outcome.is_ok(), "{flow} step {kind}.{}: {outcome:?}", available.step.step);
            }
            assert!(machine.step(*kind, *flow, "dance", json!({})).await.is_err());
        }
    }
}

#[tokio::test]
async fn step_is_rejected_in_other_flows() {
    let mut machine = machine::fake(json!({}));
    let error = machine.step(InterfaceKind::Deploy, StepFlow::Clean, "deploy", json!({})).await;
    assert_eq!(
        error.unwrap_err().to_string(),
        "the deploy interface 'fake' cannot carry out the clean step 'deploy'; set deploy_interface \
         to one that can"
    );
}

#[tokio::test]
async fn calls_end_at_once_without_agent() {
    let mut machine = machine::fake(json!({}));
    let done = StepOutcome::done(NodeChanges::none());
    let deploy = machine.step(InterfaceKind::Deploy, StepFlow::Deploy, "deploy", json!({})).await;
    assert_eq!(deploy.unwrap(), done);
    let driver = machine.driver.clone();
    let target = machine.target();
    assert_eq!(driver.deploy().prepare_cleaning(&target).await.unwrap(), done);
    assert_eq!(driver.deploy().prepare_service(&target).await.unwrap(), done);
    assert_eq!(driver.rescue().rescue(&target).await.unwrap(), done);
    assert!(driver.rescue().unrescue(&target).await.unwrap().is_empty());
    for changes in [
        driver.deploy().prepare(&target).await,
        driver.deploy().tear_down(&target).await,
        driver.deploy().clean_up(&target).await,
        driver.deploy().take_over(&target).await,
        driver.deploy().tear_down_cleaning(&target).await,
        driver.deploy().tear_down_service(&target).await,
    ] {
        assert!(changes.unwrap().is_empty());
    }
}

/// Calls twice, as the conductor does: at first, and after the heartbeat.
async fn waits_once(
    machine: &mut FakeMachine,
    call: impl AsyncFn(&FakeMachine) -> Result<StepOutcome, drivers::DriverError>,
) {
    let first = call(machine).await.expect("the first call succeeds");
    assert!(first.progress == ActionProgress::WaitForAgent, "{first:?}");
    machine.record(&first.changes);
    let second = call(machine).await.expect("the second call succeeds");
    assert!(second.is_done(), "{second:?}");
    machine.driver_state = node_model::JsonObject::empty();
}

#[tokio::test]
async fn every_flow_waits_once_for_agent() {
    let mut machine = machine::fake(json!({"fake_wait_for_agent": true}));
    waits_once(&mut machine, async |m| m.driver.deploy().prepare_cleaning(&m.target()).await).await;
    waits_once(&mut machine, async |m| m.driver.deploy().prepare_service(&m.target()).await).await;
    waits_once(&mut machine, async |m| m.driver.rescue().rescue(&m.target()).await).await;
    waits_once(&mut machine, async |m| {
        let step = node_model::Step::new("deploy", "deploy", 100);
        let deploy = m.driver.interface(InterfaceKind::Deploy);
        deploy.execute_step(&m.target(), StepFlow::Deploy, &step).await
    })
    .await;
}

#[tokio::test]
async fn service_step_waits_for_agent() {
    let mut machine = machine::fake(json!({}));
    let (kind, flow) = (InterfaceKind::Vendor, StepFlow::Service);
    let first = machine.step(kind, flow, "trigger_servicewait", json!({})).await.unwrap();
    assert!(first.progress == ActionProgress::WaitForAgent);
    let second = machine.step(kind, flow, "trigger_servicewait", json!({})).await.unwrap();
    assert!(second.is_done());
}

#[tokio::test]
async fn inspection_returns_inventory_of_driver_info() {
    let machine = machine::fake(json!({}));
    let empty = machine.driver.inspect().inspect(&machine.target()).await.unwrap();
    assert_eq!(empty, InspectionOutcome::Done(Box::default()));

    let inventory = json!({
        "cpu": {"count": 16, "architecture": "x86_64"},
        "memory": {"physical_mb": 65536},
        "interfaces": [{"mac_address": "52:54:00:AA:BB:01"}, {"mac_address": "?"}, {}],
    });
    let machine = machine::fake(json!({ "fake_inventory": inventory.clone() }));
    let inspection = machine.driver.inspect().inspect(&machine.target()).await.unwrap();
    let InspectionOutcome::Done(hardware) = inspection else { panic!("no agent is needed") };
    let properties = Value::Object(hardware.changes.properties.clone());
    assert_eq!(properties, json!({"cpus": 16, "cpu_arch": "x86_64", "memory_mb": 65536}));
    assert_eq!(
        hardware.ports.iter().map(|mac| mac.as_str()).collect::<Vec<_>>(),
        ["52:54:00:aa:bb:01"]
    );
    assert_eq!(
        hardware.inventory.map(|inventory| Value::Object(inventory.parse())),
        Some(inventory)
    );

    let machine = machine::fake(json!({"fake_inventory": "big"}));
    assert!(
        machine.driver.interface(InterfaceKind::Inspect).validate(&machine.target()).await.is_err()
    );
}

#[tokio::test]
async fn console_starts_unless_no_console() {
    let machine = machine::fake(json!({}));
    let console = machine.driver.console();
    assert!(console.start(&machine.target()).await.unwrap().is_empty());
    let info = console.info(&machine.target()).await.unwrap().unwrap();
    assert_eq!(info.url, format!("fake://console/{}", machine.node.id));
    assert!(console.stop(&machine.target()).await.unwrap().is_empty());
    let machine = machine::with_interfaces(json!({}), &[(InterfaceKind::Console, "no-console")]);
    let error = machine.driver.console().start(&machine.target()).await.unwrap_err();
    assert!(error.is_caller_error());
}

#[tokio::test]
async fn vendor_methods_match_ironic() {
    let machine = machine::fake(json!({}));
    let vendor = machine.driver.vendor();
    let target = machine.target();
    let methods: Vec<_> = vendor
        .methods()
        .iter()
        .map(|method| (method.name, method.is_async, method.require_exclusive_lock))
        .collect();
    assert_eq!(
        methods,
        [
            ("second_method", true, true),
            ("third_method_sync", false, true),
            ("fourth_method_shared_lock", true, false),
            ("log_passthrough", true, true),
        ]
    );
    assert!(vendor.driver_methods().is_empty());
    for (method, bar, expected) in [
        ("second_method", "kazoo", json!(true)),
        ("third_method_sync", "meow", json!(true)),
        ("third_method_sync", "woof", json!(false)),
        ("fourth_method_shared_lock", "woof", json!(true)),
        ("log_passthrough", "anything", Value::Null),
    ] {
        let arguments = object(json!({ "bar": bar }));
        let called = vendor.call(&target, method, HttpMethod::Post, &arguments).await.unwrap();
        assert_eq!(called.value, expected, "{method}");
    }
    for (method, named) in [("second_method", "bar"), ("fifth_method", "fifth_method")] {
        let error = vendor.validate_call(&target, method, &object(json!({}))).await.unwrap_err();
        assert!(error.to_string().contains(named) && error.is_caller_error(), "{error}");
    }
    assert!(vendor.call_driver("any", HttpMethod::Get, &object(json!({}))).await.is_err());
}

#[tokio::test]
async fn network_and_storage_do_nothing() {
    let machine = machine::fake(json!({}));
    let (network, target) = (machine.driver.network(), machine.target());
    let vif = VifInfo { id: "v".to_owned(), ..VifInfo::default() };
    assert!(network.attach_vif(&target, &vif).await.unwrap().is_empty());
    assert!(network.vifs(&target).await.unwrap().is_empty());
    assert!(network.detach_vif(&target, "v").await.unwrap().is_empty());
    for name in ["noop", "fake"] {
        let machine = machine::with_interfaces(json!({}), &[(InterfaceKind::Storage, name)]);
        let (storage, target) = (machine.driver.storage(), machine.target());
        assert!(storage.attach_volumes(&target).await.unwrap().is_empty());
        assert!(storage.detach_volumes(&target).await.unwrap().is_empty());
    }
}
