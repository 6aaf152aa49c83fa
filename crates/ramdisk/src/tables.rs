// SPDX-License-Identifier: Apache-2.0
//! The tables that go with modules into the ramdisk, in the formats of `depmod`, but with nothing in
//! them that the ramdisk does not have.

use std::fmt::Write as _;

use crate::modules::Selection;

/// `modules.dep`: after each module everything it needs, to be loaded from the last to the first.
pub(crate) fn dependencies(selection: &Selection) -> String {
    let mut table = String::new();
    for (name, module) in &selection.modules {
        let _ = write!(table, "{}:", module.path);
        for other in selection.all_needs(name).iter().rev() {
            if let Some(other) = selection.modules.get(*other) {
                let _ = write!(table, " {}", other.path);
            }
        }
        table.push('\n');
    }
    table
}

/// `modules.alias`: which module a device asks for.
pub(crate) fn aliases(selection: &Selection) -> String {
    let mut table = String::new();
    for (name, module) in &selection.modules {
        for alias in &module.aliases {
            let _ = writeln!(table, "alias {alias} {name}");
        }
    }
    table
}

/// `modules.softdep`: what should be loaded with a module, by the names of modules only.
pub(crate) fn soft_dependencies(selection: &Selection) -> String {
    let mut table = String::new();
    for (name, module) in &selection.modules {
        let mut line = String::new();
        for (when, others) in [("pre:", &module.before), ("post:", &module.after)] {
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

/// `ferrite.order` and `ferrite.later`: what is loaded in any case, one name a line, dependencies
/// first.
pub(crate) fn order(names: &[String]) -> String {
    names.iter().fold(String::new(), |table, name| table + name + "\n")
}
