// Pictures of one's own: files that are dropped, pasted or opened.

import { Images } from "./data";
import { h } from "./dom";
import type { NetworkInfo, Picture } from "./network";

const MOST_SIDE = 1024; // pixels of a picture that was dropped

/** A file as a picture; what is transparent becomes white. */
export async function readPicture(file: Blob): Promise<Picture> {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, MOST_SIDE / Math.max(bitmap.width, bitmap.height));
  const width = Math.max(1, Math.round(scale * bitmap.width));
  const height = Math.max(1, Math.round(scale * bitmap.height));
  const context = h("canvas", { width, height }).getContext("2d")!;
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = new Uint8Array(3 * width * height);
  for (let p = 0; p < width * height; p++)
    for (let c = 0; c < 3; c++) pixels[3 * p + c] = data[4 * p + c];
  return { pixels, height, width, channels: 3 };
}

export const negative = (picture: Picture): Picture => ({
  ...picture,
  pixels: picture.pixels.map((value) => 255 - value),
});

/** Whether the rim of a picture is bright: ink on paper. */
export function isBright({ pixels, height, width, channels }: Picture): boolean {
  let [sum, count] = [0, 0];
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      if (y > 0 && x > 0 && y < height - 1 && x < width - 1) continue;
      for (let c = 0; c < channels; c++) sum += pixels[(y * width + x) * channels + c];
      count += channels;
    }
  return sum > 127 * count;
}

export function imageOf({ pixels, height, width, channels }: Picture): ImageData {
  const image = new ImageData(width, height);
  for (let p = 0; p < height * width; p++) {
    for (let c = 0; c < 3; c++)
      image.data[4 * p + c] = pixels[p * channels + (channels === 3 ? c : 0)];
    image.data[4 * p + 3] = 255;
  }
  return image;
}

/** The part of a picture that a network sees, at the size of its input; grey if it sees no colours. */
export function inputOf(picture: Picture, info: NetworkInfo): Images {
  const { height, width, resize } = info;
  const large = h("canvas", { width: picture.width, height: picture.height });
  large.getContext("2d")!.putImageData(imageOf(picture), 0, 0);
  const context = h("canvas", { width, height }).getContext("2d")!;
  context.imageSmoothingQuality = "high";
  const [across, down] = [resize || width, resize || height];
  context.drawImage(large, (width - across) / 2, (height - down) / 2, across, down);
  const { data } = context.getImageData(0, 0, width, height);
  const plane = height * width;
  const bytes = new Uint8Array(3 * plane);
  for (let p = 0; p < plane; p++) {
    const [red, green, blue] = data.subarray(4 * p, 4 * p + 3);
    const grey = Math.round(0.299 * red + 0.587 * green + 0.114 * blue);
    [red, green, blue].forEach((value, c) => {
      bytes[c * plane + p] = info.channels === 3 ? value : grey;
    });
  }
  return new Images(bytes, [1, 3, height, width]);
}

/** Calls back with every picture file that is dropped on the page or pasted into it. */
export function onPictures(use: (files: File[]) => void): void {
  const take = (files: FileList | undefined) => files && files.length > 0 && use([...files]);
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer?.files);
  });
  document.addEventListener("paste", (event) => take(event.clipboardData?.files));
}
