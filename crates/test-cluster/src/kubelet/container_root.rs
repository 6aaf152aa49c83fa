// SPDX-License-Identifier: Apache-2.0
//! The script that builds the root folder of a container in its own mount namespace, and starts its
//! program there with the user and capabilities of its security context.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

/// Capabilities of containers, as in common container runtimes.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Makes a root folder from the system of this machine. `bind SOURCE TARGET [ro]` mounts more.
const PREPARE: &str = r#"set -e
bind() {
    if [ -d "$1" ]; then mkdir -p "$root$2"; else
        mkdir -p "$(dirname "$root$2")"; [ -e "$root$2" ] || : >"$root$2"
    fi
    mount --bind "$1" "$root$2"
    [ "${3:-}" != ro ] || mount -o remount,bind,ro "$root$2"
}
mkdir -p "$root"
mount -t tmpfs -o mode=755 root "$root"
for folder in bin sbin lib lib64; do
    if [ -L /$folder ]; then cp -P /$folder "$root/$folder"; else bind /$folder /$folder ro; fi
done
bind /usr /usr ro
mkdir -p "$root/etc" "$root/proc" "$root/sys" "$root/dev/shm" "$root/run" "$root/var/lib"
mkdir -m 1777 "$root/tmp" "$root/var/tmp"
cp /etc/nsswitch.conf /etc/ld.so.cache "$root/etc/"
printf '%s\n' root:x:0:0::/:/bin/sh server:x:999:999::/:/bin/sh unprivileged:x:65534:65534::/:/bin/sh >"$root/etc/passwd"
printf '%s\n' root:x:0: server:x:999: nogroup:x:65534: >"$root/etc/group"
: >"$root/etc/resolv.conf"
for folder in ssl alternatives; do [ ! -d /etc/$folder ] || bind /etc/$folder /etc/$folder ro; done
for device in null zero full random urandom; do bind /dev/$device /dev/$device; done
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
"#;

/// A folder or file in a container.
#[derive(Clone, Debug)]
pub(super) struct ContainerMount {
    pub(super) source: PathBuf,
    pub(super) target: String,
    pub(super) is_read_only: bool,
}

/// What a container runs.
pub(super) struct ContainerLaunch {
    pub(super) host_name: String,
    pub(super) mounts: Vec<ContainerMount>,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) command: Vec<String>,
    pub(super) working_folder: String,
    pub(super) identity: ContainerIdentity,
}

/// User, groups and capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerIdentity {
    user: i64,
    group: i64,
    groups: BTreeSet<i64>,
    /// `None` is all of them.
    capabilities: Option<BTreeSet<String>>,
    is_escalation_allowed: bool,
    is_root_read_only: bool,
}

impl ContainerIdentity {
    /// The security context of a container in its pod.
    pub(super) fn of(pod: &Pod, container: &Container) -> Self {
        let spec = pod.spec.clone().unwrap_or_default();
        let outer = spec.security_context.unwrap_or_default();
        let inner = container.security_context.clone().unwrap_or_default();
        let is_privileged = inner.privileged == Some(true);
        let changes = inner.capabilities.unwrap_or_default();
        let mut capabilities: BTreeSet<String> =
            DEFAULT_CAPABILITIES.iter().map(|&name| name.to_owned()).collect();
        for dropped in changes.drop.iter().flatten() {
            match dropped.as_str() {
                "ALL" => capabilities.clear(),
                name => drop(capabilities.remove(name)),
            }
        }
        capabilities.extend(changes.add.into_iter().flatten());
        let groups = outer.supplemental_groups.into_iter().flatten().chain(outer.fs_group);
        Self {
            user: inner.run_as_user.or(outer.run_as_user).unwrap_or(0),
            group: inner.run_as_group.or(outer.run_as_group).unwrap_or(0),
            groups: groups.collect(),
            capabilities: (!is_privileged).then_some(capabilities),
            is_escalation_allowed: inner.allow_privilege_escalation.unwrap_or(true),
            is_root_read_only: inner.read_only_root_filesystem == Some(true),
        }
    }

