// SPDX-License-Identifier: Apache-2.0
//! iPXE scripts, and the configurations of PXELINUX and GRUB.
//!
//! Kernel parameters were validated when the plan was published (see [`crate::kernel_parameters`]): only
//! GRUB could interpret them, and they are quoted for it.

use std::fmt::Write as _;

use node_model::{BootPlan, BootSystem, Mac};

/// Number of attempts of a failing load, so that an overloaded server does not fail a boot.
const MAX_ATTEMPTS: u32 = 10;

/// The first script of an iPXE that was not started by our DHCP server: looks for a script of each NIC,
/// and boots the disk if there is none.
pub(crate) const IPXE_ROOT: &str = "#!ipxe
# Looks for the script of each NIC.
set n:int32 0
:nic
isset ${net${n}/mac} || goto local
ifopen net${n} ||
isset ${net${n}/ip} || dhcp net${n} ||
chain --autofree pxelinux.cfg/${net${n}/mac:hexhyp} && exit ||
inc n
iseq ${n} 8 || goto nic
:local
echo No script for any NIC of this machine; booting from disk
sanboot --no-describe --drive 0x80 || exit 1
";

/// The script of an enrolled machine without a plan.
pub(crate) const IPXE_LOCAL: &str = "#!ipxe
echo No boot plan for this machine; booting from disk
sanboot --no-describe --drive 0x80 || exit 1
";

/// The first configuration of GRUB: includes the one of the NIC that GRUB was loaded by.
pub(crate) const GRUB_ROOT: &str = "configfile /${net_default_mac}.conf
exit
";

/// The GRUB and PXELINUX configurations of a machine without a plan.
pub(crate) const GRUB_LOCAL: &str = "exit\n";
/// See [`GRUB_LOCAL`].
pub(crate) const PXELINUX_LOCAL: &str = "default local\nlabel local\n  localboot 0\n";

/// Returns the iPXE script of a plan. `files` is the URL of the plan's files.
pub(crate) fn ipxe(plan: &BootPlan, files: &str) -> String {
    let title = format!("echo Booting the {} by {}\n", plan.purpose, plan.method);
    match &plan.system {
        BootSystem::Kernel { parameters, .. } => {
            let parameters = parameters.join(" ");
            kernel_script(&title, files, &parameters, IPXE_POWER_OFF)
        }
        BootSystem::Iso { .. } => {
            format!("#!ipxe\n{title}sanboot --no-describe {files}/boot.iso || exit 1\n")
        }
    }
}

/// Ends the script of an enrolled machine whose boot files cannot be loaded.
const IPXE_POWER_OFF: &str =
    "echo Giving up; powering off, so that the boot server detects the failure
poweroff || reboot
";
/// Ends the script of an unknown machine whose boot files cannot be loaded.
pub(crate) const IPXE_EXIT: &str = "echo Giving up
exit 1
";

/// Returns the iPXE script that boots kernel and ramdisk from `files`; `on_failure` ends the script after
/// the last attempt.
pub(crate) fn kernel_script(
    title: &str,
    files: &str,
    parameters: &str,
    on_failure: &str,
) -> String {
    format!(
        "#!ipxe
{title}set tries:int32 0
:retry
imgfree
kernel {files}/kernel {parameters} BOOTIF=${{mac}} initrd=ramdisk || goto failed
initrd --name ramdisk {files}/ramdisk || goto failed
boot || goto failed
:failed
inc tries
iseq ${{tries}} {MAX_ATTEMPTS} && goto over ||
echo Loading failed; retrying
sleep 5
goto retry
:over
{on_failure}"
    )
}

/// Returns the PXELINUX configuration of a plan whose files are in the TFTP directory `files`.
pub(crate) fn pxelinux(plan: &BootPlan, files: &str) -> Option<String> {
    let BootSystem::Kernel { parameters, .. } = &plan.system else { return None };
    // IPAPPEND 2 adds BOOTIF with the MAC address of the boot NIC.
    Some(format!(
        "default ramdisk\nprompt 0\nlabel ramdisk\n  kernel /{files}/kernel\n  append \
         initrd=/{files}/ramdisk {}\n  ipappend 2\n",
        parameters.join(" ")
    ))
}

