#include "tests/data/fixtures.h"

#include <png.h>
#include <zlib.h>

#include <cstdio>
// jpeglib.h needs stdio first.
#include <jpeglib.h>

#include <cstring>
#include <fstream>

#include "remcaps/base/files.h"
#include "remcaps/data/checksum.h"

namespace remcaps::testing {
namespace {

std::string little32(uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}

std::string little16(uint32_t value) {
  return little32(value).substr(0, 2);
}

std::string big32(uint32_t value) {
  const std::string little = little32(value);
  return {little.rbegin(), little.rend()};
}

std::string compress_with(const std::string& bytes, int window_bits) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A MAT-5 data element: tag, data, padding to 8 bytes.
std::string mat_element(uint32_t type, const std::string& data) {
  std::string element = little32(type) + little32(static_cast<uint32_t>(data.size())) + data;
  element.resize((element.size() + 7) / 8 * 8, '\0');
  return element;
}

std::string mat_matrix(uint32_t mat_class, const std::string& name,
                       const std::vector<int32_t>& dims, const std::string& rest) {
  std::string extents;
  for (const int32_t extent : dims) extents += little32(static_cast<uint32_t>(extent));
  return mat_element(14, mat_element(6, little32(mat_class) + little32(0)) +
                             mat_element(5, extents) + mat_element(1, name) + rest);
}

}  // namespace

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "not one line";
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

torch::Tensor noise(const std::vector<int64_t>& shape) {
  torch::manual_seed(3);
  return torch::randint(0, 256, shape, torch::TensorOptions().dtype(torch::kUInt8));
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>(i ^ (i >> 7));
  return text;
}

std::string sha256(const std::string& text) {
  Sha256 sum;
  sum.update(text.data(), text.size());
  return sum.finish();
}

void write_bytes(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string gzip(const std::string& bytes) {
  return compress_with(bytes, MAX_WBITS + 16);
}

std::string deflate_zlib(const std::string& bytes) {
  return compress_with(bytes, MAX_WBITS);
}

void truncate_file(const fs::path& path, uintmax_t size) {
  fs::resize_file(path, size);
}

void damage_file(const fs::path& path, uintmax_t at) {
  std::string bytes = read_file(path);
  bytes.at(at) = static_cast<char>(~bytes[at]);
  write_bytes(path, bytes);
}

std::string idx_bytes(const std::vector<uint32_t>& shape, const std::string& data) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  for (const uint32_t extent : shape) bytes += big32(extent);
  return bytes + data;
}

void write_mnist(const fs::path& folder, uint32_t train, uint32_t test) {
  const auto write = [&](const std::string& part, uint32_t count) {
    std::string pixels, labels;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t p = 0; p < 28 * 28; ++p) pixels += static_cast<char>((i + p) % 251);
      labels += static_cast<char>(i % 10);
    }
    write_bytes(folder / (part + "-images-idx3-ubyte"), idx_bytes({count, 28, 28}, pixels));
    write_bytes(folder / (part + "-labels-idx1-ubyte"), idx_bytes({count}, labels));
  };
  write("train", train);
  write("t10k", test);
}

std::string norb_bytes(const std::vector<uint32_t>& shape, const std::string& data) {
  std::string bytes = little32(0x1E3D4C55) + little32(static_cast<uint32_t>(shape.size()));
  for (const uint32_t extent : shape) bytes += little32(extent);
  for (size_t i = shape.size(); i < 3; ++i) bytes += little32(1);
  return bytes + data;
}

std::string norb_ints(const std::vector<uint32_t>& shape, const std::vector<int32_t>& data) {
  std::string values;
  for (const int32_t value : data) values += little32(static_cast<uint32_t>(value));
  std::string bytes = norb_bytes(shape, values);
  bytes[0] = 0x54;
  return bytes;
}

std::string mat_array(const std::string& name, const std::vector<int32_t>& dims,
                      const std::string& data) {
  return mat_matrix(/*mxUINT8*/ 9, name, dims, mat_element(/*miUINT8*/ 2, data));
}

std::string mat_structure(const std::string& name,
                          const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string names, values;
  for (const auto& [field, array] : fields) {
    std::string padded = field;
    padded.resize(32, '\0');
    names += padded;
    values += array;
  }
  // The length of a field name is a "small" element: type and size share four bytes.
  const std::string length = little16(5) + little16(4) + little32(32);
  return mat_matrix(/*mxSTRUCT*/ 2, name, {1, 1}, length + mat_element(1, names) + values);
}

