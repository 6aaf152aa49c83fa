// SPDX-License-Identifier: Apache-2.0
//! Authenticates callers with the enabled methods.
//!
//! The form of the credential selects the methods: an API token is looked up in the store, a user name
//! in the htpasswd file and then in the store, a cookie among the sessions. Each method has a module.

mod certificate_user;
mod settings;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use access_policy::{AuthMethod, Caller};
use http::HeaderMap;
use node_model::{AccessScope, IdentitySource, Secret, Timestamp, UserId};
use prometheus_client::registry::Registry;
use store::{Store, StoreClock, StoreError};

use crate::credential_cache::{
    CacheLookup, CredentialCache, CredentialKey, VerifiedAgainst, VerifiedCredential,
};
use crate::credentials::{
    CredentialHeaders, PresentedCredential, presented_credential, requested_scope, service_token,
};
use crate::disabled_projects::DisabledProjects;
use crate::error::{AuthError, AuthSetupError};
use crate::first_user;
use crate::htpasswd::{self, FirstPassword, HtpasswdFile, HtpasswdUsers};
use crate::keystone::KeystoneValidator;
use crate::local_users::{self, PasswordUser};
use crate::openid_connect::{
    self, LoginRedirect, LoginRejection, LoginResponse, OpenIdClientSettings, OpenIdProvider,
    TokenProblem, UnverifiedToken, ValidJwt,
};
use crate::password::{self, DecoyHashes, PasswordError};
use crate::roles::{Principal, UserRights};
use crate::sessions::{
    self, NewSession, SESSION_LIFETIME, SessionError, SessionMethods, ValidSession,
};
use crate::sign_in_events::{CredentialKind, SignInOutcome, SignInRecorder};
use crate::sign_in_queue::SignInLimits;
use crate::token_format::ParsedToken;
use crate::verification::VerificationPool;

pub use settings::{AuthSettings, LocalUserSettings};

/// Longer user names and passwords are rejected without a verification: they would be kept in memory
/// while they wait.
const MAX_USER_BYTES: usize = 256;
const MAX_PASSWORD_BYTES: usize = 1024;

/// Authenticates callers.
pub struct Authenticator {
    htpasswd: Option<HtpasswdFile>,
    has_local_users: bool,
    openid_connect: Option<OpenIdProvider>,
    keystone: Option<KeystoneValidator>,
    store: Store,
    clock: StoreClock,
    /// For tokens that other systems have dated.
    token_clock: StoreClock,
    cache: CredentialCache,
    disabled_projects: DisabledProjects,
    pool: VerificationPool,
    decoys: DecoyHashes,
    recorder: SignInRecorder,
}

/// The result of a sign-in of a browser.
#[derive(Debug)]
pub struct SignedIn {
    /// The value of the session cookie.
    pub cookie: Secret<String>,
    /// The lifetime of the session.
    pub lifetime: Duration,
    /// The caller of requests with this cookie.
    pub caller: Caller,
}

/// A user whose password is verified against a hash.
struct VerifiedPrincipal {
    principal: Arc<Principal>,
    against: VerifiedAgainst,
}

impl Authenticator {
    /// Prepares the enabled methods. If the htpasswd file or the first user is missing, it is created
    /// with a random password, and the second result is the location of the password.
    ///
    /// # Errors
    /// Fails if the user file cannot be read, created or parsed, or the first user cannot be stored.
    pub async fn open(
        settings: &AuthSettings,
        store: Store,
        clock: StoreClock,
    ) -> Result<(Self, Option<FirstPassword>), AuthSetupError> {
        let mut first_password = None;
        let htpasswd = match &settings.htpasswd {
            Some(file) => {
                // With users in the store, the first one is created there.
                let with_first_user = settings.local.is_none();
                let has_other_users = !first_user::has_no_users(&store).await?;
                first_password = htpasswd::ensure(file, with_first_user, has_other_users)?;
                Some(HtpasswdFile::open(file)?)
            }
            None => None,
        };
        if let Some(file) = settings.htpasswd.as_ref().filter(|_| settings.is_htpasswd_only())
            && !htpasswd.as_ref().is_some_and(HtpasswdFile::has_users)
        {
            let file = file.display();
            tracing::warn!(%file, "the htpasswd file has no users, so no user can sign in");
        }
        // With users in the htpasswd file, the operator has created them, or they have an administrator.
        let has_htpasswd_users = htpasswd.as_ref().is_some_and(HtpasswdFile::has_users);
        if let Some(local) = settings.local.as_ref().filter(|_| !has_htpasswd_users) {
            first_password = first_user::ensure(&store, &local.first_password_file).await?;
        }
        let authenticator = Self {
            htpasswd,
            has_local_users: settings.local.is_some(),
            openid_connect: settings.openid_connect.clone().map(OpenIdProvider::new).transpose()?,
            keystone: settings.keystone.clone().map(KeystoneValidator::new).transpose()?,
            ..Self::disabled(store, clock)
        };
        Ok((authenticator, first_password))
    }

