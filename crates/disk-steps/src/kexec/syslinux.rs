// SPDX-License-Identifier: Apache-2.0
//! syslinux and extlinux menus.

use std::path::Path;

use super::{BootPartition, BootSelection, MenuSearch, find_file, read_menu};

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
struct SyslinuxLabel {
    name: String,
    kernel: Option<String>,
    initrds: Vec<String>,
    append: String,
}

/// Finds the default label.
pub(super) fn find(partitions: &[BootPartition]) -> MenuSearch {
    for partition in partitions {
        for name in MENUS {
            let Some(text) = read_menu(&partition.path, name) else { continue };
            let menu = format!("{name} of partition {}", partition.number);
            let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
            return match select(&partition.path, directory, &text) {
                Ok(selection) => MenuSearch::Found { origin: menu, selection },
                Err(reason) => MenuSearch::Unclear { menu, reason },
            };
        }
    }
    MenuSearch::Nothing
}

fn select(root: &Path, directory: &str, text: &str) -> Result<BootSelection, String> {
    let mut default = None;
    let mut labels: Vec<SyslinuxLabel> = Vec::new();
    for line in text.lines().map(str::trim) {
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let value = value.trim().to_owned();
        let last = labels.last_mut();
        match (key.to_ascii_lowercase().as_str(), last) {
            ("default", None) => default = Some(value),
            ("label", _) => labels.push(SyslinuxLabel { name: value, ..SyslinuxLabel::default() }),
            ("kernel" | "linux", Some(label)) => label.kernel = Some(value),
            ("initrd", Some(label)) => {
                label.initrds = value.split(',').map(|name| name.trim().to_owned()).collect();
            }
            ("append", Some(label)) => label.append = value,
            _ => {}
        }
    }
    let selected = default.as_deref().and_then(|name| labels.iter().find(|it| it.name == name));
    let label = selected.or(labels.first()).ok_or("it has no label")?;
    let file = |name: &str| {
        let path =
            if name.starts_with('/') { name.to_owned() } else { format!("{directory}/{name}") };
        find_file(root, &path).ok_or_else(|| format!("there is no {name}"))
    };
    let kernel = label.kernel.as_deref().ok_or("its label names no kernel")?;
    // `initrd=` in the arguments is the older syntax.
    let mut initrds = label.initrds.clone();
    let mut arguments = Vec::new();
    for argument in label.append.split_whitespace() {
        match argument.strip_prefix("initrd=") {
            Some(names) => initrds.extend(names.split(',').map(str::to_owned)),
            None => arguments.push(argument),
        }
    }
    Ok(BootSelection {
        kernel: file(kernel)?,
        initrds: initrds.iter().map(|name| file(name)).collect::<Result<_, _>>()?,
        command_line: arguments.join(" "),
    })
}
