// The numbers of each run beside the paper's, and per class.

import * as Plot from "@observablehq/plot";
import { chart, domainOf } from "./chart";
import { runColour, shareColour, shareInk } from "./colour";
import { commas, h, percent } from "./dom";
import { runLabel } from "./legend";
import type { PaperNumbers, Report, Run } from "./schema";

type Pair = [number, number | null];

const withSpread = ([mean, spread]: Pair, digits: number): string =>
  spread === null ? mean.toFixed(digits) : `${mean.toFixed(digits)} ± ${spread.toFixed(digits)}`;

interface Column {
  head: string;
  hint: string;
  ours: (run: Run) => string;
  paper?: (paper: PaperNumbers) => string | undefined;
}

const COLUMNS: Column[] = [
  {
    head: "Accuracy",
    hint: "Share of images classified rightly, couplings as they are",
    ours: (run) => percent(run.accuracy),
    paper: (paper) => paper.accuracy && withSpread(paper.accuracy, 2),
  },
  {
    head: "Quantized",
    hint: "Accuracy with quantized couplings",
    ours: (run) => percent(run.accuracy_quantized),
    paper: (paper) => paper.accuracy_quantized && withSpread(paper.accuracy_quantized, 2),
  },
  {
    head: "Entropy",
    hint: "Bits per class's dictionary of parse trees, mean ± standard deviation over classes",
    ours: (run) => `${run.entropy.toFixed(2)} ± ${run.entropy_std.toFixed(2)}`,
    paper: (paper) => paper.entropy && withSpread(paper.entropy, 2),
  },
  {
    head: "Trees",
    hint: "Different parse trees in a class, median over classes",
    ours: (run) => commas(run.median_keys),
  },
  {
    head: "Parts",
    hint: "Effective parts: the fewest capsules that carry half of what is for the answer, mean over images",
    ours: (run) =>
      `${run.effective_parts.half.toFixed(1)} of ${commas(run.effective_parts.capsules)}`,
  },
  {
    head: "Sparsity",
    hint: "Share of zeros among the parameters of the prunable layers",
    ours: (run) => percent(run.sparsity),
    paper: (paper) => (paper.sparsity === undefined ? undefined : `${paper.sparsity.toFixed(2)} %`),
  },
  {
    head: "Parameters left",
    hint: "Parameters that are not zero",
    ours: (run) => commas(run.parameters_nonzero),
  },
];

/** Which colour is which run. */
export const runLegend = (report: Report): HTMLElement =>
  h("p", { class: "legends runs" }, ...report.runs.map((run, place) => runLabel(run, place)));

const details = (run: Run, report: Report): string => {
  const dataset = report.datasets[run.dataset];
  const levels = run.layers.map((layer) => (layer.levels === 0 ? "–" : layer.levels)).join(", ");
  const pruning = run.pruning === "none" ? "not pruned" : `pruned by ${run.pruning}`;
  return `${run.model} on ${dataset.name}, ${pruning}, K = ${levels}, ${run.checkpoint} checkpoint (epoch ${run.epoch + 1})`;
};

/** What was changed of the recipe; nothing if it ran as it is. */
function changes(run: Run): HTMLElement | null {
  const changed = Object.entries(run.changed).map(([key, value]) => `${key}=${value}`);
  return changed.length > 0 ? h("small", {}, `recipe changed: ${changed.join(", ")}`) : null;
}

function summaryTable(report: Report): HTMLElement {
  const head = h("tr", {}, h("th", { scope: "col" }, "Run"));
  for (const column of COLUMNS) {
    head.append(
      h("th", { scope: "col", class: "number" }, h("abbr", { title: column.hint }, column.head)),
    );
  }
  const body = h("tbody");
  report.runs.forEach((run, place) => {
    const row = h(
      "tr",
      {},
      h(
        "th",
        { scope: "row" },
        runLabel(run, place),
        h("small", {}, details(run, report)),
        changes(run),
        run.paper && h("small", { class: "paper" }, `paper: ${run.paper.arm}, ${run.paper.source}`),
      ),
    );
    for (const column of COLUMNS) {
      const paper = run.paper ? column.paper?.(run.paper) : undefined;
      row.append(
        h(
          "td",
          { class: "number", "data-head": column.head },
          h("span", { class: "ours" }, column.ours(run)),
          paper
            ? h("small", { class: "paper" }, h("span", { class: "tag" }, "paper"), " ", paper)
            : null,
        ),
      );
    }
    body.append(row);
  });
  return h(
    "div",
    { class: "scroll" },
    h("table", { class: "summary" }, h("thead", {}, head), body),
  );
}