    /// `setpriv` with its options.
    pub(super) fn set_privileges(&self) -> Vec<String> {
        let mut command = vec!["setpriv".to_owned()];
        command.extend(["--reuid".to_owned(), self.user.to_string()]);
        command.extend(["--regid".to_owned(), self.group.to_string()]);
        if self.groups.is_empty() {
            command.push("--clear-groups".to_owned());
        } else {
            let groups: Vec<String> = self.groups.iter().map(i64::to_string).collect();
            command.extend(["--groups".to_owned(), groups.join(",")]);
        }
        if let Some(capabilities) = &self.capabilities {
            let mut bounds = "-all".to_owned();
            for name in capabilities {
                let _infallible = write!(bounds, ",+{}", name.to_lowercase());
            }
            command.extend(["--bounding-set".to_owned(), bounds]);
        }
        command.extend(["--inh-caps", "-all"].map(str::to_owned));
        if !self.is_escalation_allowed {
            command.push("--no-new-privs".to_owned());
        }
        command.push("--".to_owned());
        command
    }
}

impl ContainerLaunch {
    /// The script, with its root folder at `root`. It removes the file `marker` at its end.
    pub(super) fn script(&self, root: &Path, marker: &Path) -> String {
        let mut script = format!("root={}\n{PREPARE}", quote(&root.to_string_lossy()));
        let mut mounts: Vec<&ContainerMount> = self.mounts.iter().collect();
        // A folder before what is mounted in it.
        mounts.sort_by_key(|mount| mount.target.len());
        for mount in mounts {
            let access = if mount.is_read_only { "ro" } else { "" };
            let source = quote(&mount.source.to_string_lossy());
            script.push_str(&format!("bind {source} {} {access}\n", quote(&mount.target)));
        }
        if self.identity.is_root_read_only {
            script.push_str("mount -o remount,ro \"$root\"\n");
        }
        script.push_str(&format!("hostname {}\n", quote(&self.host_name)));
        script.push_str(&format!("rm {}\n", quote(&marker.to_string_lossy())));
        script.push_str("exec chroot \"$root\" ");
        script.push_str(
            &self
                .inside(&self.command)
                .iter()
                .map(|word| quote(word))
                .collect::<Vec<_>>()
                .join(" "),
        );
        script.push('\n');
        script
    }

    /// A command with the environment and the privileges of the container.
    pub(super) fn inside(&self, command: &[String]) -> Vec<String> {
        let mut words = vec!["env".to_owned(), "-i".to_owned()];
        words.extend(["-C".to_owned(), self.working_folder.clone()]);
        words.extend(self.variables.iter().map(|(name, value)| format!("{name}={value}")));
        words.extend(self.identity.set_privileges());
        words.extend_from_slice(command);
        words
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn privileges_follow_the_security_context() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {},
            "spec": {"securityContext": {"fsGroup": 994, "runAsUser": 5}, "containers": []},
        }))
        .expect("a pod");
        let options = |context: serde_json::Value| {
            let container = json!({"name": "c", "securityContext": context});
            let container = serde_json::from_value(container).expect("a container");
            ContainerIdentity::of(&pod, &container).set_privileges().join(" ")
        };
        assert_eq!(
            options(json!({
                "runAsUser": 0, "runAsGroup": 994, "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
            })),
            "setpriv --reuid 0 --regid 994 --groups 994 --bounding-set -all,+net_admin \
             --inh-caps -all --no-new-privs --"
        );
        assert_eq!(
            options(json!({"privileged": true})),
            "setpriv --reuid 5 --regid 0 --groups 994 --inh-caps -all --"
        );
        assert!(options(json!({})).contains("+net_raw"));
    }

    #[test]
    fn words_are_quoted() {
        assert_eq!(quote("it's $x"), r"'it'\''s $x'");
    }
}
