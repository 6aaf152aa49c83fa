// SPDX-License-Identifier: Apache-2.0
// Starts the page.

import { html, render } from "../vendor/preact-htm.js";
import { lookWhoWeAre } from "./session.js";
import { Shell } from "./shell.js";

const AGAIN_MS = 2000;

/** Nothing is shown until it is known who we are, so a server that cannot be reached is asked again. */
const begin = () => lookWhoWeAre().catch(() => setTimeout(begin, AGAIN_MS));

render(html`<${Shell} />`, document.getElementById("app"));
begin();
