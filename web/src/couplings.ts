// The distribution of the couplings to the predicted class, class by class.

import * as Plot from "@observablehq/plot";
import { chart } from "./chart";
import { runColour } from "./colour";
import { h } from "./dom";
import type { Report } from "./schema";
import { runLegend } from "./summary";

const MOST_CLASSES = 20;

function classChart(report: Report, name: string): HTMLElement | null {
  let smallest = 1;
  const series = report.runs.flatMap((run, place) => {
    const c = report.datasets[run.dataset].classes.indexOf(name);
    if (c < 0) return [];
    const counts = run.histogram[c];
    const total = counts.reduce((sum, count) => sum + count, 0);
    if (total === 0) return [];
    smallest = Math.min(smallest, 1 / total);
    return counts.map((count, bin) => ({
      x1: bin / counts.length,
      x2: (bin + 1) / counts.length,
      x: (bin + 0.5) / counts.length,
      share: count / total,
      run: run.name,
      colour: runColour(place),
    }));
  });
  if (series.length === 0) return null;
  const floor = Math.max(1e-6, smallest) / 2;
  const decades = [0, -2, -4, -6].map((power) => 10 ** power).filter((share) => share > floor);
  const label = (share: number) => `${+(100 * share).toPrecision(1)} %`;
  return chart({ title: name, label: `Distribution of couplings to class ${name}` }, () => ({
    height: 140,
    marginLeft: 14 + 6.6 * Math.max(...decades.map((share) => label(share).length)),
    x: { label: "coupling", domain: [0, 1], ticks: 5 },
    y: {
      label: "share",
      type: "log",
      domain: [floor, 1],
      ticks: decades,
      tickFormat: label,
      grid: true,
    },
    marks: [
      Plot.areaY(series, {
        x: "x",
        y1: floor,
        y2: (bin: { share: number }) => Math.max(floor, bin.share),
        z: "run",
        fill: "colour",
        fillOpacity: 0.16,
        curve: "step",
      }),
      Plot.line(series, {
        x: "x",
        y: (bin: { share: number }) => (bin.share > 0 ? bin.share : NaN),
        z: "run",
        stroke: "colour",
        curve: "step",
        strokeWidth: 1.5,
      }),
      Plot.tip(
        series,
        Plot.pointerX({
          x: "x",
          y: (bin: { share: number }) => Math.max(floor, bin.share),
          title: (bin: (typeof series)[number]) =>
            `${bin.run}\n${(100 * bin.share).toPrecision(3)} % of couplings in ${bin.x1.toFixed(2)}–${bin.x2.toFixed(2)}`,
        }),
      ),
    ],
  }));
}

export function couplingsSection(report: Report): HTMLElement {
  const names = [...new Set(report.datasets.flatMap((dataset) => dataset.classes))];
  const figures = names
    .slice(0, MOST_CLASSES)
    .map((name) => classChart(report, name))
    .filter((figure) => figure !== null);
  return h(
    "section",
    { id: "couplings" },
    h("h2", {}, "Couplings"),
    h(
      "p",
      { class: "lead" },
      "How strongly the capsules below are coupled to the predicted class, before quantization, over all images. " +
        "A network that decides for few parts has most of its couplings near 0 and some near 1; one that does not decide has them near 1 / classes. The vertical scale is logarithmic." +
        (names.length > MOST_CLASSES
          ? ` The first ${MOST_CLASSES} of ${names.length} classes are shown.`
          : ""),
    ),
    runLegend(report),
    h("div", { class: "charts small" }, ...figures),
  );
}