    /// Checks the tokens of other systems with the clock of this host, which is synchronised with theirs,
    /// instead of the time of the store.
    #[must_use]
    pub fn with_token_clock(self, token_clock: StoreClock) -> Self {
        Self { token_clock, ..self }
    }

    /// Without methods: every caller may do everything.
    #[must_use]
    pub fn disabled(store: Store, clock: StoreClock) -> Self {
        Self {
            htpasswd: None,
            has_local_users: false,
            openid_connect: None,
            keystone: None,
            recorder: SignInRecorder::new(store.clone()),
            store,
            token_clock: Arc::clone(&clock),
            clock,
            cache: CredentialCache::new(),
            disabled_projects: DisabledProjects::default(),
            pool: VerificationPool::new(SignInLimits::default()),
            decoys: DecoyHashes::default(),
        }
    }

    /// Whether callers have to authenticate.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.htpasswd.is_some() || self.accepts_tokens()
    }

    /// The value of `WWW-Authenticate` for callers without valid credentials.
    #[must_use]
    pub fn challenge(&self) -> String {
        match &self.keystone {
            Some(keystone) if !self.has_passwords() => {
                format!(r#"Keystone uri="{}""#, keystone.url())
            }
            None if !self.has_passwords() => r#"Bearer realm="Baremetal API""#.to_owned(),
            // The text of Ironic's basic authentication.
            Some(_) | None => r#"Basic realm="Baremetal API""#.to_owned(),
        }
    }

    /// Whether users have passwords here.
    fn has_passwords(&self) -> bool {
        self.htpasswd.is_some() || self.has_local_users
    }

    /// Whether an enabled method has tokens.
    fn accepts_tokens(&self) -> bool {
        self.has_local_users || self.openid_connect.is_some() || self.keystone.is_some()
    }

    /// Whether users, projects and tokens of the store are used to authenticate.
    #[must_use]
    pub fn has_local_users(&self) -> bool {
        self.has_local_users
    }

    /// Registers the metrics of sign-ins.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.recorder.register(registry);
    }

    /// The caller of a request with these headers from this address.
    ///
    /// # Errors
    /// Fails if the credentials are missing, malformed or wrong, or cannot be verified now.
    pub async fn identify(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Caller, AuthError> {
        self.identify_with_certificate(headers, None, address).await
    }

    /// The caller of a request over a connection whose client has a verified certificate of this user.
    /// Credentials in the headers take precedence.
    ///
    /// # Errors
    /// Fails if the credentials are missing, malformed or wrong, or cannot be verified now.
    pub async fn identify_with_certificate(
        &self,
        headers: &HeaderMap,
        certificate_user: Option<&str>,
        address: IpAddr,
    ) -> Result<Caller, AuthError> {
        if !self.is_required() {
            return Ok(Caller::anonymous());
        }
        let scope = requested_scope(headers)?;
        let principal = match presented_credential(headers, self.accepts_tokens()) {
            Ok(PresentedCredential::Password { user, password }) => {
                Some(self.check_password(&user, password, address).await?.principal)
            }
            Ok(PresentedCredential::Token(token)) => {
                let service_token = service_token(headers)?;
                Some(self.check_token(&token, service_token.as_ref(), address).await?)
            }
            Ok(PresentedCredential::Session(cookie)) => self.check_session(&cookie).await?,
            Err(AuthError::Missing) => None,
            Err(error) => return Err(error),
        };
        let principal = match (principal, certificate_user) {
            (Some(principal), _) => principal,
            (None, Some(user)) => self.check_certificate_user(user, address).await?,
            (None, None) => return Err(AuthError::Missing),
        };
        self.caller(&principal, scope.as_ref()).await
    }

    /// The caller in a scope. Disabled projects give no roles.
    async fn caller(
        &self,
        principal: &Principal,
        scope: Option<&AccessScope>,
    ) -> Result<Caller, AuthError> {
        if principal.rights == UserRights::Unrestricted {
            return principal.caller(scope);
        }
        let disabled = self.disabled_projects.names(&self.store, Instant::now()).await;
        let disabled = disabled.map_err(|error| unavailable(&error))?;
        principal.enabled_caller(scope, &disabled)
    }

    /// The caller of a session cookie; `None` if the session does not exist.
    ///
    /// # Errors
    /// Fails if the store does not respond.
    pub async fn session_caller(
        &self,
        cookie: &Secret<String>,
    ) -> Result<Option<Caller>, AuthError> {
        match self.check_session(cookie).await? {
            Some(principal) => self.caller(&principal, None).await.map(Some),
            None => Ok(None),
        }
    }

    /// Verifies a password and starts a session in a scope, or in the user's default scope.
    ///
    /// # Errors
    /// Fails if the password is wrong, the user has no role in the scope, or the session cannot be
    /// stored.
    pub async fn sign_in(
        &self,
        user: &str,
        password: Secret<String>,
        scope: Option<AccessScope>,
        address: IpAddr,
    ) -> Result<SignedIn, AuthError> {
        let VerifiedPrincipal { principal, against } =
            self.check_password(user, password, address).await?;
        let caller = self.caller(&principal, scope.as_ref()).await?;
        let (source, password_hash) = match against {
            VerifiedAgainst::Htpasswd { hash } => (IdentitySource::Htpasswd, hash),
            VerifiedAgainst::User { hash } => (IdentitySource::Local, hash),
            VerifiedAgainst::Stored => return Err(AuthError::WrongCredentials),
        };
        let user_id = match source {
            IdentitySource::Local => principal.user_id.parse::<UserId>().ok(),
            IdentitySource::Htpasswd | IdentitySource::OpenIdConnect => None,
        };
        let session = NewSession {
            source,
            user_id,
            user_name: user.to_owned(),
            credential: sessions::password_credential(&password_hash),
            scope,
            address: address.to_canonical().to_string(),
        };
        self.start_session(session, caller).await
    }

    async fn start_session(
        &self,
        session: NewSession,
        caller: Caller,
    ) -> Result<SignedIn, AuthError> {
        let cookie = sessions::create(&self.store, session, self.now()).await;
        let cookie = cookie.map_err(|error| match error {
            SessionError::Random(_) => AuthError::Unavailable,
            SessionError::Store(error) => unavailable(&error),
        })?;
        Ok(SignedIn { cookie, lifetime: SESSION_LIFETIME, caller })
    }

    /// What clients need to know to sign in with the OpenID Connect provider; `None` if it is not
    /// enabled.
    #[must_use]
    pub fn openid_client_settings(&self) -> Option<OpenIdClientSettings<'_>> {
        self.openid_connect.as_ref().map(OpenIdProvider::client_settings)
    }

    /// Starts the sign-in of a browser with the OpenID Connect provider, which sends the browser to
    /// `redirect_uri` afterwards.
    ///
    /// # Errors
    /// Fails if browsers cannot sign in with a provider, or the provider does not respond.
    pub async fn start_openid_login(
        &self,
        redirect_uri: String,
    ) -> Result<LoginRedirect, AuthError> {
        let provider = self.openid_connect.as_ref().ok_or(AuthError::Missing)?;
        provider
            .start_login(&self.store, redirect_uri, (self.token_clock)(), Instant::now())
            .await
            .map_err(login_error)
    }

    /// Completes the sign-in of a browser with the OpenID Connect provider and starts a session.
    ///
    /// # Errors
    /// Fails if the response is not that of a sign-in of this browser, the provider does not respond, or
    /// the session cannot be stored.
    pub async fn finish_openid_login(
        &self,
        response: LoginResponse,
        address: IpAddr,
    ) -> Result<SignedIn, AuthError> {
        let provider = self.openid_connect.as_ref().ok_or(AuthError::Missing)?;
        let token_now = (self.token_clock)();
        let finished =
            provider.finish_login(&self.store, response, token_now, Instant::now()).await;
        let outcome = match &finished {
            Ok(principal) => Some((SignInOutcome::Accepted, &*principal.user_name)),
            Err(LoginRejection::ProviderDown | LoginRejection::Random(_)) => None,
            Err(_) => Some((SignInOutcome::Rejected, "")),
        };
        if let Some((outcome, user)) = outcome {
            self.recorder.record(CredentialKind::OpenIdConnect, outcome, user, address, self.now());
        }
        let principal = finished.map_err(login_error)?;
        let caller = self.caller(&principal, None).await?;
        let session = NewSession {
            source: IdentitySource::OpenIdConnect,
            user_id: None,
            user_name: principal.user_name.to_string(),
            credential: sessions::provider_credential(&principal),
            scope: None,
            address: address.to_canonical().to_string(),
        };
        self.start_session(session, caller).await
    }

    /// Ends a session on all replicas. Others notice after a few seconds.
    ///
    /// # Errors
    /// Fails if the store does not respond.
    pub async fn sign_out(&self, cookie: &Secret<String>) -> Result<(), AuthError> {
        sessions::end(&self.store, cookie.reveal()).await.map_err(|error| unavailable(&error))?;
        self.cache.remove(&self.cache.key("session", "", cookie.reveal()));
        Ok(())
    }

    /// Verifies the password of a user, for changes that need it again.
    ///
    /// # Errors
    /// Fails if the password is wrong.
    pub async fn confirm_password(
        &self,
        user: &str,
        password: Secret<String>,
        address: IpAddr,
    ) -> Result<(), AuthError> {
        self.check_password(user, password, address).await.map(drop)
    }

    /// Hashes a new password, on a blocking thread.
    ///
    /// # Errors
    /// Fails if the password is too short or too long.
    pub async fn hash_password(
        &self,
        password: Secret<String>,
    ) -> Result<Secret<String>, PasswordError> {
        let hashed = tokio::task::spawn_blocking(move || password::hash_password(&password)).await;
        hashed.unwrap_or_else(|error| Err(PasswordError::Hash(error.to_string())))
    }

    /// Compares verified credentials with the store again. Must be called after users, roles, projects,
    /// tokens or sessions changed.
    pub fn expire_verified(&self) {
        self.cache.expire();
        self.disabled_projects.expire();
    }

    /// Whether the credentials of a request still authenticate the same caller with the same rights, for
    /// responses that last longer than a request. True if this cannot be checked now.
    pub async fn is_still(
        &self,
        caller: &Caller,
        credentials: &CredentialHeaders,
        address: IpAddr,
    ) -> bool {
        match caller.method {
            AuthMethod::None | AuthMethod::UnixSocket | AuthMethod::InProcess => true,
            AuthMethod::Htpasswd
            | AuthMethod::Password
            | AuthMethod::ApiToken
            | AuthMethod::Session
            | AuthMethod::OpenIdConnect
            | AuthMethod::Keystone
            | AuthMethod::ClientCertificate => {
                let has_certificate = caller.method == AuthMethod::ClientCertificate;
                let certificate_user = caller.name().filter(|_| has_certificate);
                let headers = credentials.headers();
                match self.identify_with_certificate(headers, certificate_user, address).await {
                    Ok(current) => current == *caller,
                    Err(
                        AuthError::Busy
                        | AuthError::TooManyAttempts
                        | AuthError::Unavailable
                        | AuthError::IdentityServiceDown { .. },
                    ) => true,
                    Err(
                        AuthError::Missing
                        | AuthError::WrongCredentials
                        | AuthError::WrongToken
                        | AuthError::RejectedToken { .. }
                        | AuthError::UnknownCertificateUser
                        | AuthError::UnsupportedScheme
                        | AuthError::Malformed
                        | AuthError::InvalidScope
                        | AuthError::SignInFailed { .. }
                        | AuthError::NoRole { .. },
                    ) => false,
                }
            }
        }
    }

    async fn check_password(
        &self,
        user: &str,
        password: Secret<String>,
        address: IpAddr,
    ) -> Result<VerifiedPrincipal, AuthError> {
        if user.len() > MAX_USER_BYTES || password.reveal().len() > MAX_PASSWORD_BYTES {
            return Err(AuthError::WrongCredentials);
        }
        let key = self.cache.key("password", user, password.reveal());
        let version = self.cache.version();
        let htpasswd = self.htpasswd.as_ref().map(HtpasswdFile::users);
        if let Some(cached) = self.cached_password(&key, user, htpasswd.as_deref()).await? {
            return Ok(cached);
        }
        let expected = self.find_password(user, htpasswd.as_deref()).await?;
        let hash = match &expected {
            Some(found) => found.against.hash().to_owned(),
            None => {
                let costs = htpasswd.as_ref().map(|users| users.costs.as_slice());
                self.decoys.select(user, costs.unwrap_or_default(), self.has_local_users)
            }
        };
        self.recorder.set_waiting(self.pool.waiting());
        let verified = self.pool.verify(address, user, password, hash).await;
        let verified = match (verified, expected) {
            (Ok(true), Some(found)) => Ok(found),
            (Ok(_), _) => Err(AuthError::WrongCredentials),
            (Err(error), _) => Err(error),
        };
        let outcome = match &verified {
            Ok(_) => SignInOutcome::Accepted,
            Err(AuthError::WrongCredentials) => SignInOutcome::Rejected,
            Err(_) => SignInOutcome::Limited,
        };
        self.recorder.record(CredentialKind::Password, outcome, user, address, self.now());
        let verified = verified?;
        self.cache.insert(key, verified.credential(), version, Instant::now());
        Ok(verified)
    }

    /// A password that was verified before and has not changed since.
    async fn cached_password(
        &self,
        key: &CredentialKey,
        user: &str,
        htpasswd: Option<&HtpasswdUsers>,
    ) -> Result<Option<VerifiedPrincipal>, AuthError> {
        let (cached, is_fresh) = match self.cache.find(key, Instant::now()) {
            CacheLookup::Unknown => return Ok(None),
            CacheLookup::Fresh(cached) => (cached, true),
            CacheLookup::Stale(cached) => (cached, false),
        };
        let VerifiedCredential { principal, against, .. } = cached;
        match &against {
            // Compared every time: the file is in memory.
            VerifiedAgainst::Htpasswd { hash } => {
                match htpasswd.and_then(|users| current_principal(users, &principal, hash)) {
                    Some(principal) => Ok(Some(VerifiedPrincipal { principal, against })),
                    None => {
                        self.cache.remove(key);
                        Ok(None)
                    }
                }
            }
            VerifiedAgainst::User { .. } if is_fresh => {
                Ok(Some(VerifiedPrincipal { principal, against }))
            }
            VerifiedAgainst::User { hash } => {
                let version = self.cache.version();
                let found = self.local_user(user).await?.filter(|found| found.hash == *hash);
                let Some(PasswordUser { principal, .. }) = found else {
                    self.cache.remove(key);
                    return Ok(None);
                };
                let current = VerifiedPrincipal { principal: Arc::new(principal), against };
                self.cache.insert(*key, current.credential(), version, Instant::now());
                Ok(Some(current))
            }
            VerifiedAgainst::Stored => Ok(None),
        }
    }

    /// The password hash and the rights of a user: of the htpasswd file, then of the store.
    async fn find_password(
        &self,
        user: &str,
        htpasswd: Option<&HtpasswdUsers>,
    ) -> Result<Option<VerifiedPrincipal>, AuthError> {
        if let Some(entry) = htpasswd.and_then(|users| users.get(user)) {
            return Ok(Some(VerifiedPrincipal {
                principal: Arc::new(entry.principal(user, AuthMethod::Htpasswd)),
                against: VerifiedAgainst::Htpasswd { hash: entry.hash.clone() },
            }));
        }
        let found = self.local_user(user).await?;
        Ok(found.map(|PasswordUser { hash, principal }| VerifiedPrincipal {
            principal: Arc::new(principal),
            against: VerifiedAgainst::User { hash },
        }))
    }

    async fn local_user(&self, user: &str) -> Result<Option<PasswordUser>, AuthError> {
        if !self.has_local_users {
            return Ok(None);
        }
        local_users::find_password_user(&self.store, user)
            .await
            .map_err(|error| unavailable(&error))
    }

    async fn check_token(
        &self,
        token: &Secret<String>,
        service_token: Option<&Secret<String>>,
        address: IpAddr,
    ) -> Result<Arc<Principal>, AuthError> {
        let now = self.now();
        let key = self.cache.key("token", "", token.reveal());
        if let Some(principal) = self.cached_principal(&key, now) {
            return Ok(principal);
        }
        let jwt = UnverifiedToken::parse(token.reveal());
        if let (Some(provider), Some(jwt)) = (&self.openid_connect, &jwt)
            && jwt.is_from(provider.issuer())
        {
            return self.check_jwt(provider, jwt, key, address).await;
        }
        if let Some(keystone) = self.keystone.as_ref().filter(|_| !is_api_token(token)) {
            let instant = Instant::now();
            let host_now = (self.token_clock)();
            let checked =
                keystone.check_token(token, service_token, address, host_now, instant).await;
            let outcome = match &checked {
                Ok(user) if user.is_validated_now => {
                    Some((SignInOutcome::Accepted, &*user.principal.user_name))
                }
                Err(AuthError::WrongToken | AuthError::RejectedToken { .. }) => {
                    Some((SignInOutcome::Rejected, ""))
                }
                Ok(_) | Err(_) => None,
            };
            if let Some((outcome, user)) = outcome {
                self.recorder.record(CredentialKind::Keystone, outcome, user, address, now);
            }
            return checked.map(|user| user.principal);
        }
        if self.openid_connect.is_some() && jwt.is_some() {
            let outcome = SignInOutcome::Rejected;
            self.recorder.record(CredentialKind::OpenIdConnect, outcome, "", address, now);
            return Err(AuthError::RejectedToken { problem: TokenProblem::Issuer.text() });
        }
        let version = self.cache.version();
        let found = if self.has_local_users {
            local_users::find_token(&self.store, token.reveal(), now)
                .await
                .map_err(|error| unavailable(&error))?
        } else {
            None
        };
        let Some(found) = found else {
            self.cache.remove(&key);
            let outcome = SignInOutcome::Rejected;
            self.recorder.record(CredentialKind::Token, outcome, "", address, now);
            return Err(AuthError::WrongToken);
        };
        if let Some(id) = found.record_use {
            local_users::record_token_use(&self.store, id, now);
            let (outcome, user) = (SignInOutcome::Accepted, &found.principal.user_name);
            self.recorder.record(CredentialKind::Token, outcome, user, address, now);
        }
        let principal = Arc::new(found.principal);
        let credential = VerifiedCredential {
            principal: Arc::clone(&principal),
            against: VerifiedAgainst::Stored,
            expires_at: found.expires_at,
        };
        self.cache.insert(key, credential, version, Instant::now());
        Ok(principal)
    }

    /// Verifies a token of the OpenID Connect provider.
    async fn check_jwt(
        &self,
        provider: &OpenIdProvider,
        jwt: &UnverifiedToken<'_>,
        key: CredentialKey,
        address: IpAddr,
    ) -> Result<Arc<Principal>, AuthError> {
        let (now, version) = (self.now(), self.cache.version());
        let checked = provider.check_token(jwt, (self.token_clock)(), Instant::now()).await;
        let outcome = match &checked {
            // Tokens that were verified before are not new sign-ins.
            Ok(valid) if matches!(self.cache.find(&key, Instant::now()), CacheLookup::Unknown) => {
                let user = &*valid.principal.user_name;
                tracing::info!(user, %address, "token of the OpenID Connect provider accepted");
                Some((SignInOutcome::Accepted, user))
            }
            Err(AuthError::RejectedToken { .. }) => {
                Some((SignInOutcome::Rejected, provider.claimed_user(jwt)))
            }
            Ok(_) | Err(_) => None,
        };
        if let Some((outcome, user)) = outcome {
            self.recorder.record(CredentialKind::OpenIdConnect, outcome, user, address, now);
        }
        let ValidJwt { principal, expires_at } = checked?;
        let principal = Arc::new(principal);
        let credential = VerifiedCredential {
            principal: Arc::clone(&principal),
            against: VerifiedAgainst::Stored,
            expires_at: Some(expires_at),
        };
        self.cache.insert(key, credential, version, Instant::now());
        Ok(principal)
    }

    async fn check_session(
        &self,
        cookie: &Secret<String>,
    ) -> Result<Option<Arc<Principal>>, AuthError> {
        let now = self.now();
        let key = self.cache.key("session", "", cookie.reveal());
        if let Some(principal) = self.cached_principal(&key, now) {
            return Ok(Some(principal));
        }
        let version = self.cache.version();
        let htpasswd = self.htpasswd.as_ref().map(HtpasswdFile::users);
        let methods = SessionMethods {
            htpasswd: htpasswd.as_deref(),
            has_local_users: self.has_local_users,
            has_openid_connect: self.openid_connect.is_some(),
        };
        let found = sessions::find(&self.store, cookie.reveal(), methods, now)
            .await
            .map_err(|error| unavailable(&error))?;
        let Some(ValidSession { principal, expires_at, htpasswd_hash }) = found else {
            self.cache.remove(&key);
            return Ok(None);
        };
        let principal = Arc::new(principal);
        let credential = VerifiedCredential {
            principal: Arc::clone(&principal),
            against: match htpasswd_hash {
                Some(hash) => VerifiedAgainst::Htpasswd { hash },
                None => VerifiedAgainst::Stored,
            },
            expires_at: Some(expires_at),
        };
        self.cache.insert(key, credential, version, Instant::now());
        Ok(Some(principal))
    }

    /// A token or session that was found recently, has not expired, and whose user has not changed in
    /// the htpasswd file.
    fn cached_principal(&self, key: &CredentialKey, now: Timestamp) -> Option<Arc<Principal>> {
        let cached = match self.cache.find(key, Instant::now()) {
            CacheLookup::Fresh(cached) => cached,
            CacheLookup::Stale(_) | CacheLookup::Unknown => return None,
        };
        if cached.expires_at.is_some_and(|end| end <= now) {
            return None;
        }
        match &cached.against {
            VerifiedAgainst::Stored => Some(cached.principal),
            VerifiedAgainst::Htpasswd { hash } => {
                let users = self.htpasswd.as_ref()?.users();
                current_principal(&users, &cached.principal, hash)
            }
            VerifiedAgainst::User { .. } => None,
        }
    }

    fn now(&self) -> Timestamp {
        (self.clock)()
    }
}

