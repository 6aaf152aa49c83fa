// SPDX-License-Identifier: Apache-2.0
//! Tests of the registry: defaults, selection and validation of implementations.

use driver_set::{DriverSetError, DriverSettings, build_registry};
use drivers::{Driver, DriverRegistry, DriverSelectionError, DriverTarget};
use node_model::{InterfaceKind, Interfaces, Node, NodeId, Timestamp};
use serde_json::json;

use crate::machine::registry;

/// The response of Ironic 39.0.0 to `GET /v1/drivers?detail=true` for fake-hardware, with everything
/// enabled that Ferrite has too: the default and the others.
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
fn fake_hardware_has_ironics_interfaces() {
    let registry = registry();
    assert_eq!(IRONIC.len(), InterfaceKind::ALL.len());
    for (kind, default, others) in IRONIC {
        assert_eq!(registry.default_interface("fake-hardware", *kind), Ok(*default), "{kind}");
        let mut enabled = registry.supported_interfaces("fake-hardware", *kind).unwrap();
        enabled.sort_unstable();
        let mut expected: Vec<_> = others.iter().chain([default]).copied().collect();
        expected.sort_unstable();
        assert_eq!(enabled, expected, "{kind}");
    }
}

/// `supported_<interface>_interfaces` of `IDRACHardware` in Ironic 39.0.0, without the implementations
/// that Ferrite does not have.
const IRONIC_IDRAC: &[(InterfaceKind, &[&str])] = &[
    (InterfaceKind::Bios, &["idrac-redfish", "redfish", "no-bios"]),
    (
        InterfaceKind::Boot,
        &["ipxe", "pxe", "http-ipxe", "http", "idrac-redfish-virtual-media", "redfish-https"],
    ),
    (InterfaceKind::Firmware, &["redfish", "no-firmware"]),
    (InterfaceKind::Inspect, &["idrac-redfish", "agent", "no-inspect"]),
    (InterfaceKind::Management, &["idrac-redfish"]),
    (InterfaceKind::Network, &["noop"]),
    (InterfaceKind::Power, &["idrac-redfish", "redfish"]),
    (InterfaceKind::Raid, &["idrac-redfish", "no-raid", "agent"]),
    (InterfaceKind::Rescue, &["no-rescue", "agent"]),
    (InterfaceKind::Storage, &["noop"]),
    (InterfaceKind::Vendor, &["idrac-redfish", "redfish", "no-vendor"]),
];

#[test]
fn idrac_has_ironics_interfaces_and_defaults() {
    let registry = registry();
    let idrac = registry.hardware_types().find(|known| known.name == "idrac").unwrap();
    for (kind, expected) in IRONIC_IDRAC {
        let supported: Vec<_> =
            idrac.supported(*kind).iter().copied().filter(|name| *name != "automatic").collect();
        assert_eq!(supported, *expected, "{kind}");
        assert_eq!(registry.default_interface("idrac", *kind), Ok(expected[0]), "{kind}");
    }
    // As in Ironic, `redfish` and `idrac` have the same keys.
    let names = |driver| -> Vec<_> {
        registry.properties(driver).unwrap().iter().map(|(name, _)| *name).collect()
    };
    assert_eq!(names("idrac"), names("redfish"));
    for name in ["redfish_address", "redfish_system_id", "redfish_verify_ca", "deploy_kernel"] {
        assert!(names("idrac").contains(&name), "{name}");
    }
}

#[test]
fn resolve_fills_in_defaults() {
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Bios, Some("no-bios"));
    registry().resolve("fake-hardware", &mut interfaces).unwrap();
    assert_eq!(interfaces.get(InterfaceKind::Bios), Some("no-bios"));
    assert_eq!(interfaces.get(InterfaceKind::Storage), Some("noop"));
    assert!(InterfaceKind::ALL.iter().all(|kind| interfaces.get(*kind).is_some()));
}

#[test]
fn fake_hardware_accepts_unsupported_but_enabled_interfaces() {
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Management, Some("noop"));
    let registry = registry();
    let fake = registry.hardware_types().find(|known| known.name == "fake-hardware").unwrap();
    assert!(!fake.supported(InterfaceKind::Management).contains(&"noop"));
    assert_eq!(registry.resolve("fake-hardware", &mut interfaces), Ok(()));
}

