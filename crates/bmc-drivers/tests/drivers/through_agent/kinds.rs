// SPDX-License-Identifier: Apache-2.0
//! What the deploy interfaces do differently.

use node_model::InterfaceKind;

use super::site::Site;

#[tokio::test]
async fn only_an_image_is_given_a_bootloader() {
    for (interface, step, times) in [
        ("direct", "prepare_instance_boot", 1),
        ("custom-agent", "prepare_instance_boot", 0),
        ("bootc", "set_boot_to_disk", 0),
    ] {
        let mut site = Site::new().await;
        site.boot_agent().await;
        // Left over from an earlier instance.
        site.node.driver_internal_info.set("is_whole_disk_image", false);
        site.node.interfaces.set(InterfaceKind::Deploy, Some(interface));
        site.driver = site.registry.compose(&site.node).unwrap();
        site.finish(step).await.unwrap();
        assert_eq!(site.times_told("install_bootloader"), times, "{interface}");
    }
}
