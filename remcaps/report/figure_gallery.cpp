#include "remcaps/report/figure_gallery.h"

#include <algorithm>

#include "remcaps/base/error.h"

namespace remcaps {

namespace {

constexpr double kMargin = 16, kGap = 8, kLabelSize = 11;

// Cuts a text that is wider than its place.
std::string shortened(const std::string& text, double size, double width) {
  if (text_width(text, size) <= width) return text;
  const auto letters = static_cast<size_t>(std::max(1.0, width / (size * 0.56) - 1));
  size_t end = 0;
  for (size_t seen = 0; end < text.size() && seen < letters; ++seen) do
      ++end;
    while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80);
  return text.substr(0, end) + "\u2026";
}

}  // namespace

Svg draw_gallery(const Gallery& gallery) {
  size_t columns = gallery.columns.size();
  double label_width = 0, aspect = 0;
  bool captions = false;
  for (const GalleryRow& row : gallery.rows) {
    columns = std::max(columns, row.cells.size());
    label_width = std::max(label_width, text_width(row.label, kLabelSize));
    for (const GalleryCell& cell : row.cells) {
      captions = captions || !cell.caption.empty();
      if (cell.picture.defined())
        aspect = std::max(aspect, static_cast<double>(cell.picture.size(1)) /
                                      static_cast<double>(cell.picture.size(0)));
    }
  }
  check(columns > 0 && aspect > 0, "figure {} has no pictures", gallery.title);
  label_width = std::min(label_width, 230.0) + (label_width > 0 ? 14 : 0);
  const double width = gallery.cell * aspect;
  const double row_height = gallery.cell + kGap + (captions ? 15 : 0);
  const double left = kMargin + label_width;
  const double head = 30 + (gallery.subtitle.empty() ? 0 : 20) + (gallery.columns.empty() ? 0 : 20);
  const double bottom = kMargin + head + static_cast<double>(gallery.rows.size()) * row_height;
  const double wanted = left + static_cast<double>(columns) * (width + kGap) + kMargin;
  const double title_width =
      std::max(text_width(gallery.title, 16, /*bold=*/true), text_width(gallery.subtitle, 12));
  Svg svg(std::max(wanted, title_width + 2 * kMargin), bottom + (gallery.colour_scale ? 48 : 8));

  svg.text(kMargin, kMargin + 12, gallery.title, {.size = 16, .bold = true});
  if (!gallery.subtitle.empty())
    svg.text(kMargin, kMargin + 32, gallery.subtitle, {.size = 12, .opacity = 0.75});
  for (size_t c = 0; c < gallery.columns.size(); ++c)
    svg.text(left + static_cast<double>(c) * (width + kGap) + width / 2, kMargin + head - 6,
             shortened(gallery.columns[c], kLabelSize, width + kGap),
             {.size = kLabelSize, .anchor = TextAnchor::kMiddle});
  double y = kMargin + head;
  for (const GalleryRow& row : gallery.rows) {
    svg.text(kMargin, y + gallery.cell / 2 + 4, shortened(row.label, kLabelSize, label_width),
             {.size = kLabelSize});
    double x = left;
    for (const GalleryCell& cell : row.cells) {
      if (cell.picture.defined()) svg.image(x, y, width, gallery.cell, png_data_uri(cell.picture));
      if (!cell.caption.empty())
        svg.text(x + width / 2, y + gallery.cell + 12, shortened(cell.caption, 10, width + kGap),
                 {.size = 10, .anchor = TextAnchor::kMiddle, .opacity = 0.8});
      x += width + kGap;
    }
    y += row_height;
  }
  if (gallery.colour_scale)
    svg.colour_scale(left, bottom + 18, 140, gallery.scale_label, "lowest", "highest");
  return svg;
}

}  // namespace remcaps
