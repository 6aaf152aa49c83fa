// SPDX-License-Identifier: Apache-2.0
// Starts the page.

import { html, render } from "../vendor/preact-htm.js";
import { lookWhoWeAre } from "./session.js";
import { Shell } from "./shell.js";

render(html`<${Shell} />`, document.getElementById("app"));
lookWhoWeAre();
