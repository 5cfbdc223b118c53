#include "remcaps/data/formats/picture_file.h"

#include <png.h>

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs stdio first.
#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMaxSide = 32'768, kMaxPixels = int64_t{1} << 26;
// A file cannot hold more: deflate makes at most 1032 bytes of one, and JPEG needs at least a bit
// for a block of 8 x 8 pixels.
constexpr int64_t kDeflateRatio = 1032, kJpegPixelsPerByte = 512;

struct SizedPicture : DecodedPicture {
  int64_t least_bytes = 0;  // that a file needs for so many pixels
};

using PictureFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// The decoders' error functions must not return, and must not throw through C frames: they jump
// back, and the message they left becomes an Error outside.
struct Failure {
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message{};
};

bool is_small_enough(const ImageHeader& header) {
  return header.height <= kMaxSide && header.width <= kMaxSide &&
         header.height * header.width <= kMaxPixels;
}

// Asked before anything is allocated for the pixels.
bool is_sensible(const SizedPicture& picture, int64_t file_bytes) {
  return is_small_enough(picture.header) && picture.least_bytes <= file_bytes;
}

void check_size(const ImageHeader& header, const fs::path& path) {
  check(header.height > 0 && header.width > 0 && header.height <= kMaxSide &&
            header.width <= kMaxSide,
        "{}: {} x {} pixels; expected sides of 1 to {}", path.string(), header.height, header.width,
        kMaxSide);
  check(is_small_enough(header), "{}: {} x {} pixels; expected at most {}", path.string(),
        header.height, header.width, with_commas(kMaxPixels));
}

[[noreturn]] void png_failed(png_structp png, png_const_charp message) {
  auto* failure = static_cast<Failure*>(png_get_error_ptr(png));
  std::snprintf(failure->message.data(), failure->message.size(), "%s", message);
  std::longjmp(failure->back, 1);
}

void png_warned(png_structp, png_const_charp) {}  // colour profiles and the like

// Reads a PNG up to its header, or whole. Nothing with a destructor is made between setjmp and the
// last call that may jump.
bool decode_png(std::FILE* file, int64_t file_bytes, bool whole, SizedPicture& picture,
                std::vector<png_bytep>& rows, Failure& failure) {
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure, png_failed, png_warned);
  png_infop info = png != nullptr ? png_create_info_struct(png) : nullptr;
  if (info == nullptr || setjmp(failure.back) != 0) {
    png_destroy_read_struct(&png, &info, nullptr);
    return false;
  }
  png_init_io(png, file);
  png_read_info(png, info);
  picture.header.height = png_get_image_height(png, info);
  picture.header.width = png_get_image_width(png, info);
  const bool colour = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) != 0;
  picture.header.channels = colour ? 3 : 1;
  picture.least_bytes =
      static_cast<int64_t>(png_get_rowbytes(png, info)) * picture.header.height / kDeflateRatio;
  if (whole && is_sensible(picture, file_bytes)) {
    png_set_expand(png);  // palettes, 1, 2 and 4 bits, transparent colours
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const size_t stride = png_get_rowbytes(png, info);
    picture.pixels.resize(stride * static_cast<size_t>(picture.header.height));
    rows.resize(static_cast<size_t>(picture.header.height));
    for (size_t y = 0; y < rows.size(); ++y) rows[y] = picture.pixels.data() + y * stride;
    png_read_image(png, rows.data());
    png_read_end(png, nullptr);
  }
  png_destroy_read_struct(&png, &info, nullptr);
  return true;
}

struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands back a pointer to it
  Failure failure;
};

[[noreturn]] void jpeg_failed(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  (*jpeg->err->format_message)(jpeg, errors->failure.message.data());
  std::longjmp(errors->failure.back, 1);
}

// libjpeg only warns if data are missing and paints the rest grey; here that is an error.
// Oddities that lose no pixel (bytes between markers, unknown JFIF versions) are let through.
void jpeg_warned(j_common_ptr jpeg, int level) {
  if (level >= 0) return;
  switch (jpeg->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
      jpeg_failed(jpeg);
    default:
      break;
  }
}

