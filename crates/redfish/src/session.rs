// SPDX-License-Identifier: Apache-2.0
//! Authentication: sessions, basic authentication, and renewal of ended sessions.
//!
//! BMCs allow only 4 to 16 sessions in total, so a client holds one, opens it once for all concurrent
//! requests, and closes it when the client is closed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::HeaderValue;
use http::{Method, StatusCode};
use serde_json::json;

use crate::error_body::RedfishErrorBody;
use crate::exchange::{BmcHttpResponse, OutgoingRequest};
use crate::login::RequestCredentials;
use crate::login_permission::LoginPermission;
use crate::{RedfishAuth, RedfishClient, RedfishError, RedfishResource, path};

/// Message ids of rejected logins on BMCs that return another status than 401 (iLO returns 400).
const WRONG_CREDENTIALS: [&str; 3] =
    ["UnauthorizedLoginAttempt", "InvalidCredentials", "ResourceAtUriUnauthorized"];

impl RedfishClient {
    /// The credentials of the next request; `None` without a user name.
    pub(crate) async fn ticket(&self) -> Result<Option<Arc<RequestCredentials>>, RedfishError> {
        if self.shared.endpoint.username.is_none() {
            return Ok(None);
        }
        match self.shared.login.current() {
            Some(ticket) => Ok(Some(ticket)),
            None => self.obtain_credentials(None).await.map(Some),
        }
    }

    /// Replaces credentials that were rejected; `None` if there are no others.
    pub(crate) async fn renewed(
        &self,
        stale: &Arc<RequestCredentials>,
    ) -> Result<Option<Arc<RequestCredentials>>, RedfishError> {
        let ticket = self.obtain_credentials(Some(Arc::clone(stale))).await?;
        let is_other = match (&*ticket, &**stale) {
            // The second case: the session ended, and the BMC opens no new one.
            (RequestCredentials::Session { .. }, _)
            | (RequestCredentials::Basic { .. }, RequestCredentials::Session { .. }) => true,
            (RequestCredentials::Basic { .. }, RequestCredentials::Basic { .. }) => false,
        };
        Ok(is_other.then_some(ticket))
    }

    /// Returns whether the response means that the credentials are no longer valid.
    pub(crate) fn should_renew(
        &self,
        ticket: &RequestCredentials,
        call: &OutgoingRequest<'_>,
        reply: &BmcHttpResponse,
    ) -> bool {
        match (ticket, reply.status) {
            (
                RequestCredentials::Session { .. }
                | RequestCredentials::Basic { settled: false, .. },
                StatusCode::UNAUTHORIZED,
            ) => true,
            (RequestCredentials::Session { .. }, StatusCode::FORBIDDEN) => {
                !self.shared.login.is_forbidden(&call.line())
            }
            (RequestCredentials::Session { .. } | RequestCredentials::Basic { .. }, _) => false,
        }
    }

    /// Records that a 403 to a new session is final.
    pub(crate) fn record_forbidden(&self, call: &OutgoingRequest<'_>, reply: &BmcHttpResponse) {
        if reply.status == StatusCode::FORBIDDEN {
            self.shared.login.forbid(call.line());
        }
    }

    /// Fails if the response is 401.
    pub(crate) fn reject_unauthorized(
        &self,
        ticket: Option<&RequestCredentials>,
        reply: BmcHttpResponse,
    ) -> Result<BmcHttpResponse, RedfishError> {
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        // A session proves that the password is right, so only this request is forbidden.
        if let Some(RequestCredentials::Basic { .. }) = ticket {
            self.shared.login.reject();
        }
        Err(self.unauthorized())
    }

    /// Makes the next request send the credentials even if the BMC rejected them recently: the
    /// operator may have corrected the account.
    pub fn clear_rejection(&self) {
        self.shared.login.forget_rejection();
    }

    /// Closes the session if the BMC responds; otherwise the BMC ends it after its timeout. The client
    /// remains usable and opens a new session if needed.
    pub async fn close(&self) {
        let _login_guard = self.shared.login.login_lock.lock().await;
        if let Some(ticket) = self.shared.login.set(None) {
            self.log_out(&ticket).await;
        }
    }

