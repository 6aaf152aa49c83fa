// SPDX-License-Identifier: Apache-2.0
//! Module tables in the formats of `depmod`, restricted to the modules in the ramdisk.

use std::fmt::Write as _;

use crate::modules::ModuleSelection;

/// `modules.dep`: all dependencies of each module, to be loaded from last to first.
pub(crate) fn dependencies(selection: &ModuleSelection) -> String {
    let mut table = String::new();
    for (name, module) in &selection.modules {
        let _ = write!(table, "{}:", module.path);
        for other in selection.dependencies_in_load_order(name).iter().rev() {
            if let Some(other) = selection.modules.get(*other) {
                let _ = write!(table, " {}", other.path);
            }
        }
        table.push('\n');
    }
    table
}

/// `modules.alias`: the module for each device alias.
pub(crate) fn aliases(selection: &ModuleSelection) -> String {
    let mut table = String::new();
    for (name, module) in &selection.modules {
        for alias in &module.aliases {
            let _ = writeln!(table, "alias {alias} {name}");
        }
    }
    table
}

/// `modules.softdep`: soft dependencies, with aliases resolved to module names.
pub(crate) fn soft_dependencies(selection: &ModuleSelection) -> String {
    let mut table = String::new();
    for (name, module) in &selection.modules {
        let mut line = String::new();
        for (when, others) in
            [("pre:", &module.pre_dependencies), ("post:", &module.post_dependencies)]
        {
            if !others.is_empty() {
                let _ = write!(line, " {when} {}", others.join(" "));
            }
        }
        if !line.is_empty() {
            let _ = writeln!(table, "softdep {name}{line}");
        }
    }
    table
}

/// `ferrite.order` and `ferrite.later`: modules that are loaded unconditionally, one name per line,
/// dependencies first.
pub(crate) fn order(names: &[String]) -> String {
    names.iter().fold(String::new(), |table, name| table + name + "\n")
}
