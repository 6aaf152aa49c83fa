// SPDX-License-Identifier: Apache-2.0
//! Writes the table of the files below `page/`, which `src/lib.rs` includes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo")).join("page");
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files)?;
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let name = file.strip_prefix(&root).expect("files are below the root").to_string_lossy();
        writeln!(table, "    ({name:?}, include_bytes!({:?})),", file.to_string_lossy())
            .expect("writing to a string cannot fail");
    }
    table.push(']');
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out.join("files.rs"), table)
}

/// Collects the files below `folder`, except type declarations, which only `tsc` reads.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo:rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if !path.to_string_lossy().ends_with(".d.ts") {
            files.push(path);
        }
    }
    Ok(())
}
