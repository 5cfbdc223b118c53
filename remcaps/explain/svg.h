// Just enough SVG: shapes and texts in a document that reads well on light and dark pages.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace remcaps {

/// & < > " replaced, for texts and attributes.
std::string escape_xml(std::string_view text);

/// A colour, and the one it is on a dark page where that is another.
struct Paint {
  Paint(std::string everywhere) : colour(std::move(everywhere)) {}
  Paint(const char* everywhere) : colour(everywhere) {}
  Paint(std::string light, std::string dark) : colour(std::move(light)), on_dark(std::move(dark)) {}

  std::string colour, on_dark;
};

/// map_colour(), the same on every page.
Paint map_paint(double value);
/// strength_colour() of either page.
Paint strength_paint(double value);

enum class TextAnchor { kStart, kMiddle, kEnd };

struct Stroke {
  Paint colour = "currentColor";
  double width = 1;
  double opacity = 1;
  bool dashed = false;
};

struct TextStyle {
  double size = 12;
  TextAnchor anchor = TextAnchor::kStart;
  bool bold = false;
  double opacity = 1;
  double rotate = 0;  ///< degrees about its own place
  std::string colour = "currentColor";
};

/// Texts and outlines take the page's ink (dark on light, light on dark); everything is in pixels.
class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  double width() const { return width_; }
  double height() const { return height_; }

  /// `title` is the tooltip of the shape, where not empty.
  void line(double x1, double y1, double x2, double y2, const Stroke& stroke = {});
  /// `path` is the d attribute.
  void path(const std::string& path, const Stroke& stroke, const std::string& title = "");
  void rect(double x, double y, double width, double height, const Paint& fill,
            const std::string& title = "", double opacity = 1);
  /// What lies below it does not show through.
  void ground(double x, double y, double width, double height);
  void frame(double x, double y, double width, double height, const Stroke& stroke);
  void circle(double x, double y, double radius, const Paint& fill, const Stroke& outline,
              const std::string& title = "");
  void text(double x, double y, std::string_view text, const TextStyle& style = {});
  /// `uri` is a data URI; pixels stay sharp when enlarged. A thin frame sets a white picture off a
  /// white page.
  void image(double x, double y, double width, double height, const std::string& uri,
             const std::string& title = "");
  /// A horizontal scale with its ends labelled.
  void colour_scale(double x, double y, double width, const std::string& label,
                    const std::string& low = "0", const std::string& high = "1",
                    Paint (*paint)(double) = map_paint);
  /// Another document's shapes at (x, y), at their own size.
  void place(const Svg& other, double x, double y);

  /// The whole file. A screen reader says `title`, then `description`.
  std::string str(std::string_view title, std::string_view description = "") const;
  /// The element that str() puts the description into; nothing for an empty one.
  static std::string description(std::string_view text);

 private:
  std::string dark_classes(const Paint& fill, const Paint& stroke);

  double width_, height_;
  std::string body_;
  std::set<std::string> dark_rules_;
};

/// The width a text will roughly take.
double text_width(std::string_view text, double size, bool bold = false);

}  // namespace remcaps
