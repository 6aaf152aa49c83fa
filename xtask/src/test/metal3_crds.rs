// SPDX-License-Identifier: Apache-2.0
//! The CRDs of Metal3's baremetal-operator, which ours are compared with, from its Go module.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::go_toolchain;
use crate::shell;

const MODULE: &str = "github.com/metal3-io/baremetal-operator@v0.13.2";
/// Hash of the content, in the form of `go.sum`.
const HASH: &str = "h1:XSkyBv4l1OvCL66b7T0FEUaGeS0zOjQKhot9V8zeZQc=";
/// The folder with the CRDs in the module.
const CRDS: &str = "config/base/crds/bases";

/// Downloads the module unless it is in the cache below `target/`, and returns the folder with the
/// CRDs.
pub(super) fn ensure(root: &Path) -> Result<PathBuf> {
    let mut download = go_toolchain::command(root, Path::new("go"))?;
    download.args(["mod", "download", "-json", MODULE]);
    // The hash is compared here, so the checksum database is not needed.
    download.env("GOSUMDB", "off");
    let output = shell::output_of(&mut download)
        .with_context(|| format!("cannot download the Go module {MODULE}"))?;
    module_folder(&output).map(|folder| folder.join(CRDS))
}

/// Reads the folder from the output of `go mod download -json`, and checks the hash.
fn module_folder(output: &str) -> Result<PathBuf> {
    let module: Value = serde_json::from_str(output).context("go mod download printed no JSON")?;
    let field = |name: &str| module[name].as_str().unwrap_or_default();
    if field("Sum") != HASH {
        bail!("{MODULE} has the hash {:?} instead of {HASH}", field("Sum"));
    }
    match field("Dir") {
        "" => bail!("go mod download printed no folder for {MODULE}"),
        folder => Ok(folder.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_content_is_used() {
        let output = |hash: &str| format!(r#"{{"Dir": "/x", "Sum": "{hash}"}}"#);
        assert_eq!(module_folder(&output(HASH)).unwrap(), Path::new("/x"));
        assert!(module_folder(&output("h1:other")).is_err());
        assert!(module_folder(&format!(r#"{{"Sum": "{HASH}"}}"#)).is_err());
        assert!(module_folder("x").is_err());
    }
}
