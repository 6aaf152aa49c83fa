// SPDX-License-Identifier: Apache-2.0
//! Traits of runbooks, which determine on which machines a runbook may run. The API changes them
//! separately; here they are one of the fields, and a change is applied completely or not at all.

use ironic_client::{Api, IronicClientError, Method, Microversion, percent_encode};
use serde_json::{Map, Value, json};

use crate::cli_error::CliError;

/// Name of the field.
pub(crate) const TRAITS_FIELD: &str = "traits";
/// The microversion that added traits of runbooks; before, the name of a runbook is its trait.
const TRAITS_SINCE: Microversion = Microversion(112);

/// Returns what is wrong with the traits of a new runbook.
pub(crate) fn traits_problem(body: &Map<String, Value>) -> Option<&'static str> {
    let traits = body.get(TRAITS_FIELD)?;
    let is_list = traits.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    (!is_list).then_some("traits must be a list of strings, such as [CUSTOM_UPDATE]")
}

/// Creates a runbook with its traits. If the traits are rejected, the runbook is deleted again.
pub(crate) async fn create(
    api: &Api,
    path: &str,
    mut body: Map<String, Value>,
) -> Result<Value, CliError> {
    let traits = body.remove(TRAITS_FIELD).filter(|traits| *traits != json!([]));
    let mut created = api.send(Method::POST, path, Some(&Value::Object(body))).await?;
    let Some(traits) = traits else { return Ok(created) };
    if api.version() < TRAITS_SINCE && traits == json!([created["name"]]) {
        return Ok(created);
    }
    let path = format!("{path}/{}", percent_encode(created["uuid"].as_str().unwrap_or_default()));
    if let Err(failure) = put_traits(api, &path, &traits).await {
        // If this fails as well, the runbook remains visible in the list.
        let _ = api.send(Method::DELETE, &path, None).await;
        return Err(failure);
    }
    created[TRAITS_FIELD] = traits;
    Ok(created)
}

/// Changes the traits of a runbook, then its other fields. If the latter are rejected, the traits are
/// restored.
pub(crate) async fn update(
    api: &Api,
    path: &str,
    traits: &Value,
    operations: &[Value],
) -> Result<Value, CliError> {
    let before = api.get(path).await?;
    put_traits(api, path, traits).await?;
    let changed = match operations {
        [] => api.get(path).await,
        _ => api.patch(path, operations).await,
    };
    // After a lost response the change may have been made, so it is not undone.
    let is_rejected = |error: &IronicClientError| !error.may_have_been_executed();
    if changed.as_ref().is_err_and(is_rejected) && before[TRAITS_FIELD].is_array() {
        // If this fails as well, the traits remain visible in the runbook.
        let _ = put_traits(api, path, &before[TRAITS_FIELD]).await;
    }
    Ok(changed?)
}

async fn put_traits(api: &Api, path: &str, traits: &Value) -> Result<(), CliError> {
    let (path, body) = (format!("{path}/traits"), json!({ TRAITS_FIELD: traits }));
    match api.send(Method::PUT, &path, Some(&body)).await {
        Ok(_) => Ok(()),
        Err(_) if api.version() < TRAITS_SINCE => Err(CliError::Rejected(format!(
            "this server (API {}) is too old for traits of runbooks; the name of a runbook is its trait",
            api.version()
        ))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli_error::CliExitCode;
    use crate::test_server::{TestRequest, TestResponse, start_server};

    const PATH: &str = "/v1/runbooks";

    fn body(traits: Value) -> Map<String, Value> {
        let body = json!({"name": "CUSTOM_A", "steps": [], "traits": traits});
        body.as_object().cloned().unwrap_or_default()
    }

    /// A server with one runbook that rejects the trait `BAD` and every patch.
    fn respond(request: &TestRequest) -> TestResponse {
        let no = || TestResponse::Json(400, json!({"error_message": "no"}));
        match request.line.split(' ').next() {
            Some("POST") if request.body.get("traits").is_some() => no(),
            Some("PUT") if request.body["traits"] == json!(["BAD"]) => no(),
            Some("PATCH") => no(),
            Some("PUT" | "DELETE") => TestResponse::Json(204, Value::Null),
            Some(_) | None => {
                TestResponse::Json(200, json!({"uuid": "u", "name": "CUSTOM_A", "traits": ["OLD"]}))
            }
        }
    }

    #[tokio::test]
    async fn creates_a_runbook_with_its_traits_or_not_at_all() {
        let (context, log) = start_server(respond);
        let created = create(&context.api, PATH, body(json!(["CUSTOM_A"]))).await.unwrap();
        assert_eq!(created["traits"], json!(["CUSTOM_A"]));
        let failure = create(&context.api, PATH, body(json!(["BAD"]))).await.unwrap_err();
        assert_eq!(failure.exit_code(), CliExitCode::Rejected);
        create(&context.api, PATH, body(json!([]))).await.unwrap();
        assert_eq!(
            *log.lock().unwrap(),
            [
                "POST /v1/runbooks",
                "PUT /v1/runbooks/u/traits",
                "POST /v1/runbooks",
                "PUT /v1/runbooks/u/traits",
                "DELETE /v1/runbooks/u",
                "POST /v1/runbooks",
            ]
        );
    }

    #[tokio::test]
    async fn restores_traits_if_other_fields_are_rejected() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (context, _) = start_server(move |request| {
            let _ = sender.send((request.line.clone(), request.body.clone()));
            respond(request)
        });
        update(&context.api, "/v1/runbooks/u", &json!(["NEW"]), &[]).await.unwrap();
        let patch = [json!({"op": "add", "path": "/public", "value": 7})];
        let failure = update(&context.api, "/v1/runbooks/u", &json!(["NEW"]), &patch).await;
        assert_eq!(failure.unwrap_err().exit_code(), CliExitCode::Rejected);
        let put: Vec<Value> = receiver
            .try_iter()
            .filter(|(line, _)| line.starts_with("PUT"))
            .map(|(_, body)| body["traits"].clone())
            .collect();
        assert_eq!(put, [json!(["NEW"]), json!(["NEW"]), json!(["OLD"])]);
    }

    /// With an old Ironic, the name of a runbook is its trait.
    #[tokio::test]
    async fn older_server_rejects_traits_of_runbooks() {
        let (context, log) =
            start_server(|request| match (&*request.version, request.line.split(' ').next()) {
                ("1.92", Some("PUT")) => {
                    TestResponse::Json(404, json!({"error_message": "no such path"}))
                }
                ("1.92", _) => TestResponse::Json(200, json!({"uuid": "u", "name": "CUSTOM_A"})),
                _ => TestResponse::OlderVersion("1.92"),
            });
        create(&context.api, PATH, body(json!(["CUSTOM_A"]))).await.unwrap();
        let failure = create(&context.api, PATH, body(json!(["CUSTOM_B"]))).await.unwrap_err();
        assert_eq!(failure.exit_code(), CliExitCode::Rejected);
        assert_eq!(log.lock().unwrap().last().unwrap(), "DELETE /v1/runbooks/u");
    }

    #[test]
    fn traits_must_be_strings() {
        assert_eq!(traits_problem(&body(json!(["CUSTOM_A"]))), None);
        assert_eq!(traits_problem(&Map::new()), None);
        for wrong in [json!("CUSTOM_A"), json!([1]), json!({"CUSTOM_A": 1})] {
            assert!(traits_problem(&body(wrong)).is_some());
        }
    }
}
