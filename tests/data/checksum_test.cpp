// Checksums of files and of what is in them.
#include <gtest/gtest.h>

#include "remcaps/data/checksum.h"
#include "tests/data/fixtures.h"
#include "tests/temporary_folder.h"

namespace remcaps::testing {
namespace {

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

}  // namespace
}  // namespace remcaps::testing
