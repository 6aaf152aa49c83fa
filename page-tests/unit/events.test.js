// SPDX-License-Identifier: Apache-2.0
// The parser of server-sent events, and independent subscriptions over one connection.

import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { EventHub, nextRetryDelay } from "../../crates/web-ui/page/app/event_hub.js";
import { EventParser } from "../../crates/web-ui/page/app/sse.js";

test("events are parsed from any chunks", () => {
  const text =
    ': following\n\nid: 7\nevent: state_changed\ndata: {"a": 1}\n\nevent: other\ndata: x\ndata: y\n\n';
  const expected = [
    { kind: "state_changed", data: '{"a": 1}', id: "7" },
    { kind: "other", data: "x\ny", id: null },
  ];
  assert.deepEqual(new EventParser().push(text), expected);
  const parser = new EventParser();
  assert.deepEqual(
    [...text].flatMap((character) => parser.push(character)),
    expected,
  );
  assert.deepEqual(parser.push("data: incomplete"), []);
});

test("retry delays double within bounds", () => {
  const delays = [0];
  for (let index = 0; index < 6; index++) delays.push(nextRetryDelay(delays.at(-1)));
  assert.deepEqual(delays, [0, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
});

/** A transport whose connections the test controls. */
function fakeTransport() {
  const transport = {
    hidden: false,
    reachable: true,
    connections: [],
    isHidden: () => transport.hidden,
    checkServer: () => (transport.reachable ? Promise.resolve() : Promise.reject(new Error())),
    connect(scope, handlers) {
      const connection = { scope, ...handlers, isOpen: true };
      transport.connections.push(connection);
      return {
        close: () => {
          connection.isOpen = false;
        },
      };
    },
    get open() {
      return transport.connections.filter(({ isOpen }) => isOpen);
    },
  };
  return transport;
}

const settle = () =>
  new Promise((resolve) => {
    setImmediate(resolve);
  });

/** Records the sequence numbers that a subscription receives. */
function recorder(hub, options) {
  const received = [];
  const stop = hub.subscribe({ ...options, onEvent: (_kind, _data, seq) => received.push(seq) });
  return { received, stop };
}

function emit(transport, seq, node = "n1") {
  for (const connection of transport.open)
    if (connection.scope.after === null || seq > connection.scope.after)
      connection.onEvent("state_changed", JSON.stringify({ node_uuid: node }), String(seq));
}

test("a second subscription does not take over the first", async () => {
  const transport = fakeTransport();
  const hub = new EventHub(transport);
  const fleet = recorder(hub, { after: 10 });
  await settle();
  assert.equal(transport.open.length, 1);
  transport.open[0].onOpen();
  emit(transport, 11);
  const machine = recorder(hub, { after: 11, node: "n2" });
  await settle();
  assert.equal(transport.open.length, 1, "one connection serves both");
  emit(transport, 12, "n1");
  emit(transport, 13, "n2");
  assert.deepEqual(fleet.received, [11, 12, 13]);
  assert.deepEqual(machine.received, [13], "only its node");
  machine.stop();
  await settle();
  emit(transport, 14);
  assert.deepEqual(fleet.received, [11, 12, 13, 14]);
  assert.deepEqual(machine.received, [13]);
});

test("a subscription from an older position gets the missed events, others no duplicates", async () => {
  const transport = fakeTransport();
  const hub = new EventHub(transport);
  const first = recorder(hub, { after: 10 });
  await settle();
  emit(transport, 11);
  const second = recorder(hub, { after: 5 });
  await settle();
  assert.equal(transport.open.length, 1);
  assert.equal(transport.open[0].scope.after, 5);
  for (const seq of [6, 11, 12]) emit(transport, seq);
  assert.deepEqual(first.received, [11, 12]);
  assert.deepEqual(second.received, [6, 11, 12]);
});

test("the server filters by node if all subscriptions are for the same one", async () => {
  const transport = fakeTransport();
  const hub = new EventHub(transport);
  const machine = recorder(hub, { after: 1, node: "n1" });
  await settle();
  assert.equal(transport.open[0].scope.node, "n1");
  const fleet = recorder(hub, { after: 1 });
  await settle();
  assert.equal(transport.open[0].scope.node, null);
  fleet.stop();
  await settle();
  assert.equal(transport.open[0].scope.node, "n1");
  machine.stop();
  await settle();
  assert.equal(transport.open.length, 0);
  assert.equal(hub.connection.value, "idle");
});

test("switching views opens one connection", async () => {
  const transport = fakeTransport();
  const hub = new EventHub(transport);
  const before = recorder(hub, { after: 1 });
  await settle();
  before.stop();
  recorder(hub, { after: 1 });
  await settle();
  assert.equal(transport.connections.length, 1, "the connection is kept");
});

test("events of all kinds are delivered with their data", async () => {
  const transport = fakeTransport();
  const hub = new EventHub(transport);
  const events = [];
  hub.subscribe({ after: 0, onEvent: (...event) => events.push(event) });
  await settle();
  transport.open[0].onEvent("from_a_newer_server", "{}", "1");
  assert.deepEqual(events, [["from_a_newer_server", "{}", 1]]);
});

test("a lost connection is retried after a check of the server", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const transport = fakeTransport();
    const hub = new EventHub(transport);
    const states = [];
    hub.connection.subscribe((state) => states.push(state));
    const { received } = recorder(hub, { after: 10 });
    await settle();
    transport.open[0].onOpen();
    emit(transport, 11);
    transport.reachable = false;
    transport.open[0].onClose();
    mock.timers.tick(2000);
    await settle();
    assert.equal(transport.open.length, 0, "the server is still unreachable");
    transport.reachable = true;
    mock.timers.tick(4000);
    await settle();
    assert.equal(transport.open[0].scope.after, 11, "it resumes after the last event");
    transport.open[0].onOpen();
    emit(transport, 12);
    assert.deepEqual(received, [11, 12]);
    assert.deepEqual(states, ["connecting", "live", "lost", "lost", "live"]);
  } finally {
    mock.timers.reset();
  }
});

