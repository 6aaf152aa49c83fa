// SPDX-License-Identifier: Apache-2.0
//! How lists of drivers name modules: by name (`virtio_net`, `raid*`), by folder
//! (`drivers/net/ethernet/intel/`) or by both (`drivers/net/ethernet/intel/ixgb*`).

/// Names one or more modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self(same_letters(text))
    }

    /// Whether a module is meant, by its name and its path below `kernel/`.
    pub(crate) fn matches(&self, name: &str, path: &str) -> bool {
        let pattern = &self.0;
        if let Some(folder) = pattern.strip_suffix('/') {
            let path = same_letters(path);
            path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        } else if pattern.contains('/') {
            matches(pattern.as_bytes(), same_letters(path).as_bytes())
        } else {
            matches(pattern.as_bytes(), same_letters(name).as_bytes())
        }
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The kernel takes `-` and `_` in names of modules for the same.
pub(crate) fn same_letters(name: &str) -> String {
    name.replace('-', "_")
}

/// Whether the text is as the pattern says, in which `*` stands for any letters.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // Where to go on if the last star has to stand for one letter more.
    let mut again = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                again = Some((at, from));
                at += 1;
            }
            Some(letter) if *letter == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((star, start)) = again else { return false };
                again = Some((star, start + 1));
                at = star + 1;
                from = start + 1;
            }
        }
    }
    pattern[at..].iter().all(|&letter| letter == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_name_modules() {
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
            assert_eq!(Pattern::new(pattern).matches("ixgbe", path), expected, "{pattern}");
        }
        assert!(Pattern::new("nvme-core").matches("nvme_core", "drivers/nvme/host/nvme-core"));
        assert!(Pattern::new("usb-storage").matches("usb_storage", "x/usb-storage"));
    }
}
