#include "remcaps/explain/picture.h"

#include <gtest/gtest.h>

#include <cmath>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/data/formats/image_file.h"
#include "remcaps/explain/colour_map.h"
#include "remcaps/explain/svg.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

double linear(uint8_t part) {
  const double x = part / 255.0;
  return x <= 0.04045 ? x / 12.92 : std::pow((x + 0.055) / 1.055, 2.4);
}

// The OKLab lightness of a colour, 0 black to 1 white.
double lightness(Colour colour) {
  const double r = linear(colour.red), g = linear(colour.green), b = linear(colour.blue);
  const double l = std::cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const double m = std::cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const double s = std::cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return 0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s;
}

TEST(ColourMap, LightnessGrowsInProportionToTheValue) {
  const double dark = lightness(map_colour(0)), light = lightness(map_colour(1));
  EXPECT_LT(dark, 0.25);
  EXPECT_GT(light, 0.9);
  for (int i = 0; i <= 50; ++i)
    EXPECT_NEAR(lightness(map_colour(i / 50.0)), dark + (light - dark) * i / 50, 0.01) << i;
}

TEST(ColourMap, ClampsWhatLiesOutsideAndTakesNanForZero) {
  EXPECT_EQ(map_colour(-3), map_colour(0));
  EXPECT_EQ(map_colour(7), map_colour(1));
  EXPECT_EQ(map_colour(std::nan("")), map_colour(0));
  EXPECT_EQ(to_hex({1, 171, 255}), "#01abff");
}

TEST(ColourMap, StrongerIsFurtherFromThePage) {
  for (const bool dark : {false, true}) {
    double last = lightness(strength_colour(0, dark));
    for (int i = 1; i <= 20; ++i) {
      const double now = lightness(strength_colour(i / 20.0, dark));
      EXPECT_EQ(now > last, dark) << i;
      last = now;
    }
  }
  EXPECT_EQ(to_hex(strength_colour(std::nan(""), false)), to_hex(strength_colour(0, false)));
}

TEST(ColourMap, StrengthHasTheColoursOfTheReport) {
  const std::vector<Colour> viridis = {{0x44, 0x01, 0x54},
                                       {0x3b, 0x52, 0x8b},
                                       {0x21, 0x91, 0x8c},
                                       {0x5e, 0xc9, 0x62},
                                       {0xfd, 0xe7, 0x25}};
  for (size_t i = 0; i < viridis.size(); ++i) {
    const double place = static_cast<double>(i) / 4;
    for (const Colour found : {strength_colour(place * place, true),
                               strength_colour((1 - place) * (1 - place), false)}) {
      EXPECT_NEAR(found.red, viridis[i].red, 5) << i;
      EXPECT_NEAR(found.green, viridis[i].green, 5) << i;
      EXPECT_NEAR(found.blue, viridis[i].blue, 5) << i;
    }
  }
}

TEST(Svg, ADarkPageHasColoursOfItsOwn) {
  Svg inner(10, 10), outer(20, 20);
  inner.circle(5, 5, 2, {"#111111", "#eeeeee"}, {.colour = {"#222222", "#dddddd"}});
  outer.place(inner, 0, 0);
  outer.rect(0, 0, 1, 1, "#333333");
  const std::string text = outer.str("two");
  const size_t dark = text.find("prefers-color-scheme:dark");
  EXPECT_NE(text.find("class=\"feeeeee sdddddd\""), std::string::npos);
  EXPECT_LT(dark, text.find(".feeeeee{fill:#eeeeee}"));
  EXPECT_LT(dark, text.find(".sdddddd{stroke:#dddddd}"));
  EXPECT_NE(text.find("fill=\"#111111\""), std::string::npos);
  EXPECT_NE(text.find("fill=\"#333333\"/>"), std::string::npos) << "the same on every page";
}

TEST(ColourMap, TensorsGetTheColoursOfTheirValues) {
  const torch::Tensor colours = map_colours(torch::tensor({0.0, 0.31, 1.0}));
  for (int i = 0; i < 3; ++i) {
    const Colour expected = map_colour(std::vector<double>{0.0, 0.31, 1.0}[static_cast<size_t>(i)]);
    EXPECT_EQ(colours[i][0].item<int>(), expected.red);
    EXPECT_EQ(colours[i][2].item<int>(), expected.blue);
  }
}

