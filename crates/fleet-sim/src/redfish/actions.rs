// SPDX-License-Identifier: Apache-2.0
//! Parameters of actions: what must be given, and one of which values.

use super::refusal::Refusal;
use super::visit::Visit;

/// A parameter that must be there and be understood by `read`.
pub(super) fn parameter<T>(
    visit: &Visit<'_>,
    action: &'static str,
    name: &'static str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, Refusal> {
    let text = visit.text(name)?.ok_or_else(|| Refusal::parameter_missing(action, name))?;
    read(text).ok_or_else(|| Refusal::parameter_value(action, name, text))
}
