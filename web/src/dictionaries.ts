// The most frequent parse trees of a class, with the images that have them.

import * as Plot from "@observablehq/plot";
import { chart } from "./chart";
import { runColour } from "./colour";
import { loadDataset } from "./data";
import { commas, h, percent, plural, select } from "./dom";
import { imageCanvas } from "./images";
import type { Report, Run } from "./schema";
import type { Store } from "./state";
import { runLabel } from "./legend";

function shares(report: Report, place: number, c: number): HTMLElement {
  const run = report.runs[place];
  const total = run.samples_per_class[c];
  const listed = run.dictionary[c].reduce((sum, tree) => sum + tree.count, 0);
  const parts = run.dictionary[c].map((tree, rank) => ({
    name: `tree ${rank + 1}`,
    count: tree.count,
    rank,
  }));
  const others = run.keys_per_class[c] - parts.length;
  if (others > 0)
    parts.push({ name: `${plural(others, "other tree")}`, count: total - listed, rank: -1 });
  return chart({ title: "", label: "Share of the class each tree has" }, () => ({
    height: 44,
    marginTop: 0,
    marginLeft: 6,
    marginRight: 14,
    x: { label: null, domain: [0, total], ticks: 5, tickFormat: "~s" },
    marks: [
      Plot.barX(
        parts,
        Plot.stackX({
          x: "count",
          fill: (part: { rank: number }) => (part.rank < 0 ? "currentColor" : runColour(place)),
          fillOpacity: (part: { rank: number }) =>
            part.rank < 0 ? 0.12 : Math.max(0.25, 1 - 0.1 * part.rank),
          insetRight: 1,
          title: (part: { name: string; count: number }) =>
            `${part.name}: ${plural(part.count, "image")}, ${percent(part.count / total, 1)}`,
        }),
      ),
    ],
  }));
}

const differences = (run: Run, c: number): string =>
  run.keys_per_class[c] === 1
    ? ""
    : `, which differ in ${commas(run.varying_per_class[c])} of ${plural(run.key_couplings, "coupling")}`;

async function column(report: Report, place: number, c: number): Promise<HTMLElement> {
  const run = report.runs[place];
  const { gallery, info } = await loadDataset(report.datasets[run.dataset]);
  const total = run.samples_per_class[c];
  const box = h("div", { class: "panel" }, h("h3", {}, runLabel(run, place)));
  if (total === 0) {
    box.append(h("p", { class: "empty" }, `No image was predicted as ${info.classes[c]}.`));
    return box;
  }
  box.append(
    h(
      "p",
      {},
      h("strong", {}, plural(run.keys_per_class[c], "tree")),
      ` for ${plural(total, "image")} predicted as ${info.classes[c]}${differences(run, c)}: `,
      h("strong", {}, `${run.entropy_per_class[c].toFixed(2)} bits`),
    ),
    shares(report, place, c),
  );
  const list = h("ol", { class: "trees" });
  run.dictionary[c].forEach((tree, rank) => {
    list.append(
      h(
        "li",
        {},
        h(
          "div",
          { class: "tree-mean" },
          imageCanvas(gallery, tree.mean, `Mean of the images with tree ${rank + 1}`),
        ),
        h(
          "div",
          {},
          h(
            "p",
            {},
            h("strong", {}, commas(tree.count)),
            ` ${tree.count === 1 ? "image" : "images"}, ${percent(tree.count / total, 1)}`,
          ),
          h(
            "div",
            { class: "thumbs" },
            ...tree.images.map((image, i) =>
              imageCanvas(gallery, image, `Image ${i + 1} with tree ${rank + 1}`),
            ),
          ),
        ),
      ),
    );
  });
  box.append(list);
  return box;
}

export function dictionariesSection(report: Report, store: Store): HTMLElement {
  const columns = h("div", { class: "columns" });
  const picker = h("div", { class: "controls" });
  store.on(["runA", "runB"], ({ runA, dictionaryClass }) => {
    const { classes } = report.datasets[report.runs[runA].dataset];
    picker.replaceChildren(
      select(
        "Class",
        classes.map((name, c) => [String(c), name]),
        String(Math.min(dictionaryClass, classes.length - 1)),
        (value) => store.set({ dictionaryClass: Number(value) }),
      ),
    );
  });
  let turn = 0;
  store.on(["runA", "runB", "dictionaryClass"], async (state) => {
    const mine = ++turn;
    const places = [state.runA, state.runB].filter((place) => place !== null);
    const built = await Promise.all(
      places.map((place) => {
        const count = report.runs[place].dictionary.length;
        return column(report, place, Math.min(state.dictionaryClass, count - 1));
      }),
    );
    if (mine === turn) columns.replaceChildren(...built);
  });
  return h(
    "section",
    { id: "dictionaries" },
    h("h2", {}, "Dictionaries"),
    h(
      "p",
      { class: "lead" },
      "Images whose quantized couplings to the predicted class are equal share a parse tree. " +
        "The most frequent trees of a class, the mean of the images that share each, and some of those images.",
    ),
    picker,
    columns,
  );
}
