// SPDX-License-Identifier: Apache-2.0
//! The texts that boot loaders run: iPXE scripts, and the configurations of PXELINUX and GRUB.
//!
//! Parameters were checked when the plan was made (see [`crate::parameters`]): none of them means
//! anything to a boot loader but GRUB, for which they are quoted.

use std::fmt::Write as _;

use node_model::{BootPlan, BootSystem, Mac};

/// Loads that fail are tried so many times, so that a busy server does not cost a machine its boot.
const TRIES: u32 = 10;

/// What every iPXE that does not come by our DHCP starts with: looks for a script for each card, and
/// boots the disk if there is none.
pub(crate) const ROOT: &str = "#!ipxe
# Which of this machine's cards does the boot server know?
set n:int32 0
:card
isset ${net${n}/mac} || goto local
ifopen net${n} ||
isset ${net${n}/ip} || dhcp net${n} ||
chain --autofree pxelinux.cfg/${net${n}/mac:hexhyp} && exit ||
inc n
iseq ${n} 8 || goto card
:local
echo No script for any card of this machine; booting from disk
sanboot --no-describe --drive 0x80 || exit 1
";

/// What a known machine without a plan runs.
pub(crate) const LOCAL: &str = "#!ipxe
echo This machine should boot from its disk
sanboot --no-describe --drive 0x80 || exit 1
";

/// What every GRUB starts with: the configuration of the card it was loaded by.
pub(crate) const GRUB_ROOT: &str = "configfile /${net_default_mac}.conf
exit
";

/// What GRUB and PXELINUX do for a machine without a plan.
pub(crate) const GRUB_LOCAL: &str = "exit\n";
/// See [`GRUB_LOCAL`].
pub(crate) const PXELINUX_LOCAL: &str = "default local\nlabel local\n  localboot 0\n";

/// The iPXE script of a plan. `files` is the URL of the plan's files.
pub(crate) fn ipxe(plan: &BootPlan, files: &str) -> String {
    let title = format!("echo Booting the {} by {}\n", plan.purpose, plan.way);
    match &plan.system {
        BootSystem::Kernel { parameters, .. } => {
            let parameters = parameters.join(" ");
            kernel_script(&title, files, &parameters, OFF)
        }
        BootSystem::Iso { .. } => {
            format!("#!ipxe\n{title}sanboot --no-describe {files}/boot.iso || exit 1\n")
        }
    }
}

/// What a machine of ours does when it cannot load what it should.
const OFF: &str = "echo Giving up; the machine is switched off so that the boot server can see it
poweroff || reboot
";
/// What a machine does that is not ours: nothing.
pub(crate) const GO_ON: &str = "echo Giving up
exit 1
";

/// The iPXE script that boots a kernel and a ramdisk from `files`, and does `otherwise` if it cannot.
pub(crate) fn kernel_script(title: &str, files: &str, parameters: &str, otherwise: &str) -> String {
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
iseq ${{tries}} {TRIES} && goto over ||
echo That did not work; trying again
sleep 5
goto retry
:over
{otherwise}"
    )
}

/// PXELINUX's configuration of a plan whose files are in the folder `files` of the TFTP server.
pub(crate) fn pxelinux(plan: &BootPlan, files: &str) -> Option<String> {
    let BootSystem::Kernel { parameters, .. } = &plan.system else { return None };
    // IPAPPEND 2 adds the card the machine was booted by.
    Some(format!(
        "default ramdisk\nprompt 0\nlabel ramdisk\n  kernel /{files}/kernel\n  append \
         initrd=/{files}/ramdisk {}\n  ipappend 2\n",
        parameters.join(" ")
    ))
}

/// GRUB's configuration of the same.
pub(crate) fn grub(plan: &BootPlan, files: &str, card: &Mac) -> Option<String> {
    let BootSystem::Kernel { parameters, .. } = &plan.system else { return None };
    let mut line = String::new();
    for parameter in parameters {
        let _ = write!(line, " '{}'", parameter.replace('\'', "'\\''"));
    }
    Some(format!(
        "set timeout=0\nmenuentry ramdisk {{\n  linux /{files}/kernel{line} BOOTIF=01-{}\n  \
         initrd /{files}/ramdisk\n}}\n",
        hyphenated(card)
    ))
}

/// A card's address as file names of boot loaders have it.
pub(crate) fn hyphenated(card: &Mac) -> String {
    card.as_str().replace(':', "-")
}

/// The card in the name of a boot loader's configuration: `01-52-54-00-aa-bb-01`, where 01 stands for
/// Ethernet, the same without it, or `52:54:00:aa:bb:01.conf`.
pub(crate) fn card_named(name: &str) -> Option<Mac> {
    let name = name.strip_suffix(".conf").unwrap_or(name);
    let name = name.strip_prefix("01-").filter(|rest| rest.len() == 17).unwrap_or(name);
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use node_model::{BootImage, BootPurpose, BootWay, JsonObject, NodeId, Timestamp};

    use super::*;

    fn image(source: &str) -> BootImage {
        BootImage { source: source.to_owned(), checksum: None, pull_secret: None }
    }

    fn plan(system: BootSystem) -> BootPlan {
        BootPlan {
            node_id: NodeId::random(),
            purpose: BootPurpose::DeployRamdisk,
            way: BootWay::Ipxe,
            system,
            key: "k".to_owned(),
            config_drive: None,
            installer: None,
            made_at: Timestamp(0),
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
    fn ipxe_loads_a_kernel_and_tries_again() {
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
            echo That did not work; trying again
            sleep 5
            goto retry
            :over
            echo Giving up; the machine is switched off so that the boot server can see it
            poweroff || reboot
        "#]]
        .assert_eq(&ipxe(&kernel(), "http://10.0.0.1:6180/k"));
    }

    #[test]
    fn ipxe_boots_a_cd() {
        expect![[r#"
            #!ipxe
            echo Booting the deploy ramdisk by ipxe
            sanboot --no-describe http://h/k/boot.iso || exit 1
        "#]]
        .assert_eq(&ipxe(&plan(BootSystem::Iso { image: image("http://i/x") }), "http://h/k"));
    }

    #[test]
    fn boot_loaders_get_the_same_in_their_languages() {
        let card = "52:54:00:aa:bb:01".parse().unwrap();
        expect![[r#"
            set timeout=0
            menuentry ramdisk {
              linux /k/kernel 'ipa-api-url=http://10.0.0.1:6385' 'x='\''$y'\''' BOOTIF=01-52-54-00-aa-bb-01
              initrd /k/ramdisk
            }
        "#]]
        .assert_eq(&grub(&kernel(), "k", &card).unwrap());
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
