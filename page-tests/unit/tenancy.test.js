// SPDX-License-Identifier: Apache-2.0
// Deployments with their leases, and the audit log.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  auditParameters,
  detailText,
  exportPath,
  requesterText,
} from "../../crates/web-ui/page/app/audit_log/query.js";
import {
  DEPLOYMENT_STATES,
  EMPTY_FORM,
  deploymentRequest,
  formProblem,
  imageName,
  isComplete,
  leaseChange,
  leaseSeconds,
  leaseText,
  stateMark,
} from "../../crates/web-ui/page/app/deployments/model.js";
import { PROVISION_STATES } from "../../crates/web-ui/page/app/generated.js";

const IMAGE = "https://images.example/debian.qcow2";

test("a request contains only what was entered", () => {
  assert.deepEqual(deploymentRequest({ ...EMPTY_FORM, flavour: "large", image: ` ${IMAGE} ` }), {
    flavour: "large",
    image: IMAGE,
  });
  assert.deepEqual(
    deploymentRequest({
      ...EMPTY_FORM,
      name: "web-1",
      project: "storage",
      resourceClass: "big",
      traits: "CUSTOM_A, CUSTOM_B",
      nodes: "r01-u01 r01-u02",
      image: IMAGE,
      checksum: "abc",
      keys: "ssh-ed25519 AAAA me\n\n ssh-rsa BBBB \n",
      userData: "#!/bin/sh\n",
      leaseNumber: "14",
      atEnd: "notify",
    }),
    {
      name: "web-1",
      project: "storage",
      resource_class: "big",
      traits: ["CUSTOM_A", "CUSTOM_B"],
      nodes: ["r01-u01", "r01-u02"],
      image: IMAGE,
      checksum: "abc",
      ssh_keys: ["ssh-ed25519 AAAA me", "ssh-rsa BBBB"],
      user_data: "#!/bin/sh\n",
      lease: { duration: 14 * 86400, at_end: "notify" },
    },
  );
});

test("a form needs an image and a machine", () => {
  assert.ok(!isComplete(EMPTY_FORM));
  assert.ok(!isComplete({ ...EMPTY_FORM, image: IMAGE }));
  assert.ok(!isComplete({ ...EMPTY_FORM, flavour: "large" }));
  for (const machine of [{ flavour: "large" }, { resourceClass: "big" }, { nodes: "n1" }])
    assert.ok(isComplete({ ...EMPTY_FORM, image: IMAGE, ...machine }));
});

test("invalid fields are reported", () => {
  assert.equal(formProblem(EMPTY_FORM), null);
  for (const [fields, expected] of [
    [{ image: "debian" }, /image must be/],
    [{ image: "4b7a1a3c-6a2c-4a9a-9a77-2d5a3c5ab001" }, null],
    [{ image: "glance://4b7a1a3c" }, null],
    [{ keys: "-----BEGIN OPENSSH PRIVATE KEY-----" }, /private key/],
    [{ keys: "hello" }, /Not a public key/],
    [{ keys: 'from="10.0.0.1" ssh-ed25519 AAAA' }, null],
    [{ traits: "gpu" }, /capital letters/],
    [{ leaseNumber: "soon" }, /positive number/],
    [{ leaseNumber: "0" }, /positive number/],
    [{ leaseNumber: "1.5" }, null],
  ]) {
    const problem = formProblem({ ...EMPTY_FORM, ...fields });
    if (expected) assert.match(problem, expected);
    else assert.equal(problem, null, JSON.stringify(fields));
  }
});

test("lease times are converted to seconds", () => {
  for (const [number, unit, expected] of [
    ["7", "86400", 604_800],
    ["0,5", "3600", 1800],
    ["", "3600", null],
    ["-1", "3600", null],
    ["x", "3600", null],
  ])
    assert.equal(leaseSeconds(number, unit), expected, number);
});

test("leases are extended, replaced or removed", () => {
  const form = { mode: "extend", number: "2", unit: "3600", atEnd: "undeploy" };
  assert.deepEqual(leaseChange(form), { lease: { extend_by: 7200, at_end: "undeploy" } });
  assert.deepEqual(leaseChange({ ...form, mode: "from_now" }), {
    lease: { duration: 7200, at_end: "undeploy" },
  });
  assert.deepEqual(leaseChange({ ...form, mode: "unlimited" }), {
    lease: { unlimited: true, at_end: "undeploy" },
  });
});

test("the end of a lease is shown with a warning", () => {
  const now = Date.parse("2026-11-01T00:00:00Z");
  const lease = (end, action = "undeploy") => ({
    expires_at: end,
    warn_before: 3600,
    at_end: action,
  });
  for (const [given, text, level] of [
    [lease(null), "no end", ""],
    [lease("2026-11-03T01:00:00Z"), "in 2 d 1 h", ""],
    [lease("2026-11-01T00:30:00Z"), "in 30 m", "warn"],
    [lease("2026-10-31T23:00:00Z"), "ended 1 h ago", "bad"],
    [lease("2026-10-31T23:00:00Z", "notify"), "ended 1 h ago", "warn"],
  ])
    assert.deepEqual(leaseText(given, now), { text, level });
});

test("every state of a deployment has the mark of a provision state", () => {
  for (const state of [...DEPLOYMENT_STATES, "unknown"])
    assert.ok(stateMark(state) in PROVISION_STATES, state);
});

test("images are shown by their file name", () => {
  const deployment = (source) => ({ instance: { instance_info: { image_source: source } } });
  assert.equal(imageName(deployment(IMAGE)), "debian.qcow2");
  assert.equal(imageName({ instance: null }), "");
});

test("filters of the audit log become parameters", () => {
  const now = Date.parse("2026-11-02T00:00:00Z");
  const query = new URLSearchParams("user= alice &outcome=refused&span=86400&tab=x");
  assert.deepEqual(auditParameters(query, now), {
    user: "alice",
    outcome: "refused",
    from: "2026-11-01T00:00:00.000Z",
  });
  assert.deepEqual(auditParameters(new URLSearchParams("span=soon"), now), {});
  const path = exportPath(new URLSearchParams("project=shop"), now);
  assert.equal(path, "/v1/ferrite/audit-log?project=shop&format=jsonl");
});

test("audit entries name the requester and the reason", () => {
  assert.equal(requesterText({ user: "alice", project: "shop", address: "::1" }), "alice (shop)");
  assert.equal(requesterText({ user: null, project: null, address: "::1" }), "unknown, ::1");
  assert.equal(detailText({ message: null, suppressed: 0 }), "");
  assert.equal(
    detailText({ message: "Not authorized", suppressed: 12 }),
    "Not authorized; 12 further refusals were not recorded",
  );
});
