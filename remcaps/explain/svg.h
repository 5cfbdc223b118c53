// Just enough SVG: shapes and texts in a document that reads well on light and dark pages.
#pragma once

#include <string>
#include <string_view>

namespace remcaps {

/// & < > " replaced, for texts and attributes.
std::string escape_xml(std::string_view text);

enum class TextAnchor { kStart, kMiddle, kEnd };

struct Stroke {
  std::string colour = "currentColor";
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
  void rect(double x, double y, double width, double height, const std::string& fill,
            const std::string& title = "", double opacity = 1);
  /// What lies below it does not show through.
  void ground(double x, double y, double width, double height);
  void frame(double x, double y, double width, double height, const Stroke& stroke);
  void circle(double x, double y, double radius, const std::string& fill, const Stroke& outline,
              const std::string& title = "");
  void text(double x, double y, std::string_view text, const TextStyle& style = {});
  /// `uri` is a data URI; pixels stay sharp when enlarged.
  void image(double x, double y, double width, double height, const std::string& uri,
             const std::string& title = "");
  /// A horizontal scale of map_colour() with its ends labelled.
  void colour_scale(double x, double y, double width, const std::string& label,
                    const std::string& low = "0", const std::string& high = "1");
  /// Another document's shapes at (x, y), at their own size.
  void place(const Svg& other, double x, double y);

  /// The whole file. `title` is what a screen reader says.
  std::string str(std::string_view title) const;

 private:
  double width_, height_;
  std::string body_;
};

/// The width a text will roughly take.
double text_width(std::string_view text, double size, bool bold = false);

}  // namespace remcaps
