// SPDX-License-Identifier: Apache-2.0
// A server and a browser for all tests of a file. The tests of a file share simulated machines, so they
// run one after another; files are independent of each other and run concurrently.

import { after, afterEach, before } from "node:test";
import { launch } from "./browser.js";
import { startServer } from "./server.js";

/** Starts both before the first test of a file; `prepare` gets the fixture. */
export function useFixture(options = {}, prepare = async () => {}) {
  const fixture = {};
  before(async () => {
    // Both settle, so that the other one is stopped if one fails.
    const [server, browser] = await Promise.allSettled([startServer(options), launch()]);
    Object.assign(fixture, { server: server.value, browser: browser.value });
    for (const { reason } of [server, browser]) if (reason) throw reason;
    await prepare(fixture);
  });
  afterEach(async (test) => {
    if (test.passed === false) console.error(test.name, await fixture.browser?.describe());
  });
  after(async () => {
    try {
      await fixture.browser?.close();
    } finally {
      await fixture.server?.stop();
    }
  });
  return fixture;
}
