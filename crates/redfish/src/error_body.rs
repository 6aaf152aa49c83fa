// SPDX-License-Identifier: Apache-2.0
//! Parses error responses.
//!
//! The standard puts messages under `error/@Message.ExtendedInfo`. BMCs also put them at the top level,
//! or a single message instead of a list, or only a text under `error/message`.

use serde_json::Value;

/// The length limit of a message, in bytes.
const LONGEST: usize = 600;

/// The content of an error response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RedfishErrorBody {
    /// The message ids in the given order.
    pub(crate) code: Vec<String>,
    /// The messages without duplicates.
    pub(crate) message: String,
}

impl RedfishErrorBody {
    /// Parses the body of an error response. Masks the texts in `secrets`.
    pub(crate) fn read(body: &[u8], secrets: &[&str]) -> Self {
        let mut refusal = match crate::body::parse(body) {
            Ok(body) => Self::of(&body),
            Err(_) => Self::default(),
        };
        if refusal.message.is_empty() {
            "it gave no reason".clone_into(&mut refusal.message);
        }
        for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
            if refusal.message.contains(secret) {
                refusal.message = refusal.message.replace(secret, "******");
            }
        }
        refusal.message = shortened(refusal.message);
        refusal
    }

    fn of(body: &Value) -> Self {
        let error = body.get("error").filter(|error| error.is_object()).unwrap_or(body);
        let infos = messages_in(error).chain(messages_in(body));
        let mut refusal = Self::default();
        let mut texts: Vec<&str> = Vec::new();
        for info in infos {
            let id = info.get("MessageId").and_then(Value::as_str);
            if let Some(id) = id.filter(|id| !refusal.code.iter().any(|known| known == id)) {
                refusal.code.push(id.to_owned());
            }
            let text = info.get("Message").or_else(|| info.get("message")).and_then(Value::as_str);
            let text = text.map(str::trim).filter(|text| !text.is_empty());
            texts.extend(text.filter(|text| !texts.contains(text)));
        }
        if let Some(code) = error.get("code").and_then(Value::as_str) {
            // Usually the general error, which is less specific than the messages.
            if !refusal.code.iter().any(|known| known == code) {
                refusal.code.push(code.to_owned());
            }
        }
        if texts.is_empty() {
            let plain = ["message", "Message", "detail"];
            texts.extend(plain.iter().find_map(|key| error.get(key)?.as_str()).map(str::trim));
        }
        refusal.message = if texts.is_empty() { refusal.code.join(", ") } else { texts.join(" ") };
        refusal
    }
}

/// The messages under `@Message.ExtendedInfo`: a list or a single one.
pub(crate) fn messages_in(body: &Value) -> impl Iterator<Item = &Value> {
    let info = body.get("@Message.ExtendedInfo");
    let many = info.and_then(Value::as_array).into_iter().flatten();
    many.chain(info.filter(|info| info.is_object()))
}

/// Truncates a text to a length that fits into `last_error`.
pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> (String, String) {
        let refusal = RedfishErrorBody::read(body.as_bytes(), &["hunter2"]);
        (refusal.code.join(","), refusal.message)
    }

    #[test]
    fn parses_all_forms_of_errors() {
        for (body, code, message) in [
            ("", "", "it gave no reason"),
            ("<html>no</html>", "", "it gave no reason"),
            ("[]", "", "it gave no reason"),
            (r#"{"error": "no"}"#, "", "it gave no reason"),
            (
                r#"{"error": {"code": "Base.1.0.GeneralError", "message": "General."}}"#,
                "Base.1.0.GeneralError",
                "General.",
            ),
            (
                r#"{"error": {"code": "Base.1.0.GeneralError", "message": "See below.",
                    "@Message.ExtendedInfo": [
                      {"MessageId": "Base.1.8.ActionNotSupported", "Message": "Not supported."},
                      {"MessageId": "IDRAC.2.5.SYS403", "Message": "Not supported."},
                      {"MessageId": 7}, null]}}"#,
                "Base.1.8.ActionNotSupported,IDRAC.2.5.SYS403,Base.1.0.GeneralError",
                "Not supported.",
            ),
            (
                r#"{"error": {"@Message.ExtendedInfo": {"MessageId": "X.1.0.Y"}}}"#,
                "X.1.0.Y",
                "X.1.0.Y",
            ),
            (
                r#"{"@Message.ExtendedInfo": [{"Message": "Password 'hunter2' is too short."}]}"#,
                "",
                "Password '******' is too short.",
            ),
        ] {
            assert_eq!(read(body), (code.to_owned(), message.to_owned()), "{body}");
        }
    }

    #[test]
    fn truncates_long_messages() {
        let long = format!(r#"{{"error": {{"message": "{}"}}}}"#, "é".repeat(1000));
        let (_, message) = read(&long);
        assert!(message.len() <= LONGEST + '…'.len_utf8() && message.ends_with('…'));
    }
}
