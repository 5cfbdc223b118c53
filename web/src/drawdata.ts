// The data of the page in which one draws, as `remcaps page` writes it (remcaps/report/page.cpp).

import type { Images } from "./data";
import { uint8Blob } from "./data";
import type { Answer } from "./network";
import { Network } from "./network";
import type { Blob, Layer } from "./schema";

export const DRAW_VERSION = 1;

export interface DrawData {
  version: number;
  generator: string; // "remcaps 0.1.0"
  dataset: string;
  /** The object fills a square of so many pixels, its centre of mass in the middle; 0: not so. */
  object_side: number;
  module: Blob; // the runtime as WebAssembly
  networks: DrawNetwork[]; // one or two
  images: DrawImages | null; // null: the page was made without the data set
}

export interface DrawNetwork {
  name: string;
  file: Blob; // as `remcaps export` writes it
  layers: Layer[];
  trees: Trees | null;
}

/** The parse trees of the test set, class by class, most frequent first. */
export interface Trees {
  hashes: Blob; // [T, 16]
  counts: number[];
  classes: number[]; // as which their images are predicted
  of_images: number[]; // place in these lists, by image of the page
}

/** Test images of the page. */
export interface DrawImages {
  samples: number; // of the test set
  indices: number[]; // places in the test set
  labels: number[];
  pixels: Blob; // [N, C, H, W]
}

/** A tree's place in its class's dictionary. */
export interface TreePlace {
  rank: number; // from 0; -1: not in the dictionary
  counts: number[]; // of all trees of the class, most frequent first
  images: number; // of the class
  shown: number[]; // images of the page that have this tree
}

export class Dictionary {
  private readonly placeOf = new Map<string, number>();

  constructor(
    private readonly trees: Trees,
    hashes: Uint8Array,
  ) {
    trees.classes.forEach((of, t) => {
      const bytes = hashes.subarray(16 * t, 16 * t + 16);
      const hash = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
      this.placeOf.set(`${of}:${hash}`, t);
    });
  }

  find({ predicted, treeHash }: Answer): TreePlace {
    const { classes, counts, of_images } = this.trees;
    const first = classes.indexOf(predicted);
    const own = counts.filter((_, t) => classes[t] === predicted);
    const place = this.placeOf.get(`${predicted}:${treeHash}`);
    return {
      rank: place === undefined ? -1 : place - first,
      counts: own,
      images: own.reduce((sum, count) => sum + count, 0),
      shown: of_images.flatMap((tree, image) => (tree === place ? [image] : [])),
    };
  }
}

export interface LoadedNetwork {
  info: DrawNetwork;
  network: Network;
  dictionary: Dictionary | null;
}

export async function loadNetworks(data: DrawData): Promise<LoadedNetwork[]> {
  const module = await uint8Blob(data.module);
  return Promise.all(
    data.networks.map(async (info) => ({
      info,
      network: await Network.open(module, await uint8Blob(info.file)),
      dictionary: info.trees && new Dictionary(info.trees, await uint8Blob(info.trees.hashes)),
    })),
  );
}

/** A test image as the network reads it. */
export function pictureOf(images: Images, place: number) {
  const { channels, height, width, bytes } = images;
  const plane = height * width;
  const first = place * channels * plane;
  const pixels = new Uint8Array(channels * plane);
  for (let c = 0; c < channels; c++)
    for (let p = 0; p < plane; p++) pixels[p * channels + c] = bytes[first + c * plane + p];
  return { pixels, height, width, channels: channels as 1 | 3 };
}
