// SPDX-License-Identifier: Apache-2.0
//! HTTP requests to a simulated BMC: applies fault rules, then calls the Redfish service.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;

use crate::faults::RequestTermination;
use crate::listener::{ConnectionClosed, HandlerResult};
use crate::redfish_service::{self, RedfishErrorResponse, RedfishRequest, RedfishResponse};
use crate::simulated_bmc::SimulatedBmc;

/// Limit for request bodies.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// Handles one request.
pub(crate) async fn handle(bmc: Arc<SimulatedBmc>, request: Request<Incoming>) -> HandlerResult {
    let (head, body) = request.into_parts();
    let faults =
        bmc.fleet.faults.evaluate(bmc.index, head.method.as_str(), head.uri.path(), bmc.now());
    if !bmc.is_reachable() {
        return Err(ConnectionClosed);
    }
    let delay = faults.delay + bmc.response_latency();
    if delay > Duration::ZERO {
        tokio::time::sleep(delay).await;
    }
    match faults.termination {
        None => {}
        Some(RequestTermination::Drop) => return Err(ConnectionClosed),
        Some(RequestTermination::Hang) => return pending().await,
        Some(RequestTermination::RestartBmc(duration)) => {
            bmc.with_model(|machine, now| machine.restart_bmc_for(now, duration));
            return Err(ConnectionClosed);
        }
        Some(RequestTermination::Status { code, retry_after }) => {
            let mut response =
                redfish_service::error_response(&RedfishErrorResponse::with_status(code), true);
            if let Some(seconds) = retry_after {
                response.headers.push((header::RETRY_AFTER, HeaderValue::from(seconds)));
            }
            return Ok(into_http_response(response));
        }
    }
    let body = match head.method {
        Method::GET | Method::HEAD => Bytes::new(),
        _ => match Limited::new(body, MAX_BODY_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return Ok(into_http_response(redfish_service::error_response(
                    &RedfishErrorResponse::too_large(),
                    true,
                )));
            }
            Err(_) => return Err(ConnectionClosed),
        },
    };
    let mut response = bmc.handle_redfish(RedfishRequest {
        method: &head.method,
        path: head.uri.path(),
        authorization: header_text(&head.headers, "authorization"),
        token: header_text(&head.headers, "x-auth-token"),
        if_match: header_text(&head.headers, "if-match"),
        body: &body,
        now: bmc.now(),
        rejects_credentials: faults.rejects_credentials,
        power_stuck: faults.power_stuck,
    });
    if faults.truncates_body {
        response.body = response.body.slice(..response.body.len() / 2);
    }
    Ok(into_http_response(response))
}

fn into_http_response(redfish: RedfishResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(redfish.body));
    *response.status_mut() = redfish.status;
    response.headers_mut().extend(redfish.headers);
    response
}

fn header_text<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}
