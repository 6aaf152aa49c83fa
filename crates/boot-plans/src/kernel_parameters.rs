// SPDX-License-Identifier: Apache-2.0
//! Kernel parameters of ramdisks and ramdisk instances.
//!
//! They become part of iPXE, PXELINUX and GRUB scripts, so values that a boot loader would interpret are
//! rejected.

/// Placeholder for the configured parameters in those of a node.
const DEFAULT_PLACEHOLDER: &str = "%default%";

/// Parameters that common ramdisks need: those built from CentOS do not start with SELinux.
const RAMDISK_PARAMETERS: &str = "selinux=0 troubleshoot=0 text";

/// Maximum length of the command line that Linux accepts on x86, without the terminating zero.
const MAX_COMMAND_LINE: usize = 2047;

/// Why kernel parameters are rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KernelParameterError {
    /// A character that is not allowed in a script.
    #[error("they contain a control or non-ASCII character; use plain ASCII on one line")]
    Character,
    /// A word that a boot loader would interpret.
    #[error("{0:?} has a special meaning for boot loaders and cannot be a kernel parameter")]
    LoaderSyntax(String),
    /// The command line is too long.
    #[error("they have {0} bytes in total, but Linux accepts {MAX_COMMAND_LINE}; shorten them")]
    TooLong(usize),
}

/// Splits a command line into parameters.
pub(crate) fn split(line: &str) -> Result<Vec<String>, KernelParameterError> {
    if line.chars().any(|c| !(c == ' ' || c == '\t' || c.is_ascii_graphic())) {
        return Err(KernelParameterError::Character);
    }
    line.split_ascii_whitespace()
        .map(|word| {
            let is_script = word.contains("${") || word == "&&" || word == "||";
            if is_script {
                Err(KernelParameterError::LoaderSyntax(word.to_owned()))
            } else {
                Ok(word.to_owned())
            }
        })
        .collect()
}

/// Returns the parameters of a ramdisk, without those that depend on the boot method.
pub(crate) fn ramdisk_parameters(
    configured: &str,
    node_params: Option<&str>,
) -> Result<Vec<String>, KernelParameterError> {
    let mut parameters = split(RAMDISK_PARAMETERS)?;
    parameters.extend(instance_parameters(configured, node_params)?);
    Ok(parameters)
}

/// Returns the parameters of a ramdisk instance or an installer.
pub(crate) fn instance_parameters(
    configured: &str,
    node_params: Option<&str>,
) -> Result<Vec<String>, KernelParameterError> {
    match node_params {
        None => split(configured),
        Some(line) => split(&line.replace(DEFAULT_PLACEHOLDER, configured)),
    }
}

/// Joins parameters to a command line. Fails if it is too long.
pub(crate) fn command_line(parameters: &[String]) -> Result<String, KernelParameterError> {
    let line = parameters.join(" ");
    if line.len() > MAX_COMMAND_LINE {
        Err(KernelParameterError::TooLong(line.len()))
    } else {
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_parameters_replace_or_extend_configured_ones() {
        let joined = |node_params| {
            command_line(&ramdisk_parameters("nofb vga=normal", node_params).unwrap()).unwrap()
        };
        assert_eq!(joined(None), "selinux=0 troubleshoot=0 text nofb vga=normal");
        assert_eq!(joined(Some("quiet")), "selinux=0 troubleshoot=0 text quiet");
        assert_eq!(
            joined(Some("%default% quiet")),
            "selinux=0 troubleshoot=0 text nofb vga=normal quiet"
        );
    }

    #[test]
    fn rejects_boot_loader_syntax() {
        for rejected in
            ["a\nchain http://evil", "a ${net0/mac}", "a || shell", "a && shell", "ümlaut"]
        {
            assert!(split(rejected).is_err(), "{rejected:?}");
        }
        assert_eq!(split(" a=b\t c='d' ").unwrap(), ["a=b", "c='d'"]);
    }

    #[test]
    fn rejects_too_long_command_line() {
        let long = vec!["x".repeat(MAX_COMMAND_LINE + 1)];
        assert_eq!(command_line(&long), Err(KernelParameterError::TooLong(MAX_COMMAND_LINE + 1)));
    }
}
