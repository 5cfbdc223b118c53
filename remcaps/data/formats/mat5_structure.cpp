#include "remcaps/data/formats/mat5_structure.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/base/text.h"

namespace remcaps {
namespace fs = std::filesystem;

namespace {

constexpr uint32_t kMatrix = 14, kCompressed = 15;        // element types
constexpr uint32_t kCell = 1, kStruct = 2, kChar = 4;     // array classes
constexpr uint32_t kFirstNumeric = 6, kLastNumeric = 15;  // double to uint64
constexpr uint64_t kMaxHeaderPart = 1 << 16;              // bytes of a shape or of names
constexpr int kMaxDepth = 8;                              // structures within structures

// Bytes that are read one after the other: those of the file, or those a compressed element holds.
class Source {
 public:
  explicit Source(std::string name) : name_(std::move(name)) {}
  virtual ~Source() = default;
  virtual void read(uint8_t* to, uint64_t bytes) = 0;

  void skip(uint64_t bytes) {
    std::array<uint8_t, 64 * 1024> nowhere;
    while (bytes > 0) {
      const uint64_t piece = std::min<uint64_t>(bytes, nowhere.size());
      read(nowhere.data(), piece);
      bytes -= piece;
    }
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class FileSource : public Source {
 public:
  explicit FileSource(const fs::path& path)
      : Source(path.string()), file_(path, std::ios::binary) {}
  void read(uint8_t* to, uint64_t bytes) override {
    file_.read(reinterpret_cast<char*>(to), static_cast<std::streamsize>(bytes));
    check(file_.good(), "{}: cannot read: {}", name(),
          file_.eof() ? "it ends too early" : std::strerror(errno));
  }

 private:
  std::ifstream file_;
};

class InflatedSource : public Source {
 public:
  InflatedSource(Source& from, uint64_t bytes)
      : Source(from.name()), from_(from), left_(bytes), in_(64 * 1024) {
    check(inflateInit(&stream_) == Z_OK, "{}: zlib cannot start", name());
  }
  ~InflatedSource() override { inflateEnd(&stream_); }
  InflatedSource(const InflatedSource&) = delete;
  InflatedSource& operator=(const InflatedSource&) = delete;

  void read(uint8_t* to, uint64_t bytes) override {
    check(inflate_to(to, bytes) == bytes, "{}: a compressed part of it is damaged", name());
  }

  // zlib's own checksum stands at the end.
  void expect_end() {
    uint8_t beyond = 0;
    check(inflate_to(&beyond, 1) == 0 && ended_, "{}: a compressed part of it is damaged", name());
    from_.skip(left_);
  }

 private:
  uint64_t inflate_to(uint8_t* to, uint64_t bytes) {
    stream_.next_out = to;
    stream_.avail_out = static_cast<uInt>(bytes);
    while (stream_.avail_out > 0 && !ended_) {
      if (stream_.avail_in == 0 && left_ > 0) {
        const uint64_t piece = std::min<uint64_t>(left_, in_.size());
        from_.read(in_.data(), piece);
        left_ -= piece;
        stream_.next_in = in_.data();
        stream_.avail_in = static_cast<uInt>(piece);
      }
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END)
        ended_ = true;
      else if (code != Z_OK)
        break;
    }
    return bytes - stream_.avail_out;
  }

  Source& from_;
  uint64_t left_;
  std::vector<uint8_t> in_;
  z_stream stream_{};
  bool ended_ = false;
};

// The rest of one element. Everything inside it is taken from here, so nothing can reach beyond it.
class Element {
 public:
  Element(Source& source, uint64_t bytes) : source_(source), left_(bytes) {}

  struct Tag {
    uint32_t type = 0;
    uint64_t bytes = 0;
    uint64_t padding = 0;  // bytes that follow the data
  };

