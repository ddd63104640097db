#include "plan/draw/canvas.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "plan/format/xml_escape.h"

namespace thalweg::plan {
namespace {

// On a dark page the drawing turns dark: lightness is inverted, and hues stay. Programs that ignore
// the style sheet show the light drawing.
constexpr std::string_view kDarkPage =
    "<style>@media (prefers-color-scheme: dark) "
    "{svg {filter: invert(0.91) hue-rotate(180deg)}}</style>\n";

// The width of a letter as a fraction of the font size, by class of letter, in DejaVu Sans, the
// widest of the fonts named below.
double letter_width(char letter) {
  constexpr std::string_view kNarrow = "ijl.,:;'|!()[] ";
  constexpr std::string_view kSlim = "frt-/\"";
  constexpr std::string_view kWide = "mwMW%…→";
  if (kNarrow.find(letter) != std::string_view::npos) return 0.36;
  if (kSlim.find(letter) != std::string_view::npos) return 0.43;
  if (kWide.find(letter) != std::string_view::npos) return 0.98;
  return letter >= 'A' && letter <= 'Z' ? 0.72 : 0.63;
}

bool starts_letter(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

void append_stroke(std::string& out, const DrawStroke& stroke) {
  fmt::format_to(std::back_inserter(out), " stroke=\"{}\" stroke-width=\"{:.2f}\"{}", stroke.color,
                 stroke.width, stroke.dashed ? " stroke-dasharray=\"4 3\"" : "");
}

const char* name_of(DrawAnchor anchor) {
  switch (anchor) {
    case DrawAnchor::kStart:
      return "start";
    case DrawAnchor::kMiddle:
      return "middle";
    case DrawAnchor::kEnd:
      return "end";
  }
  return "";
}

}  // namespace

void DrawCanvas::close(std::string_view element, std::string_view tooltip) {
  if (tooltip.empty()) {
    body_ += "/>\n";
  } else {
    fmt::format_to(std::back_inserter(body_), "><title>{}</title></{}>\n", xml_escaped(tooltip),
                   element);
  }
}

void DrawCanvas::line(DrawPoint from, DrawPoint to, const DrawStroke& stroke,
                      std::string_view tooltip) {
  fmt::format_to(std::back_inserter(body_),
                 "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"", from.x, from.y,
                 to.x, to.y);
  append_stroke(body_, stroke);
  close("line", tooltip);
}

void DrawCanvas::bow(DrawPoint from, DrawPoint to, double rise, const DrawStroke& stroke,
                     std::string_view tooltip) {
  // A quadratic curve reaches half the height of its control point.
  const double top = std::min(from.y, to.y) - 2 * rise;
  fmt::format_to(std::back_inserter(body_),
                 "<path d=\"M{:.1f} {:.1f} Q{:.1f} {:.1f} {:.1f} {:.1f}\" fill=\"none\"", from.x,
                 from.y, (from.x + to.x) / 2, top, to.x, to.y);
  append_stroke(body_, stroke);
  close("path", tooltip);
}

void DrawCanvas::arrow(DrawPoint from, DrawPoint to, const DrawStroke& stroke, double head,
                       std::string_view tooltip) {
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (length == 0) return;
  const double dx = (to.x - from.x) / length;
  const double dy = (to.y - from.y) / length;
  const DrawPoint neck{to.x - dx * head, to.y - dy * head};
  line(from, neck, stroke, tooltip);
  const double half = head * 0.42;
  fmt::format_to(std::back_inserter(body_),
                 "<path d=\"M{:.1f} {:.1f} L{:.1f} {:.1f} L{:.1f} {:.1f} Z\" fill=\"{}\"/>\n", to.x,
                 to.y, neck.x - dy * half, neck.y + dx * half, neck.x + dy * half,
                 neck.y - dx * half, stroke.color);
}

void DrawCanvas::box(DrawPoint corner, double width, double height, std::string_view fill,
                     const DrawStroke& stroke, double radius, std::string_view tooltip) {
  fmt::format_to(std::back_inserter(body_),
                 "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{:.1f}\" "
                 "fill=\"{}\"",
                 corner.x, corner.y, width, height, radius, fill);
  append_stroke(body_, stroke);
  close("rect", tooltip);
}

void DrawCanvas::circle(DrawPoint center, double radius, std::string_view fill,
                        const DrawStroke& stroke, std::string_view tooltip) {
  fmt::format_to(std::back_inserter(body_),
                 "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" fill=\"{}\"", center.x, center.y,
                 radius, fill);
  append_stroke(body_, stroke);
  close("circle", tooltip);
}

void DrawCanvas::text(DrawPoint base, std::string_view text, const DrawTextStyle& style) {
  if (text.empty()) return;
  fmt::format_to(std::back_inserter(body_),
                 "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{:.1f}\" text-anchor=\"{}\" "
                 "fill=\"{}\"{}>{}</text>\n",
                 base.x, base.y, style.size, name_of(style.anchor), style.color,
                 style.bold ? " font-weight=\"bold\"" : "", xml_escaped(text));
}

std::string DrawCanvas::finish(double width, double height, std::string_view title) && {
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\">\n"
      "<title>{2}</title>\n{4}"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{3}</svg>\n",
      width, height, xml_escaped(title), body_, kDarkPage);
}

double text_width(std::string_view text, double size, bool bold) {
  double width = 0;
  for (const char c : text) {
    if (starts_letter(c)) width += letter_width(c);
  }
  return width * size * (bold ? 1.13 : 1);
}

std::string fitted(std::string_view text, double size, double width) {
  if (text_width(text, size) <= width) return std::string(text);
  std::size_t end = text.size();
  while (end > 0) {
    --end;
    if (!starts_letter(text[end])) continue;
    std::string cut = std::string(text.substr(0, end)) + "…";
    if (text_width(cut, size) <= width) return end > 0 ? cut : "";
  }
  return "";
}

}  // namespace thalweg::plan
