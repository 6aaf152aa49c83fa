// SPDX-License-Identifier: Apache-2.0
//! Patterns for kernel modules: by name (`virtio_net`, `raid*`), by directory
//! (`drivers/net/ethernet/intel/`) or by path (`drivers/net/ethernet/intel/ixgb*`).

/// Matches one or more modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModulePattern(String);

impl ModulePattern {
    pub(crate) fn new(text: &str) -> Self {
        Self(normalize_module_name(text))
    }

    /// Matches a module by its name and its path below `kernel/`.
    pub(crate) fn matches(&self, name: &str, path: &str) -> bool {
        let pattern = &self.0;
        if let Some(folder) = pattern.strip_suffix('/') {
            let path = normalize_module_name(path);
            path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        } else if pattern.contains('/') {
            matches(pattern.as_bytes(), normalize_module_name(path).as_bytes())
        } else {
            matches(pattern.as_bytes(), normalize_module_name(name).as_bytes())
        }
    }
}

impl std::fmt::Display for ModulePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Replaces `-` by `_`, which the kernel treats as the same in module names.
pub(crate) fn normalize_module_name(name: &str) -> String {
    name.replace('-', "_")
}

/// Matches a glob pattern in which `*` stands for any characters.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to resume if the last `*` has to match one more character.
    let mut backtrack = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                backtrack = Some((at, from));
                at += 1;
            }
            Some(character) if *character == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star, start)) = backtrack else { return false };
                backtrack = Some((star, start + 1));
                at = star + 1;
                from = start + 1;
            }
        }
    }
    pattern[at..].iter().all(|&character| character == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_names_and_directories() {
        let path = "drivers/net/ethernet/intel/ixgbe/ixgbe";
        for (pattern, expected) in [
            ("ixgbe", true),
            ("ixgb", false),
            ("ix*e", true),
            ("*", true),
            ("ix*ee", false),
            ("drivers/net/ethernet/", true),
            ("drivers/net/eth/", false),
            ("drivers/net/ethernet/*/ixgbe", true),
            ("drivers/net/ethernet/*/ixgbevf", false),
        ] {
            assert_eq!(ModulePattern::new(pattern).matches("ixgbe", path), expected, "{pattern}");
        }
        assert!(
            ModulePattern::new("nvme-core").matches("nvme_core", "drivers/nvme/host/nvme-core")
        );
        assert!(ModulePattern::new("usb-storage").matches("usb_storage", "x/usb-storage"));
    }
}
