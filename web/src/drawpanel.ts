// What one network says of the drawing: class lengths, saliency, parse tree, place in the dictionary.

import { scaleSqrt } from "d3";
import { balanceColour, runColour, saliencyColour, strengthColour } from "./colour";
import type { Images } from "./data";
import { commas, h, percent, plural } from "./dom";
import type { LoadedNetwork, TreePlace } from "./drawdata";
import { balanceCanvas, imageCanvas, saliencyCanvas } from "./images";
import { legend, runLabel } from "./legend";
import type { Answer, Picture } from "./network";
import { inputOf } from "./picture";
import type { FieldAxis, Layer } from "./schema";
import type { View } from "./state";
import type { Parts, Tree } from "./tree";
import { backtrack, forEachCell, hasPlace, partsOfAnswer, placeOnImage, saliencyOf } from "./tree";
import { partsPicture, svg, treePicture } from "./treeview";

const MOST_BARS = 12;
const MOST_SEGMENTS = 80; // of the dictionary's strip
const MOST_THUMBS = 12;
const MOST_THREADS = 24; // curves over the image
const OVERLAY = 0.6;

/** "the 7s", "images predicted as Sneaker" */
export const ofClass = (name: string): string =>
  /^\d$/.test(name) ? `the ${name}s` : `images predicted as ${name}`;

export function treeOfAnswer({ info }: LoadedNetwork, answer: Answer): Tree {
  // A convolutional layer is not part of the picture, nor is what lies below it.
  const first = answer.childLengths.lastIndexOf(null) + 1;
  return {
    target: answer.predicted,
    classes: answer.lengths,
    levels: info.layers.slice(first).map((layer, l) => ({
      layer: { info: layer },
      coupling: answer.couplings[first + l],
      activations: answer.childLengths[first + l]!,
    })),
  };
}

/** Where the capsules of a layer look, 0..1; by capsule. */
function placesOf({ grids }: Layer, height: number, width: number): Map<number, [number, number]> {
  const places = new Map<number, [number, number]>();
  const along = (axis: FieldAxis | undefined, n: number, count: number, pixels: number) =>
    axis
      ? { at: (axis.first + n * axis.step + 0.5) / pixels, room: axis.step / pixels }
      : { at: (n + 0.5) / count, room: 1 / count };
  for (const grid of grids)
    forEachCell(grid, (index, type, row, column) => {
      const y = along(grid.field?.y, row, grid.height, height);
      const x = along(grid.field?.x, column, grid.width, width);
      // Types of one place stand around its centre.
      const angle = 2.4 * type;
      const aside = grid.types > 1 ? 0.4 * Math.sqrt((type + 0.5) / grid.types) : 0;
      places.set(index, [
        x.at + aside * x.room * Math.cos(angle),
        y.at + aside * y.room * Math.sin(angle),
      ]);
    });
  return places;
}

/** A curve from a capsule to the class: 0..1 is how thick. */
interface Thread {
  child: number;
  strength: number;
}

interface Shown {
  answer: Answer;
  parts: Parts | null; // what it is made of, if that is the view
}

export class DrawPanel {
  readonly element: HTMLElement;
  private readonly view = h("div", { class: "seen-image" });
  private readonly bars = h("ol", { class: "bars" });
  private readonly links = svg("svg", { class: "links", "aria-hidden": "true" });
  private readonly seen = h("div", { class: "seen" }, this.view, this.bars);
  private readonly verdict = h("p", { class: "said" });
  private readonly dictionary = h("div", { class: "dictionary" });
  private readonly tree = h("div", { class: "whole-tree" });
  private readonly legends = h("p", { class: "legends" });
  private shownTree = "";
  private last: Shown | null = null;

  constructor(
    private readonly loaded: LoadedNetwork,
    private readonly place: number,
    private readonly images: Images | null,
    private readonly onPick: (image: number) => void,
  ) {
    this.seen.append(this.links);
    const longest = Math.max(...this.classes.map((name) => name.length));
    this.bars.style.setProperty("--name", `${Math.min(12, longest)}ch`);
    this.seen.classList.toggle("long-names", longest > 4);
    const { info } = loaded;
    this.element = h(
      "article",
      { class: "panel", "data-run": info.name, "aria-label": info.name },
      h("header", { class: "panel-head" }, h("h2", {}, runLabel(info, place)), this.verdict),
      this.seen,
      this.dictionary,
      this.tree,
      this.legends,
    );
    new ResizeObserver(() => this.link()).observe(this.seen);
    this.clear();
  }

  /** In a few words, for screen readers and small screens. */
  summary(): string {
    if (!this.last) return "";
    const { answer } = this.last;
    const place = this.loaded.dictionary?.find(answer);
    const share = place && (place.rank < 0 ? "a new tree" : `${shareText(place)} share its tree`);
    const name = this.classes[answer.predicted];
    const length = `length ${answer.lengths[answer.predicted].toFixed(2)}`;
    return [name, length, share].filter(Boolean).join(", ");
  }

