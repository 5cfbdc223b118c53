// A page in which one draws, made as remcaps/report/page.cpp makes it, but with networks of a test.

import type { DrawData, Trees } from "../src/drawdata";
import { DRAW_VERSION } from "../src/drawdata";
import { Network } from "../src/network";
import type { Layer } from "../src/schema";
import { Blobs, assemble } from "./synthetic";

export interface PageParts {
  module: Uint8Array<ArrayBuffer>;
  objectSide: number;
  networks: { name: string; file: Uint8Array; layers: Layer[] }[];
  /** The test set, grey and square; the page gets those at `shown`. */
  images: { pixels: Uint8Array; labels: number[]; shown: number[] } | null;
}

export async function drawPage(template: string, parts: PageParts): Promise<string> {
  const blobs = new Blobs();
  const { images } = parts;
  const networks = [];
  let side = 0;
  for (const { name, file, layers } of parts.networks) {
    const network = await Network.open(parts.module, file);
    side = network.info.height;
    const trees = images && dictionary(network, images.pixels, images.shown, blobs);
    networks.push({ name, file: blobs.add(file, [file.length]), layers, trees });
  }
  const data: DrawData = {
    version: DRAW_VERSION,
    generator: "remcaps test",
    dataset: "test",
    object_side: parts.objectSide,
    module: blobs.add(parts.module, [parts.module.length]),
    networks,
    images: null,
  };
  if (images) {
    const { labels, shown, pixels } = images;
    const plane = side * side;
    const bytes = Buffer.concat(shown.map((k) => pixels.subarray(k * plane, (k + 1) * plane)));
    data.images = {
      samples: labels.length,
      indices: shown,
      labels: shown.map((k) => labels[k]),
      pixels: blobs.add(bytes, [shown.length, 1, side, side]),
    };
  }
  return assemble(template, data, blobs.texts);
}

function dictionary(network: Network, pixels: Uint8Array, shown: number[], blobs: Blobs): Trees {
  const { height, width } = network.info;
  const plane = height * width;
  const groups = new Map<string, { hash: string; of: number; images: number[] }>();
  for (let k = 0; k * plane < pixels.length; k++) {
    const picture = pixels.subarray(k * plane, (k + 1) * plane);
    const answer = network.answer({ pixels: picture, height, width, channels: 1 });
    const key = `${answer.predicted}:${answer.treeHash}`;
    const group = groups.get(key) ?? { hash: answer.treeHash, of: answer.predicted, images: [] };
    group.images.push(k);
    groups.set(key, group);
  }
  const trees = [...groups.values()].sort(
    (a, b) => a.of - b.of || b.images.length - a.images.length,
  );
  const hashes = Buffer.from(trees.map(({ hash }) => hash).join(""), "hex");
  return {
    hashes: blobs.add(hashes, [trees.length, 16]),
    counts: trees.map(({ images }) => images.length),
    classes: trees.map(({ of }) => of),
    of_images: shown.map((k) => trees.findIndex(({ images }) => images.includes(k))),
  };
}
