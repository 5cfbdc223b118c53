#include "remcaps/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "remcaps/base/error.h"
#include "tests/temporary_folder.h"

namespace remcaps {
namespace {

namespace fs = std::filesystem;

int entries(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(WriteAtomically, ReplacesTheOldFile) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  write_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteAtomically, AFailureLeavesTheOldFileAndNothingElse) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  EXPECT_THROW(write_atomically(folder / "a",
                                [](std::ostream& out) {
                                  out << "half";
                                  fail("no more");
                                }),
               Error);
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteAtomically, AFullDiskLeavesTheOldFileAndNothingElse) {
  testing::TemporaryFolder folder;
  write_atomically(folder / "a", "old");
  // A file-size limit makes write() fail just as a full disk does.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tiny{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tiny), 0);
  EXPECT_THROW(write_atomically(folder / "a", std::string(1 << 20, 'x')), Error);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(folder / "a"), "old");
  EXPECT_EQ(entries(folder.path()), 1);
}

TEST(WriteAtomically, APipeIsWrittenToAndStaysOne) {
  testing::TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_NO_THROW(prepare_output(pipe));
  write_atomically(pipe, "text");
  char text[16] = "";
  EXPECT_EQ(read(reader, text, sizeof(text)), 4);
  EXPECT_STREQ(text, "text");
  EXPECT_TRUE(fs::is_fifo(pipe)) << "as /dev/null must stay what it is";
  close(reader);
}

TEST(WriteAtomically, WritesWhereASymbolicLinkLeads) {
  testing::TemporaryFolder folder;
  make_folder(folder / "elsewhere");
  write_atomically(folder / "elsewhere/a", "old");
  fs::create_symlink("elsewhere/a", folder / "link");
  write_atomically(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "elsewhere/a"), "new");
  fs::create_symlink("elsewhere/missing", folder / "dangling");
  write_atomically(folder / "dangling", "new");
  EXPECT_EQ(read_file(folder / "dangling"), "new");
}

TEST(PrepareOutput, MakesTheFolderAndNamesWhatStandsInTheWay) {
  testing::TemporaryFolder folder;
  prepare_output(folder / "new/sub/file");
  EXPECT_TRUE(fs::is_directory(folder / "new/sub"));
  EXPECT_EQ(entries(folder / "new/sub"), 0);
  EXPECT_THROW(prepare_output(folder / "new"), Error) << "a folder";
  write_atomically(folder / "a", "text");
  EXPECT_THROW(prepare_output(folder / "a/file"), Error) << "below a file";
  EXPECT_NO_THROW(prepare_output(folder / "a")) << "may be replaced";
  EXPECT_EQ(read_file(folder / "a"), "text");
}

TEST(WriteAtomically, AMissingFolderIsOneClearLine) {
  testing::TemporaryFolder folder;
  try {
    write_atomically(folder / "no/such/file", "text");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("no/such/file: cannot write: No such file"));
  }
}

TEST(ReadFile, NamesTheFile) {
  try {
    read_file("/no/such/file");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/no/such/file: cannot read: No such file or directory");
  }
}

}  // namespace
}  // namespace remcaps
