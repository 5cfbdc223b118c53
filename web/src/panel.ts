// One run's view of the chosen image (or of a mean over images): prediction, saliency, parse tree.

import * as Plot from "@observablehq/plot";
import { balanceColour, runColour, saliencyColour, strengthColour } from "./colour";
import type { DatasetData, Images, RunData } from "./data";
import { commas, h, percent, plural } from "./dom";
import { balanceCanvas, imageCanvas, imageName, rangeOf, saliencyCanvas } from "./images";
import { legend, runLabel } from "./legend";
import { levelsFor } from "./quantize";
import type { State } from "./state";
import type { Parts, SaliencyMap, Tree } from "./tree";
import {
  classTrees,
  enlarge,
  hasPlace,
  partsOf,
  placeOnImage,
  saliencyOf,
  storedLayers,
  treeKey,
  treeOf,
} from "./tree";
import { partsPicture, treePicture } from "./treeview";

const SIBLINGS = 14;

/** A run and the images that its data are of. */
export interface Sampled {
  run: RunData;
  dataset: DatasetData;
}

/** The class whose capsule the tree is followed from. */
function targetOf(run: RunData, state: State): number {
  const predicted = run.predicted[state.sample];
  if (state.target === "predicted") return predicted;
  // Only the predicted class's couplings may be in the page; a mean over a class needs no others.
  const stored = run.layers[run.layers.length - 1].columns === "all" || state.scope !== "image";
  return stored ? state.target : predicted;
}

function samplesOf(run: RunData, state: State, target: number): number[] {
  if (state.scope === "image") return [state.sample];
  return run.predicted.flatMap((predicted, sample) =>
    state.scope === "all" || predicted === target ? [sample] : [],
  );
}

function mapOf(run: RunData, tree: Tree, samples: number[], images: Images): SaliencyMap | null {
  const own = saliencyOf(tree, images.height, images.width, run.info.input);
  if (own || !run.saliency) return own;
  const { maps, max, height, width } = run.saliency;
  const sum = new Float32Array(height * width);
  for (const sample of samples) {
    for (let p = 0; p < sum.length; p++) {
      sum[p] += ((maps[sample * sum.length + p] / 255) * max[sample]) / samples.length;
    }
  }
  const values = enlarge(sum, height, width, images.height, images.width);
  return { values, height: images.height, width: images.width };
}

function figure(canvas: HTMLCanvasElement, caption: string): HTMLElement {
  return h("figure", { class: "view" }, canvas, h("figcaption", {}, caption));
}

/** The map of contributions, if their capsules have a place. */
function partsMapOf(run: RunData, parts: Parts, images: Images): SaliencyMap | null {
  const { info } = run.contributions!;
  if (!hasPlace(info)) return null;
  return placeOnImage(parts.values, info.grids, images.height, images.width, run.info.input);
}

function views(
  run: RunData,
  dataset: DatasetData,
  state: State,
  tree: Tree,
  parts: Parts | null,
  samples: number[],
): HTMLElement {
  const single = samples.length === 1;
  const images = single ? dataset.images : dataset.images.mean(samples);
  const place = single ? samples[0] : 0;
  const row = h("div", { class: "views" });
  row.append(figure(imageCanvas(images, place, "The image"), single ? "image" : "mean image"));
  const map = parts ? partsMapOf(run, parts, images) : mapOf(run, tree, samples, images);
  if (!map) {
    row.append(
      h(
        "p",
        { class: "empty" },
        "The capsules of this network have no place in the image, so there is no map of it.",
      ),
    );
    return row;
  }
  if (parts) {
    const of = `Contributions in ${run.info.name}`;
    row.append(
      figure(balanceCanvas(images, place, map, state.opacity, of), "contributions over it"),
      figure(balanceCanvas(images, place, map, 1, `${of}, the map alone`), "for it and against it"),
    );
    return row;
  }
  const label = `Saliency map of ${run.info.name}`;
  row.append(
    figure(saliencyCanvas(images, place, map, state.opacity, label), "saliency over it"),
    figure(
      saliencyCanvas(images, place, map, 1, `${label}, the map alone`),
      `map, ${rangeOf(map)
        .map((value) => value.toPrecision(2))
        .join(" to ")}`,
    ),
  );
  return row;
}

function prediction(
  run: RunData,
  dataset: DatasetData,
  state: State,
  tree: Tree,
  place: number,
): HTMLElement {
  const { classes, labels } = dataset.info;
  const bars = Array.from(tree.classes, (activation, c) => ({ name: classes[c], activation, c }))
    .sort((a, b) => b.activation - a.activation)
    .slice(0, 4);
  const truth: number | undefined = labels[state.sample]; // nobody has labelled an own picture
  const box = h("div", { class: "prediction" });
  if (state.scope === "image") {
    const plain = bars[0].c;
    const quantized = run.predicted[state.sample];
    const right = plain === truth;
    const [kind, mark] =
      truth === undefined
        ? ["verdict", ""]
        : right
          ? ["verdict right", "✓ "]
          : ["verdict wrong", "✗ "];
    box.append(
      h(
        "p",
        {},
        h("span", { class: kind }, mark, classes[plain]),
        right || truth === undefined ? "" : `, is ${classes[truth]}`,
        quantized === plain ? "" : `; with quantized couplings ${classes[quantized]}`,
      ),
    );
  }
  const longest = Math.max(...bars.map((bar) => bar.name.length));
  box.append(
    Plot.plot({
      width: 300,
      height: 24 * bars.length + 4,
      marginLeft: Math.min(130, 12 + 6.6 * longest),
      marginRight: 36,
      marginTop: 2,
      marginBottom: 2,
      ariaLabel: "Activations of the class capsules",
      style: { fontSize: "12px", background: "transparent" },
      x: { domain: [0, 1], axis: null },
      y: { domain: bars.map((bar) => bar.name), label: null, tickSize: 0 },
      marks: [
        Plot.barX(bars, {
          x: 1,
          y: "name",
          fill: "currentColor",
          fillOpacity: 0.07,
          insetTop: 3,
          insetBottom: 3,
        }),
        Plot.barX(bars, {
          x: "activation",
          y: "name",
          fill: runColour(place),
          insetTop: 3,
          insetBottom: 3,
        }),
        Plot.text(bars, {
          x: 1,
          y: "name",
          dx: 4,
          textAnchor: "start",
          text: (bar: { activation: number }) => bar.activation.toFixed(2),
        }),
      ],
    }),
  );
  return box;
}

