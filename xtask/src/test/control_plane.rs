// SPDX-License-Identifier: Apache-2.0
//! The Kubernetes control plane of the tests and Metal3's baremetal-operator, built from Go modules.
//!
//! The control plane takes 13 minutes of processor time from nothing, and the operator at most 4 more,
//! so they are built beside other work at a low priority.

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};

use super::go_program::{GoProgram, directive};
use crate::interrupt::Interrupt;

/// The module whose version is the version of Kubernetes.
const KUBERNETES: &str = "k8s.io/kubernetes";

const CONTROL_PLANE: GoProgram = GoProgram {
    name: "test-control-plane",
    source: "xtask/kube",
    source_files: &["go.mod", "go.sum", "main.go"],
    package: ".",
    link_flags,
};

const METAL3_OPERATOR: GoProgram = GoProgram {
    name: "metal3-operator",
    source: "xtask/metal3-operator",
    source_files: &["go.mod", "go.sum"],
    package: "github.com/metal3-io/baremetal-operator",
    link_flags: |_| Ok("-s -w".to_owned()),
};

/// The programs.
#[derive(Clone, Debug)]
pub(crate) struct KubePrograms {
    control_plane: PathBuf,
    metal3_operator: PathBuf,
}

impl KubePrograms {
    /// Builds the programs unless they are up to date.
    pub(super) fn ensure(root: &Path, interrupt: &Interrupt) -> Result<Self> {
        Ok(Self {
            control_plane: CONTROL_PLANE.ensure(root, interrupt)?,
            metal3_operator: METAL3_OPERATOR.ensure(root, interrupt)?,
        })
    }

    /// The variables that point the tests at the programs.
    pub(super) fn variables(&self) -> [(&'static str, &Path); 2] {
        [
            ("FERRITE_TEST_CONTROL_PLANE", &self.control_plane),
            ("FERRITE_TEST_METAL3_OPERATOR", &self.metal3_operator),
        ]
    }
}

/// Builds only the control plane, unless it is up to date, and returns its program.
pub(crate) fn ensure_control_plane(root: &Path, interrupt: &Interrupt) -> Result<PathBuf> {
    CONTROL_PLANE.ensure(root, interrupt)
}

/// Builds in a thread, beside other work.
pub(crate) struct KubeProgramsBuild(thread::JoinHandle<Result<KubePrograms>>);

impl KubeProgramsBuild {
    /// Returns at once.
    pub(crate) fn start(root: &Path, interrupt: &Interrupt) -> Self {
        let (root, interrupt) = (root.to_owned(), interrupt.clone());
        Self(thread::spawn(move || KubePrograms::ensure(&root, &interrupt)))
    }

    /// Waits for the thread and returns the programs.
    pub(crate) fn wait(self) -> Result<KubePrograms> {
        match self.0.join() {
            Ok(result) => result,
            Err(_) => bail!("the build of the control plane panicked"),
        }
    }
}

/// The version that `kubectl version` and the API server show.
fn link_flags(module_file: &str) -> Result<String> {
    let version = directive(module_file, KUBERNETES).context("go.mod has no Kubernetes")?;
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let component = "k8s.io/component-base/version";
    Ok(format!(
        "-s -w -X {component}.gitVersion={version} -X {component}.gitMajor={major} \
         -X {component}.gitMinor={minor} -X k8s.io/client-go/pkg/version.gitVersion={version}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_module() {
        let flags = link_flags("require k8s.io/x v1\n\tk8s.io/kubernetes v1.36.4\n").unwrap();
        assert!(flags.contains("gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"));
        assert!(link_flags("go 1.26.0\n").is_err());
    }
}
