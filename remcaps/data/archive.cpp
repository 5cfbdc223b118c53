#include "remcaps/data/archive.h"

#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "remcaps/base/error.h"
#include "remcaps/base/files.h"
#include "remcaps/base/text.h"
#include "remcaps/data/gz_reader.h"

namespace remcaps {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBuffer = 1 << 20;

// An output file that is sure to be written, or an Error.
class Output {
 public:
  explicit Output(const fs::path& path) : path_(path) {
    if (path.has_parent_path()) make_folder(path.parent_path());
    errno = 0;
    file_.open(path, std::ios::binary | std::ios::trunc);
    check(file_.good(), "{}: cannot write: {}", path.string(), std::strerror(errno));
  }
  void write(const void* data, size_t bytes) {
    file_.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    check(file_.good(), "{}: writing failed: {}", path_.string(), std::strerror(errno));
  }
  void close() {
    file_.close();
    check(!file_.fail(), "{}: writing failed: {}", path_.string(), std::strerror(errno));
  }

 private:
  fs::path path_;
  std::ofstream file_;
};

void check_member(const fs::path& archive, const std::string& member) {
  check(stays_below(member), "{}: holds the path \"{}\", which leads out of it", archive.string(),
        member);
}

constexpr size_t kTarBlock = 512;
constexpr uint64_t kTarMost = uint64_t{1} << 60;  // bytes of a member: sums with it cannot overflow
using TarHeader = std::array<char, kTarBlock>;

// A number field: octal text, or big-endian binary where the first bit is set (files beyond 8 GB).
uint64_t tar_number(const char* field, size_t length) {
  uint64_t value = 0;
  if ((static_cast<uint8_t>(field[0]) & 0x80) != 0) {
    for (size_t i = 1; i < length; ++i) value = value << 8 | static_cast<uint8_t>(field[i]);
    return value;
  }
  for (size_t i = 0; i < length; ++i)
    if (field[i] >= '0' && field[i] <= '7')
      value = value * 8 + static_cast<uint64_t>(field[i] - '0');
  return value;
}

std::string tar_text(const char* field, size_t length) {
  return std::string(field, strnlen(field, length));
}

bool tar_checksum_fits(const TarHeader& header) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(header[i]);
  return sum == tar_number(header.data() + 148, 8);
}

// The value of a key in a pax header ("23 path=some/long/name\n"); empty where it has none.
std::string pax_value(const std::string& records, const std::string& key) {
  size_t at = 0;
  while (at < records.size()) {
    const size_t length = std::strtoull(records.c_str() + at, nullptr, 10);
    const size_t space = records.find(' ', at);
    if (space == std::string::npos || length > records.size() - at || space + 2 > at + length)
      break;
    const std::string record = records.substr(space + 1, at + length - space - 2);
    if (record.rfind(key + "=", 0) == 0) return record.substr(key.size() + 1);
    at += length;
  }
  return "";
}

