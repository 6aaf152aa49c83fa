// SPDX-License-Identifier: Apache-2.0
//! Which modules are taken, and the tables that tell of them.

use expect_test::{Expect, expect};

use super::*;
use crate::{fixtures, tables};

fn library(folder: &Path) -> Library {
    fixtures::modules(
        folder,
        &[
            (
                "drivers/net/virtio_net.ko",
                &["alias=virtio:d00000001v*", "depends=net_failover", "firmware=virtio/net.bin"],
            ),
            ("drivers/net/net_failover.ko.xz", &["depends=failover"]),
            ("net/core/failover.ko.zst", &["depends="]),
            ("drivers/net/ethernet/intel/e1000/e1000.ko", &["alias=pci:v00008086d0000100E*"]),
            ("drivers/net/ethernet/intel/igb/igb.ko", &["depends=i2c-algo-bit"]),
            ("drivers/i2c/algos/i2c-algo-bit.ko", &[]),
            ("drivers/scsi/sd_mod.ko", &["depends=scsi_mod,t10-pi"]),
            ("drivers/scsi/scsi_mod.ko", &["depends=scsi_common"]),
            ("block/t10-pi.ko", &["depends=crc-t10dif"]),
            ("lib/crc-t10dif.ko", &["softdep=pre: crct10dif"]),
            ("crypto/crct10dif_common.ko", &[]),
            ("crypto/crct10dif_generic.ko", &["alias=crct10dif", "depends=crct10dif_common"]),
            ("arch/x86/crypto/crct10dif-pclmul.ko", &["alias=crct10dif"]),
            ("drivers/char/ipmi/ipmi_si.ko", &["softdep=post: ipmi_devintf"]),
            ("drivers/char/ipmi/ipmi_devintf.ko", &["depends=missing_one"]),
        ],
        &["drivers/scsi/scsi_common.ko", "net/packet/af_packet.ko"],
    );
    Library::open(folder).unwrap()
}

fn check(first: &[&str], later: &[&str], modules: &[&str], except: &[&str], expected: &Expect) {
    let folder = tempfile::tempdir().unwrap();
    let patterns = |names: &[&str]| names.iter().map(|name| Pattern::new(name)).collect();
    let wanted = Wanted {
        first: patterns(first),
        later: patterns(later),
        modules: patterns(modules),
        except: patterns(except),
    };
    let selection = library(folder.path()).select(&wanted).unwrap();
    let told = format!(
        "{}---\n{}---\n{}---\n{}--- later: {}\n--- unknown: {}\n",
        tables::dependencies(&selection),
        tables::aliases(&selection),
        tables::soft_dependencies(&selection),
        tables::order(&selection.first),
        selection.later.join(", "),
        selection.unknown.join(", ")
    );
    expected.assert_eq(&told);
}