    /// Returns credentials other than `stale`: those obtained meanwhile, or new ones.
    ///
    /// The login runs in its own task, which continues if the caller is cancelled, so that an opened
    /// session is always recorded. It sends no further request then: a caller may be cancelled because it
    /// must not command the machine any more.
    async fn obtain_credentials(
        &self,
        stale: Option<Arc<RequestCredentials>>,
    ) -> Result<Arc<RequestCredentials>, RedfishError> {
        let (permission, mut requests) = LoginPermission::new();
        let client = Self { permission: Some(permission), ..self.clone() };
        let entering = tokio::spawn(async move {
            let login = &client.shared.login;
            let _login_guard = login.login_lock.lock().await;
            let is_stale = |ticket: &Arc<RequestCredentials>| {
                stale.as_ref().is_some_and(|old| Arc::ptr_eq(old, ticket))
            };
            if let Some(current) = login.current().filter(|current| !is_stale(current)) {
                return Ok(current);
            }
            login.set(None);
            if let Some(stale) = &stale {
                // The rejected session may still exist on the BMC, and sessions are scarce.
                client.log_out(stale).await;
            }
            if login.is_rejected(client.retry_policy.after_rejection) {
                return Err(client.unauthorized());
            }
            let entered = client.log_in().await;
            match &entered {
                Ok(RequestCredentials::Session { .. }) => login.forget_rejection(),
                Err(RedfishError::Unauthorized { .. }) => login.reject(),
                // Basic credentials are not verified yet; other errors do not concern them.
                Ok(RequestCredentials::Basic { .. }) | Err(_) => {}
            }
            let ticket = Arc::new(entered?);
            login.set(Some(Arc::clone(&ticket)));
            Ok(ticket)
        });
        let gone = |_| Err(RedfishError::Closed { address: self.shared.endpoint.address.clone() });
        requests.grant_until(entering).await.unwrap_or_else(gone)
    }

    async fn log_out(&self, ticket: &RequestCredentials) {
        let RequestCredentials::Session { location: Some(location), .. } = ticket else { return };
        let call = OutgoingRequest::plain(Method::DELETE, location);
        if let Err(error) = self.repeated(&call, Some(ticket)).await {
            tracing::debug!(%error, "session was not closed");
        }
    }

    async fn log_in(&self) -> Result<RequestCredentials, RedfishError> {
        match self.shared.endpoint.auth {
            RedfishAuth::Basic => Ok(self.basic(true)),
            RedfishAuth::Session => {
                let collection = self.session_collection().await?;
                self.open_session(&collection.path).await?.map_err(|none| match none {
                    SessionRefusal::Rejected | SessionRefusal::Unknown => self.unauthorized(),
                    SessionRefusal::Refused(status, refusal) => self.no_session(format!(
                        "it responds with {}: {}",
                        status.as_u16(),
                        refusal.message
                    )),
                    SessionRefusal::NoToken => {
                        self.no_session("its response has no token".to_owned())
                    }
                })
            }
            RedfishAuth::Auto => {
                let collection = self.session_collection().await?;
                if collection.support == SessionSupport::Nothing {
                    return Ok(self.basic(true));
                }
                match self.open_session(&collection.path).await? {
                    Ok(session) => Ok(session),
                    Err(SessionRefusal::Rejected) => Err(self.unauthorized()),
                    // The path is certain, so the credentials are wrong.
                    Err(SessionRefusal::Unknown) if collection.support == SessionSupport::Where => {
                        Err(self.unauthorized())
                    }
                    Err(none) => Ok(self.basic(none.is_final())),
                }
            }
        }
    }

    fn unauthorized(&self) -> RedfishError {
        RedfishError::Unauthorized { address: self.shared.endpoint.address.clone() }
    }

    fn no_session(&self, why: String) -> RedfishError {
        RedfishError::NoSession { address: self.shared.endpoint.address.clone(), why }
    }

    fn basic(&self, settled: bool) -> RequestCredentials {
        let endpoint = &self.shared.endpoint;
        let username = endpoint.username.as_deref().unwrap_or_default();
        let password = endpoint.password.as_deref().unwrap_or_default();
        let encoded = STANDARD.encode(format!("{username}:{password}"));
        let mut header = HeaderValue::from_str(&format!("Basic {encoded}"))
            .expect("base64 is made of visible characters");
        header.set_sensitive(true);
        RequestCredentials::Basic { header, settled }
    }

