// SPDX-License-Identifier: Apache-2.0
//! The generated page `docs/lifecycle.md` is what the transition table says.

#[test]
fn generated_page_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lifecycle.md");
    let page = lifecycle::diagram();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(found == page, "docs/lifecycle.md is stale: run `cargo xtask docs`");
}