/// Returns the GRUB configuration of a plan whose files are in the TFTP directory `files`.
pub(crate) fn grub(plan: &BootPlan, files: &str, mac: &Mac) -> Option<String> {
    let BootSystem::Kernel { parameters, .. } = &plan.system else { return None };
    let mut line = String::new();
    for parameter in parameters {
        let _ = write!(line, " '{}'", parameter.replace('\'', "'\\''"));
    }
    Some(format!(
        "set timeout=0\nmenuentry ramdisk {{\n  linux /{files}/kernel{line} BOOTIF=01-{}\n  \
         initrd /{files}/ramdisk\n}}\n",
        hyphenated(mac)
    ))
}

/// Returns the MAC address with hyphens, as in file names of boot loaders.
pub(crate) fn hyphenated(mac: &Mac) -> String {
    mac.as_str().replace(':', "-")
}

/// Parses the MAC address in the name of a boot loader configuration: `01-52-54-00-aa-bb-01`, where 01 is
/// the hardware type Ethernet, the same without the type, or `52:54:00:aa:bb:01.conf`.
pub(crate) fn mac_from_file_name(name: &str) -> Option<Mac> {
    let name = name.strip_suffix(".conf").unwrap_or(name);
    let name = name.strip_prefix("01-").filter(|rest| rest.len() == 17).unwrap_or(name);
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use node_model::{BootImage, BootMethod, BootPurpose, JsonObject, NodeId, Timestamp};

    use super::*;

    fn image(source: &str) -> BootImage {
        BootImage { source: source.to_owned(), checksum: None, pull_secret: None }
    }

    fn plan(system: BootSystem) -> BootPlan {
        BootPlan {
            node_id: NodeId::random(),
            purpose: BootPurpose::DeployRamdisk,
            method: BootMethod::Ipxe,
            system,
            key: "k".to_owned(),
            config_drive: None,
            installer: None,
            created_at: Timestamp(0),
            expires_at: None,
        }
    }

    fn kernel() -> BootPlan {
        plan(BootSystem::Kernel {
            kernel: image("http://i/k"),
            ramdisk: image("http://i/r"),
            parameters: vec!["ipa-api-url=http://10.0.0.1:6385".to_owned(), "x='$y'".to_owned()],
            network_data: JsonObject::empty(),
        })
    }

    #[test]
    fn ipxe_script_loads_kernel_with_retries() {
        expect![[r#"
            #!ipxe
            echo Booting the deploy ramdisk by ipxe
            set tries:int32 0
            :retry
            imgfree
            kernel http://10.0.0.1:6180/k/kernel ipa-api-url=http://10.0.0.1:6385 x='$y' BOOTIF=${mac} initrd=ramdisk || goto failed
            initrd --name ramdisk http://10.0.0.1:6180/k/ramdisk || goto failed
            boot || goto failed
            :failed
            inc tries
            iseq ${tries} 10 && goto over ||
            echo Loading failed; retrying
            sleep 5
            goto retry
            :over
            echo Giving up; powering off, so that the boot server detects the failure
            poweroff || reboot
        "#]]
        .assert_eq(&ipxe(&kernel(), "http://10.0.0.1:6180/k"));
    }

    #[test]
    fn ipxe_script_boots_iso() {
        expect![[r#"
            #!ipxe
            echo Booting the deploy ramdisk by ipxe
            sanboot --no-describe http://h/k/boot.iso || exit 1
        "#]]
        .assert_eq(&ipxe(&plan(BootSystem::Iso { image: image("http://i/x") }), "http://h/k"));
    }

    #[test]
    fn grub_and_pxelinux_configurations_boot_kernel() {
        let mac = "52:54:00:aa:bb:01".parse().unwrap();
        expect![[r#"
            set timeout=0
            menuentry ramdisk {
              linux /k/kernel 'ipa-api-url=http://10.0.0.1:6385' 'x='\''$y'\''' BOOTIF=01-52-54-00-aa-bb-01
              initrd /k/ramdisk
            }
        "#]]
        .assert_eq(&grub(&kernel(), "k", &mac).unwrap());
        expect![[r#"
            default ramdisk
            prompt 0
            label ramdisk
              kernel /k/kernel
              append initrd=/k/ramdisk ipa-api-url=http://10.0.0.1:6385 x='$y'
              ipappend 2
        "#]]
        .assert_eq(&pxelinux(&kernel(), "k").unwrap());
    }
}
