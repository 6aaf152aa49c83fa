// SPDX-License-Identifier: Apache-2.0
// The timeline: texts of journal events, the layout of the chart, and its time scale.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { KIND_OPTIONS, journalParameters } from "../../crates/web-ui/page/app/journal/query.js";
import { EVENT, EVENT_KINDS } from "../../crates/web-ui/page/app/generated.js";
import {
  axisTicks,
  createScale,
  withPadding,
  zoomView,
} from "../../crates/web-ui/page/app/machine/timeline/chart_scale.js";
import {
  LANES,
  currentJobStart,
  currentStep,
  describe,
  layoutTimeline,
  shortenCall,
} from "../../crates/web-ui/page/app/machine/timeline/entries.js";

/** One sample of each event, written by the Rust test of the generated module. */
const SAMPLES = JSON.parse(await readFile(new URL("journal_events.json", import.meta.url), "utf8"));
const user = { kind: "user", name: "ada", request_id: "req-1" };

test("the samples cover all kinds of events", () => {
  assert.deepEqual(SAMPLES.map(({ kind }) => kind).sort(), Object.keys(EVENT_KINDS).sort());
});

test("all kinds of events have a text without undefined parts", () => {
  for (const event of SAMPLES) {
    const { lane, title, detail } = describe({ actor: user, event });
    assert.ok(
      LANES.some(({ id }) => id === lane),
      event.kind,
    );
    assert.ok(title, event.kind);
    assert.doesNotMatch(`${title} ${detail}`, /undefined|null|NaN|\[object/, event.kind);
  }
});

test("an event of an unknown kind is shown with its fields", () => {
  const event = { kind: "from_a_newer_server", detail: 42 };
  assert.deepEqual(describe({ actor: user, event }), {
    lane: "decision",
    title: "from_a_newer_server",
    detail: '{"detail":42}',
  });
});

test("texts of selected events", () => {
  const text = (event, actor = user) => {
    const { title, detail } = describe({ actor, event });
    return `${title} | ${detail}`;
  };
  assert.equal(text({ kind: EVENT.REQUESTED, target: "active" }), "requested active | by ada");
  assert.equal(text({ kind: EVENT.WAITING, reason: "hold" }), "Held by an operator | no timeout");
  const done = { kind: EVENT.ACTION_DONE, action: "power on", took_ms: 90 };
  assert.equal(text(done), "power on | 90 ms");
  const output = { kind: EVENT.NETWORK_ACTIVITY, by: "console", text: "one\ntwo" };
  assert.equal(text(output), "two | 2 lines");
  const call = (result) => ({ request: "GET /redfish/v1/Systems", result, took_ms: 5 });
  const calls = { kind: EVENT.BMC_CALLS, calls: [call("200"), call("503")], left_out: 2 };
  assert.equal(text(calls), "4 calls | 10 ms · GET /Systems: 503");
  assert.ok(describe({ actor: user, event: calls }).isError);
});

test("calls are shortened", () => {
  const uuid = "0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f";
  assert.equal(shortenCall(`GET /redfish/v1/Systems/${uuid}`), "GET /Systems/…");
  assert.equal(shortenCall("agent: GET commands"), "GET commands");
});

let seq = 0;
const entry = (timestamp, kind, fields = {}) => ({
  seq: ++seq,
  timestamp,
  actor: { kind: "conductor" },
  event: { kind, ...fields },
});
const state = (timestamp, from, to) =>
  entry(timestamp, EVENT.STATE_CHANGED, { from, to, reason: "" });
const action = (timestamp, name, result) =>
  entry(timestamp, EVENT.ACTION_DONE, { action: name, took_ms: 10, result });

test("states become a band, and jobs end in a stable or failed state", () => {
  const entries = [
    entry(1000, EVENT.REQUESTED, { target: "active" }),
    state(1100, "available", "deploying"),
    state(1500, "deploying", "active"),
    entry(1600, EVENT.REQUESTED, { target: "power off" }),
    entry(1700, EVENT.REQUESTED, { target: "deleted" }),
    state(1800, "active", "deleting"),
  ];
  const { states, jobs, from, to } = layoutTimeline(entries, 2000);
  assert.deepEqual(states, [
    { state: "available", start: 1000, end: 1100 },
    { state: "deploying", start: 1100, end: 1500 },
    { state: "active", start: 1500, end: 1800 },
    { state: "deleting", start: 1800, end: 2000 },
  ]);
  assert.deepEqual(jobs, [
    { target: "active", start: 1000, end: 1500, state: "active" },
    { target: "deleted", start: 1700, end: null },
  ]);
  assert.deepEqual([from, to], [1000, 2000]);
  assert.deepEqual(currentJobStart(entries), { state: "deleting", timestamp: 1800 });
  assert.equal(currentJobStart(entries.slice(0, 1)), null);
});

test("a polled step is one span", () => {
  const step = "deploy step deploy.write_image";
  const entries = [
    action(100, `run ${step}`, "running in the agent"),
    action(200, `poll ${step}`, "running in the agent"),
    action(300, `poll ${step}`, null),
    action(400, "power on", null),
  ];
  const items = (count) => layoutTimeline(entries.slice(0, count), 1000).items;
  assert.deepEqual(
    items(4).map(({ title, start, end }) => [title, start, end]),
    [
      ["deploy.write_image", 90, 300],
      ["power on", 390, 400],
    ],
  );
  assert.equal(items(1)[0].end, 1000, "a running step extends to now");
  assert.equal(items(2)[0].end, 1000);
});

test("a wait ends with the next change of state", () => {
  const entries = [
    entry(100, EVENT.WAITING, { reason: "agent heartbeat" }),
    state(400, "wait call-back", "deploying"),
  ];
  const [wait] = layoutTimeline(entries, 1000).items;
  assert.deepEqual([wait.start, wait.end, wait.isWait], [100, 400, true]);
  assert.equal(layoutTimeline(entries.slice(0, 1), 1000).items[0].end, 1000);
});

test("calls are placed one after another before their entry", () => {
  const call = (request, took) => ({ request, result: "200", took_ms: took });
  const calls = [call("GET /a", 10), call("agent: GET commands", 20)];
  const { items } = layoutTimeline([entry(100, EVENT.BMC_CALLS, { calls })], 100);
  assert.deepEqual(
    items.map(({ lane, start, end }) => [lane, start, end]),
    [
      ["agent", 80, 100],
      ["bmc", 70, 80],
    ],
  );
});

test("the current step is the node's, or the last action", () => {
  const entries = [action(1, "power on", null)];
  const node = { deploy_step: { interface: "deploy", step: "write_image" } };
  assert.equal(currentStep(entries, node), "Step deploy.write_image");
  assert.equal(currentStep(entries, {}), "Last action: power on");
  assert.equal(currentStep([], {}), null);
});

test("the scale maps times to pixels, and zooming keeps a point", () => {
  const scale = createScale({ from: 0, to: 1000 }, 100, 608);
  assert.equal(scale.toX(0), 100);
  assert.equal(scale.toX(1000), 600);
  assert.equal(scale.toTime(350), 500);
  const view = zoomView({ from: 0, to: 1000 }, 250, 0.5);
  assert.deepEqual(view, { from: 125, to: 625 });
  const { from, to } = withPadding(0, 10_000);
  assert.deepEqual([from, to], [-300, 10_300]);
  const narrow = zoomView({ from: 0, to: 30 }, 15, 0.01);
  assert.equal(narrow.to - narrow.from, 20, "the shortest range");
});

test("axis ticks are round times in the local time zone", () => {
  const { step, ticks } = axisTicks({ from: 500, to: 10_500 }, 0.05, 0);
  assert.equal(step, 2000);
  assert.deepEqual(ticks, [2000, 4000, 6000, 8000, 10_000]);
  const hour = 3600e3;
  const days = axisTicks({ from: 0, to: 3 * 24 * hour }, 100 / (24 * hour), -hour);
  assert.equal(days.ticks[0] % (24 * hour), 23 * hour, "midnight one hour east");
});

test("journal filters become request parameters", () => {
  const parameters = (query) => journalParameters(new URLSearchParams(query), 10_000_000);
  assert.equal(parameters({}).kind, "requested,changed,enrolled,removed,maintenance");
  assert.deepEqual(parameters({ kind: "all", text: " x ", node: "" }), { text: "x" });
  assert.equal(parameters({ span: "3600" }).from, new Date(10_000_000 - 3600e3).toISOString());
  assert.equal(parameters({ span: "own", from: "yesterday" }).from, undefined);
  const own = parameters({ span: "own", from: "2026-01-01T00:00:00Z" });
  assert.equal(own.from, "2026-01-01T00:00:00.000Z");
  const kinds = new Set(Object.keys(EVENT_KINDS));
  for (const [value] of KIND_OPTIONS.slice(2))
    for (const kind of value.split(",")) assert.ok(kinds.has(kind), kind);
});
