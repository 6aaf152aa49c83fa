// SPDX-License-Identifier: Apache-2.0
//! Free-form JSON of users and drivers, stored as text.
//!
//! `properties`, `extra`, `driver_info` and the like are opaque to most of Ferrite: they are read
//! from a row and written to a response. As text, a list of a thousand nodes copies bytes and parses
//! nothing.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

macro_rules! json_text {
    ($(#[$doc:meta])* $name:ident, $parsed:ty, $empty:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq)]
        pub struct $name(Option<Arc<str>>);

        impl $name {
            /// The empty value. Does not allocate.
            #[must_use]
            pub const fn empty() -> Self {
                Self(None)
            }

            /// Whether there are no members.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.0.is_none()
            }

            /// The JSON text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                self.0.as_deref().unwrap_or($empty)
            }

            /// Wraps text that was written by this type. Text that does not start with the right
            /// delimiter counts as empty, so that a damaged column cannot break a response.
            #[must_use]
            pub fn from_stored(text: &str) -> Self {
                let opening = $empty.as_bytes()[0];
                if text == $empty || text.as_bytes().first() != Some(&opening) {
                    Self::empty()
                } else {
                    Self(Some(Arc::from(text)))
                }
            }

            /// The parsed value.
            #[must_use]
            pub fn parse(&self) -> $parsed {
                match &self.0 {
                    None => <$parsed>::default(),
                    Some(text) => serde_json::from_str(text).unwrap_or_default(),
                }
            }
        }

        impl From<$parsed> for $name {
            fn from(parsed: $parsed) -> Self {
                if parsed.is_empty() {
                    return Self::empty();
                }
                Self(Some(Arc::from(Value::from(parsed).to_string())))
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::empty()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match &self.0 {
                    None => <$parsed>::default().serialize(serializer),
                    Some(text) => serde_json::from_str::<&RawValue>(text)
                        .map_err(serde::ser::Error::custom)?
                        .serialize(serializer),
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <$parsed>::deserialize(deserializer).map(Self::from)
            }
        }
    };
}

json_text!(
    /// A JSON object as text.
    JsonObject,
    Map<String, Value>,
    "{}"
);
json_text!(
    /// A JSON array as text.
    JsonArray,
    Vec<Value>,
    "[]"
);

impl JsonObject {
    /// One member of the object.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value> {
        self.parse().remove(key)
    }

    /// One member of the object, if it is a string.
    #[must_use]
    pub fn get_str(&self, key: &str) -> Option<String> {
        match self.get(key) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    /// Changes the object in place.
    pub fn edit(&mut self, change: impl FnOnce(&mut Map<String, Value>)) {
        let mut map = self.parse();
        change(&mut map);
        *self = Self::from(map);
    }

    /// Sets one member.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        self.edit(|map| {
            map.insert(key.to_owned(), value);
        });
    }

    /// Removes one member.
    pub fn remove(&mut self, key: &str) {
        if !self.is_empty() {
            self.edit(|map| {
                map.remove(key);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn editing_keeps_other_members() {
        let mut object = JsonObject::from_stored(r#"{"a":1,"b":{"c":[2]}}"#);
        object.set("a", "x");
        object.remove("missing");
        assert_eq!(object.as_str(), r#"{"a":"x","b":{"c":[2]}}"#);
        object.remove("a");
        object.remove("b");
        assert!(object.is_empty());
    }

    #[test]
    fn damaged_text_counts_as_empty() {
        assert!(JsonObject::from_stored("").is_empty());
        assert!(JsonObject::from_stored("[]").is_empty());
        assert!(JsonObject::from_stored("{broken").parse().is_empty());
    }
}