  Tag tag() {
    std::array<uint32_t, 2> words{};
    take(8);
    source_.read(reinterpret_cast<uint8_t*>(words.data()), 4);
    if (words[0] >> 16 != 0) {  // a small element: its data stand in place of the size
      left_ += 4;
      const uint64_t bytes = words[0] >> 16;
      check(bytes <= 4, "{}: a small element of {} bytes; it has at most 4", source_.name(), bytes);
      return {words[0] & 0xffff, bytes, 4 - bytes};
    }
    source_.read(reinterpret_cast<uint8_t*>(&words[1]), 4);
    return {words[0], words[1], (8 - words[1] % 8) % 8};
  }

  std::vector<uint8_t> data(const Tag& tag, const char* what) {
    check(tag.bytes <= kMaxHeaderPart, "{}: {} of {} bytes; expected at most {}", source_.name(),
          what, with_commas(static_cast<int64_t>(tag.bytes)), with_commas(kMaxHeaderPart));
    take(tag.bytes + tag.padding);
    std::vector<uint8_t> bytes(tag.bytes);
    source_.read(bytes.data(), tag.bytes);
    source_.skip(tag.padding);
    return bytes;
  }

  void skip(const Tag& tag) {
    take(tag.bytes + tag.padding);
    source_.skip(tag.bytes + tag.padding);
  }

  Element inner(const Tag& tag) {
    take(tag.bytes + tag.padding);
    return {source_, tag.bytes};
  }

  void skip_rest() {
    source_.skip(left_);
    left_ = 0;
  }
  const std::string& name() const { return source_.name(); }

 private:
  void take(uint64_t bytes) {
    check(bytes <= left_,
          "{}: a part of {} bytes stands in an element with {} left (file damaged?)",
          source_.name(), with_commas(static_cast<int64_t>(bytes)),
          with_commas(static_cast<int64_t>(left_)));
    left_ -= bytes;
  }

