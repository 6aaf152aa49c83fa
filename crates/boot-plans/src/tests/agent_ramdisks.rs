// SPDX-License-Identifier: Apache-2.0
//! The ramdisks of the agent are fetched, and fetched again when their files change; files are also served
//! below the path of a proxy.

use boot_server::http::HttpRefusalReason;

use super::BootRig;

#[tokio::test]
async fn changed_files_are_found_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let url = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, name).unwrap();
        format!("file://{}", path.display())
    };
    let rig = BootRig::with_images(
        |boot| {
            boot.deploy_kernel = Some(url("kernel"));
            boot.deploy_ramdisk = Some(url("ramdisk"));
            boot.deploy_ramdisk_by_arch = [("aarch64".to_owned(), url("ramdisk-arm"))].into();
        },
        |images| images.file_url_allowed_paths.push(folder.path().to_owned()),
    )
    .await;
    let found = rig.services.agent_ramdisks();
    let architectures: Vec<_> = found.iter().map(|it| it.architecture.as_deref()).collect();
    assert_eq!(architectures, [None, Some("aarch64")]);
    assert_eq!(found[1].kernel, found[0].kernel, "the default replaces a missing kernel");
    assert_eq!(found[0].kernel.content, None);

    let check = async || {
        rig.services.check_ramdisk(0).await;
        rig.services.agent_ramdisks().remove(0)
    };
    let first = check().await;
    assert_eq!((&first.error, &first.version), (&None, &None));
    let kernel = first.kernel.content.as_ref().expect("the kernel was fetched");
    assert_eq!((kernel.sha256.len(), kernel.size), (64, 6));
    rig.advance(60);
    let same = check().await;
    assert_eq!((&same.ramdisk, same.changed_at), (&first.ramdisk, first.changed_at));
    assert!(same.checked_at > first.checked_at);

    let path = folder.path().join("ramdisk");
    std::fs::write(&path, "another ramdisk").unwrap();
    let second = check().await;
    assert_eq!(second.kernel, first.kernel);
    assert_eq!(second.ramdisk.content.as_ref().unwrap().size, 15);
    assert!(second.changed_at > first.changed_at);
    // Machines that boot now get it, too.
    let served = rig.services.discovery_file(crate::plan_files::PlanFile::Ramdisk).unwrap();
    assert!(super::bytes(&served.content).starts_with(b"another ramdisk"));

    std::fs::remove_file(&path).unwrap();
    let missing = check().await;
    assert_eq!(missing.ramdisk, second.ramdisk, "the last content is still reported");
    assert!(missing.error.is_some_and(|error| error.contains("ramdisk")));
}

#[tokio::test]
async fn files_are_also_served_below_the_path_of_a_proxy() {
    let rig = BootRig::with(|boot| boot.path_prefix = Some("/a/images".to_owned())).await;
    let direct = rig.text("/boot.ipxe").await;
    assert_eq!(rig.text("/a/images/boot.ipxe").await, direct);
    for path in ["/a/images", "/a/imagesboot.ipxe", "/a/boot.ipxe", "/a/images/a/images/boot.ipxe"]
    {
        let refused = rig.get(path).await.map(|_| ()).unwrap_err();
        assert_eq!(refused, HttpRefusalReason::NotFound, "{path}");
    }
}
