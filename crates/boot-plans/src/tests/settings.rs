// SPDX-License-Identifier: Apache-2.0
//! Validation of settings and image sources.

use std::sync::Arc;

use drivers::BootService;
use node_model::Timestamp;
use store::Store;

use super::BootRig;
use crate::{BootServiceSettings, BootServices, ImageSettings};

#[tokio::test]
async fn rejects_invalid_settings_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let now: store::StoreClock = Arc::new(|| Timestamp(0));
    let store =
        Store::open_with_clock(&store::StoreSettings::in_dir(folder.path()), now.clone()).unwrap();
    type Change = fn(&mut BootServiceSettings);
    let cases: [(Change, &str); 11] = [
        (|boot| boot.https_url = Some("http://10.0.0.1".to_owned()), "boot.https_url"),
        (|boot| boot.path_prefix = Some("images".to_owned()), "boot.path_prefix"),
        (|boot| boot.path_prefix = Some("/".to_owned()), "boot.path_prefix"),
        (|boot| boot.path_prefix = Some("/a/../b".to_owned()), "boot.path_prefix"),
        (|boot| boot.path_prefix = Some("/vmedia".to_owned()), "boot.path_prefix"),
        (|boot| boot.http_url = Some("hello".to_owned()), "boot.http_url"),
        (|boot| boot.api_url = Some("http://x y".to_owned()), "boot.api_url"),
        (|boot| boot.deploy_kernel = Some("hello".to_owned()), "boot.deploy_kernel"),
        (|boot| boot.kernel_append_params = "a\nb".to_owned(), "boot.kernel_append_params"),
        (|boot| boot.inspection_kernel_params = "${x}".to_owned(), "boot.inspection_kernel_params"),
        (|boot| boot.url_lifetime = 0, "boot.url_lifetime"),
    ];
    for (change, key) in cases {
        let mut settings = BootServiceSettings::default();
        change(&mut settings);
        let opened = BootServices::open(
            store.clone(),
            settings,
            &ImageSettings::default(),
            folder.path(),
            "host".to_owned(),
            now.clone(),
            node_model::BootProof::Lease,
        );
        let error = opened.unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
    }
}

/// Validation and explanations use the same check as the deployment.
#[tokio::test]
async fn checks_that_image_files_are_allowed() {
    let mut rig = BootRig::new().await;
    for (source, problem) in [
        (rig.url("kernel"), None),
        ("oci://registry/image:1".to_owned(), None),
        ("file:///etc/shadow".to_owned(), Some("/etc/shadow is not in an allowed folder")),
    ] {
        rig.instance_info.insert("image_source".to_owned(), source.clone().into());
        let driver = rig.registry.compose(&rig.node).unwrap();
        let checked = rig.services.check_image(&rig.target(&driver));
        match (checked, problem) {
            (Ok(()), None) => {}
            (Err(error), Some(problem)) => {
                assert!(error.to_string().contains(problem), "{error}");
            }
            (checked, _) => panic!("{source}: {checked:?}"),
        }
    }
}
