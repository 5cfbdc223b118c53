// A parse tree as a picture: rows of nodes for small layers, maps of cells for large ones.

import { scaleSqrt } from "d3";
import { balanceOnPage, isDark, strengthColour } from "./colour";
import { commas, h, plural } from "./dom";
import type { Layer } from "./schema";
import { MOST_NODES, cellSide, tileGrids, tilesPerRow } from "./tiles";
import type { Backtrack, Parts, Threshold, Tree, TreeLevel } from "./tree";
import { backtrack, forEachCell, hasPlace, thresholdOf } from "./tree";

const SVG = "http://www.w3.org/2000/svg";

export function svg(
  tag: string,
  attributes: Record<string, string | number>,
  text?: string,
): SVGElement {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

interface Row {
  name: string;
  activations: Float32Array;
  reached: Set<number>;
}

/** Rows of the node picture, class capsules first. */
function rowsOf(tree: Tree, track: Backtrack, levels: TreeLevel[]): Row[] {
  const rows: Row[] = [
    { name: "classes", activations: tree.classes, reached: new Set([tree.target]) },
  ];
  for (let l = tree.levels.length - 1; l >= tree.levels.length - levels.length; l--) {
    rows.push({
      name: l === 0 ? "primary" : tree.levels[l - 1].layer.info.name,
      activations: tree.levels[l].activations,
      reached: track.reached[l],
    });
  }
  return rows;
}

function nodePicture(
  tree: Tree,
  track: Backtrack,
  levels: TreeLevel[],
  classes: string[],
): Element {
  const rows = rowsOf(tree, track, levels);
  const width = 560;
  const rowHeight = rows.length > 3 ? 84 : 120;
  const [top, left, right] = [46, 70, 14];
  const height = top + rowHeight * (rows.length - 1) + 30;
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    class: "tree",
    role: "img",
    "aria-label": describe(tree, track, classes),
  });
  const radius = Math.min(
    10,
    (0.4 * (width - left - right)) / Math.max(...rows.map((row) => row.activations.length)),
  );
  const place = (row: number, node: number): [number, number] => {
    const count = rows[row].activations.length;
    return [left + ((node + 0.5) * (width - left - right)) / count, top + row * rowHeight];
  };

  const thickness = scaleSqrt([0, 1], [0.4, 5]);
  for (let row = 1; row < rows.length; row++) {
    // Weak edges first, so that strong ones lie on top.
    const edges = [...track.edges[tree.levels.length - row]].sort(
      (a, b) => a.coupling - b.coupling,
    );
    for (const edge of edges) {
      const [x1, y1] = place(row, edge.child);
      const [x2, y2] = place(row - 1, edge.parent);
      const middle = (y1 + y2) / 2;
      const line = svg("path", {
        d: `M${x1},${y1} C${x1},${middle} ${x2},${middle} ${x2},${y2}`,
        class: "edge",
        stroke: strengthColour(edge.coupling),
        "stroke-width": thickness(edge.coupling),
        "stroke-opacity": 0.35 + 0.65 * Math.sqrt(edge.coupling),
      });
      line.append(svg("title", {}, `coupling ${edge.coupling.toFixed(3)}`));
      picture.append(line);
    }
  }
  rows.forEach((row, r) => {
    row.activations.forEach((activation, node) => {
      const [x, y] = place(r, node);
      const inTree = row.reached.has(node);
      const circle = svg("circle", {
        cx: x,
        cy: y,
        r: inTree ? radius : radius * 0.72,
        fill: strengthColour(activation),
        class: inTree ? "node" : "node outside",
      });
      const name = r === 0 ? classes[node] : `capsule ${node + 1}`;
      circle.append(svg("title", {}, `${name}, activation ${activation.toFixed(3)}`));
      picture.append(circle);
    });
    picture.append(svg("text", { x: 0, y: top + r * rowHeight + 4, class: "row-name" }, row.name));
  });
  const [x] = place(0, tree.target);
  picture.append(
    svg(
      "text",
      {
        x: Math.min(width - 60, Math.max(60, x)),
        y: top - radius - 8,
        class: "target",
        "text-anchor": "middle",
      },
      classes[tree.target],
    ),
  );
  return picture;
}

/**
 * One tile per capsule type, one cell per place: the colour is the coupling, the side the
 * activation, and cells outside the tree are grey.
 */
function cellPicture(tree: Tree, track: Backtrack, at: number, label: string): HTMLElement {
  const level = tree.levels[at];
  const { children } = level.layer.info;
  const coupling = new Float32Array(children);
  for (const edge of track.edges[at])
    coupling[edge.child] = Math.max(coupling[edge.child], edge.coupling);
  const box = cells(level.layer.info, level.activations, {
    label,
    colour: (index) =>
      track.reached[at].has(index) ? strengthColour(coupling[index]) : `rgba(${ink()},0.09)`,
  });
  box.append(
    h(
      "p",
      { class: "note" },
      "One tile for each capsule type, one cell for each place. Colour: coupling. Side: activation. Grey: not in the tree.",
    ),
  );
  return box;
}

const ink = (): string => (isDark() ? "255,255,255" : "20,35,60");

interface CellStyle {
  label: string;
  colour: (index: number) => string;
  framed?: Set<number>;
}