  Source& source_;
  uint64_t left_;
};

uint64_t bytes_of_number(uint32_t type) {
  constexpr std::array<uint64_t, 19> kBytes = {0, 1, 1, 2, 2, 4, 4, 4, 0, 8,
                                               0, 0, 8, 8, 0, 0, 1, 2, 4};
  return type < kBytes.size() ? kBytes[type] : 0;
}

// The values of an array: as many as its shape says.
void check_values(Element& array, uint64_t count, bool exact) {
  const Element::Tag tag = array.tag();
  const uint64_t each = bytes_of_number(tag.type);
  check(each > 0, "{}: values of the element type {}; expected numbers", array.name(), tag.type);
  const uint64_t held = tag.bytes / each;
  check(exact ? held == count : held >= count, "{}: an array of {} values has {} (file damaged?)",
        array.name(), with_commas(static_cast<int64_t>(count)),
        with_commas(static_cast<int64_t>(held)));
  array.skip(tag);
}

/// How many fields a structure has: the length of all its field names over the length of one.
uint64_t field_count(Element& array) {
  const std::vector<uint8_t> length = array.data(array.tag(), "a field name's length");
  const uint64_t names = array.data(array.tag(), "a structure's field names").size();
  uint32_t each = 0;
  if (length.size() == sizeof(each)) std::memcpy(&each, length.data(), sizeof(each));
  if (each > 0 && names % each == 0) return names / each;
  fail("{}: a structure's field names do not fit (file damaged?)", array.name());
}

void check_array(Element& array, int depth) {
  const std::vector<uint8_t> flags = array.data(array.tag(), "an array's flags");
  check(flags.size() == 8, "{}: an array's flags have {} bytes; expected 8", array.name(),
        flags.size());
  const uint32_t array_class = flags[0];
  const bool complex = (flags[1] & 8) != 0;
  const std::vector<uint8_t> shape = array.data(array.tag(), "an array's shape");
  uint64_t count = 1;
  for (size_t at = 0; at + 4 <= shape.size(); at += 4) {
    int32_t extent = 0;
    std::memcpy(&extent, shape.data() + at, 4);
    check(extent >= 0 && !__builtin_mul_overflow(count, static_cast<uint64_t>(extent), &count) &&
              count <= INT64_MAX,
          "{}: an array's shape is not sensible (file damaged?)", array.name());
  }
  array.data(array.tag(), "an array's name");
  if (array_class >= kFirstNumeric && array_class <= kLastNumeric) {
    for (int part = 0; part < (complex ? 2 : 1); ++part) check_values(array, count, true);
  } else if (array_class == kChar) {
    check_values(array, count, false);
  } else if (array_class == kStruct || array_class == kCell) {
    check(depth < kMaxDepth, "{}: more than {} structures within each other", array.name(),
          kMaxDepth);
    uint64_t arrays = array_class == kStruct ? field_count(array) : 1;
    // Each of them has a tag at least, so a wrong count ends with the element.
    check(!__builtin_mul_overflow(arrays, count, &arrays),
          "{}: an array's shape is not sensible (file damaged?)", array.name());
    for (uint64_t i = 0; i < arrays; ++i) {
      const Element::Tag tag = array.tag();
      check(tag.type == kMatrix, "{}: a field of the element type {}; expected an array",
            array.name(), tag.type);
      Element inner = array.inner(tag);
      if (tag.bytes > 0) check_array(inner, depth + 1);
    }
  } else {
    fail("{}: an array of the MATLAB class {}; expected numbers, text, cells or a structure",
         array.name(), array_class);
  }
  array.skip_rest();
}

void check_top_level(Source& source, uint32_t type, uint64_t bytes) {
  check(type == kMatrix, "{}: an element of type {}; expected an array", source.name(), type);
  Element array(source, bytes);
  check_array(array, 0);
}

}  // namespace

void check_mat_structure(const fs::path& path) {
  constexpr uint64_t kHeader = 128;
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  check(!error, "{}: cannot read: {}", path.string(), error.message());
  check(size >= kHeader, "{}: {} bytes; a MAT-5 file has a header of {} (file truncated?)",
        path.string(), size, kHeader);
  FileSource file(path);
  std::array<uint8_t, kHeader> header{};
  file.read(header.data(), header.size());
  std::string text(header.begin(), header.begin() + 19);
  for (char& letter : text)
    if (letter < ' ' || letter > '~') letter = '?';
  check(text == "MATLAB 5.0 MAT-file", "{}: starts with \"{}\"; expected \"MATLAB 5.0 MAT-file\"",
        path.string(), text);
  // The two bytes "MI" or "IM" tell the byte order; every published file here is little-endian.
  check(header[126] == 'I' && header[127] == 'M',
        "{}: a big-endian MAT file; expected little-endian", path.string());
  for (uint64_t at = kHeader; at < size;) {
    std::array<uint32_t, 2> tag{};  // type, bytes
    check(size - at >= sizeof(tag), "{}: {} bytes; ends inside an element's tag (file truncated?)",
          path.string(), with_commas(static_cast<int64_t>(size)));
    file.read(reinterpret_cast<uint8_t*>(tag.data()), sizeof(tag));
    at += sizeof(tag);
    check(tag[1] <= size - at, "{}: {} bytes; its last element ends at byte {} (file truncated?)",
          path.string(), with_commas(static_cast<int64_t>(size)),
          with_commas(static_cast<int64_t>(at + tag[1])));
    at += tag[1];
    if (tag[0] != kCompressed) {
      check_top_level(file, tag[0], tag[1]);
      continue;
    }
    InflatedSource inflated(file, tag[1]);
    std::array<uint32_t, 2> inner{};
    inflated.read(reinterpret_cast<uint8_t*>(inner.data()), sizeof(inner));
    check_top_level(inflated, inner[0], inner[1]);
    inflated.expect_end();
  }
}

}  // namespace remcaps
