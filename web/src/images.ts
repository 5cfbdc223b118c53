// Images and saliency maps on canvases.

import { extent } from "d3";
import { MAGMA, balanceRgb } from "./colour";
import type { Images } from "./data";
import { h } from "./dom";
import type { Picture } from "./network";
import { imageOf } from "./picture";
import type { Dataset } from "./schema";
import type { SaliencyMap } from "./tree";

/** "image 17", or the file's name of an own picture. */
export const imageName = ({ names, indices }: Dataset, sample: number): string =>
  names[sample] ?? `image ${indices[sample]}`;

/** One image at its own resolution; CSS enlarges it without smoothing. */
export function imageCanvas(images: Images, place: number, label: string): HTMLCanvasElement {
  const canvas = h("canvas", {
    width: images.width,
    height: images.height,
    role: "img",
    "aria-label": label,
    class: "pixels",
  });
  canvas.getContext("2d")!.putImageData(images.rgba(place), 0, 0);
  return canvas;
}

/** A picture of any size, as its thumbnail. */
export function pictureCanvas(picture: Picture): HTMLCanvasElement {
  const { width, height } = picture;
  const canvas = h("canvas", { width, height, "aria-hidden": "true" });
  canvas.getContext("2d")!.putImageData(imageOf(picture), 0, 0);
  return canvas;
}

/** A map must vary by this share of its maximum to be seen: noise on a flat one is not blown up. */
const FLAT = 0.02;

export const rangeOf = (map: SaliencyMap): [number, number] =>
  extent(map.values) as [number, number];

/**
 * The image in grey under a map of signed values: orange to yellow for the answer, blue against it.
 * With opacity 1 the map alone.
 */
export function balanceCanvas(
  images: Images,
  place: number,
  map: SaliencyMap,
  opacity: number,
  label: string,
): HTMLCanvasElement {
  const pixels = images.rgba(place);
  const { data } = pixels;
  const largest = map.values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);
  for (let p = 0; p < map.values.length; p++) {
    const grey = 0.299 * data[4 * p] + 0.587 * data[4 * p + 1] + 0.114 * data[4 * p + 2];
    const value = map.values[p] / largest;
    const alpha = opacity === 1 ? 1 : opacity * Math.abs(value);
    const colour = balanceRgb(value);
    for (let c = 0; c < 3; c++) data[4 * p + c] = (1 - alpha) * grey + alpha * colour[c];
  }
  const canvas = h("canvas", {
    width: map.width,
    height: map.height,
    role: "img",
    "aria-label": label,
    class: "pixels",
  });
  canvas.getContext("2d")!.putImageData(pixels, 0, 0);
  return canvas;
}

/** The image in grey under the map in colour; with opacity 1 the map alone. */
export function saliencyCanvas(
  images: Images,
  place: number,
  map: SaliencyMap,
  opacity: number,
  label: string,
): HTMLCanvasElement {
  const pixels = images.rgba(place);
  const { data } = pixels;
  const [low, high] = rangeOf(map);
  const scale = 255 / Math.max(high - low, FLAT * high, 1e-12);
  for (let p = 0; p < map.values.length; p++) {
    const grey = 0.299 * data[4 * p] + 0.587 * data[4 * p + 1] + 0.114 * data[4 * p + 2];
    const level = Math.round(scale * (map.values[p] - low));
    for (let c = 0; c < 3; c++) {
      data[4 * p + c] = (1 - opacity) * grey + opacity * MAGMA[3 * level + c];
    }
  }
  const canvas = h("canvas", {
    width: map.width,
    height: map.height,
    role: "img",
    "aria-label": label,
    class: "pixels",
  });
  canvas.getContext("2d")!.putImageData(pixels, 0, 0);
  return canvas;
}