/** Which of the sampled images have the same tree under the chosen K. */
function siblings(
  own: RunData,
  { run, dataset }: Sampled,
  state: State,
  target: number,
  choose: (sample: number) => void,
): HTMLElement {
  const trees = classTrees(run, target, state.levels);
  const name = dataset.info.classes[target];
  const box = h("div", { class: "siblings" });
  const last = run.layers[run.layers.length - 1].info;
  const levels = levelsFor(last, state.levels);
  const under = levels === 0 ? "Without quantization" : `With K = ${levels}`;
  box.append(
    h(
      "p",
      {},
      `${under}, the ${plural(trees.samples.length, "sampled image")} predicted as ${name} have `,
      h("strong", {}, plural(trees.trees, "tree")),
      ` (${trees.entropy.toFixed(2)} bits).`,
    ),
  );
  if (state.scope !== "image") return box;
  const all = trees.groups.get(treeKey(own, state.sample, target, state.levels)) ?? [];
  const mine = own !== run;
  const group = mine ? all : all.filter((sample) => sample !== state.sample);
  const what = mine ? "picture" : "image";
  const count = mine ? `${commas(group.length)} of them` : plural(group.length, "other image");
  box.append(
    h(
      "p",
      {},
      group.length === 0
        ? `${mine ? "None of them" : "No other one"} shares this ${what}'s tree.`
        : `${count} ${group.length === 1 ? "shares" : "share"} this ${what}'s tree (${percent(all.length / trees.samples.length, 0)} of the class):`,
    ),
    h(
      "div",
      { class: "thumbs" },
      ...group.slice(0, SIBLINGS).map((sample) => {
        const label = imageName(dataset.info, sample);
        return h(
          "button",
          {
            type: "button",
            class: "thumb",
            title: label,
            "aria-label": label,
            onclick: () => choose(sample),
          },
          imageCanvas(dataset.images, sample, ""),
        );
      }),
    ),
  );
  return box;
}

/**
 * The view of an image of `shown`. `sampled` has the images to compare trees with: it is `shown`, but
 * for an own picture.
 */
export function panel(
  shown: Sampled,
  sampled: Sampled,
  place: number,
  state: State,
  choose: (sample: number) => void,
): HTMLElement {
  const { run, dataset } = shown;
  const target = targetOf(run, state);
  const samples = samplesOf(run, state, target);
  const tree = treeOf(run, samples, target, state.levels);
  const { classes } = dataset.info;
  // Contributions are stored for the predicted class.
  const answers = samples.filter((sample) => run.predicted[sample] === target);
  const stored = run.contributions !== null && (answers.length > 0 || samples.length === 0);
  const parts =
    state.view === "contributions" && stored ? partsOf(run.contributions!, answers) : null;
  const placed = run.saliency !== null || tree.levels.some((level) => hasPlace(level.layer.info));
  const scope =
    state.scope === "image"
      ? null
      : h(
          "p",
          { class: "note" },
          samples.length === 0
            ? `No sampled image is predicted as ${classes[target]}.`
            : `Mean over the ${plural(samples.length, "sampled image")}${state.scope === "class" ? ` predicted as ${classes[target]}` : ""}.`,
        );
  const notStored =
    typeof state.target === "number" && state.target !== target
      ? h(
          "p",
          { class: "note" },
          `Only the couplings to the predicted class are kept in this report: the tree of ${classes[target]} is shown.`,
        )
      : null;
  const box = h(
    "article",
    { class: "panel", "data-run": run.info.name },
    h("h3", {}, runLabel(run.info, place)),
  );
  if (scope) box.append(scope);
  if (samples.length === 0) return box;
  box.append(
    h(
      "div",
      { class: "see" },
      views(run, dataset, state, tree, parts, parts ? answers : samples),
      prediction(run, dataset, state, tree, place),
    ),
    h("h4", {}, parts ? "What the answer is made of" : "Parse tree"),
  );
  if (parts) {
    box.append(
      partsPicture(parts, run.contributions!.info, classes[target]),
      h("p", { class: "legends" }, legend("contribution", balanceColour, ["against", "for"])),
    );
    return box;
  }
  if (state.view === "contributions") {
    const why = run.contributions ? "only of the predicted class" : "too large to be kept";
    box.append(h("p", { class: "note" }, `Contributions are ${why} in this report: couplings.`));
  }
  if (notStored) box.append(notStored);
  box.append(
    treePicture(tree, state.threshold, classes),
    h(
      "p",
      { class: "legends" },
      legend("coupling, activation", strengthColour, ["0", "1"]),
      placed ? legend("saliency", saliencyColour, ["least", "most"]) : null,
    ),
  );
  if (storedLayers(sampled.run).length > 0)
    box.append(siblings(run, sampled, state, target, choose));
  return box;
}