    /// Opens a session. A refusal is not an error yet; a missing response is.
    async fn open_session(
        &self,
        sessions: &str,
    ) -> Result<Result<RequestCredentials, SessionRefusal>, RedfishError> {
        let endpoint = &self.shared.endpoint;
        let password = endpoint.password.as_deref().unwrap_or_default();
        let body = json!({"UserName": endpoint.username, "Password": password});
        let secrets = [password];
        let call = OutgoingRequest {
            body: Some(Bytes::from(body.to_string())),
            secrets: &secrets,
            ..OutgoingRequest::plain(Method::POST, sessions)
        };
        let reply = self.repeated(&call, None).await?;
        if reply.status == StatusCode::UNAUTHORIZED {
            return Ok(Err(SessionRefusal::Unknown));
        }
        if !reply.status.is_success() {
            let refusal = RedfishErrorBody::read(&reply.body, &secrets);
            return Ok(Err(if names_wrong_credentials(&refusal) {
                SessionRefusal::Rejected
            } else {
                SessionRefusal::Refused(reply.status, refusal)
            }));
        }
        let Some(token) = reply.token() else { return Ok(Err(SessionRefusal::NoToken)) };
        let named = crate::body::parse(&reply.body).ok();
        let location = reply
            .location()
            .or_else(|| named.as_ref()?.get("@odata.id")?.as_str())
            .map(|location| path::local(&endpoint.root, location));
        Ok(Ok(RequestCredentials::Session { token, location }))
    }

    /// Finds the session collection: from the service root, from the session service, or at its
    /// standard path. On most BMCs this needs no credentials.
    async fn session_collection(&self) -> Result<SessionCollection, RedfishError> {
        let root = &self.shared.endpoint.root;
        let usual =
            |support| SessionCollection { path: format!("{root}SessionService/Sessions"), support };
        let Some(service_root) = self.open_root().await? else {
            return Ok(usual(SessionSupport::Unreadable));
        };
        if let Some(sessions) = service_root.link("/Links/Sessions") {
            return Ok(SessionCollection {
                path: path::local(root, sessions),
                support: SessionSupport::Where,
            });
        }
        let Some(service) = service_root.link("/SessionService") else {
            return Ok(usual(SessionSupport::Nothing));
        };
        let service = path::local(root, service);
        let call = OutgoingRequest::get(&service);
        let reply = self.repeated(&call, None).await?;
        let sessions = RedfishResource::of(reply, &call).ok().and_then(|service| {
            service.link("/Sessions").map(|sessions| path::local(root, sessions))
        });
        let path =
            sessions.unwrap_or_else(|| format!("{}/Sessions", service.trim_end_matches('/')));
        Ok(SessionCollection { path, support: SessionSupport::Where })
    }
}

/// The session collection and how it was found.
struct SessionCollection {
    path: String,
    support: SessionSupport,
}

/// What the service root states about sessions.
#[derive(PartialEq, Eq)]
enum SessionSupport {
    /// The path of the session collection.
    Where,
    /// No sessions. sushy-emulator still returns 401 to a POST there.
    Nothing,
    /// The root requires credentials.
    Unreadable,
}

/// Why no session was opened.
enum SessionRefusal {
    /// The message id states that the credentials are wrong.
    Rejected,
    /// 401 without a reason: wrong credentials, or the BMC requires them for this request.
    Unknown,
    Refused(StatusCode, RedfishErrorBody),
    /// A success without a token.
    NoToken,
}

impl SessionRefusal {
    /// Returns whether another attempt would have the same result.
    fn is_final(&self) -> bool {
        match self {
            Self::Refused(status, _) => matches!(
                *status,
                StatusCode::NOT_FOUND
                    | StatusCode::METHOD_NOT_ALLOWED
                    | StatusCode::NOT_IMPLEMENTED
            ),
            Self::Rejected | Self::Unknown | Self::NoToken => true,
        }
    }
}

fn names_wrong_credentials(refusal: &RedfishErrorBody) -> bool {
    refusal
        .code
        .iter()
        .filter_map(|id| id.rsplit('.').next())
        .any(|message| WRONG_CREDENTIALS.contains(&message))
}
