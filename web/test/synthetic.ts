// A synthetic report with every kind of network that a real one can hold: capsules on a map, fully
// connected layers, a layer too large for its couplings to be kept, and a run without curves.

import { readFileSync } from "node:fs";
import { deflateSync } from "node:zlib";
import type { DrawData } from "../src/drawdata";
import type { Blob, Dataset, Explorer, Grid, Layer, Report, Run } from "../src/schema";

export const CLASSES = ["disc", "bar", "ring", "cross"];
const SIDE = 28;

/** Deterministic numbers in [0, 1). */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  };
}

export class Blobs {
  readonly texts: string[] = [];

  add(bytes: Uint8Array | Uint16Array, shape: number[]): Blob {
    const raw = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.texts.push(deflateSync(raw).toString("base64"));
    return {
      blob: this.texts.length - 1,
      type: bytes.BYTES_PER_ELEMENT === 2 ? "uint16" : "uint8",
      shape,
    };
  }
}

function shape(kind: number, x: number, y: number): boolean {
  const radius = Math.hypot(x, y);
  if (kind === 0) return radius < 7;
  if (kind === 1) return Math.abs(x) < 3 && Math.abs(y) < 9;
  if (kind === 2) return radius > 5 && radius < 9;
  return Math.abs(x - y) < 3 || Math.abs(x + y) < 3;
}

function images(labels: number[], random: () => number): Uint8Array {
  const bytes = new Uint8Array(labels.length * SIDE * SIDE);
  labels.forEach((label, sample) => {
    const [dx, dy] = [8 * random() - 4, 8 * random() - 4];
    for (let p = 0; p < SIDE * SIDE; p++) {
      const [x, y] = [(p % SIDE) - 13.5 - dx, Math.floor(p / SIDE) - 13.5 - dy];
      bytes[sample * SIDE * SIDE + p] = (shape(label, x, y) ? 190 : 20) + 40 * random();
    }
  });
  return bytes;
}

/** Codes that never straddle a level of K = 11, as the program writes them. */
export function decodeTable(levels: number): number[] {
  if (levels === 0) return Array.from({ length: 256 }, (_, code) => code / 255);
  const inside = Math.floor(256 / levels);
  return Array.from({ length: levels * inside }, (_, code) => {
    const value = ((code + 0.5) / inside - 0.5) / (levels - 1);
    return Math.min(1, Math.max(0, value));
  });
}

interface Shape {
  name: string;
  children: number;
  parents: number;
  grids: Grid[];
  columns: "all" | "predicted" | "none";
}

const grid = (types: number, side: number): Grid => ({
  offset: 0,
  types,
  height: side,
  width: side,
  stride_type: side * side,
  stride_y: side,
  stride_x: 1,
  field: { y: { first: 8, step: 2, size: 17 }, x: { first: 8, step: 2, size: 17 } },
});

