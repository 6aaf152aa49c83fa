// SPDX-License-Identifier: Apache-2.0
// Permissions of the caller, role assignments, tokens and quotas.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  formatAssignments,
  formatQuotas,
  hasAccount,
  parseAssignment,
  parseQuotas,
  passwordProblem,
  tokenLimit,
  tokenRequest,
} from "../../crates/web-ui/page/app/access/model.js";
import { ACTIONS, ruleOf } from "../../crates/web-ui/page/app/actions.js";
import {
  denial,
  matchesAnyRule,
  matchesRule,
  rolesText,
  scopeLabel,
} from "../../crates/web-ui/page/app/caller.js";
import { PAGES } from "../../crates/web-ui/page/app/pages.js";
import { isSignedOut } from "../../crates/web-ui/page/app/session.js";

const POWER = "baremetal:node:set_power_state";
const UPDATE = "baremetal:node:update";

const MEMBER = {
  user: "alice",
  user_id: "1",
  scope: "project",
  project: "storage",
  roles: ["member", "reader"],
  method: "session",
  assignments: ["member@storage"],
  permissions: ["ferrite:deployment:create"],
  owner_permissions: ["ferrite:deployment:create", POWER, UPDATE],
  lessee_permissions: ["ferrite:deployment:create", POWER],
};
const ADMIN = {
  ...MEMBER,
  scope: "system",
  project: null,
  roles: ["admin", "manager", "member", "reader"],
  permissions: [POWER, UPDATE, "ferrite:user:create"],
  owner_permissions: undefined,
  lessee_permissions: undefined,
};

test("rules match without a resource, for owned and for leased machines", () => {
  for (const [known, rule, resource, expected] of [
    [MEMBER, "ferrite:deployment:create", undefined, true],
    [MEMBER, POWER, undefined, false],
    [MEMBER, POWER, { owner: "storage" }, true],
    [MEMBER, POWER, { owner: "other", lessee: "storage" }, true],
    [MEMBER, POWER, { owner: "other", lessee: null }, false],
    [MEMBER, UPDATE, { owner: "storage" }, true],
    [MEMBER, UPDATE, { owner: "other", lessee: "storage" }, false],
    [MEMBER, "ferrite:user:create", { owner: "storage" }, false],
    [ADMIN, UPDATE, { owner: "other" }, true],
    [ADMIN, "ferrite:token:create", undefined, false],
    // A resource without a project does not match a caller without one.
    [ADMIN, "ferrite:token:create", { owner: null }, false],
    // The server did not respond with permissions: nothing is hidden.
    [null, UPDATE, undefined, true],
    [{ ...MEMBER, permissions: undefined }, UPDATE, undefined, true],
  ])
    assert.equal(matchesRule(known, rule, resource), expected, JSON.stringify([rule, resource]));
});

test("a page is shown if one of its rules matches for some resource", () => {
  assert.ok(matchesAnyRule(MEMBER, undefined));
  assert.ok(matchesAnyRule(MEMBER, [UPDATE]));
  assert.ok(matchesAnyRule(MEMBER, ["ferrite:audit:list_all", POWER]));
  assert.ok(!matchesAnyRule(MEMBER, ["ferrite:topology:get"]));
  assert.ok(!matchesAnyRule(ADMIN, ["ferrite:topology:get"]));
});

test("a denial names the rule and the roles", () => {
  assert.equal(denial(MEMBER, POWER, { owner: "storage" }), null);
  const reason = denial(MEMBER, "ferrite:user:create");
  assert.match(reason, /ferrite:user:create/);
  assert.match(reason, /member in project storage/);
});

test("scopes and roles have a label", () => {
  for (const [known, scope, roles] of [
    [MEMBER, "project storage", "member in project storage"],
    [ADMIN, "system", "admin in system"],
    [{ ...ADMIN, roles: ["reader", "auditor"] }, "system", "reader, auditor in system"],
    [{ ...MEMBER, scope: "none", roles: [] }, "no project", "no roles"],
    [{ ...MEMBER, scope: "unrestricted" }, "full access", "full access"],
    [null, "", "unknown roles"],
  ])
    assert.deepEqual([scopeLabel(known), rolesText(known)], [scope, roles]);
});

test("pages and actions name rules", () => {
  const rules = [...PAGES.flatMap((page) => page.rules ?? []), ...ACTIONS.map(ruleOf)];
  for (const rule of rules) assert.match(rule, /^(ferrite|baremetal)(:[a-z_]+)+$/);
  assert.equal(ruleOf(ACTIONS.find(({ id }) => id === "reboot")), POWER);
});

test("sessions without a user are signed out if a sign-in is needed", () => {
  assert.ok(isSignedOut({ needed: true, user: null }));
  assert.ok(!isSignedOut({ needed: true, user: "alice" }));
  assert.ok(!isSignedOut({ needed: false, user: null }));
  assert.ok(!isSignedOut(null));
});

test("role assignments are parsed and formatted", () => {
  assert.deepEqual(parseAssignment("member@storage"), { role: "member", scope: "storage" });
  assert.deepEqual(parseAssignment("reader"), { role: "reader", scope: "system" });
  const twice = [parseAssignment("member@a"), parseAssignment("member@a")];
  assert.deepEqual(formatAssignments(twice), ["member@a"]);
});

test("token requests leave empty limits out", () => {
  const form = { user: "", description: " ci ", lifetime: "86400", role: "", scope: "" };
  assert.deepEqual(tokenRequest(form), { description: "ci", expires_in: 86400 });
  assert.deepEqual(
    tokenRequest({ ...form, user: "ci", lifetime: "never", role: "reader", scope: "system" }),
    { user: "ci", description: "ci", never_expires: true, role: "reader", scope: "system" },
  );
  assert.equal(tokenLimit({ role: null, scope: null }), "all roles of the user");
  assert.equal(tokenLimit({ role: "reader", scope: null }), "reader in all scopes");
});

test("passwords are checked before they are sent", () => {
  for (const [password, repeated, expected] of [
    ["", "", null],
    ["short", "", /at least 8/],
    ["long enough", "", null],
    ["long enough", "long enouhg", /differ/],
    ["ü".repeat(257), "", /512 bytes/],
  ]) {
    const problem = passwordProblem(password, repeated);
    if (expected) assert.match(problem, expected);
    else assert.equal(problem, null);
  }
});

test("quotas are parsed and formatted", () => {
  const text = "machines = 10\n\nresource_class:gpu=2\nflavour:big one\n";
  assert.match(parseQuotas(text).problem, /flavour:big one/);
  const { value, problem } = parseQuotas("machines = 10\n\nresource_class:gpu=2\n");
  assert.deepEqual([value, problem], [{ machines: 10, "resource_class:gpu": 2 }, null]);
  assert.match(parseQuotas("cpus = 2").problem, /cpus/);
  assert.match(parseQuotas("machines = many").problem, /many/);
  assert.deepEqual(parseQuotas(""), { value: {}, problem: null });
  assert.equal(formatQuotas([{ subject: "machines", machines: 3 }]), "machines = 3");
});

test("only users of the database have an account", () => {
  assert.ok(hasAccount(MEMBER));
  assert.ok(!hasAccount({ ...MEMBER, assignments: undefined }));
  assert.ok(!hasAccount(null));
});