  clear(): void {
    this.last = null;
    this.shownTree = "";
    this.element.classList.add("waiting");
    this.verdict.replaceChildren("waits for a drawing");
    this.view.replaceChildren(h("div", { class: "no-image" }));
    this.drawBars(new Float32Array(this.classes.length), -1);
    this.links.replaceChildren();
    this.dictionary.replaceChildren();
    this.tree.replaceChildren();
  }

  update(answer: Answer, picture: Picture, view: View): void {
    const parts = view === "contributions" ? partsOfAnswer(answer) : null;
    this.last = { answer, parts };
    this.element.classList.remove("waiting");
    const name = this.classes[answer.predicted];
    this.verdict.replaceChildren(
      h("strong", {}, name),
      `\u00a0${answer.lengths[answer.predicted].toFixed(2)}`,
    );
    const input = inputOf(picture, this.loaded.network.info);
    this.drawBars(answer.lengths, answer.predicted);
    if (parts) this.showContributions(answer, parts, input);
    else this.showCouplings(answer, input);
    this.link();
    this.drawDictionary(answer);
  }

  private showContributions(answer: Answer, parts: Parts, input: Images): void {
    const layer = this.contributing;
    const { height, width } = input;
    const placed = hasPlace(layer);
    const label = `What ${this.loaded.info.name} is shown${placed ? ", with the contributions of its capsules" : ""}`;
    this.view.replaceChildren(
      placed
        ? balanceCanvas(
            input,
            0,
            placeOnImage(parts.values, layer.grids, height, width, [height, width]),
            0.85,
            label,
          )
        : imageCanvas(input, 0, label),
    );
    this.tree.replaceChildren(
      h("h3", {}, "What the answer is made of"),
      partsPicture(parts, layer, this.classes[answer.predicted]),
    );
    this.legends.replaceChildren(legend("contribution", balanceColour, ["against", "for"]));
  }

  private showCouplings(answer: Answer, input: Images): void {
    const tree = treeOfAnswer(this.loaded, answer);
    const { height, width } = input;
    const map = saliencyOf(tree, height, width, [height, width]);
    const label = `What ${this.loaded.info.name} is shown${map ? ", with its saliency" : ""}`;
    this.view.replaceChildren(
      map ? saliencyCanvas(input, 0, map, OVERLAY, label) : imageCanvas(input, 0, label),
    );
    this.tree.replaceChildren(
      h("h3", {}, "Parse tree"),
      treePicture(tree, "adaptive", this.classes),
    );
    this.legends.replaceChildren(legend("coupling, activation", strengthColour, ["0", "1"]));
    if (map) this.legends.append(legend("saliency", saliencyColour, ["least", "most"]));
  }

  /** The layer whose capsules' contributions are shown. */
  private get contributing(): Layer {
    const { info, network } = this.loaded;
    return info.layers[network.info.contribution_layer];
  }

  private get classes(): string[] {
    return this.loaded.network.info.classes;
  }

  private drawBars(lengths: Float32Array, predicted: number): void {
    const order = Array.from(lengths, (_, j) => j);
    // In their own order while they fit: bars that change places cannot be followed.
    if (order.length > MOST_BARS) {
      order.sort((a, b) => lengths[b] - lengths[a]);
      order.length = MOST_BARS;
    }
    if (this.bars.children.length !== order.length)
      this.bars.replaceChildren(
        ...order.map(() =>
          h(
            "li",
            {},
            h("span", { class: "bar-name" }),
            h("span", { class: "bar-track" }, h("span", { class: "bar-fill" })),
            h("span", { class: "bar-value" }),
          ),
        ),
      );
    order.forEach((j, row) => {
      const item = this.bars.children[row];
      const [name, track, value] = item.children as unknown as HTMLElement[];
      const fill = track.firstElementChild as HTMLElement;
      item.classList.toggle("predicted", j === predicted);
      name.textContent = this.classes[j];
      fill.style.width = `${100 * Math.min(1, lengths[j])}%`;
      fill.style.background = runColour(this.place);
      value.textContent = predicted < 0 ? "" : lengths[j].toFixed(2);
    });
  }

  /** What the curves show: the capsules that carry half of the evidence, or those of the tree. */
  private threads({ answer, parts }: Shown): { layer: Layer | null; threads: Thread[] } {
    if (parts) {
      const { values, carrying } = parts;
      const largest = values.reduce((most, value) => Math.max(most, value), 1e-12);
      const threads = [...carrying].map((child) => ({ child, strength: values[child] / largest }));
      return { layer: hasPlace(this.contributing) ? this.contributing : null, threads };
    }
    const tree = treeOfAnswer(this.loaded, answer);
    const at = tree.levels.findLastIndex((level) => hasPlace(level.layer.info));
    if (at < 0) return { layer: null, threads: [] };
    const strongest = new Map<number, number>();
    for (const { child, coupling } of backtrack(tree, "adaptive").edges[at])
      strongest.set(child, Math.max(coupling, strongest.get(child) ?? 0));
    const threads = [...strongest].map(([child, strength]) => ({ child, strength }));
    return { layer: tree.levels[at].layer.info, threads };
  }

