// Archives: whole, damaged and hostile ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "remcaps/base/files.h"
#include "remcaps/data/formats/archive.h"
#include "tests/data/fixtures.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = 1'000'000;

class Archive : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_unpack_archives()) GTEST_SKIP() << "built without libarchive";
  }
  // Unpacks everything under out/.
  PlaceMember into_out() {
    return [this](const std::string& member) { return folder_ / "out" / member; };
  }
  std::string unpacked(const std::string& member) { return read_file(folder_ / "out" / member); }
  const TemporaryFolder folder_;
  const std::vector<Member> members_ = {{"a.txt", "first"},
                                        {"deep/" + std::string(120, 'n') + "/b.bin", long_text()},
                                        {"deep/empty", ""}};
};

TEST_F(Archive, TarComesOutAsItWentIn) {
  for (const bool compressed : {false, true}) {
    write_bytes(folder_ / "x.tar", compressed ? gzip(tar_bytes(members_)) : tar_bytes(members_));
    unpack_tar(folder_ / "x.tar", into_out(), kMost);
    for (const Member& member : members_) EXPECT_EQ(unpacked(member.name), member.content);
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(Archive, ZipComesOutAsItWentIn) {
  for (const bool deflated : {false, true}) {
    write_bytes(folder_ / "x.zip", zip_bytes(members_, deflated));
    unpack_zip(folder_ / "x.zip", into_out(), kMost);
    for (const Member& member : members_) EXPECT_EQ(unpacked(member.name), member.content);
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(Archive, MembersCanBeSkipped) {
  write_bytes(folder_ / "x.tar", tar_bytes(members_));
  unpack_tar(
      folder_ / "x.tar",
      [&](const std::string& member) {
        return member == "a.txt" ? folder_ / "out" / member : fs::path();
      },
      kMost);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "out"), {}), 1);
}

TEST_F(Archive, RejectsTruncationAndDamage) {
  const std::string tar = gzip(tar_bytes(members_));
  write_bytes(folder_ / "cut.tgz", tar.substr(0, tar.size() / 2));
  EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "cut.tgz", into_out(), kMost); }),
              HasSubstr("cut.tgz"));
  const std::string plain = tar_bytes(members_);
  write_bytes(folder_ / "cut.tar", plain.substr(0, plain.size() - 1024));
  EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "cut.tar", into_out(), kMost); }),
              HasSubstr("truncated"));
  write_bytes(folder_ / "text.tar", std::string(2000, 'x'));
  EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "text.tar", into_out(), kMost); }),
              HasSubstr("text.tar"));

  // Only gzip's own CRC tells that the very last bytes are wrong.
  std::string wrong_crc = gzip(tar_bytes(members_));
  wrong_crc[wrong_crc.size() - 6] = static_cast<char>(~wrong_crc[wrong_crc.size() - 6]);
  write_bytes(folder_ / "crc.tgz", wrong_crc);
  EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "crc.tgz", into_out(), kMost); }),
              HasSubstr("crc.tgz: damaged"));

  const std::string zip = zip_bytes(members_, true);
  write_bytes(folder_ / "cut.zip", zip.substr(0, zip.size() / 2));
  EXPECT_THAT(error_of([&] { unpack_zip(folder_ / "cut.zip", into_out(), kMost); }),
              HasSubstr("zip"));
  for (const bool deflated : {false, true}) {
    write_bytes(folder_ / "bad.zip", zip_bytes(members_, deflated));
    damage_file(folder_ / "bad.zip", 1000);
    EXPECT_THAT(error_of([&] { unpack_zip(folder_ / "bad.zip", into_out(), kMost); }),
                HasSubstr("damaged"));
  }
}

// The first header of a tar archive after a change, its checksum made to fit.
std::string with_header(std::string tar, const std::function<void(char*)>& change) {
  change(tar.data());
  std::memset(tar.data() + 148, ' ', 8);
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<uint8_t>(tar[i]);
  std::snprintf(tar.data() + 148, 8, "%06o", sum);
  return tar;
}

