// The page in which one draws: what the networks see in it, while one draws.

import { onThemeChange, runColour } from "./colour";
import { Images, readData, uint8Blob } from "./data";
import { append, h, select } from "./dom";
import type { DrawData } from "./drawdata";
import { DRAW_VERSION, loadNetworks, pictureOf } from "./drawdata";
import { DrawPanel } from "./drawpanel";
import { imageCanvas } from "./images";
import type { Picture } from "./network";
import { Pad } from "./pad";
import { isBright, negative, onPictures, readPicture } from "./picture";
import type { View } from "./state";

const OFFERED = 18; // test images at a time
const QUIET = 600; // milliseconds without a change before the answer is read out

function shuffled(count: number): number[] {
  const order = Array.from({ length: count }, (_, k) => k);
  for (let k = count - 1; k > 0; k--) {
    const other = Math.floor(Math.random() * (k + 1));
    [order[k], order[other]] = [order[other], order[k]];
  }
  return order;
}

/** Test images to try, some at a time. */
function offer(
  data: DrawData,
  images: Images,
  classes: string[],
  onPick: (image: number) => void,
): HTMLElement {
  const { indices, labels } = data.images!;
  const grid = h("div", { class: "offered" });
  let order = shuffled(indices.length);
  const fill = () => {
    if (order.length < OFFERED) order = shuffled(indices.length);
    grid.replaceChildren(
      ...order.splice(0, OFFERED).map((image) =>
        h(
          "button",
          {
            type: "button",
            class: "thumb",
            "data-image": indices[image],
            "aria-label": `Test image ${indices[image]}: ${classes[labels[image]]}`,
            title: classes[labels[image]],
            onclick: () => onPick(image),
          },
          imageCanvas(images, image, ""),
        ),
      ),
    );
  };
  fill();
  return h(
    "section",
    { class: "offer", "aria-label": "Test images" },
    h(
      "div",
      { class: "offer-head" },
      h("h2", {}, "Or take a test image"),
      h("button", { type: "button", class: "quiet", onclick: fill }, "Others"),
    ),
    grid,
  );
}

async function start(app: HTMLElement): Promise<void> {
  const data = readData<DrawData>(DRAW_VERSION);
  const digits = data.object_side > 0;
  const title = digits ? "Draw a digit" : "Draw, drop or pick a picture";
  document.title = `${title}: remcaps`;
  const networks = await loadNetworks(data);
  const shipped = data.images;
  const images = shipped && new Images(await uint8Blob(shipped.pixels), shipped.pixels.shape);
  const { channels, height, classes } = networks[0].network.info;

  const glance = h("ul", { class: "glance", "aria-hidden": "true" }); // for small screens
  const status = h("p", { class: "unseen", role: "status" }); // to be read out
  const panels = networks.map(
    (network, place) => new DrawPanel(network, place, images, (image) => take(image)),
  );
  let view: View = "contributions";
  const answers = h(
    "div",
    { class: "answers", "data-networks": networks.length },
    ...panels.map((panel) => panel.element),
  );
  const views = select(
    "View",
    [
      ["contributions", "contributions"],
      ["couplings", "the paper's: couplings"],
    ],
    view,
    (value) => {
      view = value as View;
      plan();
    },
  );

  // One answer a frame at most; a slow network leaves the browser half of the time.
  let planned = false;
  let free = 0;
  let telling = 0;
  const plan = () => {
    if (planned) return;
    planned = true;
    requestAnimationFrame(function frame(now) {
      if (now < free) {
        requestAnimationFrame(frame);
        return;
      }
      planned = false;
      const began = performance.now();
      answer();
      const took = performance.now() - began;
      free = took > 30 ? began + 2 * took : 0;
    });
  };
  const answer = () => {
    const picture = pad.picture();
    panels.forEach((panel, n) =>
      picture ? panel.update(networks[n].network.answer(picture), picture, view) : panel.clear(),
    );
    const told = panels.map((panel) => panel.summary()).filter(Boolean);
    glance.replaceChildren(
      ...told.map((text, place) =>
        h("li", {}, h("span", { class: "swatch", style: `background:${runColour(place)}` }), text),
      ),
    );
    clearTimeout(telling);
    telling = window.setTimeout(() => {
      status.textContent = told
        .map((text, n) => (told.length > 1 ? `${networks[n].info.name}: ${text}` : text))
        .join("; ");
    }, QUIET);
  };
  const pad = new Pad({
    side: height,
    objectSide: data.object_side,
    hint: digits ? "Draw a digit here" : "Draw here, or drop a picture",
    onChange: plan,
  });

  const trouble = h("p", { class: "trouble", role: "alert" });
  let dropped: Picture | null = null;
  const negated = h("input", {
    type: "checkbox",
    onchange: () => dropped && pad.show(negated.checked ? negative(dropped) : dropped),
  });
  const negatedField = h("label", { class: "negative", hidden: true }, negated, "Negative");
  const show = (picture: Picture | null, own: boolean) => {
    dropped = own ? picture : null;
    negatedField.hidden = !own;
    pad.show(own && picture && negated.checked ? negative(picture) : picture);
  };
  const take = (image: number) => show(pictureOf(images!, image), false);
  const open = async (file: Blob | null | undefined) => {
    if (!file) return;
    trouble.textContent = "";
    try {
      const picture = await readPicture(file);
      // Grey networks know bright objects on a dark ground.
      negated.checked = channels !== 3 && isBright(picture);
      show(picture, true);
    } catch {
      const name = file instanceof File ? file.name : "This";
      trouble.textContent = `${name} is no picture that this browser can read.`;
    }
  };
  const chooser = h("input", {
    type: "file",
    accept: "image/*",
    class: "unseen",
    "aria-label": "Open a picture",
    onchange: () => {
      void open(chooser.files?.[0]);
      chooser.value = "";
    },
  });
  const button = (text: string, onclick: () => void) =>
    h("button", { type: "button", onclick }, text);
  onPictures(([file]) => void open(file));
  onThemeChange(plan);

  app.replaceChildren();
  append(
    app,
    h(
      "header",
      { class: "top" },
      h("p", { class: "kicker" }, "remcaps"),
      h("h1", {}, title),
      h(
        "p",
        { class: "lead" },
        "A capsule network answers while you draw: which class, and what each of its capsules contributes to that answer. In the paper's view: how strongly they are coupled with it, the drawing's parse tree.",
      ),
    ),
    h(
      "main",
      { class: "draw" },
      h(
        "div",
        { class: "side" },
        pad.element,
        h(
          "div",
          { class: "tools" },
          button("Clear", () => show(null, false)),
          button("Undo", () => pad.undo()),
          h("label", { class: "button" }, "Open a picture", chooser),
          negatedField,
        ),
        trouble,
        glance,
        status,
        images && offer(data, images, classes, take),
        h(
          "p",
          { class: "note keys", id: "pad-keys" },
          "Mouse, pen or finger. With the keyboard: arrow keys move the pen, Space puts it down or lifts it, Delete clears, Ctrl+Z takes a stroke back.",
        ),
      ),
      h("div", { class: "results" }, h("div", { class: "controls" }, views), answers),
    ),
    h(
      "footer",
      {},
      `Made by ${data.generator}. The networks run in this page; what you draw or drop stays in it.`,
    ),
  );
}

const app = document.getElementById("app")!;
app.append(h("p", { class: "loading", role: "status" }, "Unpacking the networks …"));
start(app).catch((error: Error) => {
  app.replaceChildren(
    h("p", { class: "failure", role: "alert" }, `This page cannot be shown: ${error.message}`),
  );
  throw error;
});
