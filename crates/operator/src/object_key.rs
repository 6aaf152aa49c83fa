// SPDX-License-Identifier: Apache-2.0
//! Namespace and name of an object, small enough to be in many maps.

use std::fmt;
use std::sync::Arc;

use kube::Resource;

/// Separates the namespace from the name; neither contains it.
const SEPARATOR: char = '/';

/// Namespace and name of an object. Clones share the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey(Arc<str>);

/// By namespace, then by name. The text has another order, because `-` sorts before the separator.
impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl ObjectKey {
    /// Combines the names.
    #[must_use]
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self(format!("{}{SEPARATOR}{}", namespace.as_ref(), name.as_ref()).into())
    }

    /// The key of an object.
    #[must_use]
    pub fn of<K: Resource>(object: &K) -> Self {
        let metadata = object.meta();
        Self::new(
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        )
    }

    /// Namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts().1
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once(SEPARATOR).unwrap_or_default()
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn a_key_has_a_namespace_and_a_name() {
        let key = ObjectKey::new("lab", "host-1.example");
        assert_eq!((key.namespace(), key.name()), ("lab", "host-1.example"));
        assert_eq!(key.to_string(), "lab/host-1.example");
        assert_ne!(key, ObjectKey::new("lab", "host-1"));
        let mut object = ConfigMap::default();
        assert_eq!(ObjectKey::of(&object), ObjectKey::new("", ""));
        object.metadata.namespace = Some("lab".to_owned());
        object.metadata.name = Some("host-1.example".to_owned());
        assert_eq!(ObjectKey::of(&object), key);
    }
}