TEST_F(Archive, RejectsSizesThatOverflow) {
  // 2^64 - 1 in the binary form of large members: rounded up to blocks it would be 0.
  write_bytes(folder_ / "size.tar", with_header(tar_bytes({{"a", "x"}}), [](char* header) {
                std::memset(header + 124, 0xff, 12);
              }));
  EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "size.tar", into_out(), kMost); }),
              HasSubstr("size.tar"));

  // A pax record whose length leads back to the record before it.
  const std::string records = "9 a=bcde\n18446744073709551607 x=1\n";
  write_bytes(folder_ / "pax.tar", with_header(tar_bytes({{"pax", records}, {"a", "x"}}),
                                               [](char* header) { header[156] = 'x'; }));
  EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "pax.tar", into_out(), kMost); }),
              HasSubstr("pax.tar"));

  // A zip directory of 2^64 - 256 bytes from byte 256 on: their sum is 0.
  std::string zip = zip_bytes({{"a", "x"}}, false);
  const size_t end = zip.rfind("PK\x05\x06");
  ASSERT_NE(end, std::string::npos);
  const std::string record64 = std::string("PK\x06\x06") + std::string(36, '\0') +
                               std::string("\x00\xff\xff\xff\xff\xff\xff\xff", 8) +
                               std::string("\x00\x01\x00\x00\x00\x00\x00\x00", 8);
  std::string locator = std::string("PK\x06\x07") + std::string(16, '\0');
  locator[8] = static_cast<char>(end);  // where record64 will be
  std::memset(zip.data() + end + 12, 0xff, 8);
  zip.insert(end, record64 + locator);
  write_bytes(folder_ / "size.zip", zip);
  EXPECT_THAT(error_of([&] { unpack_zip(folder_ / "size.zip", into_out(), kMost); }),
              HasSubstr("size.zip"));
}

TEST_F(Archive, NeverWritesOutsideItsFolder) {
  for (const char* name : {"../evil", "/tmp/evil", "a/../../evil"}) {
    write_bytes(folder_ / "evil.tar", tar_bytes({{name, "x"}}));
    EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "evil.tar", into_out(), kMost); }),
                HasSubstr("leads out of it"));
    write_bytes(folder_ / "evil.zip", zip_bytes({{name, "x"}}, false));
    EXPECT_THAT(error_of([&] { unpack_zip(folder_ / "evil.zip", into_out(), kMost); }),
                HasSubstr("leads out of it"));
  }
}

TEST_F(Archive, LinksAreNotUnpacked) {
  for (const char type : {'1', '2'}) {  // a hard link, a symbolic link
    write_bytes(folder_ / "link.tar",
                with_header(tar_bytes({{"link", ""}, {"link/file", "x"}}), [&](char* header) {
                  header[156] = type;
                  std::snprintf(header + 157, 100, "%s", folder_.path().c_str());
                }));
    unpack_tar(folder_ / "link.tar", into_out(), kMost);
    EXPECT_TRUE(fs::is_directory(fs::symlink_status(folder_ / "out" / "link")));
    EXPECT_EQ(unpacked("link/file"), "x");
    fs::remove_all(folder_ / "out");
  }
}

TEST_F(Archive, UnpackingStopsAtTheBound) {
  const std::string zeros(3'000'000, '\0');  // packs to a few kilobytes
  const std::vector<Member> members = {{"a", "x"}, {"zeros", zeros}};
  write_bytes(folder_ / "x.tgz", gzip(tar_bytes(members)));
  write_bytes(folder_ / "x.zip", zip_bytes(members, true));
  write_bytes(folder_ / "x.gz", gzip(zeros));
  const auto too_much = [](const char* name) {
    return HasSubstr(std::string(name) + ": unpacks to more bytes than expected");
  };
  EXPECT_THAT(error_of([&] { unpack_tar(folder_ / "x.tgz", into_out(), 3'000'000); }),
              too_much("x.tgz"));
  EXPECT_THAT(error_of([&] { unpack_zip(folder_ / "x.zip", into_out(), 3'000'000); }),
              too_much("x.zip"));
  EXPECT_THAT(error_of([&] { gunzip(folder_ / "x.gz", folder_ / "zeros", 2'999'999); }),
              too_much("x.gz"));
  EXPECT_LT(fs::file_size(folder_ / "zeros"), 3'000'000u);
  unpack_tar(folder_ / "x.tgz", into_out(), 3'000'001);
  EXPECT_EQ(unpacked("zeros"), zeros);
  EXPECT_EQ(sensible_unpacked_size(folder_ / "x.gz"), 64 << 20);
  write_bytes(folder_ / "large", zeros);
  EXPECT_EQ(sensible_unpacked_size(folder_ / "large"), 300'000'000);
}

}  // namespace
}  // namespace remcaps::testing