function makeRun(
  name: string,
  pruned: boolean,
  shapes: Shape[],
  dataset: Dataset,
  blobs: Blobs,
  random: () => number,
): Run {
  const samples = dataset.labels.length;
  const names = dataset.classes;
  const classes = names.length;
  const decode = decodeTable(11);
  const predicted = dataset.labels.map((label) =>
    random() < 0.9 ? label : Math.floor(classes * random()),
  );
  const activations = new Uint16Array(samples * classes);
  for (let s = 0; s < samples; s++) {
    for (let j = 0; j < classes; j++) {
      activations[s * classes + j] =
        65535 * (j === predicted[s] ? 0.75 + 0.2 * random() : 0.3 * random());
    }
  }
  const codeOf = (value: number): number =>
    Math.min(decode.length - 1, Math.max(0, Math.round(((value + 0.05) / 1.1) * decode.length)));
  const explorerLayers = shapes.map((layer) => {
    if (layer.columns === "none")
      return { columns: layer.columns, couplings: null, decode, activations: null };
    const width = layer.columns === "all" ? layer.children * layer.parents : layer.children;
    const codes = new Uint8Array(samples * width);
    const lengths = new Uint8Array(samples * layer.children);
    for (let s = 0; s < samples; s++) {
      // A pruned network's couplings depend on the class alone, others on the image as well.
      const own = generator(pruned ? 7 + predicted[s] : 1000 + s);
      for (let e = 0; e < width; e++) codes[s * width + e] = codeOf(own() ** 4);
      for (let i = 0; i < layer.children; i++) lengths[s * layer.children + i] = 255 * own();
    }
    return {
      columns: layer.columns,
      couplings: blobs.add(
        codes,
        layer.columns === "all"
          ? [samples, layer.children, layer.parents]
          : [samples, layer.children],
      ),
      decode,
      activations: blobs.add(lengths, [samples, layer.children]),
    };
  });
  const hasMaps = shapes.some((layer) => layer.columns === "none");
  const maps = Uint8Array.from({ length: samples * 36 }, () => 255 * random());
  // A capsule in five contributes, a pruned network's fewer; some are against the answer.
  const parts = shapes[0].children;
  const values = Uint8Array.from({ length: samples * parts }, () =>
    random() < (pruned ? 0.02 : 0.2) ? 90 + 160 * random() : 128,
  );
  const explorer: Explorer = {
    contributions:
      shapes[0].columns === "none" && shapes.length === 1
        ? null
        : {
            layer: 0,
            values: blobs.add(values, [samples, parts]),
            scale: predicted.map(() => 0.3),
            positive: predicted.map((_, s) =>
              values
                .subarray(s * parts, (s + 1) * parts)
                .reduce((sum, code) => sum + (Math.max(0, code - 128) / 127) * 0.3, 0),
            ),
            evidence: predicted.map(() => 2.4),
            bias: predicted.map(() => 0.1),
          },
    activations: blobs.add(activations, [samples, classes]),
    predicted,
    layers: explorerLayers,
    saliency: hasMaps ? blobs.add(maps, [samples, 6, 6]) : null,
    saliency_max: hasMaps ? predicted.map(() => 0.2) : [],
  };
  const epochs = 30;
  const every = <T>(value: (epoch: number) => T): T[] =>
    Array.from({ length: epochs }, (_, e) => value(e));
  const tenth = (value: (epoch: number) => number) =>
    every((e) => (e % 10 === 0 || e === epochs - 1 ? value(e) : null));
  const layers: Layer[] = shapes.map(({ name, children, parents, grids }) => ({
    name,
    children,
    parents,
    grids,
    levels: 11,
    form: "uniform",
    entropy: 1,
  }));
  return {
    name,
    recipe: `synthetic/${name}`,
    folder: name,
    model: "synthetic-capsnet",
    dataset: 0,
    seed: 42,
    checkpoint: pruned ? "last" : "best",
    epoch: epochs - 1,
    pruning: pruned ? "lobster" : "none",
    accuracy: 0.92,
    accuracy_quantized: 0.918,
    loss: 0.05,
    entropy: pruned ? 1.2 : 6.1,
    entropy_std: 0.4,
    entropy_per_class: names.map((_, c) => (pruned ? 1 : 6) + 0.2 * c),
    keys_per_class: names.map((_, c) => (pruned ? 3 + c : 160 + 20 * c)),
    median_keys: pruned ? 4.5 : 190,
    varying_per_class: names.map((_, c) => (pruned ? 2 + c : 40 + c)),
    key_couplings: 1152,
    effective_parts: {
      half: pruned ? 1.9 : 17.2,
      spread: pruned ? 5 : 60,
      half_per_class: names.map((_, c) => (c === 3 ? null : (pruned ? 1.5 : 16) + c)),
      capsules: shapes[0].children,
    },
    input: [SIDE, SIDE],
    samples_per_class: names.map(() => 250),
    parameters: 6804384,
    parameters_nonzero: pruned ? 893000 : 6804384,
    sparsity: pruned ? 0.8687 : 0,
    confusion: names.map((_, t) => names.map((__, p) => (t === p ? 230 : 7))),
    changed: pruned ? { precision: "bf16", "train.epochs": "300" } : {},
    paper: pruned
      ? {
          arm: "REM",
          source: "main table",
          accuracy_quantized: [92.62, 0.14],
          entropy: [4.8, 1.7],
          sparsity: 80.71,
        }
      : {
          arm: "Q",
          source: "main table",
          accuracy: [92.76, 0.21],
          accuracy_quantized: [92.46, 0.23],
          entropy: [8.64, 1.15],
        },
    metrics: {
      columns: {
        epoch: every((e) => e),
        train_loss: every((e) => 0.5 * Math.exp(-e / 6) + 0.02),
        validation_loss: every((e) => 0.45 * Math.exp(-e / 7) + 0.05),
        train_accuracy: every((e) => 0.97 - 0.3 * Math.exp(-e / 5)),
        validation_accuracy: every((e) => 0.92 - 0.3 * Math.exp(-e / 5)),
        test_accuracy: tenth((e) => 0.92 - 0.2 * Math.exp(-e / 5)),
        accuracy_quantized: tenth((e) => 0.917 - 0.2 * Math.exp(-e / 5)),
        entropy: tenth((e) => (pruned ? 4 - e / 10 : 2 + e / 8)),
        keys: tenth((e) => (pruned ? 40 - e : 20 + 5 * e)),
        sparsity: every((e) => (pruned ? 0.9 * (1 - Math.exp(-e / 8)) : 0)),
      },
    },
    dictionary: names.map((_, c) =>
      [90, 40, 12, 3].map((count, rank) => ({
        count,
        mean: c,
        images: [0, 4, 8, 12, 16, 20].map((i) => i + c + rank),
      })),
    ),
    histogram: names.map(() =>
      Array.from({ length: 50 }, (_, bin) => Math.round(1e5 * Math.exp(-bin / (pruned ? 2 : 9)))),
    ),
    layers,
    explorer,
    network: null,
    no_network: "this network is not in the report.",
  };
}

