// SPDX-License-Identifier: Apache-2.0
//! Converts links to paths on the BMC.
//!
//! Links never lead to another host, which would get our credentials: scheme and host are dropped.

/// The path (with query) of `link` on the BMC. A link without a leading slash is relative to the
/// service root; a fragment is dropped.
pub(crate) fn local(root: &str, link: &str) -> String {
    let link = link.trim();
    let link = link.split_once('#').map_or(link, |(path, _)| path);
    let path = match link.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
            rest.find(['/', '?']).map_or("/", |start| &rest[start..])
        }
        Some(_) | None => link,
    };
    if path.starts_with('/') { path.to_owned() } else { format!("{root}{path}") }
}

/// Returns whether two paths name the same resource: BMCs differ in the trailing slash.
pub(crate) fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The last segment of a path, which is the id of the resource in most services.
#[must_use]
pub fn last_segment(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// The URL without credentials and query, for messages. An unencoded password may contain any
/// character, so everything before the last `@` is dropped.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.find("://").map_or(("", url), |end| url.split_at(end + 3));
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_on_the_host() {
        for (link, path) in [
            ("/redfish/v1/Systems/1", "/redfish/v1/Systems/1"),
            ("https://evil.example/redfish/v1/Systems/1", "/redfish/v1/Systems/1"),
            ("https://evil.example", "/"),
            ("https://evil.example?x=/1", "/redfish/v1/?x=/1"),
            ("//evil.example/x", "//evil.example/x"),
            ("Systems/1", "/redfish/v1/Systems/1"),
            ("@evil.example/", "/redfish/v1/@evil.example/"),
            ("/redfish/v1/Chassis/1/Thermal#/Fans/0", "/redfish/v1/Chassis/1/Thermal"),
            ("/redfish/v1/Systems?$skip=50", "/redfish/v1/Systems?$skip=50"),
            ("/x?next=http://evil/y", "/x?next=http://evil/y"),
        ] {
            assert_eq!(local("/redfish/v1/", link), path, "{link}");
        }
    }

    #[test]
    fn displayed_urls_contain_no_secrets() {
        for (url, expected) in [
            ("https://images/a.iso", "https://images/a.iso"),
            ("https://me:hunter2@images/a.iso?token=1#x", "https://images/a.iso"),
            ("https://me:hunter2@images", "https://images"),
            ("https://me:h/u?n@t@images/a.iso", "https://images/a.iso"),
            ("me:hunter2@images", "images"),
            ("/redfish/v1/Systems?token=1", "/redfish/v1/Systems"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
