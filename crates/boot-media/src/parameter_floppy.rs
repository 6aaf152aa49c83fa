// SPDX-License-Identifier: Apache-2.0
//! The FAT volume with the parameters of a prebuilt ramdisk ISO: `parameters.txt` on a volume labelled
//! `ir-vfd-dev`, as ironic-python-agent expects it.

use crate::fat::{self, FatError};
use crate::{Content, FileTree, MediaPathError};

/// The label that the agent searches for; lower case, as mkfs.vfat writes it for Ironic.
pub const LABEL: &str = "ir-vfd-dev";
/// The file in the root of the volume.
pub const PARAMETERS_PATH: &str = "parameters.txt";
/// A floppy of 1440 KiB, which every BMC can emulate.
pub const SIZE: u64 = 1440 * 1024;

/// Why the volume cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum FloppyError {
    /// A name or a value contains a line break, or a name an equals sign.
    #[error("the parameter {name:?} cannot be written on one line as name=value")]
    Parameter {
        /// The parameter's name.
        name: String,
    },
    /// The path of an additional file is that of the parameters, or invalid on FAT.
    #[error("a file cannot be stored on the parameter floppy")]
    Path(#[from] MediaPathError),
    /// The files do not fit.
    #[error("cannot build the parameter floppy")]
    Volume(#[from] FatError),
}

/// Builds the volume with the parameters in the given order, and additional files.
pub fn layout(parameters: &[(&str, &str)], mut files: FileTree) -> Result<Content, FloppyError> {
    let mut text = String::new();
    for (name, value) in parameters {
        let broken = |text: &str| text.chars().any(char::is_control);
        if name.is_empty() || name.contains('=') || broken(name) || broken(value) {
            return Err(FloppyError::Parameter { name: (*name).to_owned() });
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
    files.insert(PARAMETERS_PATH, Content::from(text.into_bytes()))?;
    Ok(fat::layout(LABEL, &files, fat::FatSize::Exact(SIZE))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floppy_contains_parameters() {
        let parameters = [("ipa-api-url", "http://[::1]:6385"), ("ipa-agent-token", "t=o")];
        let volume = layout(&parameters, FileTree::new()).unwrap();
        let mut bytes = Vec::new();
        volume.write_to(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, SIZE);
        assert_eq!(&bytes[43..54], b"ir-vfd-dev ");
        let text = b"ipa-api-url=http://[::1]:6385\nipa-agent-token=t=o\0";
        assert!(bytes.windows(text.len()).any(|window| window == text));
    }

    #[test]
    fn rejects_parameters_that_cannot_be_parsed_back() {
        for (name, value) in [("a=b", "c"), ("a", "b\nc=d"), ("", "b"), ("a\n", "b")] {
            let error = layout(&[(name, value)], FileTree::new()).unwrap_err();
            assert!(matches!(error, FloppyError::Parameter { .. }), "{name:?} {value:?}: {error}");
        }
    }
}
