// SPDX-License-Identifier: Apache-2.0
//! `docs/lifecycle.md` matches the transition table.

#[test]
fn generated_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/lifecycle.md");
    let page = lifecycle::diagram();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let current = std::fs::read_to_string(path).unwrap_or_default();
    assert!(current == page, "docs/lifecycle.md is stale: run `cargo xtask docs`");
}