#[test]
fn what_a_module_needs_comes_along() {
    check(
        &[],
        &[],
        &["virtio_net"],
        &[],
        &expect![[r#"
            kernel/net/core/failover.ko.zst:
            kernel/drivers/net/net_failover.ko.zst: kernel/net/core/failover.ko.zst
            kernel/drivers/net/virtio_net.ko.zst: kernel/drivers/net/net_failover.ko.zst kernel/net/core/failover.ko.zst
            ---
            alias virtio:d00000001v* virtio_net
            ---
            ---
            --- later: 
            --- unknown: 
        "#]],
    );
}

#[test]
fn what_is_asked_for_by_its_work_is_found() {
    check(
        &["sd-mod", "af_packet"],
        &["t10-pi", "virtio_net"],
        &[],
        &[],
        &expect![[r#"
            kernel/lib/crc-t10dif.ko.zst:
            kernel/crypto/crct10dif_common.ko.zst:
            kernel/crypto/crct10dif_generic.ko.zst: kernel/crypto/crct10dif_common.ko.zst
            kernel/arch/x86/crypto/crct10dif-pclmul.ko.zst:
            kernel/net/core/failover.ko.zst:
            kernel/drivers/net/net_failover.ko.zst: kernel/net/core/failover.ko.zst
            kernel/drivers/scsi/scsi_mod.ko.zst:
            kernel/drivers/scsi/sd_mod.ko.zst: kernel/block/t10-pi.ko.zst kernel/lib/crc-t10dif.ko.zst kernel/drivers/scsi/scsi_mod.ko.zst
            kernel/block/t10-pi.ko.zst: kernel/lib/crc-t10dif.ko.zst
            kernel/drivers/net/virtio_net.ko.zst: kernel/drivers/net/net_failover.ko.zst kernel/net/core/failover.ko.zst
            ---
            alias crct10dif crct10dif_generic
            alias crct10dif crct10dif_pclmul
            alias virtio:d00000001v* virtio_net
            ---
            softdep crc_t10dif pre: crct10dif_generic crct10dif_pclmul
            ---
            scsi_mod
            crct10dif_common
            crct10dif_generic
            crct10dif_pclmul
            crc_t10dif
            t10_pi
            sd_mod
            --- later: failover, net_failover, virtio_net
            --- unknown: 
        "#]],
    );
}

#[test]
fn folders_and_exceptions() {
    check(
        &[],
        &[],
        &["drivers/net/ethernet/", "nonesuch*"],
        &["e1000"],
        &expect![[r#"
            kernel/drivers/i2c/algos/i2c-algo-bit.ko.zst:
            kernel/drivers/net/ethernet/intel/igb/igb.ko.zst: kernel/drivers/i2c/algos/i2c-algo-bit.ko.zst
            ---
            ---
            ---
            --- later: 
            --- unknown: nonesuch*
        "#]],
    );
}

#[test]
fn a_module_that_is_missing_is_told() {
    check(
        &["ipmi_si"],
        &[],
        &[],
        &[],
        &expect![[r#"
            kernel/drivers/char/ipmi/ipmi_devintf.ko.zst:
            kernel/drivers/char/ipmi/ipmi_si.ko.zst:
            ---
            ---
            softdep ipmi_si post: ipmi_devintf
            ---
            ipmi_si
            ipmi_devintf
            --- later: 
            --- unknown: missing_one (which ipmi_devintf needs)
        "#]],
    );
}

#[test]
fn a_circle_ends() {
    let folder = tempfile::tempdir().unwrap();
    fixtures::modules(
        folder.path(),
        &[
            ("a.ko", &["depends=b", "softdep=pre: c"]),
            ("b.ko", &["depends=a"]),
            ("c.ko", &["softdep=pre: a post: c"]),
        ],
        &[],
    );
    let wanted = Wanted { first: vec![Pattern::new("a")], ..Wanted::default() };
    let selection = Library::open(folder.path()).unwrap().select(&wanted).unwrap();
    assert_eq!(selection.first, ["b", "c", "a"]);
    assert_eq!(selection.all_needs("a"), ["b"]);
}

#[test]
fn the_version_is_the_one_of_the_modules() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    assert_eq!(library.version, "6.1.0-test");
    assert_eq!(library.architecture.name(), "x86_64");
}

#[test]
fn what_was_added_later_wins() {
    let folder = tempfile::tempdir().unwrap();
    fixtures::modules(folder.path(), &[("drivers/net/igb.ko", &["depends="])], &[]);
    fs::create_dir(folder.path().join("updates")).unwrap();
    fs::write(folder.path().join("updates/igb.ko"), fixtures::module(&["alias=newer"])).unwrap();
    let wanted = Wanted { modules: vec![Pattern::new("igb")], ..Wanted::default() };
    let selection = Library::open(folder.path()).unwrap().select(&wanted).unwrap();
    assert_eq!(selection.modules["igb"].path, "updates/igb.ko.zst");
}

#[test]
fn mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let told = Library::open(folder.path()).unwrap_err().to_string();
    assert!(told.contains("holds no kernel modules"), "{told}");
    fs::write(folder.path().join("a.ko"), "no module").unwrap();
    let told = Library::open(folder.path()).unwrap_err().to_string();
    assert!(told.ends_with("a.ko cannot be used"), "{told}");
    let told = Library::open(&folder.path().join("none")).unwrap_err().to_string();
    assert!(told.ends_with("none cannot be read"), "{told}");
}
