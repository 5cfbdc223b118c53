"""What notebooks show: HTML tables, and figures of matplotlib, which is imported when it is used."""

import base64
import html
import io


def html_table(header, rows):
    cells = "".join(f"<th>{html.escape(str(name))}</th>" for name in header)
    lines = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
                    for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def explanation(found, figure=None):
    """The pictures of an Explanation and its parse tree, side by side."""
    import matplotlib.image

    figure = figure or _figure(width=3 * len(found.pictures) + 4, height=3.2)
    panels = figure.subplots(1, len(found.pictures) + 1)
    names = ["image", "map", "both"]
    for panel, uri, name in zip(panels, found.pictures, names):
        png = base64.b64decode(uri.split(",", 1)[1])
        panel.imshow(matplotlib.image.imread(io.BytesIO(png), format="png"))
        panel.set_title(name)
        panel.set_axis_off()
    _tree(panels[-1], found)
    return figure


def parse_trees(trees, figure=None, class_names=()):
    """Bars: how many images of a class share its most frequent trees."""
    figure = figure or _figure(width=8, height=4)
    panel = figure.subplots()
    shares = []
    for k, images in enumerate(trees.samples_per_class):
        found = trees.most_frequent(k, limit=10)
        shares.append([tree.count / max(images, 1) for tree in found] + [0] * (10 - len(found)))
    bottom = [0.0] * len(shares)
    for rank in range(10):
        heights = [row[rank] for row in shares]
        panel.bar(range(len(shares)), heights, bottom=bottom, edgecolor="white",
                  color=str(0.2 + 0.07 * rank))
        bottom = [low + height for low, height in zip(bottom, heights)]
    panel.set(xlabel="predicted class", ylabel="share of its images", xticks=range(len(shares)),
              ylim=(0, 1),
              title=f"the ten most frequent parse trees of each class, {trees.entropy:.2f} bits")
    if class_names:
        panel.set_xticklabels(class_names, rotation=30, ha="right")
    return figure


def _tree(panel, found):
    """The edges: a row per layer, wider lines for larger shares of the evidence or couplings."""
    depth = max((edge.layer for edge in found.edges), default=0) + 1
    for layer, name in enumerate(found.layer_names[:depth + 1]):
        panel.text(0, layer + 0.06, name, va="bottom", color="gray")
    places = {}  # (layer, capsule) -> x
    for layer in range(depth + 1):
        capsules = sorted({edge.start for edge in found.edges if edge.layer == layer}
                          | {edge.end for edge in found.edges if edge.layer == layer - 1})
        for rank, capsule in enumerate(capsules):
            places[layer, capsule] = (rank + 0.5) / len(capsules)
    label = len(places) <= 12  # more would overlap
    for edge in found.edges:
        strength = edge.share or edge.coupling  # the paper's view has couplings only
        panel.plot([places[edge.layer, edge.start], places[edge.layer + 1, edge.end]],
                   [edge.layer, edge.layer + 1], color="tab:purple", alpha=0.6,
                   linewidth=1 + 8 * strength)
        if label and edge.layer == 0:
            panel.annotate(f"{strength:.0%}", (places[0, edge.start], 0), (0, -8), va="top",
                           ha="center", textcoords="offset points")
    for (layer, _), x in places.items():
        panel.plot(x, layer, "o", color="black", markersize=4 if layer < depth else 10)
    panel.set(title=f"parse tree of {found.class_name}", xlim=(0, 1), ylim=(-0.15, depth + 0.1))
    panel.set_axis_off()


def _figure(width, height):
    from matplotlib import pyplot

    return pyplot.figure(figsize=(width, height), constrained_layout=True)