std::string mat_file(const std::vector<std::string>& elements, bool compressed) {
  std::string file = "MATLAB 5.0 MAT-file, made for a test";
  file.resize(124, ' ');
  file += little16(0x0100) + "IM";
  for (const std::string& element : elements) {
    if (!compressed) {
      file += element;
      continue;
    }
    const std::string packed = deflate_zlib(element);
    file += little32(15) + little32(static_cast<uint32_t>(packed.size())) + packed;
  }
  return file;
}

void write_png(const fs::path& path, const torch::Tensor& image) {
  fs::create_directories(path.parent_path());
  const torch::Tensor rows = image.permute({1, 2, 0}).contiguous();
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.size(1));
  png.width = static_cast<png_uint_32>(image.size(2));
  png.format = image.size(0) == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  ASSERT_NE(png_image_write_to_file(&png, path.c_str(), 0, rows.data_ptr(), 0, nullptr), 0);
}

void write_jpeg(const fs::path& path, const torch::Tensor& image, int quality) {
  fs::create_directories(path.parent_path());
  torch::Tensor rows = image.permute({1, 2, 0}).contiguous();
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  jpeg_stdio_dest(&jpeg, file);
  jpeg.image_height = static_cast<JDIMENSION>(image.size(1));
  jpeg.image_width = static_cast<JDIMENSION>(image.size(2));
  jpeg.input_components = static_cast<int>(image.size(0));
  jpeg.in_color_space = image.size(0) == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = rows.data_ptr<uint8_t>() +
                   static_cast<int64_t>(jpeg.next_scanline) * image.size(2) * image.size(0);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::fclose(file);
}

torch::Tensor plain_image(int64_t channels, int64_t height, int64_t width, int value) {
  return torch::full({channels, height, width}, value, torch::kUInt8);
}

std::string tar_bytes(const std::vector<Member>& members) {
  std::string archive;
  const auto add = [&](std::string name, const std::string& content, char type) {
    std::string header(512, '\0');
    std::memcpy(header.data(), name.data(), std::min<size_t>(name.size(), 100));
    std::snprintf(header.data() + 100, 8, "%07o", 0644);
    std::snprintf(header.data() + 124, 12, "%011zo", content.size());
    header[156] = type;
    std::memcpy(header.data() + 257, "ustar\00000", 8);
    std::memset(header.data() + 148, ' ', 8);
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<uint8_t>(c);
    std::snprintf(header.data() + 148, 8, "%06o", sum);
    archive += header + content;
    archive.resize((archive.size() + 511) / 512 * 512, '\0');
  };
  for (const Member& member : members) {
    if (member.name.size() > 100) {  // a pax header carries a long name
      std::string record = " path=" + member.name + "\n";
      record = std::to_string(record.size() + 3) + record;
      add("pax", record, 'x');
    }
    add(member.name, member.content, '0');
  }
  archive.append(1024, '\0');
  return archive;
}

std::string zip_bytes(const std::vector<Member>& members, bool deflated) {
  std::string archive, directory;
  for (const Member& member : members) {
    const std::string packed =
        deflated ? compress_with(member.content, -MAX_WBITS) : member.content;
    const auto crc =
        static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(member.content.data()),
                                    static_cast<uInt>(member.content.size())));
    const std::string common = little16(20) + little16(0) + little16(deflated ? 8 : 0) +
                               little32(0) + little32(crc) +
                               little32(static_cast<uint32_t>(packed.size())) +
                               little32(static_cast<uint32_t>(member.content.size())) +
                               little16(static_cast<uint32_t>(member.name.size())) + little16(0);
    directory += "PK\x01\x02" + little16(20) + common + little16(0) + little16(0) + little16(0) +
                 little32(0) + little32(static_cast<uint32_t>(archive.size())) + member.name;
    archive += "PK\x03\x04" + common + member.name + packed;
  }
  const auto offset = static_cast<uint32_t>(archive.size());
  const auto count = static_cast<uint32_t>(members.size());
  return archive + directory + "PK\x05\x06" + little32(0) + little16(count) + little16(count) +
         little32(static_cast<uint32_t>(directory.size())) + little32(offset) + little16(0);
}

}  // namespace remcaps::testing
