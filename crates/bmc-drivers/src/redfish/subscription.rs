// SPDX-License-Identifier: Apache-2.0
//! Event subscriptions: what a caller asks for, what is sent to the BMC, and what the caller is
//! shown. Nothing here talks to a BMC.

use redfish::Resource;
use serde_json::{Map, Value};

use crate::Error;

/// The keys of a subscription that callers are shown.
const SHOWN: &[&str] = &["Id", "Context", "Protocol", "Destination", "EventTypes"];

/// What to be told of unless the caller says.
const USUAL_EVENTS: &[&str] = &["Alert"];

/// A subscription that somebody wants.
#[derive(Clone, PartialEq)]
pub(super) struct Wanted {
    body: Map<String, Value>,
    /// Whether the caller chose the kinds of events.
    pub(super) chose_events: bool,
}

impl Wanted {
    /// Reads the arguments of `create_subscription`.
    pub(super) fn parse(arguments: &Map<String, Value>) -> Result<Self, Error> {
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
        set("Destination", destination(arguments.get("Destination"))?.into());
        set("Protocol", text(arguments, "Protocol")?.unwrap_or("Redfish").into());
        set("Context", text(arguments, "Context")?.unwrap_or_default().into());
        let events = events(arguments)?;
        set("EventTypes", events.clone().unwrap_or_else(|| USUAL_EVENTS.into()));
        if let Some(headers) = headers(arguments)? {
            set("HttpHeaders", headers);
        }
        Ok(Self { body, chose_events: events.is_some() })
    }

    /// Whether the service sends the kinds of events that the caller chose.
    pub(super) fn check_events(&self, service: &Resource) -> Result<(), Error> {
        let known = service.texts("/EventTypesForSubscription");
        if !self.chose_events || known.is_empty() {
            return Ok(());
        }
        let wanted = self.body.get("EventTypes").and_then(Value::as_array).into_iter().flatten();
        match wanted.filter_map(Value::as_str).find(|wanted| !known.contains(wanted)) {
            None => Ok(()),
            Some(unknown) => Err(Error::invalid(
                "EventTypes",
                format!("the BMC sends no '{unknown}' events, only {}", known.join(", ")),
            )),
        }
    }

    /// What to post.
    pub(super) fn body(&self) -> Value {
        self.body.clone().into()
    }

    /// What to post to a BMC that knows no kinds of events: they were taken out of the standard.
    pub(super) fn body_without_events(&self) -> Value {
        let mut body = self.body.clone();
        body.remove("EventTypes");
        body.into()
    }

    /// Whether `subscription` is this one.
    pub(super) fn is(&self, subscription: &Resource) -> bool {
        ["Destination", "Context"].iter().all(|key| subscription.at(key) == self.body.get(*key))
    }

    /// The text without the values of headers, which may be secrets.
    pub(super) fn masked(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let headers = self.body.get("HttpHeaders").and_then(Value::as_array).into_iter().flatten();
        let values = headers.filter_map(Value::as_object).flat_map(Map::values);
        for value in values.filter_map(Value::as_str).filter(|value| value.len() > 3) {
            text = text.replace(value, "******");
        }
        text
    }
}

/// A subscription as callers are shown it: without headers, which may hold secrets.
pub(super) fn shown(subscription: &Value) -> Value {
    let keys = SHOWN.iter();
    let known = keys.filter_map(|key| Some(((*key).to_owned(), subscription.get(*key)?.clone())));
    Value::Object(known.collect())
}

/// The `id` argument.
pub(super) fn id(arguments: &Map<String, Value>) -> Result<&str, Error> {
    match text(arguments, "id")? {
        Some(id) if !id.is_empty() => Ok(id),
        Some(_) | None => {
            Err(Error::missing("id", "say which subscription; get_all_subscriptions lists them"))
        }
    }
}

fn destination(value: Option<&Value>) -> Result<&str, Error> {
    let wrong = |why: &str| Err(Error::invalid("Destination", why));
    let url = match value {
        None | Some(Value::Null) => {
            return Err(Error::missing(
                "Destination",
                "say where events are sent to, such as https://events.example/redfish",
            ));
        }
        Some(Value::String(url)) => url,
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            return wrong("it must be a string");
        }
    };
    let rest = ["http://", "https://"].iter().find_map(|scheme| {
        let start = url.get(..scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then(|| &url[scheme.len()..])
    });
    let Some(rest) = rest else { return wrong("it must be a URL with http or https") };
    if url.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return wrong("a URL has no blanks in it");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() || host.starts_with(':') {
        return wrong("it names no host");
    }
    Ok(url)
}

fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, Error> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(Error::invalid(name, "it must be a string"))
        }
    }
}

fn events(arguments: &Map<String, Value>) -> Result<Option<Value>, Error> {
    match arguments.get("EventTypes") {
        None | Some(Value::Null) => Ok(None),
        Some(value @ Value::Array(items)) if items.iter().all(Value::is_string) => {
            Ok(Some(value.clone()))
        }
        Some(_) => Err(Error::invalid("EventTypes", "it must be a list of strings")),
    }
}

fn headers(arguments: &Map<String, Value>) -> Result<Option<Value>, Error> {
    match arguments.get("HttpHeaders") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) if items.is_empty() => Ok(None),
        Some(value @ Value::Array(items)) if items.iter().all(Value::is_object) => {
            Ok(Some(value.clone()))
        }
        Some(_) => {
            Err(Error::invalid("HttpHeaders", "it must be a list of objects, one header in each"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(arguments: Value) -> Result<Wanted, String> {
        let arguments = arguments.as_object().expect("an object").clone();
        Wanted::parse(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_posted() {
        let plain = parse(json!({"Destination": "https://h/e"})).unwrap();
        assert_eq!(
            plain.body(),
            json!({"Destination": "https://h/e", "Protocol": "Redfish", "Context": "",
                   "EventTypes": ["Alert"]})
        );
        assert_eq!(plain.body_without_events().get("EventTypes"), None);
        let full = json!({"Destination": "http://h:1", "Protocol": "SNMPv2c", "Context": "c",
            "EventTypes": ["StatusChange"], "HttpHeaders": [{"Authorization": "Bearer hunter2"}]});
        let wanted = parse(full.clone()).unwrap();
        assert_eq!(wanted.body(), full);
        assert_eq!(wanted.masked("no Bearer hunter2!"), "no ******!");
    }

    #[test]
    fn mistakes_are_named() {
        for (arguments, key, words) in [
            (json!({}), "Destination", "where"),
            (json!({"Destination": 5}), "Destination", "string"),
            (json!({"Destination": "h/e"}), "Destination", "http"),
            (json!({"Destination": "ftp://h/e"}), "Destination", "http"),
            (json!({"Destination": "https:///e"}), "Destination", "host"),
            (json!({"Destination": "https://h/a b"}), "Destination", "blank"),
            (json!({"Destination": "é"}), "Destination", "http"),
            (json!({"Destination": "https://h", "Context": 1}), "Context", "string"),
            (json!({"Destination": "https://h", "Protocol": []}), "Protocol", "string"),
            (json!({"Destination": "https://h", "EventTypes": "Alert"}), "EventTypes", "list"),
            (json!({"Destination": "https://h", "HttpHeaders": {}}), "HttpHeaders", "list"),
            (json!({"Destination": "https://h", "HttpHeaders": ["a"]}), "HttpHeaders", "object"),
        ] {
            let error = parse(arguments.clone()).err().expect("a mistake");
            assert!(error.contains(key) && error.contains(words), "{arguments}: {error}");
        }
        assert!(id(&Map::new()).is_err());
        assert!(id(json!({"id": ""}).as_object().unwrap()).is_err());
        assert_eq!(id(json!({"id": "7"}).as_object().unwrap()).unwrap(), "7");
    }

    #[test]
    fn events_are_those_the_service_sends() {
        let service = |types: Value| Resource {
            path: String::new(),
            etag: None,
            body: json!({"EventTypesForSubscription": types}),
        };
        let wanted = parse(json!({"Destination": "https://h", "EventTypes": ["Beep"]})).unwrap();
        assert!(wanted.check_events(&service(json!(["Alert", "Beep"]))).is_ok());
        assert!(wanted.check_events(&service(Value::Null)).is_ok());
        let error = wanted.check_events(&service(json!(["Alert"]))).unwrap_err().to_string();
        assert!(error.contains("'Beep'") && error.contains("Alert"), "{error}");
        let usual = parse(json!({"Destination": "https://h"})).unwrap();
        assert!(usual.check_events(&service(json!(["StatusChange"]))).is_ok());
    }

    #[test]
    fn what_is_shown() {
        let subscription = json!({"@odata.id": "/s/1", "Id": "1", "Destination": "https://h",
            "HttpHeaders": [{"A": "secret"}], "EventTypes": ["Alert"], "Name": "n"});
        assert_eq!(
            shown(&subscription),
            json!({"Id": "1", "Destination": "https://h", "EventTypes": ["Alert"]})
        );
    }
}
