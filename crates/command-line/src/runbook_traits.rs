// SPDX-License-Identifier: Apache-2.0
//! The traits of runbooks, which say on which machines they may run. They have a place of their own in
//! the API; people write them beside the other fields, and all of it is done or nothing.

use ironic_client::{Api, ApiError, Method, Version, segment};
use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// What they are called among the fields.
pub(crate) const FIELD: &str = "traits";
/// Since when runbooks have them; before, the name of a runbook is its trait.
const SINCE: Version = Version(112);

/// What is wrong with the traits of a runbook that is to be made, if something is.
pub(crate) fn problem_in(body: &Map<String, Value>) -> Option<&'static str> {
    let traits = body.get(FIELD)?;
    let is_list = traits.as_array().is_some_and(|all| all.iter().all(Value::is_string));
    (!is_list).then_some("traits must be a list of texts, such as [CUSTOM_UPDATE]")
}

/// Makes a runbook with its traits. One that cannot have them is taken away again.
pub(crate) async fn create(
    api: &Api,
    place: &str,
    mut body: Map<String, Value>,
) -> Result<Value, Failure> {
    let traits = body.remove(FIELD).filter(|traits| *traits != json!([]));
    let mut made = api.send(Method::POST, place, Some(&Value::Object(body))).await?;
    let Some(traits) = traits else { return Ok(made) };
    if api.version() < SINCE && traits == json!([made["name"]]) {
        return Ok(made);
    }
    let path = format!("{place}/{}", segment(made["uuid"].as_str().unwrap_or_default()));
    if let Err(failure) = put(api, &path, &traits).await {
        // What cannot be taken away either is seen in the list.
        let _ = api.send(Method::DELETE, &path, None).await;
        return Err(failure);
    }
    made[FIELD] = traits;
    Ok(made)
}

/// Changes the traits of a runbook, and then the rest of it. If the rest is refused, the traits are as
/// they were.
pub(crate) async fn change(
    api: &Api,
    path: &str,
    traits: &Value,
    operations: &[Value],
) -> Result<Value, Failure> {
    let before = api.get(path).await?;
    put(api, path, traits).await?;
    let changed = match operations {
        [] => api.get(path).await,
        _ => api.patch(path, operations).await,
    };
    // What a lost answer said is not known, and so not undone.
    let is_refused = |error: &ApiError| !error.is_unanswered();
    if changed.as_ref().is_err_and(is_refused) && before[FIELD].is_array() {
        // What cannot be put back either is seen in the runbook.
        let _ = put(api, path, &before[FIELD]).await;
    }
    Ok(changed?)
}

async fn put(api: &Api, path: &str, traits: &Value) -> Result<(), Failure> {
    let (path, body) = (format!("{path}/traits"), json!({ FIELD: traits }));
    match api.send(Method::PUT, &path, Some(&body)).await {
        Ok(_) => Ok(()),
        Err(_) if api.version() < SINCE => Err(Failure::Refused(format!(
            "this server is too old for traits of runbooks ({}): the name of a runbook is its trait",
            api.version()
        ))),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;
    use crate::test_server::{Answer, Asked, server};

    const PLACE: &str = "/v1/runbooks";

    fn body(traits: Value) -> Map<String, Value> {
        let body = json!({"name": "CUSTOM_A", "steps": [], "traits": traits});
        body.as_object().cloned().unwrap_or_default()
    }

    /// Knows one runbook, and refuses the trait `BAD` and every patch.
    fn answer(asked: &Asked) -> Answer {
        let no = || Answer::Json(400, json!({"error_message": "no"}));
        match asked.line.split(' ').next() {
            Some("POST") if asked.body.get("traits").is_some() => no(),
            Some("PUT") if asked.body["traits"] == json!(["BAD"]) => no(),
            Some("PATCH") => no(),
            Some("PUT" | "DELETE") => Answer::Json(204, Value::Null),
            Some(_) | None => {
                Answer::Json(200, json!({"uuid": "u", "name": "CUSTOM_A", "traits": ["OLD"]}))
            }
        }
    }

    #[tokio::test]
    async fn a_runbook_is_made_with_its_traits_or_not_at_all() {
        let (desk, log) = server(answer);
        let made = create(&desk.api, PLACE, body(json!(["CUSTOM_A"]))).await.unwrap();
        assert_eq!(made["traits"], json!(["CUSTOM_A"]));
        let failure = create(&desk.api, PLACE, body(json!(["BAD"]))).await.unwrap_err();
        assert_eq!(failure.code(), Code::Refused);
        create(&desk.api, PLACE, body(json!([]))).await.unwrap();
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
    async fn traits_are_changed_with_the_rest_or_not_at_all() {
        let (told, heard) = std::sync::mpsc::channel();
        let (desk, _) = server(move |asked| {
            let _ = told.send((asked.line.clone(), asked.body.clone()));
            answer(asked)
        });
        change(&desk.api, "/v1/runbooks/u", &json!(["NEW"]), &[]).await.unwrap();
        let patch = [json!({"op": "add", "path": "/public", "value": 7})];
        let failure = change(&desk.api, "/v1/runbooks/u", &json!(["NEW"]), &patch).await;
        assert_eq!(failure.unwrap_err().code(), Code::Refused);
        let put: Vec<Value> = heard
            .try_iter()
            .filter(|(line, _)| line.starts_with("PUT"))
            .map(|(_, body)| body["traits"].clone())
            .collect();
        assert_eq!(put, [json!(["NEW"]), json!(["NEW"]), json!(["OLD"])]);
    }

    /// An Ironic of old takes the name of a runbook for its trait.
    #[tokio::test]
    async fn an_older_server_has_no_traits_of_runbooks() {
        let (desk, log) = server(|asked| match (&*asked.version, asked.line.split(' ').next()) {
            ("1.92", Some("PUT")) => Answer::Json(404, json!({"error_message": "no such path"})),
            ("1.92", _) => Answer::Json(200, json!({"uuid": "u", "name": "CUSTOM_A"})),
            _ => Answer::TooNew("1.92"),
        });
        create(&desk.api, PLACE, body(json!(["CUSTOM_A"]))).await.unwrap();
        let failure = create(&desk.api, PLACE, body(json!(["CUSTOM_B"]))).await.unwrap_err();
        assert_eq!(failure.code(), Code::Refused);
        assert_eq!(log.lock().unwrap().last().unwrap(), "DELETE /v1/runbooks/u");
    }

    #[test]
    fn traits_are_texts() {
        assert_eq!(problem_in(&body(json!(["CUSTOM_A"]))), None);
        assert_eq!(problem_in(&Map::new()), None);
        for wrong in [json!("CUSTOM_A"), json!([1]), json!({"CUSTOM_A": 1})] {
            assert!(problem_in(&body(wrong)).is_some());
        }
    }
}