export function syntheticReport(samples = 120): { report: Report; blobs: string[] } {
  const random = generator(1);
  const blobs = new Blobs();
  const labels = Array.from({ length: samples }, (_, s) => s % CLASSES.length);
  const pixels = images(labels, random);
  const stored = blobs.add(pixels, [samples, 1, SIDE, SIDE]);
  const dataset: Dataset = {
    name: "shapes",
    split: "test",
    samples: 1000,
    classes: CLASSES,
    indices: labels.map((_, s) => 3 * s),
    labels,
    names: [],
    images: stored,
    gallery: stored,
  };
  const placed: Shape[] = [
    { name: "class", children: 1152, parents: 4, grids: [grid(32, 6)], columns: "predicted" },
  ];
  const flat = (name: string, parents: number): Shape => ({
    name,
    children: 16,
    parents,
    grids: [],
    columns: "all",
  });
  const deep = [flat("hidden1", 16), flat("hidden2", 16), flat("hidden3", 16), flat("class", 4)];
  const two: Shape[] = [
    { name: "hidden", children: 1152, parents: 32, grids: [grid(32, 6)], columns: "none" },
    { name: "class", children: 32, parents: 4, grids: [], columns: "all" },
  ];
  const runs = [
    makeRun("placed", false, placed, dataset, blobs, random),
    makeRun("placed, REM", true, placed, dataset, blobs, random),
    makeRun("multilayer", false, deep, dataset, blobs, random),
    makeRun("multilayer, REM", true, deep, dataset, blobs, random),
    makeRun("two stages", false, two, dataset, blobs, random),
    makeRun("too large", false, [{ ...placed[0], columns: "none" }], dataset, blobs, random),
  ];
  runs[4].metrics = { columns: {} };
  return {
    report: {
      version: 1,
      generator: "remcaps test",
      title: "Synthetic <shapes>",
      module: null,
      datasets: [dataset],
      runs,
    },
    blobs: blobs.texts,
  };
}

/** A report with a network that answers (of strokes.ts), and one that is not in it. */
export function reportOfNetwork(
  module: Uint8Array,
  network: Uint8Array,
): { report: Report; blobs: string[] } {
  const { report } = syntheticReport();
  const random = generator(2);
  const blobs = new Blobs();
  const labels = Array.from({ length: 20 }, (_, s) => s % 2);
  const pixels = blobs.add(images(labels, random), [labels.length, 1, SIDE, SIDE]);
  const dataset: Dataset = {
    ...report.datasets[0],
    classes: ["upright", "level"],
    indices: labels.map((_, s) => s),
    labels,
    images: pixels,
    gallery: pixels,
  };
  const shapes: Shape[] = [
    { name: "class", children: 18, parents: 2, grids: [grid(2, 3)], columns: "all" },
  ];
  const runs = ["with", "without"].map((name) =>
    makeRun(name, true, shapes, dataset, blobs, random),
  );
  for (const run of runs) run.dictionary = [[], []];
  runs[0].network = blobs.add(network, [network.length]);
  const stored = blobs.add(module, [module.length]);
  return { report: { ...report, module: stored, datasets: [dataset], runs }, blobs: blobs.texts };
}

/** Puts data into a page as remcaps/report/html_report_page.cpp does. */
export function assemble(template: string, report: Report | DrawData, blobs: string[]): string {
  const json = JSON.stringify(report).replaceAll("<", "\\u003c");
  const scripts = [`<script type="application/json" id="report-data">${json}</script>`];
  blobs.forEach((text, id) =>
    scripts.push(`<script type="application/octet-stream" id="blob-${id}">${text}</script>`),
  );
  return readFileSync(template, "utf8").replace("<!--remcaps:data-->", () => scripts.join("\n"));
}