/** A number per class: a dot for each run, and a line between them. */
function perClass(
  report: Report,
  title: string,
  axis: string,
  pick: (run: Run) => number[],
  log: boolean,
): HTMLElement {
  const rows = report.runs.flatMap((run, place) => {
    const { classes } = report.datasets[run.dataset];
    return pick(run)
      .map((value, c) => ({ class: classes[c], value, run: run.name, colour: runColour(place) }))
      .filter((_, c) => run.samples_per_class[c] > 0);
  });
  const names = [...new Set(report.datasets.flatMap((dataset) => dataset.classes))];
  const shown = rows.filter((row) => names.indexOf(row.class) < 40);
  const longest = Math.max(...names.map((name) => name.length));
  const values = shown.map((row) => row.value);
  const domain = log ? [1, Math.max(10, ...values)] : domainOf(values, true);
  const note = names.length > 40 ? `the first 40 of ${names.length} classes` : undefined;
  return chart({ title, note, label: `${title} of each run` }, () => ({
    height: 46 + 22 * Math.min(40, names.length),
    marginLeft: Math.min(120, 14 + 6.2 * longest),
    marginRight: 16,
    x: {
      label: axis,
      grid: true,
      type: log ? "log" : "linear",
      domain,
      ticks: 5,
      tickFormat: "~s",
    },
    y: { label: null, domain: names.slice(0, 40), tickSize: 0 },
    marks: [
      Plot.ruleY(
        shown,
        Plot.groupY(
          { x1: "min", x2: "max" },
          { x: "value", y: "class", strokeOpacity: 0.25, strokeWidth: 3 },
        ),
      ),
      Plot.dot(shown, {
        x: "value",
        y: "class",
        fill: "colour",
        r: 4.5,
        channels: { run: "run" },
        tip: { format: { fill: false } },
      }),
    ],
  }));
}

function confusion(run: Run, place: number, report: Report): HTMLElement {
  const { classes } = report.datasets[run.dataset];
  const cells = run.confusion.flatMap((row, truth) => {
    const total = row.reduce((sum, count) => sum + count, 0) || 1;
    return row.map((count, predicted) => ({
      truth: classes[truth],
      predicted: classes[predicted],
      share: count / total,
      count,
    }));
  });
  const margin = 14 + 6.2 * Math.max(...classes.map((name) => name.length));
  const figure = chart(
    { title: "", label: `Confusion matrix of ${run.name}: true classes in rows` },
    (width) => ({
      height: Math.min(width, 520),
      marginLeft: Math.min(110, margin),
      marginBottom: Math.min(110, margin + 10),
      padding: 0.05,
      x: { label: "predicted", domain: classes, tickRotate: -60, tickSize: 0 },
      y: { label: "true", domain: classes, tickSize: 0 },
      marks: [
        Plot.cell(cells, {
          x: "predicted",
          y: "truth",
          fill: (cell: { share: number }) => shareColour(cell.share),
        }),
        width <= 420
          ? null
          : Plot.text(
              cells.filter((cell) => cell.count > 0),
              {
                x: "predicted",
                y: "truth",
                text: "count",
                fill: (cell: { share: number }) => shareInk(cell.share),
                fontSize: 10,
              },
            ),
      ],
    }),
  );
  figure.querySelector("figcaption")!.replaceChildren(runLabel(run, place));
  return figure;
}

export function summarySection(report: Report): HTMLElement {
  const section = h(
    "section",
    { id: "summary" },
    h("h2", {}, "Summary"),
    summaryTable(report),
    h(
      "div",
      { class: "charts two" },
      perClass(report, "Entropy of each class", "bits", (run) => run.entropy_per_class, false),
      perClass(
        report,
        "Parse trees of each class",
        "different trees",
        (run) => run.keys_per_class,
        true,
      ),
      perClass(
        report,
        "Effective parts of each class",
        "capsules",
        (run) => run.effective_parts.half_per_class.map((parts) => parts ?? 0),
        false,
      ),
    ),
  );
  const matrices = report.runs
    .map((run, place) => ({ run, place }))
    .filter(({ run }) => run.confusion.length <= 20);
  if (matrices.length > 0) {
    section.append(
      h(
        "details",
        {},
        h("summary", {}, "Confusion matrices"),
        h(
          "div",
          { class: "charts two" },
          ...matrices.map(({ run, place }) => confusion(run, place, report)),
        ),
      ),
    );
  }
  return section;
}