uint64_t little_endian(const char* bytes, int count) {
  uint64_t value = 0;
  for (int i = count - 1; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

struct ZipMember {
  std::string name;
  int method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0, size = 0, offset = 0;
};

class ZipArchive {
 public:
  explicit ZipArchive(const fs::path& path) : path_(path), file_(path, std::ios::binary) {
    std::error_code error;
    size_ = fs::file_size(path, error);
    check(!error && file_.good(), "{}: cannot read: {}", path.string(),
          error ? error.message() : std::strerror(errno));
  }

  std::vector<ZipMember> members() {
    const std::string directory = central_directory();
    constexpr size_t kFixed = 46;
    std::vector<ZipMember> list;
    size_t at = 0;
    while (at + kFixed <= directory.size()) {
      const char* entry = directory.data() + at;
      check(little_endian(entry, 4) == 0x02014b50, "{}: a damaged zip directory", path_.string());
      const size_t name = little_endian(entry + 28, 2), extra = little_endian(entry + 30, 2);
      const size_t next = at + kFixed + name + extra + little_endian(entry + 32, 2);
      check(next <= directory.size(), "{}: a damaged zip directory", path_.string());
      check((little_endian(entry + 8, 2) & 1) == 0, "{}: an encrypted zip archive", path_.string());
      ZipMember member;
      member.name.assign(entry + kFixed, name);
      member.method = static_cast<int>(little_endian(entry + 10, 2));
      member.crc = static_cast<uint32_t>(little_endian(entry + 16, 4));
      member.packed = little_endian(entry + 20, 4);
      member.size = little_endian(entry + 24, 4);
      member.offset = little_endian(entry + 42, 4);
      read_zip64(entry + kFixed + name, extra, member);
      list.push_back(std::move(member));
      at = next;
    }
    return list;
  }

  void extract(const ZipMember& member, const fs::path& target) {
    constexpr size_t kFixed = 30;
    const std::string local = read_at(member.offset, kFixed);
    check(little_endian(local.data(), 4) == 0x04034b50, "{}: {}: a damaged header", path_.string(),
          member.name);
    const uint64_t begin = member.offset + kFixed + little_endian(local.data() + 26, 2) +
                           little_endian(local.data() + 28, 2);
    check(begin <= size_ && member.packed <= size_ - begin,
          "{}: {} has {} bytes from byte {} on, of {} (file truncated?)", path_.string(),
          member.name, member.packed, begin, size_);
    check(member.method == 0 || member.method == Z_DEFLATED,
          "{}: {} is packed with method {}; expected 0 or 8", path_.string(), member.name,
          member.method);
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(begin));
    Output out(target);
    crc_ = crc32(0, nullptr, 0);
    written_ = 0;
    if (member.method == 0)
      copy(member.packed, out);
    else
      inflate_to(member, out);
    out.close();
    check(crc_ == member.crc && written_ == member.size, "{}: {} is damaged (its CRC does not fit)",
          path_.string(), member.name);
  }

 private:
  std::string read_at(uint64_t offset, uint64_t bytes) {
    check(offset <= size_ && bytes <= size_ - offset,
          "{}: {} bytes; its directory points beyond (file truncated?)", path_.string(),
          with_commas(static_cast<int64_t>(size_)));
    std::string text(bytes, '\0');
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(text.data(), static_cast<std::streamsize>(bytes));
    check(file_.good() || bytes == 0, "{}: reading failed", path_.string());
    return text;
  }

  // The directory stands at the end of the file, before a record that says where it begins.
  std::string central_directory() {
    constexpr uint64_t kEnd = 22, kLocator = 20, kEnd64 = 56, kMaxComment = 0xffff;
    const uint64_t tail_size = std::min(size_, kEnd + kMaxComment);
    const std::string tail = read_at(size_ - tail_size, tail_size);
    const size_t end = tail.rfind("PK\x05\x06");
    check(end != std::string::npos && end + kEnd <= tail.size(),
          "{}: no zip directory at its end (not a zip archive, or truncated)", path_.string());
    uint64_t bytes = little_endian(tail.data() + end + 12, 4);
    uint64_t offset = little_endian(tail.data() + end + 16, 4);
    if ((offset == 0xffffffff || bytes == 0xffffffff) && end >= kLocator) {
      const std::string record =
          read_at(little_endian(tail.data() + end - kLocator + 8, 8), kEnd64);
      bytes = little_endian(record.data() + 40, 8);
      offset = little_endian(record.data() + 48, 8);
    }
    return read_at(offset, bytes);
  }

  // Sizes that do not fit 32 bits stand in an extra field, in a fixed order.
  static void read_zip64(const char* extra, size_t bytes, ZipMember& member) {
    for (size_t at = 0; at + 4 <= bytes;) {
      const size_t length = little_endian(extra + at + 2, 2);
      if (little_endian(extra + at, 2) == 1) {
        size_t field = at + 4;
        for (uint64_t* value : {&member.size, &member.packed, &member.offset})
          if (*value == 0xffffffff && field + 8 <= std::min(at + 4 + length, bytes)) {
            *value = little_endian(extra + field, 8);
            field += 8;
          }
      }
      at += 4 + length;
    }
  }

  void emit(const uint8_t* data, size_t bytes, Output& out) {
    crc_ = crc32(crc_, data, static_cast<uInt>(bytes));
    written_ += bytes;
    out.write(data, bytes);
  }

  size_t next_piece(uint64_t& left, std::vector<uint8_t>& buffer) {
    const auto piece = static_cast<std::streamsize>(std::min<uint64_t>(left, buffer.size()));
    file_.read(reinterpret_cast<char*>(buffer.data()), piece);
    check(file_.gcount() == piece, "{}: reading failed", path_.string());
    left -= static_cast<uint64_t>(piece);
    return static_cast<size_t>(piece);
  }

  void copy(uint64_t bytes, Output& out) {
    while (bytes > 0) {
      const size_t piece = next_piece(bytes, in_);
      emit(in_.data(), piece, out);
    }
  }

  void inflate_to(const ZipMember& member, Output& out) {
    z_stream stream{};
    check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "{}: zlib cannot start", path_.string());
    const std::unique_ptr<z_stream, int (*)(z_stream*)> ender(&stream, inflateEnd);
    uint64_t left = member.packed;
    int code = Z_OK;
    while (left > 0 && code == Z_OK) {
      stream.avail_in = static_cast<uInt>(next_piece(left, in_));
      stream.next_in = in_.data();
      do {
        stream.next_out = out_.data();
        stream.avail_out = static_cast<uInt>(out_.size());
        code = inflate(&stream, Z_NO_FLUSH);
        emit(out_.data(), out_.size() - stream.avail_out, out);
      } while (code == Z_OK && (stream.avail_in > 0 || stream.avail_out == 0));
      if (code == Z_BUF_ERROR) code = Z_OK;  // only out of input
    }
    check(code == Z_STREAM_END, "{}: {} is damaged", path_.string(), member.name);
  }

  fs::path path_;
  std::ifstream file_;
  uint64_t size_ = 0, written_ = 0;
  uLong crc_ = 0;
  std::vector<uint8_t> in_ = std::vector<uint8_t>(kBuffer), out_ = std::vector<uint8_t>(kBuffer);
};

}  // namespace

