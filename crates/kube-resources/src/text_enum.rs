// SPDX-License-Identifier: Apache-2.0
//! Macro for enumerations that are texts in JSON and may have values unknown to this version.

/// Defines an enumeration with a variant `Other` for every other text.
///
/// Reading never fails: an object that was stored under another version of a CRD must not make a
/// whole list unreadable. Validation rejects `Other`.
macro_rules! text_enum {
    (
        $(#[$documentation:meta])*
        pub enum $name:ident {
            $($(#[$variant_documentation:meta])* $variant:ident = $text:literal,)+
        }
    ) => {
        $(#[$documentation])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_documentation])* $variant,)+
            /// A value that is not in the schema.
            Other(String),
        }

        impl $name {
            /// The values in the schema.
            pub const VALUES: &[&str] = &[$($text),+];

            /// The text in JSON.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)+
                    Self::Other(text) => text,
                }
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $($text => Self::$variant,)+
                    _ => Self::Other(text),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(Self::from)
            }
        }
    };
}

pub(crate) use text_enum;