#[test]
fn resolve_errors_list_valid_choices() {
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Deploy, Some("ansible"));
    let error = registry().resolve("fake-hardware", &mut interfaces).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the deploy interface 'ansible' is not enabled; valid ones are: fake, direct, ramdisk, \
         custom-agent, bootc, autodetect, noop"
    );
    let error = registry().resolve("ilo", &mut Interfaces::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "hardware type 'ilo' is not enabled; the enabled ones are: fake-hardware, ipmi, \
         redfish, idrac"
    );
    let mut interfaces = Interfaces::default();
    interfaces.set(InterfaceKind::Deploy, Some("fake"));
    let error = registry().resolve("redfish", &mut interfaces).unwrap_err();
    assert_eq!(
        error.to_string(),
        "hardware type redfish does not support the deploy interface 'fake'; valid ones are: direct, \
         ramdisk, anaconda, custom-agent, bootc, autodetect"
    );
}

#[test]
fn instance_info_overrides_deploy_interface_of_node() {
    let registry = registry();
    let mut node = Node::new(NodeId::random(), "fake-hardware", Timestamp(0));
    let deploy = |node: &Node| registry.compose(node).map(|driver| driver.deploy().name());
    assert_eq!(deploy(&node), Ok("fake"));
    node.interfaces.set(InterfaceKind::Deploy, Some("direct"));
    assert_eq!(deploy(&node), Ok("direct"));
    node.instance_info.set("deploy_interface", "noop");
    assert_eq!(deploy(&node), Ok("noop"));
    node.instance_info.set("deploy_interface", "nothing");
    assert!(matches!(deploy(&node), Err(DriverSelectionError::NotEnabled { .. })));
    node.driver = "ilo".to_owned();
    assert!(matches!(deploy(&node), Err(DriverSelectionError::UnknownDriver { .. })));
}

#[test]
fn implementations_have_their_registered_name_and_kind() {
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
fn drivers_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<DriverRegistry>();
    check::<Driver>();
    check::<DriverTarget<'static>>();
}

#[test]
fn invalid_settings_are_rejected() {
    let good = DriverSettings::default();
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (settings, message) in [
        (
            DriverSettings { enabled_hardware_types: list(&["ilo"]), ..good.clone() },
            "enabled_hardware_types names 'ilo', which does not exist; there are: fake-hardware, idrac, ipmi, redfish",
        ),
        (
            DriverSettings { enabled_power_interfaces: list(&["fake", "apc"]), ..good.clone() },
            "enabled_power_interfaces names 'apc', which does not exist; there are: fake, redfish, idrac-redfish, ipmitool",
        ),
        (
            DriverSettings { default_raid_interface: Some("tape".to_owned()), ..good.clone() },
            "default_raid_interface is 'tape', which fake-hardware cannot use; choose one of: fake, redfish, idrac-redfish, agent, no-raid",
        ),
        (
            DriverSettings { enabled_boot_interfaces: Vec::new(), ..good.clone() },
            "no boot interface that fake-hardware supports is enabled; add one of these to enabled_boot_interfaces: fake",
        ),
    ] {
        assert_eq!(
            build_registry(&settings, std::sync::Arc::new(drivers::ExternalBootService))
                .unwrap_err()
                .to_string(),
            message
        );
    }
    let mut slow = good;
    slow.fake.power_delay = "soon".to_owned();
    assert!(matches!(
        build_registry(&slow, std::sync::Arc::new(drivers::ExternalBootService)),
        Err(DriverSetError::Fake(error)) if error.key == "power_delay"
    ));
}

#[test]
fn first_supported_interface_is_default_unless_configured() {
    let settings = DriverSettings {
        enabled_inspect_interfaces: vec!["no-inspect".to_owned(), "agent".to_owned()],
        default_rescue_interface: Some("no-rescue".to_owned()),
        ..DriverSettings::default()
    };
    let registry =
        build_registry(&settings, std::sync::Arc::new(drivers::ExternalBootService)).unwrap();
    let default = |kind| registry.default_interface("fake-hardware", kind);
    // The hardware type's order applies, not that of the settings.
    assert_eq!(default(InterfaceKind::Inspect), Ok("agent"));
    assert_eq!(default(InterfaceKind::Rescue), Ok("no-rescue"));
}

#[test]
fn properties_have_no_duplicates() {
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
fn settings_use_ironics_names() {
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
