// SPDX-License-Identifier: Apache-2.0
//! The page holds together: everything it names is there, nothing comes from elsewhere, and it is
//! small.

use super::*;

/// What the issue allows for the whole page, and what we hold ourselves to.
const MOST_COMPRESSED: usize = 200_000;

fn text(name: &str) -> String {
    let bytes = FILES.iter().find(|(file, _)| *file == name).expect(name).1;
    String::from_utf8(bytes.to_vec()).expect("it is text")
}

fn named(ending: &str) -> impl Iterator<Item = (&'static str, String)> {
    FILES
        .iter()
        .filter(move |(name, _)| name.ends_with(ending))
        .map(|(name, _)| (*name, text(name)))
}

/// The texts between `before` and the next `end`.
fn between<'t>(text: &'t str, before: &'t str, end: char) -> impl Iterator<Item = &'t str> {
    text.split(before).skip(1).filter_map(move |rest| rest.split(end).next())
}

#[test]
fn every_module_that_is_imported_exists() {
    let mut seen = 0;
    for (name, text) in named(".js") {
        let lazily = between(&text, "import(\"", '"').map(|path| modules::resolve(name, path));
        for import in modules::imports(name, &text).into_iter().chain(lazily) {
            assert!(FILES.iter().any(|(file, _)| *file == import), "{name} imports {import}");
            seen += 1;
        }
    }
    assert!(seen > 100, "only {seen} imports were found: are they still looked for correctly?");
}

#[test]
fn every_module_is_reached() {
    let mut reached = modules::needed_at_first(FILES);
    let mut next = 0;
    while let Some(name) = reached.get(next).cloned() {
        next += 1;
        let text = text(&name);
        let lazily: Vec<_> =
            between(&text, "import(\"", '"').map(|path| modules::resolve(&name, path)).collect();
        for import in modules::imports(&name, &text).into_iter().chain(lazily) {
            if !reached.contains(&import) {
                reached.push(import);
            }
        }
    }
    for (name, _) in named(".js").filter(|(name, _)| name.starts_with("app/")) {
        assert!(reached.iter().any(|it| it == name), "nothing imports {name}");
    }
}

#[test]
fn the_frame_names_files_that_exist_under_the_digest() {
    let frame = String::from_utf8(index().plain.to_vec()).unwrap();
    assert!(!frame.contains(VERSION_MARK) && !frame.contains(MODULES_MARK), "{frame}");
    let mut seen = 0;
    for attribute in ["src=\"", "href=\""] {
        for path in between(&frame, attribute, '"') {
            let below = path.strip_prefix("/ui/").expect(path);
            let (_, keep) = asset(below).expect(path);
            assert_eq!(keep, Keep::ForGood, "{path}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{frame}");
    for (name, _) in named(".css") {
        assert!(frame.contains(name), "{name} is not linked");
    }
}

#[test]
fn nothing_comes_from_elsewhere() {
    for (name, _) in FILES.iter().filter(|(name, _)| !name.starts_with("vendor/")) {
        let text = text(name);
        for scheme in ["https://", "http://", "//cdn", "url(", "@import"] {
            for found in between(&text, scheme, '"') {
                let allowed =
                    found.starts_with("www.w3.org/2000/svg") || found.contains(".example");
                assert!(allowed, "{name} names {scheme}{}", found.get(..40).unwrap_or(found));
            }
        }
        // What the content security policy forbids would silently not work.
        for forbidden in ["innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "<style"]
        {
            assert!(!text.contains(forbidden), "{name} has {forbidden}");
        }
    }
    let frame = text("index.html");
    for script in between(&frame, "<script", '>') {
        assert!(script.contains("src="), "an inline script would not run: {script}");
    }
}

#[test]
fn it_is_small() {
    let sizes: Vec<(usize, &str)> =
        PAGE.assets.iter().map(|(name, asset)| (asset.gzip.len(), *name)).collect();
    let whole: usize = sizes.iter().map(|(size, _)| size).sum();
    println!("the page is {whole} bytes compressed, in {} files", sizes.len());
    assert!(whole < MOST_COMPRESSED, "{whole} bytes: {sizes:#?}");
}

#[test]
fn files_are_what_they_say() {
    for (name, content_type) in [
        ("index.html", "text/html; charset=utf-8"),
        ("app/main.js", "text/javascript; charset=utf-8"),
        ("style/base.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/LICENSE-preact", "text/plain; charset=utf-8"),
    ] {
        let (found, keep) = asset(name).expect(name);
        assert_eq!((found.content_type, keep), (content_type, Keep::AskAgain), "{name}");
        assert!(found.etag.starts_with('"') && found.etag.len() == 18, "{}", found.etag);
    }
    let old = asset("@0000000000000000/app/main.js").expect("an older page still loads");
    assert_eq!(old.1, Keep::AskAgain);
    for missing in ["", "app", "app/none.js", "@", "@x", "../Cargo.toml", "app/../index.html"] {
        assert!(asset(missing).is_none(), "{missing}");
    }
}

#[test]
fn compressed_is_the_same() {
    use std::io::Read as _;
    for (name, asset) in &PAGE.assets {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&asset.gzip[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, *asset.plain, "{name}");
    }
}
