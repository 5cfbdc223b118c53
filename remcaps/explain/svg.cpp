#include "remcaps/explain/svg.h"

#include <fmt/ranges.h>

#include <iterator>

#include "remcaps/explain/colour_map.h"

namespace remcaps {

namespace {

// Two decimals at most, no trailing zeros: files stay small and readable.
std::string number(double value) {
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string optional(const char* name, double value, double usual) {
  return value == usual ? "" : fmt::format(" {}=\"{}\"", name, number(value));
}

std::string stroke_attributes(const Stroke& stroke) {
  return fmt::format(" stroke=\"{}\" stroke-width=\"{}\"{}{}", stroke.colour.colour,
                     number(stroke.width), optional("stroke-opacity", stroke.opacity, 1),
                     stroke.dashed ? " stroke-dasharray=\"4 4\"" : "");
}

std::string closing(const std::string& element, const std::string& title) {
  return title.empty() ? "/>\n"
                       : fmt::format("><title>{}</title></{}>\n", escape_xml(title), element);
}

}  // namespace

Paint map_paint(double value) {
  return to_hex(map_colour(value));
}

Paint strength_paint(double value) {
  return {to_hex(strength_colour(value, /*dark_page=*/false)),
          to_hex(strength_colour(value, /*dark_page=*/true))};
}

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

double text_width(std::string_view text, double size, bool bold) {
  // UTF-8 continuation bytes have no width of their own.
  const auto letters = std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
  return static_cast<double>(letters) * size * (bold ? 0.66 : 0.56);
}

// Classes for what is another colour on a dark page: a style sheet's goes before an attribute's.
std::string Svg::dark_classes(const Paint& fill, const Paint& stroke) {
  std::vector<std::string> names;
  const auto add = [&](const char* property, const Paint& paint) {
    if (paint.on_dark.empty()) return;
    names.push_back(property[0] + paint.on_dark.substr(1));
    dark_rules_.insert(fmt::format(".{}{{{}:{}}}", names.back(), property, paint.on_dark));
  };
  add("fill", fill);
  add("stroke", stroke);
  return names.empty() ? "" : fmt::format(" class=\"{}\"", fmt::join(names, " "));
}

void Svg::line(double x1, double y1, double x2, double y2, const Stroke& stroke) {
  fmt::format_to(std::back_inserter(body_), "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"{}{}/>\n",
                 number(x1), number(y1), number(x2), number(y2),
                 dark_classes("none", stroke.colour), stroke_attributes(stroke));
}

void Svg::path(const std::string& path, const Stroke& stroke, const std::string& title) {
  fmt::format_to(
      std::back_inserter(body_), "<path d=\"{}\" fill=\"none\" stroke-linejoin=\"round\"{}{}{}",
      path, dark_classes("none", stroke.colour), stroke_attributes(stroke), closing("path", title));
}

void Svg::rect(double x, double y, double width, double height, const Paint& fill,
               const std::string& title, double opacity) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}{}{}", number(x),
                 number(y), number(width), number(height), fill.colour, dark_classes(fill, "none"),
                 optional("fill-opacity", opacity, 1), closing("rect", title));
}

void Svg::ground(double x, double y, double width, double height) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect class=\"page\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", number(x),
                 number(y), number(width), number(height));
}

void Svg::frame(double x, double y, double width, double height, const Stroke& stroke) {
  fmt::format_to(
      std::back_inserter(body_),
      "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"none\"{}{}/>\n",
      number(x), number(y), number(width), number(height), dark_classes("none", stroke.colour),
      stroke_attributes(stroke));
}

void Svg::circle(double x, double y, double radius, const Paint& fill, const Stroke& outline,
                 const std::string& title) {
  fmt::format_to(std::back_inserter(body_),
                 "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"{}{}{}", number(x), number(y),
                 number(radius), fill.colour, dark_classes(fill, outline.colour),
                 stroke_attributes(outline), closing("circle", title));
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  static constexpr const char* kAnchors[] = {"", " text-anchor=\"middle\"", " text-anchor=\"end\""};
  const std::string turn = style.rotate == 0
                               ? ""
                               : fmt::format(" transform=\"rotate({} {} {})\"",
                                             number(style.rotate), number(x), number(y));
  fmt::format_to(std::back_inserter(body_),
                 "<text x=\"{}\" y=\"{}\" font-size=\"{}\" fill=\"{}\"{}{}{}{}>{}</text>\n",
                 number(x), number(y), number(style.size), style.colour,
                 kAnchors[static_cast<int>(style.anchor)], style.bold ? " font-weight=\"600\"" : "",
                 optional("fill-opacity", style.opacity, 1), turn, escape_xml(text));
}

void Svg::image(double x, double y, double width, double height, const std::string& uri,
                const std::string& title) {
  fmt::format_to(std::back_inserter(body_),
                 "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" "
                 "preserveAspectRatio=\"none\" image-rendering=\"pixelated\" href=\"{}\"{}",
                 number(x), number(y), number(width), number(height), uri, closing("image", title));
  frame(x, y, width, height, {.width = 0.5, .opacity = 0.5});
}

void Svg::colour_scale(double x, double y, double width, const std::string& label,
                       const std::string& low, const std::string& high, Paint (*paint)(double)) {
  constexpr int kSteps = 48;
  constexpr double kHeight = 9;
  for (int i = 0; i < kSteps; ++i)  // a little overlap: no hairlines between the steps
    rect(x + width * i / kSteps, y, width / kSteps + (i + 1 < kSteps ? 0.6 : 0), kHeight,
         paint(static_cast<double>(i) / (kSteps - 1)));
  frame(x, y, width, kHeight, {.width = 0.5, .opacity = 0.5});
  text(x, y - 5, label, {.size = 11});
  text(x, y + kHeight + 12, low, {.size = 10, .opacity = 0.75});
  text(x + width, y + kHeight + 12, high,
       {.size = 10, .anchor = TextAnchor::kEnd, .opacity = 0.75});
}

void Svg::place(const Svg& other, double x, double y) {
  fmt::format_to(std::back_inserter(body_), "<g transform=\"translate({} {})\">\n{}</g>\n",
                 number(x), number(y), other.body_);
  dark_rules_.insert(other.dark_rules_.begin(), other.dark_rules_.end());
}

std::string Svg::description(std::string_view text) {
  return text.empty() ? "" : fmt::format("<desc>{}</desc>\n", escape_xml(text));
}

std::string Svg::str(std::string_view title, std::string_view description) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" font-family=\"system-ui, 'Segoe UI', Roboto, 'DejaVu "
      "Sans', "
      "sans-serif\">\n<title>{2}</title>\n{5}"
      "<style>svg{{color:#1f2430}}.page{{fill:#ffffff}}"
      "@media (prefers-color-scheme:dark){{svg{{color:#e4e7ee}}.page{{fill:#14171f}}{4}}}</style>\n"
      "<rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{3}</svg>\n",
      number(width_), number(height_), escape_xml(title), body_, fmt::join(dark_rules_, ""),
      Svg::description(description));
}

}  // namespace remcaps
