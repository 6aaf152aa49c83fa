// SPDX-License-Identifier: Apache-2.0
//! Event subscriptions: parsing the request, the body for the BMC, and the fields that are returned.
//! Pure functions without I/O.

use drivers::DriverError;
use redfish::RedfishResource;
use serde_json::{Map, Value};

/// The keys of a subscription that are returned to callers.
const VISIBLE_KEYS: &[&str] = &["Id", "Context", "Protocol", "Destination", "EventTypes"];

/// The event types if the request has none.
const DEFAULT_EVENT_TYPES: &[&str] = &["Alert"];

/// A request for a subscription.
#[derive(Clone, PartialEq)]
pub(super) struct EventSubscriptionRequest {
    body: Map<String, Value>,
    /// Whether the request names event types.
    pub(super) has_event_types: bool,
}

impl EventSubscriptionRequest {
    /// Parses the arguments of `create_subscription`.
    pub(super) fn parse(arguments: &Map<String, Value>) -> Result<Self, DriverError> {
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| body.insert(key.to_owned(), value);
        set("Destination", destination(arguments.get("Destination"))?.into());
        set("Protocol", text(arguments, "Protocol")?.unwrap_or("Redfish").into());
        set("Context", text(arguments, "Context")?.unwrap_or_default().into());
        let events = events(arguments)?;
        set("EventTypes", events.clone().unwrap_or_else(|| DEFAULT_EVENT_TYPES.into()));
        if let Some(headers) = headers(arguments)? {
            set("HttpHeaders", headers);
        }
        Ok(Self { body, has_event_types: events.is_some() })
    }

    /// Fails if the service does not support the requested event types.
    pub(super) fn check_event_types(&self, service: &RedfishResource) -> Result<(), DriverError> {
        let known = service.texts("/EventTypesForSubscription");
        if !self.has_event_types || known.is_empty() {
            return Ok(());
        }
        let wanted = self.body.get("EventTypes").and_then(Value::as_array).into_iter().flatten();
        match wanted.filter_map(Value::as_str).find(|wanted| !known.contains(wanted)) {
            None => Ok(()),
            Some(unknown) => Err(DriverError::invalid(
                "EventTypes",
                format!("the BMC sends no '{unknown}' events, only {}", known.join(", ")),
            )),
        }
    }

    /// The body to send.
    pub(super) fn body(&self) -> Value {
        self.body.clone().into()
    }

    /// The body for BMCs without event types, which are deprecated in the standard.
    pub(super) fn body_without_event_types(&self) -> Value {
        let mut body = self.body.clone();
        body.remove("EventTypes");
        body.into()
    }

    /// Whether `subscription` has the destination and context of this request.
    pub(super) fn matches(&self, subscription: &RedfishResource) -> bool {
        ["Destination", "Context"].iter().all(|key| subscription.at(key) == self.body.get(*key))
    }

    /// Masks header values in `text`; they may be secrets.
    pub(super) fn mask_headers(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let headers = self.body.get("HttpHeaders").and_then(Value::as_array).into_iter().flatten();
        let values = headers.filter_map(Value::as_object).flat_map(Map::values);
        for value in values.filter_map(Value::as_str).filter(|value| value.len() > 3) {
            text = text.replace(value, "******");
        }
        text
    }
}

/// The fields that are returned to callers. Headers are omitted because they may hold secrets.
pub(super) fn visible_fields(subscription: &Value) -> Value {
    let keys = VISIBLE_KEYS.iter();
    let known = keys.filter_map(|key| Some(((*key).to_owned(), subscription.get(*key)?.clone())));
    Value::Object(known.collect())
}

/// The `id` argument.
pub(super) fn id(arguments: &Map<String, Value>) -> Result<&str, DriverError> {
    match text(arguments, "id")? {
        Some(id) if !id.is_empty() => Ok(id),
        Some(_) | None => Err(DriverError::missing(
            "id",
            "give the id of a subscription; get_all_subscriptions lists them",
        )),
    }
}

