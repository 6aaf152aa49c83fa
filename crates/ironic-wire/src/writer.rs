// SPDX-License-Identifier: Apache-2.0
//! A JSON writer that appends to a byte buffer.
//!
//! Responses mostly consist of text that is already JSON (`extra`, `driver_info`, …) and ids.
//! Building a value tree first would dominate the cost of a list request. Commas need no state: one
//! is due unless the last byte opened an object or array, and no value ends in an opening bracket.

use node_model::{JsonArray, JsonObject, Timestamp, mask_quoted_urls};
use uuid::Uuid;

/// A JSON text under construction.
#[derive(Default, Debug)]
pub struct JsonWriter {
    out: Vec<u8>,
}

impl JsonWriter {
    /// An empty writer with capacity for `bytes`.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: Vec::with_capacity(bytes) }
    }

    /// The written bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// The written text.
    #[must_use]
    pub fn into_string(self) -> String {
        String::from_utf8(self.out).expect("only whole strings are ever written")
    }

    /// Number of written bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Opens an object.
    pub fn begin_object(&mut self) {
        self.out.push(b'{');
    }

    /// Closes an object.
    pub fn end_object(&mut self) {
        self.out.push(b'}');
    }

    /// Opens an array.
    pub fn begin_array(&mut self) {
        self.out.push(b'[');
    }

    /// Closes an array.
    pub fn end_array(&mut self) {
        self.out.push(b']');
    }

    /// The key of the next member. The names are constants and need no escaping.
    pub fn key(&mut self, name: &'static str) {
        self.separate(b'{');
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    /// The key of the next member, escaped.
    pub fn dynamic_key(&mut self, name: &str) {
        self.separate(b'{');
        self.string(name);
        self.out.push(b':');
    }

    /// Starts the next element of an array.
    pub fn element(&mut self) {
        self.separate(b'[');
    }

    /// `null`.
    pub fn null(&mut self) {
        self.out.extend_from_slice(b"null");
    }

    /// `true` or `false`.
    pub fn boolean(&mut self, value: bool) {
        self.out.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// An integer.
    pub fn integer(&mut self, value: i64) {
        const LONGEST: usize = 20;
        let mut digits = [0_u8; LONGEST];
        let mut at = LONGEST;
        let mut rest = value.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(rest % 10).expect("a digit is below ten");
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            self.out.push(b'-');
        }
        self.out.extend_from_slice(&digits[at..]);
    }

    /// A string, escaped.
    pub fn string(&mut self, text: &str) {
        self.out.push(b'"');
        self.escaped(text);
        self.out.push(b'"');
    }

    /// A string or `null`.
    pub fn optional_string(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.string(text),
            None => self.null(),
        }
    }

    /// A boolean or `null`.
    pub fn optional_boolean(&mut self, value: Option<bool>) {
        match value {
            Some(value) => self.boolean(value),
            None => self.null(),
        }
    }

    /// A UUID as a string.
    pub fn uuid(&mut self, id: Uuid) {
        self.out.push(b'"');
        self.raw_uuid(id);
        self.out.push(b'"');
    }

    /// A UUID or `null`.
    pub fn optional_uuid(&mut self, id: Option<Uuid>) {
        match id {
            Some(id) => self.uuid(id),
            None => self.null(),
        }
    }

    /// A timestamp in Ironic's format, or `null`.
    pub fn optional_timestamp(&mut self, timestamp: Option<Timestamp>) {
        match timestamp {
            Some(timestamp) => self.timestamp(timestamp),
            None => self.null(),
        }
    }

    /// A timestamp in Ironic's format: `"2026-11-15T19:24:09.123456+00:00"`.
    pub fn timestamp(&mut self, timestamp: Timestamp) {
        use std::io::Write as _;
        self.out.push(b'"');
        write!(self.out, "{timestamp}").expect("writing to memory does not fail");
        self.out.push(b'"');
    }

    /// A free-form object, copied verbatim.
    pub fn object(&mut self, object: &JsonObject) {
        self.out.extend_from_slice(object.as_str().as_bytes());
    }

    /// A free-form object with masked passwords in URLs. Normally these are sealed, but an older process
    /// may have stored them in plain text.
    pub fn object_with_masked_urls(&mut self, object: &JsonObject) {
        self.out.extend_from_slice(mask_quoted_urls(object.as_str()).as_bytes());
    }

    /// A free-form array, copied verbatim.
    pub fn array(&mut self, array: &JsonArray) {
        self.out.extend_from_slice(array.as_str().as_bytes());
    }

    /// An array of strings.
    pub fn strings<S: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = S>) {
        self.begin_array();
        for text in texts {
            self.element();
            self.string(text.as_ref());
        }
        self.end_array();
    }

    /// The members of `object`, with masked passwords in URLs. The object stays open for more members.
    pub(crate) fn open_object(&mut self, object: &JsonObject) {
        let text = mask_quoted_urls(object.as_str());
        let text = text.trim_ascii_end();
        self.out
            .extend_from_slice(text.strip_suffix('}').unwrap_or("{").trim_ascii_end().as_bytes());
    }

    /// Text that is valid JSON at this position.
    pub(crate) fn raw(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn raw_uuid(&mut self, id: Uuid) {
        let mut buffer = Uuid::encode_buffer();
        self.out.extend_from_slice(id.hyphenated().encode_lower(&mut buffer).as_bytes());
    }

    /// The inside of a string, escaped. Copies runs of plain bytes at once.
    pub(crate) fn escaped(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut copied = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let short: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'\n' => b"\\n",
                b'\r' => b"\\r",
                b'\t' => b"\\t",
                0..=0x1f => b"",
                _ => continue,
            };
            self.out.extend_from_slice(&bytes[copied..at]);
            copied = at + 1;
            if short.is_empty() {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                self.out.extend_from_slice(b"\\u00");
                self.out.push(HEX[usize::from(byte >> 4)]);
                self.out.push(HEX[usize::from(byte & 15)]);
            } else {
                self.out.extend_from_slice(short);
            }
        }
        self.out.extend_from_slice(&bytes[copied..]);
    }

    fn separate(&mut self, opening: u8) {
        if self.out.last().is_some_and(|last| *last != opening) {
            self.out.push(b',');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_commas_in_nested_values() {
        let mut w = JsonWriter::default();
        w.begin_object();
        w.key("a");
        w.integer(i64::MIN);
        w.key("b");
        w.strings(["x{", "["]);
        w.dynamic_key("c\"");
        w.begin_array();
        w.end_array();
        w.key("d");
        w.open_object(&JsonObject::from_stored(r#"{"e":{} }"#));
        w.key("f");
        w.boolean(true);
        w.end_object();
        w.key("g");
        w.open_object(&JsonObject::empty());
        w.key("h");
        w.null();
        w.end_object();
        w.end_object();
        assert_eq!(
            w.into_string(),
            r#"{"a":-9223372036854775808,"b":["x{","["],"c\"":[],"d":{"e":{},"f":true},"g":{"h":null}}"#
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_round_trips(text in proptest::prelude::any::<String>()) {
            let mut w = JsonWriter::default();
            w.string(&text);
            let back: String = serde_json::from_slice(&w.into_bytes()).unwrap();
            proptest::prop_assert_eq!(back, text);
        }

        #[test]
        fn any_integer_round_trips(number in proptest::prelude::any::<i64>()) {
            let mut w = JsonWriter::default();
            w.integer(number);
            proptest::prop_assert_eq!(w.into_string(), number.to_string());
        }
    }
}
