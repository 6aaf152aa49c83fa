// SPDX-License-Identifier: Apache-2.0
//! What the caller of a request may do: the policy applied to one caller.
//!
//! The dispatcher checks rules without a resource. Rules of a resource are checked where the resource
//! is looked up (`ResourceIdent::find`), in the transaction that reads or changes it. The dispatcher
//! rejects the response of a handler that checked nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use access_policy::{Caller, CallerScope, Policy, PolicyTarget};
use ironic_wire::WireError;

use super::routes::RouteAccess;

/// The rights of the caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct CallerAccess {
    /// `None` if policy does not apply to the caller.
    restricted: Option<Arc<RestrictedCaller>>,
    route: RouteAccess,
}

#[derive(Debug)]
struct RestrictedCaller {
    policy: Arc<Policy>,
    caller: Caller,
    is_checked: AtomicBool,
    is_hidden: AtomicBool,
}

impl CallerAccess {
    /// The rights of `caller` on a route.
    pub(crate) fn new(policy: &Arc<Policy>, caller: &Caller, route: RouteAccess) -> Self {
        let restricted = match caller.scope {
            CallerScope::Unrestricted => None,
            CallerScope::System | CallerScope::Project(_) | CallerScope::Unscoped => {
                Some(Arc::new(RestrictedCaller {
                    policy: Arc::clone(policy),
                    caller: caller.clone(),
                    is_checked: AtomicBool::new(false),
                    is_hidden: AtomicBool::new(false),
                }))
            }
        };
        Self { restricted, route }
    }

    /// Whether policy applies to the caller.
    pub(crate) fn is_restricted(&self) -> bool {
        self.restricted.is_some()
    }

    /// The project of the caller; `None` for unrestricted callers and those with system scope.
    pub(crate) fn project(&self) -> Option<&str> {
        self.restricted.as_ref()?.caller.project()
    }

    /// Whether the roles of the caller apply to the whole system.
    pub(crate) fn is_system(&self) -> bool {
        match &self.restricted {
            None => true,
            Some(restricted) => restricted.caller.scope == CallerScope::System,
        }
    }

    /// Whether the caller may do what `rule` protects.
    pub(crate) fn allows(&self, rule: &str, target: &PolicyTarget<'_>) -> bool {
        match &self.restricted {
            None => true,
            Some(restricted) => {
                restricted.is_checked.store(true, Ordering::Relaxed);
                restricted.policy.allows(rule, &restricted.caller, target)
            }
        }
    }

    /// Fails with 403 if the caller may not do what `rule` protects.
    pub(crate) fn require(&self, rule: &str, target: &PolicyTarget<'_>) -> Result<(), WireError> {
        if self.allows(rule, target) { Ok(()) } else { Err(self.denial(rule)) }
    }

    /// Fails with 403 if the caller may not request this step.
    pub(crate) fn require_step(
        &self,
        interface: &str,
        step: &str,
        target: &PolicyTarget<'_>,
    ) -> Result<(), WireError> {
        let is_allowed = self.restricted.as_ref().is_none_or(|restricted| {
            restricted.policy.allows_step(interface, step, &restricted.caller, target)
        });
        if is_allowed {
            return Ok(());
        }
        Err(self.denial(&format!("baremetal:step:execute:{interface}.{step}")))
    }

    fn denial(&self, rule: &str) -> WireError {
        let is_unscoped = self
            .restricted
            .as_ref()
            .is_some_and(|restricted| restricted.caller.scope == CallerScope::Unscoped);
        if is_unscoped {
            return WireError::forbidden(
                "You have no role here, or roles in several projects: choose one with the header \
                 X-Ferrite-Project (FERRITE_PROJECT for the ferrite command), a default project, or a \
                 token for one project.",
            );
        }
        denied(rule)
    }

    /// The rule of the resource in the path.
    pub(crate) fn resource_rule(&self) -> Option<&'static str> {
        match self.route {
            RouteAccess::Resource(rule) => Some(rule),
            RouteAccess::Public
            | RouteAccess::Metrics
            | RouteAccess::Authenticated
            | RouteAccess::Unassigned
            | RouteAccess::Rule(_)
            | RouteAccess::List { .. }
            | RouteAccess::CheckedByHandler(_) => None,
        }
    }

    /// The project whose resources a list contains; `None` for all. `requested` is the project that
    /// the query selects.
    ///
    /// Fails with 403 if the caller may list neither all resources nor those of its project.
    pub(crate) fn list_project(
        &self,
        requested: Option<&str>,
    ) -> Result<Option<String>, WireError> {
        let requested = requested.filter(|project| !project.is_empty());
        let RouteAccess::List { all, own } = self.route else {
            return if self.is_restricted() {
                Err(WireError::forbidden("This list has no policy rule."))
            } else {
                Ok(requested.map(str::to_owned))
            };
        };
        if self.allows(all, &PolicyTarget::NONE) {
            return Ok(requested.map(str::to_owned));
        }
        match self.project() {
            Some(project) if requested.is_none_or(|requested| requested == project) => {
                self.require(own, &PolicyTarget::NONE)?;
                Ok(Some(project.to_owned()))
            }
            Some(_) | None => Err(self.denial(all)),
        }
    }

    /// Checks what needs no resource, before the body is read.
    pub(crate) fn check_route(&self) -> Result<(), WireError> {
        if !self.is_restricted() {
            return Ok(());
        }
        match self.route {
            RouteAccess::Public | RouteAccess::Authenticated => self.mark_checked(),
            RouteAccess::Metrics => self.require("ferrite:metrics:get", &PolicyTarget::NONE)?,
            RouteAccess::Rule(rule) => self.require(rule, &PolicyTarget::NONE)?,
            RouteAccess::Unassigned => {
                return Err(WireError::forbidden(
                    "This endpoint has no policy rule: only callers without roles may use it.",
                ));
            }
            // The handler must look up the resource.
            RouteAccess::Resource(_)
            | RouteAccess::List { .. }
            | RouteAccess::CheckedByHandler(_) => {}
        }
        Ok(())
    }

    /// Whether a rule was evaluated for this request.
    pub(crate) fn was_checked(&self) -> bool {
        let is_checked =
            |restricted: &Arc<RestrictedCaller>| restricted.is_checked.load(Ordering::Relaxed);
        self.restricted.as_ref().is_none_or(is_checked)
    }

    /// Whether the caller requested a resource that it may not see.
    pub(crate) fn was_hidden(&self) -> bool {
        let is_hidden =
            |restricted: &Arc<RestrictedCaller>| restricted.is_hidden.load(Ordering::Relaxed);
        self.restricted.as_ref().is_some_and(is_hidden)
    }

    /// Records that the caller requested a resource that it may not see, for the audit log.
    pub(crate) fn mark_hidden(&self) {
        if let Some(restricted) = &self.restricted {
            restricted.is_hidden.store(true, Ordering::Relaxed);
        }
    }

    fn mark_checked(&self) {
        if let Some(restricted) = &self.restricted {
            restricted.is_checked.store(true, Ordering::Relaxed);
        }
    }
}

/// The error for a caller who may see a resource, but not do this to it.
pub(crate) fn denied(rule: &str) -> WireError {
    WireError::forbidden(format!(
        "Your roles do not allow this: the policy rule {rule} does not match. Contact an administrator \
         for a role."
    ))
}