test("a hidden tab closes its connection and catches up on return", async () => {
  const transport = fakeTransport();
  const hub = new EventHub(transport);
  let position = 50;
  const fleet = recorder(hub, { after: 10, catchUp: async () => position });
  const machine = recorder(hub, { after: 20, node: "n1" });
  await settle();
  transport.hidden = true;
  hub.visibilityChanged();
  assert.equal(transport.open.length, 0);
  transport.hidden = false;
  hub.visibilityChanged();
  await settle();
  assert.equal(transport.open[0].scope.after, 20, "from the oldest position");
  emit(transport, 30, "n1");
  emit(transport, 51, "n1");
  assert.deepEqual(fleet.received, [51], "what was caught up is not delivered again");
  assert.deepEqual(machine.received, [30, 51]);
  // After a restore of the database the position is lower.
  position = 3;
  transport.hidden = true;
  hub.visibilityChanged();
  transport.hidden = false;
  hub.visibilityChanged();
  await settle();
  assert.equal(transport.open[0].scope.after, 3);
});

test("a failed catch-up counts as a lost connection", async () => {
  mock.timers.enable({ apis: ["setTimeout"] });
  try {
    const transport = fakeTransport();
    const hub = new EventHub(transport);
    let position = null;
    recorder(hub, { after: 1, catchUp: async () => position });
    await settle();
    hub.networkLost();
    mock.timers.tick(2000);
    await settle();
    await settle();
    assert.equal(hub.connection.value, "lost");
    position = 5;
    mock.timers.tick(4000);
    await settle();
    await settle();
    assert.equal(transport.open[0].scope.after, 5);
  } finally {
    mock.timers.reset();
  }
});

test("the loss of the network is ignored without a connection", () => {
  const hub = new EventHub(fakeTransport());
  hub.networkLost();
  assert.equal(hub.connection.value, "idle");
});
