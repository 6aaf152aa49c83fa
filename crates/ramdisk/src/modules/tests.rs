// SPDX-License-Identifier: Apache-2.0
//! Tests of module selection and of the generated tables.

use expect_test::{Expect, expect};

use super::*;
use crate::{fixtures, tables};

fn kernel_modules(folder: &Path) -> KernelModules {
    fixtures::write_modules(
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
    KernelModules::open(folder).unwrap()
}

fn check_selection(
    first: &[&str],
    later: &[&str],
    modules: &[&str],
    except: &[&str],
    expected: &Expect,
) {
    let folder = tempfile::tempdir().unwrap();
    let patterns = |names: &[&str]| names.iter().map(|name| ModulePattern::new(name)).collect();
    let request = ModuleRequest {
        load_first: patterns(first),
        load_later: patterns(later),
        modules: patterns(modules),
        except: patterns(except),
    };
    let selection = kernel_modules(folder.path()).select(&request).unwrap();
    let report = format!(
        "{}---\n{}---\n{}---\n{}--- later: {}\n--- unknown: {}\n",
        tables::dependencies(&selection),
        tables::aliases(&selection),
        tables::soft_dependencies(&selection),
        tables::order(&selection.load_first),
        selection.load_later.join(", "),
        selection.unknown.join(", ")
    );
    expected.assert_eq(&report);
}

#[test]
fn includes_dependencies() {
    check_selection(
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
fn resolves_soft_dependencies_by_alias() {
    check_selection(
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
fn selects_directories_without_exceptions() {
    check_selection(
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
fn reports_unknown_modules() {
    check_selection(
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
fn dependency_cycles_terminate() {
    let folder = tempfile::tempdir().unwrap();
    fixtures::write_modules(
        folder.path(),
        &[
            ("a.ko", &["depends=b", "softdep=pre: c"]),
            ("b.ko", &["depends=a"]),
            ("c.ko", &["softdep=pre: a post: c"]),
        ],
        &[],
    );
    let request =
        ModuleRequest { load_first: vec![ModulePattern::new("a")], ..ModuleRequest::default() };
    let selection = KernelModules::open(folder.path()).unwrap().select(&request).unwrap();
    assert_eq!(selection.load_first, ["b", "c", "a"]);
    assert_eq!(selection.dependencies_in_load_order("a"), ["b"]);
}

#[test]
fn reads_version_from_vermagic() {
    let folder = tempfile::tempdir().unwrap();
    let library = kernel_modules(folder.path());
    assert_eq!(library.version, "6.1.0-test");
    assert_eq!(library.architecture.name(), "x86_64");
}

#[test]
fn updates_directory_takes_precedence() {
    let folder = tempfile::tempdir().unwrap();
    fixtures::write_modules(folder.path(), &[("drivers/net/igb.ko", &["depends="])], &[]);
    fs::create_dir(folder.path().join("updates")).unwrap();
    fs::write(folder.path().join("updates/igb.ko"), fixtures::kernel_module(&["alias=newer"]))
        .unwrap();
    let request =
        ModuleRequest { modules: vec![ModulePattern::new("igb")], ..ModuleRequest::default() };
    let selection = KernelModules::open(folder.path()).unwrap().select(&request).unwrap();
    assert_eq!(selection.modules["igb"].path, "updates/igb.ko.zst");
}

#[test]
fn reports_unreadable_modules() {
    let folder = tempfile::tempdir().unwrap();
    let open = |folder: &Path| KernelModules::open(folder).unwrap_err().to_string();
    let error = open(folder.path());
    assert!(error.contains("contains no kernel modules"), "{error}");
    fs::write(folder.path().join("a.ko"), "no module").unwrap();
    let error = open(folder.path());
    assert!(error.starts_with("invalid module") && error.ends_with("a.ko"), "{error}");
    let error = open(&folder.path().join("none"));
    assert!(error.starts_with("cannot read") && error.ends_with("none"), "{error}");
}
