// SPDX-License-Identifier: Apache-2.0
//! Checks that the embedded files are complete, self-contained and small.

use super::*;

/// The budget for all files together, compressed.
const MAX_COMPRESSED_BYTES: usize = 240_000;

fn text(name: &str) -> String {
    let bytes = FILES.iter().find(|(file, _)| *file == name).expect(name).1;
    String::from_utf8(bytes.to_vec()).expect("files are UTF-8")
}

fn files_ending_with(ending: &str) -> impl Iterator<Item = (&'static str, String)> {
    FILES
        .iter()
        .filter(move |(name, _)| name.ends_with(ending))
        .map(|(name, _)| (*name, text(name)))
}

/// Returns the texts between `before` and the next `end`.
fn between<'t>(text: &'t str, before: &'t str, end: char) -> impl Iterator<Item = &'t str> {
    text.split(before).skip(1).filter_map(move |rest| rest.split(end).next())
}

/// Returns the static and dynamic imports of a module.
fn all_imports(name: &str, text: &str) -> Vec<String> {
    let dynamic = between(text, "import(\"", '"').map(|path| modules::resolve(name, path));
    modules::static_imports(name, text).into_iter().chain(dynamic).collect()
}

#[test]
fn every_imported_module_exists() {
    let mut count = 0;
    for (name, text) in files_ending_with(".js") {
        for import in all_imports(name, &text) {
            assert!(FILES.iter().any(|(file, _)| *file == import), "{name} imports {import}");
            count += 1;
        }
    }
    assert!(count > 100, "only {count} imports found; is the import scanner broken?");
}

#[test]
fn every_module_is_imported() {
    let mut reached = modules::initial_modules(FILES);
    let mut next = 0;
    while let Some(name) = reached.get(next).cloned() {
        next += 1;
        for import in all_imports(&name, &text(&name)) {
            if !reached.contains(&import) {
                reached.push(import);
            }
        }
    }
    for (name, _) in files_ending_with(".js").filter(|(name, _)| name.starts_with("app/")) {
        assert!(reached.iter().any(|module| module == name), "no module imports {name}");
    }
}

#[test]
fn index_links_existing_files_below_the_digest() {
    let index = String::from_utf8(index().plain.to_vec()).unwrap();
    assert!(!index.contains(VERSION_MARK) && !index.contains(MODULES_MARK), "{index}");
    let mut count = 0;
    for attribute in ["src=\"", "href=\""] {
        for path in between(&index, attribute, '"') {
            let below = path.strip_prefix("/ui/").expect(path);
            let (_, caching) = asset(below).expect(path);
            assert_eq!(caching, AssetCaching::Immutable, "{path}");
            count += 1;
        }
    }
    assert!(count > 20, "{index}");
    for (name, _) in files_ending_with(".css") {
        assert!(index.contains(name), "{name} is not linked");
    }
}

#[test]
fn loads_nothing_from_other_origins() {
    for (name, _) in FILES.iter().filter(|(name, _)| !name.starts_with("vendor/")) {
        let text = text(name);
        for scheme in ["https://", "http://", "//cdn", "url(", "@import"] {
            for found in between(&text, scheme, '"') {
                let allowed =
                    found.starts_with("www.w3.org/2000/svg") || found.contains(".example");
                assert!(allowed, "{name} contains {scheme}{}", found.get(..40).unwrap_or(found));
            }
        }
        // The content security policy blocks these without a visible error.
        for forbidden in ["innerHTML", "dangerouslySetInnerHTML", "eval(", "new Function", "<style"]
        {
            assert!(!text.contains(forbidden), "{name} contains {forbidden}");
        }
    }
    let index = text("index.html");
    for script in between(&index, "<script", '>') {
        assert!(script.contains("src="), "the content security policy blocks {script}");
    }
}

#[test]
fn stays_within_the_size_budget() {
    let sizes: Vec<(usize, &str)> =
        BUNDLE.assets.iter().map(|(name, asset)| (asset.gzip.len(), *name)).collect();
    let total: usize = sizes.iter().map(|(size, _)| size).sum();
    println!("{total} bytes compressed, in {} files", sizes.len());
    assert!(total < MAX_COMPRESSED_BYTES, "{total} bytes: {sizes:#?}");
}

#[test]
fn assets_have_content_type_and_etag() {
    for (name, content_type) in [
        ("index.html", "text/html; charset=utf-8"),
        ("app/main.js", "text/javascript; charset=utf-8"),
        ("style/base.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
        ("vendor/LICENSE-preact", "text/plain; charset=utf-8"),
    ] {
        let (found, caching) = asset(name).expect(name);
        assert_eq!(
            (found.content_type, caching),
            (content_type, AssetCaching::Revalidate),
            "{name}"
        );
        assert!(found.etag.starts_with('"') && found.etag.len() == 34, "{}", found.etag);
    }
}

#[test]
fn outdated_digest_still_finds_the_file() {
    let (_, caching) = asset("@0000000000000000/app/main.js").unwrap();
    assert_eq!(caching, AssetCaching::Revalidate);
}

#[test]
fn unknown_paths_are_not_found() {
    for missing in ["", "app", "app/none.js", "@", "@x", "../Cargo.toml", "app/../index.html"] {
        assert!(asset(missing).is_none(), "{missing}");
    }
    assert!(asset("vendor/preact-htm.d.ts").is_none(), "type declarations are not shipped");
}

/// The SHA-256 of nothing is well known.
#[test]
fn digest_is_a_truncated_sha256() {
    assert_eq!(digest([]), "e3b0c44298fc1c149afbf4c8996fb924");
    assert_ne!(digest([&b"ab"[..], b"c"]), digest([&b"a"[..], b"bc"]));
}

#[test]
fn gzip_decompresses_to_the_plain_file() {
    use std::io::Read as _;
    for (name, asset) in &BUNDLE.assets {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&asset.gzip[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, *asset.plain, "{name}");
    }
}
