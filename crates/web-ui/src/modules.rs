// SPDX-License-Identifier: Apache-2.0
//! The import graph of the JavaScript modules, read from their `import` statements.

/// The entry module, and the view that is opened first.
const ENTRY_MODULES: &[&str] = &["app/main.js", "app/fleet/page.js"];

/// Returns the modules that the first view needs, in the order of discovery.
pub(crate) fn initial_modules(files: &[(&'static str, &[u8])]) -> Vec<String> {
    let mut modules: Vec<String> = ENTRY_MODULES.iter().map(|&name| name.to_owned()).collect();
    let mut next = 0;
    while let Some(name) = modules.get(next).cloned() {
        next += 1;
        let Some((_, bytes)) = files.iter().find(|(file, _)| *file == name) else { continue };
        for import in static_imports(&name, &String::from_utf8_lossy(bytes)) {
            if !modules.contains(&import) {
                modules.push(import);
            }
        }
    }
    modules
}

/// Returns the static imports of a module as paths below `page/`.
pub(crate) fn static_imports(name: &str, text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_once(" from \"")?.1.split_once('"').map(|(path, _)| path))
        .filter(|path| path.starts_with('.'))
        .map(|path| resolve(name, path))
        .collect()
}

/// Resolves a relative import: `../api.js` in `app/fleet/page.js` is `app/api.js`.
pub(crate) fn resolve(from: &str, path: &str) -> String {
    let mut segments: Vec<&str> = from.split('/').collect();
    segments.pop();
    for segment in path.split('/') {
        match segment {
            "." => {}
            ".." => {
                segments.pop();
            }
            name => segments.push(name),
        }
    }
    segments.join("/")
}