void unpack_tar(const fs::path& archive, const PlaceMember& place) {
  GzReader file(archive);
  std::vector<char> buffer(kBuffer);
  std::string long_name;  // of the next member, from a GNU or pax header
  const auto read_text = [&](uint64_t size) {
    check(size < kBuffer, "{}: a header of {} bytes in the tar archive", archive.string(), size);
    std::string text((size + kTarBlock - 1) / kTarBlock * kTarBlock, '\0');
    file.read_exactly(text.data(), text.size(), "tar header");
    text.resize(size);
    return text;
  };
  while (true) {
    TarHeader header{};
    file.read_exactly(header.data(), header.size(), "tar header");
    if (std::all_of(header.begin(), header.end(), [](char c) { return c == 0; })) return;
    check(tar_checksum_fits(header), "{}: a damaged header (not a tar archive?)", archive.string());
    const uint64_t size = tar_number(header.data() + 124, 12);
    check(size <= kTarMost, "{}: a member of {} bytes", archive.string(), size);
    const char type = header[156];
    if (type == 'L') {
      long_name = read_text(size).c_str();
      continue;
    }
    if (type == 'x') {
      long_name = pax_value(read_text(size), "path");
      continue;
    }
    std::string name = tar_text(header.data(), 100);
    const bool ustar = std::memcmp(header.data() + 257, "ustar\0", 6) == 0;
    const std::string prefix = ustar ? tar_text(header.data() + 345, 155) : "";
    if (!prefix.empty()) name = prefix + "/" + name;
    if (!long_name.empty()) name = std::exchange(long_name, "");

    const bool regular = type == '0' || type == '\0';
    if (regular) check_member(archive, name);
    const fs::path target = regular ? place(name) : fs::path();
    std::optional<Output> out;
    if (!target.empty()) out.emplace(target);
    uint64_t left = (size + kTarBlock - 1) / kTarBlock * kTarBlock, wanted = size;
    while (left > 0) {
      const auto piece = static_cast<size_t>(std::min<uint64_t>(left, buffer.size()));
      file.read_exactly(buffer.data(), piece, name);
      if (out) out->write(buffer.data(), static_cast<size_t>(std::min<uint64_t>(piece, wanted)));
      wanted -= std::min<uint64_t>(piece, wanted);
      left -= piece;
    }
    if (out) out->close();
  }
}

void unpack_zip(const fs::path& archive, const PlaceMember& place) {
  ZipArchive zip(archive);
  for (const ZipMember& member : zip.members()) {
    if (member.name.empty() || member.name.back() == '/') continue;
    check_member(archive, member.name);
    const fs::path target = place(member.name);
    if (!target.empty()) zip.extract(member, target);
  }
}

void gunzip(const fs::path& from, const fs::path& to) {
  GzReader in(from);
  Output out(to);
  std::vector<char> buffer(kBuffer);
  while (const size_t got = in.read(buffer.data(), buffer.size())) out.write(buffer.data(), got);
  out.close();
}

}  // namespace remcaps
