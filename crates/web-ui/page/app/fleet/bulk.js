// SPDX-License-Identifier: Apache-2.0
// An action on many machines: first what would happen to which, then a word of confirmation, then how
// each of them gets on.

import { html, useEffect, useMemo, useRef, useState } from "../../vendor/preact-htm.js";
import { post } from "../api.js";
import { askToDeploy } from "../deploy/ask.js";
import { Dialog } from "../dialog.js";
import { Icon } from "../icons.js";
import { Plan } from "../plan.js";
import { count } from "../sizes.js";
import { State, isBusy, isFailed } from "../states.js";
import { useSubject } from "../subject.js";
import { say } from "../toasts.js";
import { titleOf } from "../verbs.js";
import { ActionForm, formIsComplete } from "./action_form.js";
import { expectChanges, fleet } from "./model.js";

/** Browsers allow six connections to a server; one is the event stream's. */
const AT_ONCE = 5;

export function BulkDialog({ action, rows, onClose }) {
  const [outlook, setOutlook] = useState(null);
  const [given, setGiven] = useState({});
  const [typed, setTyped] = useState("");
  const [started, setStarted] = useState(false);
  useEffect(() => { foresee(action, rows).then(setOutlook, (error) => setOutlook({ error })); }, []);

  if (started) return html`<${Progress} action=${action} rows=${outlook.possible} given=${given} onClose=${onClose} />`;
  const number = outlook?.possible?.length ?? 0;
  const mustType = action.wipes && number > 5;
  const ready = number > 0 && formIsComplete(action, given) && (!mustType || typed === String(number));
  const footer = html`
    ${mustType && html`<label class="check grow"><span>Type <strong>${number}</strong> to confirm</span>
      <input type="text" inputmode="numeric" style=${{ width: "90px" }} aria-label="Number of machines, to confirm" value=${typed}
        onInput=${(event) => setTyped(event.currentTarget.value)} /></label>`}
    <span class="grow"></span>
    <button class="button" onClick=${onClose}>Cancel</button>
    <button class="button ${action.wipes || action.grave ? "danger" : "primary"}" data-confirm disabled=${!ready}
      onClick=${() => setStarted(true)}>
      ${titleOf(action)} ${count(number, "machine")}</button>`;
  return html`<${Dialog} title="${titleOf(action)}: ${count(rows.length, "machine")}" class="wide" onClose=${onClose}
    footer=${footer}>
    <p>${action.does}${action.wipes ? " Data on their disks is lost." : ""}</p>
    ${!outlook && html`<div class="loading" role="status" aria-label="Asking what would happen"></div>`}
    ${outlook?.error && html`<div class="notice bad"><${Icon} name="warning" />${outlook.error.message}</div>`}
    ${outlook?.possible && html`<${Outlook} outlook=${outlook} />`}
    ${number > 0 && html`<${ActionForm} action=${action} given=${given} onChange=${setGiven} />`}
  <//>`;
}

function Outlook({ outlook: { possible, refused, plans } }) {
  const names = (rows) => rows.map((row) => row.label).join(", ");
  return html`
    ${possible.length > 0 && html`<div><h2><span class="number" data-possible=${possible.length}>
      ${count(possible.length, "machine")}</span> will do this</h2>
      <p class="quiet names">${names(possible.slice(0, 40))}${possible.length > 40 ? ` and ${possible.length - 40} more` : ""}</p>
        </div>`}
    ${plans.map(({ plan, ends_in: end, rows }) => html`<div key=${plan.join()}><h2 class="minor">
      ${plans.length > 1 ? `${count(rows, "machine")}: ` : ""}step by step, ending in ${end}</h2><${Plan} plan=${plan} /></div>`)}
    ${refused.length > 0 && html`<div class="refusals"><h2 data-refused=${refused.reduce((sum, one) => sum + one.rows.length, 0)}>
      ${count(refused.reduce((sum, one) => sum + one.rows.length, 0), "machine")} refused, and left alone</h2>
      ${refused.map(({ why, rows }) => html`<details key=${why} class="notice warn"><summary><span>
        ${count(rows.length, "machine")}: ${why}</span></summary><p class="quiet">${names(rows)}</p></details>`)}</div>`}`;
}

/** Asks the server what would happen: `{possible, refused: [{why, rows}], plans}`. */
async function foresee(action, rows) {
  if (!action.verb) return { ...judge(action, rows), plans: [] };
  const answer = await post("/v1/ferrite/explain", { target: action.verb, nodes: rows.map((row) => row.uuid) });
  const byId = new Map(rows.map((row) => [row.uuid, row]));
  const refused = answer.refused.map(({ why, nodes }) => ({ why, rows: nodes.map((uuid) => byId.get(uuid)).filter(Boolean) }));
  const possible = answer.plans.flatMap((one) => one.nodes.map((uuid) => byId.get(uuid)).filter(Boolean));
  const plans = answer.plans.map(({ plan, ends_in, nodes }) => ({ plan, ends_in, rows: nodes.length }));
  return { possible, refused, plans };
}

