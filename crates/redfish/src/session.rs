// SPDX-License-Identifier: Apache-2.0
//! Being let in: sessions, basic authentication, and logging in again when a session has ended.
//!
//! BMCs have between 4 and 16 sessions for everybody, so a client holds one, makes it once however
//! many requests want it, and gives it back when closed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::HeaderValue;
use http::{Method, StatusCode};
use serde_json::json;

use crate::exchange::{Call, Reply};
use crate::login::Ticket;
use crate::refusal::Refusal;
use crate::{Auth, Client, Error, Resource, path};

/// Messages with which BMCs turn down a login although the status says something else (iLO
/// answers 400).
const WRONG_CREDENTIALS: [&str; 3] =
    ["UnauthorizedLoginAttempt", "InvalidCredentials", "ResourceAtUriUnauthorized"];

impl Client {
    /// What to show with the next request; nothing if there is no user name.
    pub(crate) async fn ticket(&self) -> Result<Option<Arc<Ticket>>, Error> {
        if self.shared.endpoint.username.is_none() {
            return Ok(None);
        }
        match self.shared.login.current() {
            Some(ticket) => Ok(Some(ticket)),
            None => self.enter(None).await.map(Some),
        }
    }

    /// A ticket in the place of one that was not accepted; `None` if no other can be had.
    pub(crate) async fn renewed(&self, stale: &Arc<Ticket>) -> Result<Option<Arc<Ticket>>, Error> {
        let ticket = self.enter(Some(Arc::clone(stale))).await?;
        let is_other = match (&*ticket, &**stale) {
            // The second of these is a session that ended, on a BMC that gives no more of them.
            (Ticket::Session { .. }, _) | (Ticket::Basic { .. }, Ticket::Session { .. }) => true,
            (Ticket::Basic { .. }, Ticket::Basic { .. }) => false,
        };
        Ok(is_other.then_some(ticket))
    }

    /// Whether the answer says that the ticket is worth nothing any more.
    pub(crate) fn should_renew(&self, ticket: &Ticket, call: &Call<'_>, reply: &Reply) -> bool {
        match (ticket, reply.status) {
            (
                Ticket::Session { .. } | Ticket::Basic { settled: false, .. },
                StatusCode::UNAUTHORIZED,
            ) => true,
            (Ticket::Session { .. }, StatusCode::FORBIDDEN) => {
                !self.shared.login.is_forbidden(&call.line())
            }
            (Ticket::Session { .. } | Ticket::Basic { .. }, _) => false,
        }
    }

    /// Learns from a 403 to a brand-new session that the BMC means it.
    pub(crate) fn note_forbidden(&self, call: &Call<'_>, reply: &Reply) {
        if reply.status == StatusCode::FORBIDDEN {
            self.shared.login.forbid(call.line());
        }
    }

    /// The answer, unless it says that we are nobody.
    pub(crate) fn admitted(&self, ticket: Option<&Ticket>, reply: Reply) -> Result<Reply, Error> {
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        // With a session the password was good a moment ago: it is only this that is not for us.
        if let Some(Ticket::Basic { .. }) = ticket {
            self.shared.login.reject();
        }
        Err(self.unauthorized())
    }

    /// Shows the BMC our user name and password at the next request even if it rejected them a
    /// short while ago: somebody may have put it right there.
    pub fn try_again(&self) {
        self.shared.login.forget_rejection();
    }

    /// Logs out, as well as it can be done: a BMC that does not answer forgets the session itself
    /// in time. The client can go on being used, and logs in again if it is.
    pub async fn close(&self) {
        let _door = self.shared.login.door.lock().await;
        if let Some(ticket) = self.shared.login.set(None) {
            self.log_out(&ticket).await;
        }
    }

    /// A ticket other than `stale`: the one somebody has got meanwhile, or a new one.
    ///
    /// It is got in a task of its own, which goes on if the caller gives up: a session that is
    /// being opened then is the client's, and not one that nobody knows of.
    async fn enter(&self, stale: Option<Arc<Ticket>>) -> Result<Arc<Ticket>, Error> {
        let client = self.clone();
        let entering = tokio::spawn(async move {
            let login = &client.shared.login;
            let _door = login.door.lock().await;
            let is_stale =
                |ticket: &Arc<Ticket>| stale.as_ref().is_some_and(|old| Arc::ptr_eq(old, ticket));
            if let Some(current) = login.current().filter(|current| !is_stale(current)) {
                return Ok(current);
            }
            login.set(None);
            if let Some(stale) = &stale {
                // A session that was refused may live on, and there are few.
                client.log_out(stale).await;
            }
            if login.is_rejected(client.patience.after_rejection) {
                return Err(client.unauthorized());
            }
            let entered = client.log_in().await;
            match &entered {
                Ok(Ticket::Session { .. }) => login.forget_rejection(),
                Err(Error::Unauthorized { .. }) => login.reject(),
                // Of user name and password it is not known yet; other errors say nothing of them.
                Ok(Ticket::Basic { .. }) | Err(_) => {}
            }
            let ticket = Arc::new(entered?);
            login.set(Some(Arc::clone(&ticket)));
            Ok(ticket)
        });
        let gone = |_| Err(Error::Closed { address: self.shared.endpoint.address.clone() });
        entering.await.unwrap_or_else(gone)
    }

    async fn log_out(&self, ticket: &Ticket) {
        let Ticket::Session { location: Some(location), .. } = ticket else { return };
        let call = Call::plain(Method::DELETE, location);
        if let Err(error) = self.repeated(&call, Some(ticket)).await {
            tracing::debug!(%error, "session was not closed");
        }
    }

