#include "arete/base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>

#include "arete/base/text.h"
#include "io_test_support.h"

namespace arete::io {
namespace {

using test::bytes_of;
using test::expect_error;
using test::read_text;
using test::TempDir;
using test::write_text;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(ReadFile, GivesAllBytesAndHonoursTheCap) {
  TempDir dir;
  const std::string content = std::string("a\0b\n", 4) + std::string(100'000, 'x');
  write_text(dir / "f", content);
  EXPECT_EQ(text_of(read_file(dir / "f", content.size())), content);
  expect_error(ErrorKind::io, {"/f'", "too large", "at most 100003", "100004"},
               [&] { read_file(dir / "f", content.size() - 1); });
  write_text(dir / "empty", "");
  EXPECT_TRUE(read_file(dir / "empty", 0).empty());
}

TEST(ReadFile, ReadsFilesThatDoNotKnowTheirSize) {
  EXPECT_FALSE(read_file("/proc/self/status", 1 << 20).empty());
  expect_error(ErrorKind::io, {"too large"}, [] { read_file("/proc/self/status", 10); });
}

TEST(ReadFile, NamesPathCauseAndFix) {
  TempDir dir;
  expect_error(ErrorKind::io, {"cannot open", "/none'", "No such file", "Hint: check the spelling"},
               [&] { read_file(dir / "none", 10); });
  expect_error(ErrorKind::io, {"cannot read", "Is a directory"},
               [&] { read_file(dir.path(), 10); });
  expect_error(ErrorKind::io, {"empty"}, [] { read_file("", 10); });
  expect_error(ErrorKind::io, {"zero byte", "\\x00"},
               [] { read_file(std::string("a\0b", 3), 10); });
}

TEST(MappedFile, MapsMovesAndNoticesTruncation) {
  TempDir dir;
  write_text(dir / "f", "hello");
  MappedFile a(dir / "f");
  EXPECT_EQ(text_of(a.bytes()), "hello");
  MappedFile b(std::move(a));
  EXPECT_EQ(a.size(), 0u);
  EXPECT_EQ(text_of(b.bytes()), "hello");
  b.check_not_truncated();
  std::filesystem::resize_file(dir / "f", 2);
  expect_error(ErrorKind::io, {"became shorter", "5 bytes", "2 bytes"},
               [&] { b.check_not_truncated(); });
  write_text(dir / "empty", "");
  b = MappedFile(dir / "empty");
  EXPECT_TRUE(b.bytes().empty());
  b.check_not_truncated();
  expect_error(ErrorKind::io, {"Is a directory"}, [&] { MappedFile m(dir.path()); });
  expect_error(ErrorKind::io, {"device or a pipe"}, [] { MappedFile m("/dev/null"); });
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  expect_error(ErrorKind::io, {"device or a pipe"}, [&] { MappedFile m(dir / "pipe"); });
}

TEST(AtomicFile, AppearsOnlyWhenCommitted) {
  TempDir dir;
  write_text(dir / "f", "old");
  {
    AtomicFile file(dir / "f");
    file.write("new");
    EXPECT_EQ(read_text(dir / "f"), "old");
    EXPECT_EQ(dir.file_count(), 2u);
  }
  EXPECT_EQ(read_text(dir / "f"), "old");
  EXPECT_EQ(dir.file_count(), 1u) << "the temporary file is left behind";
  AtomicFile file(dir / "f");
  const std::string large(3 << 20, 'z');
  file.write("new ");
  file.write(bytes_of(large));
  file.write(" end");
  EXPECT_EQ(file.size(), large.size() + 8);
  file.commit();
  EXPECT_EQ(read_text(dir / "f"), "new " + large + " end");
  EXPECT_EQ(dir.file_count(), 1u);
  expect_error(ErrorKind::bug, {}, [&] { file.commit(); });
}

TEST(AtomicFile, WritersOfTheSameFileDoNotMix) {
  TempDir dir;
  AtomicFile a(dir / "f"), b(dir / "f");
  EXPECT_NE(a.temporary_path(), b.temporary_path());
  a.write("aaaa");
  b.write("bb");
  a.commit();
  EXPECT_EQ(read_text(dir / "f"), "aaaa");
  b.commit();
  EXPECT_EQ(read_text(dir / "f"), "bb");
}

TEST(AtomicFile, KeepsPermissionsAndFollowsLinks) {
  TempDir dir;
  write_text(dir / "real", "old");
  ::chmod((dir / "real").c_str(), 0640);
  ASSERT_EQ(::symlink("real", (dir / "link").c_str()), 0);
  AtomicFile file(dir / "link");
  file.write("new");
  file.commit();
  EXPECT_EQ(read_text(dir / "real"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  struct stat info;
  ASSERT_EQ(::stat((dir / "real").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
}

TEST(AtomicFile, NamesWhatIsWrongWithThePath) {
  TempDir dir;
  write_text(dir / "file", "");
  expect_error(ErrorKind::io, {"the folder", "/none'", "cannot be reached", "mkdir -p"},
               [&] { AtomicFile f(dir / "none/f"); });
  expect_error(ErrorKind::io, {"Not a directory", "a part of the path is a file"},
               [&] { AtomicFile f(dir / "file/f"); });
  expect_error(ErrorKind::io, {"Is a directory", "name a file"}, [&] { AtomicFile f(dir.path()); });
  expect_error(ErrorKind::io, {"Is a directory"}, [&] { AtomicFile f(dir / "x/"); });
  expect_error(ErrorKind::io, {"device or a pipe"}, [] { AtomicFile f("/dev/null"); });
  expect_error(ErrorKind::io, {"File name too long", "shorter"},
               [&] { AtomicFile f(dir / std::string(300, 'n')); });
  AtomicFile longest(dir / std::string(255, 'n'));
  longest.commit();
  EXPECT_EQ(dir.file_count(), 2u);
}

// In a child, for root has to become somebody else first: root may write everywhere.
TEST(AtomicFile, UnwritableFolderIsExplained) {
  TempDir dir;
  write_text(dir / "f", "old");
  ::chmod(dir.path().c_str(), 0555);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(3);
    int code = 1;
    try {
      AtomicFile file(dir / "f");
    } catch (const IoError& error) {
      const std::string_view what = error.what();
      const bool told = what.find("/f'") != std::string_view::npos &&
                        what.find("Permission denied") != std::string_view::npos &&
                        what.find("ls -ld") != std::string_view::npos;
      code = told ? 0 : 2;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ::chmod(dir.path().c_str(), 0755);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_text(dir / "f"), "old");
}

// The system refuses to write on: the nearest to a full disk that needs no privileges.
TEST(AtomicFile, FailedWriteLeavesTheOldFile) {
  TempDir dir;
  write_text(dir / "f", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int code = 1;
    try {
      AtomicFile file(dir / "f");
      file.write(std::string(10'000, 'x'));
      file.commit();
    } catch (const IoError& error) {
      const std::string_view what = error.what();
      const bool told = what.find("/f'") != std::string_view::npos &&
                        what.find("File too large") != std::string_view::npos &&
                        what.find("ulimit -f") != std::string_view::npos;
      code = told ? 0 : 2;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_text(dir / "f"), "old");
  EXPECT_EQ(dir.file_count(), 1u);
}

TEST(AtomicFile, KilledBeforeTheCommitLeavesTheOldFile) {
  TempDir dir;
  write_text(dir / "f", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    AtomicFile file(dir / "f");
    file.write(std::string(5 << 20, 'x'));
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_text(dir / "f"), "old");
}

TEST(SystemError, HintsForFullDisks) {
  const IoError error = system_error("write", "/data/ckpt", ENOSPC);
  EXPECT_NE(std::string_view(error.what()).find("No space left on device"), std::string_view::npos);
  EXPECT_NE(error.hint().find("free some space"), std::string::npos);
}

TEST(MakeDirectories, MakesAllPartsAndNamesAFileInTheWay) {
  TempDir dir;
  make_directories(dir / "a/b//c/");
  make_directories(dir / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(dir / "a/b/c"));
  make_directories("/");
  write_text(dir / "file", "");
  expect_error(ErrorKind::io, {"/file' exists and is not a folder"},
               [&] { make_directories(dir / "file/x"); });
  expect_error(ErrorKind::io, {"/file' exists and is not a folder"},
               [&] { make_directories(dir / "file"); });
  expect_error(ErrorKind::io, {"/proc/none'"}, [] { make_directories("/proc/none/x"); });
}

TEST(Text, QuotesHostileNames) {
  EXPECT_EQ(quote_text("plain ä €"), "'plain ä €'");
  EXPECT_EQ(quote_text("a\x1b[31m\n\xff"), "'a\\x1b[31m\\x0a\\xff'");
  EXPECT_EQ(quote_text(std::string(200, 'a')), "'" + std::string(120, 'a') + "...'");
}

TEST(Text, KnowsValidUtf8) {
  EXPECT_EQ(utf8_sequence_length("a"), 1u);
  EXPECT_EQ(utf8_sequence_length("\xC3\xA4"), 2u);
  EXPECT_EQ(utf8_sequence_length("\xF0\x9F\x98\x80"), 4u);
  for (const char* bad : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xC3", "\xE2\x82"})
    EXPECT_EQ(utf8_sequence_length(bad), 0u);
}

TEST(Text, JsonStringsAndNumbers) {
  EXPECT_EQ(json_string("a\"\\\n\x01\xff"), "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD\"");
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(-2), "-2");
  EXPECT_EQ(json_number(1.0 / 0.0), "null");
  EXPECT_EQ(json_number(std::stod("nan")), "null");
  EXPECT_EQ(std::stod(json_number(1.0 / 3)), 1.0 / 3);
}

}  // namespace
}  // namespace arete::io
