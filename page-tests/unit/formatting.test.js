// SPDX-License-Identifier: Apache-2.0
// Times, sizes, JSON input, plans and error texts.

import assert from "node:assert/strict";
import { test } from "node:test";
import { errorCause, describeFault, faultLabel } from "../../crates/web-ui/page/app/errors.js";
import { FAULTS, WAIT_REASONS } from "../../crates/web-ui/page/app/generated.js";
import { describeProgress, typicalJob } from "../../crates/web-ui/page/app/job_progress.js";
import { parseObject } from "../../crates/web-ui/page/app/json_input.js";
import { historyDuration } from "../../crates/web-ui/page/app/machine/history.js";
import { parsePlanLine } from "../../crates/web-ui/page/app/plan.js";
import { bytes, count, memory } from "../../crates/web-ui/page/app/sizes.js";
import { ago, countdown, duration, timeoutText } from "../../crates/web-ui/page/app/times.js";
import { describeWait, waitText } from "../../crates/web-ui/page/app/wait_reasons.js";
import { errorText } from "../../crates/web-ui/page/app/api.js";

const SECOND = 1000,
  MINUTE = 60 * SECOND,
  HOUR = 60 * MINUTE,
  DAY = 24 * HOUR;

test("durations have two units at most", () => {
  for (const [ms, expected] of [
    [0, "0 ms"],
    [90.4, "90 ms"],
    [999, "999 ms"],
    [1500, "1.5 s"],
    [12_345, "12 s"],
    [59_600, "1 m"],
    [4 * MINUTE + 12 * SECOND, "4 m 12 s"],
    [2 * HOUR, "2 h"],
    [2 * HOUR + 5 * MINUTE, "2 h 5 m"],
    [2 * DAY + 3 * HOUR, "2 d 3 h"],
  ])
    assert.equal(duration(ms), expected);
});

test("past times have one unit", () => {
  for (const [ms, expected] of [
    [0, "just now"],
    [12 * SECOND, "12 s ago"],
    [3 * MINUTE + 50 * SECOND, "3 m ago"],
    [5 * HOUR, "5 h ago"],
    [2 * DAY, "2 d ago"],
  ])
    assert.equal(ago(10 * DAY - ms, 10 * DAY), expected);
});

test("timeouts count down", () => {
  assert.equal(countdown(3 * MINUTE + 7 * SECOND, 0), "3:07");
  assert.equal(countdown(HOUR, 0), "1:00:00");
  assert.equal(countdown(0, 0), null);
  assert.equal(timeoutText(20 * MINUTE - SECOND, 0), "timeout in 19:59");
  assert.equal(timeoutText(0, SECOND), "timeout reached");
});

test("history durations below a second are not zero", () => {
  assert.equal(historyDuration(null), "");
  assert.equal(historyDuration(0), "< 1 s");
  assert.equal(historyDuration(3), "3 s");
  assert.equal(historyDuration(75), "1 m 15 s");
});

test("sizes have decimal units, memory has binary ones", () => {
  assert.equal(bytes(0), "0 B");
  assert.equal(bytes(4_200_000), "4.2 MB");
  assert.equal(bytes(960e9), "960 GB");
  assert.equal(memory(262144), "256 GiB");
  assert.equal(memory(1536), "1.5 GiB");
  assert.equal(count(1, "machine"), "1 machine");
  assert.equal(count(1200, "entry", "entries"), "1,200 entries");
});

test("JSON input must be an object", () => {
  assert.deepEqual(parseObject('{"a": 1}'), { value: { a: 1 } });
  for (const text of ["[]", "null", "3"]) assert.match(parseObject(text).problem, /object/);
  assert.ok(parseObject("{").problem);
});

test("plan lines are states, steps, waits or failures", () => {
  assert.deepEqual(parsePlanLine("available -> deploying"), { kind: "state", text: "deploying" });
  assert.deepEqual(parsePlanLine("run deploy step deploy.write_image (priority 80)"), {
    kind: "step",
    text: "writes the image",
    step: "deploy.write_image (priority 80)",
  });
  assert.equal(parsePlanLine("run clean step raid.some_vendor_step").text, "some vendor step");
  assert.deepEqual(parsePlanLine("wait: agent heartbeat"), {
    kind: "wait",
    text: "waits: agent heartbeat",
  });
  assert.equal(parsePlanLine("fails: no image").kind, "fails");
  assert.equal(parsePlanLine("prepare deployment").kind, "other");
});