/** A layer's capsules as tiles; the side of a cell goes by `sizes`. */
function cells(layer: Layer, sizes: Float32Array, style: CellStyle): HTMLElement {
  const { children } = layer;
  const pixels = window.devicePixelRatio || 1;
  const box = h("div", { class: "cell-maps" });
  const largest = sizes.reduce((most, size) => Math.max(most, size), 0);
  const largestCell = children > MOST_NODES ? 11 : 22;
  for (const grid of tileGrids(children, layer.grids)) {
    const perRow = tilesPerRow(grid);
    const rows = Math.ceil(grid.types / perRow);
    const cell = Math.max(
      2,
      Math.min(largestCell, Math.floor(560 / (perRow * (grid.width + 0.8)))),
    );
    const gap = Math.max(3, Math.round(0.8 * cell));
    const width = perRow * (grid.width * cell + gap) - gap;
    const height = rows * (grid.height * cell + gap) - gap;
    const canvas = h("canvas", {
      width: Math.round(width * pixels),
      height: Math.round(height * pixels),
      style: `width:${width}px`,
      role: "img",
      "aria-label": style.label,
    });
    const context = canvas.getContext("2d")!;
    context.scale(pixels, pixels);
    const leftOf = (type: number) => (type % perRow) * (grid.width * cell + gap);
    const topOf = (type: number) => Math.floor(type / perRow) * (grid.height * cell + gap);
    context.fillStyle = `rgba(${ink()},0.05)`;
    for (let type = 0; type < grid.types; type++)
      context.fillRect(leftOf(type), topOf(type), grid.width * cell, grid.height * cell);
    forEachCell(grid, (index, type, y, x) => {
      if (index >= children) return;
      const left = leftOf(type) + x * cell;
      const up = topOf(type) + y * cell;
      const side = cell * cellSide(sizes[index], largest);
      const inset = (cell - side) / 2;
      context.fillStyle = style.colour(index);
      context.fillRect(left + inset, up + inset, side, side);
      if (!style.framed?.has(index)) return;
      context.strokeStyle = `rgba(${ink()},0.9)`;
      context.lineWidth = Math.min(1, cell / 8);
      context.strokeRect(left, up, cell, cell);
    });
    box.append(canvas);
  }
  return box;
}

const SHOWN = 3; // significant digits

/**
 * What each capsule contributes to the answer: orange to yellow for it, blue against it. The side
 * grows with the contribution; frames mark the capsules that carry half of what is for the answer.
 */
export function partsPicture(parts: Parts, layer: Layer, name: string): HTMLElement {
  const largest = parts.values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const text = (value: number) => (value < 1e-5 ? "0" : value.toPrecision(SHOWN));
  const { bias, positive } = parts;
  const negative = Math.max(0, positive + bias - parts.evidence);
  const ofBiases = bias === 0 ? "" : ` ${bias < 0 ? "−" : "+"} ${text(Math.abs(bias))} of biases`;
  const box = h("div", { class: "tree-box" });
  box.append(
    h(
      "p",
      { class: "tree-count" },
      `Evidence for ${name}: `,
      h("strong", {}, text(parts.evidence)),
      ` = ${text(positive)} for it − ${text(negative)} against it${ofBiases}. `,
      h("strong", {}, `${commas(parts.carrying.size)} of ${plural(layer.children, "capsule")}`),
      ` ${parts.carrying.size === 1 ? "carries" : "carry"} half of what is for it.`,
    ),
    cells(layer, largest > 0 ? parts.values.map((value) => Math.abs(value)) : parts.values, {
      label: `Contributions of ${commas(layer.children)} capsules to ${name}`,
      colour: (index) => balanceOnPage(largest > 0 ? parts.values[index] / largest : 0),
      framed: parts.carrying,
    }),
    h(
      "p",
      { class: "note" },
      `${hasPlace(layer) ? "One tile for each capsule type, one cell for each place." : "One cell for each capsule."} Colour and side: contribution. Framed: the capsules that carry half.`,
    ),
  );
  return box;
}

/** The tree in one sentence. */
function describe(tree: Tree, track: Backtrack, classes: string[]): string {
  const parts = tree.levels.map(
    (level, l) =>
      `${commas(track.reached[l].size)} of ${commas(level.layer.info.children)} capsules of ${l === 0 ? "the lowest layer shown" : tree.levels[l - 1].layer.info.name}`,
  );
  return `Parse tree of ${classes[tree.target]}: ${parts.reverse().join(", ")}`;
}

export function treePicture(tree: Tree, threshold: Threshold, classes: string[]): HTMLElement {
  const track = backtrack(tree, threshold);
  const box = h("div", { class: "tree-box" });
  if (tree.levels.length === 0) {
    box.append(
      h(
        "p",
        { class: "empty" },
        "The couplings of this network are too large to be kept in a report.",
      ),
    );
    return box;
  }
  // A large layer is the lowest one drawn: layers below it are left out.
  const large = tree.levels.findLastIndex((level) => level.layer.info.children > MOST_NODES);
  const small = tree.levels.slice(large + 1);
  const counts = tree.levels.map(
    (level, l) => `${commas(track.reached[l].size)} of ${commas(level.layer.info.children)}`,
  );
  const limits = tree.levels.map((level) => thresholdOf(level, threshold).toPrecision(2));
  box.append(
    h(
      "p",
      { class: "tree-count" },
      "Capsules in it: ",
      h("strong", {}, [...counts, classes[tree.target]].join(" → ")),
      h("span", { class: "note" }, `, couplings above ${[...new Set(limits)].join(", ")}`),
    ),
  );
  if (small.length > 0) box.append(nodePicture(tree, track, small, classes) as HTMLElement);
  if (large >= 0) box.append(cellPicture(tree, track, large, describe(tree, track, classes)));
  return box;
}
