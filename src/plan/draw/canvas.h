// The few shapes of SVG that the drawings need. Coordinates are pixels, y grows downwards.
#pragma once

#include <string>
#include <string_view>

namespace thalweg::plan {

struct DrawPoint {
  double x = 0;
  double y = 0;
};

struct DrawStroke {
  std::string_view color = "none";
  double width = 1;
  bool dashed = false;
};

enum class DrawAnchor { kStart, kMiddle, kEnd };

struct DrawTextStyle {
  double size = 12;
  DrawAnchor anchor = DrawAnchor::kStart;
  bool bold = false;
  std::string_view color = "#24292f";
};

// A tooltip may be empty. The canvas escapes texts.
class DrawCanvas {
 public:
  void line(DrawPoint from, DrawPoint to, const DrawStroke& stroke, std::string_view tooltip = "");
  // A bow from one point to another, `rise` above the higher of them.
  void bow(DrawPoint from, DrawPoint to, double rise, const DrawStroke& stroke,
           std::string_view tooltip = "");
  // A line with a head at its end.
  void arrow(DrawPoint from, DrawPoint to, const DrawStroke& stroke, double head,
             std::string_view tooltip = "");
  void box(DrawPoint corner, double width, double height, std::string_view fill,
           const DrawStroke& stroke, double radius = 0, std::string_view tooltip = "");
  void circle(DrawPoint center, double radius, std::string_view fill, const DrawStroke& stroke,
              std::string_view tooltip = "");
  // `base` lies on the text's base line.
  void text(DrawPoint base, std::string_view text, const DrawTextStyle& style);

  // Returns the whole document. Nothing may be drawn afterwards.
  std::string finish(double width, double height, std::string_view title) &&;

 private:
  void close(std::string_view element, std::string_view tooltip);

  std::string body_;
};

// The approximate width of a text in the sans-serif fonts that viewers use, rather too large than
// too small.
double text_width(std::string_view text, double size, bool bold = false);
// The text, cut with an ellipsis to at most `width`; empty if not even the ellipsis fits.
std::string fitted(std::string_view text, double size, double width);

}  // namespace thalweg::plan
