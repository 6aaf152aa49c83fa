// SPDX-License-Identifier: Apache-2.0
//! Differences between the deploy interfaces that use the agent.

use node_model::InterfaceKind;

use super::agent_test::AgentTest;

#[tokio::test]
async fn only_direct_installs_bootloader() {
    for (interface, step, times) in [
        ("direct", "prepare_instance_boot", 1),
        ("custom-agent", "prepare_instance_boot", 0),
        ("bootc", "set_boot_to_disk", 0),
    ] {
        let mut test = AgentTest::new().await;
        test.boot_agent().await;
        // Left over from an earlier instance.
        test.node.driver_internal_info.set("is_whole_disk_image", false);
        test.node.interfaces.set(InterfaceKind::Deploy, Some(interface));
        test.driver = test.registry.compose(&test.node).unwrap();
        test.finish_deploy_step(step).await.unwrap();
        assert_eq!(test.command_count("install_bootloader"), times, "{interface}");
    }
}