/** Power and maintenance are not explained by the server: what is so already is left alone. */
function judge({ id }, rows) {
  const already = {
    "power-on": (row) => row.power_state === "power on" && "is on already",
    "power-off": (row) => row.power_state === "power off" && "is off already",
    "soft-off": (row) => row.power_state === "power off" && "is off already",
    "maintenance-on": (row) => row.maintenance && "is in maintenance already",
    "maintenance-off": (row) => !row.maintenance && "is not in maintenance",
  }[id] ?? (() => false);
  const possible = [], reasons = new Map();
  for (const row of rows) {
    const why = already(row);
    if (!why) possible.push(row);
    else if (reasons.has(why)) reasons.get(why).push(row);
    else reasons.set(why, [row]);
  }
  return { possible, refused: [...reasons].map(([why, members]) => ({ why, rows: members })) };
}

function Progress({ action, rows, given, onClose }) {
  const { byId, asOf } = useSubject(fleet);
  const answers = useRef(new Map()).current;
  const [turn, setTurn] = useState(0);
  const running = useRef(true);
  useEffect(() => {
    const queue = [...rows];
    // However many answers come in between, they are looked at once a frame.
    let frame = null;
    const show = () => { frame = null; setTurn((before) => before + 1); };
    const work = async () => {
      for (let row = queue.shift(); row && running.current; row = queue.shift()) {
        const outcome = await perform(action, row, given).then(() => ({ at: performance.now() }), (error) => ({ error }));
        answers.set(row.uuid, outcome);
        frame ??= requestAnimationFrame(show);
        expectChanges();
      }
    };
    for (let index = 0; index < AT_ONCE; index++) work();
    return () => {
      running.current = false;
      cancelAnimationFrame(frame);
      const names = queue.slice(0, 20).map((row) => row.label).join(", ");
      if (queue.length) say(`${count(queue.length, "machine")} not asked any more: ${names}${queue.length > 20 ? "…" : ""}`, "bad");
    };
  }, []);

  const standings = useMemo(() => rows.map((row) => ({ row: byId.get(row.uuid) ?? row,
    ...standing(action, byId.get(row.uuid) ?? row, answers.get(row.uuid), asOf) })), [fleet.value, turn]);
  const tally = { done: 0, bad: 0, under: 0, queued: 0 };
  for (const one of standings) tally[one.how] += 1;
  const over = tally.under + tally.queued === 0;
  const footer = html`<span class="grow quiet">
    ${over ? "All of them are through." : "This goes on at the server if you close the window; only those still queued are not asked."}</span>
    <button class="button ${over ? "primary" : ""}" onClick=${onClose}>${over ? "Done" : "Close"}</button>`;
  // Those that went wrong come first: they are what is looked for.
  const order = { bad: 0, under: 1, queued: 2, done: 3 };
  const shown = [...standings].sort((one, other) => order[one.how] - order[other.how]).slice(0, 300);
  return html`<${Dialog} title="${titleOf(action)}: ${count(rows.length, "machine")}" class="wide" onClose=${onClose}
    footer=${footer}>
    <p class="number" role="status" data-progress=${over ? "over" : "running"} data-done=${tally.done}>
      ${tally.done} done · ${tally.under} under way · ${tally.bad} failed${tally.queued ? ` · ${tally.queued} queued` : ""}</p>
    <div class="progress" aria-hidden="true"><i style=${{ flexGrow: tally.done }}></i>
      <i class="bad" style=${{ flexGrow: tally.bad }}></i><i class="rest" style=${{ flexGrow: tally.under + tally.queued }}></i>
      </div>
    <ul class="outcomes">${shown.map(({ row, how, words }) => html`<li key=${row.uuid}><span>${row.label}</span>
      ${how === "bad" ? html`<span class="bad-text grow">${words}</span>` : html`<span class="grow">
        <${State} state=${row.provision_state} target=${row.target_provision_state} /></span><span class="quiet">${words}</span>`}
        </li>`)}</ul>
  <//>`;
}

function perform(action, row, given) {
  return askToDeploy(row.uuid, action.form === "deploy" ? given.instance_info : null, () => action.ask(row.uuid, given.body));
}

/** How one machine stands: `done`, `bad`, `under` way or `queued`, and in words. */
function standing(action, row, answer, asOf) {
  if (answer === undefined) return { how: "queued", words: "queued" };
  if (answer.error) return { how: "bad", words: answer.error.message };
  // Until the row is newer than the answer it tells of the time before.
  if (answer.at >= asOf) return { how: "under", words: "accepted" };
  if (action.power) return powerStanding(action, row);
  if (!action.verb) return { how: "done", words: row.maintenance ? "in maintenance" : "" };
  if (isFailed(row.provision_state)) return { how: "bad", words: row.error ?? row.provision_state };
  if (isBusy(row.provision_state)) return { how: "under", words: row.why ?? "" };
  return { how: "done", words: row.provision_state };
}

function powerStanding(action, row) {
  if (row.target_power_state) return { how: "under", words: `→ ${row.target_power_state}` };
  const wanted = action.id === "power-off" || action.id === "soft-off" ? "power off" : "power on";
  if (row.power_state === wanted) return { how: "done", words: row.power_state };
  return { how: "bad", words: row.error ?? `It is still at ${row.power_state}.` };
}