bool decode_jpeg(std::FILE* file, int64_t file_bytes, bool whole, SizedPicture& picture,
                 std::vector<uint8_t>& cmyk, Failure& failure) {
  jpeg_decompress_struct jpeg;
  std::memset(&jpeg, 0, sizeof(jpeg));
  JpegErrors errors;
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jpeg_failed;
  errors.manager.emit_message = jpeg_warned;
  if (setjmp(errors.failure.back) != 0) {
    failure.message = errors.failure.message;
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_stdio_src(&jpeg, file);
  jpeg_read_header(&jpeg, TRUE);
  picture.header.height = jpeg.image_height;
  picture.header.width = jpeg.image_width;
  picture.header.channels = jpeg.jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
  picture.least_bytes = picture.header.height * picture.header.width / kJpegPixelsPerByte;
  if (whole && is_sensible(picture, file_bytes)) {
    const bool four = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    jpeg.out_color_space =
        four ? JCS_CMYK : (picture.header.channels == 1 ? JCS_GRAYSCALE : JCS_RGB);
    jpeg_start_decompress(&jpeg);
    const size_t width = jpeg.output_width;
    const size_t stride = width * static_cast<size_t>(picture.header.channels);
    picture.pixels.resize(stride * jpeg.output_height);
    if (four) cmyk.resize(width * 4);
    while (jpeg.output_scanline < jpeg.output_height) {
      uint8_t* out = picture.pixels.data() + jpeg.output_scanline * stride;
      JSAMPROW row = four ? cmyk.data() : out;
      jpeg_read_scanlines(&jpeg, &row, 1);
      // Adobe's programs store CMYK inverted, which makes the product with K the colour itself.
      const int inverted = jpeg.saw_Adobe_marker != 0 ? 0 : 255;
      for (size_t x = 0; four && x < width; ++x)
        for (size_t c = 0; c < 3; ++c)
          out[3 * x + c] = static_cast<uint8_t>((cmyk[4 * x + c] ^ inverted) *
                                                (cmyk[4 * x + 3] ^ inverted) / 255);
    }
    jpeg_finish_decompress(&jpeg);
  }
  jpeg_destroy_decompress(&jpeg);
  return true;
}

// A disk that fails must not pass for a damaged picture.
void check_readable(std::FILE* file, const fs::path& path) {
  check(std::ferror(file) == 0, "{}: reading failed: {}", path.string(), std::strerror(errno));
}

DecodedPicture decode(const fs::path& path, bool whole) {
  check(!fs::is_directory(path), "{}: is a folder; expected an image", path.string());
  check(fs::is_regular_file(path) || !fs::exists(path), "{}: not a file; expected an image",
        path.string());
  errno = 0;
  const PictureFile file(std::fopen(path.c_str(), "rb"), std::fclose);
  check(file != nullptr, "{}: cannot read: {}", path.string(), std::strerror(errno));
  std::array<uint8_t, 8> start{};
  const size_t got = std::fread(start.data(), 1, start.size(), file.get());
  check_readable(file.get(), path);
  check(got > 0, "{}: is empty; expected a PNG or JPEG image", path.string());
  constexpr std::array<uint8_t, 8> kPng = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  const bool png = got == start.size() && start == kPng;
  const bool jpeg = got >= 3 && start[0] == 0xff && start[1] == 0xd8 && start[2] == 0xff;
  check(png || jpeg, "{}: neither a PNG nor a JPEG image", path.string());
  std::rewind(file.get());

  SizedPicture picture;
  Failure failure;
  std::vector<png_bytep> rows;
  std::vector<uint8_t> line;
  const auto bytes = static_cast<int64_t>(fs::file_size(path));
  const bool decoded = png ? decode_png(file.get(), bytes, whole, picture, rows, failure)
                           : decode_jpeg(file.get(), bytes, whole, picture, line, failure);
  check_readable(file.get(), path);
  check(decoded, "{}: damaged {} image: {}", path.string(), png ? "PNG" : "JPEG",
        failure.message.data());
  check_size(picture.header, path);
  check(picture.least_bytes <= bytes, "{}: {} x {} pixels in {} bytes (file truncated?)",
        path.string(), picture.header.height, picture.header.width, with_commas(bytes));
  return picture;
}

}  // namespace

ImageHeader read_image_header(const fs::path& path) {
  return decode(path, /*whole=*/false).header;
}

DecodedPicture read_picture(const fs::path& path) {
  return decode(path, /*whole=*/true);
}

}  // namespace remcaps
