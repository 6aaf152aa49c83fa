// SPDX-License-Identifier: Apache-2.0
//! syslinux and extlinux menus.

use std::path::Path;

use super::{Choice, Found, Tree, named, read_menu};

const MENUS: &[&str] = &[
    "syslinux.cfg",
    "syslinux/syslinux.cfg",
    "boot/syslinux/syslinux.cfg",
    "EFI/syslinux/syslinux.cfg",
    "extlinux.conf",
    "extlinux/extlinux.conf",
    "boot/extlinux/extlinux.conf",
    "boot/extlinux.conf",
];

#[derive(Default)]
struct Label {
    name: String,
    kernel: Option<String>,
    initrds: Vec<String>,
    append: String,
}

/// The label that would be started.
pub(super) fn find(trees: &[Tree]) -> Found {
    for tree in trees {
        for name in MENUS {
            let Some(text) = read_menu(&tree.path, name) else { continue };
            let menu = format!("{name} of partition {}", tree.number);
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            return match choice(&tree.path, folder, &text) {
                Ok(choice) => Found::Choice { from: menu, choice },
                Err(why) => Found::Unclear { menu, why },
            };
        }
    }
    Found::Nothing
}

fn choice(root: &Path, folder: &str, text: &str) -> Result<Choice, String> {
    let mut default = None;
    let mut labels: Vec<Label> = Vec::new();
    for line in text.lines().map(str::trim) {
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let value = value.trim().to_owned();
        let last = labels.last_mut();
        match (key.to_ascii_lowercase().as_str(), last) {
            ("default", None) => default = Some(value),
            ("label", _) => labels.push(Label { name: value, ..Label::default() }),
            ("kernel" | "linux", Some(label)) => label.kernel = Some(value),
            ("initrd", Some(label)) => {
                label.initrds = value.split(',').map(|name| name.trim().to_owned()).collect();
            }
            ("append", Some(label)) => label.append = value,
            _ => {}
        }
    }
    let wanted = default.as_deref().and_then(|name| labels.iter().find(|it| it.name == name));
    let label = wanted.or(labels.first()).ok_or("it has no label")?;
    let file = |name: &str| {
        let whole =
            if name.starts_with('/') { name.to_owned() } else { format!("{folder}/{name}") };
        named(root, &whole).ok_or_else(|| format!("there is no {name}"))
    };
    let kernel = label.kernel.as_deref().ok_or("its label names no kernel")?;
    // An older way to name an initrd.
    let mut initrds = label.initrds.clone();
    let mut words = Vec::new();
    for word in label.append.split_whitespace() {
        match word.strip_prefix("initrd=") {
            Some(names) => initrds.extend(names.split(',').map(str::to_owned)),
            None => words.push(word),
        }
    }
    Ok(Choice {
        kernel: file(kernel)?,
        initrds: initrds.iter().map(|name| file(name)).collect::<Result<_, _>>()?,
        command_line: words.join(" "),
    })
}