test("all wait reasons and faults have texts; unknown ones are shown", () => {
  for (const reason of Object.keys(WAIT_REASONS)) assert.ok(describeWait(reason)[1], reason);
  assert.deepEqual(describeWait("toString"), ["Waiting for: toString", ""]);
  assert.deepEqual(describeWait("new reason"), ["Waiting for: new reason", ""]);
  for (const fault of FAULTS) assert.ok(describeFault(fault)[1], fault);
  assert.equal(faultLabel("power failure"), "BMC unreachable");
  assert.equal(faultLabel("new fault"), "new fault");
  assert.deepEqual(describeFault("new fault"), ["Fault: new fault", ""]);
});

test("wait texts include the next action and the timeout", () => {
  /** @param {object} row */
  const text = (row) =>
    waitText(
      { wait_reason: null, wait_until: null, next_action_at: null, maintenance: false, ...row },
      0,
    );
  const retry = {
    wait_reason: "BMC response",
    next_action_at: 7 * SECOND,
    wait_until: 10 * MINUTE,
  };
  assert.equal(text({}), "");
  assert.equal(text({ wait_reason: "hold" }), "Held by an operator");
  assert.equal(text(retry), "BMC unreachable · next attempt in 0:07, timeout in 10:00");
  assert.equal(text({ ...retry, next_action_at: 0 }), "BMC unreachable · timeout in 10:00");
  assert.equal(
    text({ ...retry, wait_until: -1 }),
    "BMC unreachable · next attempt in 0:07, timeout reached",
  );
  assert.equal(text({ ...retry, maintenance: true }), "BMC unreachable");
  assert.equal(
    text({ wait_reason: "new reason", next_action_at: 7 * SECOND }),
    "Waiting for: new reason · next action in 0:07",
  );
});

test("the cause of an error has no node name and no call", () => {
  for (const [text, expected] of [
    ["node r01-u01: failed to call https://10.0.0.7:8443/redfish: refused", "refused"],
    ["failed to power on: refused", "refused"],
    [
      "the power state could not be read 3 times in a row: node r01-u01: no route to host (maintenance ends when the BMC responds)",
      "no route to host",
    ],
    ["no image_source in instance_info", "no image_source in instance_info"],
    ["failed to boot", "failed to boot"],
  ])
    assert.equal(errorCause(text), expected);
});

test("error messages are extracted from nested responses", () => {
  const nested = JSON.stringify({
    error_message: JSON.stringify({ faultstring: "Node is locked." }),
  });
  assert.equal(errorText(nested), "Node is locked.");
  assert.equal(errorText('{"error": {"message": "Overloaded."}}'), "Overloaded.");
  assert.equal(errorText("plain text"), "plain text");
  assert.equal(errorText('{"code": 3}'), '{"code":3}');
});

test("job progress uses the most frequent job and stays below one", () => {
  const jobs = [
    { starts_in: "deploying", count: 1, median_ms: 10_000, p90_ms: 20_000 },
    { starts_in: "deploying", count: 9, median_ms: 60_000, p90_ms: 90_000 },
    { starts_in: "cleaning", count: 99, median_ms: 1000, p90_ms: 2000 },
  ];
  const job = typicalJob(jobs, "deploying");
  assert.equal(job.count, 9);
  assert.equal(typicalJob(jobs, "adopting"), null);
  assert.deepEqual(describeProgress(job, 30_000), {
    share: 0.5,
    text: "30 s elapsed, usually 1 m",
  });
  const slow = describeProgress(job, 100_000);
  assert.equal(slow.share, 0.97);
  assert.match(slow.text, /slower than usual/);
  assert.deepEqual(describeProgress(null, 500), { share: null, text: "1 s elapsed" });
});
