// SPDX-License-Identifier: Apache-2.0
//! Which module imports which, as the files themselves say.

/// Where the page starts, and the view that is opened first.
const FIRST: &[&str] = &["app/main.js", "app/fleet/page.js"];

/// The modules the first view needs, in the order they are come upon.
pub(crate) fn needed_at_first(files: &[(&'static str, &[u8])]) -> Vec<String> {
    let mut found: Vec<String> = FIRST.iter().map(|&name| name.to_owned()).collect();
    let mut next = 0;
    while let Some(name) = found.get(next).cloned() {
        next += 1;
        let Some((_, bytes)) = files.iter().find(|(file, _)| *file == name) else { continue };
        for import in imports(&name, &String::from_utf8_lossy(bytes)) {
            if !found.contains(&import) {
                found.push(import);
            }
        }
    }
    found
}

/// What a module imports from the start, as paths below `page/`.
pub(crate) fn imports(name: &str, text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_once(" from \"")?.1.split_once('"').map(|(path, _)| path))
        .filter(|path| path.starts_with('.'))
        .map(|path| resolve(name, path))
        .collect()
}

/// `../api.js`, said in `app/fleet/page.js`, is `app/api.js`.
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
