// What names a network and a scale of colours.

import { gradient, runColour } from "./colour";
import { h } from "./dom";

export function runLabel(run: { name: string }, place: number): HTMLElement {
  return h(
    "span",
    { class: "run" },
    h("span", { class: "swatch", style: `background:${runColour(place)}`, "aria-hidden": "true" }),
    run.name,
  );
}

export const legend = (
  name: string,
  colour: (value: number) => string,
  ends: [string, string],
): HTMLElement =>
  h(
    "span",
    { class: "legend" },
    name,
    " ",
    ends[0],
    h("span", { class: "bar", style: `background:${gradient(colour)}`, "aria-hidden": "true" }),
    ends[1],
  );
