// SPDX-License-Identifier: Apache-2.0
// Ten thousand machines in one view: how soon they are seen, and whether scrolling keeps up.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, picture } from "./support/browser.js";
import { serve } from "./support/program.js";

const MACHINES = Number(process.env.FERRITE_PAGE_MACHINES ?? 10_000);
/** The aims are for an idle machine; a busy one may say how much slower it is. */
const SLOWER = Number(process.env.FERRITE_SLOWER ?? 1);
let server, browser;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  let next = 0;
  const create = async () => {
    for (let index = next++; index < MACHINES; index = next++) {
      const rack = `r${String(Math.floor(index / 40) + 1).padStart(3, "0")}`;
      await server.ask("POST", "/v1/nodes", { driver: "fake-hardware", name: `${rack}-u${String((index % 40) + 1).padStart(2,
        "0")}`, resource_class: `class-${index % 3}`, extra: { rack } });
    }
  };
  await Promise.all(Array.from({ length: 8 }, create));
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

test("first useful paint, download and scrolling", async () => {
  const page = await browser.open("about:blank");
  let downloaded = 0, ofPage = 0;
  const network = await page.context().newCDPSession(page);
  await network.send("Network.enable");
  const paths = new Map();
  network.on("Network.responseReceived", ({ requestId, response }) => paths.set(requestId, response.url));
  network.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
    downloaded += encodedDataLength;
    if (paths.get(requestId)?.includes("/ui")) ofPage += encodedDataLength;
  });
  const began = Date.now();
  await page.goto(`${server.url}/ui/fleet`);
  await page.locator(`[data-state="enroll"]`).waitFor();
  await page.locator('[data-drawn]:not([data-drawn="0"])').waitFor();
  const painted = Date.now() - began;
  await picture(page, "fleet-10000");
  console.log(`${MACHINES} machines: first useful paint after ${painted} ms; ${Math.round(ofPage / 1000)} kB of page, ${Math.round(downloaded / 1000)} kB in all`);
  assert.ok(ofPage < 500_000, `the page is ${ofPage} bytes`);
  assert.ok(painted < 2000 * SLOWER, `first useful paint after ${painted} ms`);

  for (const look of ["grid", "table"]) {
    await page.goto(`${server.url}/ui/fleet?look=${look}`);
    const scroller = page.locator(look === "grid" ? ".grid-scroller" : ".fleet-table");
    await scroller.waitFor();
    await page.waitForTimeout(500);
    const { frames, worst, empty } = await scroller.evaluate(async (element, isTable) => {
      let frames = 0, worst = 0, empty = 0, before = performance.now();
      const end = before + 3000;
      while (performance.now() < end) {
        element.scrollTop += 400;
        if (element.scrollTop + element.clientHeight >= element.scrollHeight - 1) element.scrollTop = 0;
        await new Promise(requestAnimationFrame);
        // After the frame's own work the rows in sight must be there.
        await new Promise((resolve) => setTimeout(resolve, 0));
        const now = performance.now();
        worst = Math.max(worst, now - before);
        before = now;
        frames += 1;
        if (isTable) {
          const box = element.getBoundingClientRect();
          const middle = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
          if (!middle?.closest("[role=row]")) empty += 1;
        } else {
          // Somewhere down the left edge there are cells, which have another colour than what is behind them.
          const canvas = element.querySelector("canvas");
          const { data } = canvas.getContext("2d").getImageData(12, 0, 1, canvas.height);
          const colours = new Set(new Uint32Array(data.buffer));
          if (colours.size < 2) empty += 1;
        }
      }
      return { frames, worst, empty };
    }, look === "table");
    console.log(`${look}: ${Math.round(frames / 3)} frames a second while scrolling, the longest ${Math.round(worst)} ms, ${empty} without rows`);
    assert.equal(empty, 0, "no frame without rows");
    assert.ok(frames / 3 > 10 / SLOWER, `${frames / 3} frames a second`);
  }
});
