// SPDX-License-Identifier: Apache-2.0
//! The hardware type `idrac` against a simulated iDRAC.

use drivers::RamdiskMode::Deploy;
use drivers::{InspectionOutcome, NodeChanges};
use fleet_sim::machine::{ApplyTime, BootTarget, PowerState, RaidKind, VolumeRequest};
use fleet_sim::{IdracRules, Personality, ResourceKind, ResourceQuirk};
use node_model::{InterfaceKind, ProvisionState, StepFlow};
use serde_json::json;

use crate::boot::{DEPLOY_ISO, boot, with_iso_for};
use crate::rig::RedfishRig;

/// A Dell machine; `cd_is_physical` as before firmware 6 of the iDRAC.
fn dell(cd_is_physical: bool) -> Personality {
    let mut personality = Personality::built_in("dell-like").expect("the personality exists");
    personality.idrac = Some(IdracRules { cd_is_physical });
    personality
}

fn idrac_with_iso(cd_is_physical: bool) -> RedfishRig {
    let mut rig = with_iso_for(dell(cd_is_physical));
    rig.use_idrac();
    rig
}

/// Stores a volume change that waits for a reset.
fn queue_job(rig: &RedfishRig) {
    let request = VolumeRequest {
        controller: 0,
        name: None,
        raid: RaidKind::Raid1,
        capacity_bytes: None,
        drives: vec![0, 1],
    };
    let queued = rig
        .machine()
        .with_model(|machine, now| machine.create_volume(request, Some(ApplyTime::OnReset), now));
    queued.expect("the controller accepts it");
}

fn job_count(rig: &RedfishRig) -> usize {
    rig.machine().with_model(|machine, _| machine.tasks().len())
}

fn restarts(rig: &RedfishRig) -> u32 {
    rig.machine().with_model(|machine, _| machine.bmc_restarts())
}

#[tokio::test]
async fn boots_virtual_cd_of_old_and_new_idracs() {
    for cd_is_physical in [true, false] {
        let mut rig = idrac_with_iso(cd_is_physical);
        rig.driver.boot().validate(&rig.target()).await.unwrap();
        let prepared = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await;
        let changes = prepared.unwrap_or_else(|error| panic!("{cd_is_physical}: {error}"));
        rig.apply(&changes);
        let imports = rig.writes();
        let imports = imports.iter().filter(|write| write.contains("ImportSystemConfiguration"));
        assert_eq!(imports.count(), 1);
        assert_eq!(boot(&rig).await, (BootTarget::Cd, Some(DEPLOY_ISO.to_owned())));
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd, "only once");
        let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
        rig.apply(&changes);
        assert!(rig.machine().virtual_media().iter().all(Option::is_none));
        assert_eq!(boot(&rig).await.0, BootTarget::Hdd);
    }
}

/// The reason for the extension: the standard boot device is not the virtual CD.
#[tokio::test]
async fn standard_boot_device_of_old_idracs_is_a_physical_cd() {
    let rig = with_iso_for(dell(true));
    let _changes = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert_eq!(boot(&rig).await.0, BootTarget::Hdd);
}

#[tokio::test]
async fn live_iso_boots_from_virtual_cd_every_time() {
    let mut rig = RedfishRig::with_personality(dell(true));
    rig.use_idrac();
    rig.node.provision_state = ProvisionState::Deploying;
    rig.instance_info.insert("boot_iso".to_owned(), DEPLOY_ISO.into());
    let changes = rig.driver.boot().prepare_instance(&rig.target()).await.unwrap();
    rig.apply(&changes);
    for _ in 0..2 {
        assert_eq!(boot(&rig).await, (BootTarget::Cd, Some(DEPLOY_ISO.to_owned())));
    }
}

#[tokio::test]
async fn pending_configuration_is_applied_by_a_reboot() {
    let rig = idrac_with_iso(true);
    queue_job(&rig);
    let changes = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert_eq!(rig.machine().volumes().len(), 1, "the pending job has run");
    // The machine was off, and is off again for the caller to start it.
    assert_eq!(rig.machine().power_state(), PowerState::Off);
    assert_eq!(changes.power_state, Some(node_model::PowerState::Off));
    assert_eq!(boot(&rig).await.1.as_deref(), Some(DEPLOY_ISO));
}