fn destination(value: Option<&Value>) -> Result<&str, DriverError> {
    let wrong = |why: &str| Err(DriverError::invalid("Destination", why));
    let url = match value {
        None | Some(Value::Null) => {
            return Err(DriverError::missing(
                "Destination",
                "give the URL that receives the events, such as https://events.example/redfish",
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
        return wrong("a URL must not contain whitespace");
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    if host.is_empty() || host.starts_with(':') {
        return wrong("it names no host");
    }
    Ok(url)
}

fn text<'a>(arguments: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, DriverError> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(DriverError::invalid(name, "it must be a string"))
        }
    }
}

fn events(arguments: &Map<String, Value>) -> Result<Option<Value>, DriverError> {
    match arguments.get("EventTypes") {
        None | Some(Value::Null) => Ok(None),
        Some(value @ Value::Array(items)) if items.iter().all(Value::is_string) => {
            Ok(Some(value.clone()))
        }
        Some(_) => Err(DriverError::invalid("EventTypes", "it must be a list of strings")),
    }
}

fn headers(arguments: &Map<String, Value>) -> Result<Option<Value>, DriverError> {
    match arguments.get("HttpHeaders") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) if items.is_empty() => Ok(None),
        Some(value @ Value::Array(items)) if items.iter().all(Value::is_object) => {
            Ok(Some(value.clone()))
        }
        Some(_) => Err(DriverError::invalid(
            "HttpHeaders",
            "it must be a list of objects, one header in each",
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(arguments: Value) -> Result<EventSubscriptionRequest, String> {
        let arguments = arguments.as_object().expect("an object").clone();
        EventSubscriptionRequest::parse(&arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn builds_request_bodies() {
        let plain = parse(json!({"Destination": "https://h/e"})).unwrap();
        assert_eq!(
            plain.body(),
            json!({"Destination": "https://h/e", "Protocol": "Redfish", "Context": "",
                   "EventTypes": ["Alert"]})
        );
        assert_eq!(plain.body_without_event_types().get("EventTypes"), None);
        let full = json!({"Destination": "http://h:1", "Protocol": "SNMPv2c", "Context": "c",
            "EventTypes": ["StatusChange"], "HttpHeaders": [{"Authorization": "Bearer hunter2"}]});
        let wanted = parse(full.clone()).unwrap();
        assert_eq!(wanted.body(), full);
        assert_eq!(wanted.mask_headers("no Bearer hunter2!"), "no ******!");
    }

    #[test]
    fn rejects_invalid_arguments() {
        for (arguments, key, text) in [
            (json!({}), "Destination", "URL"),
            (json!({"Destination": 5}), "Destination", "string"),
            (json!({"Destination": "h/e"}), "Destination", "http"),
            (json!({"Destination": "ftp://h/e"}), "Destination", "http"),
            (json!({"Destination": "https:///e"}), "Destination", "host"),
            (json!({"Destination": "https://h/a b"}), "Destination", "whitespace"),
            (json!({"Destination": "é"}), "Destination", "http"),
            (json!({"Destination": "https://h", "Context": 1}), "Context", "string"),
            (json!({"Destination": "https://h", "Protocol": []}), "Protocol", "string"),
            (json!({"Destination": "https://h", "EventTypes": "Alert"}), "EventTypes", "list"),
            (json!({"Destination": "https://h", "HttpHeaders": {}}), "HttpHeaders", "list"),
            (json!({"Destination": "https://h", "HttpHeaders": ["a"]}), "HttpHeaders", "object"),
        ] {
            let error = parse(arguments.clone()).err().expect("a mistake");
            assert!(error.contains(key) && error.contains(text), "{arguments}: {error}");
        }
        assert!(id(&Map::new()).is_err());
        assert!(id(json!({"id": ""}).as_object().unwrap()).is_err());
        assert_eq!(id(json!({"id": "7"}).as_object().unwrap()).unwrap(), "7");
    }

    #[test]
    fn checks_event_types_of_the_service() {
        let service = |types: Value| RedfishResource {
            path: String::new(),
            etag: None,
            body: json!({"EventTypesForSubscription": types}),
        };
        let wanted = parse(json!({"Destination": "https://h", "EventTypes": ["Beep"]})).unwrap();
        assert!(wanted.check_event_types(&service(json!(["Alert", "Beep"]))).is_ok());
        assert!(wanted.check_event_types(&service(Value::Null)).is_ok());
        let error = wanted.check_event_types(&service(json!(["Alert"]))).unwrap_err().to_string();
        assert!(error.contains("'Beep'") && error.contains("Alert"), "{error}");
        let usual = parse(json!({"Destination": "https://h"})).unwrap();
        assert!(usual.check_event_types(&service(json!(["StatusChange"]))).is_ok());
    }

    #[test]
    fn hides_headers() {
        let subscription = json!({"@odata.id": "/s/1", "Id": "1", "Destination": "https://h",
            "HttpHeaders": [{"A": "secret"}], "EventTypes": ["Alert"], "Name": "n"});
        assert_eq!(
            visible_fields(&subscription),
            json!({"Id": "1", "Destination": "https://h", "EventTypes": ["Alert"]})
        );
    }
}
