// The place where one draws: strokes of a pen, on a picture if there is one.

import { h } from "./dom";
import type { Picture } from "./network";
import { imageOf } from "./picture";
import type { Point, Stroke } from "./strokes";
import { PEN, centred, coverage, paint } from "./strokes";

const INK = "#f4f6f9";
const STEP = 1 / 28; // of the pen that arrow keys move

export interface PadOptions {
  side: number; // of the network's images
  objectSide: number; // DrawData.object_side
  hint: string;
  onChange: () => void;
}

export class Pad {
  readonly element: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  private strokes: Stroke[] = [];
  private source: Picture | null = null;
  private readonly base = document.createElement("canvas"); // the source
  private readonly hint: HTMLElement;
  private pen: Point = [0.5, 0.5]; // of the keyboard
  private penDown = false;

  constructor(private readonly options: PadOptions) {
    this.canvas = h("canvas", {
      tabindex: 0,
      id: "pad",
      role: "application",
      "aria-label": "Drawing area",
      "aria-describedby": "pad-keys",
    });
    this.hint = h("p", { class: "pad-hint", "aria-hidden": "true" }, options.hint);
    this.element = h("div", { class: "pad" }, this.canvas, this.hint);
    this.canvas.addEventListener("pointerdown", (event) => this.down(event));
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"] as const)
      this.canvas.addEventListener(end, () => this.element.classList.remove("drawing"));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const change of ["focus", "blur"] as const)
      this.canvas.addEventListener(change, () => {
        this.penDown = false;
        this.draw();
      });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get blank(): boolean {
    return this.source === null && this.strokes.length === 0;
  }

  /** Shows a picture, to be drawn on; null: an empty pad. */
  show(source: Picture | null): void {
    this.source = source;
    this.strokes = [];
    if (source) {
      this.base.width = source.width;
      this.base.height = source.height;
      this.base.getContext("2d")!.putImageData(imageOf(source), 0, 0);
    }
    this.changed();
  }

  undo(): void {
    if (this.strokes.length === 0) return this.show(null);
    this.strokes.pop();
    this.penDown = false;
    this.changed();
  }

  /** What the networks are shown. */
  picture(): Picture | null {
    const { source, strokes } = this;
    if (strokes.length === 0) return source;
    const { side, objectSide } = this.options;
    if (!source && objectSide > 0)
      return { pixels: centred(strokes, side, objectSide), height: side, width: side, channels: 1 };
    const { height, width, channels } = source ?? { height: side, width: side, channels: 1 };
    const ink = coverage(strokes, height, width, PEN * Math.max(height, width), ([x, y]) => [
      x * width,
      y * height,
    ]);
    if (!source) return { pixels: ink, height, width, channels: 1 };
    const pixels = source.pixels.map((value, k) => Math.max(value, ink[Math.floor(k / channels)]));
    return { pixels, height, width, channels };
  }

  private at(event: PointerEvent): Point {
    const box = this.canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  }

  private down(event: PointerEvent): void {
    if (event.button !== 0 || !event.isPrimary) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.element.classList.add("drawing");
    this.penDown = false;
    this.strokes.push([this.at(event)]);
    this.changed();
  }

  private move(event: PointerEvent): void {
    if (!this.canvas.hasPointerCapture(event.pointerId) || !event.isPrimary) return;
    const stroke = this.strokes[this.strokes.length - 1];
    const passed = event.getCoalescedEvents?.() ?? [];
    stroke?.push(...(passed.length > 0 ? passed : [event]).map((each) => this.at(each)));
    this.changed();
  }

  private key(event: KeyboardEvent): void {
    const steps: Record<string, Point> = {
      ArrowLeft: [-STEP, 0],
      ArrowRight: [STEP, 0],
      ArrowUp: [0, -STEP],
      ArrowDown: [0, STEP],
    };
    const step = steps[event.key];
    if (step) {
      const inside = (value: number) => Math.min(1 - PEN / 2, Math.max(PEN / 2, value));
      this.pen = [inside(this.pen[0] + step[0]), inside(this.pen[1] + step[1])];
      if (this.penDown) this.strokes[this.strokes.length - 1].push(this.pen);
    } else if (event.key === " ") {
      this.penDown = !this.penDown;
      if (this.penDown) this.strokes.push([this.pen]);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      this.penDown = false;
      this.show(null);
    } else if (event.key === "z" && (event.ctrlKey || event.metaKey)) {
      this.undo();
    } else {
      return;
    }
    event.preventDefault();
    this.changed();
  }

  private changed(): void {
    this.draw();
    this.options.onChange();
  }

  private draw(): void {
    const { canvas } = this;
    const side = Math.max(1, Math.round(canvas.clientWidth * (window.devicePixelRatio || 1)));
    if (canvas.width !== side) canvas.width = canvas.height = side;
    const context = canvas.getContext("2d")!;
    context.clearRect(0, 0, side, side);
    if (this.source) {
      context.imageSmoothingEnabled = Math.max(this.base.width, this.base.height) > 128;
      context.drawImage(this.base, 0, 0, side, side);
    }
    context.strokeStyle = INK;
    paint(context, this.strokes, PEN * side, ([x, y]) => [x * side, y * side]);
    if (document.activeElement === canvas && canvas.matches(":focus-visible")) {
      context.beginPath();
      context.arc(this.pen[0] * side, this.pen[1] * side, (PEN * side) / 2, 0, 2 * Math.PI);
      context.lineWidth = side / 200;
      context.strokeStyle = this.penDown ? "#ffb000" : "#8fb0ff";
      context.stroke();
    }
    this.hint.hidden = !this.blank;
  }
}
