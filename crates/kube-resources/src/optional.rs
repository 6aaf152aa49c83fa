// SPDX-License-Identifier: Apache-2.0
//! Deserialisation of optional fields with the meaning they have for Metal3's Go types.

use serde::{Deserialize, Deserializer};

/// Reads a text. `null` and an empty text mean that the field is not set.
pub(crate) fn non_empty<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: From<String>,
{
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(T::from))
}

/// Reads a value. `null` means its default, as for a Go slice, map or number.
pub(crate) fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Whether a flag has its default and is not written.
pub(crate) fn is_false(flag: &bool) -> bool {
    !flag
}

/// Whether a value has its default and is not written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
