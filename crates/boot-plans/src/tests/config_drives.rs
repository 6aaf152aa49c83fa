// SPDX-License-Identifier: Apache-2.0
//! Empty config drives of ramdisk instances.

use node_model::{BootMethod, BootPurpose};
use serde_json::{Value, json};

use super::BootRig;

/// baremetal-operator sends `configdrive: {}` for a live ISO.
#[tokio::test]
async fn empty_config_drive_is_none() {
    let mut rig = BootRig::new().await;
    for empty in [json!({}), json!(""), Value::Null] {
        rig.instance_info.insert("boot_iso".to_owned(), "nfs://host/live.iso".into());
        rig.instance_info.insert("configdrive".to_owned(), empty.clone());
        let published = rig.publish(BootMethod::VirtualMedia, BootPurpose::Instance).await.unwrap();
        assert_eq!(published.boot_url, "nfs://host/live.iso");
        assert_eq!(published.config_drive, None, "{empty}");

        // An instance that boots from the network must not have one.
        rig.instance_info.remove("boot_iso");
        rig.instance_info.insert("kernel".to_owned(), rig.url("kernel").into());
        rig.instance_info.insert("ramdisk".to_owned(), rig.url("ramdisk").into());
        rig.check(BootMethod::Ipxe, BootPurpose::Instance).unwrap();
    }
}