#[tokio::test]
async fn falls_back_to_standard_boot_device_without_import() {
    let mut personality = dell(false);
    personality.missing.push(ResourceKind::DellServices);
    let mut rig = with_iso_for(personality);
    rig.use_idrac();
    let _changes = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert_eq!(boot(&rig).await.1.as_deref(), Some(DEPLOY_ISO));
}

#[tokio::test]
async fn automatic_boot_uses_the_idrac_interface() {
    let mut rig = idrac_with_iso(true);
    rig.set_interface(InterfaceKind::Boot, "automatic");
    let changes = rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    rig.apply(&changes);
    assert_eq!(boot(&rig).await.1.as_deref(), Some(DEPLOY_ISO));
    let _changes = rig.driver.boot().clean_up_ramdisk(&rig.target(), Deploy).await.unwrap();
    assert!(rig.machine().virtual_media().iter().all(Option::is_none));
}

#[tokio::test]
async fn clears_job_queue() {
    let mut rig = idrac_with_iso(false);
    queue_job(&rig);
    assert_eq!(job_count(&rig), 1);
    rig.run_step(InterfaceKind::Management, "clear_job_queue", json!({})).await.unwrap();
    assert_eq!((job_count(&rig), restarts(&rig)), (0, 0));
}

#[tokio::test]
async fn restarts_idrac_and_waits_until_it_is_ready() {
    // After the short restart, the iDRAC responds again when the driver polls for the first time.
    for (step, jobs_left, restart_seconds) in
        [("reset_idrac", 1, 5.0), ("reset_idrac", 1, 15.0), ("known_good_state", 0, 15.0)]
    {
        let mut personality = dell(false);
        personality.durations.bmc_restart = restart_seconds;
        let mut rig = RedfishRig::with_personality(personality);
        rig.use_idrac();
        queue_job(&rig);
        rig.run_step(InterfaceKind::Management, step, json!({})).await.unwrap();
        assert_eq!(restarts(&rig), 1, "{step}");
        assert_eq!(job_count(&rig), jobs_left, "{step}");
        assert!(rig.machine().with_model(|machine, now| machine.bmc_is_reachable(now)), "{step}");
    }
}

#[tokio::test]
async fn idrac_steps_fail_without_dell_services_unless_verifying() {
    for (step, service) in [
        ("clear_job_queue", "DellJobService"),
        ("reset_idrac", "DelliDRACCardService"),
        ("known_good_state", "DelliDRACCardService"),
    ] {
        let mut rig = RedfishRig::named("generic");
        rig.use_idrac();
        let ended = rig.run_step(InterfaceKind::Management, step, json!({})).await;
        let error = ended.unwrap_err().to_string();
        assert!(error.contains(service), "{error}");
        rig.node.provision_state = ProvisionState::Verifying;
        rig.run_step(InterfaceKind::Management, step, json!({})).await.unwrap();
        // They are steps of the iDRAC only.
        let mut rig = RedfishRig::named("generic");
        let ended = rig.run_step(InterfaceKind::Management, step, json!({})).await;
        assert!(ended.unwrap_err().is_caller_error());
    }
}