  /** Curves from capsules, over the image where they look, to the class they vote for. */
  private link(): void {
    this.links.replaceChildren();
    const row = this.bars.querySelector(".predicted .bar-name");
    if (!this.last || !row) return;
    const { layer, threads } = this.threads(this.last);
    if (!layer) return;
    const box = this.seen.getBoundingClientRect();
    const image = this.view.getBoundingClientRect();
    const end = row.getBoundingClientRect();
    this.links.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    // On a small screen the bars stand under the image: curves would cross them.
    const beside = end.top < image.bottom;
    const [x2, y2] = [end.left - box.left - 4, end.top + end.height / 2 - box.top];
    const { height, width } = this.loaded.network.info;
    const places = placesOf(layer, height, width);
    const thickness = scaleSqrt([0, 1], [0.6, 6]);
    const dots: Element[] = [];
    const shown = threads.sort((a, b) => a.strength - b.strength).slice(-MOST_THREADS);
    for (const { child, strength } of shown) {
      const place = places.get(child);
      if (!place) continue;
      const x1 = image.left - box.left + place[0] * image.width;
      const y1 = image.top - box.top + place[1] * image.height;
      const bend = Math.max(40, (x2 - x1) / 2);
      const colour = runColour(this.place);
      const curve = svg("path", {
        d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`,
        fill: "none",
        stroke: colour,
        "stroke-width": thickness(strength),
        "stroke-opacity": 0.35 + 0.55 * Math.sqrt(strength),
        "stroke-linecap": "round",
      });
      if (beside) this.links.append(curve);
      dots.push(
        svg("circle", { cx: x1, cy: y1, r: 1.5 + thickness(strength), fill: colour, class: "dot" }),
      );
    }
    this.links.append(...dots);
  }

  private drawDictionary(answer: Answer): void {
    const { dictionary } = this.loaded;
    if (!dictionary) return;
    const key = `${answer.predicted}:${answer.treeHash}`;
    if (key === this.shownTree) return;
    this.shownTree = key;
    const place = dictionary.find(answer);
    const name = this.classes[answer.predicted];
    const whole = `${plural(place.counts.length, "tree")} of ${ofClass(name)}`;
    const told =
      place.rank < 0
        ? [h("strong", {}, "A new tree"), `: none of the ${whole} in the test set.`]
        : [
            h("strong", {}, shareText(place)),
            ` of ${ofClass(name)} share this tree`,
            place.counts.length === 1
              ? ", the only one."
              : `, the ${ordinal(place.rank + 1)} of ${commas(place.counts.length)}.`,
          ];
    this.dictionary.replaceChildren(
      h("h3", {}, "Dictionary"),
      h("p", {}, ...told),
      strip(place, this.place, `The ${whole}, by their share of the test images`),
      this.images && place.shown.length > 0
        ? h(
            "div",
            { class: "thumbs" },
            ...place.shown.slice(0, MOST_THUMBS).map((image) => this.thumb(this.images!, image)),
          )
        : h(
            "p",
            { class: "note" },
            place.rank < 0 ? "" : "None of its test images is in this page.",
          ),
    );
  }

  private thumb(images: Images, image: number): HTMLElement {
    return h(
      "button",
      {
        type: "button",
        class: "thumb",
        "aria-label": "A test image with this tree",
        onclick: () => this.onPick(image),
      },
      imageCanvas(images, image, ""),
    );
  }
}

function shareText({ rank, counts, images }: TreePlace): string {
  const share = counts[rank] / images;
  return percent(share, share < 0.1 ? 1 : 0);
}

function ordinal(number: number): string {
  if (number === 1) return "most frequent";
  const ends = new Intl.PluralRules("en", { type: "ordinal" }).select(number);
  const suffix = { one: "st", two: "nd", few: "rd", other: "th", many: "th", zero: "th" }[ends];
  return `${commas(number)}${suffix} most frequent`;
}

/** The trees of a class side by side, as wide as they are frequent. */
function strip(place: TreePlace, run: number, label: string): HTMLElement {
  const box = h("div", { class: "strip", role: "img", "aria-label": label });
  const { counts, rank, images } = place;
  let rest = images;
  counts.slice(0, MOST_SEGMENTS).forEach((count, k) => {
    const own = k === rank;
    box.append(
      h("span", {
        class: own ? "own" : null,
        style: `flex-grow:${count};${own ? `background:${runColour(run)}` : ""}`,
      }),
    );
    rest -= count;
  });
  if (rest > 0) {
    const own = rank >= MOST_SEGMENTS;
    box.append(h("span", { class: own ? "rest own" : "rest", style: `flex-grow:${rest}` }));
  }
  return box;
}
