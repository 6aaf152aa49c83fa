// SPDX-License-Identifier: Apache-2.0
// Provision states and actions against the generated enums.

import assert from "node:assert/strict";
import { test } from "node:test";
import { ACTIONS, actionById, isDangerous, titleOf } from "../../crates/web-ui/page/app/actions.js";
import { PROVISION_STATES, VERBS } from "../../crates/web-ui/page/app/generated.js";
import {
  FAMILIES,
  familyOf,
  isBusy,
  isFailed,
  isJobEnd,
  stateLabel,
  stateOrder,
} from "../../crates/web-ui/page/app/states.js";

test("each state has a family with a display order", () => {
  for (const state of Object.keys(PROVISION_STATES))
    assert.ok(FAMILIES.includes(familyOf(state)), state);
  const used = new Set(Object.values(PROVISION_STATES).map(({ family }) => family));
  assert.deepEqual([...used].sort(), [...FAMILIES].sort());
});

test("busy, failed and final states", () => {
  assert.ok(isBusy("deploying") && isBusy("wait call-back"));
  assert.ok(!isBusy("active") && !isBusy("deploy hold") && !isBusy("deploy failed"));
  assert.ok(isFailed("clean failed") && isFailed("error"));
  assert.ok(isJobEnd("available") && isJobEnd("clean failed"));
  assert.ok(!isJobEnd("cleaning") && !isJobEnd("clean hold"));
});

test("a state of a newer server is shown as it is", () => {
  assert.equal(familyOf("hibernating"), "new");
  assert.equal(stateLabel("hibernating"), "hibernating");
  assert.ok(!isBusy("hibernating") && !isJobEnd("hibernating"));
});

test("wait call-back has a clear label", () => {
  assert.equal(stateLabel("wait call-back"), "waiting for agent");
  assert.equal(stateLabel("active"), "active");
});

test("failed states come first", () => {
  const sorted = ["available", "deploy failed", "active"].sort((a, b) =>
    stateOrder(a) < stateOrder(b) ? -1 : 1,
  );
  assert.deepEqual(sorted, ["deploy failed", "active", "available"]);
});

test("actions have unique ids and known verbs", () => {
  assert.equal(new Set(ACTIONS.map(({ id }) => id)).size, ACTIONS.length);
  for (const { verb } of ACTIONS) if (verb) assert.ok(VERBS.includes(verb), verb);
  assert.equal(titleOf(actionById("deploy")), "Deploy");
  assert.equal(titleOf(actionById("manage")), "Manage");
  assert.ok(isDangerous(actionById("power-off")) && !isDangerous(actionById("manage")));
  assert.throws(() => actionById("explode"));
});
