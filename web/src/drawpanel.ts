// What one network says of the drawing: class lengths, saliency, parse tree, place in the dictionary.

import { scaleSqrt } from "d3";
import { runColour, saliencyColour, strengthColour } from "./colour";
import { Images } from "./data";
import { commas, h, percent, plural } from "./dom";
import type { LoadedNetwork, TreePlace } from "./drawdata";
import { imageCanvas, saliencyCanvas } from "./images";
import { legend, runLabel } from "./legend";
import type { Answer, Picture } from "./network";
import { imageOf } from "./pad";
import type { Edge, Tree } from "./tree";
import { backtrack, forEachCell, hasPlace, saliencyOf } from "./tree";
import { svg, treePicture } from "./treeview";

const MOST_BARS = 12;
const MOST_SEGMENTS = 80; // of the dictionary's strip
const MOST_THUMBS = 12;
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

/** The picture at the size of the network's input. */
function inputOf(picture: Picture, height: number, width: number): Images {
  const large = h("canvas", { width: picture.width, height: picture.height });
  large.getContext("2d")!.putImageData(imageOf(picture), 0, 0);
  const context = h("canvas", { width, height }).getContext("2d")!;
  context.imageSmoothingQuality = "high";
  context.drawImage(large, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const plane = height * width;
  const bytes = new Uint8Array(3 * plane);
  for (let p = 0; p < plane; p++)
    for (let c = 0; c < 3; c++) bytes[c * plane + p] = data[4 * p + c];
  return new Images(bytes, [1, 3, height, width]);
}

/** Where the capsules of a level lie in the image, 0..1; by capsule. */
function placesOf(tree: Tree, at: number): Map<number, [number, number]> {
  const places = new Map<number, [number, number]>();
  for (const grid of tree.levels[at].layer.info.grids)
    forEachCell(grid, (index, type, y, x) => {
      // Types of one place stand around its centre.
      const angle = 2.4 * type;
      const aside = grid.types > 1 ? 0.3 * Math.sqrt((type + 0.5) / grid.types) : 0;
      places.set(index, [
        (x + 0.5 + aside * Math.cos(angle)) / grid.width,
        (y + 0.5 + aside * Math.sin(angle)) / grid.height,
      ]);
    });
  return places;
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
  private shownTree = "";
  private last: { answer: Answer; picture: Picture } | null = null;

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
      h(
        "p",
        { class: "legends" },
        legend("coupling, activation", strengthColour, ["0", "1"]),
        info.layers.some(hasPlace) ? legend("saliency", saliencyColour, ["least", "most"]) : null,
      ),
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
    return [`${name} ${answer.lengths[answer.predicted].toFixed(2)}`, share]
      .filter(Boolean)
      .join(", ");
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

  update(answer: Answer, picture: Picture): void {
    this.last = { answer, picture };
    this.element.classList.remove("waiting");
    const tree = treeOfAnswer(this.loaded, answer);
    const name = this.classes[answer.predicted];
    this.verdict.replaceChildren(
      h("strong", {}, name),
      ` ${answer.lengths[answer.predicted].toFixed(2)}`,
    );
    const { height, width } = this.loaded.network.info;
    const input = inputOf(picture, height, width);
    const map = saliencyOf(tree, height, width, [height, width]);
    const label = `What ${this.loaded.info.name} is shown${map ? ", with its saliency" : ""}`;
    this.view.replaceChildren(
      map ? saliencyCanvas(input, 0, map, OVERLAY, label) : imageCanvas(input, 0, label),
    );
    this.drawBars(answer.lengths, answer.predicted);
    this.link(tree);
    this.drawDictionary(answer);
    this.tree.replaceChildren(
      h("h3", {}, "Parse tree"),
      treePicture(tree, "adaptive", this.classes),
    );
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

  /** Curves from the capsules of the tree, over the image, to the class they agree on. */
  private link(tree?: Tree): void {
    if (!this.last) return;
    const own = tree ?? treeOfAnswer(this.loaded, this.last.answer);
    const at = own.levels.findLastIndex((level) => hasPlace(level.layer.info));
    const row = this.bars.querySelector(".predicted .bar-name");
    this.links.replaceChildren();
    if (at < 0 || !row) return;
    const box = this.seen.getBoundingClientRect();
    const image = this.view.getBoundingClientRect();
    const end = row.getBoundingClientRect();
    this.links.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
    const [x2, y2] = [end.left - box.left - 4, end.top + end.height / 2 - box.top];
    const places = placesOf(own, at);
    const strongest = new Map<number, Edge>();
    for (const edge of backtrack(own, "adaptive").edges[at])
      if (edge.coupling > (strongest.get(edge.child)?.coupling ?? 0))
        strongest.set(edge.child, edge);
    const thickness = scaleSqrt([0, 1], [0.6, 6]);
    const dots: Element[] = [];
    for (const { child, coupling } of [...strongest.values()].sort(
      (a, b) => a.coupling - b.coupling,
    )) {
      const [x, y] = places.get(child)!;
      const x1 = image.left - box.left + x * image.width;
      const y1 = image.top - box.top + y * image.height;
      const bend = Math.max(40, (x2 - x1) / 2);
      const colour = runColour(this.place);
      this.links.append(
        svg("path", {
          d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`,
          fill: "none",
          stroke: colour,
          "stroke-width": thickness(coupling),
          "stroke-opacity": 0.35 + 0.55 * Math.sqrt(coupling),
          "stroke-linecap": "round",
        }),
      );
      dots.push(
        svg("circle", { cx: x1, cy: y1, r: 1.5 + thickness(coupling), fill: colour, class: "dot" }),
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