/// The steps of Ironic 39.0.0. Ferrite also offers `delete_configuration` for service.
#[test]
fn steps_are_those_of_ironic() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _guard = runtime.enter();
    let mut rig = RedfishRig::named("dell-like");
    rig.use_idrac();
    for (kind, flow, expected) in [
        (
            InterfaceKind::Management,
            StepFlow::Clean,
            "clear_job_queue clear_secure_boot_keys known_good_state reset_idrac \
             reset_secure_boot_keys_to_default set_bmc_clock update_firmware",
        ),
        (
            InterfaceKind::Management,
            StepFlow::Deploy,
            "clear_secure_boot_keys reset_secure_boot_keys_to_default",
        ),
        (InterfaceKind::Management, StepFlow::Service, "update_firmware"),
        (
            InterfaceKind::Management,
            StepFlow::Verify,
            "clear_job_queue known_good_state reset_idrac verify_bmc_clock",
        ),
        (InterfaceKind::Raid, StepFlow::Clean, "create_configuration delete_configuration"),
        (InterfaceKind::Raid, StepFlow::Deploy, "apply_configuration delete_configuration"),
        (InterfaceKind::Raid, StepFlow::Service, "apply_configuration delete_configuration"),
        (InterfaceKind::Bios, StepFlow::Clean, "apply_configuration factory_reset"),
        (InterfaceKind::Bios, StepFlow::Deploy, "apply_configuration factory_reset"),
        (InterfaceKind::Bios, StepFlow::Service, "apply_configuration factory_reset"),
    ] {
        let steps = rig.driver.interface(kind).steps(flow);
        let mut names: Vec<_> = steps.iter().map(|step| step.step.step.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names.join(" "), expected, "{kind} {flow}");
    }
    let mut methods: Vec<_> =
        rig.driver.vendor().methods().iter().map(|method| method.name).collect();
    methods.sort_unstable();
    assert_eq!(
        methods.join(" "),
        "create_subscription delete_subscription eject_vmedia get_all_subscriptions get_subscription"
    );
}

#[tokio::test]
async fn inspection_reports_the_service_tag_as_serial_number() {
    let mut personality = dell(false);
    personality.quirks.push(ResourceQuirk {
        resource: ResourceKind::System,
        remove: Vec::new(),
        set: [("SerialNumber".to_owned(), json!("MAINBOARD"))].into(),
    });
    let mut rig = RedfishRig::with_personality(personality);
    for is_idrac in [false, true] {
        if is_idrac {
            rig.use_idrac();
        }
        let inspected = rig.driver.inspect().inspect(&rig.target()).await.unwrap();
        let InspectionOutcome::Done(hardware) = inspected else { panic!("no agent is needed") };
        let vendor = hardware.inventory.unwrap().parse()["system_vendor"].clone();
        let expected = if is_idrac { vendor["sku"].clone() } else { json!("MAINBOARD") };
        assert_eq!(vendor["serial_number"], expected);
        assert!(vendor["sku"].is_string());
    }
}

#[tokio::test]
async fn raid_waits_until_the_idrac_can_change_storage() {
    let mut personality = dell(false);
    // Two seconds: longer than the driver takes until its first query.
    personality.durations.post = 2000.0;
    let mut rig = with_iso_for(personality);
    rig.use_idrac();
    let disks = json!({"logical_disks": [{"size_gb": "MAX", "raid_level": "1"}]});
    rig.node.target_raid_config = node_model::JsonObject::from(disks.as_object().unwrap().clone());
    let calls = rig.record_step(InterfaceKind::Raid, "create_configuration", json!({})).await;
    let texts: Vec<_> = calls.iter().filter_map(|call| call.progress_text.as_deref()).collect();
    assert!(texts.iter().any(|text| text.contains("can change storage")), "{texts:?}");
    assert_eq!(rig.machine().power_state(), PowerState::On);
    assert_eq!(rig.machine().volumes().len(), 1);
}

#[tokio::test]
async fn power_bios_and_vendor_work_as_for_redfish() {
    let mut rig = idrac_with_iso(false);
    rig.power(node_model::PowerTarget::On).await;
    let arguments = json!({"settings": [{"name": "NumLock", "value": "Off"}]});
    rig.run_step(InterfaceKind::Bios, "apply_configuration", arguments).await.unwrap();
    assert_eq!(rig.machine().bios_attribute("NumLock"), Some(json!("Off")));
    let changes: NodeChanges =
        rig.driver.boot().prepare_ramdisk(&rig.target(), Deploy).await.unwrap();
    rig.apply(&changes);
    let (target, arguments) = (rig.target(), serde_json::Map::new());
    let method = drivers::HttpMethod::Post;
    rig.driver.vendor().call(&target, "eject_vmedia", method, &arguments).await.unwrap();
    assert!(rig.machine().virtual_media().iter().all(Option::is_none));
}