    async fn log_in(&self) -> Result<Ticket, Error> {
        match self.shared.endpoint.auth {
            Auth::Basic => Ok(self.basic(true)),
            Auth::Session => {
                let door = self.door().await?;
                self.open_session(&door.path).await?.map_err(|none| match none {
                    NoSession::Rejected | NoSession::Unknown => self.unauthorized(),
                    NoSession::Refused(status, refusal) => self.no_session(format!(
                        "it answers {}: {}",
                        status.as_u16(),
                        refusal.message
                    )),
                    NoSession::NoToken => self.no_session("it answers without a token".to_owned()),
                })
            }
            Auth::Auto => {
                let door = self.door().await?;
                if door.said == Said::Nothing {
                    return Ok(self.basic(true));
                }
                match self.open_session(&door.path).await? {
                    Ok(session) => Ok(session),
                    Err(NoSession::Rejected) => Err(self.unauthorized()),
                    // Where sessions are made is certain, so it is us who are wrong.
                    Err(NoSession::Unknown) if door.said == Said::Where => Err(self.unauthorized()),
                    Err(none) => Ok(self.basic(none.is_final())),
                }
            }
        }
    }

    fn unauthorized(&self) -> Error {
        Error::Unauthorized { address: self.shared.endpoint.address.clone() }
    }

    fn no_session(&self, why: String) -> Error {
        Error::NoSession { address: self.shared.endpoint.address.clone(), why }
    }

    fn basic(&self, settled: bool) -> Ticket {
        let endpoint = &self.shared.endpoint;
        let username = endpoint.username.as_deref().unwrap_or_default();
        let password = endpoint.password.as_deref().unwrap_or_default();
        let encoded = STANDARD.encode(format!("{username}:{password}"));
        let mut header = HeaderValue::from_str(&format!("Basic {encoded}"))
            .expect("base64 is made of visible characters");
        header.set_sensitive(true);
        Ticket::Basic { header, settled }
    }

    /// Asks for a session. That the BMC gives none is no error yet; that it does not answer is.
    async fn open_session(&self, sessions: &str) -> Result<Result<Ticket, NoSession>, Error> {
        let endpoint = &self.shared.endpoint;
        let password = endpoint.password.as_deref().unwrap_or_default();
        let body = json!({"UserName": endpoint.username, "Password": password});
        let secrets = [password];
        let call = Call {
            body: Some(Bytes::from(body.to_string())),
            secrets: &secrets,
            ..Call::plain(Method::POST, sessions)
        };
        let reply = self.repeated(&call, None).await?;
        if reply.status == StatusCode::UNAUTHORIZED {
            return Ok(Err(NoSession::Unknown));
        }
        if !reply.status.is_success() {
            let refusal = Refusal::read(&reply.body, &secrets);
            return Ok(Err(if names_wrong_credentials(&refusal) {
                NoSession::Rejected
            } else {
                NoSession::Refused(reply.status, refusal)
            }));
        }
        let Some(token) = reply.token() else { return Ok(Err(NoSession::NoToken)) };
        let named = crate::body::parse(&reply.body).ok();
        let location = reply
            .location()
            .or_else(|| named.as_ref()?.get("@odata.id")?.as_str())
            .map(|location| path::local(&endpoint.root, location));
        Ok(Ok(Ticket::Session { token, location }))
    }

    /// Where sessions are made: as the service root says, as its session service says, or where
    /// the standard puts it. None of them needs us to be logged in on most BMCs.
    async fn door(&self) -> Result<Door, Error> {
        let root = &self.shared.endpoint.root;
        let usual = |said| Door { path: format!("{root}SessionService/Sessions"), said };
        let Some(service_root) = self.open_root().await? else {
            return Ok(usual(Said::Unreadable));
        };
        if let Some(sessions) = service_root.link("/Links/Sessions") {
            return Ok(Door { path: path::local(root, sessions), said: Said::Where });
        }
        let Some(service) = service_root.link("/SessionService") else {
            return Ok(usual(Said::Nothing));
        };
        let service = path::local(root, service);
        let call = Call::get(&service);
        let reply = self.repeated(&call, None).await?;
        let sessions = Resource::of(reply, &call).ok().and_then(|service| {
            service.link("/Sessions").map(|sessions| path::local(root, sessions))
        });
        let path =
            sessions.unwrap_or_else(|| format!("{}/Sessions", service.trim_end_matches('/')));
        Ok(Door { path, said: Said::Where })
    }
}

/// Where sessions are made.
struct Door {
    path: String,
    said: Said,
}

/// What the service root says about where sessions are made.
#[derive(PartialEq, Eq)]
enum Said {
    /// Where.
    Where,
    /// Nothing: there are none. sushy-emulator answers 401 to asking for one all the same.
    Nothing,
    /// The root is for known users only.
    Unreadable,
}

/// Why there is no session.
enum NoSession {
    /// It knows that the user name or the password is wrong.
    Rejected,
    /// It does not know us, or wants to know us before it says so.
    Unknown,
    Refused(StatusCode, Refusal),
    /// It says that there is one, and does not say how to use it.
    NoToken,
}

impl NoSession {
    /// Whether it will be the same the next time.
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

fn names_wrong_credentials(refusal: &Refusal) -> bool {
    refusal
        .code
        .iter()
        .filter_map(|id| id.rsplit('.').next())
        .any(|message| WRONG_CREDENTIALS.contains(&message))
}
