// SPDX-License-Identifier: Apache-2.0
// What a machine waits for, in words, and what happens when the time is over.

const WAITS = {
  "agent heartbeat": ["Waits for the agent's first call",
    "The machine boots the ramdisk. If no agent has called by then, the job tries another way of booting or fails."],
  "agent step": ["The agent works on a step", "It calls when the step is over, and is asked in between."],
  "inspection data": ["Waits for inspection data",
    "The machine boots the inspection ramdisk, which sends what it finds. If nothing has come by then, inspection fails."],
  "wait step": ["A step waits", "The job goes on by itself."],
  "hold": ["Held by an operator", "“Go on” or “Abort” ends the hold."],
  "BMC answer": ["The BMC does not answer", "It is asked again until then."],
  "agent answer": ["The agent does not answer", "It is asked again until then."],
};

/** `[what it waits for, what comes of it]`. */
export const waitWords = (why) => WAITS[why] ?? [`Waits for: ${why}`, ""];
