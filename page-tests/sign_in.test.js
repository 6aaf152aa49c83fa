// SPDX-License-Identifier: Apache-2.0
// Signing in: refused, accepted, remembered, ended; and what a cookie alone may not do.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { serve } from "./support/program.js";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve({ auth: "basic" }), launch()]); });
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

test("a wrong password is refused, the right one lets in, and signing out ends it", async () => {
  const page = await browser.open(`${server.url}/ui`);
  await page.getByLabel("User").fill("admin");
  await page.getByLabel("Password").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("Incorrect username or password").waitFor();
  await isSound(page, "refused sign-in");
  await picture(page, "sign-in");

  await page.getByLabel("Password").fill(server.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "No machines yet" }).waitFor();
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.sameSite], ["ferrite_session", true, "Strict"]);
  assert.ok(!(await page.content()).includes(server.password), "the password is not in the page");

  await page.reload();
  await page.getByRole("heading", { name: "No machines yet" }).waitFor();
  await page.getByText("Live", { exact: true }).waitFor();

  await page.getByRole("button", { name: /Sign out/ }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  const again = await fetch(`${server.url}/v1/nodes`, { headers: { Cookie: `ferrite_session=${cookie.value}` } });
  assert.equal(again.status, 401, "the cookie is worthless once signed out");
});

test("a cookie alone changes nothing", async () => {
  const signedIn = await fetch(`${server.url}/ui/session`, {
    method: "POST", headers: { "X-Ferrite-Page": "1" }, body: JSON.stringify({ username: "admin", password: server.password }),
  });
  const cookie = signedIn.headers.get("set-cookie").split(";")[0];
  const create = (headers) => fetch(`${server.url}/v1/nodes`, { method: "POST", headers: { Cookie: cookie, ...headers },
    body: '{"driver": "fake-hardware"}' });
  assert.equal((await create({})).status, 403);
  assert.equal((await create({ "X-Ferrite-Page": "1" })).status, 201);
});
