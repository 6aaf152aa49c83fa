// SPDX-License-Identifier: Apache-2.0
//! One HTTP request to a simulated BMC: what goes wrong with it, and its answer.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;

use crate::bmc::Bmc;
use crate::faults::End;
use crate::listener::{Closed, Outcome};
use crate::redfish::{self, Answer, Asked, Refusal};

/// No request a BMC understands is larger.
const LARGEST_BODY: usize = 1024 * 1024;

/// Answers a request, or not.
pub(crate) async fn handle(bmc: Arc<Bmc>, request: Request<Incoming>) -> Outcome {
    let (head, body) = request.into_parts();
    let verdict =
        bmc.shared.faults.verdict(bmc.index, head.method.as_str(), head.uri.path(), bmc.now());
    if !bmc.answers() {
        return Err(Closed);
    }
    let slowness = verdict.delay + bmc.slowness();
    if slowness > Duration::ZERO {
        tokio::time::sleep(slowness).await;
    }
    match verdict.end {
        None => {}
        Some(End::Drop) => return Err(Closed),
        Some(End::Hang) => return pending().await,
        Some(End::Restart(how_long)) => {
            bmc.with(|machine, now| machine.keep_bmc_away(now, how_long));
            return Err(Closed);
        }
        Some(End::Status { code, retry_after }) => {
            let mut answer = redfish::refused(&Refusal::with_status(code), true);
            if let Some(seconds) = retry_after {
                answer.headers.push((header::RETRY_AFTER, HeaderValue::from(seconds)));
            }
            return Ok(response(answer));
        }
    }
    let body = match head.method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => match Limited::new(body, LARGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return Ok(response(redfish::refused(&Refusal::too_large(), true)));
            }
            Err(_) => return Err(Closed),
        },
    };
    let mut answer = bmc.answer(Asked {
        method: &head.method,
        path: head.uri.path(),
        authorization: text(&head.headers, "authorization"),
        token: text(&head.headers, "x-auth-token"),
        if_match: text(&head.headers, "if-match"),
        body: &body,
        now: bmc.now(),
        refuses_everybody: verdict.refuses_everybody,
        power_is_stuck: verdict.power_is_stuck,
    });
    if verdict.garbles_json {
        answer.body = answer.body.slice(..answer.body.len() / 2);
    }
    Ok(response(answer))
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    response.headers_mut().extend(answer.headers);
    response
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
