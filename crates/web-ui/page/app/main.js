// SPDX-License-Identifier: Apache-2.0
// Starts the application.

import { html, render } from "../vendor/preact-htm.js";
import { followSession } from "./caller.js";
import { loadSession } from "./session.js";
import { Shell } from "./shell.js";

const RETRY_MS = 2000;

/** Nothing is rendered until the session is known, so an unreachable server is retried. */
const start = () => loadSession().catch(() => setTimeout(start, RETRY_MS));

const root = document.getElementById("app");
followSession();
if (root) render(html`<${Shell} />`, root);
start();
