// SPDX-License-Identifier: Apache-2.0
//! Kernel parameters: what the ramdisk is told, and what may stand in them.
//!
//! They end up in scripts of iPXE, PXELINUX and GRUB, so a value that one of these would take for
//! its own language is refused where it comes from.

/// What stands for the configured parameters in those of a node.
const CONFIGURED: &str = "%default%";

/// What the usual ramdisks want: those built of CentOS do not come up under SELinux.
const FOR_RAMDISKS: &str = "selinux=0 troubleshoot=0 text";

/// The longest line that Linux takes on x86, without the zero at its end.
const LONGEST: usize = 2047;

/// Why parameters cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParameterError {
    /// A character that cannot stand in a script.
    #[error("there is a control or non-ASCII character in them; use plain ASCII on one line")]
    Character,
    /// Something a boot loader would take for its own.
    #[error("{0:?} means something to boot loaders and cannot be a kernel parameter")]
    Script(String),
    /// Too many.
    #[error("together they have {0} bytes and Linux takes {LONGEST}; shorten them")]
    TooLong(usize),
}

/// Takes a line apart.
pub(crate) fn split(line: &str) -> Result<Vec<String>, ParameterError> {
    if line.chars().any(|letter| !(letter == ' ' || letter == '\t' || letter.is_ascii_graphic())) {
        return Err(ParameterError::Character);
    }
    line.split_ascii_whitespace()
        .map(|word| {
            let is_script = word.contains("${") || word == "&&" || word == "||";
            if is_script {
                Err(ParameterError::Script(word.to_owned()))
            } else {
                Ok(word.to_owned())
            }
        })
        .collect()
}

/// The parameters of a ramdisk, before those that depend on how it is booted.
pub(crate) fn of_ramdisk(
    configured: &str,
    of_node: Option<&str>,
) -> Result<Vec<String>, ParameterError> {
    let mut parameters = split(FOR_RAMDISKS)?;
    parameters.extend(of_instance(configured, of_node)?);
    Ok(parameters)
}

/// The parameters of an instance that lives in memory.
pub(crate) fn of_instance(
    configured: &str,
    of_node: Option<&str>,
) -> Result<Vec<String>, ParameterError> {
    match of_node {
        None => split(configured),
        Some(line) => split(&line.replace(CONFIGURED, configured)),
    }
}

/// The whole line.
pub(crate) fn line(parameters: &[String]) -> Result<String, ParameterError> {
    let line = parameters.join(" ");
    if line.len() > LONGEST { Err(ParameterError::TooLong(line.len())) } else { Ok(line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_replaces_the_configured_parameters_or_adds_to_them() {
        let of = |of_node| line(&of_ramdisk("nofb vga=normal", of_node).unwrap()).unwrap();
        assert_eq!(of(None), "selinux=0 troubleshoot=0 text nofb vga=normal");
        assert_eq!(of(Some("quiet")), "selinux=0 troubleshoot=0 text quiet");
        assert_eq!(
            of(Some("%default% quiet")),
            "selinux=0 troubleshoot=0 text nofb vga=normal quiet"
        );
    }

    #[test]
    fn what_boot_loaders_would_run_is_refused() {
        for bad in ["a\nchain http://evil", "a ${net0/mac}", "a || shell", "a && shell", "ümlaut"]
        {
            assert!(split(bad).is_err(), "{bad:?}");
        }
        assert_eq!(split(" a=b\t c='d' ").unwrap(), ["a=b", "c='d'"]);
    }

    #[test]
    fn a_line_that_the_kernel_would_cut_is_refused() {
        let long = vec!["x".repeat(LONGEST + 1)];
        assert_eq!(line(&long), Err(ParameterError::TooLong(LONGEST + 1)));
    }
}