TEST(Picture, AWrittenPngReadsBackAsItWas) {
  torch::manual_seed(1);
  const testing::TemporaryFolder folder;
  const Picture picture = torch::randint(0, 256, {13, 7, 3}, torch::kByte);
  write_png(folder / "a.png", picture);
  const torch::Tensor back = read_image(folder / "a.png", 3);  // [3, H, W]
  EXPECT_TRUE(torch::equal(back.permute({1, 2, 0}), picture));
}

TEST(Picture, DataUriIsBase64OfThePng) {
  const Picture picture = torch::zeros({1, 1, 3}, torch::kByte);
  const std::string uri = png_data_uri(picture);
  EXPECT_EQ(uri.rfind("data:image/png;base64,iVBORw0KGgo", 0), 0u) << uri;
  const size_t digits = uri.size() - std::string("data:image/png;base64,").size();
  EXPECT_EQ(digits, (encode_png(picture).size() + 2) / 3 * 4);
}

TEST(Picture, UndoesTheNormalisation) {
  const torch::Tensor pixels = torch::tensor({0.0f, 0.5f, 1.0f, 0.2f}).view({1, 2, 2});
  const Picture picture = to_picture((pixels - 0.3) / 0.4, {0.3}, {0.4});
  EXPECT_TRUE(torch::equal(picture.select(2, 1),
                           torch::tensor({0, 128, 255, 51}, torch::kByte).view({2, 2})));
}

TEST(Picture, AStereoPairShowsItsFirstView) {
  const torch::Tensor pair = torch::stack({torch::full({2, 2}, 9), torch::full({2, 2}, 200)}, 0);
  EXPECT_TRUE(to_picture(pair.to(torch::kByte)).eq(9).all().item<bool>());
}

TEST(Picture, OverlayIsBrightestWhereTheMapIs) {
  const Picture grey = torch::full({2, 2, 3}, 100, torch::kByte);
  const torch::Tensor map = torch::tensor({0.0f, 0.1f, 0.2f, 0.4f}).view({2, 2});
  const torch::Tensor sum = overlay(grey, map).to(torch::kInt).sum(2).flatten();
  for (int i = 0; i < 3; ++i) EXPECT_LT(sum[i].item<int>(), sum[i + 1].item<int>());
  const torch::Tensor raised = overlay(grey, map + 5).to(torch::kInt).sum(2).flatten();
  EXPECT_LE((raised - sum).abs().max().item<int>(), 6) << "only differences show";
  EXPECT_THROW(overlay(grey, torch::zeros({3, 2})), Error);
}

TEST(Picture, AFlatMapStaysDark) {
  const torch::Tensor noise = torch::tensor({1.0f, 1.0001f, 1.0f, 1.0002f}).view({2, 2});
  for (const torch::Tensor& flat : {torch::zeros({2, 2}), torch::ones({2, 2}), noise})
    EXPECT_LT(heat_picture(flat).max().item<int>(), 60);
}

TEST(Picture, MosaicPlacesTilesWithGaps) {
  const Picture black = torch::zeros({2, 3, 3}, torch::kByte);
  const Picture tiles = mosaic({{black, black}, {black}}, 1);
  EXPECT_EQ(tiles.size(0), 5);
  EXPECT_EQ(tiles.size(1), 7);
  EXPECT_EQ(tiles[2][0][0].item<int>(), 255);
  EXPECT_EQ(tiles[0][3][0].item<int>(), 255);
  EXPECT_EQ(tiles[4][6][0].item<int>(), 255) << "the short row ends in white";
  EXPECT_EQ(tiles[4][2][0].item<int>(), 0);
  EXPECT_THROW(mosaic({{black, torch::zeros({2, 2, 3}, torch::kByte)}}), Error);
  EXPECT_EQ(enlargement(black, 7), 4);
  EXPECT_EQ(enlarge(black, 4).size(1), 12);
}

}  // namespace
}  // namespace remcaps
