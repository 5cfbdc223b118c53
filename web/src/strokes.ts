// Strokes of a pen as a picture.

/** A place on the pad, 0..1 from left to right and from top to bottom. */
export type Point = readonly [x: number, y: number];
export type Stroke = Point[];

/** Width of the pen: part of the pad's side. */
export const PEN = 0.075;
/** Width of the pen in MNIST's digits: part of the image's side. */
const DIGIT_PEN = 2.6 / 28;
/** A drawing smaller than this part of the pad is not enlarged to a whole object. */
const SMALLEST = 0.12;

/** Where a point of the pad lies in the picture, in pixels. */
export type Place = (point: Point) => Point;

export function paint(
  context: CanvasRenderingContext2D,
  strokes: readonly Stroke[],
  width: number,
  place: Place,
): void {
  context.lineWidth = width;
  context.lineCap = context.lineJoin = "round";
  for (const stroke of strokes) {
    context.beginPath();
    stroke.forEach((point, k) => {
      const [x, y] = place(point);
      // A line of no length is a dot.
      if (k === 0) context.moveTo(x, y);
      context.lineTo(x, y);
    });
    context.stroke();
  }
}

/** How much of each pixel is covered, 0..255. */
export function coverage(
  strokes: readonly Stroke[],
  height: number,
  width: number,
  pen: number,
  place: Place,
): Uint8Array {
  const fine = Math.max(height, width) <= 128 ? 4 : 1; // times finer than the picture
  const canvas = document.createElement("canvas");
  canvas.width = fine * width;
  canvas.height = fine * height;
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  context.scale(fine, fine);
  context.strokeStyle = "white";
  paint(context, strokes, pen, place);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const covered = new Uint8Array(height * width);
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      let sum = 0;
      for (let v = 0; v < fine; v++)
        for (let u = 0; u < fine; u++)
          sum += data[4 * ((fine * y + v) * canvas.width + fine * x + u) + 3];
      covered[y * width + x] = Math.round(sum / fine ** 2);
    }
  }
  return covered;
}

/** As MNIST's digits were made: fitted into a square, then moved by the centre of mass. */
export function centred(strokes: readonly Stroke[], side: number, objectSide: number): Uint8Array {
  const points = strokes.flat();
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys)];
  const pen = DIGIT_PEN * side;
  const scale = (objectSide - pen) / Math.max(right - left, bottom - top, SMALLEST);
  const [middleX, middleY] = [(left + right) / 2, (top + bottom) / 2];
  const at = (dx: number, dy: number) => {
    const place: Place = ([x, y]) => [
      side / 2 + dx + scale * (x - middleX),
      side / 2 + dy + scale * (y - middleY),
    ];
    return coverage(strokes, side, side, pen, place);
  };
  const boxed = at(0, 0);
  let [mass, sumX, sumY] = [0, 0, 0];
  boxed.forEach((value, p) => {
    mass += value;
    sumX += value * ((p % side) + 0.5);
    sumY += value * (Math.floor(p / side) + 0.5);
  });
  return mass === 0 ? boxed : at(side / 2 - sumX / mass, side / 2 - sumY / mass);
}