impl VerifiedPrincipal {
    /// The cache entry.
    fn credential(&self) -> VerifiedCredential {
        VerifiedCredential {
            principal: Arc::clone(&self.principal),
            against: self.against.clone(),
            expires_at: None,
        }
    }
}

/// A user of the htpasswd file with the roles that the file has now; `None` if the user has another
/// password or was removed.
fn current_principal(
    users: &HtpasswdUsers,
    known: &Arc<Principal>,
    hash: &str,
) -> Option<Arc<Principal>> {
    let entry = users.get(&known.user_name).filter(|entry| entry.hash == hash)?;
    let current = Principal {
        preferred_scope: known.preferred_scope.clone(),
        ..entry.principal(&known.user_name, known.method)
    };
    Some(if current == **known { Arc::clone(known) } else { Arc::new(current) })
}

/// Whether a token has the format of the tokens in the store.
fn is_api_token(token: &Secret<String>) -> bool {
    ParsedToken::parse(token.reveal()).is_some()
}

fn login_error(rejection: LoginRejection) -> AuthError {
    match rejection {
        LoginRejection::ProviderDown => {
            AuthError::IdentityServiceDown { service: openid_connect::SERVICE }
        }
        LoginRejection::Random(_) => AuthError::Unavailable,
        LoginRejection::NoEndpoint(_)
        | LoginRejection::Refused(_)
        | LoginRejection::OtherBrowser
        | LoginRejection::IdToken(_)
        | LoginRejection::NoIdToken => AuthError::SignInFailed { problem: rejection.to_string() },
    }
}

fn unavailable(error: &StoreError) -> AuthError {
    tracing::warn!(%error, "reading credentials from the store failed");
    AuthError::Unavailable
}
