// SPDX-License-Identifier: Apache-2.0
//! Which implementations a node gets, and which it may have.

use bmc_drivers::{
    ConfigError, Driver, DriverSettings, HardwareType, Registry, SelectionError, Target,
};
use node_model::{InterfaceKind, Interfaces, Node, NodeId, Timestamp};
use serde_json::json;

use crate::machine::registry;

/// What Ironic 39.0.0 answers to `GET /v1/drivers?detail=true` for fake-hardware with everything
/// enabled that exists here too: the default and the others.
const IRONIC: &[(InterfaceKind, &str, &[&str])] = &[
    (InterfaceKind::Bios, "fake", &["no-bios"]),
    (InterfaceKind::Boot, "fake", &[]),
    (InterfaceKind::Console, "fake", &["no-console"]),
    (InterfaceKind::Deploy, "fake", &["direct"]),
    (InterfaceKind::Firmware, "fake", &["no-firmware"]),
    (InterfaceKind::Inspect, "fake", &["agent", "no-inspect"]),
    (InterfaceKind::Management, "fake", &[]),
    (InterfaceKind::Network, "noop", &[]),
    (InterfaceKind::Power, "fake", &[]),
    (InterfaceKind::Raid, "fake", &["no-raid"]),
    (InterfaceKind::Rescue, "fake", &["no-rescue"]),
    (InterfaceKind::Storage, "noop", &["fake"]),
    (InterfaceKind::Vendor, "fake", &["no-vendor"]),
];

#[test]
fn fake_hardware_is_as_ironic_has_it() {
    let registry = registry();
    assert_eq!(IRONIC.len(), InterfaceKind::ALL.len());
    for (kind, default, others) in IRONIC {
        assert_eq!(registry.default_interface("fake-hardware", *kind), Ok(*default), "{kind}");
        let mut enabled = registry.enabled_interfaces("fake-hardware", *kind).unwrap();
        enabled.sort_unstable();
        let mut expected: Vec<_> = others.iter().chain([default]).copied().collect();
        expected.sort_unstable();
        assert_eq!(enabled, expected, "{kind}");
    }
}

#[test]
fn what_is_not_chosen_is_filled_in() {
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Bios, Some("no-bios"));
    registry().resolve("fake-hardware", &mut interfaces).unwrap();
    assert_eq!(interfaces.get(InterfaceKind::Bios), Some("no-bios"));
    assert_eq!(interfaces.get(InterfaceKind::Storage), Some("noop"));
    assert!(InterfaceKind::ALL.iter().all(|kind| interfaces.get(*kind).is_some()));
}

#[test]
fn fake_hardware_takes_what_is_enabled_even_if_it_does_not_fit() {
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Management, Some("noop"));
    assert!(
        !HardwareType::named("fake-hardware")
            .unwrap()
            .supported(InterfaceKind::Management)
            .contains(&"noop")
    );
    assert_eq!(registry().resolve("fake-hardware", &mut interfaces), Ok(()));
}

#[test]
fn a_bad_choice_is_refused_with_the_valid_ones() {
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Deploy, Some("ansible"));
    let error = registry().resolve("fake-hardware", &mut interfaces).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no deploy interface 'ansible' here; valid ones are: fake, direct, ramdisk, \
         custom-agent, bootc, autodetect, noop"
    );
    let error = registry().resolve("ilo", &mut Interfaces::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no hardware type 'ilo' here; the enabled ones are: fake-hardware, ipmi, redfish"
    );
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Deploy, Some("fake"));
    let error = registry().resolve("redfish", &mut interfaces).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the deploy interface 'fake' does not fit hardware type redfish; valid ones are: direct, \
         ramdisk, anaconda, custom-agent, bootc, autodetect"
    );
}

#[test]
fn the_node_chooses_and_its_instance_overrules() {
    let registry = registry();
    let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
    let deploy = |node: &Node| registry.compose(node).map(|driver| driver.deploy().name());
    assert_eq!(deploy(&node), Ok("fake"));
    node.interfaces.set(InterfaceKind::Deploy, Some("direct"));
    assert_eq!(deploy(&node), Ok("direct"));
    node.instance_info.set("deploy_interface", "noop");
    assert_eq!(deploy(&node), Ok("noop"));
    node.instance_info.set("deploy_interface", "nothing");
    assert!(matches!(deploy(&node), Err(SelectionError::NotEnabled { .. })));
    node.driver = "ilo".to_owned();
    assert!(matches!(deploy(&node), Err(SelectionError::UnknownDriver { .. })));
}

