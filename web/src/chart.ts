// Observable Plot charts that follow the width of their box and the colour scheme.

import * as Plot from "@observablehq/plot";
import { extent } from "d3";
import { onThemeChange } from "./colour";
import { h } from "./dom";

export interface ChartOptions {
  title: string;
  /** What the chart shows, for screen readers. */
  label: string;
  note?: string;
}

/** A figure whose plot is drawn again when its box changes width or the colour scheme changes. */
export function chart(
  { title, label, note }: ChartOptions,
  draw: (width: number) => Plot.PlotOptions,
): HTMLElement {
  const box = h("div", { class: "chart-box" });
  const figure = h(
    "figure",
    { class: "chart" },
    h("figcaption", {}, h("strong", {}, title), note ? h("span", { class: "note" }, note) : null),
    box,
  );
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(box.clientWidth);
    if (width === 0 || width === drawn) return;
    drawn = width;
    const options: Plot.PlotOptions = {
      width,
      height: Math.round(Math.min(260, Math.max(170, width * 0.55))),
      marginLeft: 48,
      ariaLabel: label,
      style: { fontSize: "11px", background: "transparent" },
      ...draw(width),
    };
    box.replaceChildren(Plot.plot(options));
  };
  new ResizeObserver(redraw).observe(box);
  onThemeChange(() => {
    drawn = 0;
    redraw();
  });
  return figure;
}

/** The range of some numbers, never empty: a run can measure the same number in every epoch. */
export function domainOf(values: number[], zero: boolean): [number, number] {
  const [least, most] = extent(values) as [number, number];
  const low = zero ? Math.min(0, least) : least;
  return [low, most > low ? most : low + (low === 0 ? 1 : 0.1 * Math.abs(low))];
}
