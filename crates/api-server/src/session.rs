// SPDX-License-Identifier: Apache-2.0
//! Signing in to the web page.
//!
//! The page gives user and password once and gets a cookie that scripts cannot read. What is in the
//! cookie is sealed with the store's key: who it is, until when, and the hash of the password it was
//! given for. So every replica that shares the database knows it without being told, and a changed
//! password or a removed user ends it. Signing out is remembered in memory only: another replica would
//! still take the cookie, if somebody had kept it, until its time is over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CACHE_CONTROL, SET_COOKIE};
use http::{HeaderValue, Method, StatusCode};
use ironic_wire::{WireError, parse_object};
use node_model::{Secret, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Store;
use uuid::Uuid;

use crate::auth::{AuthError, Authenticator, Identity};
use crate::call::Call;
use crate::handler;
use crate::kept;
use crate::page_headers::SESSION_COOKIE;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::routes::{Access, Route, UNVERSIONED};

/// How long a sign-in lasts: a working day.
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// What tokens are sealed for, so that nothing else that is sealed passes for one.
const OWNER: Uuid = Uuid::from_u128(0x6665_7272_6974_655f_7365_7373_696f_6e73);
/// Longer than any token of ours.
const LONGEST_TOKEN: usize = 2048;

const SESSION: &str = "/ui/session";

pub(crate) const ROUTES: &[Route] = &[
    Route::get(SESSION, "Say who is signed in to the web page", handler!(show))
        .since(UNVERSIONED)
        .access(Access::Public),
    Route::new(Method::POST, SESSION, "Sign in to the web page", handler!(sign_in))
        .since(UNVERSIONED)
        .access(Access::Public),
    Route::new(Method::DELETE, SESSION, "Sign out of the web page", handler!(sign_out))
        .since(UNVERSIONED)
        .access(Access::Public),
];

/// Knows which tokens are good.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Tokens that were signed out, until when they would have been good.
    ended: Mutex<HashMap<String, Timestamp>>,
}

/// What a token says.
#[derive(Serialize, Deserialize)]
struct Token {
    user: String,
    until: Timestamp,
    hash: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    username: String,
    password: String,
}

impl Sessions {
    /// A token for a user who has just shown the password with this hash.
    fn issue(store: &Store, user: &str, hash: String, now: Timestamp) -> String {
        let token = Token { user: user.to_owned(), until: now.plus(LIFETIME), hash };
        let plain = json!(token).to_string();
        URL_SAFE_NO_PAD.encode(store.seal(OWNER, plain.as_bytes()))
    }

    /// Who a token stands for.
    pub(crate) fn identify(
        &self,
        token: &str,
        store: &Store,
        authenticator: &Authenticator,
        now: Timestamp,
    ) -> Option<Identity> {
        let opened = open(token, store)?;
        let is_good = opened.until > now
            && authenticator.hash_of(&opened.user).as_ref() == Some(&opened.hash)
            && !self.ended().contains_key(token);
        is_good.then(|| Identity::User(Arc::from(opened.user)))
    }

    /// Makes a token worthless.
    fn end(&self, token: &str, store: &Store, now: Timestamp) {
        if let Some(Token { until, .. }) = open(token, store) {
            let mut ended = self.ended();
            ended.retain(|_, until| *until > now);
            ended.insert(token.to_owned(), until);
        }
    }

    fn ended(&self) -> std::sync::MutexGuard<'_, HashMap<String, Timestamp>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(token: &str, store: &Store) -> Option<Token> {
    if token.len() > LONGEST_TOKEN {
        return None;
    }
    let sealed = URL_SAFE_NO_PAD.decode(token).ok()?;
    let plain = store.unseal(OWNER, &sealed).ok()?;
    serde_json::from_slice(&plain).ok()
}

async fn show(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    let app = &call.app;
    let identity = call.page.session.as_ref().and_then(|token| {
        app.sessions.identify(token.reveal(), &app.store, &app.authenticator, call.now())
    });
    Ok(told(app.authenticator.is_needed(), identity.as_ref().and_then(Identity::name)))
}

async fn sign_in(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    only_from_the_page(&call)?;
    let body = Value::Object(parse_object(&call.body, "session")?);
    let Ok(Credentials { username, password }) = serde_json::from_value(body) else {
        return Err(WireError::invalid("Give username and password, both texts.").into());
    };
    let app = &call.app;
    if !app.authenticator.is_needed() {
        return Ok(told(false, None));
    }
    let password = Secret::new(password);
    let hash = match app.authenticator.check_password(username.clone(), password).await {
        Ok(hash) => hash,
        Err(error) => return Ok(refused(error)),
    };
    let token = Sessions::issue(&app.store, &username, hash, call.now());
    tracing::info!(user = %username, "signed in to the web page");
    Ok(with_cookie(told(true, Some(&username)), &call, &token, LIFETIME))
}

async fn sign_out(call: Call) -> Result<Reply, Refusal> {
    kept::only_query(&call, &[])?;
    only_from_the_page(&call)?;
    if let Some(token) = &call.page.session {
        call.app.sessions.end(token.reveal(), &call.app.store, call.now());
    }
    Ok(with_cookie(told(call.app.authenticator.is_needed(), None), &call, "", Duration::ZERO))
}

/// Nobody else may sign a browser in or out.
fn only_from_the_page(call: &Call) -> Result<(), WireError> {
    if call.page.is_page {
        return Ok(());
    }
    Err(WireError::new(
        403,
        "Only the web page signs in here: the header X-Ferrite-Page is missing.",
    ))
}

fn told(needed: bool, user: Option<&str>) -> Reply {
    let body: Value = json!({"needed": needed, "user": user});
    Reply::ok(body.to_string().into_bytes())
        .with_header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
}

/// A refusal that does not make the browser ask in a window of its own.
fn refused(error: AuthError) -> Reply {
    let mut reply = error.into_reply();
    if reply.status == StatusCode::UNAUTHORIZED {
        reply.headers.clear();
    }
    reply
}

fn with_cookie(reply: Reply, call: &Call, token: &str, lasts: Duration) -> Reply {
    let secure = if call.base_url.starts_with("https://") { "; Secure" } else { "" };
    let cookie = format!(
        "{SESSION_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}{secure}",
        lasts.as_secs()
    );
    let cookie = HeaderValue::try_from(cookie).expect("base64 is a valid header value");
    reply.with_header(SET_COOKIE, cookie)
}
