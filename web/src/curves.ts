// metrics.csv as curves: every run in one chart per quantity.

import * as Plot from "@observablehq/plot";
import { chart, domainOf } from "./chart";
import { runColour } from "./colour";
import { h } from "./dom";
import type { Report } from "./schema";
import { runLegend } from "./summary";

interface Point {
  x: number;
  y: number;
  run: string;
  colour: string;
  series: string;
}

interface Curve {
  title: string;
  y: string;
  /** metrics.csv column -> what it is called; the first is drawn solid, the second dashed. */
  series: [column: string, name: string][];
  x?: [column: string, label: string];
  percent?: boolean;
  zero?: boolean;
}

const CURVES: Curve[] = [
  {
    title: "Loss",
    y: "margin loss",
    series: [
      ["validation_loss", "validation"],
      ["train_loss", "training"],
    ],
  },
  {
    title: "Accuracy",
    y: "%",
    series: [
      ["validation_accuracy", "validation"],
      ["train_accuracy", "training"],
    ],
    percent: true,
  },
  {
    title: "Test accuracy",
    y: "%",
    series: [
      ["test_accuracy", "as it is"],
      ["accuracy_quantized", "quantized"],
    ],
    percent: true,
  },
  { title: "Entropy", y: "bits", series: [["entropy", "test set"]], zero: true },
  {
    title: "Parse trees",
    y: "trees in a class (median)",
    series: [["keys", "test set"]],
    zero: true,
  },
  {
    title: "Sparsity",
    y: "% of weights that are zero",
    series: [["sparsity", "all"]],
    percent: true,
    zero: true,
  },
  {
    title: "Entropy against sparsity",
    y: "bits",
    series: [["entropy", "test set"]],
    x: ["sparsity", "% of weights that are zero"],
    zero: true,
  },
];

function points(report: Report, curve: Curve): Point[] {
  const scale = curve.percent ? 100 : 1;
  return report.runs.flatMap((run, place) => {
    const { columns } = run.metrics;
    const xs = columns[curve.x?.[0] ?? "epoch"] ?? [];
    // A run that never prunes has one point on this axis.
    if (curve.x && xs.every((x) => x === 0)) return [];
    return curve.series.flatMap(([column, series]) =>
      (columns[column] ?? []).flatMap((value, row) => {
        const x = xs[row];
        if (value === null || x === null || x === undefined) return [];
        return [
          {
            x: curve.x ? 100 * x : x + 1,
            y: scale * value,
            run: run.name,
            colour: runColour(place),
            series,
          },
        ];
      }),
    );
  });
}

function draw(report: Report, curve: Curve): HTMLElement | null {
  const data = points(report, curve);
  if (data.length === 0) return null;
  if (curve.series[0][0] === "sparsity" && data.every((point) => point.y === 0)) return null;
  const present = curve.series.filter(([, name]) => data.some((point) => point.series === name));
  const note = present.length > 1 ? `${present[0][1]} ━  ${present[1][1]} ╍` : undefined;
  const key = (point: Point) => `${point.run} ${point.series}`;
  const places = new Set(data.map((point) => point.x));
  const few = places.size <= 40;
  const domain = domainOf(
    data.map((point) => point.y),
    curve.zero ?? false,
  );
  return chart({ title: curve.title, note, label: `${curve.title} of each run` }, () => ({
    x: {
      label: curve.x?.[1] ?? "epoch",
      ticks: curve.x ? 5 : Math.max(1, Math.min(6, places.size - 1)),
      domain: domainOf([...places], false),
      tickFormat: "d",
    },
    y: { label: curve.y, grid: true, domain, ticks: 5, nice: true },
    marks: [
      ...curve.series.map(([, name], place) =>
        Plot.lineY(
          data.filter((point) => point.series === name),
          {
            x: "x",
            y: "y",
            z: key,
            stroke: "colour",
            strokeWidth: place === 0 ? 1.8 : 1.4,
            strokeDasharray: place === 0 ? undefined : "4 3",
            strokeOpacity: place === 0 ? 1 : 0.8,
          },
        ),
      ),
      few ? Plot.dot(data, { x: "x", y: "y", fill: "colour", r: 2.2 }) : null,
      Plot.tip(
        data,
        Plot.pointer({
          x: "x",
          y: "y",
          stroke: "colour",
          title: (point: Point) =>
            `${point.run}\n${curve.title}, ${point.series}: ${point.y.toPrecision(4)}\n` +
            `${curve.x ? "at" : "epoch"} ${curve.x ? `${point.x.toFixed(1)} % zeros` : point.x}`,
        }),
      ),
    ],
  }));
}

/** Only the folder of a run has its metrics.csv: weights files and networks of the zoo do not. */
function withoutCurves(report: Report): HTMLElement | null {
  const names = report.runs
    .filter((run) => Object.keys(run.metrics.columns).length === 0)
    .map((run) => run.name);
  if (names.length === 0) return null;
  return h(
    "p",
    { class: "empty" },
    `No curves for ${names.join(", ")}: only run folders have a metrics.csv, weights files and networks of the zoo do not.`,
  );
}

export function curvesSection(report: Report): HTMLElement {
  const figures = CURVES.map((curve) => draw(report, curve)).filter((figure) => figure !== null);
  return h(
    "section",
    { id: "curves" },
    h("h2", {}, "Curves"),
    withoutCurves(report),
    figures.length > 0 ? runLegend(report) : null,
    figures.length > 0 ? h("div", { class: "charts" }, ...figures) : null,
  );
}