#[test]
fn every_implementation_is_on_its_own_shelf() {
    let registry = registry();
    for kind in InterfaceKind::ALL {
        for name in DriverSettings::default().enabled(*kind) {
            let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
            node.interfaces.set(*kind, Some(name));
            let driver = registry.compose(&node).unwrap();
            assert_eq!(driver.interface(*kind).name(), name);
            assert_eq!(driver.interface(*kind).kind(), *kind);
        }
    }
}

#[test]
fn drivers_can_be_used_from_any_task() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Registry>();
    check::<Driver>();
    check::<Target<'static>>();
}

#[test]
fn bad_settings_are_refused_at_start() {
    let good = DriverSettings::default();
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (settings, message) in [
        (
            DriverSettings { enabled_hardware_types: list(&["ilo"]), ..good.clone() },
            "enabled_hardware_types names 'ilo', which does not exist; there are: fake-hardware, ipmi, redfish",
        ),
        (
            DriverSettings { enabled_power_interfaces: list(&["fake", "apc"]), ..good.clone() },
            "enabled_power_interfaces names 'apc', which does not exist; there are: fake, redfish, ipmitool",
        ),
        (
            DriverSettings { default_raid_interface: Some("tape".to_owned()), ..good.clone() },
            "default_raid_interface is 'tape', which fake-hardware cannot use; choose one of: fake, redfish, agent, no-raid",
        ),
        (
            DriverSettings { enabled_boot_interfaces: Vec::new(), ..good.clone() },
            "no enabled boot interface fits fake-hardware; add one of these to enabled_boot_interfaces: fake",
        ),
    ] {
        assert_eq!(
            Registry::new(&settings, std::sync::Arc::new(bmc_drivers::NoBootServices))
                .unwrap_err()
                .to_string(),
            message
        );
    }
    let mut slow = good;
    slow.fake.power_delay = "soon".to_owned();
    assert!(matches!(
        Registry::new(&slow, std::sync::Arc::new(bmc_drivers::NoBootServices)),
        Err(ConfigError::Delay { key: "power_delay", .. })
    ));
}

#[test]
fn the_first_that_fits_is_the_default_unless_configured() {
    let settings = DriverSettings {
        enabled_inspect_interfaces: vec!["no-inspect".to_owned(), "agent".to_owned()],
        default_rescue_interface: Some("no-rescue".to_owned()),
        ..DriverSettings::default()
    };
    let registry =
        Registry::new(&settings, std::sync::Arc::new(bmc_drivers::NoBootServices)).unwrap();
    let default = |kind| registry.default_interface("fake-hardware", kind);
    // The hardware type's order counts, not that of the settings.
    assert_eq!(default(InterfaceKind::Inspect), Ok("agent"));
    assert_eq!(default(InterfaceKind::Rescue), Ok("no-rescue"));
}

#[test]
fn properties_are_listed_once_each() {
    let properties = registry().properties("fake-hardware").unwrap();
    let names: Vec<_> = properties.iter().map(|(name, _)| *name).collect();
    let mut unique = names.clone();
    unique.dedup();
    assert_eq!(names, unique);
    for name in [
        "B1",
        "B2",
        "fake_power_delay",
        "fake_deploy_failure",
        "fake_wait_for_agent",
        "fake_health",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    assert!(properties.iter().all(|(_, description)| description.ends_with('.')));
}

#[test]
fn settings_are_written_with_ironics_names() {
    let settings: DriverSettings = serde_json::from_value(json!({
        "enabled_raid_interfaces": ["no-raid"], "fake": {"power_delay": "1,2"},
    }))
    .unwrap();
    assert_eq!(settings.enabled(InterfaceKind::Raid), ["no-raid"]);
    assert_eq!(settings.fake.delay(InterfaceKind::Power), Some(("power_delay", "1,2")));
    assert_eq!(settings.enabled(InterfaceKind::Network), ["noop"]);
    for misspelt in [json!({"enabled_raid_interface": []}), json!({"fake": {"power": "1"}})] {
        assert!(serde_json::from_value::<DriverSettings>(misspelt.clone()).is_err(), "{misspelt}");
    }
}
